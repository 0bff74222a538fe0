#!/usr/bin/env bash
# Usage: tests/unit/test_handouts.sh [--some | --rest | --gpu | --package] [NAME...]
#
# The handouts do what they say: every laptop command of labs/ is run as it is written, in a copy
# of the tree, shortened by HVDLAB_FLAGS; of all other commands the programs, flags, make targets and
# documented names must exist; so must links, figures and quoted code. README's links and names, too.
# With --some only the commands of lab 1 are run, with --rest only those of the other labs; all
# else is looked at. With --package it reads the texts of the students' package (make release), in which it runs the
# commands as an ordinary user. With --gpu it runs the GPU commands and nothing else, with the solutions as steps, on GPUs or
# in a BUILD with simulated ones (tests/emulated). With names, of labs that begin with one of them only.
#
# What a handout is made of, for this test (and for who writes one):
#
#     ```sh laptop               is run; every command must succeed
#     ```sh laptop fails         is run; the last command must fail, with status 1 or 2
#     ```sh laptop whole         is run at its full length, on synthetic images; for short ones only
#     ```sh laptop whole fails   the same; the last command must fail
#     ```sh laptop hangs         at its full length, too; the last command must still run when its own `timeout` ends it
#     ```sh bf16                 is run where the processor computes bfloat16; and looked at
#     ```sh cluster              is run where this machine can have a cluster, in one of the test's own; and looked at
#     ```sh gpu                  is run with --gpu; each block must give a GPU some work
#     ```sh terminal             is not run (goes on until Control-C, or shows something)
#     ```text prints             every line is one that the block before it printed
#     ```c solutions/step_01.c   every line is one of this file
#     <!-- student: COMMAND -->  is run, in place of what the student does with an editor
#     <!-- check: COMMAND -->    a claim of the text; must succeed

set -u
exec </dev/null
build=${BUILD:-build}
failures=0 ran=0 part=
[[ ${1:-} != --* ]] || {
    part=$1
    shift
}
if [[ $part != @(|--some|--rest|--gpu|--package|--prepared) ]]; then
    echo "test_handouts.sh: $part is not --some, --rest, --gpu or --package" >&2
    exit 2
fi
work=${WORK:-$(mktemp -d)} || exit 1
tree=$work/tree
[[ $part == --prepared ]] || trap '[[ $PWD != "$tree" ]] || common/scripts/cluster.sh down; rm -rf "$work"' EXIT

# Shortens what measures.
export BENCH=quick
# On a busy machine, and with sanitizers, checks and commands may take so many times as long.
patience=${CK_TIMEOUT_MULTIPLIER:-1}
export HVDLAB_PATIENCE=${HVDLAB_PATIENCE:-${TEST_PATIENCE:-$patience}}
# What else than programs of the kit stands at the beginning of a command.
others=" awk cat convert common/scripts/cluster.sh common/scripts/coverage.sh labs/08-parameter-server/measure_servers.sh"
others+=" labs/09-many-machines/measure_hosts.sh"
others+=" common/scripts/servers.sh common/scripts/slurm.sh cp eval export git labs/09-many-machines/slurm/grade.sh mkdir"
others+=" ls nproc nvidia-smi pkill podman python3 apptainer rm sbatch sed squeue ssh-keygen torchrun wait "

fail()
{
    printf 'FAIL: %s: %s\n' "$place" "$1"
    [[ -z ${2:-} ]] || sed 's/^/    /' "$2"
    failures=$((failures + 1))
}

# ---- The copy: the tree as it is, with steps as they were cut, and what is built already.

