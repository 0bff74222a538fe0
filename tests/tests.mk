# What `make test` and `make test-gpu` run: words NAME@SECONDS=COMMAND for tests/run.sh. The Makefile
# includes this file; $(cases), $(unit_tests) and $(mpi_tests) are its own.

# Without SECONDS a command has this long.
TEST_TIMEOUT ?= $(if $(SANITIZE),1200,120)
export TEST_TIMEOUT
limit_graders := $(if $(SANITIZE),4000,1800)
limit_handouts := $(if $(SANITIZE),4000,1200)
limit_recipes := $(if $(SANITIZE),2000,600)
limit_misuse := $(if $(SANITIZE),1200,300)
limit_threads := 300
limit_bench := $(if $(SANITIZE),1200,300)
limit_bf16 := $(if $(SANITIZE),1200,400)
limit_inject := 300
limit_cluster := $(if $(SANITIZE),1200,300)
limit_mismatches := $(if $(SANITIZE),1200,300)
limit_losses := $(if $(SANITIZE),1200,300)
limit_checkpoints := $(if $(SANITIZE),1200,300)
limit_hvdrun := $(if $(SANITIZE),1200,300)
limit_two_levels := $(if $(SANITIZE),1200,300)
limit_grade := $(if $(SANITIZE),2400,300)
limit_rehearsal := $(if $(SANITIZE),1200,300)
limit_forgeries := $(if $(SANITIZE),1200,300)
limit_watch := $(if $(SANITIZE),1200,300)
limit_demo := $(if $(SANITIZE),2400,900)
limit_page := 400
limit_print := 600
limit_pytorch := 900
limit_evaluate := $(if $(SANITIZE),1200,240)
limit_gradescope := $(if $(SANITIZE),2400,600)
limit_release := $(if $(SANITIZE),1200,300)
limit_package := 300
limit_stall := $(if $(SANITIZE),1200,240)
limit_environment := $(if $(SANITIZE),1200,400)
limit_forks := $(if $(SANITIZE),1200,240)
limit_outcomes := $(if $(SANITIZE),1200,300)
limit_targets := $(if $(SANITIZE),1200,300)
limit_checks := $(if $(SANITIZE),1200,300)

# ---- On the processor, with all GPUs hidden.

# $(1) goes before the command, $(2) after the name; $(3) are unit tests.
run_units = $(foreach t,$(3),'$(t)$(2)=$(1)$(BUILD)/tests/unit/test_$(t)')
run_cases = $(foreach c,$(cases),'replay $(c)$(2)=$(1)$(BUILD)/replay tests/golden/cases/$(c).safetensors')

# What runs again as on older processors, which other code is chosen for.
ISAS := AVX2 SSE41
ISA_TESTS := operations convolution batch_norm optimizers model graphs
run_isa = $(call run_units,DNNL_MAX_CPU_ISA=$(1) , ($(1)),$(ISA_TESTS)) $(call run_cases,DNNL_MAX_CPU_ISA=$(1) , ($(1)))

# What make test-more runs again in bfloat16, where the processor computes that: as it is, and as one without AMX,
# which other layouts are chosen for. Elsewhere they are skipped.
BF16_ISAS := AVX512_CORE_AMX AVX512_CORE_BF16
BF16_TESTS := operations convolution batch_norm model
run_bf16 = $(call run_units,HVDLAB_TEST_PRECISION=bf16 DNNL_MAX_CPU_ISA=$(1) , (bf16, $(1)),$(BF16_TESTS))

# Each script is a test of its own, except those that need a GPU, real or simulated. Those that take a minute or
# more and are about little that a change touches are left to make test-more.
more_tests := tests/unit/test_threads.sh tests/unit/test_bf16.sh tests/faults/test_inject.sh \
              tests/golden/test_pytorch.sh tests/mpi/test_two_levels.sh tests/steps/test_watch.sh tests/steps/test_outcomes.sh tests/steps/test_release.sh \
              tests/steps/test_gradescope.sh tests/unit/test_demo.sh tests/unit/test_page.sh tests/unit/test_print.sh tests/unit/test_translations.sh tests/unit/test_gpu_pack.sh tests/mpi/test_cluster.sh
