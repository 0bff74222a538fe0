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
## CUDA=0                        leave CUDA out, even if it is found (it is not used yet)
## BUILD=folder                  build there instead of in build
## V=1                           show the commands; the tests' output even if they pass
ifeq ($(origin CC),default)
CC := gcc
endif
OPT ?= -O3
BUILD ?= build
CLANG_FORMAT ?= clang-format
FASHION_MNIST_URL ?= http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
DATA_DIR := data

# Scripts see the same settings.
export CC CUDA ONEDNN BUILD CLANG_FORMAT FASHION_MNIST_URL DATA_DIR V

# One recipe line, quiet unless V=1: $(Q)command; and the short line that stands for it.
Q := $(if $(filter 1,$(V)),,@)
say = @printf '  %-4s %s\n' $(1) $(2)

# All cores, unless the user gave a -j. What runs programs or changes the system runs alone.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
ifneq ($(filter deps data demo test bench clean,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:

# ---- What the programs are made of.

# passes.c is compiled once per instruction set; the program chooses when it starts.
PASSES := generic
ifneq ($(filter x86_64-%,$(shell $(CC) -dumpmachine 2>/dev/null)),)
PASSES += avx2
endif

# The CUDA backend needs CUDA, and is not built here yet.
cuda_sources := common/backend_cuda.c common/hvd_cuda.c common/hvd_nccl.c $(wildcard common/cuda_*.c)
library_objects := $(patsubst %.c,$(BUILD)/%.o,$(filter-out common/passes.c $(cuda_sources),$(wildcard common/*.c))) \
                   $(PASSES:%=$(BUILD)/common/passes_%.o)
# What students edit, and its solutions: one source, one program.
step_sources := $(wildcard steps/*.c)
solution_sources := $(filter-out solutions/master.c,$(wildcard solutions/*.c))
step_objects := $(patsubst %.c,$(BUILD)/%.o,$(step_sources) $(solution_sources))
check_objects := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/steps/*.c))
replay_objects := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/golden/*.c))
bench_objects := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/bench/*.c))

# Each tests/unit/test_NAME.c is a program; the other .c files there are shared by all of them.
unit_tests := $(patsubst tests/unit/test_%.c,%,$(wildcard tests/unit/test_*.c))
unit_objects := $(unit_tests:%=$(BUILD)/tests/unit/test_%.o)
shared_objects := $(patsubst %.c,$(BUILD)/%.o,$(filter-out tests/unit/test_%,$(wildcard tests/unit/*.c)))
script_tests := $(patsubst tests/unit/test_%.sh,%,$(wildcard tests/unit/test_*.sh))
cases := $(patsubst tests/golden/cases/%.safetensors,%,$(wildcard tests/golden/cases/*.safetensors))

unit_programs := $(unit_tests:%=$(BUILD)/tests/unit/test_%)
step_programs := $(step_sources:steps/%.c=$(BUILD)/%)
solution_programs := $(solution_sources:solutions/step_%.c=$(BUILD)/solution_%)
programs := $(step_programs) $(solution_programs) $(BUILD)/replay $(BUILD)/bench $(if $(check_objects),$(BUILD)/check) \
            $(unit_programs)
objects := $(library_objects) $(step_objects) $(replay_objects) $(bench_objects) \
           $(check_objects) $(unit_objects) $(shared_objects)

# ---- How to compile and link. CPPFLAGS, CFLAGS and LDFLAGS of the user come last.

# Headers of others count as system headers, so that our warnings are about our own code.
as_system = $(patsubst -I%,-isystem %,$(1))
mpi_cflags := $(shell pkg-config --cflags ompi-c 2>/dev/null || mpicc --showme:compile 2>/dev/null)
mpi_libs := $(or $(shell pkg-config --libs ompi-c 2>/dev/null || mpicc --showme:link 2>/dev/null),-lmpi)
check_cflags := $(shell pkg-config --cflags check 2>/dev/null)
check_libs := $(or $(shell pkg-config --libs check 2>/dev/null),-lcheck)
ifneq ($(ONEDNN),)
onednn_cflags := -isystem $(abspath $(ONEDNN))/include
onednn_libs := -L$(abspath $(ONEDNN))/lib -Wl,-rpath,$(abspath $(ONEDNN))/lib
endif

ifneq ($(SANITIZE),)
sanitize_flags := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
# Open MPI keeps memory until the process ends. To recognize it, the sanitizer needs whole call stacks.
export ASAN_OPTIONS := fast_unwind_on_malloc=0
export LSAN_OPTIONS := suppressions=$(CURDIR)/common/scripts/leaks.supp:print_suppressions=0
export UBSAN_OPTIONS := print_stacktrace=1
# Instrumented tests are slow: ten times Check's own limits.
export CK_TIMEOUT_MULTIPLIER := 10
endif

warnings := -Wall -Wextra -Wshadow -Wconversion -pedantic $(if $(filter 1,$(WERROR)),-Werror)
compile := $(CC) -std=c11 -D_GNU_SOURCE $(OPT) -g -fopenmp $(sanitize_flags) $(warnings) -Icommon \
           $(onednn_cflags) $(call as_system,$(mpi_cflags) $(check_cflags)) $(CPPFLAGS) $(CFLAGS)
link := $(CC) $(OPT) -g -fopenmp $(sanitize_flags) $(CFLAGS) $(LDFLAGS) $(onednn_libs)
libraries := -ldnnl -lcjson -lz -lhwloc $(mpi_libs) -lpthread -lm

# The two settings files change only when their line does, and then make compiles or links again.
# Before the first one is written, what is missing on this machine gets a clear line.
define keep_settings
@mkdir -p $(BUILD)
@echo '$(1)' | cmp -s - $@ || { common/scripts/deps.sh check build check && echo '$(1)' >$@; }
endef
$(BUILD)/settings.compile: FORCE
	$(call keep_settings,$(compile))
$(BUILD)/settings.link: FORCE | $(BUILD)/settings.compile
	$(call keep_settings,$(link) $(libraries) $(check_libs))
FORCE:

# A .d file beside each object names the headers that it was compiled with.
-include $(objects:.o=.d)

$(BUILD)/%.o: %.c $(BUILD)/settings.compile
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(compile) $(extra_flags) -MMD -MP -c -o $@ $<

$(BUILD)/common/passes_%.o: common/passes.c $(BUILD)/settings.compile
	@mkdir -p $(@D)
	$(call say,CC,'$< ($*)')
	$(Q)$(compile) -DPASSES=passes_$* $(extra_flags) -MMD -MP -c -o $@ $<

# Its vectors pass only between functions that are inlined, so how a call would pass them is no
# matter; and nobody reads errno after a square root.
$(BUILD)/common/passes_%.o: extra_flags := -Wno-psabi -fno-math-errno
$(BUILD)/common/passes_avx2.o: extra_flags := -Wno-psabi -fno-math-errno -mavx2 -mfma
ifeq ($(filter avx2,$(PASSES)),)
$(BUILD)/common/cpu_op.o: extra_flags := -DGENERIC_ONLY
endif

$(BUILD)/libhvdlab.a: $(library_objects)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(step_programs): $(BUILD)/%: $(BUILD)/steps/%.o
$(solution_programs): $(BUILD)/solution_%: $(BUILD)/solutions/step_%.o
$(BUILD)/check: $(check_objects)
$(BUILD)/replay: $(replay_objects)
$(BUILD)/bench: $(bench_objects)
$(unit_programs): $(BUILD)/%: $(BUILD)/%.o $(shared_objects)
$(unit_programs): extra_libraries = $(check_libs)

$(programs): $(BUILD)/libhvdlab.a $(BUILD)/settings.link
	$(call say,LD,$@)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(BUILD)/libhvdlab.a $(extra_libraries) $(libraries)

# compile-step FILE OUT makes a program of one file, wherever it is: the graders use it.
$(BUILD)/compile-step: $(BUILD)/libhvdlab.a $(BUILD)/settings.link
	$(Q)printf '#!/bin/sh\n%s "$$1" -o "$$2" %s\n' '$(compile) $(LDFLAGS) $(onednn_libs)' \
	    '$(BUILD)/libhvdlab.a $(libraries)' >$@ && chmod +x $@

# ---- Targets. The text after two hashes is what `make help` shows.

.DEFAULT_GOAL := all
.PHONY: all help deps info data demo test baseline bench format check-format clean FORCE

all: $(programs) ## build everything (what plain `make` does)

help: ## show this list
	@common/scripts/help.sh $(firstword $(MAKEFILE_LIST))

deps: ## install what is missing, through apt
	@common/scripts/deps.sh install build check dataset

info: ## show what was found on this machine, what is skipped, and why
	@common/scripts/info.sh

data: ## fetch Fashion-MNIST into data/ (where there is no Debian package for it)
	@common/scripts/deps.sh install curl
	@common/scripts/data.sh

# Half a minute to build, the rest is training. It stops at the accuracy it is to show.
DEMO_FLAGS := --width 1 --epochs 4 --target-accuracy 0.80 --patience 1
demo: ## build, then train a small network on the real data: 1 to 2 minutes on 2 cores
	@common/scripts/deps.sh install build dataset-or-fetch
	@$(MAKE) --no-print-directory baseline
	@echo "Training a small Wide ResNet on Fashion-MNIST until its validation accuracy is above" \
	      "0.80: one to three epochs of about 35 seconds on two cores."
	GOMP_SPINCOUNT=10000 $(BUILD)/baseline $(DEMO_FLAGS)

# Programs that run again as on older processors; replay stands for all golden cases.
ISA_TESTS := operations convolution batch_norm optimizers model replay
ISAS := AVX2 SSE41
TEST_TIMEOUT ?= $(if $(SANITIZE),600,120)
export TEST_TIMEOUT

# Words NAME=COMMAND for tests/run.sh. $(1) goes before the command, $(2) after the name.
run_units = $(foreach t,$(3),'$(t)$(2)=$(1)$(BUILD)/tests/unit/test_$(t)')
run_cases = $(foreach c,$(cases),'replay $(c)$(2)=$(1)$(BUILD)/replay tests/golden/cases/$(c).safetensors')
run_isa = $(call run_units,DNNL_MAX_CPU_ISA=$(1) , ($(1)),$(filter-out replay,$(ISA_TESTS))) \
          $(if $(filter replay,$(ISA_TESTS)),$(call run_cases,DNNL_MAX_CPU_ISA=$(1) , ($(1))))
test: ## build and run all tests
	@common/scripts/deps.sh install build check dataset
	@$(MAKE) --no-print-directory all
	@tests/run.sh $(call run_units,,,$(unit_tests)) \
	    $(foreach t,$(script_tests),'$(t)=tests/unit/test_$(t).sh') \
	    $(call run_cases,,) $(foreach isa,$(ISAS),$(call run_isa,$(isa)))

baseline: $(BUILD)/baseline ## build the trainer, build/baseline
$(BUILD)/replay: ## build the program that replays another framework's updates

# BENCH=quick takes under a minute; PEER=/path/to/python also times that Python's frameworks.
bench: ## time training steps (BENCH=quick; PEER=python with PyTorch or Keras to compare)
	@$(MAKE) --no-print-directory $(BUILD)/bench
	$(BUILD)/bench --out $(BUILD)/bench.json $(if $(filter quick,$(BENCH)),--quick) $(if $(PEER),--peer '$(PEER)')

# The steps are laid out for their readers, by hand.
formatted := $(wildcard common/*.[ch] tests/*/*.[ch])
format: ## lay out the sources as .clang-format says
	@common/scripts/deps.sh install clang-format
	$(Q)$(CLANG_FORMAT) -i $(formatted)

check-format: ## check that they are laid out so
	@common/scripts/deps.sh install clang-format
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(formatted)

clean: ## remove what was built
	$(Q)rm -rf $(BUILD)
