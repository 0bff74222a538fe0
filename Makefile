# hvdlab's only Makefile. `make help` lists what it can make; `make demo` and `make test` are the
# two commands of a first visit. From top to bottom: settings, what the programs are made of, how
# to compile and link, and the targets.

# ---- Settings, on the command line (make CC=clang) or in the environment.
# Lines that begin with two hashes are shown by `make help`.

## CC=clang                      another compiler than gcc
## OPT=-O1                       another optimization level than -O3
## SANITIZE=address,undefined    instrument everything with gcc's or clang's sanitizers
## WERROR=1                      warnings are errors
## ONEDNN=/path                  the oneDNN in /path/include and /path/lib instead of the system's
## MPI_HOME=/path                the Open MPI in /path/bin (a module's, conda's, a wheel's) instead of the system's
## CUDA=0                        leave CUDA out, even if it is found
## CUDA_HOME=/path               the CUDA toolkit there; CUDNN_HOME= and NCCL_HOME= likewise
## CUDA_ARCH=90                  for GPUs of capability 9.0, or "80 90", or all (else: the GPU here)
## FUZZ_SECONDS=60               how long make fuzz feeds each target (5), or FUZZ_RUNS=1000000 inputs
## BUILD=folder                  build there instead of in build
## NP=4                          how many workers (or devices) the line of make step-N starts (else as the handout); on the command line only
## V=1                           show the commands; the tests' output even if they pass; on the command line only
# The next names are so common that the environment may have them from another program: they count on the command line
# only, for scripts, too. And those that change what shells, git and other tools print or do, where scripts read it.
on_the_line := ANSWERS BOOK CASE COLUMN COMMANDS CONTAINER DEADLINE DELAY DRY EMULATED EXERCISES FILE FLAGS FROM GRADES HINTS HOSTS ISA JUDGES LAB LATE \
    MEASURED MODEL NAME NP ONLY OVERRIDES PART PDF PEER PENALTY PO PRECISION RANDOM_JOBS RANKS RATE RESET ROSTER SECRET SEED SOLUTIONS STAMPS STEPS \
    STUDENTS SUBMISSIONS SUITE T TEAM TEAMS TEXTS TO TRACE V WORKFLOW WORKLOAD WORKSHEET YES
of_tools := BASHOPTS BASH_ENV BLOCKSIZE BLOCK_SIZE BZIP BZIP2 CDPATH DEPENDENCIES_OUTPUT ENV GLOBIGNORE GREP_COLOR GREP_COLORS \
    GREP_OPTIONS GZIP LESS LS_BLOCK_SIZE LS_COLORS POSIXLY_CORRECT QUOTING_STYLE SHELLOPTS SUNPRO_DEPENDENCIES TABSIZE \
    TAR_OPTIONS TIME_STYLE TMOUT UNZIP XZ_DEFAULTS XZ_OPT ZIPOPT \
    $(addprefix GIT_,ALTERNATE_OBJECT_DIRECTORIES COMMON_DIR DIFF_OPTS DIR EXTERNAL_DIFF GLOB_PATHSPECS ICASE_PATHSPECS INDEX_FILE \
        LITERAL_PATHSPECS NAMESPACE NOGLOB_PATHSPECS OBJECT_DIRECTORY PREFIX WORK_TREE)
$(foreach v,$(on_the_line) $(of_tools),$(if $(filter environment%,$(origin $v)),$(eval override undefine $v)))
# An empty setting is none.
$(foreach v,BUILD CC CIFAR10_URL CLANG_FORMAT CXX FASHION_MNIST_URL LD OBJCOPY,$(if $(strip $($v)),,$(eval override undefine $v)))
is_unset = $(filter default undefined,$(origin $(1)))
ifneq ($(call is_unset,CC),)
CC := gcc
endif
CXX ?= g++
# Debian's cross compilers have linkers of their own: CC=aarch64-linux-gnu-gcc.
cross := $(patsubst %gcc,%,$(filter %-linux-gnu-gcc,$(CC)))
ifneq ($(call is_unset,LD),)
LD := $(cross)ld
endif
OBJCOPY ?= $(cross)objcopy
OPT ?= -O3
BUILD ?= build
CLANG_FORMAT ?= clang-format
FASHION_MNIST_URL ?= http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
CIFAR10_URL ?= https://www.cs.toronto.edu/~kriz
DATA_DIR := data

# Scripts see the same settings, and all that is on the command line.
export CC CUDA CUDA_HOME CUDNN_HOME NCCL_HOME CUDA_ARCH MPI_HOME ONEDNN BUILD CLANG_FORMAT FASHION_MNIST_URL CIFAR10_URL DATA_DIR

