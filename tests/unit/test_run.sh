#!/usr/bin/env bash
# What tests/run.sh makes of its commands' ends, and which of them it runs once more.

. tests/lib.sh
unset TEST_AGAIN TEST_TIMEOUT TEST_PATIENCE CK_TIMEOUT_MULTIPLIER V
export TEST_LOADAVG=$folder/idle
echo 0.50 0.40 0.30 1/99 1234 >"$folder/idle"
echo 999.00 40.00 30.00 99/99 1234 >"$folder/busy"

# ends STATUS LINE... -- TEST...: tests/run.sh with these tests, lines of tests/list; those of the part b run together. Of
# what it prints, each LINE without its seconds.
ends()
{
    local expected=$1 lines=() parts=(a)
    shift
    while [[ $1 != -- ]]; do
        lines+=("$1") && shift
    done
    rm -f "$folder/seen"
    [[ $2 = a* ]] || parts=(--together b)
    printf '%s\n' "${@:2}" >"$folder/list"
    TEST_LIST=$folder/list run tests/run.sh "${parts[@]}"
    [[ $status -eq $expected ]] || fail "status $status instead of $expected: ${*:2}: $(cat "$folder/out" "$folder/err")"
    sed -E 's/ +[0-9.]+ s  / /' "$folder/out" >"$folder/lines"
    for line in "${lines[@]}"; do
        grep -qxF "$line" "$folder/lines" || fail "\"$line\" is not in: $(cat "$folder/lines")"
    done
}

ends 0 "good ok" "none skipped" "1 passed, 0 failed, 1 skipped" -- "a - good : true" "a - none : exit 77"
ends 1 "good ok" "bad FAIL (status 3)" "    a reason" "1 passed, 1 failed" -- "b - good : true" "b - bad : echo a reason; exit 3"
ends 1 "slow FAIL (ended; its limit is 1 s)" "0 passed, 1 failed" -- "a 1 slow : sleep 20"
CK_TIMEOUT_MULTIPLIER=3 ends 0 "slow ok" -- "a 1 slow : sleep 2"
TEST_LOADAVG=$folder/busy ends 0 "slow ok" -- "a 1 slow : sleep 2"
# And so may what the test itself ends; the checks look how busy it is.
TEST_LOADAVG=$folder/busy CK_TIMEOUT_MULTIPLIER=2 ends 0 "patient ok" -- 'a 9 patient : [[ $CK_TIMEOUT_MULTIPLIER = 8 && $TEST_PATIENCE = 2 ]]'
# Also where many end at once.
for _ in {1..16}; do
    (tests/limit.sh 1 sleep 20; echo $? >>"$folder/ended") &
done
wait
[[ $(sort "$folder/ended" | uniq -c | xargs) == "16 124" ]] || fail "limits that were met: $(sort "$folder/ended" | uniq -c | xargs)"
export TEST_TIMEOUT=1
ends 1 "slow FAIL (ended; its limit is 1 s)" -- "a - slow : sleep 20"
unset TEST_TIMEOUT

refused "no test of tests/list is of the part nowhere" tests/run.sh nowhere

# The second time it finds what the first time left.
flaky="[[ -e $folder/seen ]] || { touch $folder/seen; exit 1; }"
ends 1 "flaky FAIL (status 1)" "0 passed, 1 failed" -- "a - flaky : $flaky"
export TEST_AGAIN=1
ends 0 "flaky FAIL (status 1)" "once more: flaky ok" "2 passed, 0 failed, 1 at the second try" -- "a - flaky : $flaky" "a - good : true"
ends 1 "once more: bad FAIL (status 3)" "0 passed, 1 failed" -- "a - bad : exit 3"
for crash in 'kill -SEGV $$' "echo ERROR: AddressSanitizer: heap-use-after-free; exit 1" "echo a.c:3:1: runtime error: shift; exit 1" \
    "echo Received signal 11 (Segmentation fault); exit 1" "echo WARNING: ThreadSanitizer: data race; exit 66"; do
    ends 1 "0 passed, 1 failed" -- "a - crash : [[ -e $folder/seen ]] || { touch $folder/seen; ${crash//[()]/\\&}; }"
    ! grep -q "^once more" "$folder/out" || fail "a crash is run once more: $crash"
done

# A line that makes no sense is an error before anything runs, not a test less.
ends 2 -- "a - good : touch $folder/ran" "a - {nope} : false"
grep -q '{nope} stands for nothing' "$folder/err" || fail "a word that stands for nothing: $(cat "$folder/err")"
ends 2 -- "a - good : touch $folder/ran" "a 1O bad : false"
grep -q '"1O" is no number of seconds' "$folder/err" && [[ ! -e $folder/ran ]] || fail "no number of seconds: $(cat "$folder/err")"

# What a line of the list is: words in place of {X}, the name of its file, and files that no other line names.
mkdir -p "$folder/kit/tests/unit" && touch "$folder/kit/tests/unit"/test_{a.c,b.c,c.sh,d.sh}
cat >"$folder/kit/list" <<'EOT'
# words
each unit   tests/unit/test_*.c
each script tests/*/test_*.sh
main,more - {unit} (as {how}) : {begin} {build}/tests/unit/test_{unit}
each how    this that
set begin   A=1 B={how}
more      60 tests/unit/test_c.sh --some
main      -  {script}
EOT
here=$PWD
(
    cd "$folder/kit" || exit
    export TEST_LIST=list BUILD=some/build
    succeeds "$here/tests/run.sh" --list main more
    diff "$folder/out" - <<'EOT' || fail "not what tests/run.sh --list should print"
main - a (as this) : A=1 B=this some/build/tests/unit/test_a
main - a (as that) : A=1 B=that some/build/tests/unit/test_a
main - b (as this) : A=1 B=this some/build/tests/unit/test_b
main - b (as that) : A=1 B=that some/build/tests/unit/test_b
main - d : tests/unit/test_d.sh
more - a (as this) : A=1 B=this some/build/tests/unit/test_a
more - a (as that) : A=1 B=that some/build/tests/unit/test_a
more - b (as this) : A=1 B=this some/build/tests/unit/test_b
more - b (as that) : A=1 B=that some/build/tests/unit/test_b
more 60 c : tests/unit/test_c.sh --some
EOT
    succeeds "$here/tests/run.sh" --programs main
    diff "$folder/out" <(printf 'some/build/tests/unit/test_%s\n' a b) || fail "not what tests/run.sh --programs should print"
    [[ $failures -eq 0 ]]
) || failures=$((failures + 1))
# `make one` takes all tests of a name, and those of a file of that name only where there are none.
printf '%s\n' "main 9 both measured : echo third ./test_both.sh" "main 9 both : echo first.sh" "more 9 both : echo second.sh" >"$folder/list"
for name in both test_both; do
    TEST_LIST=$folder/list succeeds tests/one.sh $name '' tests/lib.sh
    [[ $(grep -oE '(first|second|third)' "$folder/out" | xargs) == "first second" ]] || fail "make one T=$name: $(cat "$folder/out")"
done
sed -i '2,$d' "$folder/list"
TEST_LIST=$folder/list succeeds tests/one.sh both '' tests/lib.sh
grep -q third "$folder/out" || fail "make one, by a file's name: $(cat "$folder/out")"

conclude
