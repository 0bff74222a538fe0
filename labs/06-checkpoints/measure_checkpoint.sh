#!/usr/bin/env bash
# Usage: measure_checkpoint.sh saving|killed
#
# The tables of labs/06-checkpoints about what a checkpoint of the Wide ResNet 16-10 costs, and what a worker
# that dies does, measured again, on standard output: on the disk that the build is on. WORKLOAD=wrn:1:64
# saves another model; FLAGS are what the program is told in which a worker is killed.

set -euo pipefail
export LC_ALL=C
build=${BUILD:-build}
work=$build/measure/saving
flags=${FLAGS:---batch-size 64 --epochs 6 --images 6000}

saving_table()
{
    make -s "$build/bench" >&2
    mkdir -p "$work"
    GOMP_SPINCOUNT=10000 "$build/bench" --saving "$work" --workload "${WORKLOAD:-wrn:10:32}"
}

# Seconds that a training takes under hvdrun; with WHEN, a rank is killed when so many epochs have been
# saved, and half of the next one is done.
seconds() # EPOCH [WHEN]
{
    local begin=$EPOCHREALTIME hvdrun
    rm -rf "$work"
    # shellcheck disable=SC2086 # words
    "$build/hvdrun" -np 2 "$build/cifar10" $flags --checkpoint-dir "$work" >"$build/measure/killed.out" 2>"$build/measure/killed.err" &
    hvdrun=$!
    if [[ -n ${2:-} ]]; then
        until [[ -e $work/ckpt-$2.safetensors ]]; do
            kill -0 $hvdrun || return 1
            sleep 0.05
        done
        sleep "$(awk "BEGIN { print $1 / 2 }")"
        pkill -9 -n -P "$(pgrep -P $hvdrun -x mpirun)"
    fi
    wait $hvdrun
    awk "BEGIN { print $EPOCHREALTIME - $begin }"
}

killed_table()
{
    local epoch whole killed
    make -s "$build/hvdrun" "$build/cifar10" >&2
    mkdir -p "$build/measure"
    epoch=$(seconds 0 >/dev/null && sed -n 's#^[0-9/]* - \([0-9.]*\)s - .*#\1#p' "$build/measure/killed.out" | tail -n 1)
    whole=$(for _ in 1 2 3; do seconds 0; done | sort -g | sed -n 2p)
    killed=$(for _ in 1 2 3; do seconds "$epoch" 3; done | sort -g | sed -n 2p)
    awk "BEGIN {
        print \"| | seconds |\\n| --- | --- |\"
        printf \"| nobody dies | %.1f |\\n\", $whole
        printf \"| a worker dies half an epoch after a checkpoint | %.1f |\\n\", $killed
        printf \"| lost | %.1f |\\n\", $killed - $whole
        printf \"| half an epoch | %.1f |\\n\", $epoch / 2 }"
}

case ${1:-} in
saving | killed) "$1_table" ;;
*)
    echo "usage: measure_checkpoint.sh saving|killed" >&2
    exit 2
    ;;
esac
