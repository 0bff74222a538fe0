#!/usr/bin/env bash
# Usage: measure_schedules.sh warmup|plateau
#
# Tables of labs/05-learning-rate/handout.md, measured again, on standard output: validation accuracies after
# the last epoch of several runs each. The programs are the solutions, and untouched files that are cut for it,
# whatever a student has made of steps/.

. common/scripts/measuring.sh

# row NAME RUNS WORKERS PROGRAM WORD...: a row of the table, sorted. A run that ends with a loss that is no number
# says nan.
row()
{
    local name=$1 runs=$2 workers=$3 program=$4 run
    shift 4
    printf '| %s |' "$name"
    for ((run = 0; run < runs; run++)); do
        run "$workers" "$work/$program" --log-dir "$work/logs" "$@" |
            awk '{ for (i = 1; i < NF; i++) if ($i == "val_accuracy:") last = $(i + 1) }
                 /^Epoch/ { begun = $2 } / val_accuracy: / { ended = begun }
                 END { if (begun == ended) printf "%.2f\n", last; else print "nan" }' || true
    done | sort -r | awk '{ printf "%s %s", (NR > 1 ? "," : ""), $1 }'
    printf ' |\n'
}

warmup_table()
{
    local flags=(--epochs 8 --images 12000 --base-lr 0.02)
    compile warmup
    sed 's/^#define WARMUP_EPOCHS 3/#define WARMUP_EPOCHS 0/' "$work/solutions/warmup.c" >"$work/at_once.c"
    "$build/compile-step" "$work/at_once.c" "$work/at_once"
    printf '| | validation accuracy |\n| --- | --- |\n'
    row "one worker, rate 0.02" 5 1 yours "${flags[@]}"
    row "eight, rate 0.02 (untouched)" 5 8 untouched "${flags[@]}"
    row "eight, rate 0.16 at once" 5 8 at_once "${flags[@]}"
    row "eight, rate 0.16 after a warm-up" 5 8 yours "${flags[@]}"
}

plateau_table()
{
    local flags=(--epochs 14 --images 6000 --base-lr 0.05)
    compile plateau
    printf '| | validation accuracy |\n| --- | --- |\n'
    row "the rate stays (untouched)" 3 4 untouched "${flags[@]}"
    row "yours" 3 4 yours "${flags[@]}"
}

case ${1:-} in
warmup | plateau) "$1_table" ;;
*)
    echo "usage: measure_schedules.sh warmup|plateau" >&2
    exit 2
    ;;
esac
