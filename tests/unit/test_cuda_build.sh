#!/usr/bin/env bash
# CUDA where it is found: the places in which cuda.sh looks, as empty files laid out like the
# packages'; and a program that was built with CUDA on a machine without a GPU. BUILD is where the kit
# was built.

. tests/lib.sh
unset CUDA_VISIBLE_DEVICES

# ---- Where it looks. Nothing of this machine's own CUDA may be seen.

# toolkit FOLDER HEADERS LIBRARIES VERSION-OF-LIBRARIES: with a compiler that answers as nvcc does.
toolkit()
{
    mkdir -p "$1/bin" "$1/$2" "$1/$3"
    # shellcheck disable=SC2016 # for the other shell
    printf '#!/bin/sh\ncase $1 in --version) echo "release 12.4, V12.4" ;; *) printf "compute_%%s\\n" 100 50 80 86 90 ;; esac\n' \
        >"$1/bin/nvcc"
    chmod +x "$1/bin/nvcc"
    touch "$1/$2/cuda_runtime.h" "$1/$3/libcudart.so$4" "$1/$3/libcublas.so$4"
}

# cudnn FOLDER HEADERS LIBRARIES VERSION-OF-LIBRARIES [MAJOR], and nccl likewise.
cudnn()
{
    mkdir -p "$1/$2" "$1/$3"
    touch "$1/$2/cudnn.h" "$1/$3/libcudnn.so$4"
    printf '#define CUDNN_%s\n' "MAJOR ${5:-9}" "MINOR 1" "PATCHLEVEL 2" >"$1/$2/cudnn_version.h"
}

nccl()
{
    mkdir -p "$1/$2" "$1/$3"
    touch "$1/$3/libnccl.so$4"
    printf '#define NCCL_%s\n' "MAJOR 2" "MINOR 20" "PATCH 3" >"$1/$2/nccl.h"
}

# ask SETTING... WORD: what cuda.sh says in an environment of these settings alone.
ask()
{
    env -i PATH="$tools" HOME="$folder/home" SYSTEM_FOLDERS= "${@:1:$#-1}" common/scripts/cuda.sh "${@: -1}" 2>&1
}

# The system's own programs, but no nvcc and no nvidia-smi.
tools=$folder/tools
mkdir "$tools"
for program in sh env sed sort head grep tr readlink; do
    ln -s "$(command -v $program)" "$tools/$program"
done

