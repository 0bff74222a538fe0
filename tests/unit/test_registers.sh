#!/usr/bin/env bash
# What ptxas makes of the kernels for an H100 (sm_90): no registers are spilled to memory, and none has a stack. No GPU is needed.

. tests/lib.sh
nvcc=$(common/scripts/cuda.sh flags | tr ' ' '\n' | grep '/nvcc$') || skip "no nvcc is here"
"$nvcc" --list-gpu-arch | grep -qx compute_90 || skip "this nvcc does not know sm_90"
for file in common/cuda/*.cu; do
    limit=110
    succeeds "$nvcc" -gencode arch=compute_90,code=sm_90 -std=c++17 -O3 -Xptxas -v -Icommon -cubin -o "$folder/cubin" "$file"
    cat "$folder/err"
done | awk '/Function properties for/ { name = $NF }
    /bytes stack frame/ { if ($1 + $5 + $9 > 0) { print "FAIL: " name ":" $0; bad = 1 } }
    / Used [0-9]+ registers/ { kernels++; for (i = 1; i < NF; i++) if ($i == "Used" && $(i + 1) > most) { most = $(i + 1); which = name } }
    END { printf "%d kernels, at most %d registers (%s)\n", kernels, most, which; exit bad || kernels < 50 }' ||
    fail "registers are spilled, or kernels are missing"
conclude
