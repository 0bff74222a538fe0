#!/usr/bin/env bash
# Usage: tests/steps/test_graders.sh [WORD...]
#
# Grades the graders. Each solution must pass the checks up to its own; each untouched step must
# fail its own check and pass the earlier ones; each known mistake must get the diagnosis that its
# patch is named for; and each alternative, a right answer written differently, must pass. All of
# them are cut and patched in BUILD/graders: what a student has edited is no matter.
#
# A line for each case, with its seconds; the last line counts; status 1 if anything was unexpected.
# With words, only cases whose names hold one of them: step_03, mistakes, hung. With V=1 it shows what
# the checks say. With HVDLAB_CHECK_DEVICE=gpu the runs are on GPUs, as many as there are.

set -u
export LC_ALL=C # a point in EPOCHREALTIME
build=${BUILD:-build}
here=$build/graders${EMULATED_DEVICES:+-$EMULATED_DEVICES} # machines that are pretended may run at once
check=$build/check-step
# As for the tests that Check runs: instrumented programs are slow.
export HVDLAB_PATIENCE=${CK_TIMEOUT_MULTIPLIER:-1}
on_gpu=$([[ ${HVDLAB_CHECK_DEVICE:-} = gpu ]] && echo 1)
longest=$((20 * HVDLAB_PATIENCE * (1 + ${on_gpu:-0}))) # seconds that a check may take, where it hangs
words=("$@")
good=0 bad=0

if [[ ! -x $check || ! -x $build/compile-step ]]; then
    echo "$check or $build/compile-step is not there: make them first" >&2
    exit 2
fi
for tool in patch unifdef; do
    command -v $tool >/dev/null || { echo "$tool is not there: make deps, or install the package $tool" >&2; exit 2; }
done
rm -rf "$here"
mkdir -p "$here" || exit 2
# Its own BUILD, so that no verdict on a student's file is overwritten. Warnings are no errors here,
# even with WERROR=1: some mistakes are of the kind that compilers warn of.
sed 's/ -Werror / /' "$build/compile-step" >"$here/compile-step" && chmod +x "$here/compile-step"
common/scripts/steps.sh cut "$here/cut" || exit 2
export BUILD=$here

trap 'kill "$running" 2>/dev/null; exit 130' INT TERM HUP
running=

