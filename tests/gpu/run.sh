#!/usr/bin/env bash
# Usage: ./run.sh [look] [first] [1] [2] [3]
#
# Tries the kit on this machine's GPU: `make gpu-pack` has put this script, the programs and what they need into one folder,
# which can be copied to a machine without MPI, oneDNN or Check. It needs NVIDIA's driver and libraries (CUDA's runtime,
# cuBLAS, cuDNN, NCCL): those of /usr/local/cuda, of the system, of pip (nvidia-...) or of conda, or in the folders of
# LIBRARIES=folder:folder. The C library must be as new as Debian 12's (glibc 2.36).
#
#   look    which GPU, which libraries
#   first   three replays: results beside Keras's. If one of them fails, the rest says little: ALL=1 goes on all the same
#   1       ten minutes: the operations in three precisions, all replays, the same bits twice
#   2       ten minutes: invalid accesses to memory, speed, refusals, a profile
#   3       ten minutes: races, several ranks on the GPU, NCCL
#
# Without words all of them, in this order. Everything is in log/; log/summary has a line for each test. Status 1 if one failed.

set -u
cd "$(dirname "$0")" || exit 2
here=$PWD
mkdir -p log
: >log/summary

# ---- NVIDIA's libraries.

folders()
{
    local place
    tr ':' '\n' <<<"${LIBRARIES:-}"
    for place in ${CUDA_HOME:+"$CUDA_HOME"} /usr/local/cuda /usr/local/cuda-* ${CONDA_PREFIX:+"$CONDA_PREFIX"}; do
        printf '%s\n' "$place/lib64" "$place/lib" "$place"/targets/*-linux/lib
    done
    for place in "${VIRTUAL_ENV:-/nowhere}"/lib/python3*/*-packages $(python3 -c 'import sys; print(*sys.path)' 2>/dev/null); do
        printf '%s\n' "$place"/nvidia/*/lib
    done
}
libraries=$here/lib:$here/mpi/lib
while read -r folder; do
    [[ -z $folder || ! -d $folder ]] || libraries+=:$folder
done < <(folders)
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# All ranks are on this machine: mpirun needs no ssh.
export OPAL_PREFIX=$here/mpi OMPI_MCA_plm=isolated PATH=$here/mpi/bin:$PATH BUILD=build HVDLAB_PACK=1
unset HVDLAB_FLAGS HVDLAB_TRACE "${!HVD_@}"
eval "$(common/scripts/mpi.sh env)"

# ---- What is here.

look()
{
    local missing
    nvidia-smi 2>&1 || echo "there is no nvidia-smi: no driver of NVIDIA's"
    uname -srm
    sed -n 's/^model name.*: //p' /proc/cpuinfo | sort | uniq -c
    ldd build/replay
    # The line that says why, if there is one: no GPU, no driver, another driver.
    build/replay tests/golden/cases/mlp_sgd.safetensors --device gpu 2>&1 | tail -n 1
    missing=$(ldd build/replay mpi/bin/mpirun build/tests/unit/test_model | sed -n 's/^\t\(.*\) => not found/\1/p' | sort -u | xargs)
    # Made on Debian 12: an older C library lacks something.
    if ldd build/replay mpi/bin/mpirun 2>&1 | grep 'version .GLIBC.* not found'; then
        echo "missing: a C library as new as Debian 12's ($(ldd --version | head -n 1) is here): use a container of Debian 12 or Ubuntu 24.04"
        return 1
    fi
    [[ -z $missing ]] || {
        echo "missing: $missing"
        echo "From pip, in a virtual environment that is then active: pip install $(cat parts/pip)"
        return 1
    }
}

# ---- Parts. tests/run.sh prints a line for each test, and indented what the test printed.

tell() { tee -a log/summary; }

# part NAME SECONDS
part()
{
    local status
    echo "---- $1" | tell
    timeout --kill-after=10 "$2" env V=1 TEST_LIST="parts/gpu_$1" tests/run.sh "gpu_$1" 2>&1 | tee "log/$1.log" | grep --line-buffered -v '^    ' | tell
    status=${PIPESTATUS[0]}
    [[ $status -ne 124 && $status -ne 137 ]] || echo "part $1 was ended after $2 s: log/$1.log" | tell
    [[ $1 != 2 ]] || sed -n 's/^    \(.* images\/s.*\)/\1/p' "log/$1.log" | tell
    return "$status"
}

failed=0
[[ $# -gt 0 ]] || set -- look first 1 2 3
for each; do
    case $each in
    look)
        look >log/look.log 2>&1 || {
            tail -n 3 log/look.log | tell
            exit 2
        }
        sed -n '/NVIDIA-SMI/p; /^there is no/p; /missing/p' log/look.log | tell
        ;;
    first)
        part first 180 || {
            failed=1
            [[ ${ALL:-} = 1 ]] || {
                echo "A replay failed: log/first.log says which number differs. Mend that first, or ALL=1 ./run.sh" | tell
                exit 1
            }
        }
        ;;
    1 | 2 | 3) part "$each" 600 || failed=1 ;;
    *)
        sed -n 's/^# Usage: /usage: /p' "$0" >&2
        exit 2
        ;;
    esac
done
exit $failed
