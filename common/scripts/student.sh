#!/bin/sh
# Usage: student.sh line X PROGRAM    prints the line that runs exercise X's program here
#        student.sh check X           grades FILE, or the student's file; status 0: passed
#        student.sh check-all         grades all exercises, then prints a table; status 0: all passed
#        student.sh check-kit         on a terminal, asks whether the kit's own tests are meant
#        student.sh hint X            one more of the exercise's three hints each time
#        student.sh diff X            FILE, or the student's file, against the solution
#        student.sh reset X           brings the student's file back as it was, and keeps a backup
#        student.sh next [X]          takes the last step that passed, or X, on into the next one's file
#        student.sh ungraded          prints the names of those that were edited since their last check
#        student.sh following X       prints the name of the exercise that `next` goes to after X; '': the one that `progress` names
#        student.sh progress          where the student stands, and what is next
#        student.sh states            the same for programs, a line for each exercise: NAME missing | untouched | carried |
#                                     edited | passed | failed DIAGNOSIS
#
# The make targets of the same names call it, in the repository's folder. X is an exercise's name: a
# step's number, or a word (labs.sh knows them all). From the environment: BUILD (the build folder),
# FILE, NP (workers or devices in `line`), YES=1 (don't ask), SEED (of `check`: with the seed of a
# graded verdict it comes to the same one). What it remembers is below $BUILD, F being the name of an
# exercise's files: hints/F, the number of hints shown; carried/F.c, what `next` wrote; and
# check/F.json with check/F.c, the verdict of the last check and the source that it is about; graded/
# the same of the student's own file, where another FILE was graded since.

set -u
. common/scripts/folders.sh
build=${BUILD:-build}
scripts=$(dirname "$0")
table=$("$scripts/labs.sh" table) || exit 2
path=$("$scripts/labs.sh" core) || exit 2
exercises=$(echo "$table" | cut -d ' ' -f 1)
edited=$("$scripts/steps.sh" edited)

fail() { refuse "$1"; }

# ---- Exercise $1.

is_step() { case $1 in *[!0-9]*) return 1 ;; esac; }

# Its files' name, its lab; and: yes, it is on the core path; choice, its lab is one of those of which the path has one; else
# nothing. Variables keep them: make progress asks a thousand times, and no process has to start for an answer.
file_name() { kept file "$1"; }
lab() { kept lab "$1"; }
core() { kept core "$1"; }
kept() { case $2 in '' | *[!a-zA-Z0-9_]*) ;; *) eval "echo \"\${$1_$2:-}\"" ;; esac; }
eval "$(echo "$table" | awk '{ printf "file_%s=%s lab_%s=%s\n", $1, $2, $1, $3 }')"
eval "$(echo "$path" | awk '{ printf "core_%s=%s\n", $1, $3 }')"

own_file() { echo "steps/$(file_name "$1").c"; }
solution_file() { echo "solutions/$(file_name "$1").c"; }

# What is said of the solutions, where they are there.
after_it() { [ ! -d solutions ] || printf '%s' "$1"; }

# As a sentence names it.
label()
{
    if is_step "$1"; then echo "step $1"; else echo "$1"; fi
}

# What its file says where something is to be done.
todo()
{
    if is_step "$1"; then echo "TODO: Step $1"; else echo "TODO: $1"; fi
}

# The exercises before and after it; nothing where there is none.
before() { echo "$exercises" | grep -x -B 1 -e "$1" | grep -vx -e "$1"; }
all_after() { echo "$exercises" | sed "1,/^$1\$/d"; }
after() { all_after "$1" | head -n 1; }

# The file that the command is about: FILE, or the student's.
chosen_file()
{
    file=${FILE:-$(own_file "$1")}
    case $file in -*) file=./$file ;; esac
    [ -n "${FILE:-}" ] || need_own "$1"
    if [ ! -f "$file" ] || [ ! -r "$file" ]; then
        fail "there is no file '$file' that can be read"
    fi
}

