#!/usr/bin/env bash
# What a student types: every target for the steps, in a copy of the tree with steps of its own, so
# that nobody's work is touched. Grading itself has its own tests; here a stand-in says what the
# targets are to make of a verdict, and the true program grades once.

. tests/lib.sh
exec </dev/null
work=$folder
running=
trap '[[ -z $running ]] || kill "$running" 2>/dev/null; rm -rf "$work"' EXIT

# ---- The copy, with what is built already: files keep their times, so that make finds them done.

built=$(realpath "$build")
tree=$work/tree
mkdir -p "$tree/tests/steps" "$tree/solutions" "$tree/build/tests"
cp -Rp Makefile common .gitignore "$tree/"
mkdir "$tree/labs"
cp -Rp labs/0[12]-* "$tree/labs/" # on the six steps and what is around them, whatever labs come after
cp -Rp solutions/*.c "$tree/solutions/"
cp -Rp tests/steps/*.[ch] tests/steps/diagnoses* "$tree/tests/steps/"
cp -p tests/tests.mk tests/list tests/run.sh tests/limit.sh tests/literals.awk "$tree/tests/"
cp -Rp "$built"/hvdlab.o "$built"/library.o "$built"/settings.* "$built/devices" "$built/check-step" "$built/common" "$tree/build/"
cp -Rp "$built/tests/steps" "$tree/build/tests/"
cd "$tree" || exit 1

# This make is not part of the one that runs the tests, and has settings of its own.
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD FILE NAME YES V NP HVDLAB_DEVICES HVD_RANKS_PER_NODE HVDLAB_TRACE
export HVDLAB_FLAGS="--data synthetic --images 64 --epochs 1"

# run MAKE-WORD...: its status is in $status; out and err are what it printed.
run()
{
    timeout $((60 * patience)) make "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

# refused WORDS MAKE-WORD...: status 2, and on standard error one line beside make's own, with the words.
refused()
{
    local words=$1
    shift
    run "$@"
    [[ $status -eq 2 ]] || fail "make $*: status $status instead of 2"
    [[ $(grep -vc '^make: \*\*\*' "$work/err") -eq 1 ]] || fail "make $*: not one line: $(cat "$work/err")"
    grep -qF -e "$words" "$work/err" || fail "make $*: \"$words\" is not in: $(cat "$work/err")"
}

# says WORDS: what ran last printed them.
says()
{
    grep -qF -e "$1" "$work/out" || fail "\"$1\" is not in: $(cat "$work/out" "$work/err")"
}

# The line of a step in `make progress` ends with this: progress STEP WORDS
progress()
{
    succeeds progress
    grep -qE "^[ *] $1  .*  $2\$" "$work/out" || fail "make progress: step $1 is not \"$2\": $(cat "$work/out")"
}

# ---- Before anything is built, and before there are steps.

mv build aside
succeeds -s env
grep -qv '^export [A-Z]' "$work/out" && fail "make env prints more than export lines: $(cat "$work/out")"
[[ -s $work/out && ! -s $work/err && ! -e build ]] || fail "make env: $(cat "$work/err")"
mv aside build
succeeds steps
succeeds check-steps
cp -p steps/*.c "$work/"

# ---- Targets that build end with the line that runs what they built.

# runs PROGRAM RANKS: the last line of what was printed is an mpirun line for it, and works.
runs()
{
    local line
    line=$(tail -n 1 "$work/out")
    [[ $line == "mpirun "*" -np $2 build/$1 --width 1 --epochs "* ]] || fail "$1: the last line is: $line"
    env -i PATH="$PATH" HOME="$HOME" HVDLAB_FLAGS="$HVDLAB_FLAGS" ASAN_OPTIONS="${ASAN_OPTIONS:-}" \
        LSAN_OPTIONS="${LSAN_OPTIONS:-}" TSAN_OPTIONS="${TSAN_OPTIONS:-}" timeout $((60 * patience)) bash -c "$line" >"$work/log" 2>&1 ||
        fail "$line: status $?: $(cat "$work/log")"
    grep -q '^Epoch 1/1$' "$work/log" || fail "$line: $(cat "$work/log")"
}
succeeds step-1
runs step_01 4
[[ $(grep -c '^Epoch 1/1$' "$work/log") -eq 4 ]] || fail "step 1 is not four copies"
succeeds solution-6 NP=2
runs solution_06 2
[[ $(grep -c '^Epoch 1/1$' "$work/log") -eq 1 ]] || fail "more than the root prints in step 6's solution"
# The line is one of the handout's, from a block that builds the exercise and runs it.
while read -r x file lab _; do
    line=$(common/scripts/student.sh line "$x" "build/$file" | sed 's/mpirun .* -np/mpirun -np/')
    awk -v step="make step-$x" -v check="make check-$x" -v program="build/$file" '
        /^```/ { if (built && runs) all = all block; inside = /^```sh laptop/; block = built = runs = "" }
        inside { block = block $0 "\n"; built = built || $0 == step || $0 == check; runs = runs || index($0, program) }
        END { printf "%s", all }' "$lab/handout.md" | grep -qxF -e "$line" || fail "make step-$x prints what its handout does not run: $line"
done < <(common/scripts/labs.sh table)
# One process needs no mpirun: on several devices it is told how many, and on one it has the machine.
mkdir -p "$work/lines/labs/77-lines" "$work/lines/common"
cp -Rp common/scripts "$work/lines/common/"
cat >"$work/lines/labs/77-lines/lab.conf" <<'EOT'
[several]
flags = --epochs 2
devices = 2
run = one 1 devices=1 --images 8
run = three 1 devices=3 --images 8
[alone]
run = one 1 devices=1 --images 8
[hosts]
layout = 1,0,1
run = three 3 1,0,1 --images 8
EOT
line_of() { (cd "$work/lines" && NP=${2:-} common/scripts/student.sh line "$1" "build/$1"); }
[[ $(line_of several) == "HVDLAB_DEVICES=2 build/several --epochs 2" ]] || fail "on several devices: $(line_of several)"
[[ $(line_of several 3) == "HVDLAB_DEVICES=3 build/several --epochs 2" ]] || fail "on three devices: $(line_of several 3)"
[[ $(line_of hosts) == HVD_LAYOUT=1,0,1\ mpirun\ *\ -np\ 3\ build/hosts ]] || fail "on hosts: $(line_of hosts)"
[[ $(line_of hosts 2) == mpirun\ *\ -np\ 2\ build/hosts ]] || fail "on two ranks without hosts: $(line_of hosts 2)"
[[ $(line_of alone) == "build/alone" ]] || fail "on one device: $(line_of alone)"
(
    eval "$(make -s env)"
    timeout $((60 * patience)) mpirun -np 4 build/step_01 --width 1 >"$work/log" 2>&1
) || fail "mpirun after make env: $(cat "$work/log")"

# A program that is older than its file says so once, and trains; one that is not says nothing.
grep -q "steps/step_01.c was changed" "$work/log" && fail "said to be old: $(cat "$work/log")"
touch steps/step_01.c
(
    eval "$(make -s env)"
    timeout $((60 * patience)) mpirun -np 4 build/step_01 --width 1 >"$work/log" 2>&1
) || fail "an old program: $(cat "$work/log")"
[[ $(grep -cx "step_01: warning: steps/step_01.c was changed after this program was built: make build/step_01" "$work/log") -eq 1 ]] ||
    fail "not said to be old, or not once: $(cat "$work/log")"

# An optimizer that is wrapped for nothing, and a rank that nobody uses: the compiler warns.
sed -i 's/opt = sgd(args.base_lr);/&\n    hvd_distributed_optimizer(opt);\n    hvd_local_rank();/' steps/step_01.c
run step-1 # with WERROR=1 an error
for name in hvd_distributed_optimizer hvd_local_rank; do
    grep -q "ignoring return value of .$name" "$work/err" || fail "no warning of an unused result: $(cat "$work/err")"
done
cp "$work/step_01.c" steps/
succeeds step-1

for target in step-7 step-0 check-0 check-x hint-9 diff-12 reset-7 solution-7; do
    refused "$target: there is no such exercise" $target
done
rm steps/step_04.c
refused "make reset-4 brings it back" step-4
refused "make reset-4 brings it back" check-4
refused "make reset-4 brings it back" diff-4
progress 4 missing
succeeds reset-4
cmp -s steps/step_04.c "$work/step_04.c" || fail "reset-4 does not bring the step back"

# ---- The true grader, once; it gives an answer that does not compile no time on the machine.

mkdir "$work/a folder"
sed 's/int verbose = 1;/int verbose = hvd_rank() ==;/' steps/step_02.c >"$work/a folder/my answer.c"
rm build/check-step
run check-2 FILE="$work/a folder/my answer.c"
[[ $(head -n 1 "$work/out") == "The checker is built now: "* ]] || fail "the first check does not say what it builds: $(cat "$work/out")"
run check-2 FILE="$work/a folder/my answer.c"
! grep -q "The checker is built" "$work/out" || fail "the second check says that it builds"
[[ $status -ne 0 ]] || fail "what does not compile passed"
[[ $(tail -n 1 "$work/out") = "step 2: failed: does-not-compile" ]] || fail "check-2: $(cat "$work/out" "$work/err")"
[[ $(wc -l <"$work/err") -eq 1 ]] || fail "check-2 is noisy: $(cat "$work/err")"
cp "$work/a folder/my answer.c" steps/step_02.c
progress 2 "failed: does-not-compile"
says "make hint-2"
succeeds diff-2 FILE="$work/a folder/my answer.c"
says "+    int verbose = hvd_rank() == 0;"
refused "no file" check-2 FILE=nowhere.c
refused "no file" diff-2 FILE="$work/a folder"
succeeds reset-2 YES=1

# A first check does not wait for kernels that it does not run; on GPUs, and later, all are compiled.
compiled() { make -n CUDA=0 BUILD="$work/new" "$@" | grep -oE 'common/(cpu/)?[a-z0-9_/]*(bfloat16|avx2|winograd_set_[a-z]*)\.o' | sort -u | xargs; }
check=("$work/new/check-step" "$work/new/compile-step")
[[ $(compiled "${check[@]}") == @(|common/cpu/passes_set_avx2.o) ]] || fail "a check waits for $(compiled "${check[@]}")"
# Nor for other exercises' judges, until they are asked for.
judges() { make -n CUDA=0 BUILD="$work/new" "${goal:-$work/new/check-step}" "$@" | grep -v awk | grep -oE 'tests/steps/judge_[a-z0-9_]*\.c' | sort -u; }
[[ $(judges JUDGES="$(common/scripts/labs.sh judges 2)" | xargs) == "tests/steps/judge_step_01.c tests/steps/judge_step_02.c" ]] ||
    fail "check-2 waits for $(judges JUDGES=step_02)"
[[ -z $(goal=next judges) ]] || fail "make next waits for a judge, and there is nothing to grade: $(goal=next judges | xargs)"
echo "// mine" >>steps/step_02.c
[[ $(goal=next judges | xargs) == "tests/steps/judge_step_01.c tests/steps/judge_step_02.c" ]] ||
    fail "make next, which grades step 2, waits for $(goal=next judges | xargs)"
sed -i '$d' steps/step_02.c
mkdir "$work/new" && : >"$work/new/settings.compile"
(cd tests/steps && ls judge_*.c) | sed 's/judge_//; s/\.c//' >"$work/new/settings.judges"
for all in "$(judges)" "$(judges JUDGES=step_02)"; do
    [[ $(wc -l <<<"$all") -eq $(find tests/steps -name 'judge_*.c' | wc -l) ]] || fail "not all judges are there where all were: $all"
done
# A judge that is no longer there is not asked for.
echo farewell >"$work/new/settings.judges"
[[ $(judges JUDGES=step_02) == tests/steps/judge_step_02.c ]] || fail "after a judge is gone a check waits for $(judges JUDGES=step_02)"
rm -r "$work/new"
for all in "$(HVDLAB_CHECK_DEVICE=gpu compiled "${check[@]}")" "$(compiled "$work/new/solution_06")"; do
    [[ $all == *winograd_set_generic.o* ]] || fail "not all kernels are compiled where they may be run: $all"
done

# What keeps anything from being built leaves no file, and so is said again the next time.
for goal in check-2 step-2 all; do
    run -j2 CUDA=0 BUILD="$work/new" OPT=-fnonsense "$goal"
    [[ -z $(find "$work/new" -type f) ]] || fail "make $goal, which can't compile, leaves $(find "$work/new" -type f | head -n 3 | xargs)"
done
rm -r "$work/new"

# From here on, the stand-in: what still says "TODO: Step N", or "TODO: NAME", fails as that exercise.
rm steps/*.backup-*
cat >build/check-step <<'END'
#!/bin/sh
mkdir -p build/check
record=build/check/$(basename "$2" .c)
cp "$2" "$record.c"
if grep -qE "TODO: (Step )?$1:" "$2"; then
    printf '{\n\t"passed":\tfalse,\n\t"diagnosis":\t"not-done"\n}\n' >"$record.json"
    echo "step $1: failed: not-done"
    exit 1
fi
printf '{\n\t"passed":\ttrue,\n\t"diagnosis":\tnull\n}\n' >"$record.json"
echo "step $1: passed"
END

# ---- Hints: one more each time; never what the other steps' hints are at.

for n in 1 2 3; do
    succeeds hint-3
    says "Step 3, hint $n of 3"
    [[ $(grep -c 'hint . of 3' "$work/out") -eq 1 ]] || fail "hint-3: more than one hint"
    [[ $n -eq 3 ]] || says "make hint-3 again"
done
succeeds hint-3
[[ $(grep -c 'hint . of 3' "$work/out") -eq 3 ]] || fail "hint-3 does not repeat all three"
says "make diff-3"
for n in 1 2 4 5 6; do
    succeeds hint-$n
    says "Step $n, hint 1 of 3"
    [[ $(grep -c '^---$' labs/02-six-steps/hints/step_0$n.md) -eq 3 ]] || fail "step $n has not three hints"
done
grep -q "make doc NAME=" labs/*/hints/*.md || fail "no hint names a call"
# What the hints send a reader to is there, as are the calls that they name.
while read -r name; do
    NAME=$name awk -f common/scripts/doc.awk common/*.h common/*/*.h >"$work/out" || fail "a hint names $name, which is not documented"
