#!/bin/sh
# Usage: student.sh line N PROGRAM    prints the mpirun line that runs step N's program here
#        student.sh check N           grades FILE, or steps/step_0N.c; status 0: passed
#        student.sh check-all         grades all steps, then prints a table; status 0: all passed
#        student.sh hint N            one more of the step's three hints each time
#        student.sh diff N            FILE, or steps/step_0N.c, against the solution
#        student.sh reset N           brings steps/step_0N.c back as it was, and keeps a backup
#        student.sh next              takes the last answer that passed on into the next step's file
#        student.sh progress          where the student stands, and what is next
#
# The make targets of the same names call it, in the repository's folder. From the environment: BUILD
# (the build folder), FILE, NP (workers in `line`), YES=1 (don't ask). What it remembers is below
# $BUILD: hints/step_0N, the number of hints shown; carried/step_0N.c, what `next` wrote; and
# check/step_0N.json with check/step_0N.c, the verdict of the last check and the source that it is
# about; graded/ the same of the student's own file, where another FILE was graded since.

set -u
build=${BUILD:-build}
scripts=$(dirname "$0")
steps='1 2 3 4 5 6'
last=6
edited=$("$scripts/steps.sh" edited)

fail()
{
    echo "make $goal: $1" >&2
    exit 2
}

# Files of step $1.
step_file() { echo "steps/step_0$1.c"; }
hint_file() { echo "labs/02-six-steps/hints/step_0$1.md"; }

title() { sed -n '1s/^Step [0-9]*: //p' "$(hint_file "$1")"; }

# The file that the command is about: FILE, or the student's.
chosen_file()
{
    file=${FILE:-$(step_file "$1")}
    [ -n "${FILE:-}" ] || need_step "$1"
    if [ ! -f "$file" ] || [ ! -r "$file" ]; then
        fail "there is no file '$file' that can be read"
    fi
}

need_step()
{
    [ -f "$(step_file "$1")" ] || fail "$(step_file "$1") is not there; make reset-$1 brings it back"
}

# ---- What is known about a step.

# state N: missing, untouched, carried (as `next` wrote it) or edited.
state()
{
    if [ ! -e "$(step_file "$1")" ]; then
        echo missing
    elif cmp -s "$(step_file "$1")" "$build/carried/step_0$1.c"; then
        echo carried
    elif ! echo "$edited" | grep -qx "$(step_file "$1")"; then
        echo untouched
    else
        echo edited
    fi
}

# True if $record is about the student's file as it is now.
is_own_record() { cmp -s "$(step_file "$1")" "$record.c" && [ -e "$record.json" ]; }

# Keeps the verdict on the student's file before another file's takes its place.
keep_record()
{
    record=$build/check/step_0$1
    is_own_record "$1" || return 0
    mkdir -p "$build/graded" && cp "$record.c" "$record.json" "$build/graded"
}

# verdict N: passed or the diagnosis, as recorded for the file as it is now; else nothing.
verdict()
{
    record=$build/check/step_0$1
    is_own_record "$1" || record=$build/graded/step_0$1
    is_own_record "$1" || return 0
    sed -n -e 's/^[[:space:]]*"passed":[[:space:]]*true.*/passed/p' \
        -e 's/^[[:space:]]*"diagnosis":[[:space:]]*"\([^"]*\)".*/\1/p' "$record.json"
}

# ---- Targets.

# The file's flags as the handouts have them.
print_line()
{
    case $1 in
    1) flags="--width 1 --epochs 1 --images 2000" ;;
    2 | 3 | 4) flags="--width 1 --epochs 3 --images 6000" ;;
    5) flags="--width 1 --epochs 2" ;;
    6) flags="--width 1 --epochs 3" ;;
    esac
    # shellcheck disable=SC2086 # words
    "$scripts/mpi.sh" line "${NP:-4}" "$2" $flags
}

check_all()
{
    failed=0
    table=
    for n in $steps; do
        need_step "$n"
        "$build/check-step" "$n" "$(step_file "$n")" || failed=$((failed + 1))
        result=$(verdict "$n")
        [ "$result" = passed ] || result="failed: ${result:-no verdict}"
        table="$table$(printf '  %d  %-50s %s' "$n" "$(title "$n")" "$result")
"
        echo
    done
    printf '%s' "$table"
    echo "$((last - failed)) of $last steps passed"
    [ $failed -eq 0 ]
}

hint()
{
    texts=$(hint_file "$1")
    shown=0
    counter=$build/hints/step_0$1
    [ ! -e "$counter" ] || shown=$(cat "$counter")
    if [ "$shown" -ge 3 ]; then
        first=1 now=3
    else
        first=$((shown + 1)) now=$((shown + 1))
    fi
    # Texts stand between lines of three dashes, after the title.
    awk -v first=$first -v last=$now -v step="$1" '
        /^---$/ { part++; if (part >= first && part <= last) printf "%sStep %d, hint %d of 3\n\n", (part > first ? "\n" : ""), step, part; next }
        part >= first && part <= last' "$texts"
    echo
    case $shown in
    0 | 1) echo "(make hint-$1 again shows the next one.)" ;;
    2) echo "(That was the last one. make hint-$1 again shows all three; make diff-$1 shows the solution.)" ;;
    *) echo "(These are all. make diff-$1 shows how your file differs from the solution.)" ;;
    esac
    mkdir -p "$build/hints" && echo $now >"$counter"
}

