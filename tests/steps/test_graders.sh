#!/usr/bin/env bash
# Usage: tests/steps/test_graders.sh [--at-once N] [--some | --rest [--tenth] | --kept] [WORD...]
#
# Grades the graders, for the exercises of labs/*/lab.conf. Each solution must pass its own check and
# those of the exercises that it holds; each untouched file must fail its own check and pass those;
# each known mistake must get the diagnosis that its patch is named for; and each alternative, a right
# answer written differently, must pass as the solution does. All of them are cut and patched in
# BUILD/graders: what a student has edited is no matter.
#
# A line for each case, with its seconds; the last line counts; status 1 if anything was unexpected.
# With --some, the solution of each lab's first program (of the six steps the last), and one mistake of each
# lab; with --rest, what that leaves out; with --tenth, a tenth of that, which the commit chooses, so that each
# commit has another one. With --kept, the answers of tests/answers alone: their authors knew no judge, and the first
# line of each says whether it must pass. With words, only cases whose names hold one of them: step_03, mistakes, hung. What was
# unexpected stands once more at the end. With V=1 it shows what the checks say. With HVDLAB_CHECK_DEVICE=gpu the
# runs are on GPUs, as many as there are.
# With --at-once N answers are graded N at a time, where there are as many cores: a check mostly waits.

set -u
export LC_ALL=C # a point in EPOCHREALTIME
build=${BUILD:-build}
folder=$build/graders${EMULATED_DEVICES:+-$EMULATED_DEVICES} # machines that are simulated may run at once
check=$build/check-step
# As for the tests that Check runs, if nothing else is said: instrumented programs are slow.
export HVDLAB_PATIENCE=${HVDLAB_PATIENCE:-${TEST_PATIENCE:-${CK_TIMEOUT_MULTIPLIER:-1}}}
on_gpu=$([[ ${HVDLAB_CHECK_DEVICE:-} = gpu ]] && echo 1)
# Seconds that a check may take which begins now: 7.5 for each of its runs, seven at most, where one goes on and on.
longest() { echo $((60 * HVDLAB_PATIENCE * (1 + ${on_gpu:-0}) * $(tests/limit.sh busy))); }
at_once=1
if [[ ${1:-} = --at-once ]]; then
    [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "--at-once takes a number from 1, not '${2:-}'" >&2; exit 2; }
    at_once=$(($2 < $(common/scripts/cores.sh) ? $2 : $(common/scripts/cores.sh)))
    shift 2
fi
part=
[[ ${1:-} != @(--some|--rest|--kept) ]] || { part=$1; shift; }
tenth=
[[ ${1:-} != --tenth ]] || { tenth=$(git rev-parse HEAD 2>/dev/null || echo none); shift; }
words=("$@")

if [[ ! -x $check || ! -x $build/compile-step ]]; then
    echo "$check or $build/compile-step is not there: make them first" >&2
    exit 2
fi
for tool in patch unifdef; do
    command -v $tool >/dev/null || { echo "$tool is not there: make deps, or install the package $tool" >&2; exit 2; }
done
rm -rf "$folder"
mkdir -p "$folder/taken" || exit 2
: >"$folder/results" # a word for each case: ok, FAIL or again
: >"$folder/unexpected" # the lines of what was, for the end
common/scripts/steps.sh cut "$folder/cut" || exit 2

# work_in FOLDER: what follows is graded there, and nobody else's. Its own BUILD, so that no verdict on a
# student's file is overwritten.
work_in()
{
    export BUILD=$1
    here=$1 running=
    mkdir -p "$here" && cp "$build/compile-step" "$here/" || exit 2
    # shellcheck disable=SC2046 # numbers
    trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM HUP
}

