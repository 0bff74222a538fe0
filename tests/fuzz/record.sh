#!/usr/bin/env bash
# Usage: tests/fuzz/record.sh [EXERCISE...]
#
# Leaves the runs of the solutions' checks in build/corpus/traces (FUZZ_TRACES), where fuzz_judges finds them; of all
# exercises, if none is named. Without them it makes up all events.

set -eu
cd "$(dirname "$0")/../.."
traces=${FUZZ_TRACES:-build/corpus/traces}
while read -r exercise file _; do
    [[ $# -eq 0 || " $* " == *" $exercise "* ]] || continue
    rm -rf "${traces:?}/$exercise"
    mkdir -p "$traces/$exercise"
    "${BUILD:-build}/check-step" --keep "$traces/$exercise" "$exercise" "solutions/$file.c" | tail -n 1
done < <(common/scripts/labs.sh table)
