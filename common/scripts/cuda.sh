#!/bin/sh
# Usage: cuda.sh flags     what the Makefile needs: nvcc, -I folders, library files, linker options
#        cuda.sh report    a line for each part: what was found and where, or why CUDA is left out
#        cuda.sh missing   the first part that is missing
#        cuda.sh notice    the same as a warning, on a machine with a GPU
#        cuda.sh arch      nvcc's options for the GPUs to build for
#
# Looks for the CUDA toolkit (nvcc, the runtime, cuBLAS), cuDNN and NCCL, each with its header and
# its library. All of them are needed: `flags` prints nothing if one is missing. Status 0 if all are
# there. Where they usually are: the toolkit of the nvcc on PATH, conda's environment, NVIDIA's and
# the distribution's packages, pip's packages.
#
# From the environment: CUDA=0 leaves all of it out; CUDA_HOME, CUDNN_HOME and NCCL_HOME name a part's
# folder, and then no other is looked at; CUDA_ARCH is "all", or numbers such as 80 or "80 90". Tests
# set SYSTEM_FOLDERS, the system's places.

set -u

oldest_cudnn=9

# The folders to look in, best first; no names with spaces. $1 is a pattern, pip's name for the part.
usual_folders()
{
    # The toolkit itself, once it is found: cuDNN and NCCL often lie in it.
    echo "${toolkit:-}"
    if on_path=$(command -v nvcc); then
        on_path=$(readlink -f "$on_path")
        echo "${on_path%/bin/nvcc}"
    fi
    echo "${CONDA_PREFIX:-}" "${SYSTEM_FOLDERS-/usr/local/cuda /opt/cuda /usr /usr/local}"
    for packages in "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}" "${HOME:-}/.local"; do
        # shellcheck disable=SC2086 # a pattern
        [ -z "$packages" ] || echo "$packages"/lib/python3*/site-packages/nvidia/$1
    done
}

# exists FILE...: prints the first that does; else fails.
exists()
{
    for file in "$@"; do
        if [ -e "$file" ]; then
            echo "$file"
            return 0
        fi
    done
    return 1
}

# find_header FOLDER NAME and find_library FOLDER NAME print the file. Toolkits keep them below
# targets/, distributions in folders of the processor's name; pip's libraries have a version only.
find_header()
{
    exists "$1/include/$2" "$1"/targets/*-linux/include/"$2" "$1"/include/*-linux-gnu*/"$2"
}

find_library()
{
    for folder in "$1/lib64" "$1/lib" "$1"/targets/*-linux/lib "$1"/lib/*-linux-gnu*; do
        exists "$folder/lib$2.so" "$folder/lib$2.so".* && return 0
    done
    return 1
}

# find_part PIP HEADER "LIBRARY..." HOME: sets home, header and libraries, or missing. The first folder
# that has all of them is taken. HOME is the folder that the user names, or empty.
find_part()
{
    reason="no $2"
    for home in ${4:-$(usual_folders "$1")}; do
        header=$(find_header "$home" "$2") || continue
        libraries=
        missing=
        for part_library in $3; do
            library=$(find_library "$home" "$part_library") || missing="no lib$part_library.so beside $header"
            libraries="$libraries $library"
        done
        # Only the toolkit has a compiler.
        [ "$2" != cuda_runtime.h ] || [ -x "$home/bin/nvcc" ] || missing="no nvcc in $home/bin"
        [ -n "$missing" ] || return 0
        reason=$missing
    done
    missing="$reason${4:+ in $4}"
    return 1
}

# number MACRO FILE: the number that a header gives to a macro.
number()
{
    sed -n "s/^#define *$1 *\([0-9][0-9]*\).*/\1/p" "$2"
}

# Each finds a part and sets `version`; or sets `missing` and fails.
find_cuda()
{
    find_part 'cu[0-9]*' cuda_runtime.h "cudart cublas" "${CUDA_HOME:-}" || return 1
    toolkit=$home
    nvcc=$home/bin/nvcc
    version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
}

