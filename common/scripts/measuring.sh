# Read by labs/*/measure_*.sh, which measure the tables of a lab's handout.
# shellcheck shell=bash

set -euo pipefail
export LC_ALL=C
build=${BUILD:-build}
work=$build/measure

# compile EXERCISE: $work/untouched and $work/yours are the untouched file and the solution, cut for it, whatever a
# student has made of steps/.
compile()
{
    mkdir -p "$work"
    common/scripts/steps.sh cut "$work" >&2
    make -s "$build/compile-step" "$build/hvdlab-all.o" >&2
    "$build/compile-step" "$work/steps/$1.c" "$work/untouched" >&2
    "$build/compile-step" "$work/solutions/$1.c" "$work/yours" >&2
}

# run N PROGRAM WORD...
run()
{
    common/scripts/mpi.sh run "$@" 2>/dev/null
}