copy_tree()
{
    mkdir "$tree" && cp -a Makefile README.md CONTRIBUTING.md common labs solutions steps tests "$tree" || exit 1
    rm -f "$tree"/steps/*.c
    [[ ! -e $build/settings.compile ]] || cp -a "$build" "$tree/build"
    # It names the folder that it was made in.
    rm -rf "$tree/build/compile-step" "$tree/build/hints" "$tree/build/check" "$tree/build/carried"
    cd "$tree" && common/scripts/steps.sh cut . || exit 1
}

# The students' package of all exercises, in which comments for this test are left. What the comments name is beside it.
# Then this script goes on in it, as a user who is not root.
test_package()
{
    RELEASE_TESTS=kept TO=$work/release BUILD=$build common/scripts/release.sh >/dev/null 2>"$work/notes" || {
        cat "$work/notes"
        exit 1
    }
    mkdir "$tree" "$work/home" && tar -C "$tree" --strip-components=1 -xf "$work/release/hvdlab.tar.gz" || exit 1
    common/scripts/steps.sh cut "$work" && cp -a tests/mistakes "$0" "$work" || exit 1
    # Objects that are the same need not be made again.
    mkdir "$tree/build" && cp "$build"/settings.* "$tree/build" && cp -R "$build"/common "$build"/tests "$tree/build"
    local user=()
    if [[ $(id -u) -eq 0 ]]; then
        chown -R nobody "$work" && user=(setpriv --reuid "$(id -u nobody)" --regid "$(id -g nobody)" --clear-groups --no-new-privs)
    fi
    (cd "$tree" && "${user[@]}" env -u TMPDIR HOME="$work/home" WORK="$work" bash "$work/test_handouts.sh" --prepared "$@")
    exit
}

# ---- Running.

# run_script FILE: its status; what it printed is in $work/output.
run_script()
{
    local begin=$EPOCHREALTIME
    timeout --kill-after=5 $((60 * patience)) bash -e -o pipefail "$1" >"$work/output" 2>&1
    local status=$?
    ran=$((ran + 1))
    [[ ${V:-} != 1 ]] ||
        awk "BEGIN { printf \"%5.1f s  %s\\n\", $EPOCHREALTIME - $begin, \"$place\" }"
    return $status
}

# In the output, the command that ended a script by failing comes last.
run_commands() # TEXT
{
    printf 'trap '\''echo "status $?: $BASH_COMMAND"'\'' ERR\n%s' "$1" >"$work/script"
    run_script "$work/script"
}

run_laptop() # INFO TEXT
{
    local text last
    text=${2%$'\n'}
    if [[ $1 == *whole* || $1 == *hangs* ]]; then
        local -x HVDLAB_FLAGS="--data synthetic --loader-threads 1"
    fi
    # What a command may take is so many times as long here, too; one that hangs is not waited for longer.
    [[ $1 == *hangs* ]] || text=$(sed -E "s/\<timeout ([0-9]+) /timeout \$((\1 * $patience)) /g" <<<"$text")
    if [[ $1 != *fails* && $1 != *hangs* ]]; then
        run_commands "$text" || fail "a command fails" "$work/output"
        return
    fi
    last=${text##*$'\n'}
    text=${text%"$last"}
    [[ -z $text ]] || run_commands "$text" || fail "a command before the last one fails" "$work/output"
    run_commands "$last"
    case $?:$1 in
    124:*hangs) ;;
    *:*hangs) fail "this ends by itself: $last" "$work/output" ;;
    1:* | 2:*) ;;
    0:*) fail "this succeeds: $last" "$work/output" ;;
    *) fail "this fails, but not with status 1 or 2: $last" "$work/output" ;;
    esac
}

# Whether it can; asked once.
cluster_works()
{
    [[ -n ${cluster:-} ]] || if HOSTS=1 common/scripts/cluster.sh up >"$work/cluster" 2>&1; then
        common/scripts/cluster.sh down && cluster=yes
    else
        echo "no hosts here: $(tail -n 1 "$work/cluster")"
        cluster=no
    fi
    [[ $cluster == yes ]]
}

# Whether the processor can; asked once.
bf16_works()
{
    [[ -n ${bf16:-} ]] || if build/baseline --precision bf16 >"$work/bf16" 2>&1; then
        bf16=yes
    else
        echo "no bfloat16 here: $(tail -n 1 "$work/bf16")"
        bf16=no
        grep -q -e '--precision bf16 needs' "$work/bf16" || fail "build/baseline --precision bf16" "$work/bf16"
    fi
    [[ $bf16 == yes ]]
}

# Each block is a shell of its own, which knows of the cluster that an earlier one has made. What shortens a
# program reaches the hosts, too, and what sanitizers are told.
run_on_cluster() # TEXT
{
    cluster_works || return 0
    local name sent="-x HVDLAB_FLAGS"
    for name in ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS; do
        [[ -z ${!name:-} ]] || sent+=" -x $name"
    done
    run_commands "eval \"\$(make -s env)\"
mpirun() { command mpirun $sent \"\$@\"; }
$1" || fail "a command fails" "$work/output"
}

# ---- Looking at commands without running them.

declare -A known # commands that were looked at and are right
check_target() # WORD...
{
    [[ -z ${known[$*]:-} ]] || return
    if make -n "$@" >"$work/make" 2>&1; then
        known[$*]=yes
    else
        fail "make $*" "$work/make"
    fi
}

check_make() # WORD...
{
    local word target=
    local -a words=()
    for word; do
        # (Folders of the reader's own.)
        [[ $word == MPI_HOME=* || $word == ONEDNN=* ]] || words+=("$word")
        [[ $word == -* || $word == *=* ]] || target=$word
    done
    set -- "${words[@]:-all}"
    if [[ $target == doc ]]; then
        make -s "$@" >"$work/make" 2>&1 || fail "make $*" "$work/make"
    else
        check_target "$@"
    fi
}

check_flag() # FLAG, with =VALUE or without
{
    grep -qE -e "^  ${1%%=*} " "$work/help" || fail "the trainer has no flag $1"
}

# Trainers all have the same flags; replay and evaluate have flags of their own, which laptop blocks use.
check_program() # PROGRAM WORD...
{
    local program=$1 word
    shift
    check_target "$program"
    [[ $program != build/@(replay|evaluate) ]] || return
    for word; do
        [[ $word != --* ]] || check_flag "$word"
    done
}

check_command() # WORD...
{
    while [[ ${1:-} =~ ^[A-Z_]+= ]]; do
        shift
    done
    local program=${1:-}
    [[ $# -eq 0 ]] || shift
    case $program in
    mpirun | build/hvdrun)
        [[ $program == mpirun ]] || check_target "$program"
        while [[ ${1:-} == -* ]]; do
            shift 2
        done
        check_command "$@"
        ;;
    watch)
        [[ ${1:-} != -n ]] || shift 2
        check_command "$@"
        ;;
    timeout)
        shift
        check_command "$@"
        ;;
    make) check_make "$@" ;;
    build/*) check_program "$program" "$@" ;;
    */bin/pip) ;; # of the reader's own environment
    *) [[ $others == *" $program "* ]] || fail "what is '$program'?" ;;
    esac
}

