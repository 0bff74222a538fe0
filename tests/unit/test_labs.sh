#!/usr/bin/env bash
# Every lab and every exercise has all its parts (CONTRIBUTING.md, "A lab"): so a lab that somebody adds
# is complete, or this says what is missing.

set -u
failures=0
fail()
{
    echo "FAIL: $place: $1"
    failures=$((failures + 1))
}

count() { find "$1" -maxdepth 1 -name "$2" 2>/dev/null | wc -l; }

checked=0
while read -r lab title; do
    place=$lab
    [[ -n $title ]] || fail "its lab.conf has no title"
    [[ $(head -n 1 "$lab/handout.md" 2>/dev/null) == "# "* ]] || fail "handout.md is not there, or has no heading"
done < <(common/scripts/labs.sh labs)

while read -r name file lab master step; do
    place="exercise $name"
    checked=$((checked + 1))
    label="$name"
    [[ $name == *[!0-9]* ]] || label="Step $name"
    [[ -f $master ]] || fail "its master $master is not there"
    [[ -n $(common/scripts/labs.sh get "$name" title) ]] || fail "lab.conf has no title for it"
    [[ -n $(common/scripts/labs.sh get "$name" run) ]] || fail "lab.conf says of no run that its check makes"
    grep -q "TODO: $label:" "steps/$file.c" || fail "steps/$file.c has no \"TODO: $label:\""
    ! grep -q "TODO: $label:" "solutions/$file.c" || fail "solutions/$file.c still has its TODO"
    changed=$(diff "steps/$file.c" "solutions/$file.c" | grep -c '^>')
    most=40
    [[ $name == *[!0-9]* ]] || most=12
    [[ $changed -le $most ]] || fail "its answer is $changed lines; at most $most"
    [[ -f tests/steps/judge_$file.c ]] || fail "tests/steps/judge_$file.c is not there"
    hints=$lab/hints/$file.md
    [[ $(grep -c '^---$' "$hints" 2>/dev/null) -eq 3 ]] || fail "$hints has not three hints, each behind a line ---"
    grep -q "make check-$name\b" "$lab/handout.md" || fail "the handout does not say make check-$name"
    [[ $(count "tests/mistakes/$file" '*.patch') -ge 6 ]] || fail "fewer than six known mistakes in tests/mistakes/$file"
    [[ $(count "tests/alternatives/$file" '*.patch') -ge 3 ]] || fail "fewer than three other right answers in tests/alternatives/$file"
done < <(common/scripts/labs.sh table)

[[ $failures -eq 0 ]] && echo "exercises: $checked; all have all their parts"
exit $((failures > 0))
