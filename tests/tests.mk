# What tests need that is built in a folder of its own. The tests are in tests/list; a program that a line there starts is
# built by itself, and what a script starts is named here. $(call started,PART...): the programs of these parts.
started = $(shell BUILD='$(BUILD)' tests/run.sh --programs $(1))

# What tests/unit/test_threads.sh watches.
threads := $(BUILD)/threads
build_threads = CUDA=0 SANITIZE=thread BUILD=$(threads) $(addprefix $(threads)/tests/unit/test_,devices stages stage_faults stall_words pipeline prefetch mirrored misuse_devices)

# With the GPU that is not there (tests/emulated/README.md), all of it instrumented.
emulated := $(BUILD)/emulated
build_emulated = EMULATED=1 SANITIZE=address,undefined BUILD=$(emulated) $(call started,emulated emulated_more) \
    $(addprefix $(emulated)/,solution_06 bench mlp sweep check-step compile-step cut/baseline tests/mpi/test_sweep)

# For 64-bit ARM. $(arm_root) has that system's libraries.
arm := $(BUILD)/arm
arm_root := $(abspath $(arm))/root
build_arm = CC=aarch64-linux-gnu-gcc CUDA=0 BUILD=$(arm) CPPFLAGS=--sysroot=$(arm_root) LDFLAGS=--sysroot=$(arm_root) \
    $(filter $(arm)/%,$(call started,arm))
pkg_config_arm = PKG_CONFIG_SYSROOT_DIR=$(arm_root) PKG_CONFIG_LIBDIR=$(arm_root)/usr/lib/aarch64-linux-gnu/pkgconfig