check_commands() # TEXT
{
    local -a words
    while read -ra words; do
        check_command "${words[@]}"
    done <<<"${1%$'\n'}"
}

# ---- What a handout says.

check_printed() # TEXT
{
    local line
    while IFS= read -r line; do
        grep -qxF -e "$line" "$work/output" || fail "not printed: $line" "$work/output"
    done <<<"${1%$'\n'}"
}

check_quoted() # FILE TEXT
{
    local line
    while IFS= read -r line; do
        grep -qxF -e "$line" "$1" || fail "not in $1: $line"
    done <<<"${2%$'\n'}"
}

# (The report is the stand-in's: a line for each GPU that a process has used.)
run_gpu() # TEXT
{
    export EMULATED_REPORT=$work/report
    rm -f "$EMULATED_REPORT"
    run_commands "$1" || fail "a command fails" "$work/output"
    [[ ${EMULATED_DEVICES:-0} -eq 0 || -s $EMULATED_REPORT ]] || fail "no GPU computes" "$work/output"
}

block() # INFO TEXT
{
    if [[ $part == --gpu ]]; then
        [[ $1 != "sh gpu" ]] || run_gpu "$2"
        return
    fi
    if [[ -n $only_look && $1 == sh\ * ]]; then
        check_commands "$2"
        return
    fi
    case $1 in
    "sh laptop" | "sh laptop fails" | "sh laptop whole" | "sh laptop whole fails" | "sh laptop hangs")
        check_commands "$2"
        run_laptop "$1" "$2"
        ;;
    "sh bf16")
        check_commands "$2"
        ! bf16_works || run_laptop "$1" "$2"
        ;;
    "sh cluster")
        check_commands "$2"
        run_on_cluster "$2"
        ;;
    "sh gpu" | "sh terminal") check_commands "$2" ;;
    "text prints") [[ -n $only_look ]] || check_printed "$2" ;;
    "c "*) check_quoted "${1#c }" "$2" ;;
    c | text) ;;
    *) fail "what is a block of '$1'?" ;;
    esac
}

# The name that a link to a heading uses: small letters, digits, - and _; a blank becomes a -.
anchors() # FILE
{
    sed -n 's/^##* //p; s/^<a id="\(.*\)"><\/a>$/\1/p' "$1" | tr '[:upper:] ' '[:lower:]-' | tr -cd 'a-z0-9_\n-'
}

check_links() # FILE
{
    local link file anchor folder
    folder=$(dirname "$1")
    while IFS= read -r link; do
        file=${link%%#*} anchor=
        [[ $link != *'#'* ]] || anchor=${link#*#}
        [[ -z $file || -e $folder/$file ]] || fail "no file for the link $link"
        [[ -z $anchor ]] || anchors "${file:+$folder/}${file:-$1}" | grep -qxF -e "$anchor" ||
            fail "no heading for the link $link"
    done < <(grep -oE '\]\([^)]+\)' "$1" | sed -e 's/^](//' -e 's/)$//' | grep -v '^https\?:')
}

# Commands, flags and names of the library within the text. N stands for the number of a step.
check_spans() # FILE
{
    local span
    local -a words
    while IFS= read -r span; do
        read -ra words <<<"${span//-N/-1}"
        case $span in
        make\ *) check_command "${words[@]}" ;;
        --map-by* | --hostfile* | --host* | --rankfile*) ;; # of mpirun
        --*) check_flag "${words[0]}" ;;
        *_*) [[ ! $span =~ ^[a-z]+_[a-z_]+$ ]] || grep -qw "$span" common/*.h common/*/*.h || [[ -f solutions/$span.c || -f steps/$span.c ]] ||
            fail "what is '$span'?" ;;
        esac
    done < <(sed '/^```/,/^```$/d' "$1" | grep -oE '`[^`]+`' | tr -d '`' | sort -u)
}

