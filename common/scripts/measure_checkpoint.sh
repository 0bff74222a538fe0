#!/usr/bin/env bash
# Usage: measure_checkpoint.sh saving
#
# The table of labs/06-checkpoints about what a checkpoint of the Wide ResNet 16-10 costs, measured anew,
# on standard output: on the disk that the build is on. WORKLOAD=wrn:1:64 measures another model.

set -euo pipefail
build=${BUILD:-build}
work=$build/measure/saving

saving_table()
{
    make -s "$build/bench" >&2
    mkdir -p "$work"
    GOMP_SPINCOUNT=10000 "$build/bench" --saving "$work" --workload "${WORKLOAD:-wrn:10:32}"
}

case ${1:-} in
saving) saving_table ;;
*)
    echo "usage: measure_checkpoint.sh saving" >&2
    exit 2
    ;;
esac
