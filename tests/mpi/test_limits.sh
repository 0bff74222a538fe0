#!/usr/bin/env bash
# Usage: test_limits.sh [--all]
#
# A short training under limits on the address space, as if memory were short: it does its work, or
# ends with a line, its own or that of the library that could not start (Open MPI, libgomp, the
# system's loader), never by a signal. Some limits, fewer for two ranks; with --all both from 50 to
# 500 MB in steps of 10, each outcome counted.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
small=(--data synthetic --images 64 --width 1 --batch-size 32 --epochs 1 --log-dir "$folder/logs" --loader-threads 2)
mapfile -t limits < <(seq 60 10 250; echo 500)
limits_of_two=(60 500 900)
[[ ${1-} = --all ]] && mapfile -t limits < <(seq 50 10 500) && limits_of_two=("${limits[@]}" 900)

# Sanitizers take terabytes of addresses before main.
(ulimit -v 1000000 && "$build/cut/baseline" --version) >/dev/null 2>&1 || skip "not with sanitizers"

# under MB PROGRAM [STARTED-BY...]: with a limit on the address space, and no core files.
under()
{
    # shellcheck disable=SC2016 # for the other shell
    run "${@:3}" bash -c 'ulimit -c 0; ulimit -v $((1024 * $0)); exec "$@"' "$1" "$2" "${small[@]}"
}

# The kind of outcome: one word, or a question mark.
outcome()
{
    if [[ $status -eq 0 ]]; then
        echo ok
    elif [[ $status -eq 2 ]] && grep -qE "^(baseline|solution_06): .*(out of memory|cannot start .* threads|cannot be listed)" "$folder/err"; then
        echo ours
    elif grep -q "^libgomp: " "$folder/err"; then
        echo OpenMP
    elif grep -qE "error while loading shared libraries" "$folder/err"; then
        echo loader
    elif grep -q "if it fails, this is why" "$folder/err" && ! grep -q "Signal:" "$folder/err"; then
        echo MPI
    else
        echo "?"
    fi
}

# judge NAME MB: takes the outcome down, or fails.
judge()
{
    local kind
    kind=$(outcome)
    echo "$1: $kind" >>"$folder/kinds"
    [[ $kind != "?" ]] || fail "$1 in $2 MB: status $status: $(cat "$folder/err")"
}

two_ranks()
{
    under "$1" "$build/solution_06" mpirun -np 2
    judge "two ranks" "$1"
}

for limit_mb in "${limits[@]}"; do
    under "$limit_mb" "$build/cut/baseline"
    judge "one process" "$limit_mb"
done
for limit_mb in "${limits_of_two[@]}"; do
    two_ranks "$limit_mb"
done
# Between a limit at which MPI can't start and one that is long enough lie those at which the program
# itself speaks; how few they are depends on Open MPI's version.
low=60 high=500
while ! grep -qx "two ranks: ours" "$folder/kinds" && ((high - low > 4)); do
    middle=$(((low + high) / 2))
    two_ranks "$middle"
    if [[ $(tail -n 1 "$folder/kinds") = *": ok" ]]; then high=$middle; else low=$middle; fi
done
for name in "one process" "two ranks"; do
    grep -qx "$name: ours" "$folder/kinds" || fail "$name: no limit was short enough"
    grep -qx "$name: ok" "$folder/kinds" || fail "$name: no limit was long enough"
done
sort "$folder/kinds" | uniq -c
conclude
