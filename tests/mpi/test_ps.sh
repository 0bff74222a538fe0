#!/usr/bin/env bash
# Usage: tests/mpi/test_ps.sh [--all]
#
# Jobs of parameter servers whose processes are late, slow, stopped, killed or unknown: who goes on, who
# ends, and what they say. With --all a worker is also killed at 20 random moments.

. tests/lib.sh
export HVD_STALL_SECONDS=0 HVD_START_SECONDS=$((20 * patience)) GOMP_SPINCOUNT=10000
flags=(--data synthetic --images 60 --batch-size 4 --epochs 1 --loader-threads 1)
program=$build/solution_server
jobs=0

# new_job SERVERS WORKERS: addresses and a word that no other job has.
new_job()
{
    jobs=$((jobs + 1))
    local address=127.$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1))
    HVD_SERVERS=$address:7001
    for ((s = 1; s < $1; s++)); do HVD_SERVERS+=,$address:$((7001 + s)); done
    export HVD_SERVERS HVD_WORKERS=$2 HVD_JOB=job-$jobs-$$
    declare -gA pid=()
    rm -f "$folder"/*.out "$folder"/*.err
}

# begin ROLE FLAG...: what it prints is in ROLE.out and ROLE.err.
begin()
{
    HVDLAB_TRACE=$folder/trace-$jobs HVD_ROLE=$1 timeout $((60 * patience)) "$program" "${flags[@]}" "${@:2}" >"$folder/$1.out" 2>"$folder/$1.err" </dev/null &
    pid[$1]=$!
}

# comes_to RANK EVENT NUMBER: waits until the process with that rank has traced so many such events.
comes_to()
{
    local i
    for ((i = 0; i < 600 * patience; i++)); do
        [[ $(grep -c "\"event\":\"$2\"" "$folder/trace-$jobs/rank-$1.jsonl" 2>/dev/null) -lt $3 ]] || return
        sleep 0.02
    done
    fail "$title: rank $1 never comes to $2 number $3"
}

# comes_to_say ROLE PATTERN: waits until it has said so on standard error.
comes_to_say()
{
    local i
    for ((i = 0; i < 400 * patience; i++)); do
        ! grep -qsE -e "$2" "$folder/$1.err" || return
        sleep 0.05
    done
    fail "$title: $1 never says \"$2\": $(cat "$folder/$1.err")"
}

# signal ROLE SIGNAL: to timeout's child. The list of them ends in a blank.
signal()
{
    # shellcheck disable=SC2046
    kill -"$2" $(cat "/proc/${pid[$1]}/task/${pid[$1]}/children")
}

# ends ROLE STATUS WORDS: the words are in its last line of errors, or there is none where they are empty.
ends()
{
    wait "${pid[$1]}" 2>/dev/null
    local got=$?
    [[ $got -eq $2 ]] || fail "$title: $1: status $got, not $2: $(cat "$folder/$1.err")"
    if [[ $3 ]]; then
        tail -n 1 "$folder/$1.err" | grep -qF -e "$3" || fail "$title: $1: \"$3\" is not in: $(cat "$folder/$1.err")"
    elif [[ -s $folder/$1.err ]]; then
        fail "$title: $1 said: $(cat "$folder/$1.err")"
    fi
}

# prints ROLE WORDS
prints() { grep -qF -e "$2" "$folder/$1.out" || fail "$title: $1: \"$2\" is not in: $(cat "$folder/$1.out")"; }

# ---- All is well, in whatever order they come.

title="workers first, one of them late"
new_job 2 3
HVD_STALL_SECONDS=0.4 begin worker:0
begin worker:1
comes_to_say worker:0 "worker 0: waiting for server 0 \(127.*:7001\) for [0-9]+ seconds now: Connection refused"
HVD_STALL_SECONDS=0.4 begin server:1
begin server:0
comes_to_say server:1 "server 1: waiting for worker 2 for"
begin worker:2
for role in worker:1 worker:2 server:0; do ends $role 0 ''; done
for role in worker:0 server:1; do wait "${pid[$role]}" || fail "$title: $role: status $?"; done
prints server:0 "15 pulls - 15 pushes - 15 updates"
prints server:1 "15 pulls - 15 pushes - 15 updates"

title="somebody never comes"
new_job 1 2
HVD_START_SECONDS=$patience begin server:0
HVD_START_SECONDS=$((3 * patience)) begin worker:0
ends server:0 2 "server 0: worker 1 has not come within $patience seconds (HVD_START_SECONDS)"
ends worker:0 2 "worker 0: server 0"

# ---- Workers that are slow, stopped or gone.

# left_alone SIGNAL EVENT NUMBER: worker 1 gets the signal there; the others come to their end.
left_alone()
{
    title="worker 1 gets SIG$1 at $2 number $3"
    new_job 2 3
    begin server:0
    begin server:1
    begin worker:0 --pace 20
    local kill=
    [[ $1 != KILL ]] || kill=1:$2:$3
    HVDLAB_KILL=$kill begin worker:1 --pace 150
    begin worker:2 --pace 20
    if [[ $1 != KILL ]]; then
        comes_to 1 "$2" "$3"
        signal worker:1 "$1"
    fi
    for role in worker:0 worker:2; do
        ends $role 0 ''
        prints $role "epoch 1/1 - loss: "
    done
}
for moment in 'ps_start 1' 'ps_push 1' 'ps_pull 4' 'ps_push 7'; do
    # shellcheck disable=SC2086 # words
    left_alone KILL $moment
    wait "${pid[worker:1]}" 2>/dev/null
    for s in 0 1; do
        ends server:$s 1 "server $s: worker 1 is gone, and had not said that it was done"
        prints server:$s "server $s: "
        grep -qE '"event":"end".*"status":1,"lost":1' "$folder/trace-$jobs/rank-$((3 + s)).jsonl" ||
            fail "$title: server $s does not trace its status and its loss"
    done
done
if [[ ${1:-} == --all ]]; then
    for _ in {1..20}; do
        event=$(shuf -n 1 -e ps_pull ps_pulled ps_push)
        left_alone KILL "$event" $((RANDOM % 10 + 1))
        wait "${pid[worker:1]}" 2>/dev/null
        for s in 0 1; do ends server:$s 1 "server $s: worker 1 is gone, and had not said that it was done"; done
    done
fi
left_alone STOP ps_pulled 3
kill -0 "${pid[server:0]}" || fail "$title: the server has not waited for it"
signal worker:1 CONT
for role in worker:1 server:0 server:1; do ends $role 0 ''; done

# ---- A server that is gone.

title="a server is killed before all workers have come"
new_job 2 2
begin server:0
begin server:1
HVD_STALL_SECONDS=0.4 begin worker:0
comes_to_say worker:0 "worker 0: waiting for .*worker"
signal server:1 KILL
for role in worker:0 server:0; do ends $role 2 "server 1 (${HVD_SERVERS##*,}) is gone"; done

for moment in 'ps_start 1' 'ps_applied 4'; do
    title="server 1 is killed at $moment"
    new_job 2 3
    begin server:0
    begin server:1
    for w in 0 1 2; do begin worker:$w --pace 50; done
    # shellcheck disable=SC2086 # words
    comes_to 4 $moment
    signal server:1 KILL
    for role in worker:0 worker:1 worker:2 server:0; do ends $role 2 "server 1 (${HVD_SERVERS##*,}) is gone"; done
    wait "${pid[server:1]}" 2>/dev/null
done

# ---- Unknown clients.

title="unknown clients"
new_job 1 2
address=${HVD_SERVERS%:*}
begin server:0
begin worker:0 --pace 50
for ((i = 0; i < 100 * patience; i++)); do
    { exec 5<>"/dev/tcp/$address/7001"; } 2>/dev/null && break
    sleep 0.05
done
printf 'GET / HTTP/1.1\r\n\r\n' >&5
[[ $(timeout $((5 * patience)) cat <&5 2>&1 >/dev/null; echo $?) != *124 ]] || fail "$title: a request for a page is not refused"
exec 5>&- 6<>"/dev/tcp/$address/7001"
printf 'hvd1\1\0\0\0\377\377\377\377\377\377\377\177' >&6 # a very long message
[[ $(timeout $((5 * patience)) cat <&6 2>&1 >/dev/null; echo $?) != *124 ]] || fail "$title: a message that is too long is not refused"
exec 6>&- 7<>"/dev/tcp/$address/7001" # this one stays and says nothing
HVD_JOB=another begin worker:1
ends worker:1 2 "refuses this worker: it belongs to another job (HVD_JOB)"
HVD_WORKERS=3 begin worker:1
ends worker:1 2 "refuses this worker: it counts other servers or workers"
begin worker:1 --pace 50
sleep 0.5
begin worker:0
ends worker:0 2 "refuses this worker: a worker with this number is there already (HVD_ROLE)"
wait "${pid[worker:1]}" || fail "$title: worker 1: status $?"
wait "${pid[server:0]}" || fail "$title: server 0: status $?"
prints server:0 "16 pulls - 16 pushes - 16 updates"
exec 7>&-
[[ $(grep -c 'warning: server 0: a connection from 127' "$folder/server:0.err") -eq 5 ]] || fail "$title: $(cat "$folder/server:0.err")"

# ---- Rounds whose mean is applied once are an all-reduce, also where some workers have more images.

title="a bound of 0 against mpirun"
# The servers are bounded's solution, with the model of rounds.c.
sed "s/create_lenet(32, 512)/create_model()/; /lessons.exercises.h/r /dev/stdin" solutions/bounded.c >"$folder/held.c" <<'END'

static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    return model(image, softmax(dense(flatten(image), 10)));
}
END
for name in "$folder/held" tests/mpi/rounds; do
    "$build/compile-step" $name.c "$folder/${name##*/}" || fail "$title: does not compile"
