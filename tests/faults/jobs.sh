#!/usr/bin/env bash
# Usage: tests/faults/jobs.sh [CASE...]
#        tests/faults/jobs.sh --random N [SEED]
#
# What happens to a job from outside, while solution_06 trains on several ranks: processes are killed,
# stopped and asked to end, disks run full, folders vanish, files are cut off. Each time the job must be
# over, or have gone on, within ten seconds; say in one line of its own what happened; and leave nothing
# behind: no process, no segment in /dev/shm, no session folder. --random does it to N jobs, at random
# moments of their lives.
#
# As root, or where users may have namespaces, it runs with mounts of its own, so that small disks can be
# had and nobody else's segments are in sight; elsewhere the cases that need this are skipped.

if [[ ${FAULTS_APART:-} = '' ]]; then
    export FAULTS_APART=no
    for apart in "unshare --mount" "unshare --user --map-root-user --mount"; do
        # shellcheck disable=SC2086 # words
        ! $apart mount -t tmpfs tmpfs /dev/shm 2>/dev/null || FAULTS_APART=yes exec $apart "$0" "$@"
    done
fi
cd "$(dirname "$0")/../.." || exit 2
. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVDLAB_FLAGS HVDLAB_TRACE "${!HVD_@}"
program=$(realpath "$build/solution_06")
own="^solution_06: "
limit=10
[[ $FAULTS_APART = no ]] || mount -t tmpfs -o size=1g tmpfs /dev/shm

# ---- What must be seen of each case: a line of ours on standard error (an extended regular expression
# behind "solution_06: "; none: -), and how mpirun ends: 0, 1, 2, bad (not 0) or any.

table="
kill-rank        bad  rank 1 .*(SIGKILL|signal 9|killed|gone|left)
kill-root        bad  rank 0 .*(SIGKILL|signal 9|killed|gone|left)
kill-mpirun      any  .*(mpirun|launcher).*(gone|ended|killed|left)
stop-rank        bad  .*rank 1 .*stopped
stop-and-go-on   0    .*rank 1 .*stopped
term-rank        bad  .*rank 1.*(SIGTERM|signal 15|[Tt]erminated|asked to end)
int-rank         bad  .*rank 1.*(SIGINT|signal 2|[Ii]nterrupt|asked to end)
term-mpirun      bad  .*(SIGTERM|SIGCONT|signal|[Tt]erminated|asked to end)
int-mpirun       bad  .*(SIGINT|SIGTERM|signal|[Ii]nterrupt|asked to end)
hup-mpirun       bad  .*(SIGHUP|SIGTERM|signal|asked to end)
full-log-disk    1    .*(log|events).*([Nn]o space|full)
full-stdout      bad  .*standard output
closed-stdout    bad  .*(standard output|mpirun)
deleted-logs     1    .*(log|events)
deleted-folder   1    .*(log|events)
deleted-data     0    -
truncated-data   2    .*train-images.*(damaged|cut short)
small-shm        any  .*(/dev/shm|shared memory)
full-tmp         bad  .*
full-tmp-later   0    -
full-trace       bad  .*HVDLAB_TRACE
"
# Those in which nothing may be lost, so that the training must come to its end.
goes_on=" stop-and-go-on full-log-disk deleted-logs deleted-folder deleted-data full-tmp-later "

# ---- A job.

job=
tmp=$folder/tmp # TMPDIR of a job
trap 'end_job; umount -l "$folder"/disk* 2>/dev/null; rm -rf "$folder"' EXIT

# Processes of the job, whoever their parent is by now.
members()
{
    grep -lzxF "FAULTS_JOB=$job" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3
}

# rank R: its process; nothing where there is none.
rank()
{
    local process
    for process in $(members); do
        ! grep -qzxF "OMPI_COMM_WORLD_RANK=$1" "/proc/$process/environ" 2>/dev/null || echo "$process"
    done | tail -n 1
}

