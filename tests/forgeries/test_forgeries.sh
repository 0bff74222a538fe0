#!/usr/bin/env bash
# Usage: tests/forgeries/test_forgeries.sh [--some | --fifth | NAME...]
#
# Submissions that try to cheat or to do harm, graded with --sealed. Each tests/forgeries/NAME.c begins with
#
#     // EXERCISE BASE VERDICT[|VERDICT...] [look:WORDS]
#
# BASE is the file into which it goes: what it defines stands before main, which calls its forge() first; where it
# defines forged_sum, the function of the TODO calls that. "none": it is a whole file. VERDICT is `passed` (it does
# no harm), a diagnosis, UNTOUCHED (the diagnosis of the unedited file: it gained nothing), or FLAGGED (it may pass, and
# look: has what the instructor is told). KIT stands for the kit's folder, PRECIOUS for a file of the user's, ROSTER for one beside a folder of the PATH.
# No process and no file may be left, and the file of the user's must be as it was. With --fifth it grades a fifth of
# them, which the commit chooses. HVDLAB_SEAL names the seal, as labs/sealed-grading.md says.

. tests/lib.sh
limit=120
[[ -x $build/check-step && -x $build/compile-step ]] || {
    echo "$build/check-step or $build/compile-step is not there: make them first" >&2
    exit 2
}
fifth=
[[ ${1:-} != --fifth ]] || { fifth=$(git rev-parse HEAD 2>/dev/null || echo none); shift; }
words=("$@")
# A part that takes little time: one of each kind.
[[ ${1:-} != --some ]] || words=(trace_appended looked_up reads_answers memory large_object)
common/scripts/steps.sh cut "$folder/cut" || exit 1
chmod go+x "$folder" # the seal "user" has another user in its folders
precious=$folder/precious
echo precious >"$precious"
chmod 600 "$precious"
mkdir -p "$folder/build" "$folder/course/bin" # a folder of the caller's PATH, beside what nobody is to see
: >"$folder/course/roster"
cp "$build/hvdlab.o" "$build/compile-step" "$folder/build" # the folder of the verdicts

# Of the processes that the seal or the submission started.
alive()
{
    local exe
    for exe in /proc/[0-9]*/exe; do
        [[ $(readlink "$exe" 2>/dev/null) != *"$folder/build/check/"* ]] || echo "$exe"
    done
}

# What seal there is: an empty file tells it.
: >"$folder/nothing.c"
BUILD=$folder/build run "$build/check-step" --sealed 1 "$folder/nothing.c"
[[ $status -ne 2 ]] || skip "$(cat "$folder/err")"
# Less than bubblewrap lets a program reach processes and networks: then none is tried that does harm there.
grep -q '"seal":[[:space:]]*"bubblewrap"' "$folder/build/check/step_01.json" || words=(trace_appended looked_up reads_answers memory large_object)

field() { sed -n "s/^\t\"$1\":\t\(.*\),\$/\1/p" "$2"; }

graded=0
for source in tests/forgeries/*.c; do
    name=$(basename "$source" .c)
    [[ ${#words[@]} -eq 0 || " ${words[*]} " == *" $name "* ]] || continue
    [[ -z $fifth || $(($(cksum <<<"$fifth $name" | cut -d ' ' -f 1) % 5)) -eq 0 ]] || continue
    read -r _ exercise base wanted look <"$source"
    look=${look#look:}
    [[ $base == none ]] || base=$folder/cut/$base.c
    tests/forgeries/make.sh "$name" "$base" "$PWD" "$precious" "$folder/course/roster" >"$folder/$name.c"
    file=$(common/scripts/labs.sh table | awk -v name="$exercise" '$1 == name { print $2 }')
    [[ $wanted != *UNTOUCHED* ]] || wanted=${wanted//UNTOUCHED/$(cat "tests/mistakes/$file/untouched")}
    begin=$SECONDS
    PATH=$folder/course/bin:$PATH BUILD=$folder/build run timeout 100 "$build/check-step" --sealed "$exercise" "$folder/$name.c"
    verdict=$(tail -n 1 "$folder/out" | sed 's/^[^:]*: //; s/^failed: //')
    json=$folder/build/check/$file.json
    [[ $wanted == FLAGGED || "|$wanted|" == *"|$verdict|"* ]] ||
        fail "$name: $verdict instead of $wanted: $(cat "$folder/out")"
    [[ -z $look || $(field look_at "$json") == *"$look"* ]] ||
        fail "$name: the instructor is not told of $look: $(field look_at "$json")"
    [[ $wanted != FLAGGED || $verdict != passed || $(field look_at "$json") != null ]] || fail "$name: passed, and nothing is said of it"
    [[ -z $(alive) ]] || fail "$name: still alive: $(alive)"
    [[ $(cat "$precious") == precious ]] || fail "$name: the user's file has changed"
    graded=$((graded + 1))
    printf '%-28s %-24s %3d s  %s\n' "$name" "$verdict" $((SECONDS - begin)) "$(field seal "$json")"
    rm -rf "$folder/build/check"
done
[[ $graded -gt 0 ]] || fail "no forgery is called: ${words[*]}"
conclude
