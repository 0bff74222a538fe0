#!/usr/bin/env bash
# Usage: measure_pipeline.sh accuracy|speed|memory
#
# The tables of labs/04-data/handout.md about pipelines, measured again, on standard output. The program
# is pipeline's solution, also with stages left out or moved.

. common/scripts/measuring.sh

# program NAME [COMMAND]: the solution, its text changed by a command of sed, as $work/NAME.
program()
{
    sed "${2:-}" "$work/solutions/pipeline.c" >"$work/$1.c"
    "$build/compile-step" "$work/$1.c" "$work/$1"
}

# The figures of a line's kind, one a line: figures NAME <OUTPUT
figures()
{
    sed -n "s#^$1: ##p; s#.* - $1: \([0-9.]*\).*#\1#p"
}

# Epochs 2 to 6, 1 and 2: their median. The first one reads what a cache keeps.
median_of_later()
{
    tail -n +2 | sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

accuracy_table()
{
    local buffer epochs=3
    program solution
    printf '| images in the buffer | 1 worker | 4 workers |\n| --- | --- | --- |\n'
    for buffer in 1 100 1000 6000; do
        printf '| %s |' $buffer
        for ranks in 1 4; do
            run $ranks "$work/solution" --epochs $epochs --images 6000 --shuffle-buffer $buffer --seed 1 |
                figures val_accuracy | tail -n 1 | awk '{ printf " %.2f |", $1 }'
        done
        echo
    done
}

# The images/s of one run of a program: one_speed PROGRAM SLOW_READER
one_speed()
{
    run 1 "$1" --epochs 6 --images 6000 --shuffle-buffer 100 --pace 4 --slow-reader "$2" | figures Images/sec | median_of_later
}

# Of training steps alone, and with a validation after each epoch: medians of three runs.
speed_table()
{
    local kept alone='/\.validation/d; s/\( *Batches \*test_batches = .*\)/\1 (void)test_batches;/'
    program both
    program prefetch '/pipeline_cache/d'
    program cache '/pipeline_prefetch/d'
    program neither '/pipeline_cache/d; /pipeline_prefetch/d'
    for name in both prefetch cache neither; do
        sed "$alone" "$work/$name.c" >"$work/$name-alone.c"
        "$build/compile-step" "$work/$name-alone.c" "$work/$name-alone"
    done
    printf '| images/s | training alone, no delay | training alone, 2 ms a batch | with validation, no delay | with validation, 2 ms a batch |\n'
    printf '| --- | --- | --- | --- | --- |\n'
    for name in neither prefetch cache both; do
        printf '| %s |' $name
        for kept in -alone ''; do
            for reader in 0 2; do
                for _ in 1 2 3; do
                    one_speed "$work/$name$kept" $reader
                done | sort -g | awk 'NR == 2 { printf " %.0f |", $1 }'
            done
        done
        echo
    done
}

# The largest value of a field in the trace of rank 0, of the training batches, in KB.
kilobytes() # FIELD
{
    sed -n '/"taken"/{ /"batches":0,/p; }' "$work/trace/rank-0.jsonl" |
        sed 's/.*"'"$1"'_bytes":\([0-9]*\).*/\1/' | sort -g | tail -n 1 | awk '{ printf " %.0f |", $1 / 1000 }'
}

memory_table()
{
    local name
    program solution
    program augmented '/pipeline_cache(p)/d; s/\( *p = pipeline_augment(p);\)/\1 p = pipeline_cache(p);/'
    program batches '/pipeline_shuffle/d; s/\( *p = pipeline_repeat(p);\)/p = pipeline_shuffle(p, args->shuffle_buffer); \1/'
    printf '| KB held | cache | buffer | ahead |\n| --- | --- | --- | --- |\n'
    for name in solution augmented batches; do
        rm -rf "$work/trace"
        HVDLAB_TRACE=$work/trace run 1 "$work/$name" --epochs 1 --images 6000 --shuffle-buffer 100 >"$work/out"
        printf '| %s |' $name
        for field in cached buffered ahead; do
            kilobytes $field
        done
        echo
    done
}

mkdir -p "$work"
common/scripts/steps.sh cut "$work" >&2
make -s "$build/compile-step" >&2
case ${1:-} in
accuracy | speed | memory) "$1_table" ;;
*)
    echo "usage: measure_pipeline.sh accuracy|speed|memory" >&2
    exit 2
    ;;
esac
