#!/usr/bin/env bash
# Usage: measure_workers.sh accumulate
#
# The tables of labs/05-learning-rate/handout.md, measured anew, on standard output. The programs are the
# solutions, whatever a student has made of steps/.

set -euo pipefail
build=${BUILD:-build}

# run N PROGRAM WORD...
run()
{
    common/scripts/mpi.sh run "$@" 2>/dev/null
}

accumulate_table()
{
    local workers
    make -s "$build/solution_accumulate" >&2
    printf '| | 1 worker | 2 workers | 4 workers |\n| --- | --- | --- | --- |\n| test accuracy |'
    for workers in 1 2 4; do
        for _ in 1 2 3; do
            run $workers "$build/solution_accumulate" --base-lr 0.1 --epochs 2 --images 12000
        done | awk -F ': ' '/^Test/ { printf "%s%.2f", count++ ? ", " : " ", $2 } END { printf " |" }'
    done
    echo
}

case ${1:-} in
accumulate) "$1_table" ;;
*)
    echo "usage: measure_workers.sh accumulate" >&2
    exit 2
    ;;
esac