need_own()
{
    [ -f "$(own_file "$1")" ] || fail "$(own_file "$1") is not there; make reset-$1 brings it back"
}

# ---- What is known about it.

# state X: missing, untouched, carried (as `next` wrote it) or edited.
state()
{
    own=$(own_file "$1")
    carried=$build/carried/${own#steps/}
    case "
$edited
" in
    *"
$own
"*) known=edited ;;
    *) known=untouched ;;
    esac
    if [ ! -e "$own" ]; then
        echo missing
    elif [ -e "$carried" ] && cmp -s "$own" "$carried"; then
        echo carried
    else
        echo $known
    fi
}

# True if $record is about the student's file as it is now.
is_own_record() { cmp -s "$(own_file "$1")" "$record.c" && [ -e "$record.json" ]; }

# Keeps the verdict on the student's file before another file's takes its place.
keep_record()
{
    record=$build/check/$(file_name "$1")
    is_own_record "$1" || return 0
    mkdir -p "$build/graded" && cp "$record.c" "$record.json" "$build/graded"
}

# verdict X: passed or the diagnosis, as recorded for the file as it is now; else nothing.
verdict()
{
    record=$build/check/$(file_name "$1")
    is_own_record "$1" || record=$build/graded/$(file_name "$1")
    is_own_record "$1" || return 0
    sed -n -e 's/^[[:space:]]*"passed":[[:space:]]*true.*/passed/p' \
        -e 's/^[[:space:]]*"diagnosis":[[:space:]]*"\([^"]*\)".*/\1/p' "$record.json"
}

all_passed()
{
    for name in $exercises; do
        if [ "$(state "$name")" = edited ] && [ "$(verdict "$name")" = passed ]; then echo "$name"; fi
    done
}

# standing PASSED...: how many exercises the core path has, and how many of them have passed; then, of the labs of which it has
# two exercises, that of which most have passed: its folder, how many are needed, and how many have passed.
standing()
{
    echo "$path" | awk -v passed=" $* " '
        { has = index(passed, " " $1 " ") > 0 }
        $3 == "yes" { all++; done += has }
        $3 == "choice" { if (!of[$2]++) labs[++count] = $2; of_it[$2] += has }
        function two(number) { return number < 2 ? number + 0 : 2 }
        END {
            best = labs[1]
            for (i = 2; i <= count; i++)
                if (two(of_it[labs[i]]) / two(of[labs[i]]) > two(of_it[best]) / two(of[best]))
                    best = labs[i]
            print all + 0, done + 0, best, two(of[best]), two(of_it[best])
        }'
}

# path_names KIND [LAB]: the exercises of the core path (yes), or of such a lab (choice).
path_names() { echo "$path" | awk -v kind="$1" -v lab="${2:-}" '$3 == kind && (lab == "" || $2 == lab) { print $1 }'; }

# The exercise that comes after X: who is on the core path stays there, to its end. Nothing where all have passed.
following()
{
    passed=$(all_passed)
    first=
    if [ "$(core "$1")" = yes ]; then
        # shellcheck disable=SC2046,SC2086 # words
        choice=$(set -- $(standing $passed) && { [ "${4:-0}" -eq "${5:-0}" ] || path_names choice "$3"; })
        first="$(all_after "$1" | grep -xF -e "$(path_names yes)") $(path_names yes) $choice"
    fi
    # shellcheck disable=SC2046,SC2086 # words
    printf '%s\n' $first $(all_after "$1") $(path_names yes) $exercises | grep -vxF -e "$passed" | head -n 1
}

# Where the student goes on: what was begun comes first, then what follows the last exercise that passed; to begin with, the
# core path.
next_up()
{
    for name in $exercises; do
        [ "$(state "$name")" != edited ] || [ "$(verdict "$name")" = passed ] || {
            echo "$name"
            return
        }
    done
    following "$(all_passed | tail -n 1)"
}

# ---- Targets.

