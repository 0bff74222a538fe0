#!/usr/bin/env bash
# Every lab and every exercise has all its parts (CONTRIBUTING.md, "A lab"): so a lab that somebody adds
# is complete, or this says what is missing.

. tests/lib.sh
missing() { fail "$place: $1"; }
common/scripts/steps.sh cut "$folder" || exit 1 # what a student has edited is no matter

# A lab.conf that cannot be read ends the cut, with its line, and nothing is cut without its exercises.
mkdir "$folder/kit" && cp -R labs common "$folder/kit"
last=$(cd "$folder/kit" && printf '%s\n' labs/*/lab.conf | tail -n 1)
echo 'no setting' >>"$folder/kit/$last"
(cd "$folder/kit" && refused 'lab.conf' common/scripts/steps.sh cut "$folder/half"
    [[ ! -e $folder/half && $failures -eq 0 ]]) || fail "steps.sh cut goes on without $last"

count() { find "$1" -maxdepth 1 -name "$2" 2>/dev/null | wc -l; }

checked=0
for lab in labs/[0-9]*/; do
    lab=${lab%/} place=$lab
    common/scripts/labs.sh labs | grep -q "^$lab ." || missing "there is no lab.conf, or no title in it"
    [[ $(head -n 1 "$lab/handout.md" 2>/dev/null) == "# "* ]] || missing "handout.md is not there, or has no heading"
done

while read -r name file lab master _; do
    place="exercise $name"
    checked=$((checked + 1))
    label="$name"
    [[ $name == *[!0-9]* ]] || label="Step $name"
    [[ -f $master ]] || missing "its master $master is not there"
    [[ -n $(common/scripts/labs.sh get "$name" title) ]] || missing "lab.conf has no title for it"
    [[ $(common/scripts/labs.sh get "$name" run | wc -l) -ge 2 ]] || missing "lab.conf has not two runs for its check"
    grep -q "TODO: $label:" "$folder/steps/$file.c" || missing "steps/$file.c has no \"TODO: $label:\""
    ! grep -q "TODO: $label:" "$folder/solutions/$file.c" || missing "solutions/$file.c still has its TODO"
    changed=$(diff "$folder/steps/$file.c" "$folder/solutions/$file.c" | grep -c '^>')
    most=40
    [[ $name == *[!0-9]* ]] || most=12
    [[ $changed -le $most ]] || missing "its answer is $changed lines; at most $most"
    [[ -f tests/steps/judge_$file.c ]] || missing "tests/steps/judge_$file.c is not there"
    hints=$lab/hints/$file.md
    [[ $(grep -c '^---$' "$hints" 2>/dev/null) -eq 3 ]] || missing "$hints has not three hints, each behind a line ---"
    line=$(NP='' common/scripts/student.sh line "$name" "build/$file")
    line=$(sed 's/ mpirun .* -np / mpirun -np /' <<<"$line") # what this machine needs is in no handout
    [[ $line == mpirun* ]] || grep -qxF -e "$line" "$lab/handout.md" || missing "the handout has not what make step-$name prints: $line"
    grep -q "make check-$name\b" "$lab/handout.md" || missing "the handout does not say make check-$name"
    if [[ $name == *[!0-9]* && $(common/scripts/labs.sh get "$name" core) == yes ]]; then
        grep -qF "**\`$name\`**" README.md || missing "README.md does not say that it belongs to the core path"
        grep -q "^Core path: .*\`$name\`" "$lab/handout.md" || missing "the handout does not say that it belongs to the core path"
    fi
    choice=$(common/scripts/labs.sh core | grep -c " $lab choice\$")
    [[ $choice -eq 0 || $choice -eq $(common/scripts/labs.sh table | grep -c " $lab ") ]] ||
        missing "only some of the lab's exercises have core = choice"
    [[ $(count "tests/mistakes/$file" '*.patch') -ge 6 ]] || missing "fewer than six known mistakes in tests/mistakes/$file"
    [[ $(count "tests/alternatives/$file" '*.patch') -ge 3 ]] || missing "fewer than three other right answers in tests/alternatives/$file"
done < <(common/scripts/labs.sh table)

while read -r name source; do
    place="program $name"
    [[ -f $source ]] || missing "$source is not there"
    cat "$(dirname "$source")/handout.md" labs/more-programs.md | grep -q "build/$name\b" || missing "no text says build/$name"
done < <(common/scripts/labs.sh programs)

[[ $checked -gt 0 ]] || fail "there is no exercise"
conclude
