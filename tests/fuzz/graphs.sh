#!/usr/bin/env bash
# Usage: tests/fuzz/graphs.sh
#
# Compares random networks with a reference in double precision (tests/unit/test_graphs.c), FUZZ_SECONDS (5) on each
# instruction set; with FUZZ_SEED=N the same ones as another time. A network that differs is named with its seed, and with the line that runs it again; status 1 then.

cd "$(dirname "$0")/../.." || exit 2
export FUZZ_SECONDS=${FUZZ_SECONDS:-5}
status=0
for isa in ALL AVX2 SSE41; do
    printf '%-6s ' $isa
    DNNL_MAX_CPU_ISA=$isa "${BUILD:-build}/tests/unit/test_graphs" || status=1
done
exit $status
