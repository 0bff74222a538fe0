#!/usr/bin/env bash
# What tests/run.sh makes of its commands' ends, and which of them it runs once more.

. tests/lib.sh
unset TEST_AGAIN TEST_TIMEOUT V

# ends STATUS LINE... -- WORD...: tests/run.sh with these words; of what it prints, each LINE without its seconds.
ends()
{
    local expected=$1 lines=()
    shift
    while [[ $1 != -- ]]; do
        lines+=("$1") && shift
    done
    rm -f "$folder/seen"
    run tests/run.sh "${@:2}"
    [[ $status -eq $expected ]] || fail "status $status instead of $expected: ${*:2}: $(cat "$folder/out")"
    sed -E 's/ +[0-9.]+ s  / /' "$folder/out" >"$folder/lines"
    for line in "${lines[@]}"; do
        grep -qxF "$line" "$folder/lines" || fail "\"$line\" is not in: $(cat "$folder/lines")"
    done
}

ends 0 "good ok" "none skipped" "1 passed, 0 failed, 1 skipped" -- good=true none="exit 77"
ends 1 "good ok" "bad FAIL (status 3)" "    a reason" "1 passed, 1 failed" -- --together good=true bad="echo a reason; exit 3"
ends 1 "slow FAIL (ended after 1 s)" "0 passed, 1 failed" -- slow@1="sleep 20"

# The second time it finds what the first time left.
flaky="[[ -e $folder/seen ]] || { touch $folder/seen; exit 1; }"
ends 1 "flaky FAIL (status 1)" "0 passed, 1 failed" -- flaky="$flaky"
export TEST_AGAIN=1
ends 0 "flaky FAIL (status 1)" "once more: flaky ok" "2 passed, 0 failed, 1 at the second try" -- flaky="$flaky" good=true
ends 1 "once more: bad FAIL (status 3)" "0 passed, 1 failed" -- bad="exit 3"
for crash in 'kill -SEGV $$' "echo ERROR: AddressSanitizer: heap-use-after-free; exit 1" "echo a.c:3:1: runtime error: shift; exit 1" \
    "echo Received signal 11 (Segmentation fault); exit 1" "echo WARNING: ThreadSanitizer: data race; exit 66"; do
    ends 1 "0 passed, 1 failed" -- crash="[[ -e $folder/seen ]] || { touch $folder/seen; ${crash//[()]/\\&}; }"
    ! grep -q "^once more" "$folder/out" || fail "a crash is run once more: $crash"
done
conclude