find_cudnn()
{
    find_part cudnn cudnn.h cudnn "${CUDNN_HOME:-}" || return 1
    numbers=${header%/*}/cudnn_version.h
    major=$(number CUDNN_MAJOR "$numbers")
    version=$major.$(number CUDNN_MINOR "$numbers").$(number CUDNN_PATCHLEVEL "$numbers")
    [ "${major:-0}" -ge $oldest_cudnn ] && return 0
    missing="version $version in $home is too old, it must be $oldest_cudnn or later"
    return 1
}

find_nccl()
{
    find_part nccl nccl.h nccl "${NCCL_HOME:-}" || return 1
    version=$(number NCCL_MAJOR "$header").$(number NCCL_MINOR "$header").$(number NCCL_PATCH "$header")
}

# Where the program looks for libraries: in the folders that the user named first, since others may
# hold another version.
print_flags()
{
    flags=
    named=
    found=
    for part in cuda cudnn nccl; do
        find_$part || return 1
        case $part in
        cuda) flags=$nvcc name=${CUDA_HOME:-} ;;
        cudnn) name=${CUDNN_HOME:-} ;;
        nccl) name=${NCCL_HOME:-} ;;
        esac
        folder=${header%/*}
        # Not the system's own: naming it would put it before the compiler's.
        [ "$folder" = /usr/include ] || flags="$flags -I$folder"
        flags="$flags $libraries"
        path=-Wl,-rpath,${library%/*}
        if [ -n "$name" ]; then
            named="$named $path"
        else
            found="$found $path"
        fi
    done
    echo "$flags$named$found"
}

print_missing()
{
    for part in cuda cudnn nccl; do
        find_$part || { echo "$missing" && return; }
    done
}

has_gpu()
{
    nvidia-smi -L 2>/dev/null | grep -q '^GPU'
}

print_notice()
{
    has_gpu && found=$(print_missing) && [ -n "$found" ] || return 0
    echo "hvdlab: there is a GPU, but $found: built for the CPU only; make info says more" >&2
}

print_report()
{
    status=0
    for part in cuda cudnn nccl; do
        case $part in
        cuda) name=CUDA remedy="install the CUDA toolkit, or say CUDA_HOME=folder" ;;
        cudnn) name=cuDNN remedy="install cuDNN $oldest_cudnn, or say CUDNN_HOME=folder" ;;
        nccl) name=NCCL remedy="install NCCL, or say NCCL_HOME=folder" ;;
        esac
        if [ "${CUDA:-}" = 0 ]; then
            echo "$name skipped: CUDA=0. Remedy: drop the setting"
            status=1
        elif find_$part; then
            echo "$name $version in $home"
        else
            echo "$name skipped: $missing. Remedy: $remedy; without it the kit trains on the CPU"
            status=1
        fi
    done
    return $status
}

# knows NUMBER: whether nvcc compiles for GPUs of this capability.
knows()
{
    "$nvcc" --list-gpu-arch | grep -qx "compute_$1"
}

# The numbers of the GPUs here that nvcc knows.
visible_numbers()
{
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -x '[0-9.]*' | tr -d . |
        sort -u | while read -r number; do
        ! knows "$number" || echo "$number"
    done
}

# The GPUs' own machine code if there is a GPU. Else one image in the intermediate language for the
# oldest GPU that nvcc knows, from which the driver makes code for any that is as old or newer.
# Nothing where CUDA_ARCH asks for what nvcc does not know.
print_arch()
{
    find_cuda || return 1
    if [ "${CUDA_ARCH:-}" = all ]; then
        echo "-arch=all"
        return
    fi
    options=
    for number in ${CUDA_ARCH:-$(visible_numbers)}; do
        number=${number#sm_}
        knows "$number" || return 1
        options="$options -gencode arch=compute_$number,code=sm_$number"
    done
    oldest=$("$nvcc" --list-gpu-arch | sort -t _ -k 2n | head -n 1)
    echo "${options:--gencode arch=$oldest,code=$oldest}"
}

case ${1:-} in
flags) [ "${CUDA:-}" != 0 ] && print_flags ;;
missing) print_missing ;;
notice) [ "${CUDA:-}" = 0 ] || print_notice ;;
report) print_report ;;
arch) print_arch ;;
*)
    echo "usage: cuda.sh flags|missing|notice|report|arch" >&2
    exit 2
    ;;
esac