# finds FOLDERS... -- SETTING...: all parts are found, in these three folders.
finds()
{
    local want=
    for part in CUDA cuDNN NCCL; do
        want+="$part in $1 "
        shift
    done
    shift
    local found flags file
    found=$(ask "$@" report | sed 's/ [0-9.]* in / in /' | tr '\n' ' ')
    [[ $found == "$want" ]] || fail "($*) finds $found instead of $want"
    flags=$(ask "$@" flags) || fail "($*) no flags"
    for file in $flags; do
        file=${file#-I}
        [[ -e ${file#-Wl,-rpath,} ]] || fail "($*) no such file: $file"
    done
    [[ $(wc -w <<<"$flags") -eq 11 ]] || fail "($*) not 11 flags: $flags"
}

# lacks WORDS SETTING...: it says what is missing, and gives no flags.
lacks()
{
    local words=$1 found
    shift
    found=$(ask "$@" missing)
    [[ $found == "$words" ]] || fail "($*) \"$found\" instead of \"$words\""
    [[ -z $(ask "$@" flags) ]] || fail "($*) flags although $words"
}

targets=targets/x86_64-linux
multiarch=x86_64-linux-gnu
toolkit "$folder/local" include lib64 ''
cudnn "$folder/local" include lib64 ''
nccl "$folder/local" include lib64 ''
toolkit "$folder/conda" $targets/include $targets/lib ''
cudnn "$folder/conda" include lib ''
nccl "$folder/conda" include lib ''
toolkit "$folder/debian" include lib/$multiarch ''
cudnn "$folder/debian" include/$multiarch lib/$multiarch ''
nccl "$folder/debian" include lib/$multiarch ''
packages=$folder/venv/lib/python3.12/site-packages/nvidia
toolkit "$packages/cu13" include lib .13
cudnn "$packages/cudnn" include lib .9
nccl "$packages/nccl" include lib .2
mkdir "$folder/path"
ln -s "$folder/local/bin/nvcc" "$folder/path/nvcc"

for place in local debian; do
    finds "$folder/$place" "$folder/$place" "$folder/$place" -- SYSTEM_FOLDERS="$folder/$place"
    finds "$folder/$place" "$folder/$place" "$folder/$place" -- CUDA_HOME="$folder/$place"
done
finds "$folder/conda" "$folder/conda" "$folder/conda" -- CONDA_PREFIX="$folder/conda" SYSTEM_FOLDERS="$folder/local"
finds "$packages/cu13" "$packages/cudnn" "$packages/nccl" -- VIRTUAL_ENV="$folder/venv"
finds "$folder/local" "$folder/local" "$folder/local" -- PATH="$folder/path:$tools"
finds "$folder/local" "$packages/cudnn" "$folder/conda" -- \
    CUDA_HOME="$folder/local" CUDNN_HOME="$packages/cudnn" NCCL_HOME="$folder/conda"

# The folders that were named come first, for the loader too.
paths=$(ask SYSTEM_FOLDERS="$folder/local" NCCL_HOME="$folder/conda" flags | tr ' ' '\n' | grep rpath | head -n 1)
[[ $paths == "-Wl,-rpath,$folder/conda/lib" ]] || fail "NCCL_HOME is not looked at first: $paths"

all=$(ask CUDA_HOME="$folder/local" flags)
[[ -n $all && -z $(ask CUDA=0 CUDA_HOME="$folder/local" flags) ]] || fail "CUDA=0 does not leave CUDA out"

lacks "no cuda_runtime.h"
lacks "no cuda_runtime.h in $folder/home" CUDA_HOME="$folder/home" SYSTEM_FOLDERS="$folder/local"
rm "$folder/debian/bin/nvcc" "$folder/conda/$targets/lib/libcublas.so"
lacks "no nvcc in $folder/debian/bin" SYSTEM_FOLDERS="$folder/debian"
lacks "no libcublas.so beside $folder/conda/$targets/include/cuda_runtime.h" CONDA_PREFIX="$folder/conda"
rm "$folder/local/include/nccl.h"
lacks "no nccl.h" SYSTEM_FOLDERS="$folder/local"
cudnn "$folder/local" include lib64 '' 8
lacks "version 8.1.2 in $folder/local is too old, it must be 9 or later" SYSTEM_FOLDERS="$folder/local"

# arch WANT SETTING...: what nvcc is told to compile for.
arch()
{
    local found
    found=$(ask CUDA_HOME="$folder/local" "${@:2}" arch)
    [[ $found == "$1" ]] || fail "(${*:2}) builds for $found instead of $1"
}

arch "-gencode arch=compute_50,code=compute_50" # the oldest, not the first or the smallest text
arch "-arch=all" CUDA_ARCH=all
arch " -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90" CUDA_ARCH="80 sm_90"
arch "" CUDA_ARCH="80 9"
arch "" CUDA_ARCH=native
# smi TEXT: what nvidia-smi says of the GPUs here.
smi()
{
    printf '#!/bin/sh\nprintf "%s"\n' "$1" >"$tools/nvidia-smi"
    chmod +x "$tools/nvidia-smi"
}
smi '9.0\n8.6\n9.0\n'
arch " -gencode arch=compute_86,code=sm_86 -gencode arch=compute_90,code=sm_90"
# One that is older or newer than nvcc.
smi '12.1\n9.0\n'
arch " -gencode arch=compute_90,code=sm_90"
smi '12.1\n'
arch "-gencode arch=compute_50,code=compute_50"
smi 'NVIDIA-SMI has failed\n'
arch "-gencode arch=compute_50,code=compute_50"

# ---- Without a GPU a program that was built with CUDA uses the CPU.

if [[ -z $(common/scripts/cuda.sh flags) ]]; then
    echo "no CUDA on this machine: only the search was tested"
elif nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    echo "this machine has a GPU: only the search was tested"
else
    case=tests/golden/cases/mlp_sgd.safetensors
    ldd "$build/replay" | grep -q libcudnn || fail "replay is built without CUDA"
    # Names of GPUs are left over from another machine where there is no driver.
    for names in '' 0 7; do
        CUDA_VISIBLE_DEVICES=$names "$build/replay" $case >/dev/null || fail "CUDA_VISIBLE_DEVICES=$names: status $?"
    done
    "$build/replay" $case --device gpu >"$folder/out" 2>"$folder/err"
    [[ $? -eq 2 && $(wc -l <"$folder/err") -eq 1 ]] || fail "--device gpu: $(cat "$folder/err")"
    grep -q "no GPU can be used: there is no NVIDIA driver on this machine; leave the flag out" "$folder/err" ||
        fail "--device gpu: $(cat "$folder/err")"
fi

conclude