# The flags, the devices and the servers are those that the handout has. One process on several devices needs no mpirun, and where no
# run has several, the device is the machine; nor do parameter servers and workers.
print_line()
{
    case ${NP:-1} in
    *[!0-9]* | 0* | ????*) fail "NP=$NP is not a number from 1 to 999" ;;
    esac
    flags=$("$scripts/labs.sh" get "$1" flags)
    devices=$("$scripts/labs.sh" get "$1" devices)
    servers=$("$scripts/labs.sh" get "$1" servers)
    layout=$("$scripts/labs.sh" get "$1" layout)
    ranks=$("$scripts/labs.sh" get "$1" ranks)
    ranks=${ranks:-4}
    if [ -n "$layout" ]; then
        ranks=$(echo "$layout" | tr , '\n' | wc -l)
        # Another number of ranks is on one host.
        [ "${NP:-$ranks}" -ne "$ranks" ] || printf 'HVD_LAYOUT=%s ' "$layout"
    fi
    case $("$scripts/labs.sh" get "$1" run | sed 's/ 1 devices=1 / alone /') in
    *' servers='*) echo "$scripts/servers.sh ${servers:-2} ${NP:-3} $2${flags:+ $flags}" ;;
    *' 1 devices='*) echo "HVDLAB_DEVICES=${NP:-${devices:-4}} $2${flags:+ $flags}" ;;
    *' alone '*) echo "$2${flags:+ $flags}" ;;
    *)
        # shellcheck disable=SC2086 # words
        "$scripts/mpi.sh" line "${NP:-$ranks}" "$2" $flags
        ;;
    esac
}

# said FORMAT WORD...: a line, by its translation in common/scripts/words, where a package has one (translate.sh).
tab=$(printf '\t')
line_end='
'
said()
{
    format=$1
    shift
    [ ! -e "$scripts/words" ] || while IFS=$tab read -r english other; do
        [ "$english" != "$format" ] || { format=$other && break; }
    done <"$scripts/words"
    # shellcheck disable=SC2059 # a format
    printf "$format\n" "$@"
}

# Lines of a word and a title; the titles translated.
translated()
{
    if [ ! -e "$scripts/words" ]; then cat; else
        awk -F '\t' 'NR == FNR { of[$1] = $2; next }
            { at = index($0, " "); title = substr($0, at + 1); print substr($0, 1, at) (title in of ? of[title] : title) }' "$scripts/words" -
    fi
}

# row X WORDS: a line for `in_columns`, which adds the title.
row() { printf '%s %s\t%s\n' "$(mark "$1")" "$1" "$2" || exit 2; }
mark()
{
    case $(core "$1") in
    yes) echo '*' ;;
    choice) echo '+' ;;
    *) echo ' ' ;;
    esac
}

# Rows in columns, and other lines as they are. A Chinese character has three bytes, and is as wide as two others.
in_columns()
{
    aligned=$(titles=$("$scripts/labs.sh" titles | translated) LC_ALL=C awk -F '\t' '
        function width(text) { return length(text) - gsub(/[\300-\357]/, "&", text) }
        function padded(text, to) { return sprintf("%s%*s", text, to - width(text), "") }
        BEGIN {
            count = split(ENVIRON["titles"], lines, "\n")
            for (i = 1; i <= count; i++) {
                at = index(lines[i], " ")
                title[substr(lines[i], 1, at - 1)] = substr(lines[i], at + 1)
            }
        }
        { line[NR] = $0 }
        NF == 2 {
            name[NR] = $1
            words[NR] = $2
            has = width(title[substr($1, 3)])
            first = length($1) > first ? length($1) : first
            second = has > second ? has : second
        }
        END {
            for (i = 1; i <= NR; i++)
                print (i in name ? padded(name[i], first) "  " padded(title[substr(name[i], 3)], second) "  " words[i] : line[i])
        }')
    echo "$aligned"
}

check_all()
{
    passed=0
    rows=
    for name in $exercises; do
        if [ ! -f "$(own_file "$name")" ]; then
            echo "$(own_file "$name") is not there; make reset-$name brings it back"
            result=missing
        else
            ! "$build/check-step" "$name" "$(own_file "$name")" || passed=$((passed + 1))
            result=$(verdict "$name")
            [ "$result" = passed ] || result="failed: ${result:-no verdict}"
        fi
        rows=$rows$(row "$name" "$result")$line_end
        echo
    done
    all=$(echo "$exercises" | wc -l)
    printf '%s' "$rows" | in_columns || exit 2
    echo "$passed of $all exercises passed"
    [ "$passed" -eq "$all" ]
}

# confirm QUESTION WORDS: without a yes it fails with these words.
confirm()
{
    printf '%s [y/N] ' "$1"
    read -r answer
    case ${answer:-} in
    [yY]*) ;;
    *) fail "$2" ;;
    esac
}