end_job()
{
    local process
    [[ -n $job ]] || return 0
    for process in $(members); do
        kill -9 "$process" 2>/dev/null
    done
}

# start RANKS WORD...: a job in the background; its mpirun is $mpirun. STDOUT says where it prints.
start()
{
    local ranks=$1
    shift
    job=$folder/$RANDOM
    work=$folder/work
    rm -rf "$folder/tmp" "$work"
    mkdir -p "$tmp" "$work"
    : >"$folder/out"
    # shellcheck disable=SC2012 # names that mpirun makes
    segments=$(ls /dev/shm | sort)
    (
        cd "$work" || exit 1
        # (What a shell starts in the background ignores SIGINT, and so would the ranks.)
        FAULTS_JOB=$job TMPDIR=$tmp exec env --default-signal=INT mpirun -np "$ranks" "$program" --data synthetic --images 64 \
            --batch-size 16 --val-batch-size 16 --width 1 --target-accuracy 1 --loader-threads 1 "$@"
    ) >"${STDOUT:-$folder/out}" 2>"$folder/err" </dev/null &
    mpirun=$!
}

# Waits until an epoch is over, or the job.
training()
{
    for _ in {1..600}; do
        ! grep -q "after epoch" "$folder/out" || return 0
        kill -0 "$mpirun" 2>/dev/null || return 0
        sleep 0.05
    done
    fail "$name: no epoch in 30 s: $(cat "$folder/err")"
}

# Waits for the end, up to SECONDS, and looks at what there is then. What is wrong is in $problems.
judge()
{
    local wanted=$1 line=$2 begin=$EPOCHREALTIME seconds=${3:-$limit} left
    problems=
    # (mpirun is no member yet where the shell that starts it has not come to it.)
    while { kill -0 "$mpirun" 2>/dev/null || [[ -n $(members) ]]; } && (($(since "$begin") < seconds * 1000)); do
        sleep 0.1
    done
    took=$(since "$begin")
    left=$(members | wc -l)
    [[ $left -eq 0 ]] || problems+="; $left processes are left after $seconds s"
    end_job
    wait "$mpirun" 2>/dev/null
    status=$?
    if [[ $FAULTS_APART = yes ]]; then
        # shellcheck disable=SC2012
        left=$(ls /dev/shm | sort | comm -13 <(echo "$segments") - | tr '\n' ' ')
        [[ -z $left ]] || problems+="; left in /dev/shm: $left"
        find /dev/shm -mindepth 1 -delete
    fi
    left=$(cd "$tmp" 2>/dev/null && ls --ignore=filled)
    [[ -z $left ]] || problems+="; left in /tmp: $left"
    case $wanted in
    any) ;;
    bad) [[ $status -ne 0 ]] || problems+="; status 0" ;;
    *) [[ $status -eq $wanted ]] || problems+="; status $status instead of $wanted" ;;
    esac
    [[ $line = - ]] || grep -qE "$own$line" "$folder/err" || problems+="; no line \"$line\""
    job=
}

# since TIME: milliseconds.
since()
{
    echo $(((${EPOCHREALTIME/./} - ${1/./}) / 1000))
}

# A small disk in the folder: disk NAME KILOBYTES. Skips the case where there can't be one.
disk()
{
    [[ $FAULTS_APART = yes ]] || return 1
    mkdir -p "$folder/$1"
    mount -t tmpfs -o "size=${2}k" tmpfs "$folder/$1"
}

fill()
{
    ! head -c 100M /dev/zero >"$1/filled" 2>/dev/null
}

# ---- The cases. Each starts a job and does something to it. Status 1: not possible on this machine.

long="--epochs 100000"

