#!/usr/bin/env bash
# What `make cluster` promises (common/scripts/cluster.sh): ranks on its hosts train as they do without, each
# host's links carry what a ring's formula says, no faster than RATE; its counters; what it refuses; and
# that nothing is left of it, whatever is killed. Its folder is the test's own, so that somebody's cluster
# stays as it is.

. tests/lib.sh
unset HOSTS RATE DELAY RESET HVDLAB_CLUSTER HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_TRACE HVDLAB_FLAGS
eval "$(common/scripts/mpi.sh env)"
state=$folder/build/cluster
trap 'cluster down; rm -rf "$folder"' EXIT

# For mpirun: the cluster's hosts; and what programs with sanitizers are told here they must be told there.
on_hosts=(--hostfile "$state/hosts")
for name in ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS; do
    [[ -z ${!name:-} ]] || on_hosts+=(-x "$name")
done

cluster()
{
    BUILD=$folder/build common/scripts/cluster.sh "$@"
}

# up SETTING...: a cluster, and mpirun in it.
up()
{
    run env BUILD="$folder/build" "$@" common/scripts/cluster.sh up
    [[ $status -eq 0 ]] || { fail "make cluster $*: status $status: $(cat "$folder/out" "$folder/err")"; conclude; }
    eval "$(cluster env)"
}

# Processes of the cluster, or only ($1) of what runs on it, by what they were started with.
processes()
{
    grep -alsF -f "$folder/${1:-parts}" /proc/[0-9]*/cmdline
}
echo "$folder/napping" >"$folder/ranks"
echo "$state" | cat - "$folder/ranks" >"$folder/parts"

# nothing_left WHEN: within 5 s neither a process of it nor a file.
nothing_left()
{
    local i
    for ((i = 0; i < 50; i++)); do
        [[ -n $(processes) || -e $state ]] || return
        sleep 0.1
    done
    fail "$1: left: $(ls -d "$state" 2>/dev/null) $(processes | xargs cat | tr '\0' ' ')"
}

PATH=$PATH:/usr/sbin:/sbin command -v tc >/dev/null || skip "there is no tc (Debian package iproute2)"
run env BUILD="$folder/build" common/scripts/cluster.sh up
! grep -q "does not let you make networks\|in this chroot\|Unknown device type\|qdisc kind is unknown" "$folder/err" || skip "$(cat "$folder/err")"
cluster down

# ---- Settings.

before=$(ls /sys/class/net)
# Open MPI gives the script's path to a shell: letters of any language are none of a shell's signs.
for name in 'a b' "a'b" 'a;b' 'ä_b'; do
    mkdir "$folder/$name" && cp common/scripts/cluster.sh "$folder/$name"
    words="move the kit"
    [[ $name != ä* ]] || words="HOSTS=0 is not"
    refused "$words" env HOSTS=0 BUILD="$folder/build" "$folder/$name/cluster.sh" up
done
refused "HOSTS=0 is not a number from 1 to 32" env HOSTS=0 common/scripts/cluster.sh up
refused "HOSTS=33 is not" env HOSTS=33 common/scripts/cluster.sh up
refused "RATE=fast is not a rate, such as" env RATE=fast common/scripts/cluster.sh up
refused "DELAY=2 is not a time, such as" env DELAY=2 common/scripts/cluster.sh up
up HOSTS=3 DELAY=1ms
[[ ! -s $folder/err ]] || grep -q "DELAY=1ms is left out: " "$folder/err" || fail "DELAY: $(cat "$folder/err")"
[[ $(ls /sys/class/net) = "$before" ]] || fail "this machine has other links than before"

# Processors of one core are one host's, and where there is but one core, it is everybody's.
mkdir "$folder/one-core"
printf '#!/bin/sh\n%s "$@" | sed "s/,.*/,0/"\n' "$(command -v lscpu)" >"$folder/one-core/lscpu"
chmod +x "$folder/one-core/lscpu"
up HOSTS=2 PATH="$folder/one-core:$PATH"
all=$(common/scripts/cores.sh)
[[ $(awk '{ print split($3, cores, ",") }' "$state/nodes" | xargs) = "$all $all" ]] || fail "one core: $(cat "$state/nodes")"

# ---- A training on it is the one without: on four hosts, and on two.

# train WORD...: the ranks' weights are in the file weights, their hosts in the file machines.
train()
{
    succeeds mpirun "$@" -np 4 "$build/solution_06" --data synthetic --width 1 --images 128 --batch-size 16 --epochs 1 \
        --seed 5 --show-ranks --log-dir "$folder/logs"
    awk '$2 == "cpu" { print $4 }' "$folder/out" >"$folder/weights"
    awk '$2 == "cpu" { print $8 }' "$folder/out" | xargs >"$folder/machines"
}