# Other projects call their tests so; a student may have left out the exercise's name.
check_kit()
{
    [ -t 0 ] && [ -t 1 ] && [ "${YES:-}" != 1 ] || return 0
    echo 'make check runs all tests of the kit, as make test does: about eight minutes.'
    echo 'To grade an exercise, name it: make check-1, make check-ring, ...'
    confirm 'Run the tests of the kit?' "no test was run"
}

hint()
{
    texts=$(lab "$1")/hints/$(file_name "$1").md
    shown=0
    counter=$build/hints/$(file_name "$1")
    [ ! -e "$counter" ] || shown=$(grep -x '[0-9]' "$counter") || shown=0 # a full disk left nothing in it
    if [ "$shown" -ge 3 ]; then
        first=1 now=3
    else
        first=$((shown + 1)) now=$((shown + 1))
    fi
    # Texts stand behind lines of three dashes.
    awk -v first=$first -v last=$now -v label="$(label "$1")" '
        BEGIN { label = toupper(substr(label, 1, 1)) substr(label, 2) }
        /^---$/ { part++; if (part >= first && part <= last) printf "%s%s, hint %d of 3\n\n", (part > first ? "\n" : ""), label, part; next }
        part >= first && part <= last' "$texts" && echo || exit 2 # unseen, it does not count as shown
    case $shown in
    0 | 1) echo "(make hint-$1 again shows the next one.)" ;;
    2) echo "(That was the last one. make hint-$1 again shows all three$(after_it "; make diff-$1 shows the solution").)" ;;
    *) echo "(These are all.$(after_it " make diff-$1 shows how your file differs from the solution."))" ;;
    esac || exit 2
    begin_build
    mkdir -p "$build/hints" && echo $now >"$counter"
}

show_diff()
{
    chosen_file "$1"
    solution=$(solution_file "$1")
    [ -e "$solution" ] || fail "the solutions are not in this package: ask your instructor"
    color=never
    [ ! -t 1 ] || [ -n "${NO_COLOR:-}" ] || [ "${TERM:-dumb}" = dumb ] || color=always
    diff -u --strip-trailing-cr --color=$color --label "$file" --label "$solution" "$file" "$solution"
    case $? in
    0) echo "$file is the same as $solution." ;;
    1) ;;
    *) exit 2 ;;
    esac
}

# keep_backup X
keep_backup()
{
    copy=$(own_file "$1").backup-$(date +%Y%m%d-%H%M%S)
    while [ -e "$copy" ]; do
        copy=$copy-again
    done
    cp -p "$(own_file "$1")" "$copy" || exit 2
    echo "Kept your file as $copy"
}

