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

# A line that makes no sense is named, with its file.
mkdir -p "$folder/wrong/labs/01-a"
cp -R common "$folder/wrong"
# wrong LINE WORDS CONF: the line N of this lab.conf is wrong.
wrong()
{
    printf '%b' "$3" >"$folder/wrong/labs/01-a/lab.conf"
    (cd "$folder/wrong" && refused "labs/01-a/lab.conf:$1: $2" common/scripts/labs.sh runs
        [[ $failures -eq 0 ]]) || failures=$((failures + 1))
}
wrong 2 "neither [exercise] nor name = value" '[a]\nwords\n'
wrong 1 "neither [exercise] nor name = value" '[a\n'
wrong 2 "[a] is there already" '[a]\n[a]\n'
wrong 1 "[07]: a number begins with no 0" '[07]\n'
wrong 2 "no setting is called colour" '[a]\ncolour = red\n'
wrong 2 "baseline belongs to the lab" '[a]\nbaseline = a\n'
wrong 1 "core: \"no\"" 'core = no\n'
wrong 2 "holds: b is no exercise above" '[a]\nholds = b\n'
wrong 2 "holds: a is no exercise above" '[a]\nholds = a\n'
wrong 2 "hours belongs to the lab" '[a]\nhours = 2\n'
wrong 1 "hours: \"two\" is no number of hours" 'hours = two\n'
wrong 2 "run: \"\" is no number of ranks" '[a]\nrun = main\n'
wrong 2 "run: the layout 0 does not name a node for each of 2 ranks" '[a]\nrun = main 2 0 x\n'
wrong 2 "run: the layout devices=0" '[a]\nrun = main 1 devices=0\n'
wrong 2 "run: more than 16" '[a]\nrun = main 17 - x\n'
wrong 1 "run: more than 16" 'run = main 9 servers=8 x\n'
wrong 2 "run: more than 16" '[a]\nrun = main 1 devices=17 x\n'
wrong 3 "run: main is there already" '[a]\nrun = main 2 0,1\nrun = main 2 0,0\n'
wrong 3 "kill: it is of a run above" '[a]\nrun = main 2 0,1\nkill = other 1:step:3\n'
wrong 3 "kill: it is of a run above" 'run = main 2 0,1\n[a]\nkill = main 1:step:3\n'
wrong 3 "kill: 1:step:0 is no RANK:EVENT:N" '[a]\nrun = main 2 0,1\nkill = main 1:step:0\n'
wrong 3 "full: 0 is no number" '[a]\nrun = main 2 0,1\nfull = main 0\n'
wrong 3 "lose: ../x is no file of" '[a]\nrun = main 2 0,1\nlose = main ../x\n'
wrong 3 "after: main is no other run" '[a]\nrun = main 2 0,1\nafter = main main\n'
wrong 2 "programs: a.c is there already" 'programs = a.c\nprograms = a.c\n'
wrong 1 "@few: there is no set of this name" 'flags = @few\n'
wrong 1 "@few: there is no set of this name" 'set few = @few\n'
# With one of its words left out or doubled, a lab.conf is refused so, or the graders take what labs.sh makes of it.
for seed in {1..40}; do
    awk -v seed="$seed" 'BEGIN { srand(seed) } { line[NR] = $0 } END {
        at = int(rand() * NR) + 1; n = split(line[at], word, " "); hit = int(rand() * n) + 1; twice = rand() < 0.5
        for (l = 1; l <= NR; l++) {
            text = line[l]
            if (l == at) for (text = i = ""; i++ < n; ) text = text (i != hit ? word[i] " " : twice ? word[i] " " word[i] " " : "")
            print text } }' labs/*/lab.conf | sed '/^programs/d' >"$folder/wrong/labs/01-a/lab.conf"
    if run "$folder/wrong/common/scripts/labs.sh" runs && [[ $status -eq 0 ]]; then
        cp "$folder/out" "$folder/table"
        succeeds "$build/tests/faults/small" lab "$folder/table"
    elif [[ $status -ne 2 || $(wc -l <"$folder/err") -ne 1 || $(cat "$folder/err") != labs/01-a/lab.conf:*:* ]]; then
        fail "lab.conf, word left out or doubled by seed $seed: status $status: $(cat "$folder/err")"
    fi
done
# An exercise has its lab's settings and runs, if it has none of its own.
cat >"$folder/wrong/labs/01-a/lab.conf" <<'EOT'
title = Lab
set few = --images 8
set more = @few --epochs 2
replaces = F G
run = one 1 0 @few
run = two 2 0,1 @more --seed 1
after = two one
lose = two saved/one
[a]
[b]
title = b
replaces = H
run = three 3 - @few
EOT
succeeds "$folder/wrong/common/scripts/labs.sh" runs
diff "$folder/out" - <<'EOT' || fail "not what labs.sh runs should print"
exercise a a
replaces F G
run one 1 0 0 0 - - - - - --images 8
run two 2 0,1 0 0 - - - one saved/one --images 8 --epochs 2 --seed 1
exercise b b
replaces H
run three 3 - 0 0 - - - - - --images 8
EOT
succeeds "$folder/wrong/common/scripts/labs.sh" get a title
[[ ! -s $folder/out ]] || fail "an exercise has the title of its lab"

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

# The hours that the texts name are those of the labs' settings.
hours=$(common/scripts/labs.sh hours)
for place in README.md labs/instructor.md labs/adopting.md; do
    grep -qF "typically $hours hours" "$place" || missing "it does not say that the core path takes typically $hours hours"
done
# The plan for one day has the minutes of the core path's exercises in labs 2 and 3.
place=labs/instructor.md
minutes() { awk -F '|' -v lab="$1" '$2 + 0 == lab && $3 ~ /[*][*]/ { sum += $5 } END { print sum }' "$place"; }
day=$(sed -n '/^[*][*]One day/,/^$/p' "$place" | tr '\n' ' ')
[[ $day == *"morning ($(minutes 2) minutes); \`gather\` and \`ring\` ($(minutes 3) minutes)"* ]] ||
    missing "the plan for one day has not $(minutes 2) minutes for the six steps, and $(minutes 3) for gather and ring"
place=labs/adopting.md
while IFS=: read -r conf line; do
    lab=$(basename "${conf%/lab.conf}")
    grep -qE "^\| [0-9]+\. \[[^]]*\]\($lab/handout.md\) \| ${line#hours = } \|" "$place" || missing "no row for $lab with ${line#hours = } hours"
done < <(grep -H '^hours = ' labs/*/lab.conf)

[[ $checked -gt 0 ]] || fail "there is no exercise"
conclude