ifneq ($(shell head -n 1 common/scripts/labs.sh | tr -d -c '\r'),)
$(error the kit's scripts have CRLF line ends, as git writes them with core.autocrlf=true: clone it again with \
    git clone -c core.autocrlf=false, and copy your steps/ there)
endif

# Targets with a text for `make help`, and those that are marked there: $(call marked,n).
marked = $(shell sed -n 's/^\([a-z][a-z0-9-]*\):.*\#\#[a-z]*$(1)[a-z]* .*/\1/p' $(firstword $(MAKEFILE_LIST)))
targets := $(call marked)

# What keeps anything from being built is said at once: nothing is built among files that are not the kit's, in a folder
# that can't be written to, or with settings that can't be right.
comma := ,
builds := $(filter-out $(call marked,n),$(or $(MAKECMDGOALS),all))
ifneq ($(builds)$(filter clean,$(MAKECMDGOALS)),)
signs := $$ & ; < > | * ? [ ] { } ( ) ' " ` \ ! = ~ \#
$(if $(filter-out 1,$(words $(BUILD)))$(findstring :,$(BUILD))$(findstring %,$(BUILD)),$(error BUILD=$(BUILD): make takes no blank$(comma) colon or % in it; name another folder))
$(if $(strip $(foreach sign,$(signs),$(findstring $(sign),$(BUILD)))),$(error BUILD=$(BUILD): the shell and make take none of $(signs) in it; name another folder))
$(if $(findstring -fsanitize=,$(CC) $(OPT) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)),$(error -fsanitize in CC$(comma) OPT or FLAGS: use SANITIZE=address instead$(comma) which also keeps out Open MPI's own leaks))
refusal := $(shell goal=make; . common/scripts/folders.sh 2>&1; BUILD='$(BUILD)'; $(if $(wildcard $(BUILD)/settings.compile),need_rights,need_build) 2>&1)
$(if $(refusal),$(error $(subst make: ,,$(refusal))))
endif

# What is not the system's: packages that make deps has unpacked in $(own), and the folders MPI_HOME and ONEDNN.
named_folders := $(foreach v,MPI_HOME ONEDNN,$(if $($v),$v=$(abspath $($v))))
ifeq ($(cross),)
found := $(shell MPI_HOME='$(MPI_HOME)' ONEDNN='$(ONEDNN)' common/scripts/own.sh)
$(if $(filter-out 0,$(.SHELLSTATUS)),$(if $(builds),$(error $(found))),$(foreach word,$(found),$(eval override $(word))))
endif
export PATH := $(own_path)$(PATH)
ask = $(shell PATH='$(PATH)'; $(1))

# One recipe line, quiet unless V=1: $(Q)command; and the short line that stands for it.
Q := $(if $(filter 1,$(V)),,@)
say = @printf '  %-4s %s\n' $(1) $(2)

# The exercises of all labs, as labs/*/lab.conf name them: for each X in $(exercises), F_X is the name of
# its files. The targets with an exercise's name: step-X, check-X, ...; another name gets a clear line.
labs := $(shell common/scripts/labs.sh make)
$(if $(filter-out 0,$(.SHELLSTATUS)),$(error a lab.conf makes no sense))
exercises := $(foreach word,$(filter-out labs/%,$(labs)),$(firstword $(subst :, ,$(word))))
$(foreach word,$(filter-out labs/%,$(labs)),$(eval F_$(subst :, := ,$(word))))
# The labs' programs beside their exercises: build/NAME is made of the word that ends in /NAME.c.
lab_sources := $(filter labs/%,$(labs))
named := step solution check hint diff reset
$(foreach t,$(named),$(eval $(t)_X := $(exercises:%=$(t)-%)))
# The students' package has no solutions and no tests.
ifneq ($(wildcard steps/.original),)
absent := $(filter $(call marked,k) $(solution_X),$(MAKECMDGOALS))
$(if $(absent),$(error $(firstword $(absent)): the students' package does not have it; $(if $(filter check,$(absent)),make check-X grades exercise X$(comma) )make help lists what it has))
endif
unknown := $(filter-out $(foreach t,$(named),$($(t)_X)) check-all check-format check-steps,\
             $(filter $(named:%=%-%),$(MAKECMDGOALS)))
$(if $(unknown),$(error $(firstword $(unknown)): there is no such exercise; make progress lists them))

# All cores, unless the user gave a -j. What runs programs or changes the system runs alone: every target with a text
# for `make help` and without the mark t. A make of its own builds for it, on all cores again.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell common/scripts/cores.sh)
endif
alone := $(filter-out $(call marked,t),$(targets)) packed $(check_X) $(reset_X)
ifneq ($(filter $(alone),$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif
build_first = @+$(MAKE) $(if $(Q),-s) --no-print-directory
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:

# ---- What the programs are made of.

# passes_set.c and winograd_set.c are compiled once per instruction set, and once for bfloat16; the program
# chooses when it starts.
machine := $(call ask,$(CC) -dumpmachine 2>/dev/null)
core_sets := passes_set_generic
extra_sets := winograd/winograd_set_generic
ifneq ($(filter x86_64-%,$(machine)),)
core_sets += passes_set_avx2
extra_sets += passes_set_bfloat16 winograd/winograd_set_avx2 winograd/winograd_set_avx512 winograd/winograd_set_bfloat16
endif
# gcc 12 for ARM can't make vectors of a maximum of floats that is a double (it ends by an internal error).
ifneq ($(and $(filter aarch64-%,$(machine)),$(filter 12%,$(call ask,$(CC) -dumpversion))),)
machine_flags := -fno-builtin-fmax -fno-builtin-fmin
endif

# CUDA, where it is found; with EMULATED=1 the tests' stand-in for it (tests/emulated). $(cuda) is
# empty without.
ask_cuda = $(shell CUDA='$(CUDA)' CUDA_HOME='$(CUDA_HOME)' CUDNN_HOME='$(CUDNN_HOME)' \
             NCCL_HOME='$(NCCL_HOME)' CUDA_ARCH='$(CUDA_ARCH)' common/scripts/cuda.sh $(1))
cuda := $(or $(EMULATED),$(call ask_cuda,flags))
# Who names a folder means it, unless nothing is built.
cuda_named := $(filter 1,$(CUDA)) $(foreach v,CUDA_HOME CUDNN_HOME NCCL_HOME,$(filter command%,$(origin $v)))
ifneq ($(and $(strip $(cuda_named)),$(filter-out 0x,$(CUDA)x),$(if $(cuda),,missing)),)
ifneq ($(builds),)
$(error CUDA cannot be used: $(call ask_cuda,missing); name the folder of each part, or say CUDA=0)
endif
endif
# The library's folders, each above those that it includes from (make check-format holds them to it).
layers := base observe run data backend cpu cpu/winograd cuda comm nn train hvd lessons watch start
cuda_sources := $(wildcard common/comm/transport_cuda.c common/comm/transport_nccl.c common/cuda/*.c)
# (teams.c is for the thread sanitizer.)
library_sources := $(filter-out common/cpu/passes_set.c common/cpu/winograd/winograd_set.c $(if $(findstring thread,$(SANITIZE)),,common/run/teams.c) $(if $(cuda),,$(cuda_sources)),$(wildcard $(layers:%=common/%/*.c)))
# The library has two parts. Checks need only the core; the extra part is for large networks and GPUs, and a first check does
# not wait for it. (The objects that take longest to compile come first.)
extra_sources := $(filter $(cuda_sources),$(library_sources))
extra_objects := $(extra_sets:%=$(BUILD)/common/cpu/%.o) \
                 $(if $(cuda),$(patsubst %.cu,$(BUILD)/%.cu.o,$(wildcard common/cuda/*.cu))) $(extra_sources:%.c=$(BUILD)/%.o)
core_objects := $(core_sets:%=$(BUILD)/common/cpu/%.o) $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(extra_sources),$(library_sources))) $(BUILD)/common/watch/mpi_others.o
ifneq ($(EMULATED),)
core_objects += $(patsubst %.cpp,$(BUILD)/%.o,$(filter-out tests/emulated/test_%,$(wildcard tests/emulated/*.cpp)))
emulated_objects := $(patsubst %.cpp,$(BUILD)/%.o,$(wildcard tests/emulated/test_*.cpp))
emulated_programs := $(BUILD)/tests/emulated/test_emulated
endif
# Students' files and the solutions: one source, one program.
step_sources := $(sort $(wildcard steps/*.c) $(foreach x,$(exercises),steps/$(F_$(x)).c))
solution_sources := $(wildcard solutions/*.c)
objects_of = $(patsubst %,$(BUILD)/%.o,$(basename $(1)))
step_objects := $(call objects_of,$(step_sources) $(solution_sources) $(lab_sources))
model_objects := $(BUILD)/tests/models/models.o
check_objects := $(call objects_of,$(wildcard tests/steps/*.c))
replay_objects := $(call objects_of,$(wildcard tests/golden/*.c))
bench_objects := $(call objects_of,$(wildcard tests/bench/*.c))
# Small programs of the kit, one file each, but that the page reads traces in a folder of its own. An instructor's has a folder and libraries of its own, which nobody else needs.
tools := $(patsubst common/tools/%.c,%,$(filter-out common/tools/grades.c,$(wildcard common/tools/*.c)))
page_objects := $(call objects_of,$(wildcard common/page/*.c))
class_objects := $(call objects_of,$(wildcard common/tools/grades.c common/class/*.c))

# Each tests/unit/test_NAME.c is a program; the other .c files there are shared by all of them.
unit_tests := $(patsubst tests/unit/test_%.c,%,$(wildcard tests/unit/test_*.c))
unit_objects := $(unit_tests:%=$(BUILD)/tests/unit/test_%.o)
shared_objects := $(call objects_of,$(filter-out tests/unit/test_%,$(wildcard tests/unit/*.c)))
# Each tests/mpi/test_NAME.c is a program that runs under mpirun, with 1, 2 and 4 ranks.
mpi_tests := $(patsubst tests/mpi/test_%.c,%,$(wildcard tests/mpi/test_*.c))
cases := $(patsubst tests/golden/cases/%.safetensors,%,$(wildcard tests/golden/cases/*.safetensors))

# Each tests/fuzz/fuzz_NAME.c is a program that libFuzzer feeds.
fuzz_targets := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz_programs := $(fuzz_targets:%=$(BUILD)/tests/fuzz/fuzz_%)

unit_programs := $(unit_tests:%=$(BUILD)/tests/unit/test_%)
mpi_programs := $(mpi_tests:%=$(BUILD)/tests/mpi/test_%)
hvd_training := $(BUILD)/tests/mpi/hvd_training.o
step_programs := $(step_sources:steps/%.c=$(BUILD)/%)
# solutions/step_01.c makes solution_01, solutions/ring.c makes solution_ring.
solution_program = $(BUILD)/solution_$(patsubst step_%,%,$(1))
solution_programs := $(foreach source,$(solution_sources),$(call solution_program,$(basename $(notdir $(source)))))
tool_programs := $(tools:%=$(BUILD)/%)
lab_programs := $(foreach source,$(lab_sources),$(BUILD)/$(basename $(notdir $(source))))
# (The students' package has no tests of the kit itself.)
small := $(if $(wildcard tests/faults),$(BUILD)/tests/faults/small)
cuts := $(if $(wildcard tests/faults),$(BUILD)/tests/faults/cuts)
shims := $(if $(wildcard tests/faults),$(BUILD)/tests/faults/inject.so $(BUILD)/tests/faults/powercut.so)
programs := $(step_programs) $(solution_programs) $(lab_programs) $(BUILD)/replay $(BUILD)/bench $(BUILD)/check-step \
            $(tool_programs) $(unit_programs) $(mpi_programs) $(emulated_programs) $(small) $(cuts)

# ---- How to compile and link. CPPFLAGS, CFLAGS and LDFLAGS of the user come last.

# Headers of others count as system headers, so that our warnings are about our own code.
as_system = $(patsubst -I%,-isystem %,$(1))
ask_mpi = $(call ask,$(if $(MPI_HOME),mpicc --showme:$(2),pkg-config --$(1) ompi-c 2>/dev/null || mpicc --showme:$(2) 2>/dev/null))
mpi_cflags := $(call ask_mpi,cflags,compile)
mpi_libs := $(or $(call ask_mpi,libs,link),-lmpi)
check_cflags := $(call ask,pkg-config --cflags check 2>/dev/null)
check_libs := $(or $(call ask,pkg-config --libs check 2>/dev/null),-lcheck)
# $(call use,FOLDER...): links with the libraries there, and finds them when a program starts.
use = $(foreach folder,$(1),-L$(folder) -Wl,-rpath,$(folder))
ifneq ($(MPI_HOME),)
mpi_libs += $(call use,$(patsubst -L%,%,$(filter -L%,$(mpi_libs))))
endif
ifneq ($(ONEDNN),)
onednn_cflags := -isystem $(abspath $(ONEDNN))/include
onednn_libs := $(call use,$(patsubst %/,%,$(dir $(firstword $(wildcard $(foreach folder,lib lib64 lib/*-linux-gnu,$(abspath $(ONEDNN))/$(folder)/libdnnl.so))))))
endif
# What was unpacked needs other unpacked libraries: the older kind of path leads there, too.
ifneq ($(own),)
own_cflags := $(addprefix -isystem ,$(wildcard $(own)/root/usr/include $(own)/root/usr/include/*-linux-gnu))
own_libs := -Wl,--disable-new-dtags $(call use,$(wildcard $(own)/root/usr/lib/*-linux-gnu $(own)/root/usr/lib/*-linux-gnu/openmpi/lib))
mpi_libs := $(filter-out -Wl$(comma)--enable-new-dtags,$(mpi_libs))
endif

ifneq ($(EMULATED),)
cuda_cflags := -DHVDLAB_CUDA -isystem tests/emulated/include
cuda_libs := -Wl,-u,cublasCreate_v2 -rdynamic -lstdc++
else ifneq ($(cuda),)
cublas := $(foreach file,$(cuda),$(if $(findstring /libcublas.so,$(file)),$(file)))
cuda_cflags := -DHVDLAB_CUDA $(call as_system,$(sort $(filter -I%,$(cuda))))
cuda_libs := $(filter-out %/nvcc -I% $(cublas),$(cuda)) -lstdc++
# Asked once, and only where something is built: nvidia-smi may take seconds.
nvcc_arch = $(eval nvcc_arch := $$(call ask_cuda,arch))$(nvcc_arch)
nvcc = $(filter %/nvcc,$(cuda)) $(or $(nvcc_arch),$(error CUDA_ARCH=$(CUDA_ARCH) is not a number that \
nvcc --list-gpu-arch shows, such as 90 or "80 90"; nor all))
endif

ifneq ($(SANITIZE),)
sanitize_flags := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
# Open MPI keeps memory until the process ends. To recognize it, the sanitizer needs whole call stacks.
# CUDA wants addresses that the sanitizer would keep for itself.
export ASAN_OPTIONS := fast_unwind_on_malloc=0:protect_shadow_gap=0
export LSAN_OPTIONS := suppressions=$(CURDIR)/common/scripts/leaks.supp:print_suppressions=0
export TSAN_OPTIONS := suppressions=$(CURDIR)/common/scripts/races.supp:print_suppressions=0:report_thread_leaks=0:atexit_sleep_ms=0
export UBSAN_OPTIONS := print_stacktrace=1
sanitizer_options := ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS
# The thread sanitizer can't bear addresses as random as some kernels make them.
ifneq ($(findstring thread,$(SANITIZE)),)
usual_addresses := $(shell setarch -R true 2>/dev/null && echo setarch -R)
endif
# Instrumented tests are slow: ten times Check's own limits.
export CK_TIMEOUT_MULTIPLIER := 10
endif

warnings := -Wall -Wextra -Wshadow -Wconversion -pedantic $(if $(filter 1,$(WERROR)),-Werror)
compile := $(CC) -std=c11 -D_GNU_SOURCE $(OPT) $(machine_flags) -g1 -fopenmp $(sanitize_flags) $(warnings) -Icommon -Itests \
           $(cuda_cflags) $(onednn_cflags) $(call as_system,$(mpi_cflags)) $(own_cflags) $(CPPFLAGS) $(CFLAGS)
link := $(CC) $(OPT) -g -fopenmp $(sanitize_flags) $(CFLAGS) $(LDFLAGS) $(onednn_libs) $(own_libs)
# Where nodes are simulated, so are their names, and traces see who asks about them (common/watch/simulated_layout.c), who
# moves, and what becomes of files (common/watch/system_calls.c).
watched_calls := getenv gethostname uname sched_setaffinity rename unlink remove fsync sync readdir
libraries := $(watched_calls:%=-Wl,--wrap=%) -ldnnl -lcjson -lz -lhwloc $(mpi_libs) $(cuda_libs) -lpthread -lm
# Kernels, and what stands in for CUDA, are C++.
compile_kernels = $(nvcc) -std=c++17 $(OPT) -g -lineinfo -Xcompiler -Wall,-Wextra,-fvisibility=hidden \
                   $(if $(filter 1,$(WERROR)),-Werror all-warnings -Xcompiler -Werror) -Icommon $(NVCCFLAGS)
compile_cpp := $(CXX) -std=c++17 $(OPT) -g -fopenmp $(sanitize_flags) -Wall -Wextra $(if $(filter 1,$(WERROR)),-Werror) \
               -Icommon $(call as_system,$(mpi_cflags)) $(own_cflags) $(CPPFLAGS) $(CXXFLAGS)

# The settings files change only when their line does, and then make compiles or links again.
# Before one is written, what is missing on this machine gets a clear line. Only the unit tests ask for
# Check; `make` alone builds them, too, and says at once all that is missing.
define keep_settings
@mkdir -p $(BUILD)
@echo '$(1)' | cmp -s - $@ || { common/scripts/deps.sh check $(2) && { $(or $(4),:); } && echo '$(1)' >$@ $(3); }
endef
# Compiles or links something, as a settings file is to say.
try = said=$$(printf '\043include <stdio.h>\nint main(void) { return 0; }\n' | $(1) -x c -o $(BUILD)/tried - 2>&1); tried=$$?; \
    rm -f $(BUILD)/tried; [ $$tried -eq 0 ] || { echo "make: $(firstword $(CC)) does not take these settings ($(2)): \
    $$(echo "$$said" | grep -v ^collect2 | grep -m 1 error: || echo "$$said" | head -n 1)" | tr -s ' ' >&2; exit 2; }
$(BUILD)/settings.compile: FORCE
	$(call keep_settings,$(compile),build $(if $(filter all,$(or $(MAKECMDGOALS),all)),check),$(if $(cuda),,\
	    && common/scripts/cuda.sh notice),$(call try,$(compile) -c,CC OPT SANITIZE CPPFLAGS CFLAGS))
$(BUILD)/settings.link: FORCE | $(BUILD)/settings.compile
	$(call keep_settings,$(link) $(libraries),build,,$(call try,$(link),CC OPT SANITIZE CFLAGS LDFLAGS))
$(BUILD)/settings.check: FORCE | $(BUILD)/settings.compile
	$(call keep_settings,$(check_cflags) $(check_libs),check)
$(BUILD)/settings.kernels: FORCE | $(BUILD)/settings.compile
	$(call keep_settings,$(compile_kernels),build)
FORCE:

# A .d file beside each object names the headers that it was compiled with.
-include $(shell cd $(BUILD) 2>/dev/null && find common labs solutions steps tests -name '*.d' -printf '$(BUILD)/%p\n' 2>/dev/null)

# $(call object,NAME,COMMAND): by CC, CXX or NVCC.
define object
@mkdir -p $(@D)
$(call say,$(1),'$<$(of_set)')
$(Q)$(2) $(extra_flags) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
endef
$(BUILD)/%.o: %.c $(BUILD)/settings.compile
	$(call object,CC,$(compile) $(visibility))
$(BUILD)/common/cpu/passes_set_%.o: common/cpu/passes_set.c $(BUILD)/settings.compile
	$(call object,CC,$(compile) $(visibility))
$(BUILD)/common/cpu/winograd/winograd_set_%.o: common/cpu/winograd/winograd_set.c $(BUILD)/settings.compile
	$(call object,CC,$(compile) $(visibility))

# (The settings are not in compile's line; where they change, its folders do.)
own_mpi = $(if $(MPI_HOME),PATH=$(abspath $(MPI_HOME))/bin,$(if $(own),PATH=$(own)/bin $(file <$(own)/mpi)))
$(BUILD)/common/comm/mpi_settings.o: extra_flags = $(if $(own_mpi),-DHVDLAB_OWN_MPI='"$(strip $(own_mpi))"')

# Made from mpi.h: what of MPI mpi_calls.c and mpi_messages.c do not watch.
mpi_watched := common/watch/mpi_calls.c common/watch/mpi_messages.c
$(BUILD)/common/watch/mpi_others.c: common/watch/mpi_others.awk $(mpi_watched) $(BUILD)/settings.compile
	@mkdir -p $(@D)
	$(Q)printf '%s\n' '#include <mpi.h>' '#if __has_include(<mpi-ext.h>)' '#include <mpi-ext.h>' '#endif' | \
	    $(filter-out $(warnings),$(compile)) -E -P -x c - | awk -f $< $(mpi_watched) - >$@
$(BUILD)/common/watch/mpi_others.o: $(BUILD)/common/watch/mpi_others.c
	$(call object,CC,$(compile) $(visibility))

# Their vectors pass only between functions that are inlined, so how a call would pass them is no
# matter; and nobody reads errno after a square root. Winograd's products are nothing but sums of
# products, each of which is to be one instruction. With sanitizers gcc takes six times as long over
# them as with -O1.
# On a processor that has something better the generic ones are for old machines: as fast by -O1, and sooner compiled.
set_generic := $(and $(filter passes_set_avx2,$(core_sets)),$(filter -O3,$(OPT)),-O1)
set_avx2 := -mavx2 -mfma
set_avx512 := -mavx512f -mavx512dq -mavx512vl -mprefer-vector-width=512
set_bfloat16 := $(set_avx512) -mavx512bw -mavx512bf16 -mfma -DBFLOAT16
set_flags = $(set_$*) -Wno-psabi $(if $(SANITIZE),-O1)
$(BUILD)/common/cpu/passes_set_%.o: extra_flags = -DPASSES=passes_$* $(set_flags) -fno-math-errno
$(BUILD)/common/cpu/winograd/winograd_set_%.o: extra_flags = -DWINOGRAD=winograd_$* $(set_flags) -ffp-contract=fast
$(BUILD)/common/cpu/passes_set_%.o $(BUILD)/common/cpu/winograd/winograd_set_%.o: of_set = $() ($*)
# The peak is that of multiply-adds, each one instruction.
$(BUILD)/tests/bench/cpu_peak.o: extra_flags := -ffp-contract=fast
ifeq ($(filter passes_set_avx2,$(core_sets)),)
$(BUILD)/common/cpu/cpu_op.o: extra_flags := -DGENERIC_ONLY
endif

ifneq ($(EMULATED),)
# cuBLAS is looked up by name (common/cuda/cuda_blas.c), here in the program itself.
$(BUILD)/common/cuda/cuda_blas.o: extra_flags := -DHVDLAB_CUBLAS=NULL
# The last piece of an array may be short; its other numbers are unset, and nobody stores them.
$(BUILD)/%.cu.o: %.cu $(BUILD)/settings.compile
	$(call object,CXX,$(compile_cpp) -Wno-maybe-uninitialized -DHVDLAB_EMULATED -isystem tests/emulated/include -x c++)
else
$(BUILD)/common/cuda/cuda_blas.o: extra_flags := -DHVDLAB_CUBLAS='"$(cublas)"'
$(BUILD)/%.cu.o: %.cu $(BUILD)/settings.kernels
	$(call object,NVCC,$(compile_kernels))
endif

$(BUILD)/tests/emulated/%.o: tests/emulated/%.cpp $(BUILD)/settings.compile
	$(call object,CXX,$(compile_cpp) -Itests/emulated/include)

# The library as one object: what checks need of it, and all; as it is for tests and tools; and for students' programs with
# its inside hidden, so that no function of theirs collides with one of ours, or replaces it. What they may call the headers
# of hvdlab.h mark as visible.
$(BUILD)/library.o: $(core_objects)
$(BUILD)/library-all.o: $(BUILD)/library.o $(extra_objects)
$(BUILD)/library.o $(BUILD)/library-all.o:
	$(call say,LD,$@)
	$(Q)$(LD) -r -o $@ $^
$(BUILD)/hvdlab.o: $(BUILD)/library.o
$(BUILD)/hvdlab-all.o: $(BUILD)/library-all.o
$(BUILD)/hvdlab.o $(BUILD)/hvdlab-all.o:
	$(call say,HIDE,$@)
	$(Q)$(OBJCOPY) --localize-hidden $< $@
$(core_objects) $(extra_objects): visibility := -fvisibility=hidden

# Sources without loops over long arrays are as fast with -O1, and compile faster.
arrays := $(patsubst %,$(BUILD)/common/%.o,comm/transport_mpi comm/hierarchical comm/collectives nn/sparse data/augment data/batches base/rng base/hash cpu/%)
cold_objects := $(filter-out $(arrays),$(core_objects))
$(cold_objects): extra_flags += $(if $(filter -O3,$(OPT)),-O1)

# A function that a student has still to write makes no use of its parameters; and that an int becomes a
# size_t or a float is no news on these pages. A debugger sees their variables.
for_students := -g -Wno-unused-parameter -Wno-conversion -Wno-sign-conversion -Wno-float-conversion
$(step_objects): extra_flags := $(for_students)

# The judges compile fast, with -O0, since a student's first check waits for them; with -O1 where the compiler looks for mistakes.
$(check_objects): extra_flags := $(if $(SANITIZE)$(filter 1,$(WERROR)),-O1,-O0) -I$(BUILD)/tests/steps
# Its texts are constants of its file: a name without a text does not compile, and a text that is not used is an error.
diagnoses := $(patsubst %.txt,$(BUILD)/%.h,$(wildcard tests/steps/diagnoses/*.txt))
$(diagnoses:$(BUILD)/tests/steps/diagnoses/%.h=$(BUILD)/tests/steps/%.o): $(BUILD)/tests/steps/%.o: | $(BUILD)/tests/steps/diagnoses/%.h
$(diagnoses): $(BUILD)/tests/steps/diagnoses/%.h: tests/steps/diagnoses.awk tests/steps/%.c tests/steps/diagnoses/%.txt | $(BUILD)/settings.compile
	@mkdir -p $(@D)
	$(Q)awk -f $^ >$@

$(step_programs): $(BUILD)/%: $(BUILD)/steps/%.o
$(foreach source,$(solution_sources),\
    $(eval $(call solution_program,$(basename $(notdir $(source)))): $(BUILD)/$(source:.c=.o)))
$(foreach source,$(lab_sources),$(eval $(BUILD)/$(basename $(notdir $(source))): $(BUILD)/$(source:.c=.o)))
# (build/check/ is the folder of its verdicts: build/check/step_03.json.)
# A check asks for the judges that it needs (JUDGES): those are linked, and all that earlier ones asked for. Else all are.
all_judges := $(patsubst tests/steps/judge_%.c,%,$(wildcard tests/steps/judge_*.c))
judges := $(if $(JUDGES),$(filter $(JUDGES) $(shell cat $(BUILD)/settings.judges 2>/dev/null),$(all_judges)),$(all_judges))
judging := $(filter-out tests/steps/judge_%,$(wildcard tests/steps/*.c)) $(judges:%=tests/steps/judge_%.c)
$(BUILD)/settings.judges: FORCE | $(BUILD)/settings.compile
	@echo '$(judges)' | cmp -s - $@ || echo '$(judges)' >$@
$(BUILD)/check-step: $(call objects_of,$(judging)) $(BUILD)/settings.judges
$(BUILD)/replay: $(replay_objects) $(model_objects)
ifneq ($(small),)
$(small): %: %.o $(BUILD)/tests/steps/lab.o $(BUILD)/tests/steps/word_list.o
$(cuts): %: %.o
endif
$(BUILD)/bench: $(bench_objects) $(model_objects)
$(tool_programs): $(BUILD)/%: $(BUILD)/common/tools/%.o
$(BUILD)/page: $(page_objects)
$(BUILD)/grades: $(class_objects)
$(BUILD)/grades: extra_libraries := -larchive -lcsv -lunistring -lcrypto
$(mpi_programs): $(BUILD)/%: $(BUILD)/%.o $(model_objects)
$(BUILD)/tests/mpi/test_hvd: $(hvd_training)
$(BUILD)/tests/unit/test_memory_limit: $(BUILD)/tests/steps/memory_limit.o
$(BUILD)/tests/unit/test_machine_time: $(BUILD)/tests/steps/machine_time.o $(BUILD)/tests/steps/usage.o
$(BUILD)/tests/unit/test_events: $(BUILD)/tests/steps/event_rules.o
$(BUILD)/tests/unit/test_reader: $(filter-out %/check.o,$(check_objects))
$(unit_programs): $(BUILD)/%: $(BUILD)/%.o $(shared_objects) $(model_objects)
$(emulated_objects): extra_flags := -DHVDLAB_EMULATED
# The stand-in's own arithmetic checks what it is given, and most of the time goes there.
$(BUILD)/tests/emulated/cudnn_convolution.o $(BUILD)/tests/emulated/cublas.o: extra_flags := -fno-sanitize=all
$(BUILD)/tests/emulated/test_emulated: $(emulated_objects)
$(unit_objects) $(shared_objects): extra_flags = $(call as_system,$(check_cflags))
$(unit_objects) $(shared_objects) $(unit_programs): $(BUILD)/settings.check
$(unit_programs): extra_libraries = $(check_libs)

$(step_programs) $(solution_programs) $(lab_programs): $(BUILD)/hvdlab-all.o
# The benchmark watches the backend: calls of backend_of() go through its profiler. (In library.o, one
# object, there is nothing left for the linker to send elsewhere.)
$(BUILD)/bench: $(core_objects) $(extra_objects)
$(BUILD)/bench: extra_libraries := -Wl,--wrap=backend_of
for_checks := $(addprefix $(BUILD)/,check-step grades watch)
$(for_checks): $(BUILD)/library.o
$(filter-out $(step_programs) $(solution_programs) $(lab_programs) $(BUILD)/bench $(for_checks),$(programs)): $(BUILD)/library-all.o
$(BUILD)/grades $(programs): $(BUILD)/settings.link
	$(call say,LD,$@)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(extra_libraries) $(libraries)

# What makes calls fail, or writes them down, goes into a program from outside, and is not instrumented.
$(BUILD)/tests/faults/%.so: tests/faults/%.c $(BUILD)/settings.compile
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(filter-out -fsanitize=%,$(compile)) -fPIC -shared -o $@ $<

# In fuzz targets tests/fuzz/fuzz.c has a say where the library would end the program, or needs MPI; and
# it sees what is opened.
weak_in_fuzz := die give_up warn warn_on_root note_on_root world_need
wrapped_in_fuzz := exit fopen fdopen fclose gzopen gzdopen gzbuffer gzclose
$(BUILD)/tests/fuzz/library.o: $(BUILD)/library-all.o
	@mkdir -p $(@D)
	$(Q)$(OBJCOPY) $(weak_in_fuzz:%=--weaken-symbol=%) $< $@
$(BUILD)/tests/fuzz/fuzz_judges: $(filter-out %/check.o,$(check_objects))
# The harness is not what they look at.
$(BUILD)/tests/fuzz/fuzz.o: extra_flags := -fno-sanitize=all
$(fuzz_programs): %: %.o $(BUILD)/tests/fuzz/fuzz.o $(BUILD)/tests/fuzz/library.o $(BUILD)/settings.link
	$(call say,LD,$@)
	$(Q)$(link) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(wrapped_in_fuzz:%=-Wl,--wrap=%) $(libraries)

# compile-step FILE OUT [check] makes a program of one file, wherever it is (common/scripts/compile_step.sh). clang may lack
# the library for check_bounds.
check_bounds := -fsanitize=bounds -fno-sanitize-recover=bounds
define compile_step
#!/bin/sh
compile() {
$(filter-out -Itests -Werror,$(compile)) $(for_students) "$$@"
}
link() {
$(link) "$$@" $(libraries)
}
rename_symbols() {
command $(OBJCOPY) "$$@"
}
errors=$(filter -Werror,$(warnings))
set -- "$$1" "$$2" "$$3" $(BUILD)/hvdlab-all.o $(BUILD)/hvdlab.o
endef
$(BUILD)/compile-step: export COMPILE_STEP = $(compile_step)
$(BUILD)/compile-step: common/scripts/compile_step.sh $(BUILD)/hvdlab.o $(if $(filter gpu,$(HVDLAB_CHECK_DEVICE)),$(BUILD)/hvdlab-all.o) $(BUILD)/settings.link Makefile
	$(Q)echo 'int main(void) { return 0; }' | $(CC) $(check_bounds) -x c -o $@ - 2>/dev/null && bounds='$(check_bounds)'; \
	    { printf '%s\n' "$$COMPILE_STEP" "bounds='$$bounds'"; grep -v '^#' $<; } >$@ && chmod +x $@

# Tests run the trainer as it was cut, whatever a student has made of steps/.
$(BUILD)/cut/baseline: $(wildcard labs/*/*.c labs/*/lab.conf) common/scripts/steps.sh $(BUILD)/compile-step $(BUILD)/hvdlab-all.o
	$(call say,LD,$@)
	@common/scripts/steps.sh cut $(BUILD)/cut
	$(Q)$(BUILD)/compile-step $(BUILD)/cut/steps/baseline.c $@

# $(call exercise_of,F)
exercise_of = $(foreach x,$(exercises),$(if $(filter $(F_$(x)),$(1)),$(x)))
steps/%.c:
	@echo "make: $@ is not there; make reset-$(strip $(call exercise_of,$*)) brings it back" >&2; exit 2

# ---- Targets. The text after two hashes is what `make help` shows, under the headings after ##@. Marks before it: k, it is
# not in the students' package; n, it builds nothing; t, it runs together with other targets, else alone.

.DEFAULT_GOAL := all
.PHONY: $(targets) packed $(foreach t,$(named),$($(t)_X)) FORCE

##@ To begin with
all: $(programs) ##t build everything (what plain `make` does)

help: ##tn show this list
	@common/scripts/help.sh $(firstword $(MAKEFILE_LIST))

deps: ## install what is missing, through apt; without root's rights, unpack it in a folder of your own [MPI_HOME=, ONEDNN=]
	@common/scripts/deps.sh provide build $(if $(wildcard steps/.original),,check steps class) sandbox plot dataset $(named_folders)

info: ##tn show what was found on this machine, what is skipped, and why
	@common/scripts/info.sh

data: ## fetch Fashion-MNIST into data/ (where there is no Debian package for it)
data-cifar10: ## fetch CIFAR-10 into data/, 170 MB (labs/more-programs.md)
data data-cifar10:
	@common/scripts/deps.sh install curl
	@common/scripts/data.sh $(filter cifar10,$(@:data-%=%))

demo: ##k build, then train a small network on the real data, on two workers: 2 to 3 minutes on 2 cores
	@common/scripts/deps.sh install build dataset-or-fetch
	$(build_first) $(BUILD)/solution_06 $(BUILD)/bench
	@common/scripts/demo.sh

-include tests/tests.mk
# (A + in a canned recipe would be of all its lines: make -n would run them.)
run_tests := @CUDA_VISIBLE_DEVICES= $(usual_addresses) tests/run.sh
for_tests := check sandbox steps dataset class
build_tests = $(filter-out $(step_programs),$(programs)) $(BUILD)/grades $(BUILD)/compile-step $(BUILD)/cut/baseline $(shims)
test: ##k build, and run the tests but for those of many minutes
	@common/scripts/deps.sh install build $(for_tests)
	$(build_first) $(build_tests)
	$(run_tests) alone --together main

one: ##k run one test by its name in make test [T="batch_norm (AVX2)"] [T=graders CASE=ring]
	@common/scripts/deps.sh install build $(for_tests)
	@+CUDA_VISIBLE_DEVICES= $(usual_addresses) tests/one.sh "$$T" "$$CASE" '$(build_tests)'

check: ##k the same, by the name that other projects use; on a terminal it asks first
	@common/scripts/student.sh check-kit
	$(build_first) test

test-emulated: ##k all that runs on a GPU that is only simulated
	@common/scripts/deps.sh install build check sandbox steps dataset
	$(build_first) $(build_emulated)
	@$(usual_addresses) tests/run.sh --together emulated emulated_more

test-answers: ##k grade all known mistakes and right answers (ANSWERS=--rest: but for the few that make test takes)
	@common/scripts/deps.sh install build sandbox steps
	$(build_first) $(checker)
	$(run_tests) answers

test-ranks: ##k the tests that are about ranks, MPI and its launcher
	@common/scripts/deps.sh install build $(for_tests)
	$(build_first) $(build_tests)
	$(run_tests) ranks --together ranks_together

test-more: ##k what make test leaves out, except answers: simulated GPUs, faults, bf16, later handouts, threads, recipes
	@common/scripts/deps.sh install build $(for_tests) browser translate
	$(build_first) $(build_threads)
	$(build_first) $(build_emulated)
	$(build_first) $(build_tests)
	$(run_tests) --together more emulated_more emulated

# Where replay finds no GPU, it says why.
test-gpu: ##k the tests that need a GPU, on this machine's; without one, a line that says so [PART=1, 2, 3 or more]
	@common/scripts/deps.sh install build $(for_tests)
	$(build_first) $(BUILD)/replay
	@why=$$($(BUILD)/replay tests/golden/cases/mlp_sgd.safetensors --device gpu 2>&1); \
	if [ $$? -eq 2 ]; then \
	    echo "$$why" | sed 's/^replay: --device gpu: \([^;]*\).*/The GPU tests are skipped: \1/'; \
	else \
	    $(MAKE) $(if $(Q),-s) --no-print-directory $(build_tests) && tests/run.sh gpu_first && \
	        tests/run.sh $(addprefix gpu_,$(or $(PART),1 2 3 more)); \
	fi

# Built for GPUs that are named, since none is in sight here; each program has all kernels, so they are compressed well.
compressed = $(foreach nvcc,$(filter %/nvcc,$(cuda)),$(shell $(nvcc) --help | grep -q -- --compress-mode && echo --compress-mode=size))
gpu-pack: ##k make a folder that a GPU machine without MPI, oneDNN and Check can use [CUDA_ARCH="80 90"] [TO=folder]
	@common/scripts/deps.sh install build check dataset
	@$(MAKE) $(if $(Q),-s) --no-print-directory BUILD=$(BUILD)/packed CUDA_ARCH='$(or $(CUDA_ARCH),90)' NVCCFLAGS='$(compressed)' packed

pack_parts := gpu_first gpu_1 gpu_2 gpu_3
pack_programs = $(call started,$(pack_parts)) $(addprefix $(BUILD)/,devices solution_06 cut/baseline)
packed: FORCE
	$(if $(cuda),,@echo "make gpu-pack: CUDA cannot be used: $(call ask_cuda,missing)" >&2; exit 2)
	$(build_first) $(pack_programs)
	@for part in $(pack_parts); do tests/run.sh --list $$part >$(BUILD)/pack-$$part; done
	@common/scripts/gpu_pack.sh $(pack_programs)

test-fresh: ##k as root: demo and test on Debian as it was just installed (SUITE=trixie, COMMANDS="demo step-1 user")
	@tests/fresh.sh

test-slurm: ##k as root: lab 9's batch files, in a Slurm of this machine's own
	@common/scripts/deps.sh install build steps cluster slurm
	$(build_first) $(BUILD)/solution_06 $(checker)
	@CUDA_VISIBLE_DEVICES= tests/run.sh slurm

test-arm: ##k cross-build for 64-bit ARM, and run what computes under qemu, against golden cases and this machine
	@common/scripts/deps.sh install build arm
	@tests/arm.sh root $(arm_root)
	$(build_first) $(BUILD)/solution_06
	@+$(pkg_config_arm) $(MAKE) $(if $(Q),-s) --no-print-directory $(build_arm)
	@ARM_ROOT=$(arm_root) tests/run.sh --together arm

##@ For students; X is an exercise, as make progress lists them
baseline: $(BUILD)/baseline ##t build the trainer for one device, build/baseline
	@:

.SECONDEXPANSION:
$(step_X): step-%: $(BUILD)/$$(F_$$*) ## build your file; the last line says how to run it
	@common/scripts/student.sh line $* $<

# What grades an exercise, or all. Of two checks at once one builds, then the other.
checker := $(BUILD)/check-step $(BUILD)/compile-step
define build_checker
$(if $(wildcard $(BUILD)/check-step),,@echo 'The checker is built now: 10 to 20 seconds. After that a check takes seconds.')
@+flock Makefile $(MAKE) $(if $(Q),-s) --no-print-directory $(checker) $(if $*,JUDGES="$$(common/scripts/labs.sh judges $*)")
endef

# FILE and SEED are seen by the scripts, as make hands on what stands on its command line.
$(check_X): check-%: ## grade your file (or FILE=any.c as an answer to it) [SEED=n: as a graded verdict has it]
	$(build_checker)
	@common/scripts/student.sh check $*

$(hint_X): hint-%: ## a hint; there are three, one more each time
$(diff_X): diff-%: ##k your file (or FILE=any.c) against the solution
$(reset_X): reset-%: ## bring your file back as it was; asks first, keeps a backup
$(hint_X) $(diff_X) $(reset_X):
	@common/scripts/student.sh $(subst -, ,$@)

# It grades what was edited since its last check, if anything was.
next: ## take your last answer that passed on into the next step's file
	@+judges=$$(for x in $$(common/scripts/student.sh ungraded); do common/scripts/labs.sh judges $$x; done); \
	[ -z "$$judges" ] || flock Makefile $(MAKE) $(if $(Q),-s) --no-print-directory $(checker) JUDGES="$$(echo $$judges)"
	@common/scripts/student.sh next

check-all:
	$(build_checker)
	@common/scripts/student.sh check-all

progress: ##tn what you have done, and what is next
	@common/scripts/student.sh progress

update: ## take what your course has released since, without losing what you wrote
	@common/scripts/update.sh

watch: ## check an exercise whenever its file is saved; keys lead from one to the next
	$(build_checker) $(BUILD)/watch
	@$(BUILD)/watch

doc: ##tn what the library says about NAME=hvd_rank; without NAME, what there is
	@LC_ALL=C awk -f common/scripts/doc.awk common/*.h common/*/*.h

page: $(BUILD)/page ##t a picture of a run: TRACE=folder (HVDLAB_TRACE of the run) [TO=build/page.html]
live: $(BUILD)/page ##t the same while the run goes on, in another terminal
page live:
	@$< $(if $(filter live,$@),--live) "$${TRACE:-$(BUILD)/trace}" "$${TO:-$(BUILD)/page.html}"

devices: $(BUILD)/devices ##t the CPU's nvidia-smi: devices, load, processes (watch -n 1 build/devices)
	@$<

plan: $(BUILD)/plan ##t what a rank holds and sends, way by way, with formulas: MODEL=wrn:10 RANKS=4 [FLAGS=--help]
	@$< "$$MODEL" "$$RANKS" $(FLAGS)

env: ##tn for a shell, eval "$$(make -s env)": plain mpirun then works on this machine
	@common/scripts/mpi.sh env
	@common/scripts/cluster.sh env
	@$(foreach v,$(sanitizer_options),echo "export $(v)='$($(v))'";)

cluster: ## several hosts on this machine (HOSTS=4 RATE=1gbit DELAY=2ms), linked, for mpirun --hostfile
	@common/scripts/cluster.sh need
	@common/scripts/deps.sh install cluster
	@common/scripts/cluster.sh up

cluster-down: ## end them, with all that runs on them
cluster-traffic: ## what each of their links has carried (RESET=1: then sets the counters to zero)
cluster-down cluster-traffic:
	@common/scripts/cluster.sh $(@:cluster-%=%)

# BENCH=quick shortens what measures.
quick := $(if $(filter quick,$(BENCH)),--quick)

compare: ## time one device against all of them together; a GPU against the CPU
	$(build_first) $(BUILD)/bench
	@GOMP_SPINCOUNT=10000 $(BUILD)/bench --compare $(quick)

scaling: ## time 1, 2, ... workers on a core each (GPUs or not), and draw build/scaling.svg
	@common/scripts/deps.sh install build plot
	$(build_first) $(BUILD)/bench
	@GOMP_SPINCOUNT=10000 $(BUILD)/bench $(addprefix --isa ,$(ISA)) $(addprefix --precision ,$(PRECISION)) \
	    --scaling $(BUILD) $(quick)
	@gnuplot -e "folder='$(BUILD)'" tests/bench/scaling.gp && echo "Drawn: $(BUILD)/scaling.svg and .png"

# Programs of exercises that begin with a sweep.
swept = $(patsubst steps/%.c,%,$(shell grep -ls sweep_allreduce steps/*.c))
swept_programs = $(foreach f,$(swept),$(if $(filter 1,$(SOLUTIONS)),$(call solution_program,$(f)),$(BUILD)/$(f)))
sweep: ## time all-reduces, MPI's, NCCL's, yours (SOLUTIONS=1: the solutions'), and draw build/sweep.svg
	@common/scripts/deps.sh install build plot
	$(build_first) $(BUILD)/sweep $(swept_programs)
	@common/scripts/sweep.sh $(swept_programs)

##@ For instructors
check-all: ## grade all exercises, then show a table

release: ##k make the students' package: [EXERCISES=...] [HINTS=2] [TEXTS=zh_CN] [STUDENTS=class.csv SECRET=file] [WORKFLOW=github] [TO=folder]
	@common/scripts/deps.sh install steps class $(if $(TEXTS),translate)
	@common/scripts/release.sh

version = $(shell sed -n 's/^#define HVDLAB_VERSION "\(.*\)"/\1/p' common/run/args.h)
dist: ##kt make the source archive of this commit, the same in each build
	@goal="make dist"; . common/scripts/folders.sh; use_git; begin_build
	$(Q)git archive --format=tar --prefix=hvdlab-$(version)/ HEAD | gzip -n >$(BUILD)/hvdlab-$(version).tar.gz
	@echo $(BUILD)/hvdlab-$(version).tar.gz

translate: ##kt make the translated texts, in build/zh_CN [TEXTS=zh_CN] (labs/po/README.md)
print: ##kt make pages and PDFs of the handouts, students' and instructors' [TO=folder] [MEASURED=cut] [PDF=0]
translate print:
	@common/scripts/deps.sh install $@
	@common/scripts/$@.sh

gradescope: ##kt make an autograder for Gradescope: EXERCISES=ring:2,save [SECRET=file] [TO=file.zip]
	@common/scripts/deps.sh install class
	@common/scripts/gradescope.sh

grade: ##k grade a class's submissions: SUBMISSIONS=folder [ROSTER=class.csv] [EXERCISES=1,ring:2] (labs/instructor.md)
	@common/scripts/deps.sh install build sandbox class
	$(build_checker)
	$(build_first) $(BUILD)/grades
	@common/scripts/grade.sh

$(solution_X): solution-%: $$(call solution_program,$$(F_$$*)) ##k build the solution; the last line says how to run it
	@common/scripts/student.sh line $* $<

##@ For maintainers
measure: ##kt measure the tables of a lab's handout again, and rewrite them (LAB=03)
	@common/scripts/deps.sh install build steps plot
	$(build_first) $(BUILD)/compile-step $(BUILD)/hvdlab-all.o
	@common/scripts/measure.sh "$$LAB"

steps: ##k cut steps/ and solutions/ again from the labs' masters; refuses if a step was edited
check-steps: ##k check that they are what the masters say
steps check-steps:
	@common/scripts/deps.sh install steps
	@common/scripts/steps.sh $(if $(filter steps,$@),write,check)

$(BUILD)/replay: ## build the program that replays another framework's updates

# BENCH=quick takes under a minute; PEER=/path/to/python also times that Python's frameworks; ISA=AVX2
# has all of them compute as most laptops do; PRECISION=bf16 in bf16 (with ISA=AVX512_CORE_BF16 as where
# there is no AMX); WORKLOAD=wrn:10:32 times that alone (model, width, batch; any number of them).
# CONTAINER=trixie does it in a fresh Debian 13, with that one's oneDNN, as root.
# STEPS=pytorch races step 6 against the same in PyTorch, of that Python; a student's own in the students' package.
raced := $(if $(wildcard steps/.original),step_06,solution_06)
bench: ## time training steps (BENCH=quick; ISA=AVX2; PRECISION=bf16; CONTAINER=trixie; PEER=python with PyTorch; STEPS=pytorch)
ifneq ($(CONTAINER),)
	@tests/fresh.sh bench '$(CONTAINER)'
else ifneq ($(STEPS),)
	$(build_first) $(BUILD)/$(raced)
	@tests/bench/steps.sh '$(STEPS)' $(BUILD)/$(raced) '$(or $(PEER),python3)'
else
	$(build_first) $(BUILD)/bench
	@GOMP_SPINCOUNT=10000 $(BUILD)/bench $(addprefix --isa ,$(ISA)) $(addprefix --precision ,$(PRECISION)) \
	    --out $(BUILD)/bench.json $(quick) $(addprefix --workload ,$(WORKLOAD)) $(if $(PEER),--peer '$(PEER)')
endif

# WORKLOAD=wrn:10:1024 (model, width, batch; any number of them) instead of the lab's network at 128
# and 512. The trainer is timed, too, but not with BENCH=quick.
bench_trainer := $(if $(quick),,$(BUILD)/baseline)
bench-gpu: ## time them on a GPU, beside what it can do at most (BENCH=quick; PEER=python with PyTorch)
	$(build_first) $(BUILD)/bench $(bench_trainer)
	@GOMP_SPINCOUNT=10000 $(BUILD)/bench --gpu --out $(BUILD)/bench-gpu.json $(quick) \
	    $(addprefix --trainer ,$(bench_trainer)) $(addprefix --workload ,$(WORKLOAD)) $(if $(PEER),--peer '$(PEER)')

# The steps are laid out for their readers, by hand; so are kernels (.cu) and the stand-in (.cpp).
formatted := $(wildcard common/*.[ch] common/*/*.[ch] tests/*/*.[ch])
format: ##kt lay out the sources as .clang-format says
	@common/scripts/deps.sh install clang-format
	$(Q)$(CLANG_FORMAT) -i $(formatted)

check-format: ##kt check that they are laid out so, and that common/ includes only downwards
	@common/scripts/deps.sh install clang-format
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(formatted) || { status=$$?; \
	    echo "make check-format: laid out for clang-format 14 and 19; this is $$($(CLANG_FORMAT) --version)" >&2; exit $$status; }
	$(Q)awk -f tests/literals.awk $(formatted)
	$(Q)common/scripts/layers.sh

# Built by clang, in a folder of its own; instrumented loops are not those that it can vectorize.
fuzz := $(BUILD)/fuzz
build_fuzz = CC=clang CUDA=0 OPT=-O1 SANITIZE=fuzzer-no-link,address,undefined BUILD=$(fuzz) \
             CFLAGS='$(CFLAGS) -Wno-pass-failed' $(fuzz_targets:%=$(fuzz)/tests/fuzz/fuzz_%)
fuzz: ##k feed the readers what libFuzzer makes up (FUZZ_SECONDS=5 each, or FUZZ_RUNS=1000000); try random networks as long
	@CC=clang common/scripts/deps.sh install build fuzz
	$(build_first) $(build_fuzz)
	@BUILD=$(fuzz) tests/fuzz/run.sh $(fuzz_targets)
	$(build_first) $(BUILD)/tests/unit/test_graphs
	@tests/fuzz/graphs.sh

injected := $(small) $(BUILD)/tests/faults/inject.so $(BUILD)/replay $(BUILD)/cut/baseline
valgrinded := $(small) $(BUILD)/replay $(addprefix $(BUILD)/tests/unit/test_,args base error launcher dataset cifar10 safetensors tensorboard)
faults: ##k kill and stop jobs, fill their disks: what they say and leave (RANDOM_JOBS=50: at random moments)
	@common/scripts/deps.sh install build
	$(build_first) $(BUILD)/solution_06
	@tests/faults/jobs.sh
	$(if $(RANDOM_JOBS),@tests/faults/jobs.sh --random $(RANDOM_JOBS))

inject: ##k make each call that can fail do so, in short programs: some minutes (make test-more takes a few)
	@common/scripts/deps.sh install build
	$(build_first) $(injected)
	@tests/faults/test_inject.sh --all

valgrind: ##k run what reads, trains and talks under valgrind: 1 to 2 minutes
	@common/scripts/deps.sh install build check valgrind
	$(build_first) $(valgrinded)
	@tests/valgrind.sh

lint: ##kt look for mistakes in scripts and sources (shellcheck, cppcheck)
	@common/scripts/deps.sh install lint
	@tests/lint.sh

clean: ##n remove what was built (not a class's grades and releases)
	@goal="make clean"; . common/scripts/folders.sh; clean_build