script_tests := $(filter-out tests/emulated/% tests/gpu/% $(more_tests),$(wildcard tests/*/test_*.sh))
# Those that time something run alone; the others mostly wait, for compilers or for mpirun's end. The longest begin first.
alone_tests := timelines
runs_alone = $(filter $(alone_tests),$(call script_name,$(1)))
longest := $(foreach t,graders checks package handouts targets grade folders programs,$(filter %/test_$(t).sh,$(script_tests)))
script_name = $(patsubst test_%.sh,%,$(notdir $(1)))
# (words_NAME: what it is told.)
run_script = '$(script_name)$(addprefix @,$(limit_$(script_name)))=$(1)$(addprefix $(space),$(words_$(script_name)))'
space := $(subst x,,x x)
words_graders := --at-once 2 --some
words_handouts := --some
words_mismatches := --some
words_checkpoints := --some
words_hvdrun := --some
words_powercut := --some
words_recipes := --some
words_rehearsal := --some
words_grade := --some
words_forgeries := --some
run_answers := 'graders (all answers)@$(if $(SANITIZE),9000,5400)=tests/steps/test_graders.sh --at-once 2 $(ANSWERS)'

# On $(1) ranks: the test $(2); or a golden case and its tolerance, the words $(2), which N ranks must
# compute as one process does.
on_ranks = ($(1) $(if $(filter 1,$(1)),rank,ranks))=common/scripts/mpi.sh run $(1) $(BUILD)
run_mpi = '$(2) $(on_ranks)/tests/mpi/test_$(2)'
run_ranked = 'replay $(firstword $(2)) $(on_ranks)/replay \
             tests/golden/cases/$(firstword $(2)).safetensors --tolerance $(lastword $(2))'
RANKS := 2 4
RANKED_CASES := mlp_sgd:1e-5 mlp_momentum:1e-5 mlp_decay:1e-5 mlp_adam:1e-4 \
                lenet_sgd:1e-5 lenet_momentum:1e-5 lenet_adam:1e-4 bag_of_words_sgd:1e-5
run_all_ranked := $(foreach n,$(RANKS),$(foreach c,$(RANKED_CASES),$(call run_ranked,$(n),$(subst :, ,$(c)))))

run_on_cpu = $(foreach t,$(script_tests),$(if $(call runs_alone,$(t)),$(call run_script,$(t)))) \
    $(foreach n,1 2 3 4,$(foreach t,$(mpi_tests),$(call run_mpi,$(n),$(t)))) \
    $(run_all_ranked)

run_together = $(foreach t,$(longest),$(call run_script,$(t))) \
    $(call run_units,,,$(unit_tests)) $(call run_cases,,) $(foreach isa,$(ISAS),$(call run_isa,$(isa))) \
    $(foreach t,$(filter-out $(longest),$(script_tests)),$(if $(call runs_alone,$(t)),,$(call run_script,$(t))))

# What depends on MPI and its launcher alone, for a system with another Open MPI.
rank_scripts := $(wildcard tests/mpi/test_*.sh)
run_ranks = $(call run_units,,,args base devices stall_words) \
    $(foreach t,$(rank_scripts),$(if $(call runs_alone,$(t)),$(call run_script,$(t)))) \
    $(foreach n,1 2 3,$(foreach t,$(mpi_tests),$(call run_mpi,$(n),$(t)))) \
    --together $(foreach t,$(rank_scripts),$(if $(call runs_alone,$(t)),,$(call run_script,$(t))))

# What tests/unit/test_threads.sh watches, in a folder of its own.
threads := $(BUILD)/threads
build_threads = CUDA=0 SANITIZE=thread BUILD=$(threads) $(addprefix $(threads)/tests/unit/test_,devices stages stall_words pipeline prefetch mirrored)

# ---- On the GPU that is not there (tests/emulated/README.md), which is built in a folder of its own.
# It runs a grid's threads one by one, so only what is quick enough. The longest come first, since they run
# beside others. All of it is left to make test-more and make test-emulated.

emulated := $(BUILD)/emulated
EMULATED_TESTS := operations optimizers loss
EMULATED_PROGRAMS := replay solution_06 tests/emulated/test_emulated $(mpi_tests:%=tests/mpi/test_%) \
                     $(EMULATED_TESTS:%=tests/unit/test_%) $(addprefix tests/unit/test_,devices stages mirrored sharding)
EMULATED_MORE := bench mlp sweep check-step compile-step cut/baseline tests/unit/test_batch_norm
# All of it is instrumented. To look for leaks, too, would take the slow way through the stack at
# each allocation: test_leaks.sh alone does it.
build_emulated = EMULATED=1 SANITIZE=address,undefined BUILD=$(emulated) $(addprefix $(emulated)/,$(EMULATED_PROGRAMS))
build_emulated_more = $(build_emulated) $(addprefix $(emulated)/,$(EMULATED_MORE))
on_emulated = env -u CUDA_VISIBLE_DEVICES ASAN_OPTIONS=detect_leaks=0 CK_TIMEOUT_MULTIPLIER=10 BUILD=$(emulated)
# A check takes half a minute there: all steps where ranks share two GPUs, the first with one and with four.
emulated_answers_1 := steps/step_01 mistakes/step_01/pin-missing
emulated_answers_2 := solutions/step_06
emulated_answers_4 := solutions/step_01 mistakes/step_01/pinned-by-rank
grade_on_emulated = 'graders (simulated GPUs: $(1))@600=$(on_emulated) EMULATED_DEVICES=$(1) HVDLAB_CHECK_DEVICE=gpu \
    tests/steps/test_graders.sh $(emulated_answers_$(1))'
two_on_emulated = $(foreach t,devices stages,$(foreach s,$(1),'$(t) (simulated GPUs, streams $(s))@600=$(on_emulated) \
    EMULATED_DEVICES=2 EMULATED_STREAMS=$(s) HVDLAB_TEST_DEVICE=gpu $(emulated)/tests/unit/test_$(t)'))
script_on_emulated = '$(1) (simulated GPUs)@1800=$(on_emulated) tests/emulated/test_$(1).sh'
unit_on_emulated = '$(1) (simulated GPU)@600=$(on_emulated) HVDLAB_TEST_DEVICE=gpu $(emulated)/tests/unit/test_$(1)'
run_emulated = \
    $(call script_on_emulated,graphs) \
    $(foreach t,hvd timeline,'$(t) (simulated GPUs)@600=$(on_emulated) EMULATED_DEVICES=2 common/scripts/mpi.sh run 2 \
        $(emulated)/tests/mpi/test_$(t)') \
    $(foreach t,$(EMULATED_TESTS),$(call unit_on_emulated,$(t))) \
    $(call two_on_emulated,lazy) \
    'mirrored (simulated GPUs)@600=$(on_emulated) EMULATED_STREAMS=lazy CK_RUN_CASE=replicas HVDLAB_TEST_DEVICE=gpu \
        $(emulated)/tests/unit/test_mirrored' \
    'sharding (simulated GPU)@600=$(on_emulated) CK_RUN_CASE=layers HVDLAB_TEST_DEVICE=gpu $(emulated)/tests/unit/test_sharding' \
    'stand-in for CUDA=$(on_emulated) $(emulated)/tests/emulated/test_emulated' \
    $(foreach c,$(cases),'replay $(c) (simulated GPU)=$(on_emulated) \
        $(emulated)/replay tests/golden/cases/$(c).safetensors --device gpu')

# ---- What make test takes a part of (except the graders' answers), whole, or leaves out.

run_emulated_more = \
    'handouts (simulated GPUs)@1800=$(on_emulated) SANITIZE=address,undefined EMULATED_DEVICES=4 tests/unit/test_handouts.sh --gpu' \
    'mismatches (all, simulated GPUs)@1800=$(on_emulated) EMULATED_DEVICES=4 tests/mpi/test_mismatches.sh' \
    'hvd (simulated GPUs, by MPI)@600=$(on_emulated) EMULATED_DEVICES=2 HVD_TRANSPORT=mpi common/scripts/mpi.sh run 2 \
        $(emulated)/tests/mpi/test_hvd' \
    'sweep (simulated GPUs)@600=$(on_emulated) EMULATED_DEVICES=2 tests/bench/test_sweep.sh gpu' \
    $(foreach t,transports programs leaks,$(call script_on_emulated,$(t))) $(foreach n,1 2 4,$(call grade_on_emulated,$(n))) \
    'bench (simulated GPU)@600=$(on_emulated) tests/bench/test_bench.sh gpu' $(call unit_on_emulated,batch_norm) \
    $(foreach t,operations batch_norm,'$(t) (simulated GPU, backward)@600=$(on_emulated) EMULATED_ORDER=backward \
        HVDLAB_TEST_DEVICE=gpu $(emulated)/tests/unit/test_$(t)') \
    $(call two_on_emulated,at_once race)
run_more_here = $(foreach isa,$(BF16_ISAS),$(call run_bf16,$(isa))) \
    'handouts (rest)@$(limit_handouts)=tests/unit/test_handouts.sh --rest' \
    'handouts (package)@$(limit_handouts)=tests/unit/test_handouts.sh --package' \
    'mismatches (all)@1800=tests/mpi/test_mismatches.sh' \
    'checkpoints (all)@1800=tests/mpi/test_checkpoints.sh' \
    'powercut (all)@600=tests/faults/test_powercut.sh' \
    'folders (all)@600=tests/unit/test_folders.sh --all' \
    'grade (all)@$(if $(SANITIZE),2400,600)=tests/steps/test_grade.sh' \
    'rehearsal (60 students)@2400=tests/steps/test_rehearsal.sh' \
    'forgeries (all)@1800=tests/forgeries/test_forgeries.sh $(if $(CI),--fifth)' \
    'recipes (all)@$(limit_recipes)=tests/unit/test_recipes.sh' \
    'hvdrun (all)@600=tests/mpi/test_hvdrun.sh' \
    'hvdrun (random kills)@1800=tests/mpi/test_hvdrun.sh --random 15' \
    'two levels, measured@900=tests/mpi/test_two_levels.sh --measure' \
    'ps (all)@600=tests/mpi/test_ps.sh --all' \
    'measure (servers)@600=tests/unit/test_measure.sh --servers' \
    $(foreach t,$(more_tests),$(call run_script,$(t)))
run_more = $(run_more_here) $(run_emulated_more) $(run_emulated)

# ---- On 64-bit ARM, which qemu-user computes some ten times as slowly: what computes, and what ranks do.

arm := $(BUILD)/arm
arm_root := $(abspath $(arm))/root
ARM_TESTS := args batch_norm checkpoint cifar10 dataset fit loss mirrored operations optimizers ps safetensors
build_arm = CC=aarch64-linux-gnu-gcc CUDA=0 BUILD=$(arm) CPPFLAGS=--sysroot=$(arm_root) LDFLAGS=--sysroot=$(arm_root) \
    $(arm)/replay $(arm)/solution_06 $(arm)/tests/mpi/test_hvd $(ARM_TESTS:%=$(arm)/tests/unit/test_%)
pkg_config_arm = PKG_CONFIG_SYSROOT_DIR=$(arm_root) PKG_CONFIG_LIBDIR=$(arm_root)/usr/lib/aarch64-linux-gnu/pkgconfig
on_arm = CK_TIMEOUT_MULTIPLIER=20 BUILD=$(arm) tests/arm.sh
run_arm = 'training (ARM, 2 ranks)@900=$(on_arm) training $(BUILD)/solution_06 $(arm)/solution_06' \
    'hvd (ARM, 2 ranks)@900=$(on_arm) ranks 2 $(arm)/tests/mpi/test_hvd' \
    'replay lenet_sgd (ARM, 2 ranks)@300=$(on_arm) ranks 2 $(arm)/replay tests/golden/cases/lenet_sgd.safetensors --tolerance 1e-5' \
    $(foreach t,$(ARM_TESTS),'$(t) (ARM)@900=$(on_arm) run $(arm)/tests/unit/test_$(t)') \
    $(foreach c,$(cases),'replay $(c) (ARM)@300=$(on_arm) run $(arm)/replay tests/golden/cases/$(c).safetensors')

# ---- On a real GPU: in every arithmetic, and with several ranks on it.

GPU_TESTS := operations convolution batch_norm optimizers model misfits devices stages
# The test $(1) with the setting $(2), named $(3).
gpu_ranks = $(foreach n,1 2 4,'$(1) (GPU, $(n) ranks$(3))=$(2)common/scripts/mpi.sh run $(n) $(BUILD)/tests/mpi/test_$(1)')
gpu_replay = $(foreach c,$(1),'replay $(c) (GPU)@60=$(BUILD)/replay tests/golden/cases/$(c).safetensors --device gpu')
gpu_script = $(foreach t,$(1),'$(t) (GPU)@600=tests/gpu/test_gpu.sh $(t)')
# Three parts of ten minutes, what tells most comes first; `make gpu-pack` takes these. Without the first few replays the rest
# says little. `more` needs what a pack does not have.
gpu_first := mlp_sgd lenet_momentum wrn_sgd
run_on_gpu_first = $(call gpu_replay,$(gpu_first))
run_on_gpu_1 = $(foreach p,fp32 tf32 bf16,$(foreach t,$(GPU_TESTS),'$(t) (GPU, $(p))@300=\
        HVDLAB_TEST_DEVICE=gpu HVDLAB_TEST_PRECISION=$(p) $(BUILD)/tests/unit/test_$(t)')) \
    $(call gpu_script,deterministic) $(call gpu_replay,$(filter-out $(gpu_first),$(cases))) $(call gpu_script,losses)
run_on_gpu_2 = $(call gpu_script,memcheck) \
    'speed (GPU)@300=GOMP_SPINCOUNT=10000 $(BUILD)/bench --gpu --quick --out $(BUILD)/bench-gpu.json' $(call gpu_script,refusals profile)
run_on_gpu_3 = $(call gpu_script,racecheck pinning) \
    $(foreach t,$(mpi_tests),$(call gpu_ranks,$(t)) $(call gpu_ranks,$(t),HVD_TRANSPORT=mpi , by MPI) \
        $(call gpu_ranks,$(t),HVD_COMPRESSION=bf16 , in bf16))
run_on_gpu_more = $(call gpu_script,accuracy) $(run_all_ranked) \
    'graders (GPU)@1800=HVDLAB_CHECK_DEVICE=gpu tests/steps/test_graders.sh' 'bench (GPU)@600=tests/bench/test_bench.sh gpu'
