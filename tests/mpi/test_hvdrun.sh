#!/usr/bin/env bash
# Usage: tests/mpi/test_hvdrun.sh [--some]
#        tests/mpi/test_hvdrun.sh --random N [SEED]
#
# What hvdrun promises: a job in which ranks are killed comes to the same weights and figures as one in
# which none is, bit for bit; it is started again so often and no oftener, and not at all where the user
# has to change something; signals reach it; and no process is left behind. With --some, fewer jobs;
# --random kills ranks at N random moments of jobs, from outside: between steps and inside them, while a
# checkpoint is written.

. tests/lib.sh
[[ ${1:-} = --some || $# -eq 0 || ($1 = --random && ${2:-} -gt 0) ]] || { echo "usage: ${0##*/} [--some | --random N]" >&2; exit 2; }
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_FLAGS HVDLAB_TRACE HVDLAB_RESUME
hvdrun=$(realpath "$build/hvdrun")
"$build/compile-step" tests/mpi/train.c "$folder/train" || exit 1
export KILLS=$folder/kills HVDRUN_TEST=$folder
small=(--data synthetic --images 120 --batch-size 8 --val-batch-size 24 --loader-threads 2 --epochs 3
    --target-accuracy 1 --seed 7)

# train RANKS RESTARTS NAME FLAG...: a training under hvdrun, in the background; its checkpoints are in
# NAME.d, its weights in NAME.w, what it printed in NAME.out and NAME.err.
train()
{
    name=$3
    rm -rf "${folder:?}/$name".*
    WEIGHTS=$folder/$name.w timeout $((120 * patience)) "$hvdrun" --restarts "$2" -np "$1" "$folder/train" "${small[@]}" \
        --checkpoint-dir "$folder/$name.d" "${@:4}" >"$folder/$name.out" 2>"$folder/$name.err" </dev/null &
    supervisor=$!
}

# Waits for its end.
trained()
{
    wait "$supervisor"
    status=$?
    none_left
}

members()
{
    grep -lzxF "HVDRUN_TEST=$folder" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 | grep -vx "$$" |
        while read -r process; do
            grep -qE '^State:.[^Z]' "/proc/$process/status" 2>/dev/null &&
                [[ $(readlink "/proc/$process/exe") = */@(train|hvdrun|mpirun|orterun|prterun|sleep) ]] && echo "$process"
        done
}

# (A process that is killed may take its time where the machine is busy.)
none_left()
{
    local left
    for _ in {1..50}; do
        left=$(members)
        [[ -n $left ]] || return 0
        sleep 0.1
    done
    fail "$name: processes are left: $(ps -o pid=,args= -p "${left//$'\n'/,}")"
    # shellcheck disable=SC2086 # words
    kill -9 $left
}

# rank R: its process.
rank()
{
    local process
    for process in $(members); do
        ! grep -qzxF "OMPI_COMM_WORLD_RANK=$1" "/proc/$process/environ" 2>/dev/null || echo "$process"
    done | tail -n 1
}

figures()
{
    grep -h "^history\|^score" "$folder/$1.out" | tail -n 4
}

# The run in $name has come to what `whole` came to.
same_as_whole()
{
    [[ $status -eq 0 ]] || fail "$name: status $status: $(grep -v '^-*$' "$folder/$name.err" | tail -n 3)"
    [[ $(figures whole) = "$(figures "$name")" && -n $(figures whole) ]] ||
        fail "$name: other figures: $(figures "$name" | diff <(figures whole) -)"
    cmp -s "$folder/whole.w/final.safetensors" "$folder/$name.w/final.safetensors" || fail "$name: other weights"
}

# said LINE COUNT: so often, by hvdrun, on standard error.
said()
{
    [[ $(grep -cE "^hvdrun: $1$" "$folder/$name.err") -eq $2 ]] ||
        fail "$name: not $2 times \"$1\": $(grep -v '^-*$' "$folder/$name.err")"
}

# ---- At random moments.

# kill_at_random N SEED
kill_at_random()
{
    local kills=0 unfinished=0 jobs=0 moment victim process other
    RANDOM=$2
    export EVERY=1
    train 3 0 whole
    trained
    while [[ $kills -lt $1 ]]; do
        jobs=$((jobs + 1))
        train 3 5 "random$jobs"
        for _ in {1..5}; do
            moment=$((RANDOM % 1000)) victim=$((RANDOM % 3))
            for ((i = 0; i < 600 * patience; i++)); do # until all are there: before that nothing has begun
                [[ -z $(rank 2) ]] || break
                kill -0 "$supervisor" 2>/dev/null || break
                sleep 0.02
            done
            sleep "$((moment / 1000)).$(printf '%03d' $((moment % 1000)))"
            process=$(rank $victim)
            other=$(rank $(((victim + 1) % 3)))
            [[ -n $process ]] && kill -9 "$process" 2>/dev/null || break # it has come to its end
            kills=$((kills + 1))
            while kill -0 "$process" 2>/dev/null || [[ -n $other ]] && kill -0 "$other" 2>/dev/null; do
                sleep 0.02
            done
            ! compgen -G "$folder/$name.d/*.safetensors.*" >"$folder/unfinished" || unfinished=$((unfinished + 1))
        done
        trained
        same_as_whole
        rm -rf "${folder:?}/$name".*
    done
    echo "$kills ranks killed in $jobs jobs, seed $2: $unfinished while a checkpoint was not all written"
}

if [[ ${1:-} = --random ]]; then
    kill_at_random "$2" "${3:-$((EPOCHSECONDS % 10000))}"
    conclude
fi

# ---- Words.

refused "which program?" "$hvdrun" --restarts 2
refused "-np must be a whole number from 1 to" "$hvdrun" -np 0 true
refused "--restarts must be a whole number from 0 to" "$hvdrun" --restarts -1 true
refused "--hostfile lacks its value" "$hvdrun" --hostfile
refused "unknown option --np" "$hvdrun" --np 2 true
refused "there is no program ./nowhere" "$hvdrun" ./nowhere
refused "there is no program ./labs" "$hvdrun" ./labs # a folder
refused "mpirun can't be started" env PATH="$folder" "$hvdrun" /bin/true
succeeds "$hvdrun" --help
grep -q "^Usage: hvdrun" "$folder/out" || fail "--help: $(cat "$folder/out")"

# What Open MPI wants to be told is what `make env` tells it. (mpirun shows it: Open MPI 5's keeps some of it from
# the ranks.)
mkdir "$folder/shown"
printf '#!/bin/sh\nenv\n' >"$folder/shown/mpirun"
chmod +x "$folder/shown/mpirun"
common/scripts/mpi.sh env | tr ' ' '\n' | grep '=' | sort >"$folder/wanted"
succeeds env -u OMPI_ALLOW_RUN_AS_ROOT -u OMPI_ALLOW_RUN_AS_ROOT_CONFIRM -u GOMP_SPINCOUNT PATH="$folder/shown:$PATH" "$hvdrun" -np 1 true
[[ -s $folder/wanted && $(grep -cxFf "$folder/wanted" "$folder/out") -eq $(wc -l <"$folder/wanted") ]] ||
    fail "other settings than those of mpi.sh: $(diff "$folder/wanted" <(grep -xFf "$folder/wanted" "$folder/out" | sort))"

echo "localhost slots=3" >"$folder/hosts"
# shellcheck disable=SC2016 # of the workers' shells
succeeds "$hvdrun" --hostfile "$folder/hosts" -np 3 sh -c 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"'
[[ $(sort "$folder/out") = $'0 of 3\n1 of 3\n2 of 3' ]] || fail "--hostfile: $(cat "$folder/out")"

# Standard error passes whole where it begins like a field, as soon as nothing follows. (mpirun 5 passes on an open line
# late, or to standard output.)
# shellcheck disable=SC2016 # of the inner shell
[[ $(mpirun --version) == *" 5."* ]] || run "$hvdrun" -np 1 sh -c 'printf "wait\nh" >&2; sleep 2; ! grep -q "^h$" "$0" || echo seen; printf "\nhvdlab-end" >&2' "$folder/err"
[[ $(mpirun --version) == *" 5."* || $(<"$folder/out") = seen && $(<"$folder/err") = $'wait\nh\nhvdlab-end' ]] ||
    fail "like a field: $(cat "$folder/out" "$folder/err")"

# ---- Which ends it starts again. (mpirun takes two seconds to end a job in which something went wrong.)

# counted STATUS...: a program that ends with the first status, then with the next, ...; how often it ran.
counted()
{
    printf '%s\n' "$@" >"$folder/statuses"
    # shellcheck disable=SC2016 # of the inner shell
    run "$hvdrun" --restarts 1 -np 1 bash -c 'read -r status <"$0"; sed -i 1d "$0"; echo "ran:$HVDLAB_RESUME"; exit $status' "$folder/statuses"
}
# ends STATUS RUNS: so it must have ended, and so often it must have run.
ends()
{
    [[ $status -eq $1 && $(grep -c ^ran "$folder/out") -eq $2 ]] ||
        fail "status $status instead of $1, or not $2 runs: $(cat "$folder/out" "$folder/err")"
}
counted 0 0
ends 0 1
counted 2 0
ends 2 1
counted 4 5 0
ends 5 2
[[ $(xargs <"$folder/out") = "ran: ran:1" ]] || fail "HVDLAB_RESUME: $(cat "$folder/out")"
grep -qx "hvdrun: .* ended with status 4: restart 1 of 1" "$folder/err" || fail "status 4: $(cat "$folder/err")"
grep -qx "hvdrun: .* ended with status 5, after 1 restart" "$folder/err" || fail "used up: $(cat "$folder/err")"

counted 127 0
ends 0 2
grep -qx "hvdrun: .* ended with status 127: restart 1 of 1" "$folder/err" || fail "status 127: $(cat "$folder/err")"

# A file that is no checkpoint does not hide how the job ended.
mkdir "$folder/foreign"
echo nothing >"$folder/foreign/ckpt-9.safetensors"
run "$hvdrun" --restarts 1 -np 1 sh -c 'exit 4' sh --checkpoint-dir "$folder/foreign"
ends 4 0
grep -qx "hvdrun: .* ended with status 4: restart 1 of 1, from the beginning: $folder/foreign holds no checkpoint" "$folder/err" ||
    fail "a foreign file: $(cat "$folder/err")"

# Processes that a shell began before it became hvdrun go on, and do not keep it.
# shellcheck disable=SC2016 # of the inner shell
limit=20 run bash -c 'sleep 100 & echo $! >"$1"; shift; exec "$@"' bash "$folder/earlier" "$hvdrun" --restarts 1 -np 1 sh -c 'exit 4'
[[ $status -eq 4 ]] && kill "$(<"$folder/earlier")" || fail "beside another child: status $status: $(cat "$folder/err")"

# ---- A host that is lost: under a mpirun that starts nothing, but says so, in Open MPI 5's words. The next start has
# the hostfile as it is by then.

mkdir "$folder/fake"
cat >"$folder/fake/mpirun" <<'END'
#!/bin/bash
cd "${0%/*}/.." || exit
paste -sd , hosts >>started
read -r status <ends
sed -i 1d ends
[[ $status != @(lost|hung) ]] || echo "PRTE has lost communication with a remote daemon." >&2
echo one >hosts
[[ $status != hung ]] || exec sleep 1000 # as Open MPI 4's does now and again
[[ $status != lost ]] || status=0
exit "$status"
END
chmod +x "$folder/fake/mpirun"

# fake END...: a job on two hosts whose runs end so.
fake()
{
    rm -f "$folder/started"
    printf 'one\ntwo\n' >"$folder/hosts"
    printf '%s\n' "$@" >"$folder/ends"
    name=fake
    PATH=$folder/fake:$PATH run "$hvdrun" --hostfile "$folder/hosts" -np 2 true
    cp "$folder/err" "$folder/fake.err"
}
fake lost 0
[[ $status -eq 0 && $(<"$folder/started") = $'one,two\none' ]] || fail "fake: status $status: $(cat "$folder/started")"
said "mpirun does not reach a host: restart 1 of 3" 1
if [[ ${1:-} != --some ]]; then
    fake hung 0
    [[ $status -eq 0 ]] || fail "fake: a mpirun that has lost a host and hangs: status $status"
    said "mpirun does not reach a host: restart 1 of 3" 1
    none_left
fi

# ---- Killed at moments of a training: before the first checkpoint, inside an epoch, at its end.

export EVERY=4
: >"$KILLS"
train 3 0 whole
trained
same_as_whole
printf '%s\n' "$((RANDOM % 3)) 2" "$((RANDOM % 3)) $((RANDOM % 5 + 5))" >"$KILLS"
train 3 3 killed
trained
same_as_whole
[[ ! -s $KILLS ]] || fail "killed: not all were killed: $(cat "$KILLS")"
said "rank [012] was ended by signal 9 \(Killed\): restart 1 of 3, from the beginning: $folder/killed.d holds no checkpoint" 1
said "rank [012] was ended by signal 9 \(Killed\): restart 2 of 3, from $folder/killed.d/ckpt-[01](-4)?" 1
! grep hvdlab-end "$folder/killed.err" || fail "killed: fields are no text for people"
[[ $(grep -c "^Restoring from" "$folder/killed.out") -eq 1 && $(grep -c "^Creating a new model" "$folder/killed.out") -eq 1 ]] ||
    fail "killed: $(grep "^Restoring\|^Creating" "$folder/killed.out")"

# ---- Signals, and mpirun or hvdrun killed: nothing is left, and only what died is started again.

# begun: ranks are at work.
begun()
{
    for ((i = 0; i < 600 * patience; i++)); do
        ! compgen -G "$folder/$name.d/ckpt-*" >/dev/null || return 0
        sleep 0.05
    done
    fail "$name: no checkpoint: $(cat "$folder/$name.err")"
}
long=(--epochs 100000)
signals=(TERM)
[[ ${1:-} = --some ]] || signals=(INT TERM HUP)
for signal in "${signals[@]}"; do
    train 2 3 "sig$signal" "${long[@]}"
    begun
    kill -"$signal" "$(pgrep -P "$supervisor" hvdrun)"
    trained
    [[ $status -ne 0 && $status -ne 124 ]] || fail "$name: status $status"
    said ".*" 0
done
train 2 3 orphaned "${long[@]}"
begun
kill -9 "$(pgrep -P "$supervisor" hvdrun)"
trained
train 2 1 headless
begun
pkill -9 -P "$(pgrep -P "$supervisor" hvdrun)" -x "mpirun|orterun|prterun"
trained
[[ $status -eq 0 ]] || fail "headless: status $status: $(cat "$folder/headless.err")"
said "mpirun was ended by signal 9 \(Killed\): restart 1 of 1, from $folder/headless.d/ckpt-.*" 1

# A child that a rank leaves behind is no reason to wait.
begin=$SECONDS
name=child
succeeds "$hvdrun" -np 1 sh -c 'setsid sleep 1000 </dev/null >/dev/null 2>&1 &'
[[ $((SECONDS - begin)) -lt 10 ]] || fail "a child was waited for"
none_left

conclude
