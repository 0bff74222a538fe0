#!/bin/sh
# Usage: measure_mirrored.sh
#
# The table of labs/07-one-process/handout.md, measured again, on standard output: ranks beside one
# process that is mirrored on as many devices, in turns (tests/bench).

set -eu
export LC_ALL=C
build=${BUILD:-build}
make -s "$build/bench" >&2
exec env GOMP_SPINCOUNT=10000 "$build/bench" --mirrored
