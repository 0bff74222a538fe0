#!/usr/bin/env bash
# Usage: tests/run.sh NAME[@SECONDS]=COMMAND...
#
# Runs the commands one after another, since each uses all cores, and prints a line for each: name,
# seconds, ok, FAIL or skipped (status 77). A command's output is shown if it fails, or always with
# V=1. A command that takes longer than its SECONDS, or TEST_TIMEOUT (120) without them, is ended.
# The last line counts; status 1 if any failed.

set -u
export LC_ALL=C # a point in EPOCHREALTIME
# Threads that wait for each other go to sleep soon: where other programs want the cores, one that
# spins for long only takes them from the thread that it waits for.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}
passed=0 failed=0 skipped=0

# Control-C ends the command that is running, and leaves no file behind.
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
trap 'kill "$running" 2>/dev/null; exit 130' INT TERM HUP

for test in "$@"; do
    name=${test%%=*}
    command=${test#*=}
    limit=${TEST_TIMEOUT:-120}
    [[ $name != *@* ]] || limit=${name##*@} name=${name%@*}
    begin=$EPOCHREALTIME
    # In the background, so that the trap can end it.
    timeout --kill-after=5 "$limit" bash -c "$command" >"$output" 2>&1 </dev/null &
    running=$!
    wait "$running"
    status=$?
    case $status in
    0) result=ok passed=$((passed + 1)) ;;
    77) result=skipped skipped=$((skipped + 1)) ;;
    124 | 137) result="FAIL (ended after $limit s)" failed=$((failed + 1)) ;;
    *) result="FAIL (status $status)" failed=$((failed + 1)) ;;
    esac
    seconds=$(awk "BEGIN { print $EPOCHREALTIME - $begin }")
    printf '%-36s %6.1f s  %s\n' "$name" "$seconds" "$result"
    if [[ $result != ok || ${V:-} = 1 ]]; then
        sed 's/^/    /' "$output"
    fi
done

printf '%d passed, %d failed' "$passed" "$failed"
[[ $skipped -eq 0 ]] || printf ', %d skipped' "$skipped"
printf '\n'
[[ $failed -eq 0 ]]