case_kill-rank() { start 3 $long; training; kill -KILL "$(rank 1)"; }
case_kill-root() { start 3 $long; training; kill -KILL "$(rank 0)"; }
case_kill-mpirun() { start 3 $long; training; kill -KILL "$mpirun"; }
case_stop-rank()
{
    export HVD_STALL_SECONDS=2 HVD_STALL_SHUTDOWN_SECONDS=4
    start 3 $long; training; kill -STOP "$(rank 1)"
}
case_stop-and-go-on()
{
    local stopped
    export HVD_STALL_SECONDS=2
    start 3 --epochs 6; training; stopped=$(rank 1)
    kill -STOP "$stopped"; sleep 5; kill -CONT "$stopped"
}
case_term-rank() { start 3 $long; training; kill -TERM "$(rank 1)"; }
case_int-rank() { start 3 $long; training; kill -INT "$(rank 1)"; }
case_term-mpirun() { start 3 $long; training; kill -TERM "$mpirun"; }
case_int-mpirun() { start 3 $long; training; kill -INT "$mpirun"; }
case_hup-mpirun() { start 2 $long; training; kill -HUP "$mpirun"; }
case_full-log-disk()
{
    disk disk-logs 64 || return 1
    head -c 60k /dev/zero >"$folder/disk-logs/filled"
    start 2 --epochs 60 --log-dir "$folder/disk-logs"
}
case_full-stdout() { STDOUT=/dev/full start 2 --epochs 3; }
case_closed-stdout()
{
    mkfifo "$folder/pipe"
    head -n 1 "$folder/pipe" >/dev/null &
    STDOUT=$folder/pipe start 2 --epochs 5
}
case_deleted-logs() { start 2 --epochs 6 --log-dir logs; training; rm -rf "$work/logs"; }
case_deleted-folder() { start 2 --epochs 6; training; rm -rf "$work"; }
# (28x28 images, as few as are needed.)
make_data()
{
    local name count
    mkdir -p "$folder/data"
    for name in train:96 t10k:32; do
        count=$(printf '\\%03o' "${name#*:}")
        { printf "\\0\\0\\10\\3\\0\\0\\0$count\\0\\0\\0\\34\\0\\0\\0\\34"; head -c $((${name#*:} * 784)) /dev/urandom; } |
            gzip >"$folder/data/${name%:*}-images-idx3-ubyte.gz"
        { printf "\\0\\0\\10\\1\\0\\0\\0$count"; head -c "${name#*:}" /dev/zero; } |
            gzip >"$folder/data/${name%:*}-labels-idx1-ubyte.gz"
    done
}
case_deleted-data()
{
    make_data
    start 2 --epochs 4 --data fashion_mnist --data-dir "$folder/data"; training; rm -rf "$folder/data"
}
case_truncated-data()
{
    make_data
    truncate -s 20000 "$folder/data/train-images-idx3-ubyte.gz"
    start 3 --epochs 4 --data fashion_mnist --data-dir "$folder/data"
}
case_small-shm()
{
    [[ $FAULTS_APART = yes ]] || return 1
    mount -t tmpfs -o size=64k tmpfs /dev/shm
    start 4 --epochs 2
}
case_full-tmp()
{
    disk disk-tmp 64 || return 1
    tmp=$folder/disk-tmp
    fill "$tmp"
    start 2 --epochs 2
}
case_full-tmp-later()
{
    disk disk-tmp 32768 || return 1
    tmp=$folder/disk-tmp
    start 2 --epochs 5
    training
    fill "$tmp"
}
case_full-trace()
{
    disk disk-trace 64 || return 1
    head -c 56k /dev/zero >"$folder/disk-trace/filled"
    export HVDLAB_TRACE=$folder/disk-trace
    start 2 --epochs 6
}

# Runs one, in a shell of its own; prints its line.
run_case()
{
    local name=$1 wanted line
    read -r _ wanted line < <(grep "^$name " <<<"$table")
    if ! "case_$name"; then
        printf '%-16s skipped: it needs mounts of its own\n' "$name"
        end_job
        exit 77
    fi
    if [[ $goes_on = *" $name "* || $wanted = 0 ]]; then
        judge "$wanted" "$line" 120
        grep -q "^Test accuracy" "$folder/out" || problems+="; the training did not come to its end"
    elif [[ $name = small-shm || $name = full-trace || $name = *-stdout ]]; then
        judge "$wanted" "$line" 120 # when it begins is unknown
        [[ $name != small-shm || $status -ne 0 ]] || problems=${problems/"; no line \"$line\""/}
    elif [[ $name = full-tmp ]]; then # it is mpirun that does not start, and says so
        own='' judge "$wanted" "$line"
    else
        judge "$wanted" "$line"
    fi
    if [[ -z $problems ]]; then
        printf '%-16s ok, status %d, over after %d.%d s\n' "$name" "$status" $((took / 1000)) $((took % 1000 / 100))
        exit 0
    fi
    printf 'FAIL: %s%s\n' "$name" "${problems/#;/:}"
    grep -v '^-*$' "$folder/err" | tail -n 5 | cut -c 1-200 | sed 's/^/    /'
    exit 1
}

# ---- At random moments.

# random_jobs N SEED
random_jobs()
{
    local signals=(KILL KILL STOP TERM INT HUP) number moment signal whom victim early ours=0 theirs=0 none=0
    RANDOM=$2
    export HVD_STALL_SECONDS=2 HVD_STALL_SHUTDOWN_SECONDS=4
    for ((number = 1; number <= $1; number++)); do
        moment=$((RANDOM % 4000)) signal=${signals[RANDOM % 6]} whom=$((RANDOM % 4))
        [[ $signal != STOP ]] || whom=$((whom % 3)) # a stopped mpirun is Control-Z
        name="$number: SIG$signal to ${whom/3/mpirun} after $moment ms"
        start 3 $long
        sleep "$((moment / 1000)).$(printf '%03d' $((moment % 1000)))"
        victim='' early=''
        [[ $whom -eq 3 ]] || victim=$(rank "$whom")
        grep -qsx stall "/proc/$(rank 0)"/task/*/comm || early=yes
        if [[ -z $victim ]]; then
            [[ $signal != STOP ]] || signal=KILL
            name="$number: SIG$signal to mpirun after $moment ms${early:+, before the root had come to hvd_init}"
        fi
        kill -"$signal" "${victim:-$mpirun}"
        judge any - 2>/dev/null
        if grep -qE "$own" "$folder/err"; then
            ours=$((ours + 1))
        elif [[ -n $early ]]; then # nobody of ours could speak yet, or tidy up after a mpirun
            problems=${problems%"; left in /tmp:"*}
            none=$((none + 1))
        elif grep -qiE "signal|terminated|killed" "$folder/err"; then
            theirs=$((theirs + 1))
        else
            problems+="; nobody says why"
        fi
        if [[ -z $problems ]]; then
            printf '%s: ok, over after %d ms\n' "$name" "$took"
        else
            fail "$name: ${problems#; }: $(grep -v '^-*$' "$folder/err" | tail -n 2 | paste -sd ' ' | cut -c 1-200)"
        fi
    done
    echo "$1 jobs, seed $2: $ours ended with a line of ours, $theirs with one of mpirun's alone, $none before the root had come to hvd_init"
}

if [[ ${1:-} = --random ]]; then
    random_jobs "${2:-50}" "${3:-$((EPOCHSECONDS % 10000))}"
    conclude
fi
if [[ $# -eq 0 ]]; then
    # shellcheck disable=SC2046 # names
    set -- $(awk '{ print $1 }' <<<"$table")
fi
for name in "$@"; do
    declare -F "case_$name" >/dev/null || { echo "jobs.sh: there is no case $name" >&2; exit 2; }
    # A shell of its own: settings go with it. (It has words of its own for a mpirun that is killed.)
    (trap - EXIT; run_case "$name") 2>/dev/null
    case $? in 0 | 77) ;; *) failures=$((failures + 1)) ;; esac
    umount -q -l "$folder"/disk-* 2>/dev/null
    rm -rf "$folder"/disk-* "$folder/pipe"
done
conclude
