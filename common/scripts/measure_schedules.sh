#!/usr/bin/env bash
# Usage: measure_schedules.sh warmup|plateau
#
# Tables of labs/05-learning-rate/handout.md, measured again, on standard output: validation accuracies after
# the last epoch of three runs each. The programs are the solutions, and untouched files that are cut for it,
# whatever a student has made of steps/.

set -euo pipefail
build=${BUILD:-build}
work=$build/measure

# prepare NAME: its untouched file and its solution, as programs.
prepare()
{
    mkdir -p "$work"
    common/scripts/steps.sh cut "$work" >&2
    make -s "$build/compile-step" >&2
    "$build/compile-step" "$work/steps/$1.c" "$work/untouched" 2>/dev/null
    "$build/compile-step" "$work/solutions/$1.c" "$work/yours"
}

# row NAME WORKERS PROGRAM WORD...: a row of the table. A run that ends with a loss that is no number says nan.
row()
{
    local name=$1 workers=$2 program=$3
    shift 3
    printf '| %s |' "$name"
    for _ in 1 2 3; do
        common/scripts/mpi.sh run "$workers" "$work/$program" --log-dir "$work/logs" "$@" 2>/dev/null |
            awk '{ for (i = 1; i < NF; i++) if ($i == "val_accuracy:") last = $(i + 1) }
                 /^Epoch/ { begun = $2 } / val_accuracy: / { ended = begun }
                 END { if (begun == ended) printf " %.2f", last; else printf " nan" }' || true
    done | sed -e 's/\([0-9n]\) /\1, /g'
    printf ' |\n'
}

warmup_table()
{
    local flags=(--epochs 5 --images 12000 --base-lr 0.06)
    prepare warmup
    sed 's/^#define WARMUP_EPOCHS 3/#define WARMUP_EPOCHS 0/' "$work/solutions/warmup.c" >"$work/at_once.c"
    "$build/compile-step" "$work/at_once.c" "$work/at_once"
    printf '| | validation accuracy |\n| --- | --- |\n'
    row "one worker, rate 0.06" 1 yours "${flags[@]}"
    row "four, rate 0.06 (untouched)" 4 untouched "${flags[@]}"
    row "four, rate 0.24 at once" 4 at_once "${flags[@]}"
    row "four, rate 0.24 after a warm-up" 4 yours "${flags[@]}"
}

plateau_table()
{
    local flags=(--epochs 14 --images 6000 --base-lr 0.05)
    prepare plateau
    printf '| | validation accuracy |\n| --- | --- |\n'
    row "the rate stays (untouched)" 4 untouched "${flags[@]}"
    row "yours" 4 yours "${flags[@]}"
}

case ${1:-} in
warmup | plateau) "$1_table" ;;
*)
    echo "usage: measure_schedules.sh warmup|plateau" >&2
    exit 2
    ;;
esac