reset()
{
    to=$(own_file "$1")
    if [ "$(state "$1")" = untouched ]; then
        echo "$to was not edited: nothing to do."
        return
    fi
    if [ -e "$to" ] && [ "${YES:-}" != 1 ]; then
        [ -t 0 ] || fail "this throws away what you wrote in $to; YES=1 does it (and keeps a backup)"
        confirm "Throw away what you wrote in $to (a backup is kept)?" "nothing was changed"
    fi
    original=$(mktemp)
    trap 'rm -f "$original"' EXIT
    "$scripts/steps.sh" original "$(file_name "$1")" "$original" || exit 2
    [ ! -e "$to" ] || keep_backup "$1"
    cp "$original" "$to" || exit 2
    rm -f "$build/carried/$(file_name "$1").c"
    echo "$to is as it was."
}

# carries_on X: does make next take its answer on into the exercise after it? One program goes through
# the steps; the later exercises have programs of their own.
carries_on() { is_step "$1" && [ -n "$(after "$1")" ] && is_step "$(after "$1")"; }

# awaits X: is its file untouched, and does the answer before it, which has passed, carry on into it?
awaits()
{
    [ "$(state "$1")" = untouched ] && earlier=$(before "$1") && [ -n "$earlier" ] && carries_on "$earlier" &&
        [ "$(state "$earlier")" = edited ] && [ "$(verdict "$earlier")" = passed ]
}

# Prints the names of those that `next` has to grade.
ungraded()
{
    for name in $exercises; do
        [ "$(state "$name")" != edited ] || [ -n "$(verdict "$name")" ] || echo "$name"
    done
}

next()
{
    from=
    refused=
    for name in ${1:-$(echo "$exercises" | tac)}; do
        [ "$(state "$name")" = edited ] || continue
        if [ -z "$(verdict "$name")" ]; then
            "$build/check-step" "$name" "$(own_file "$name")"
            echo
        fi
        result=$(verdict "$name")
        if [ "$result" = passed ]; then
            from=$name
            break
        fi
        # The lowest of those that do not pass.
        refused="$(label "$name") does not pass yet (${result:-no verdict})"
        failing=$name
    done
    if [ -z "$from" ]; then
        [ -z "$refused" ] || fail "$refused: make check-$failing says why, make hint-$failing helps"
        fail "no step has been edited yet: make progress says where to begin"
    fi
    carries_on "$from" || {
        to=$(following "$from")
        if [ -n "$to" ] && awaits "$to"; then
            from=$earlier
        elif [ -n "$to" ]; then
            echo "Next: $(own_file "$to") ($(lab "$to")/handout.md)"
        else
            echo "All exercises passed.$(after_it " make diff-$from compares your file with the solution.")"
        fi
    }
    carries_on "$from" || return 0
    to=$(after "$from")
    if [ "$(state "$to")" = edited ]; then
        [ "${YES:-}" = 1 ] ||
            fail "$(own_file "$to") is edited already${refused:+ ($refused)}; YES=1 replaces it (and keeps a backup)"
        keep_backup "$to"
    fi
    copy=$build/carried/$(file_name "$to").c
    mkdir -p "$build/carried"
    cp "$(own_file "$from")" "$(own_file "$to")" && cp "$(own_file "$to")" "$copy" || exit 2
    [ -z "$refused" ] || echo "($refused, so this is about an earlier one.)"
    echo "Your answer of $(label "$from") is now in $(own_file "$to")."
    echo "Next: edit it where it says $(todo "$to"); make step-$to builds it, make check-$to grades it."
}

# advice X STATE VERDICT: what to do about an exercise that has not passed.
advice()
{
    case $2:$3 in
    missing:*) said 'Next: make reset-%s brings %s back' "$1" "$(own_file "$1")" ;;
    edited:) said 'Next: make check-%s' "$1" ;;
    edited:*) said 'Next: make check-%s says what is wrong, make hint-%s helps' "$1" "$1" ;;
    *)
        if awaits "$1"; then
            said 'Next: make next carries your %s on into %s; or edit that file as it is' "$(label "$earlier")" "$(own_file "$1")"
        else
            said 'Next: edit %s where it says %s, then make step-%s and make check-%s' "$(own_file "$1")" "$(todo "$1")" "$1" "$1"
        fi
        ;;
    esac
}