wanted()
{
    # (patches() chooses among the mistakes.)
    local kind kept
    case $1 in
    solutions/*) [[ $finished == *" ${1#*/} "* ]] && kind=some || kind=rest ;;
    steps/* | alternatives/*) kind=rest ;;
    mistakes/*) kind=either ;;
    answers/*) kind=kept ;;
    *) kind=some ;;
    esac
    [[ $kind == kept ]] && kept=--kept || kept=
    [[ $part != --kept && ! $kept ]] || [[ $part == "$kept" ]] || return 1
    [[ $part != --some || $kind != rest ]] || return 1
    [[ $part != --rest || $kind != some ]] || return 1
    [[ -z $tenth || $(($(cksum <<<"$tenth $1" | cut -d ' ' -f 1) % 10)) -eq 0 ]] || return 1
    [[ ${#words[@]} -gt 0 ]] || return 0
    local word
    for word in "${words[@]}"; do
        [[ $1 != *"$word"* ]] || return 0
    done
    return 1
}

# Whether the case is this one's to judge: each is the first one's that asks.
take() { wanted "$1" && mkdir "$folder/taken/${1//\//:}" 2>/dev/null; }

# What is wrong with the case that is judged now, a line each.
complaints=
complain() { complaints+="    $1"$'\n'; }

# conclude NAME SECONDS: the line of a case.
conclude()
{
    local result=ok
    [[ -z $complaints ]] || result=FAIL
    echo $result >>"$folder/results"
    printf '%-68s %5.1f s  %s\n%s' "$1" "$2" "$result" "$complaints"
    [[ -z $complaints && ${V:-} != 1 ]] || sed 's/^/    | /' "$here/out" "$here/err"
    [[ -z $complaints ]] || keep_for_the_end "$1"
    complaints=
}

keep_for_the_end() { printf '%s:\n%s%s\n' "$1" "$complaints" "$(sed 's/^/    | /' "$here/out" "$here/err")" >>"$folder/unexpected"; }

count() { grep -cx "$1" "$folder/results"; }

# Beside a known mistake NAME.patch, NAME.options may have options for the check.
options=

# grade STEPS FILE: runs the check; leaves $status, $seconds, and $here/out.
grade()
{
    local begin=$EPOCHREALTIME
    # shellcheck disable=SC2086 # words
    "$check" $options "$1" "$2" >"$here/out" 2>"$here/err" </dev/null &
    running=$!
    wait "$running"
    status=$?
    seconds=$(awk "BEGIN { print $EPOCHREALTIME - $begin }")
}

# ---- Exercises, as lab.conf has them.

table=$(common/scripts/labs.sh table)
exercises=$(cut -d ' ' -f 1 <<<"$table")
of() { common/scripts/labs.sh get "$1" "$2"; } # EXERCISE KEY

title() { [[ $1 == *[!0-9]* ]] && echo "$1" || echo "step $1"; }
file_of() { [[ $1 == *[!0-9]* ]] && echo "$1" || printf 'step_%02d\n' "$1"; }

# Those that it holds, and itself, with commas between.
held_and() { echo "$(of "$1" holds) $1" | xargs | tr ' ' ,; }

# The last line of exercise $1's check, which may stand before that of another.
verdict() { grep "^$(title "$1"): " "$here/out"; }

# The output contract: each line begins with a known word, or is indented evidence; a FAIL has
# evidence, the likely mistake and a hint; the verdicts, and nothing else, end a check.
check_form()
{
    local odd
    odd=$(grep -vE '^(ok    |FAIL  |note  |      )[^ ]|^          |^(step [0-9]+|[a-z_][a-z0-9_]*): (passed|failed: [a-z0-9-]+)$' "$here/out")
    [[ -z $odd ]] || complain "odd line: $odd"
    [[ ! -s $here/err ]] || complain "on standard error: $(cat "$here/err")"
    [[ $(tail -n 1 "$here/out") == "$(title "${1##*,}"): "* ]] || complain "the last line is no verdict"
    local fails mistakes hints
    fails=$(grep -c '^FAIL' "$here/out")
    mistakes=$(grep -c '^      likely mistake: [^ ]' "$here/out")
    hints=$(grep -cE '^      for a hint: make hint-[a-z0-9_]+$' "$here/out")
    [[ $fails -eq $mistakes && $fails -eq $hints ]] ||
        complain "$fails failures with $mistakes likely mistakes and $hints hints"
    ! odd=$(grep -v ' said: ' "$here/out" | grep -E '([^-] |\()1 (batches|images|micro-batches|steps|times|updates|values|weights)\b|on hosts [A-Z]:') ||
        complain "a plural of one: $odd"
    # What only the trace calls so, and marks without words.
    ! odd=$(grep -E '<-|last event|(collective|message|wait|sum|stage|custom)_(begin|end)' "$here/out") || complain "not explained: $odd"
    ! grep -q ' (call [0-9]' "$here/out" || grep -q '(call 1 is the first' "$here/out" || complain "the number of a call is not explained"
    ! grep -q 'in fit, where a training' "$here/out" || ! grep -q 'in the all-reduce of the gradients' "$here/out" ||
        complain "ranks that compare their trainings are said to be in an all-reduce"
    # What is restored too late is shown, and that the root says so is no fault.
    ! grep -q 'is restored when fit has begun' "$here/out" ||
        { grep -q 'after fit had begun$' "$here/out" && ! grep -q "the root's message differs" "$here/out"; } ||
        complain "what is restored too late is not shown, or the root's words are called wrong"
    # Servers, workers and a process on several devices have no ranks, and the worker that a check kills is
    # nobody's mistake.
    local strange
    case $(of "${1##*,}" run) in
    *" servers="*) strange='ranks? [0-9]|signal 9' ;;
    *" 1 devices="*) strange='ranks? [0-9]' ;;
    *) return ;;
    esac
    ! odd=$(grep -E "$strange" "$here/out") || complain "of servers, workers or devices: $odd"
}

# check_json EXERCISE FILE: the same verdict as data, and the source beside it.
check_json()
{
    local json expected found
    json=$here/check/$(file_of "$1").json
    expected=$(verdict "$1" | sed -n -e 's/.*: passed$/true null/p' -e 's/.*: failed: \(.*\)$/false "\1"/p')
    found=$(tr -d '\t' <"$json" | sed -n -e 's/^"passed":\(.*\),$/\1/p' -e 's/^"diagnosis":\(.*\),$/\1/p' | xargs -d '\n')
    [[ $found == "$expected" ]] || complain "$json says: $found; printed was: $expected"
    grep -q "^[[:space:]]*\"exercise\":[[:space:]]*\"$1\"" "$json" || complain "$json does not name exercise $1"
    cmp -s "$2" "$here/check/$(file_of "$1").c" || complain "no copy of the file in $here/check"
}

# A machine that stands still for seconds makes a hang of anything, and a program with a mistake may do
# now this, now that. So a mistake may have a second try, three of them in all, which is said at the end. A
# right answer has one.
may_try_again() { [[ $1 != passed && $2 != again && $(count again) -lt 3 ]]; }

# expect EXERCISES FILE DIAGNOSIS NAME [again]: each of them passes but the last one, which gets
# DIAGNOSIS.
expect()
{
    local steps=$1 file=$2 diagnosis=$3 step wanted_status=0 limit
    limit=$(longest)
    grade "$steps" "$file"
    check_form "$steps"
    for step in ${steps//,/ }; do
        local expected=passed
        if [[ $diagnosis != passed && $step == "${steps##*,}" ]]; then
            expected="failed: $diagnosis" # which may be a pattern
            wanted_status=1
        fi
        # shellcheck disable=SC2053 # a pattern
        [[ $(verdict "$step") == "$(title "$step"): "$expected ]] ||
            complain "expected $(title "$step"): $expected; got: $(verdict "$step")"
        check_json "$step" "$file"
    done
    [[ $status -eq $wanted_status ]] || complain "status $status instead of $wanted_status"
    awk "BEGIN { exit !($seconds < $limit) }" || complain "took $seconds seconds"
    if [[ $complaints ]] && may_try_again "$diagnosis" "${5:-}"; then
        echo again >>"$folder/results"
        keep_for_the_end "$4, tried again"
        complaints=
        expect "$@" again
        return
    fi
    conclude "$4" "$seconds"
}

# patched PATCH FILE: the solution with it, in this folder.
patched()
{
    cp "$folder/cut/solutions/$2.c" "$here/$2.c"
    patch --quiet --no-backup-if-mismatch "$here/$2.c" "$1" >"$here/out" 2>&1
}

# The first exercise of each lab.
firsts=" $(awk '!seen[$3]++ { print $2 }' <<<"$table" | xargs) "
# The first program of each lab, as it is at the end.
finished=" $(awk '!seen[$3]++ { first[$4] = 1 } first[$4] { last[$4] = $2 } END { for (each in last) print last[each] }' <<<"$table" | xargs) "

# patches KIND FILE: all of them; of mistakes --some takes one of a lab's first exercise, the end of the list,
# so that the runs that hang, which take longest, mostly stay out.
patches()
{
    local all=(tests/"$1"/"$2"/*.patch) first=
    [[ -e ${all[0]} ]] || return
    [[ $firsts != *" $2 "* ]] || first=first-
    case $part:$first$1 in
    --some:first-mistakes) echo "${all[-1]}" ;;
    --some:mistakes) ;;
    --rest:first-mistakes) printf '%s\n' "${all[@]:0:${#all[@]}-1}" ;;
    *) printf '%s\n' "${all[@]}" ;;
    esac
}

# What the untouched file gets stands beside the mistakes; where it doesn't, anything will do.
untouched_diagnosis() { cat "tests/mistakes/$1/untouched" 2>/dev/null || echo '*'; }

# What can't be tried here.
skipped()
{
    # Answers that reach into the arenas themselves run where those lie in the host's memory.
    [[ ! $on_gpu ]] || ! grep -qE '^\+.*->(weights|gradients)' "$1" || return 0
    # One core is every device's: nobody can leave it.
    [[ $1 != *left-its-device* || $(common/scripts/cores.sh) -gt 1 ]] || return 0
    return 1
}

grade_answers()
{
    local exercise file both name patch diagnosis
    for exercise in $exercises; do
        file=$(file_of "$exercise")
        both=$(held_and "$exercise")
        name=solutions/$file
        ! take "$name" || expect "$both" "$folder/cut/solutions/$file.c" passed "$name"
        name=steps/$file
        ! take "$name" || expect "$both" "$folder/cut/steps/$file.c" "$(untouched_diagnosis "$file")" "$name"
        for patch in $(patches mistakes "$file") $(patches alternatives "$file") $(patches answers "$file"); do
            name=${patch#tests/}
            name=${name%.patch}
            ! skipped "$patch" || continue
            ! take "$name" || grade_patch
        done
    done
}

# With the variables of grade_answers.
grade_patch()
{
    if ! patched "$patch" "$file"; then
        complain "the patch does not apply to solutions/${name#*/}"
        conclude "$name" 0
        return
    fi
    diagnosis=${name##*/}
    options=$(cat "${patch%.patch}.options" 2>/dev/null)
    case $name in
    answers/*)
        [[ $(head -n 1 "$patch") == "# must: pass" ]] && diagnosis=passed || diagnosis='*'
        expect "$exercise" "$here/$file.c" "$diagnosis" "$name"
        ;;
    mistakes/*) expect "$exercise" "$here/$file.c" "${diagnosis%%--*}" "$name" ;;
    *) expect "$both" "$here/$file.c" passed "$name" ;;
    esac
    options=
}

work_in "$folder"
for ((i = 1; i <= at_once; i++)); do
    (work_in "$folder/$i" && grade_answers) &
done
wait

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
    solution=$folder/cut/solutions/step_01.c
    refused usage
    refused usage 1
    for steps in 0 x '' '1,' ,1 1x 1,0 1,,2 1,2,1; do
        refused usage "$steps" "$solution"
    done
    refused usage 1 "$solution" more
    refused 'nowhere.c' 1 "$here/nowhere.c"
    HVDLAB_PATIENCE=x refused 'HVDLAB_PATIENCE' 1 "$solution"
    refused 'is not a file' 1 "$here"
    BUILD=$here/nothing refused 'compile-step' 1 "$solution"
    # An mpirun that fails is not the student's doing.
    mkdir -p "$here/bin"
    # shellcheck disable=SC2016 # for the shell that runs it
    printf '#!/bin/sh\ncase $1 in --version) echo "mpirun (Open MPI)"; exit ;; esac\necho ------\necho There are not enough slots.\nexit 1\n' >"$here/bin/mpirun"
    chmod +x "$here/bin/mpirun"
    PATH=$(realpath "$here")/bin:$PATH refused 'There are not enough slots' 1 "$solution"
    conclude "$name" "$(since_begin)"
fi

# What the caller's environment holds for others must not reach the run.
name=environment
if wanted "$name"; then
    HVDLAB_DEVICES=1 HVD_FUSION_THRESHOLD=x HVDLAB_TRACE=/nowhere/at/all HVDLAB_FLAGS='--epochs 99' \
        HVD_RANKS_PER_NODE=4 HVD_LAYOUT=7 expect 1,3,5 "$folder/cut/solutions/step_05.c" passed "$name"
fi

name=remark
if wanted "$name" && patched tests/alternatives/step_05/learning-rate-scaled.patch step_05; then
    grade 5 "$here/step_05.c"
    grep -q '^note  the learning rate is 0.05' "$here/out" || complain "no remark on the learning rate"
    conclude "$name" "$seconds"
    sed 's/= sgd(args.base_lr);/= sgd(args.base_lr * (float)hvd_size());/' "$folder/cut/solutions/step_03.c" >"$here/step_03.c"
    grade 3 "$here/step_03.c"
    grep -q '^note  the optimizer begins with learning rate 0.05' "$here/out" || complain "no remark on a rate that is reset"
    conclude "$name: reset" "$seconds"
fi

# What a program deletes, and where it goes, harms neither the check nor what lies around it.
name=reach
if wanted "$name"; then
    around=$(realpath "$here")
    touch "$around/precious"
    sed -e 's/^#include "hvdlab.h"/&\n#include <stdlib.h>\n#include <unistd.h>/' \
        -e "s|^    hvd_init();|&\n    if (system(\"rm -rf * '$around/precious'\") == 0 \&\& chdir(\"/\") != 0)\n        return 1;|" \
        "$folder/cut/solutions/step_01.c" >"$here/reaching.c"
    if bwrap --ro-bind / / --dev-bind /dev /dev true 2>/dev/null; then
        expect 1 "$here/reaching.c" passed "$name"
        [[ -e $around/precious ]] || { complain "the program deleted a file of the user's"; conclude "$name: files" 0; }
    else
        sed -i "s|'$around/precious'||" "$here/reaching.c"
        expect 1 "$here/reaching.c" passed "$name (no bubblewrap here)"
    fi
fi

# ---- Programs that try to grade themselves, or to take more than is theirs.

# forged NAME FROM CODE: cut/FROM with the headers of the system, and CODE at the beginning of main.
forged()
{
    awk -v code="$3" '{ print } /^#include "hvdlab.h"/ {
            n = split("arpa/inet.h errno.h fcntl.h stdio.h stdlib.h string.h sys/socket.h sys/wait.h unistd.h", h, " ")
            for (i = 1; i <= n; i++) print "#include <" h[i] ">" }
        /^int main/ { getline; print; print code }' "$folder/cut/$2.c" >"$here/$1.c"
}

sealed=$(bwrap --unshare-net --ro-bind / / --dev-bind /dev /dev true 2>/dev/null && echo 1)
name=sealed
if wanted "$name" && [[ -n $sealed ]]; then
    begin=$EPOCHREALTIME
    # What a trace has said can't be taken back: the untouched file keeps its diagnosis.
    # shellcheck disable=SC2016 # C
    forged rewriting steps/step_02 '
        for (int number = 3; number < 64; number++) {
            char path[64], name[4096];
            snprintf(path, sizeof path, "/proc/self/fd/%d", number);
            ssize_t length = readlink(path, name, sizeof name - 1);
            name[length > 0 ? length : 0] = 0;
            int again = strstr(name, ".jsonl") ? open(path, O_RDWR) : -1;
            if (again >= 0 && (ftruncate(again, 0) == 0 || lseek(again, 0, SEEK_SET) == 0 || unlink(name) != 0))
                return 7;
        }
        atexit(forget);'
    sed -i 's/^int main/static void forget(void)\n{\n    for (int number = 3; number < 64; number++)\n        (void)!ftruncate(number, 0);\n}\n\n&/' "$here/rewriting.c"
    expect 2 "$here/rewriting.c" "$(untouched_diagnosis step_02)" "$name: a trace that is rewritten"
    # MPI's second names.
    forged second steps/ring ''
    sed -i 's/^    \/\/ TODO: ring: .*/    PMPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, comm);\n    return;/' "$here/second.c"
    expect ring "$here/second.c" library-did-it "$name: MPI by its second names"
    echo "#include \"$PWD/solutions/step_01.c\"" >"$here/including.c"
    expect 1 "$here/including.c" does-not-compile "$name: the solution, included"
    # Files of the kit and of homes, and other machines.
    touch "$HOME/.hvdlab-test"
    forged reading solutions/step_01 "
        const char *files[] = {\"$PWD/solutions/step_01.c\", \"$PWD/labs/02-six-steps/master.c\", \"$PWD/tests/PROMISES.md\",
                               \"$PWD/.git/HEAD\", \"$HOME/.hvdlab-test\"};
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            if (access(files[i], F_OK) == 0)
                return 9;
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};
        inet_pton(AF_INET, \"10.255.255.1\", &to.sin_addr);
        if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&to, sizeof to) == 0 || errno != ENETUNREACH)
            return 9;
        FILE *own = fopen(\"/tmp/own\", \"w\"); // a /tmp of its own
        if (!own || fclose(own) != 0)
            return 9;"
    expect 1 "$here/reading.c" passed "$name: files and networks out of sight"
    rm -f "$HOME/.hvdlab-test"
    # What is too much is named as what it is.
    forged memory solutions/step_01 'for (;;) memset(malloc(100 << 20), 1, 100 << 20);'
    expect 1 "$here/memory.c" too-much-memory "$name: memory"
    grep -q "GB of memory together" "$here/out" || complain "memory is not named: $(cat "$here/out")"
    forged children solutions/step_01 'for (int i = 0; i < 50; i++) if (fork() == 0) for (;;) sleep(1000);'
    expect 1 "$here/children.c" too-many-processes "$name: processes"
    grep -q "started more than .* processes" "$here/out" || complain "processes are not named: $(cat "$here/out")"
    conclude "$name" "$(since_begin)"
fi

# The processes of the run that are alive. (Their own numbers may be those of a sandbox.)
alive()
{
    local exe
    for exe in /proc/[0-9]*/exe; do
        [[ $(readlink "$exe" 2>/dev/null) != *"$here/check/"* ]] || echo "$exe"
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

all_have_started() { [[ $(cat "$here"/check/run-*/*-trace/rank-?.jsonl 2>/dev/null | grep -c '"event":"init"') -ge 4 ]]; }
none_is_alive() { [[ -z $(alive) ]]; }

# Whoever ends a check ends all that it started.
name=interrupted
if wanted "$name"; then
    begin=$EPOCHREALTIME
    for signal in INT TERM KILL; do
        rm -rf "$here/check"
        "$check" 1 "$folder/cut/solutions/step_01.c" >"$here/out" 2>"$here/err" </dev/null &
        running=$!
        wait_until all_have_started || complain "SIG$signal: the run did not start"
        kill -s $signal "$running"
        wait "$running" 2>/dev/null
        status=$?
        [[ $signal = KILL || $status -eq 130 ]] || complain "SIG$signal: status $status instead of 130"
        wait_until none_is_alive || complain "SIG$signal: still alive: $(alive)"
        [[ ! -e $here/check/step_01.json ]] || complain "SIG$signal: there is a verdict all the same"
    done
    echo >"$here/empty.c"
    "$check" 1 "$here/empty.c" >/dev/null 2>&1 # it removes what the one that was killed has left
    conclude "$name" "$(since_begin)"
fi

bad=$(count FAIL)
[[ $(($(count ok) + bad)) -gt 0 ]] || { echo "no case is called: ${words[*]}" >&2; exit 2; }
[[ ! -s $folder/unexpected ]] || printf '\nNot as expected:\n%s\n' "$(cat "$folder/unexpected")"
printf '%d cases as expected, %d not, %d tried again\n' "$(count ok)" "$bad" "$(count again)"
[[ $bad -eq 0 ]]
