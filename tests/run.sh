#!/usr/bin/env bash
# Usage: tests/run.sh PART... [--together PART...]
#        tests/run.sh --list PART...        prints their tests: lines PART SECONDS NAME : COMMAND
#        tests/run.sh --programs PART...    prints the programs that these start
#
# Runs the tests of these parts of tests/list (or of TEST_LIST, another file) one after another, since each uses all
# cores, and those of the parts behind --together three at once on two cores, since many wait for most of their time.
# Prints a line for each: name, seconds, ok, FAIL or skipped (status 77). A command's output is shown if it fails, or
# always with V=1. A command that takes longer than its seconds, or TEST_TIMEOUT (300) without them, times
# CK_TIMEOUT_MULTIPLIER, is ended; tests/limit.sh says how long a second is. With TEST_AGAIN=1 those that failed run
# once more when all the others are done, each by itself: where a machine is shared, a test may have failed on time
# alone. (Those that crashed don't: no busy machine explains that.) What it printed is shown all the same. With TEST_EVERY=N every Nth command runs, from one that the commit chooses, so that N commits
# in a row, more or less, run all. The last line counts; status 1 if any failed.

set -uo pipefail
export LC_ALL=C # a point in EPOCHREALTIME
list=${TEST_LIST:-tests/list}

# ---- The list.

declare -A text_of words_of

# The words that stand for {X}, of a line "each X WORD...".
read_words() # X WORD...
{
    local x=$1 word file
    shift
    words_of[$x]=
    for word; do
        case $word in
        *\**\**)
            for file in $word; do
                [[ $lines == *"$file"* ]] || words_of[$x]+=" $file"
            done
            ;;
        *\**)
            for file in $word; do
                file=${file#"${word%%\**}"}
                words_of[$x]+=" ${file%"${word#*\*}"}"
            done
            ;;
        *) words_of[$x]+=" $word" ;;
        esac
    done
}

# expand TEXT: a line for each test that it is.
expand()
{
    local word x
    if [[ ! $1 =~ \{([a-z0-9_]+)\} ]]; then
        printf '%s\n' "$1"
        return
    fi
    x=${BASH_REMATCH[1]}
    if [[ ! -v words_of[$x] ]]; then
        echo "$list: {$x} stands for nothing: $1" >&2
        return 2
    fi
    for word in ${words_of[$x]}; do
        expand "${1//"{$x}"/"$word"}" || return
    done
}

# tests_of PART: lines PART SECONDS NAME : COMMAND
tests_of()
{
    local parts seconds rest x
    while read -r parts seconds rest; do
        [[ ,$parts, == *",$1,"* ]] || continue
        for x in "${!text_of[@]}"; do
            rest=${rest//"{$x}"/"${text_of[$x]}"}
        done
        if [[ ! $seconds =~ ^(-|[1-9][0-9]*)$ ]]; then
            echo "$list: \"$seconds\" is no number of seconds: $rest" >&2
            return 2
        fi
        expand "$rest" | while read -r rest; do
            [[ $rest == *" : "* || ! $rest =~ test_([a-z0-9_]+) ]] || rest="${BASH_REMATCH[1]} : $rest"
            printf '%s %s %s\n' "$1" "$seconds" "$rest"
        done || return
    done <<<"$lines"
}

lines=$(grep -v '^ *\(#\|$\)' "$list") || exit 2
build=${BUILD:-build} text_of=([build]=$build)
while read -r kind x rest; do
    case $kind in
    set) text_of[$x]=${rest//"{build}"/"$build"} ;;
    each) read -ra words <<<"$rest" && read_words "$x" "${words[@]}" ;;
    esac
done < <(grep -E '^(set|each) ' <<<"$lines")
if [[ ${1:-} = --list || ${1:-} = --programs ]]; then
    for part in "${@:2}"; do
        tests_of "$part" || exit 2
    done | if [[ $1 = --list ]]; then cat; else tr ' ' '\n' | grep "^$build/[^.]*$" | sort -u; fi
    exit
fi

# Threads that wait for each other go to sleep soon: where other programs want the cores, one that
# spins for long only takes them from the thread that it waits for.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}

# Control-C ends the commands that are running, and leaves no file behind.
folder=$(mktemp -d) && chmod go+x "$folder" || exit 1 # some tests work as another user
trap 'rm -rf "$folder"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM HUP

# Whether a command that failed was ended by a signal, or what it ran; or a sanitizer has found something.
crashed() # STATUS OUTPUT
{
    [[ $1 -gt 128 ]] || grep -qE 'Received signal [0-9]+ \((Segm|Abort|Float|Illeg|Bus)|(ERROR|WARNING): [A-Za-z]+Sanitizer|: runtime error: ' "$2"
}