# path_lines PASSED...: how far the core path has been gone.
path_lines()
{
    # shellcheck disable=SC2046 # words
    set -- $(standing "$@")
    hours=$("$scripts/labs.sh" hours) || exit 2
    if [ "$1" -gt 0 ] && [ -n "$hours" ]; then
        printf '* ' && said 'the core path: %s of %s exercises passed (all of it: typically %s hours)' "$2" "$1" "$hours"
    elif [ "$1" -gt 0 ]; then
        printf '* ' && said 'the core path: %s of %s exercises passed' "$2" "$1"
    fi
    lab=$(echo "${3:-}" | sed 's|labs/0*\([0-9]*\).*|\1|')
    if [ $# -eq 5 ] && [ "$5" -gt 0 ]; then
        printf '+ ' && said 'and two exercises of one of these labs: lab %s, %s of %s passed' "$lab" "$5" "$4"
    elif [ $# -eq 5 ]; then
        printf '+ ' && said 'and two exercises of one of these labs: not begun'
    fi
    [ "$1" -gt 0 ] && [ "$1" -eq "$2" ] && [ "${4:-0}" -eq "${5:-0}" ] && said 'The core path is done.'
}

# stands X: its state, where it is edited with its verdict: passed, or failed with the diagnosis.
stands()
{
    state=$(state "$1")
    result=
    [ "$state" != edited ] || result=$(verdict "$1")
    case $result in
    '') echo "$state" ;;
    passed) echo passed ;;
    *) echo "failed $result" ;;
    esac
}

progress()
{
    passed=
    current=
    rows=
    labs=$("$scripts/labs.sh" labs | translated)
    for name in $exercises; do
        if [ "$(lab "$name")" != "$current" ]; then
            current=$(lab "$name")
            rows=$rows$(echo "$labs" | sed -n "s|^$current |${current#labs/}: |p")$line_end
        fi
        standing=$(stands "$name")
        case $standing in
        missing) shown=$(said 'missing') ;;
        untouched) shown=$(said 'untouched') ;;
        carried) shown=$(said 'carried over from %s' "$(label "$(before "$name")")") ;;
        edited) shown=$(said 'edited, not checked') ;;
        passed)
            shown=$(said 'passed')
            passed="$passed $name"
            ;;
        *) shown=$(said 'failed: %s' "${standing#failed }") ;;
        esac
        rows=$rows$(row "$name" "$shown")$line_end
        last=$name
    done
    printf '%s' "$rows" | in_columns || exit 2
    next=$(next_up)
    echo
    # shellcheck disable=SC2086 # words
    path_lines $passed
    if [ -n "$next" ]; then
        advice "$next" "$(state "$next")" "$(verdict "$next")"
    elif [ -d solutions ]; then
        said 'Next: nothing, all exercises passed; make diff-%s compares your last one with the solution' "$last"
    else
        said 'Next: nothing, all exercises passed'
    fi
}

goal="make ${1%-kit}${2:+-$2}"
case $1 in
line)
    goal="make"
    print_line "$2" "$3"
    ;;
check)
    chosen_file "$2"
    seed=
    case ${SEED:-1} in
    *[!0-9]* | 0* | ??????????*) fail "SEED=$SEED is not a whole number from 1 to 999999999" ;;
    esac
    [ -z "${SEED:-}" ] || seed="--seed $SEED"
    keep_record "$2"
    # shellcheck disable=SC2086 # words
    exec "$build/check-step" $seed "$2" "$file"
    ;;
check-all)
    goal="make check-all"
    check_all
    ;;
check-kit) check_kit ;;
hint) hint "$2" ;;
diff) show_diff "$2" ;;
reset) reset "$2" ;;
next) next "${2:-}" ;;
ungraded) ungraded ;;
following) if [ -n "$2" ]; then following "$2"; else next_up; fi ;;
progress) progress ;;
states) for name in $exercises; do echo "$name $(stands "$name")" || exit 2; done ;;
esac