done
same=(--data synthetic --images 61 --batch-size 4 --base-lr 0.1 --no-shuffle --loader-threads 1)
export ROUNDS=$folder
new_job 2 3
program=$folder/held
for s in 0 1; do begin server:$s "${same[@]}" --staleness 0; done
program=$folder/rounds
for w in 0 1 2; do begin worker:$w "${same[@]}"; done
for role in server:0 server:1 worker:0 worker:1 worker:2; do ends $role 0 ''; done
prints server:0 "16 pushes - 6 updates"
succeeds common/scripts/mpi.sh run 3 "$folder/rounds" "${same[@]}"
grep -q "^weights up to 0.* differences up to [0-9.e-]*$" "$folder/out" || fail "$title: $(cat "$folder/out")"
program=$build/solution_server

# ---- The script that starts all of them.

title=servers.sh
# (A rate is told where all workers were at work at once: paced, they are.)
succeeds common/scripts/servers.sh 2:200,300,200 3 "$program" "${flags[@]}"
[[ $(grep -c -e '15 pulls - 15 pushes' "$folder/out") -eq 2 ]] || fail "$title: $(cat "$folder/out")"
[[ $(grep -c 'pushes a second while all workers were at work$' "$folder/out") -eq 2 ]] || fail "$title: $(cat "$folder/out")"
refused usage: common/scripts/servers.sh two 3 "$program"
succeeds common/scripts/servers.sh 1:100 1 "$program" --data synthetic --images 24 --batch-size 4 --epochs 1
awk '/pushes a second/ { rate = $3 } END { exit !(rate > 1 && rate <= 10) }' "$folder/out" || fail "$title: not 10 a second at most: $(cat "$folder/out")"
run env common/scripts/servers.sh --tag-output 1 2 "$program" --epochs none
[[ $status -eq 2 ]] || fail "$title: status $status"
[[ $(grep -c '^\[1,[0-2]\]<stderr>:.*--epochs must be' "$folder/err") -eq 3 ]] || fail "$title: $(cat "$folder/err")"
conclude
