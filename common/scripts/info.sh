#!/bin/sh
# Usage: info.sh
#
# Prints what was found on this machine, with versions, and what is missing or left out, with the
# reason and the remedy. From the environment: CC, MPI_HOME, ONEDNN, CUDA..., DATA_DIR as in the Makefile.

set -u
# shellcheck source=common/scripts/own.sh
. "${0%info.sh}own.sh"
CC=${CC:-gcc}

# The line of one thing, its name padded.
line()
{
    printf '%-12s %s\n' "$1" "$2"
}

# version HEADER TEXT: what the preprocessor makes of TEXT, a version in the header's macros. Fails
# without the header.
version()
{
    # shellcheck disable=SC2046,SC2086 # words, as in a Makefile
    printf '#include <%s>\nhvdlab %s\n' "$1" "$2" |
        $CC ${ONEDNN:+-isystem "$ONEDNN/include"} $([ -z "$MPI_HOME" ] || mpicc --showme:compile) $(own_headers) \
            $(pkg-config --cflags ompi-c 2>/dev/null) $(pkg-config --cflags check 2>/dev/null) \
            -E -P -x c - 2>/dev/null | sed -n 's/^hvdlab //p' |
        tr -d '"() ' | grep .
}

# library NAME HEADER TEXT PACKAGE
library()
{
    if found=$(version "$2" "$3"); then
        line "$1" "$found"
    else
        line "$1" "missing: no $2. Remedy: make deps (Debian package $4)"
    fi
}

# ---- What the kit is built with.

# shellcheck disable=SC2086
if found=$($CC --version 2>/dev/null | head -n 1) && [ -n "$found" ]; then
    line compiler "$CC: $found"
else
    line compiler "missing: $CC. Remedy: make deps, or CC=another"
fi
library oneDNN oneapi/dnnl/dnnl_version.h \
    DNNL_VERSION_MAJOR.DNNL_VERSION_MINOR.DNNL_VERSION_PATCH libdnnl-dev
[ -z "${ONEDNN:-}" ] || line "" "from $ONEDNN"
[ -z "$own" ] || line packages "unpacked in $own"
library "Open MPI" mpi.h OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION libopenmpi-dev
[ -z "$MPI_HOME" ] || line "" "from $MPI_HOME"
# Found is not enough: many things keep mpirun from starting processes.
if ! command -v mpirun >/dev/null; then
    line mpirun "missing. Remedy: make deps (Debian package openmpi-bin)"
elif problem=$(timeout 30 common/scripts/mpi.sh run 2 true 2>&1); then
    line mpirun "$(mpirun --version | head -n 1), starts 2 processes here"
else
    # Its first paragraph.
    line mpirun "fails to start 2 processes here: $(echo "$problem" | awk '/[a-z]/ { text = text " " $0; next } text { exit } END { $0 = text; $1 = $1; print }')"
    line "" "Remedy: common/scripts/mpi.sh run 2 true shows the whole message"
fi
library hwloc hwloc.h HWLOC_VERSION libhwloc-dev
library cJSON cjson/cJSON.h CJSON_VERSION_MAJOR.CJSON_VERSION_MINOR.CJSON_VERSION_PATCH libcjson-dev
library zlib zlib.h ZLIB_VERSION zlib1g-dev

# program NAME PACKAGE TARGET: what a target of its own needs.
program()
{
    if command -v "$1" >/dev/null; then
        line "$1" "found, for $3"
    else
        line "$1" "missing; $3 installs it (Debian package $2)"
    fi
}
# (A student's package has neither the kit's tests nor the labs' sources.)
if [ -d tests/unit ]; then
    found=$(version check.h CHECK_MAJOR_VERSION.CHECK_MINOR_VERSION.CHECK_MICRO_VERSION) || found="missing; make test installs it (Debian package check)"
    line Check "$found"
    program unifdef unifdef "make steps"
fi
program gnuplot gnuplot-nox "make scaling and make sweep"

# ---- The data. The trainer prefers the package's folder, so that it comes last here and wins.

data="missing. Remedy: make deps (Debian package dataset-fashion-mnist) or make data; or train with --data synthetic"
for folder in "${DATA_DIR:-data}" /usr/share/datasets/fashion-mnist; do
    for file in "$folder"/train-images-idx3-ubyte*; do
        [ ! -e "$file" ] || data="Fashion-MNIST in $folder"
    done
done
line data "$data"

# ---- CUDA: all parts are needed, or it is left out.

common/scripts/cuda.sh report | while read -r name found; do
    line "$name" "$found"
done
if arch=$(common/scripts/cuda.sh arch) && [ "${CUDA:-}" != 0 ]; then
    line "" "kernels for: $arch"
    case $arch in
    *code=compute_*) line "" "(no GPU was in sight: the driver compiles this for the GPU, and bf16 is emulated; CUDA_ARCH=90, say, builds for one)" ;;
    esac
fi
if gpus=$(nvidia-smi -L 2>/dev/null) && [ -n "$gpus" ]; then
    echo "$gpus" | while read -r gpu; do
        line GPU "$gpu"
    done
    [ -z "${CUDA_VISIBLE_DEVICES+set}" ] || line "" "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
else
    command -v nvidia-smi >/dev/null && why="nvidia-smi shows none" || why="no nvidia-smi, so no NVIDIA driver"
    line GPU "none ($why): the kit trains on the CPU"
fi

# ---- What else may keep ranks from running.

temporary=${TMPDIR:-/tmp}
if [ ! -d "$temporary" ] || [ ! -w "$temporary" ]; then
    line TMPDIR "$temporary is no folder that can be written to. Remedy: unset TMPDIR, or name another"
elif free=$(df -Pk -- "$temporary" | awk 'NR == 2 { print int($4 / 1024) }') && [ "${free:-64}" -lt 64 ]; then
    line TMPDIR "$temporary has $free MB left, and Open MPI needs some: jobs may stand still. Remedy: TMPDIR=another folder"
fi
if [ -r /proc/net/fib_trie ] && ! grep -qwF 127.0.0.1 /proc/net/fib_trie; then
    line network "the loopback interface is down. Remedy, as root: ip link set lo up"
fi
names=$(env | sed -nE 's/^((OMPI|PRTE|PMIX)_MCA_[A-Za-z0-9_]*|SLURM_JOBID|HVD[A-Z_]*|LD_PRELOAD|OMP_[A-Z_]*)=.*/\1/p' | LC_ALL=C sort | xargs)
[ -z "$names" ] || line variables "of this shell that change how jobs run: $names"

# ---- The processor.

cores=$(common/scripts/cores.sh)
[ "$cores" = "$(nproc --all)" ] || cores="$cores of $(nproc --all) (as this shell's affinity allows)"
line cores "$cores"
if [ -n "${HVDLAB_DEVICES:-}" ]; then
    line devices "$HVDLAB_DEVICES (HVDLAB_DEVICES), each a share of the cores"
else
    line devices "as many as a job has processes here, each a share of the cores (HVDLAB_DEVICES sets another number)"
fi
for extension in avx512f avx2 sse4_1; do
    if grep -qsw "$extension" /proc/cpuinfo; then
        line "vector code" "$extension"
        break
    fi
done
