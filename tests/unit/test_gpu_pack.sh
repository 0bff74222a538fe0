#!/usr/bin/env bash
# The folder of `make gpu-pack`, of one program: in another place, and with nothing of this machine's in sight but the C library,
# its programs find their libraries, its mpirun starts ranks without ssh, and its script says what is missing. (What a pack
# does on a GPU, tests/gpu/run.sh says; no GPU is here.)

. tests/lib.sh
mpirun --version 2>/dev/null | grep -q '(Open MPI) 4\.' || skip "a pack is made of Open MPI 4"
for each in strip nm dpkg; do
    command -v $each >/dev/null || skip "$each is not there"
done
made=$folder/built
mkdir "$made"
cp "$build/replay" "$build/solution_06" "$made/"
for part in gpu_{first,1,2,3}; do
    echo "$part 20 replay : $made/replay tests/golden/cases/mlp_sgd.safetensors --device gpu" >"$made/pack-$part"
done
BUILD=$made TO=$folder/pack succeeds common/scripts/gpu_pack.sh "$made/replay" "$made/solution_06"
mv "$folder/pack" "$folder/moved"
cd "$folder/moved" || exit 1
[[ $(du -sm --apparent-size . | cut -f 1) -lt 40 ]] || fail "a pack of two programs has $(du -sh .)"
[[ -s licenses/openmpi-bin && -s licenses/libhwloc15 && -s licenses/check && -s LICENSE ]] || fail "licenses: $(ls licenses)"
[[ -z $(find . -name 'libcu*' -o -name 'libnccl*') ]] || fail "libraries of NVIDIA's are in it"
here=(env -i HOME="$HOME" PATH=/usr/bin:/bin CUDA_VISIBLE_DEVICES='' LIBRARIES=/usr/local/cuda/lib64)
libraries=$PWD/lib:/usr/local/cuda/lib64
ldd() { LD_LIBRARY_PATH=$libraries command ldd "$1"; }
for each in build/replay mpi/bin/mpirun; do
    ldd $each | awk '$3 ~ /^\// && $3 !~ /\/lib(c|m|rt|dl|util|pthread|resolv)\.so|cuda|nccl|cudnn/ { print $3 }' | grep -v "^$PWD/lib/" >foreign
    [[ ! -s foreign ]] || fail "$each takes libraries of this machine: $(cat foreign)"
done
run "${here[@]}" LD_LIBRARY_PATH="$libraries" OPAL_PREFIX="$PWD/mpi" OMPI_MCA_plm=isolated OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpi/bin/mpirun --oversubscribe -np 2 printenv OMPI_COMM_WORLD_RANK
[[ $status -eq 0 && $(grep -c '^[01]$' "$folder/out") -eq 2 ]] || fail "mpirun: status $status: $(cat "$folder/out" "$folder/err")"
# Here the replay finds no GPU, so all the rest is left out; and without a GPU nothing can be computed.
run "${here[@]}" ./run.sh
[[ $status -eq 1 ]] || fail "run.sh: status $status instead of 1: $(cat "$folder/out" "$folder/err")"
grep -q '^A replay failed' log/summary || fail "run.sh goes on after a replay that failed: $(cat log/summary)"
grep -qE 'no GPU|without CUDA|oneDNN is not in the pack' log/first.log || fail "no reason: $(cat log/first.log)"
run "${here[@]}" ./run.sh 4
[[ $status -eq 2 ]] || fail "run.sh 4: status $status"
# A library that is not there is named, and how to get it.
mkdir -p build/tests/unit
echo 'int nothing(void) { return 0; }' >lib.c
echo 'int nothing(void); int main(void) { return nothing(); }' >main.c
cc -shared -fPIC -Wl,-soname,libnothing.so.1 -o libnothing.so.1 lib.c && cc -o build/tests/unit/test_model main.c libnothing.so.1 ||
    fail "no program with a library of its own"
rm -f libnothing.so.1
run "${here[@]}" ./run.sh look
[[ $status -eq 2 ]] || fail "without a library: status $status"
grep -q '^missing: libnothing.so.1$' log/summary && grep -q 'pip install nvidia-' log/summary ||
    fail "the library that is missing is not named: $(cat log/summary)"
conclude
