#!/usr/bin/env bash
# Usage: tests/fuzz/run.sh [TARGET...]
#
# Runs the fuzz targets of BUILD, FUZZ_SECONDS (5) each, or FUZZ_RUNS inputs, starting from tests/fuzz/corpus/TARGET and
# what earlier runs found worth keeping in BUILD/corpus; the random numbers are those of FUZZ_SEED, or others each time.
# Prints a line for each. An input that ends a target badly is kept in BUILD/found, and its report is shown; status 1
# then.

set -u
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build/fuzz}
seconds=${FUZZ_SECONDS:-5}
if [[ $# -eq 0 ]]; then
    for program in "$build"/tests/fuzz/fuzz_*; do
        [[ ! -x $program ]] || set -- "$@" "${program##*/fuzz_}"
    done
fi
# The harness itself looks for leaks: what an input that ends in die() leaves behind is none.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
length=(-max_total_time="$seconds")
[[ -z ${FUZZ_RUNS:-} ]] || length=(-runs="$FUZZ_RUNS")
length+=(-seed="${FUZZ_SEED:-0}") # 0: any
unset "${!HVD@}" "${!OMPI@}"
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
status=0

for target in "$@"; do
    corpus=$build/corpus/$target
    mkdir -p "$corpus" "$build/found"
    dictionary=tests/fuzz/$target.dict
    words=("${length[@]}" -rss_limit_mb=2048 -timeout=100 -max_len=4096 -print_final_stats=1
        "-artifact_prefix=$(realpath "$build/found")/$target-")
    [[ ! -e $dictionary ]] || words+=("-dict=$dictionary")
    "$build/tests/fuzz/fuzz_$target" "${words[@]}" "$(realpath "$corpus")" "$PWD/tests/fuzz/corpus/$target" \
        >"$log" 2>&1 </dev/null
    ended=$?
    inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    places=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    if [[ $ended -eq 0 && -n $inputs ]]; then
        printf '%-14s %9d inputs  %5d places reached  nothing found\n' "$target" "$inputs" "$places"
    else
        printf '%-14s %9d inputs  status %d\n' "$target" "${inputs:-0}" "$ended"
        grep -vE '^#[0-9]+\s+(NEW|REDUCE|pulse|INITED|RELOAD)|^INFO|^Dictionary|^stat::' "$log" | head -n 60 | sed 's/^/    /'
        status=1
    fi
done
exit $status
