#!/usr/bin/env bash
# Training steps that are recorded and played back (common/cuda_graph.c) are the steps that they
# replace, each with a dropout pattern of its own; and where nothing can be recorded, training goes on
# without. On the GPU that is not there (README.md). BUILD is where the kit was built with it.

set -u
build=${BUILD:-build/emulated}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset HVDLAB_TRACE "${!EMULATED_@}"
failures=0

fail()
{
    printf 'FAIL: %s\n' "$1"
    failures=$((failures + 1))
}

# train PLAYS SETTING...: two batches of two images, and a last one of one, twice. What it prints,
# without times, goes to the file out; PLAYS graphs must have been played.
train()
{
    rm -f "$folder/report"
    env EMULATED_REPORT="$folder/report" "${@:2}" "$build/solution_06" --device gpu --width 1 --data synthetic \
        --images 5 --batch-size 2 --val-batch-size 5 --epochs 2 --seed 3 --show-ranks >"$folder/all" 2>"$folder/err" ||
        fail "(${*:2}) status $?: $(cat "$folder/err")"
    grep -E '^ +0 ' "$folder/all" >"$folder/out"
    [[ $(wc -l <"$folder/out") -eq 2 ]] || fail "(${*:2}) not two tables: $(cat "$folder/all")"
    grep -q " plays $1\$" "$folder/report" || fail "(${*:2}) not $1 graphs: $(cat "$folder/report")"
}

# A trace needs the host in every step, so that nothing is recorded.
train 0 HVDLAB_TRACE="$folder/trace"
mv "$folder/out" "$folder/want"
same()
{
    cmp -s "$folder/want" "$folder/out" || fail "($*) other weights: $(cat "$folder/want" "$folder/out")"
}
# All but the first step of each batch size.
train 4
same "as it is"
train 4 EMULATED_STREAMS=lazy
same "lazy streams"
train 0 EMULATED_GRAPHS=0
same "nothing can be recorded"

exit $((failures > 0))