# run NUMBER TEST: prints the lines of a test, at once, and leaves its result.
run()
{
    local limit name command begin=$EPOCHREALTIME running
    read -r _ limit name <<<"$2"
    command=${name#* : } name=${name%% : *}
    [[ $limit != - ]] || limit=${TEST_TIMEOUT:-300}
    # (Two and a half hours are enough for any, and a test that hangs is to end.)
    local longest=$((limit > 9000 ? limit : 9000))
    local -x TEST_PATIENCE=${TEST_PATIENCE:-${CK_TIMEOUT_MULTIPLIER:-1}} # of checks, which look themselves how busy it is
    local -x CK_TIMEOUT_MULTIPLIER=$((TEST_PATIENCE * $(tests/limit.sh busy)))
    limit=$((limit * TEST_PATIENCE))
    limit=$((limit < longest ? limit : longest))
    trap 'kill "$running" 2>/dev/null; exit 130' INT TERM HUP
    # A folder of its own for what a test leaves about: two of them at a time are a race for Open MPI's.
    mkdir "$folder/tmp-$1"
    # In the background, so that the trap can end it.
    TMPDIR=$folder/tmp-$1 tests/limit.sh "$limit" bash -c "$command" >"$folder/output-$1" 2>&1 </dev/null &
    running=$!
    wait "$running"
    local status=$? result words
    case $status in
    0) result=passed words=ok ;;
    77) result=skipped words=skipped ;;
    124 | 137) result=failed words="FAIL (ended; its limit is $limit s)" ;;
    *)
        result=failed words="FAIL (status $status)"
        ! crashed $status "$folder/output-$1" || result=crashed
        ;;
    esac
    {
        printf '%-36s %6.1f s  %s\n' "$name" "$(awk "BEGIN { print $EPOCHREALTIME - $begin }")" "$words"
        [[ $words = ok && ${V:-} != 1 ]] || sed 's/^/    /' "$folder/output-$1"
    } >"$folder/lines-$1"
    cat "$folder/lines-$1"
    echo $result >"$folder/result-$1"
    rm -rf "$folder/tmp-$1"
}

number=0 at_once=1 tests=() left_out=0 every=${TEST_EVERY:-1}
[[ $every =~ ^[1-9][0-9]*$ ]] || { echo "tests/run.sh: TEST_EVERY=$every is not a whole number from 1" >&2; exit 2; }
unset TEST_EVERY TEST_LIST # a test may run this script, too
turn=$(($(cksum < <(git rev-parse HEAD 2>/dev/null) | cut -d ' ' -f 1) % every))
declare -A tests_in # all are read before one runs
for part; do
    [[ $part = --together ]] || tests_in[$part]=$(tests_of "$part") || exit 2
done
for part; do
    if [[ $part = --together ]]; then
        at_once=$((($(common/scripts/cores.sh) * 3 + 1) / 2))
        continue
    fi
    mapfile -t found <<<"${tests_in[$part]}"
    [[ -n ${found[0]} ]] || { echo "tests/run.sh: no test of $list is of the part $part" >&2; exit 2; }
    for test in "${found[@]}"; do
        if [[ $((turn = (turn + 1) % every)) -ne 0 ]]; then
            left_out=$((left_out + 1))
            continue
        fi
        [[ $(jobs -pr | wc -l) -lt $at_once ]] || wait -n
        number=$((number + 1))
        tests[number]=$test
        run $number "$test" &
        [[ $at_once -gt 1 ]] || wait
    done
done
wait

again=0
if [[ ${TEST_AGAIN:-} = 1 ]]; then
    for n in "${!tests[@]}"; do
        [[ $(cat "$folder/result-$n" 2>/dev/null) = failed ]] || continue
        printf 'once more: '
        run "$n" "${tests[n]}" &
        wait
        [[ $(cat "$folder/result-$n") != passed ]] || again=$((again + 1))
    done
fi

count() { cat "$folder"/result-* 2>/dev/null | grep -c "$1"; }
failed=$((number - $(count passed) - $(count skipped)))
printf '%d passed, %d failed' "$(count passed)" "$failed"
[[ $(count skipped) -eq 0 ]] || printf ', %d skipped' "$(count skipped)"
[[ $again -eq 0 ]] || printf ', %d at the second try' "$again"
[[ $left_out -eq 0 ]] || printf ', %d left to other commits' "$left_out"
printf '\n'
[[ $failed -eq 0 ]]