done < <(sed -n 's/.*make doc NAME=\([a-z_]*\).*/\1/p' labs/*/hints/*.md)

# ---- Answers, carried from step to step.

progress 1 untouched
says "Next: edit steps/step_01.c"
refused "no step has been edited yet" next
echo "// mine" >>steps/step_01.c
progress 1 "edited, not checked"
says "Next: make check-1"
refused "step 1 does not pass yet (not-done)" next
progress 1 "failed: not-done"
sed -i '/TODO: Step 1/d' steps/step_01.c
progress 1 "edited, not checked"
succeeds check-1
[[ $(tail -n 1 "$work/out") = "step 1: passed" && ! -s $work/err ]] || fail "check-1: $(cat "$work/out" "$work/err")"
progress 1 passed
says "Next: make next"
succeeds next
cmp -s steps/step_01.c steps/step_02.c || fail "make next did not carry the answer on"
progress 2 "carried over from step 1"
succeeds next # nothing of anybody's is in the way yet
echo "// more" >>steps/step_02.c
refused "steps/step_02.c is edited already (step 2 does not pass yet (not-done))" next
grep -q "// more" steps/step_02.c || fail "make next overwrote an edited step"
succeeds next YES=1
grep -q "// more" steps/step_02.c.backup-* || fail "make next YES=1 kept no backup"
cmp -s steps/step_01.c steps/step_02.c || fail "make next YES=1 did not carry the answer on"
sed -i '/TODO: Step 2/d' steps/step_02.c
succeeds next # checks first
says "step 2: passed"
grep -q "// mine" steps/step_03.c || fail "make next did not carry step 2 on"
others=$(common/scripts/labs.sh table | awk '$1 !~ /^[0-9]/ { print $2 }')
exercises=$((6 + $(wc -w <<<"$others")))
rm steps/step_06.c # one that is missing is a row, too
run check-all
[[ $status -ne 0 ]] || fail "make check-all passes with open steps"
says "steps/step_06.c is not there; make reset-6 brings it back"
[[ $(tail -n 1 "$work/out") = "2 of $exercises exercises passed" && $(grep -cE '^[ *] ([3-5] .*failed: not-done|6 .*missing)$' "$work/out") -eq 4 ]] ||
    fail "make check-all: $(cat "$work/out")"
for n in 3 4 5 6; do
    cp "solutions/step_0$n.c" "steps/step_0$n.c"
    echo "// mine" >>"steps/step_0$n.c"
done
for file in $others; do
    cp "solutions/$file.c" steps/
done
succeeds check-all
says "$exercises of $exercises exercises passed"
progress 6 passed
says "Next: nothing"
succeeds next
says "All exercises passed."

# ---- Back to the beginning: asks first, and keeps what was there.

cp steps/step_05.c "$work/mine"
refused "YES=1" reset-5
cmp -s steps/step_05.c "$work/mine" || fail "a refused reset-5 changed the file"
succeeds reset-5 YES=1
cmp -s steps/step_05.c "$work/step_05.c" || fail "reset-5 does not bring the step back"
cmp -s steps/step_05.c.backup-* "$work/mine" || fail "reset-5 kept no backup"
progress 5 untouched
# On a terminal, where there is a program to make one.
if command -v script >/dev/null; then
    for answer in n y; do
        echo $answer | timeout $((20 * patience)) script -qec "make reset-6" /dev/null >"$work/out"
        grep -q "y/N" "$work/out" || fail "reset-6 does not ask on a terminal: $(cat "$work/out")"
        cmp -s steps/step_06.c "$work/step_06.c" && result=y || result=n
        [[ $result = "$answer" ]] || fail "reset-6, answered with $answer: $(cat "$work/out")"
    done
fi
# Without unifdef, from git.
if command -v git >/dev/null; then
    git init -q . && git add -f "steps/step_0"?.c && git -c user.name=x -c user.email=x commit -qm x
    cp "$work/step_01.c" steps/step_01.c && git add steps && git -c user.name=x -c user.email=x commit -qm y
    mkdir "$work/bin"
    ln -s /usr/bin/* /bin/* "$work/bin/" 2>/dev/null
    rm -f "$work/bin/unifdef" "$work/bin/apt-get"
    echo "// again" >>steps/step_01.c
    PATH=$work/bin succeeds reset-1 YES=1
    cmp -s steps/step_01.c "$work/step_01.c" || fail "reset-1 without unifdef does not bring the step back"
    # What git has is an edited one: then there is no way, and nothing is lost.
    PATH=$work/bin run reset-2 YES=1
    grep -q "missing.* unifdef" "$work/err" || fail "reset-2 without unifdef: $(cat "$work/err")"
    grep -q "// mine" steps/step_02.c || fail "reset-2 lost the file"
fi

# ---- The core path, from its first exercise to its end, with the exercises of all labs.

kit=$OLDPWD
mkdir -p "$work/path/common" "$work/path/steps" "$work/path/build/check"
cp -Rp common/scripts "$work/path/common/"
cp -Rp "$kit/labs" "$work/path/"
student() { (cd "$work/path" && common/scripts/student.sh "$@") >"$work/out" 2>&1 || fail "student.sh $*: $(cat "$work/out")"; }
file_of() { (cd "$work/path" && common/scripts/labs.sh table | awk -v name="$1" '$1 == name { print $2 }'); }
# pass NAME...: these exercises, as if edited, and graded.
pass()
{
    local name file
    for name; do
        file=$(file_of "$name")
        echo "// mine" | tee "$work/path/build/check/$file.c" >"$work/path/steps/$file.c"
        printf '{\n\t"passed":\ttrue\n}\n' >"$work/path/build/check/$file.json"
    done
}
core() { (cd "$work/path" && common/scripts/labs.sh core | sed -n "s/ .* $1\$//p"); }
(cd "$work/path" && common/scripts/labs.sh table) | while read -r _ file _; do
    echo "// as it was cut" >"$work/path/steps/$file.c"
done
mkdir "$work/path/solutions"
(cd "$work/path" && sha256sum steps/*.c >solutions/steps.sha256)
mapfile -t path < <(core yes)
student progress
says "* the core path: 0 of ${#path[@]} exercises passed (all of it: typically $("$kit/common/scripts/labs.sh" hours) hours)"
says "+ and two exercises of one of these labs: not begun"
# From each exercise of it to the next.
for ((i = 0; i < ${#path[@]}; i++)); do
    student progress
    # (From step to step it is make next that edits.)
    [[ ${path[i]} == [2-9] ]] || says "Next: edit steps/$(file_of "${path[i]}").c "
    [[ $i -eq 0 ]] || says "$(file_of "$(<"$work/up")").c"
    pass "${path[i]}"
    student following ''
    cp "$work/out" "$work/up"
    student following "${path[i]}"
    says "${path[i + 1]:-$(core choice | head -n 1)}"
done
# All but the choice; then the lab that was begun.
student progress
says "$(file_of "$(<"$work/up")").c"
says "* the core path: ${#path[@]} of ${#path[@]} exercises passed"
! grep -q "is done" "$work/out" || fail "the core path is done before its last lab: $(cat "$work/out")"
student next
says "Next: steps/$(core choice | head -n 1).c ("
last=$(core choice | tail -n 1)
mapfile -t lab < <(cd "$work/path" && common/scripts/labs.sh core | awk -v last="$last" '
    { of[$1] = $2; names[++n] = $1 } END { for (i = 1; i <= n; i++) if (of[names[i]] == of[last]) print names[i] }' | head -n 2)
pass "${lab[0]}"
student progress
says ", 1 of ${#lab[@]} passed"
says "Next: edit steps/${lab[1]}.c "
student following "${path[-1]}"
says "${lab[1]}"
pass "${lab[@]}"
student progress
says ", ${#lab[@]} of ${#lab[@]} passed"
says "The core path is done."
grep -q "^Next: edit steps/" "$work/out" || fail "nothing comes after the core path: $(cat "$work/out")"
# Later exercises have passed, and steps 2 to 6 are untouched: what progress says of make next it does.
for name in 2 3 4 5 6 "${lab[@]}"; do
    echo "// as it was cut" >"$work/path/steps/$(file_of "$name").c"
done
student progress
says "Next: make next carries your step 1 on into steps/step_02.c"
student next
says "Your answer of step 1 is now in steps/step_02.c."
cmp -s "$work/path/steps/step_01.c" "$work/path/steps/step_02.c" || fail "make next did not carry step 1 on"

# ---- make check, without the name of an exercise.

run -n check
grep -q '^make .* test$' "$work/out" || fail "make check does not run the tests"
! grep -q ' passed, ' "$work/out" || fail "make -n check runs the tests"
if command -v script >/dev/null; then
    echo n | timeout $((20 * patience)) script -qec "make check" /dev/null >"$work/out"
    says "make check-1"
    says "no test was run"
    ! grep -q "passed, " "$work/out" || fail "make check runs tests after a no"
    echo y | timeout $((20 * patience)) script -qec "common/scripts/student.sh check-kit && echo goes on" /dev/null >"$work/out"
    says "goes on"
fi
common/scripts/student.sh check-kit </dev/null >"$work/out" 2>&1 || fail "without a terminal it asks: $(cat "$work/out")"
[[ ! -s $work/out ]] || fail "without a terminal it asks: $(cat "$work/out")"

# ---- One source for every step.

refused "steps/step_02.c" steps
succeeds check-format CLANG_FORMAT=true
run check-steps
[[ $status -eq 2 ]] || fail "check-steps: an edited step is no drift"
rm -f steps/*.c
succeeds steps
succeeds check-steps
echo "// more" >>labs/02-six-steps/master.c
run check-steps
[[ $status -eq 2 ]] || fail "check-steps does not see that master.c changed"
succeeds steps
grep -q "// more" steps/step_01.c || fail "make steps does not write what master.c says"

# ---- Documentation: every function of the headers that a step includes.

functions=0
for header in common/hvdlab.h $(sed -n 's|^#include "\(.*\)".*|common/\1|p' common/hvdlab.h); do
    # A declaration begins in the first column; its name is what the first parenthesis follows.
    while read -r name; do
        functions=$((functions + 1))
        NAME=$name awk -f common/scripts/doc.awk common/*.h common/*/*.h >"$work/out" 2>&1 || fail "make doc NAME=$name: status $?"
        IFS=: read -r file line <"$work/out"
        [[ $file = "$header" ]] || fail "make doc NAME=$name: in $file instead of $header"
        sed -n "${line}p" "$file" | grep -qE "[ *]$name\(" || fail "make doc NAME=$name: not at $file:$line"
        grep -qE "^    .*[ *]$name\(" "$work/out" && ! grep -q USE_RESULT "$work/out" || fail "make doc NAME=$name does not show its declaration"
        # Words about it, beside its declaration or in a line that is neither code nor a pointer.
        grep -qE "[ *]$name\(.*//" "$work/out" ||
            grep -vE "^(    |From the top)" "$work/out" | tail -n +2 | grep -q "[a-z]" ||
            fail "make doc NAME=$name says nothing about it"
    done < <(sed -n 's/^[A-Za-z_][A-Za-z0-9_ *]*[ *]\([a-z0-9_][a-z0-9_]*\)(.*/\1/p' "$header")
done
[[ $functions -gt 60 ]] || fail "only $functions functions found in the headers"
succeeds doc NAME=hvd_local_size
[[ $(cat "$work/out") == *"The number of the job's workers on this machine."* ]] || fail "make doc: $(cat "$work/out")"
succeeds doc NAME=device_count
says "How many devices this node has"
succeeds doc NAME=HVD_SUM
says "} HvdOp;"
succeeds doc NAME=Callback
says "(*epoch_end)"
succeeds doc NAME=steps_per_epoch
says "} Fit;"
succeeds doc NAME=gradient_ready
says "struct Optimizer {"
refused "hvd_rank" doc NAME=hvd_rnak
refused "there is no zzzzzzzz" doc NAME=zzzzzzzz
refused "there is no float[ in" doc "NAME=float["
succeeds doc
says "hvd_distributed_optimizer"
succeeds help
for target in step-X check-X hint-X diff-X reset-X next progress doc devices env check solution-X steps check-steps; do
    says "  make $target "
done

# ---- Devices, with programs at work and without. Others may be at work on this machine, too.

# look RANKS PROGRAM: starts it, and looks once all its processes have a device.
look()
{
    HVDLAB_FLAGS="--data synthetic --epochs 100 --log-dir $work/logs" timeout 60 \
        common/scripts/mpi.sh run "$1" "build/$2" --width 1 >/dev/null 2>&1 &
    running=$!
    for _ in {1..20}; do
        sleep 0.3
        build/devices >"$work/out" 2>"$work/err" || fail "devices: status $?: $(cat "$work/err")"
        [[ $(grep -c " $2\$" "$work/out") -lt $1 ]] || break
    done
    kill "$running"
    wait "$running" 2>/dev/null
    running=
}
succeeds devices
says "device  cores"
succeeds solution-1
pinned=pinned-$$ unpinned=unpinned-$$ # not what somebody else runs just now
cp build/solution_01 build/$pinned
cp build/step_01 build/$unpinned
row='[0-9,-]+ +[0-9]+ %' # cores and load
look 2 $pinned
for rank in 0 1; do
    grep -qE "^ +$rank  $row +[0-9]+ +$rank  $pinned\$" "$work/out" ||
        fail "devices: no rank $rank on device $rank: $(cat "$work/out")"
done
look 2 $unpinned
grep -A 2 -E "^ +0  $row +[0-9]+ +0  $unpinned\$" "$work/out" >"$work/rows"
sed -n 2p "$work/rows" | grep -qE "^ +[0-9]+ +1  $unpinned\$" || fail "devices: rank 1 is not on device 0, too: $(cat "$work/out")"
sed -n 3p "$work/rows" | grep -qE "^ +1  $row +- +-  .none" || fail "devices: device 1 is not empty: $(cat "$work/out")"

conclude