# same_training NAME MACHINES: as the one in the file alone. (Other shares of the cores may sum in another order.)
same_training()
{
    paste "$folder/alone" "$folder/weights" |
        awk '{ if (NF != 2 || ($1 - $2) ^ 2 > ($1 * 1e-4) ^ 2) bad = 1 } END { exit bad || NR != 4 }' ||
        fail "$1: weights $(xargs <"$folder/weights") instead of $(xargs <"$folder/alone")"
    [[ $(<"$folder/machines") = "$2" ]] || fail "$1: the ranks are on $(<"$folder/machines")"
}

cluster down
train
mv "$folder/weights" "$folder/alone"
up HOSTS=2
train "${on_hosts[@]}"
same_training "two hosts" "node0 node0 node1 node1"

# Of four all-reduces of 16 MiB in two levels each link carries half and half, however the ranks were dealt out.
cat >"$folder/sums.c" <<'END'
#include "hvdlab.h"
static float values[4 << 20];
int main(void)
{
    hvd_init();
    for (int i = 0; i < 4; i++)
        hvd_allreduce(values, 4 << 20, HVD_AVERAGE);
    return 0;
}
END
"$build/compile-step" "$folder/sums.c" "$folder/sums" || fail "sums.c does not compile"
for deal in slot node; do
    RESET=1 cluster traffic >/dev/null
    succeeds mpirun "${on_hosts[@]}" --map-by $deal -np 4 "$folder/sums"
    cluster traffic >"$folder/table"
    awk 'BEGIN { data = 4 * 4 * 4 * 2 ^ 20 }
        NR > 1 { if ($2 < data || $4 < data || $2 > 1.02 * data || $4 > 1.02 * data) exit 1 }
        END { if (NR != 3) exit 1 }' "$folder/table" || fail "by $deal: not what two levels carry: $(cat "$folder/table")"
done

# A bridge to containers that each host has, at the same address, leads to no other host. Where somebody has said
# which networks do, that holds.
for host in node0 node1; do
    cluster agent $host "ip link add name docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 &&
        ip link set dev docker0 up" || fail "$host gets no bridge"
done
train "${on_hosts[@]}"
same_training "bridges" "node0 node0 node1 node1"
train --mca btl_tcp_if_include 10.77.0.0/24 "${on_hosts[@]}"
same_training "bridges, networks on the line" "node0 node0 node1 node1"
mkdir -p "$folder/home/.openmpi"
echo "btl_tcp_if_include = 10.77.0.0/24" >"$folder/home/.openmpi/mca-params.conf"
HOME=$folder/home train "${on_hosts[@]}"
same_training "bridges, networks in a file" "node0 node0 node1 node1"
up HOSTS=4
train "${on_hosts[@]}"
same_training "four hosts" "node0 node1 node2 node3"

# (Open MPI 5 now and then waits forever for a program that ends at once.)
succeeds mpirun -np 1 sh -c 'readlink /proc/self/ns/net; sleep 0.2'
[[ $(<"$folder/out") = "$(readlink /proc/self/ns/net)" ]] || fail "a job that names no hosts is not on this machine"

# ---- What the links carry: ten updates of 1,630,090 weights around a ring of four hosts; before them the
# broadcast of the weights, which passes a host three times at most, and nobody sends to its root.

RESET=1 cluster traffic >/dev/null
cluster traffic >"$folder/table"
awk 'NR > 1 && ($2 > 10000 || $4 > 10000) { exit 1 }' "$folder/table" || fail "not zero after RESET: $(cat "$folder/table")"
succeeds mpirun "${on_hosts[@]}" -np 4 "$build/solution_ring" --data synthetic --max-count 1 --images 320 \
    --batch-size 8 --epochs 1
cluster traffic >"$folder/table"
awk 'BEGIN { weights = 1630090 * 4; ring = 10 * 2 * 3 / 4 * weights }
    NR > 1 { if ($2 < ring || $4 < ring || $2 > 1.02 * (ring + 3 * weights) || $4 > 1.02 * (ring + 3 * weights)) exit 1 }
    $1 == "node0" && $2 < $4 + 0.9 * weights { exit 1 }
    END { if (NR != 5) exit 1 }' "$folder/table" || fail "not what a ring of four carries: $(cat "$folder/table")"
while read -r host sent packets received back; do
    [[ $host = host ]] || grep -qF "{\"host\": \"$host\", \"sent_bytes\": $sent, \"sent_packets\": $packets, \
\"received_bytes\": $received, \"received_packets\": $back}" "$state/traffic.json" ||
        fail "$host is not in traffic.json as in the table: $(cat "$state/traffic.json")"