show_diff()
{
    chosen_file "$1"
    solution=solutions/step_0$1.c
    color=never
    [ ! -t 1 ] || color=always
    diff -u --color=$color --label "$file" --label "$solution" "$file" "$solution"
    case $? in
    0) echo "$file is the same as $solution." ;;
    1) ;;
    *) exit 2 ;;
    esac
}

# keep_backup N
keep_backup()
{
    copy=$(step_file "$1").backup-$(date +%Y%m%d-%H%M%S)
    cp -p "$(step_file "$1")" "$copy" || exit 2
    echo "Kept your file as $copy"
}

reset()
{
    to=$(step_file "$1")
    if [ "$(state "$1")" = untouched ]; then
        echo "$to was not edited: nothing to do."
        return
    fi
    if [ -e "$to" ] && [ "${YES:-}" != 1 ]; then
        [ -t 0 ] || fail "this throws away what you wrote in $to; YES=1 does it (and keeps a backup)"
        printf 'Throw away what you wrote in %s (a backup is kept)? [y/N] ' "$to"
        read -r answer
        case ${answer:-} in
        [yY]*) ;;
        *) fail "nothing was changed" ;;
        esac
    fi
    mkdir -p "$build"
    original=$build/original.c
    "$scripts/steps.sh" original "$1" "$original" || exit 2
    [ ! -e "$to" ] || keep_backup "$1"
    cp "$original" "$to" || exit 2
    rm -f "$original" "$build/carried/step_0$1.c"
    echo "$to is as it was."
}

next()
{
    from=
    refused=
    for n in 6 5 4 3 2 1; do
        [ "$(state "$n")" = edited ] || continue
        if [ -z "$(verdict "$n")" ]; then
            "$build/check-step" "$n" "$(step_file "$n")"
            echo
        fi
        result=$(verdict "$n")
        if [ "$result" = passed ]; then
            from=$n
            break
        fi
        # The lowest of those that do not pass.
        refused="step $n does not pass yet (${result:-no verdict})"
        culprit=$n
    done
    if [ -z "$from" ]; then
        [ -z "$refused" ] || fail "$refused: make check-$culprit says why, make hint-$culprit helps"
        fail "no step has been edited yet; the first one is $(step_file 1)"
    fi
    [ "$from" -lt $last ] || {
        echo "Step $last passed: there is no step after it. make diff-$last compares your file with the solution."
        return
    }
    to=$((from + 1))
    if [ "$(state $to)" = edited ]; then
        [ "${YES:-}" = 1 ] ||
            fail "$(step_file $to) is edited already${refused:+ ($refused)}; YES=1 replaces it (and keeps a backup)"
        keep_backup $to
    fi
    mkdir -p "$build/carried"
    cp "$(step_file "$from")" "$(step_file $to)" && cp "$(step_file $to)" "$build/carried/step_0$to.c" || exit 2
    [ -z "$refused" ] || echo "($refused, so this is about an earlier one.)"
    echo "Your answer of step $from is now in $(step_file $to)."
    echo "Next: edit it where it says TODO: Step $to; make step-$to builds it, make check-$to grades it."
}

# advice N STATE VERDICT: what to do about a step that has not passed.
advice()
{
    before=$(($1 - 1))
    case $2:$3 in
    missing:*) echo "make reset-$1 brings $(step_file "$1") back" ;;
    edited:) echo "make check-$1" ;;
    edited:*) echo "make check-$1 says what is wrong, make hint-$1 helps" ;;
    untouched:*)
        if [ "$1" -gt 1 ] && [ "$(verdict $before)" = passed ] && [ "$(state $before)" = edited ]; then
            echo "make next carries your step $before on into $(step_file "$1"); or edit that file as it is"
        else
            echo "edit $(step_file "$1") where it says TODO: Step $1, then make step-$1 and make check-$1"
        fi
        ;;
    *) echo "edit $(step_file "$1") where it says TODO: Step $1, then make step-$1 and make check-$1" ;;
    esac
}

progress()
{
    begun=
    after=
    first=
    for n in $steps; do
        state=$(state "$n")
        result=
        [ "$state" = missing ] || result=$(verdict "$n")
        case $state:$result in
        edited:) shown='edited, not checked' ;;
        edited:passed) shown=passed ;;
        edited:*) shown="failed: $result" ;;
        carried:*) shown="carried over from step $((n - 1))" ;;
        *) shown=$state ;;
        esac
        printf '  %d  %-50s %s\n' "$n" "$(title "$n")" "$shown"
        if [ "$shown" = passed ]; then
            after=
        else
            todo=$(advice "$n" "$state" "$result")
            [ "$state" != edited ] || begun=${begun:-$todo}
            after=${after:-$todo}
            first=${first:-$todo}
        fi
    done
    # What was begun comes first, then what follows the last step that passed, then one left out.
    todo=${begun:-${after:-$first}}
    echo
    echo "Next: ${todo:-nothing, all steps passed; make diff-$last compares your last one with the solution}"
}

goal=$1${2:+-$2}
case $1 in
line) print_line "$2" "$3" ;;
check)
    chosen_file "$2"
    keep_record "$2"
    exec "$build/check-step" "$2" "$file"
    ;;
check-all)
    goal=check
    check_all
    ;;
hint) hint "$2" ;;
diff) show_diff "$2" ;;
reset) reset "$2" ;;
next) next ;;
progress) progress ;;
esac
