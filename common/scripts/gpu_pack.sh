#!/usr/bin/env bash
# Usage: gpu_pack.sh PROGRAM...    makes the folder of `make gpu-pack`, TO (build/gpu-pack)
#
# A folder to copy to a GPU machine that has neither MPI nor oneDNN nor hwloc, cJSON, Check: programs, the libraries that they
# need (not the C library's, and none of NVIDIA's), Open MPI's launcher, the golden cases, 10,000 images, and tests/gpu/run.sh,
# which says how it is used. In BUILD are the programs, and pack-NAME, the tests of each part.
#
# oneDNN is 38 MB, and only computes on CPUs: in its place is a library of its functions' names, each of which says so.

set -eu
goal="make gpu-pack"
. common/scripts/folders.sh
build=${BUILD:-build}
target=${TO:-build/gpu-pack}
max_mib=60
mpirun --version 2>/dev/null | grep -q '(Open MPI) 4\.' ||
    refuse "it packs Open MPI 4 (Debian 12's); here is $(mpirun --version 2>/dev/null | head -n 1)"
trap 'rm -rf "$fresh"' EXIT
begin_folder "$target"
to=$fresh
mkdir -p "$to"/{lib,licenses,parts,data,build,mpi/bin}

# ---- Programs and tests, at the same paths as in the kit.

for program; do
    mkdir -p "$to/build/$(dirname "${program#"$build"/}")"
    strip --strip-debug -o "$to/build/${program#"$build"/}" "$program"
done
mkdir -p "$to"/{common/scripts,tests/gpu,tests/golden}
cp common/scripts/mpi.sh common/scripts/cores.sh "$to/common/scripts/"
cp tests/run.sh tests/lib.sh tests/limit.sh "$to/tests/"
cp tests/gpu/test_gpu.sh "$to/tests/gpu/"
cp -R tests/golden/cases "$to/tests/golden/"
cp tests/gpu/run.sh "$to/run.sh"
cp LICENSE "$to/"
for part in "$build"/pack-*; do
    sed "s#$build/#build/#g" "$part" >"$to/parts/${part##*/pack-}"
done

# ---- Images: the first 10,000 of each set. (A file's header: what it is, how many, 28 x 28.)

folder=/usr/share/datasets/fashion-mnist
[[ -d $folder ]] || folder=data
gzip --test "$folder"/{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz || refuse "the four files of Fashion-MNIST are not in $folder, or are damaged: make data"
for set in train t10k; do
    { printf '\0\0\010\003\0\0\047\020\0\0\0\034\0\0\0\034' &&
        zcat "$folder/$set-images-idx3-ubyte.gz" | tail -c +17 | head -c 7840000; } | gzip -n >"$to/data/$set-images-idx3-ubyte.gz"
    { printf '\0\0\010\001\0\0\047\020' &&
        zcat "$folder/$set-labels-idx1-ubyte.gz" | tail -c +9 | head -c 10000; } | gzip -n >"$to/data/$set-labels-idx1-ubyte.gz"
done

# ---- Open MPI, moved: with OPAL_PREFIX it looks for everything below that folder. Without the parts for fast networks.

plugins=$(ompi_info --path pkglibdir --parsable | cut -d : -f 3)
relative=${plugins#/usr/}
mkdir -p "$to/mpi/$relative" "$to/mpi/share/openmpi"
for plugin in "$plugins"/mca_*.so; do
    case $plugin in
    *ucx* | *ofi* | *psm* | *openib* | *monitoring* | *netlink* | */mca_atomic* | */mca_memheap* | */mca_scoll_* | */mca_spml_* | */mca_sshmem_*) ;;
    *) cp "$plugin" "$to/mpi/$relative/" ;;
    esac
done
cp "$(readlink -f "$(command -v mpirun)")" "$to/mpi/bin/mpirun"
cp "$(command -v orted)" "$to/mpi/bin/"
cp "$(ompi_info --path pkgdatadir --parsable | cut -d : -f 3)"/help-*.txt "$to/mpi/share/openmpi/"

# ---- Libraries, and their licenses.

license() # FILE
{
    local package
    package=$({ dpkg -S "$1" || dpkg -S "${1#/usr}"; } 2>/dev/null | head -n 1 | cut -d : -f 1)
    [[ -z $package || -e $to/licenses/$package ]] || cp -L "/usr/share/doc/$package/copyright" "$to/licenses/$package"
}
needed()
{
    find "$to/build" "$to/mpi" -type f -exec ldd {} + 2>/dev/null | sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' | sort -u
}
while read -r name file; do
    case $name in
    libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | libutil.so* | libresolv.so*) ;; # the machine's own
    libcuda* | libcudnn* | libcublas* | libnccl*) echo "$name" >>"$to/parts/nvidia" ;;
    libdnnl.so*) onednn=$name ;;
    *)
        cp -L "$file" "$to/lib/$name"
        license "$(readlink -f "$file")"
        ;;
    esac
done < <(needed)
license "$(readlink -f "$(command -v mpirun)")"
license "$(readlink -f "$(${CC:-cc} -print-file-name=libcheck.a)")" # linked into the unit tests

{
    echo '#include <stdio.h>'
    echo '#include <stdlib.h>'
    # (The benchmark says which version there is, and for which processor.)
    printf 'const void *dnnl_version(void)\n{\n    static const int none[16];\n    return none;\n}\n'
    printf 'int dnnl_get_effective_cpu_isa(void)\n{\n    return 0;\n}\n'
    find "$to/build" -type f -exec nm -D --undefined-only {} + 2>/dev/null | sed -n 's/.* U \(dnnl_[a-z0-9_]*\).*/\1/p' | sort -u |
        grep -vxE 'dnnl_version|dnnl_get_effective_cpu_isa' |
        while read -r function; do
            printf 'int %s(void)\n{\n    fprintf(stderr, "this program computes on GPUs only: oneDNN is not in the pack (%%s)\\n", __func__);\n    exit(2);\n}\n' "$function"
        done
} >"$build/no_onednn.c"
${CC:-cc} -shared -fPIC -Wl,-soname,"$onednn" -o "$to/lib/$onednn" "$build/no_onednn.c"

# What pip calls them, for the CUDA that the programs were built with.
cuda=$(sed -n 's/^libcudart\.so\.//p' "$to/parts/nvidia" 2>/dev/null || true)
if [[ ${cuda:-0} -ge 13 ]]; then
    echo "nvidia-cuda-runtime nvidia-cublas nvidia-cudnn-cu$cuda nvidia-nccl-cu$cuda"
else
    echo "nvidia-cuda-runtime-cu${cuda:-12} nvidia-cublas-cu${cuda:-12} nvidia-cudnn-cu${cuda:-12} nvidia-nccl-cu${cuda:-12}"
fi >"$to/parts/pip"

mib=$(du -sm --apparent-size "$to" | cut -f 1)
[[ $mib -le $max_mib ]] || refuse "the pack has $mib MiB, more than $max_mib"
end_folder "$target"
echo "make gpu-pack: $target, $mib MiB: copy it to the GPU machine, and type ./run.sh in it"