read_handout() # FILE
{
    local line claim info='' text='' inside='' number=0
    while IFS= read -r -u 3 line; do
        number=$((number + 1))
        if [[ -n $inside && $line == '```' ]]; then
            block "$info" "$text"
            inside=
        elif [[ -n $inside ]]; then
            text+=$line$'\n'
        elif [[ $line == '```'* ]]; then
            place=$1:$number info=${line#'```'} text='' inside=yes
        elif [[ -z $only_look && $line =~ ^'<!-- '(student|check)': '(.*)' -->'$ ]]; then
            place=$1:$number
            claim=${BASH_REMATCH[2]}
            # (What a package leaves out of its texts is checked where the texts are whole.)
            [[ $part != --prepared || $claim != *" labs/"*.md* ]] || continue
            [[ $part != --prepared ]] || claim=$(sed "s, solutions/, $work/solutions/,g; s, tests/mistakes/, $work/mistakes/,g" <<<"$claim")
            bash -c "$claim" >"$work/claim" 2>&1 || fail "${BASH_REMATCH[1]}: $claim" "$work/claim"
        fi
    done 3<"$1"
    place=$1
    [[ $part != --gpu ]] || return 0
    [[ -z $inside ]] || fail "a block does not end"
    [[ $(grep -c '^<details>' "$1") -eq $(grep -c '^</details>' "$1") ]] || fail "<details> without end"
    check_links "$1"
    check_spans "$1"
}

check_figures()
{
    local most
    for place in labs/*/figures/*; do
        most=8000
        case $place in
        *.svg)
            LC_ALL=C awk -f tests/unit/figure.awk "$place" >"$work/figure"
            [[ ! -s $work/figure ]] || fail "a figure's fault" "$work/figure"
            ;;
        *.png) most=150000 ;;
        *) fail "neither SVG nor PNG" ;;
        esac
        [[ $(wc -c <"$place") -lt $most ]] || fail "larger than $((most / 1000)) kB"
        grep -qF "(figures/${place##*/})" labs/*/handout.md || fail "no handout shows it"
    done
}

# This make is not part of the one that runs the tests; settings reach it through the environment.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES BUILD FILE NAME NP YES
# (EMULATED counts on make's command line only.)
if [[ ${EMULATED_DEVICES:-} ]]; then
    make() { command make EMULATED=1 "$@"; }
    export -f make
fi
unset HVDLAB_DEVICES HVDLAB_TRACE HVD_RANKS_PER_NODE
place=$0
case $part in
--package) test_package "$@" ;;
--prepared) ;;
*) copy_tree ;;
esac
[[ $part != --gpu ]] || cp solutions/*.c steps
make baseline >"$work/make" 2>&1 || fail "make baseline" "$work/make"
build/baseline --help >"$work/help" || fail "build/baseline --help"
eval "$(make -s env)"
export HVDLAB_FLAGS="--data synthetic --images 96 --batch-size 8 --val-batch-size 32 --epochs 1 \
--width 1 --target-accuracy 1 --loader-threads 1 --pace 1"
# A simulated GPU is slow.
[[ $part != --gpu ]] || HVDLAB_FLAGS+=" --images 32 --batch-size 4 --val-batch-size 4"

for handout in labs/*/*.md labs/*.md; do
    [[ $# -eq 0 ]] || grep -qE "^($(tr ' ' '|' <<<"$*"))" <<<"${handout#labs/}" || continue
    case $part:$handout in
    --some:labs/01-*) only_look= ;;
    --rest:labs/01-* | --some:* | --gpu:*) only_look=yes ;;
    *) only_look= ;;
    esac
    read_handout "$handout"
done
place=README.md
if [[ $part != --gpu ]]; then
    check_links README.md
    check_spans README.md
    [[ $part == --prepared ]] || check_figures
fi

[[ $failures -eq 0 ]] && echo "blocks of commands: $ran; all do as the handouts say"
exit $((failures > 0))