done < <(sed 's/bytes //g' "$folder/table")

# On links of 200mbit an all-reduce of a megabyte takes what six quarters of it take (except the burst that a
# link lets pass at once), however fast the machine.
up HOSTS=4 RATE=200mbit
succeeds mpirun "${on_hosts[@]}" -np 4 "$build/sweep" --max-count 250000
awk '$1 == 250000 && $3 > 1e6 * (1.5e6 - 72000) * 8 / 200e6 { found = 1 } END { exit !found }' "$folder/out" ||
    fail "faster than 200mbit: $(cat "$folder/out")"

# ---- Whatever is killed, in the middle of a job: nothing is left.

# nap: starts a job that sleeps on all hosts; returns when it does so.
nap()
{
    rm -f "$folder"/asleep-*
    mpirun --hostfile "$state/hosts" -np 4 "$folder/napping" >"$folder/out" 2>"$folder/err" </dev/null &
    job=$!
    for ((i = 0; i < 200 * patience; i++)); do
        [[ $(find "$folder" -name 'asleep-*' | wc -l) -lt 4 ]] || return
        sleep 0.1
    done
    fail "no job on four hosts: $(cat "$folder/out" "$folder/err")"
}
# shellcheck disable=SC2016 # for the other shell
printf '#!/bin/sh\n: >%s/asleep-$(hostname)\nwhile :; do sleep 0.2; done\n' "$folder" >"$folder/napping"
chmod +x "$folder/napping"

# job_ends WHEN: within 20 s. (Open MPI 5 says what happened, and ends with status 0.)
job_ends()
{
    local i status
    for ((i = 0; i < 200; i++)); do
        kill -0 $job 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL $job 2>/dev/null && fail "$1: mpirun goes on"
    wait $job
    status=$?
    [[ $status -ne 0 ]] || grep -q "lost communication" "$folder/err" || fail "$1: mpirun ended with status 0: $(cat "$folder/err")"
}

nap
kill -KILL $job # mpirun
job_ends "mpirun killed"
for ((i = 0; i < 100; i++)); do
    [[ -n $(processes ranks) ]] || break
    sleep 0.1
done
[[ $i -lt 100 ]] || fail "mpirun killed: its ranks are left"
nap
read -r _ first _ < <(grep node2 "$state/nodes")
kill -KILL "$first"
job_ends "a host killed"
run mpirun --hostfile "$state/hosts" -np 4 sleep 0.2
grep -q "node2 is down" "$folder/err" || fail "a host killed: status $status, and not \"node2 is down\": $(cat "$folder/err")"

up HOSTS=4
nap
cluster down
job_ends "make cluster-down"
[[ ! -e $state ]] || fail "make cluster-down leaves $state"
nothing_left "make cluster-down"
for part in keeper watch head; do
    up HOSTS=4
    [[ $part != head ]] || nap
    process=$(cut -d ' ' -f 1 "$state/$part" 2>/dev/null || cut -d ' ' -f 1 "$state/state")
    kill -KILL "$process"
    [[ $part != head ]] || job_ends "$part killed"
    nothing_left "$part killed"
done
# A session's first process is the one that calls setsid; up is its child.
run setsid --wait env BUILD="$folder/build" HOSTS=1 bash -c 'common/scripts/cluster.sh up && true'
grep -q "^1 hosts" "$folder/out" || fail "no cluster in a session of its own: $(cat "$folder/err")"
nothing_left "the session's end"
refused "no cluster is up" env BUILD="$folder/build" common/scripts/cluster.sh traffic
refused "no cluster is up" common/scripts/cluster.sh agent node0 true
[[ -z $(cluster env) ]] || fail "make env knows a cluster that is gone: $(cluster env)"
succeeds mpirun -np 2 sleep 0.2

# ---- In a user namespace, if this system has them.

less=(setpriv --bounding-set -sys_admin --inh-caps -sys_admin)
run "${less[@]}" env BUILD="$folder/build" common/scripts/cluster.sh up
if [[ $status -eq 0 ]]; then
    succeeds "${less[@]}" mpirun --hostfile "$state/hosts" -np 4 sh -c "hostname; sleep 0.2"
    [[ $(sort "$folder/out" | xargs) = "node0 node1 node2 node3" ]] || fail "user namespace: $(cat "$folder/out" "$folder/err")"
    succeeds "${less[@]}" common/scripts/cluster.sh agent node2 hostname
    [[ $(<"$folder/out") = node2 ]] || fail "user namespace: by hand on node2: $(cat "$folder/out")"
    cluster down
    nothing_left "user namespace"
else
    grep -q "does not let you make networks" "$folder/err" || fail "user namespace: $(cat "$folder/err")"
fi
conclude
