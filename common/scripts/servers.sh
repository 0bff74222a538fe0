#!/usr/bin/env bash
# Usage: servers.sh [--tag-output] SERVERS[:PACES] WORKERS PROGRAM FLAG...
#
# Starts a job of parameter servers and workers on this machine, as one would by hand with a terminal for
# each process: PROGRAM as often as both together, each time with another role in its environment
# (common/hvd/ps.h). PACES, "0,200,0", say, are the workers' --pace, which makes one of them slow. Waits
# until all have ended; the status is 0, or the largest of theirs. Control-C ends them all.
#
# With --tag-output each line has the process's number in front, as mpirun's has: the workers' first. Who
# ended badly is named by that number then, and by its role otherwise.

set -u
tagged=
if [[ ${1:-} == --tag-output ]]; then
    tagged=1
    shift
fi
if [[ $# -lt 3 || ! $1 =~ ^[1-9][0-9]*(:[0-9]+(,[0-9]+)*)?$ || ! $2 =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: ${0##*/} [--tag-output] SERVERS[:PACES] WORKERS PROGRAM FLAG..." >&2
    exit 2
fi
servers=${1%%:*} workers=$2
paces=()
[[ $1 != *:* ]] || IFS=, read -ra paces <<<"${1#*:}"
shift 2

if [[ -r /proc/net/fib_trie ]] && ! grep -qwF 127.0.0.1 /proc/net/fib_trie; then
    echo "${0##*/}: the loopback interface is down, and the processes need it: ip link set lo up (as root)" >&2
    exit 2
fi

# An address of this machine that no other job has: there are 16 million.
address=127.$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1))
HVD_SERVERS=$address:7001
for ((s = 1; s < servers; s++)); do HVD_SERVERS+=,$address:$((7001 + s)); done
export HVD_SERVERS HVD_WORKERS=$workers HVD_JOB=$$-$RANDOM GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}

folder=$(mktemp -d) || exit 1
pids=() readers=()
# shellcheck disable=SC2317 # called by traps
end_all()
{
    [[ ${#pids[@]} -eq 0 ]] || kill "${pids[@]}" 2>/dev/null
}
trap 'rm -rf "$folder"' EXIT
trap 'end_all; exit 130' INT
trap 'end_all; exit 143' TERM HUP

# start RANK ROLE COMMAND...
start()
{
    local rank=$1 role=$2 out=/dev/stdout err=/dev/stderr
    shift 2
    if [[ $tagged ]]; then
        out=$folder/$rank.out err=$folder/$rank.err
        mkfifo "$out" "$err"
        sed -u "s/^/[1,$rank]<stdout>:/" <"$out" &
        readers+=($!)
        sed -u "s/^/[1,$rank]<stderr>:/" <"$err" >&2 &
        readers+=($!)
        HVD_ROLE=$role "$@" >"$out" 2>"$err" &
    else
        HVD_ROLE=$role "$@" &
    fi
    pids+=($!)
}

flags=${HVDLAB_FLAGS:-}
for ((w = 0; w < workers; w++)); do
    [[ ! ${paces[w]:-} ]] || export HVDLAB_FLAGS="$flags --pace ${paces[w]}"
    start "$w" "worker:$w" "$@"
    [[ ! ${paces[w]:-} ]] || export HVDLAB_FLAGS="$flags"
done
for ((s = 0; s < servers; s++)); do start $((workers + s)) "server:$s" "$@"; done

worst=0
for rank in "${!pids[@]}"; do
    who="worker $rank"
    [[ $rank -lt $workers ]] || who="server $((rank - workers))"
    [[ ! $tagged ]] || who="process rank $rank"
    wait "${pids[rank]}" 2>/dev/null
    status=$?
    [[ $status -le $worst ]] || worst=$status
    if [[ $status -gt 128 ]]; then
        echo "${0##*/}: $who exited on signal $((status - 128)) ($(kill -l $((status - 128))))." >&2
    elif [[ $status -ne 0 ]]; then
        echo "${0##*/}: $who ended with status $status." >&2
    fi
done
[[ ${#readers[@]} -eq 0 ]] || wait "${readers[@]}"
exit $worst
