#!/usr/bin/env bash
# Under the leak sanitizer, which the stand-in's build has: a finished step ends without a report,
# though it frees nothing of what it trained with; memory that a program itself loses is reported,
# whatever it is called and wherever it lies. On the processor. BUILD is where the kit was built.

set -u
build=${BUILD:-build/emulated}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVDLAB_TRACE HVDLAB_FLAGS
export EMULATED_DEVICES=0
# Leaks are recognized by whole call stacks.
export ASAN_OPTIONS=detect_leaks=1:fast_unwind_on_malloc=0
export LSAN_OPTIONS=suppressions=$PWD/common/scripts/leaks.supp:print_suppressions=0
small=(--data synthetic --images 24 --batch-size 12 --val-batch-size 24 --width 1 --epochs 1
    --log-dir "$folder/logs" --loader-threads 2)
failures=0

fail()
{
    printf 'FAIL: %s\n' "$1"
    failures=$((failures + 1))
}

# compiled NAME: the program NAME from NAME.c, in a folder called steps.
compiled()
{
    mkdir -p "$folder/steps"
    mv "$folder/$1.c" "$folder/steps/"
    "$build/compile-step" "$folder/steps/$1.c" "$folder/steps/$1" || fail "$1 does not compile"
}

"$build/solution_06" "${small[@]}" >"$folder/out" 2>&1 || fail "a finished step: status $?: $(cat "$folder/out")"

# The same with memory of its own that is lost, by a function that the program and its folder could
# hide behind.
sed 's|^int main(int argc, char \*\*argv)|#include <stdlib.h>\nstatic void lose(void)\n{\n    *(volatile char *)malloc(123) = 1;\n}\n&|
     s|^    Args args = parse_args(argc, argv);|    lose();\n&|' solutions/step_06.c >"$folder/step_07.c"
compiled step_07
"$folder/steps/step_07" "${small[@]}" >"$folder/out" 2>&1 && fail "lost memory is not reported"
grep -q "123 byte(s) leaked in 1 allocation" "$folder/out" || fail "not the lost memory alone: $(cat "$folder/out")"

# What the library made and the program freed is not lost, either; what it hands over is the
# program's to free.
cat >"$folder/calls.c" <<'END'
#include "hvdlab.h"
#include <stdlib.h>

int main(int argc, char **argv)
{
    float value = 1;
    size_t total;
    Callbacks callbacks = {0};
    hvd_init();
    callbacks_add(&callbacks, tensorboard("/nowhere"));
    callbacks_add(&callbacks, hvd_metric_average());
    callbacks_free(&callbacks);
    free(hvd_allgather(&value, 1, &total));
    HvdGroup group = hvd_group_split(0);
    hvd_group_free(&group);
    if (argc > 1)
        return hvd_allgather(&value, (size_t)atoi(argv[1]), &total) == NULL;
    return 0;
}
END
compiled calls
"$folder/steps/calls" >"$folder/out" 2>&1 || fail "freed objects: status $?: $(cat "$folder/out")"
"$folder/steps/calls" 1 >"$folder/out" 2>&1 && fail "a lost result is not reported"

[[ $failures -eq 0 ]] && echo "all as promised"
exit $((failures > 0))
