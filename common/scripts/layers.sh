#!/bin/sh
# Usage: layers.sh
#
# Every file of common/ includes only from its own folder or from one below it. Status 0, or 1 with a
# line for each include that goes up, aside, or has no folder; and for MPI's and CUDA's headers
# outside of the folders that are theirs.

set -u
cd "$(dirname "$0")/.." || exit 2

# From the bottom to the top; cpu and cuda stand side by side, and the backends' common header below.
grep -nE '^[ \t]*#[ \t]*include' ./*.h ./*/*.c ./*/*.h ./*/*.cu ./*/*.cuh | sed 's,^\./,,' | awk '
BEGIN {
    split("base sys data backend cpu cuda nn train hvd", folders, " ")
    for (i = 1; i in folders; i++)
        height[folders[i]] = i
    height["hvdlab.h"] = height["tools"] = 99
}
function complain(why) { print "common/" $0 ": " why; wrong = 1 }
{
    split($0, place, ":")
    file = place[1]
    folder = file
    sub(/\/.*/, "", folder)
    if (!(folder in height))
        complain("no layer is called " folder)
    # The transports between GPUs call CUDA themselves.
    gpu = folder == "cuda" || file ~ /^hvd\/hvd_(cuda|nccl)\.c$/
    if (match($0, /"[^"]*"/)) {
        to = substr($0, RSTART + 1, RLENGTH - 2)
        target = to
        sub(/\/.*/, "", target)
        if (to !~ /\// || !(target in height))
            complain("write the folder of the library that it is in")
        else if (target == folder)
            next
        else if (height[target] > height[folder])
            complain(target "/ is above " folder "/")
        else if (target == "cpu" || (target == "cuda" && !gpu))
            complain("only backend.h knows " target "/")
    } else if (/<(mpi|mpi-ext)\.h>/ && folder != "hvd" && folder != "sys")
        complain("MPI belongs to hvd/ and sys/")
    else if (/<(cuda|cudnn|cublas|nccl)[a-z0-9_]*\.h>/ && !gpu && file != "sys/device.c")
        complain("CUDA belongs to cuda/, the transports between GPUs and sys/device.c")
}
END { exit wrong }'
