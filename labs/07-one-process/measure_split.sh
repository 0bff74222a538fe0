#!/usr/bin/env bash
# Usage: measure_split.sh pace|real|stages
#
# Tables of labs/07-one-process/handout.md, measured again, on standard output: images per second of a model in
# two halves on two devices against the number of micro-batches, with a pace (and by the formula), and as
# fast as this machine is (the median of five runs); and of one in four stages, what stage 0 keeps, and how long
# stages are idle. The programs are the solution, and the untouched file, cut for it, whatever a student has made of
# steps/.

set -euo pipefail
export LC_ALL=C
build=${BUILD:-build}
work=$build/measure
pace=200
batch=256
flags=(--epochs 1 --images $((24 * batch)) --batch-size "$batch" --base-lr 0.1)
export HVDLAB_DEVICES=2

prepare()
{
    mkdir -p "$work"
    common/scripts/steps.sh cut "$work" >&2
    make -s "$build/compile-step" >&2
    "$build/compile-step" "$work/steps/$1.c" "$work/untouched"
    "$build/compile-step" "$work/solutions/$1.c" "$work/yours"
}

# speed RUNS PROGRAM FLAG...: the median.
speed()
{
    local runs=$1 program=$2
    shift 2
    for ((run = 0; run < runs; run++)); do
        "$work/$program" "${flags[@]}" "$@" | awk '/ images\/s$/ { print $(NF - 1) }'
    done | sort -n | awk '{ all[NR] = $1 } END { printf " %d |", all[int((NR + 1) / 2)] }'
}

# row NAME RUNS PROGRAM FLAG...: a column for each number in ${micro_batches[@]}.
row()
{
    local name=$1 runs=$2 program=$3 count
    shift 3
    printf '| %s |' "$name"
    for count in "${micro_batches[@]}"; do
        speed "$runs" "$program" --micro-batches "$count" "$@"
    done
    echo
}

# head TEXT
head()
{
    printf '| %s |%s\n| --- |%s\n' "$1" "$(printf ' M = %d |' "${micro_batches[@]}")" \
        "$(printf -- ' --- |%.0s' "${micro_batches[@]}")"
}

pace_table()
{
    micro_batches=(1 2 4 8)
    head "images/s with \`--pace $pace\`"
    row "one at a time (untouched)" 1 untouched --pace "$pace"
    row "yours" 1 yours --pace "$pace"
    printf '| by the formula |'
    for count in "${micro_batches[@]}"; do
        awk -v m="$count" -v b="$batch" -v p="$pace" 'BEGIN { printf " %.0f |", b / (p / 1000 * (m + 1) / (2 * m)) }'
    done
    echo
}

real_table()
{
    micro_batches=(1 2 4 8 32 256)
    head "images/s"
    row "one at a time (untouched)" 5 untouched
    row "yours" 5 yours
}

# use PROGRAM: for each number of micro-batches a line: what stage 0 keeps, its MB, the idle % of all stages' time.
use()
{
    for count in "${micro_batches[@]}"; do
        HVDLAB_DEVICES=4 "$work/$1" "${flags[@]}" --images $((3 * batch)) --pace 4800 --micro-batches "$count" |
            awk '/^Stage 0: / { printf "%d %s ", $3, $8 } /^Stage / { idle += $11; stages++ } END { printf "%.0f\n", idle / stages }'
    done >"$work/use-$1"
}

stages_table()
{
    local program
    micro_batches=(4 8 16 32)
    head "4 stages, a batch of 256"
    for program in untouched yours; do
        use "$program"
    done
    local column=0
    for name in "micro-batches that stage 0 keeps" "MB for their activations" "mean idle % of the stages"; do
        column=$((column + 1))
        for program in untouched yours; do
            awk -v name="$name, $program" -v column=$column '{ row = row " " $column " |" } END { print "| " name " |" row }' "$work/use-$program"
        done
    done
    printf '| idle, by the formula |'
    for count in "${micro_batches[@]}"; do
        awk -v m="$count" 'BEGIN { printf " %.0f |", 100 * 3 / (m + 3) }'
    done
    printf '\n| images/s, by the formula |'
    for count in "${micro_batches[@]}"; do
        awk -v m="$count" -v b="$batch" 'BEGIN { printf " %.0f |", b / (1.2 * (m + 3) / m) }'
    done
    echo
}

case ${1:-} in
pace | real)
    prepare split
    "$1_table"
    ;;
stages)
    prepare one_f_one_b
    stages_table
    ;;
*)
    echo "usage: measure_split.sh pace|real|stages" >&2
    exit 2
    ;;
esac