wanted()
{
    [[ ${#words[@]} -gt 0 ]] || return 0
    local word
    for word in "${words[@]}"; do
        [[ $1 != *"$word"* ]] || return 0
    done
    return 1
}

# What is wrong with the case that is judged now, a line each.
complaints=
complain() { complaints+="    $1"$'\n'; }

# conclude NAME SECONDS: the line of a case.
conclude()
{
    local result=ok
    if [[ -z $complaints ]]; then
        good=$((good + 1))
    else
        result=FAIL bad=$((bad + 1))
    fi
    printf '%-68s %5.1f s  %s\n%s' "$1" "$2" "$result" "$complaints"
    [[ -z $complaints && ${V:-} != 1 ]] || sed 's/^/    | /' "$here/out" "$here/err"
    complaints=
}

# grade STEPS FILE: runs the check; leaves $status, $seconds, and $here/out.
grade()
{
    local begin=$EPOCHREALTIME
    "$check" "$1" "$2" >"$here/out" 2>"$here/err" </dev/null &
    running=$!
    wait "$running"
    status=$?
    seconds=$(awk "BEGIN { print $EPOCHREALTIME - $begin }")
}

# The last line of step $1's check, which may stand before that of another step.
verdict() { grep "^step $1: " "$here/out"; }

# The output contract: each line begins with a known word, or is indented evidence; a FAIL has
# evidence, the likely mistake and a hint; the verdicts, and nothing else, end a check.
check_form()
{
    local odd
    odd=$(grep -vE '^(ok    |FAIL  |note  |      )[^ ]|^          |^step [1-6]: (passed|failed: [a-z0-9-]+)$' "$here/out")
    [[ -z $odd ]] || complain "odd line: $odd"
    [[ ! -s $here/err ]] || complain "on standard error: $(cat "$here/err")"
    [[ $(tail -n 1 "$here/out") == "step ${1##*,}: "* ]] || complain "the last line is no verdict"
    local fails mistakes hints
    fails=$(grep -c '^FAIL' "$here/out")
    mistakes=$(grep -c '^      likely mistake: [^ ]' "$here/out")
    hints=$(grep -cE '^      for a hint: make hint-[1-6]$' "$here/out")
    [[ $fails -eq $mistakes && $fails -eq $hints ]] ||
        complain "$fails failures with $mistakes likely mistakes and $hints hints"
}

# check_json STEP FILE: the same verdict as data, and the source beside it.
check_json()
{
    local json=$here/check/step_0$1.json expected
    expected=$(verdict "$1" | sed -n -e 's/.*: passed$/true null/p' -e 's/.*: failed: \(.*\)$/false "\1"/p')
    local found
    found=$(tr -d '\t' <"$json" | sed -n -e 's/^"passed":\(.*\),$/\1/p' -e 's/^"diagnosis":\(.*\),$/\1/p' | xargs -d '\n')
    [[ $found == "$expected" ]] || complain "$json says: $found; printed was: $expected"
    cmp -s "$2" "$here/check/step_0$1.c" || complain "no copy of the file in $here/check"
}

# expect STEPS FILE DIAGNOSIS: every step of STEPS passes but the last one, which gets DIAGNOSIS.
expect()
{
    local steps=$1 file=$2 diagnosis=$3 step wanted_status=0
    grade "$steps" "$file"
    check_form "$steps"
    for step in ${steps//,/ }; do
        local expected=passed
        if [[ $diagnosis != passed && $step == "${steps##*,}" ]]; then
            expected="failed: $diagnosis"
            wanted_status=1
        fi
        [[ $(verdict "$step") == "step $step: $expected" ]] ||
            complain "expected step $step: $expected; got: $(verdict "$step")"
        check_json "$step" "$file"
    done
    [[ $status -eq $wanted_status ]] || complain "status $status instead of $wanted_status"
    awk "BEGIN { exit !($seconds < $longest) }" || complain "took $seconds seconds"
    conclude "$4" "$seconds"
}

# patched PATCH: the solution with it, as $here/step_0N.c.
patched()
{
    local step=${1#*/step_0}
    step=${step%%/*}
    file=$here/step_0$step.c
    cp "$here/cut/solutions/step_0$step.c" "$file"
    patch --quiet --no-backup-if-mismatch "$file" "$1" >"$here/out" 2>&1
}

steps_up_to() { seq -s , 1 "$1"; }

untouched_diagnosis=(none init-missing verbose-everywhere gradients-not-averaged broadcast-missing
    steps-not-divided average-missing)
for n in 1 2 3 4 5 6; do
    name=solutions/step_0$n
    ! wanted "$name" || expect "$(steps_up_to $n)" "$here/cut/solutions/step_0$n.c" passed "$name"
    name=steps/step_0$n
    ! wanted "$name" ||
        expect "$(steps_up_to $n)" "$here/cut/steps/step_0$n.c" "${untouched_diagnosis[n]}" "$name"
done

for patch in tests/mistakes/step_0?/*.patch tests/alternatives/step_0?/*.patch; do
    name=${patch#tests/}
    name=${name%.patch}
    wanted "$name" || continue
    if ! patched "$patch"; then
        complain "the patch does not apply to solutions/${name#*/}"
        conclude "$name" 0
        continue
    fi
    n=${name#*/step_0}
    n=${n%%/*}
    # Answers that reach into the arenas themselves run where those lie in the host's memory.
    [[ ! $on_gpu ]] || ! grep -qE '^\+.*->(weights|gradients)' "$patch" || continue
    case $name in
    # One core is every device's: nobody can leave it.
    *left-its-device) [[ $(nproc) -gt 1 ]] || continue ;;&
    mistakes/*)
        diagnosis=${name##*/}
        expect "$n" "$file" "${diagnosis%%--*}" "$name"
        ;;
    *) expect "$(steps_up_to "$n")" "$file" passed "$name" ;;
    esac
done

# ---- What has no patch.

# refused WORDS ARGUMENT...: status 2, one line that holds the words, and nothing graded.
refused()
{
    local say=$1
    shift
    grade_arguments "$@"
    [[ $status -eq 2 ]] || complain "status $status instead of 2: $*"
    [[ $(wc -l <"$here/err") -eq 1 ]] || complain "not one line: $*"
    grep -qF -e "$say" "$here/err" || complain "\"$say\" is not said: $*"
    [[ ! -s $here/out ]] || complain "something on standard output: $*"
}

grade_arguments()
{
    "$check" "$@" >"$here/out" 2>"$here/err" </dev/null
    status=$?
}

begin=$EPOCHREALTIME
since_begin() { awk "BEGIN { print $EPOCHREALTIME - $begin }"; }

name=usage
if wanted "$name"; then
    solution=$here/cut/solutions/step_01.c
    refused usage
    refused usage 1
    for steps in 0 7 x '' '1,' ,1 12 1,7 1,,2 1,2,3,4,5,6,1; do
        refused usage "$steps" "$solution"
    done
    refused usage 1 "$solution" more
    refused 'nowhere.c' 1 "$here/nowhere.c"
    HVDLAB_PATIENCE=x refused 'HVDLAB_PATIENCE' 1 "$solution"
    refused 'is not a file' 1 "$here"
    BUILD=$here/nothing refused 'compile-step' 1 "$solution"
    # An mpirun that fails is not the student's doing.
    mkdir -p "$here/bin"
    printf '#!/bin/sh\necho ------\necho There are not enough slots.\nexit 1\n' >"$here/bin/mpirun"
    chmod +x "$here/bin/mpirun"
    PATH=$here/bin:$PATH refused 'There are not enough slots' 1 "$solution"
    conclude "$name" "$(since_begin)"
fi

# What the caller's environment holds for others must not reach the run.
name=environment
if wanted "$name"; then
    HVDLAB_DEVICES=1 HVD_FUSION_THRESHOLD=x HVDLAB_TRACE=/nowhere/at/all HVDLAB_FLAGS='--epochs 99' \
        HVD_RANKS_PER_NODE=4 expect 1,3,5 "$here/cut/solutions/step_05.c" passed "$name"
fi

name=remark
if wanted "$name" && patched tests/alternatives/step_05/learning-rate-scaled.patch; then
    grade 5 "$file"
    grep -q '^note  the learning rate is 0.04' "$here/out" || complain "no remark on the learning rate"
    conclude "$name" "$seconds"
fi

# The processes of the run that are alive.
alive()
{
    local pid
    for pid in $(sed -n 's/.*"event":"start".*"pid":\([0-9]*\).*/\1/p' "$here"/check/step_01.run/rank-?.jsonl); do
        grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" && echo "$pid"
    done
}

# wait_until COMMAND...: for up to 10 seconds.
wait_until()
{
    local i
    for ((i = 0; i < 200; i++)); do
        ! "$@" || return 0
        sleep 0.05
    done
    return 1
}

all_have_started() { [[ $(cat "$here"/check/step_01.run/rank-?.jsonl 2>/dev/null | grep -c '"event":"init"') -eq 4 ]]; }
none_is_alive() { [[ -z $(alive) ]]; }

# Whoever ends a check ends all that it started.
name=interrupted
if wanted "$name"; then
    begin=$EPOCHREALTIME
    for signal in INT TERM KILL; do
        rm -rf "$here/check"
        "$check" 1 "$here/cut/solutions/step_01.c" >"$here/out" 2>"$here/err" </dev/null &
        running=$!
        wait_until all_have_started || complain "SIG$signal: the run did not start"
        kill -s $signal "$running"
        wait "$running" 2>/dev/null
        status=$?
        [[ $signal = KILL || $status -eq 130 ]] || complain "SIG$signal: status $status instead of 130"
        wait_until none_is_alive || complain "SIG$signal: still alive: $(alive)"
        [[ ! -e $here/check/step_01.json ]] || complain "SIG$signal: there is a verdict all the same"
    done
    conclude "$name" "$(since_begin)"
fi

printf '%d cases as expected, %d not\n' "$good" "$bad"
[[ $bad -eq 0 ]]
