#!/usr/bin/env bash
# A check links the judges of its exercise alone: what they call is not in another judge's file. And each diagnosis is shown
# by a known mistake.

. tests/lib.sh

nm -A --defined-only --format=posix "$build"/tests/steps/*.o | awk '$3 ~ /[TDBR]/ { print $2, $1 }' >"$folder/defined"
[[ $(wc -l <"$folder/defined") -gt 300 ]] || fail "only $(wc -l <"$folder/defined") functions in $build/tests/steps"

while read -r exercise _; do
    judges=$(common/scripts/labs.sh judges "$exercise")
    [[ -n $judges ]] || fail "$exercise: no judge"
    # shellcheck disable=SC2046,SC2086 # words
    nm --undefined-only --format=posix "$build"/tests/steps/[!j]*.o "$build"/tests/steps/judge.o \
        $(printf "$build/tests/steps/judge_%s.o " $judges) | awk '
        NR == FNR { if ($2 ~ /\/judge_/) file[$1] = $2; next }
        $1 in file { print $1, file[$1] }' "$folder/defined" - | sort -u >"$folder/called"
    for judge in $judges; do
        sed -i "/judge_$judge\.o/d" "$folder/called"
    done
    [[ ! -s $folder/called ]] || fail "$exercise calls $(head -n 3 "$folder/called" | xargs)"
done < <(common/scripts/labs.sh table)

# tests/mistakes/none has those that no patch can show, NAME: TEST.
grep -ohE '^\[[^]/]+' tests/steps/diagnoses/*.txt | tr -d '[' | sort -u >"$folder/names"
{
    find tests/mistakes -name '*.patch' | sed -E 's,.*/,,; s/(--.*)?\.patch$//'
    cat tests/mistakes/*/untouched
} | sort -u >"$folder/shown"
sed 's/:.*//' tests/mistakes/none | sort >"$folder/none"
comm -23 "$folder/names" "$folder/shown" | comm -3 - "$folder/none" >"$folder/differ"
[[ ! -s $folder/differ ]] || fail "without a known mistake, or (second column) named in tests/mistakes/none and shown or gone: $(head -n 5 "$folder/differ")"

conclude
