#!/usr/bin/env bash
# make watch, on a terminal (script gives it one) and without: saves of all kinds, keys, and what is left behind.

. tests/lib.sh
command -v script >/dev/null || skip "script is not there"
[[ -x $build/watch && -x $build/check-step && -x $build/compile-step ]] || {
    echo "$build/watch, check-step or compile-step is not there: make them first" >&2
    exit 2
}
# A copy of the kit, in which a student works.
kit=$folder/kit
mkdir -p "$kit/build"
cp -Rp README.md Makefile LICENSE common labs tests "$kit/"
cp -Rp "$build"/common "$build"/tests "$build"/settings.* "$build"/{library.o,hvdlab.o,watch,check-step,compile-step} "$kit/build/"
common/scripts/steps.sh cut "$kit" || exit 1
(cd "$kit" && sha256sum steps/*.c >solutions/steps.sha256)
cd "$kit" || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD
screen=$folder/screen
mkfifo "$folder/keys"

begin()
{
    : >"$screen"
    script -qfec "${1:-build/watch}" "$screen" <"$folder/keys" >/dev/null 2>&1 &
    running=$!
    exec 8>"$folder/keys"
}

# wait_for SECONDS WORDS: until the screen has them so often (3rd word; 1).
wait_for()
{
    local i
    for ((i = 0; i < $1 * 20 * patience; i++)); do
        [[ $(grep -aoF -e "$2" "$screen" | wc -l) -lt ${3:-1} ]] || return 0
        sleep 0.05
    done
    fail "\"$2\" is not on the screen: $(tail -c 2000 "$screen")"
    return 1
}
checks() { grep -aoF ': checking' "$screen" | wc -l; }
press() { printf '%s' "$1" >&8; }
# The runs of a check that are alive.
alive() { for exe in /proc/[0-9]*/exe; do [[ $(readlink "$exe" 2>/dev/null) != "$kit/build/check/"* ]] || echo "$exe"; done; }

begin
wait_for 40 'step 1: failed: init-missing'
wait_for 10 '[n]ext [p]revious'

# Ten saves in a tenth of a second are one check.
before=$(checks)
for i in 1 2 3 4 5 6 7 8 9; do
    echo "// $i" >>steps/step_01.c
done
cp solutions/step_01.c steps/step_01.c
wait_for 40 'step 1: passed'
wait_for 10 '1 of '
sleep 0.5
[[ $(checks) -eq $((before + 1)) ]] || fail "ten saves were $(($(checks) - before)) checks"

# The same contents are no change; another exercise's file is none of this one's.
before=$(checks)
cp solutions/step_01.c steps/step_01.c
echo '// mine' >>steps/step_02.c
wait_for 10 '(steps/step_02.c was saved, too'
sleep 0.5
[[ $(checks) -eq $before ]] || fail "a check without a change"

# As editors save: into another file, which is renamed. And while that is checked, once more.
cp solutions/step_01.c steps/.step_01.c.swp && echo '// first' >>steps/.step_01.c.swp
mv steps/.step_01.c.swp steps/step_01.c
for ((i = 0; i < 400; i++)); do
    [[ -z $(alive) ]] || break
    sleep 0.05
done
old=$(for exe in /proc/[0-9]*/exe; do [[ $(readlink "$exe" 2>/dev/null) != "$kit/build/check-step" ]] || echo "${exe//[!0-9]/}"; done)
[[ -n $old ]] || fail "the first save is not being checked"
echo '// second' >>steps/step_01.c
wait_for 40 'step 1: passed' 2
for each in $old; do
    [[ ! -d /proc/$each ]] || fail "the check of the save before is still there"
done
[[ -z $(alive) ]] || fail "a run is still alive: $(alive)"

# Keys.
press n
wait_for 40 'step 2: '
press h
wait_for 20 'Step 2, hint 1 of 3'
press l
wait_for 20 '02-six-steps         +1 >2 .3'
wait_for 10 '+ passed   . to do'
press x
wait_for 10 'Throw away what you wrote in steps/step_02.c'
press n
wait_for 10 'nothing was changed'
grep -q '// mine' steps/step_02.c || fail "it was thrown away all the same"
press x
press y
wait_for 20 'steps/step_02.c is as it was'
! grep -q '// mine' steps/step_02.c || fail "reset did nothing"
# From an exercise that has passed to one that is untouched: as make next.
press p
wait_for 40 'step 1: passed' 3
wait_for 10 '] 1 of '
press n
wait_for 20 'Your answer of step 1 is now in steps/step_02.c.'
sleep 0.5
cmp -s steps/step_01.c steps/step_02.c || fail "n did not carry the answer on"
[[ $(grep -aoF 'step_02.c: checking' "$screen" | wc -l) -eq 1 ]] || fail "what was carried on is checked before it is edited"
press q
wait $running
[[ -z $(alive) ]] || fail "q left a run: $(alive)"
exec 8>&-

# It goes on where it was; where that has passed, with the first that has not.
begin
wait_for 40 'step 2: failed: verbose-everywhere'
press p
wait_for 40 'step 1: passed'
press q
wait $running
exec 8>&-
begin
wait_for 40 'step 2: failed: verbose-everywhere'
press p
wait_for 40 'step 1: passed'
press q
wait $running
exec 8>&-

# On a terminal that stops what writes from the background.
begin 'stty tostop; build/watch'
wait_for 40 'step 2: failed: verbose-everywhere'
press q
wait $running
exec 8>&-

# Where nothing is reported.
begin 'HVDLAB_WATCH_POLL=1 build/watch'
wait_for 40 'it is looked at once a second'
wait_for 40 'step 2: failed: '
cp solutions/step_02.c steps/step_02.c
wait_for 40 'step 2: passed'
press q
wait $running
exec 8>&-

# Without a terminal: plain lines, and a signal ends it, with what runs.
build/watch >"$screen" 2>&1 </dev/null &
running=$!
wait_for 40 'step 3: failed: '
! grep -q $'\033' "$screen" || fail "it paints where there is no terminal"
! grep -qF '[n]ext' "$screen" || fail "it offers keys where there is no terminal"
echo '// again' >>steps/step_03.c
wait_for 40 ': checking' 2
kill -TERM $running
wait $running
[[ $? -eq 143 ]] || fail "another status than that of the signal"
sleep 0.3
[[ -z $(alive) ]] || fail "a signal left a run: $(alive)"
conclude
