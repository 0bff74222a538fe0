#!/usr/bin/env bash
# hvd on GPUs that are not there (README.md): every transport and compression on 1, 2 and 4 ranks,
# each rank on its own device and on no other; the choice between them, and one clear line for what
# can't be done. BUILD is where the kit was built with the stand-in.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_FUSION_THRESHOLD HVD_TRANSPORT HVD_HIERARCHICAL HVD_COMPRESSION \
    CUDA_VISIBLE_DEVICES "${!EMULATED_@}"
export EMULATED_REPORT=$folder/report HVDLAB_TRACE=$folder/trace

# job N PROGRAM WORD...: runs it on N ranks.
job()
{
    rm -rf "$folder/trace" "$folder/report"
    timeout 100 mpirun -np "$1" "$build/$2" "${@:3}" >"$folder/out" 2>"$folder/err" </dev/null
}

# promises N WORDS: hvd's test on N ranks, where "auto" means the transport with these words.
promises()
{
    job "$1" tests/mpi/test_hvd || fail "$(env | grep -E '^(HVD|EMULATED)_' | tr '\n' ' ') $1 ranks: $(head -n 3 "$folder/err")"
    [[ $1 -eq 1 ]] || grep -qF "\"name\":\"$2\"" "$folder/trace/rank-0.jsonl" || fail "$1 ranks: the transport is not $2"
}

# own_devices N: rank r used device r and no other.
own_devices()
{
    if [[ $(sort -u "$folder/report" | wc -l) -ne $1 ]] || grep -qvE '^rank ([0-9]+) device \1 ' "$folder/report"; then
        fail "$1 ranks are not on $1 devices: $(cat "$folder/report")"
    fi
}

# refused N WORDS: status 2, and one line on standard error that holds the words.
refused()
{
    job "$1" tests/mpi/test_hvd
    local status=$?
    [[ $status -eq 2 ]] || fail "status $status instead of 2: $2"
    [[ $(grep -cF "$2" "$folder/err") -eq 1 ]] || fail "\"$2\" not once in: $(cat "$folder/err")"
}

copies="mpi, copies of the GPU's memory"
for ranks in 1 2 4; do
    export EMULATED_DEVICES=$ranks
    promises $ranks nccl
    own_devices $ranks
    HVD_TRANSPORT=mpi promises $ranks "$copies"
    own_devices $ranks
done
export EMULATED_DEVICES=2
# Also with streams that wait for nothing they need not wait for.
for streams in '' lazy race; do
    HVD_COMPRESSION=bf16 EMULATED_STREAMS=$streams promises 2 nccl
    EMULATED_STREAMS=$streams HVD_TRANSPORT=mpi promises 2 "$copies"
done
HVD_COMPRESSION=bf16 HVD_TRANSPORT=mpi promises 2 "$copies"
EMULATED_CUDA_AWARE_MPI=1 EMULATED_HOST_ACCESS=1 HVD_TRANSPORT=mpi promises 2 "mpi, the GPU's memory"
# Simulated nodes: each has GPUs of its own, if there are enough. Between them MPI goes by two levels, unless it may not.
export HVD_RANKS_PER_NODE=1
promises 2 nccl
HVD_TRANSPORT=mpi HVD_HIERARCHICAL=1 EMULATED_CUDA_AWARE_MPI=1 EMULATED_HOST_ACCESS=1 promises 2 "$copies"
grep -q '"two_levels","name":"gradients"' "$folder/trace/rank-0.jsonl" || fail "gradients from GPUs don't go by two levels"
HVD_TRANSPORT=mpi HVD_HIERARCHICAL=0 EMULATED_CUDA_AWARE_MPI=1 EMULATED_HOST_ACCESS=1 promises 2 "mpi, the GPU's memory"
unset HVD_RANKS_PER_NODE

# More ranks than GPUs, and an NCCL that does not start: MPI, and one line that says so.
EMULATED_DEVICES=1 promises 3 "$copies"
[[ $(grep -c "ranks 0 and 1 share a GPU, so gradients travel through MPI" "$folder/err") -eq 1 ]] ||
    fail "not one warning of a shared GPU: $(cat "$folder/err")"
for broken in 0 others; do
    EMULATED_NCCL=$broken promises 2 "$copies"
done
[[ $(grep -c "NCCL does not start: unhandled system error (NCCL_DEBUG=WARN says more), so gradients travel through MPI" "$folder/err") -eq 1 ]] ||
    fail "not one warning of an NCCL that does not start: $(cat "$folder/err")"
EMULATED_DEVICES=0 promises 2 mpi

# What can't be done.
for ranks in 1 2; do
    HVD_TRANSPORT=gpu refused $ranks "HVD_TRANSPORT=gpu is not auto, nccl or mpi"
    HVD_COMPRESSION=fp16 refused $ranks "HVD_COMPRESSION=fp16 is not none or bf16"
done
EMULATED_DEVICES=1 HVD_TRANSPORT=nccl refused 2 "HVD_TRANSPORT=nccl: ranks 0 and 1 share a GPU"
EMULATED_NCCL=stuck refused 2 "rank 1: NCCL does not start on this rank: unhandled system error; HVD_TRANSPORT=mpi does without it"
EMULATED_NCCL=0 HVD_TRANSPORT=nccl refused 2 "HVD_TRANSPORT=nccl: NCCL does not start"
CUDA_VISIBLE_DEVICES='' HVD_TRANSPORT=nccl refused 2 "HVD_TRANSPORT=nccl needs a GPU for every worker"

# A rank that is lost later.
! EMULATED_NCCL=async job 2 replay tests/golden/cases/lenet_momentum.safetensors || fail "NCCL lost a rank, and the job ended well"
grep -q "remote process exited" "$folder/err" || fail "NCCL lost a rank: $(cat "$folder/err")"

# N ranks on N devices make the updates of one process.
for transport in nccl mpi; do
    for case in mlp_sgd mlp_adam lenet_momentum; do
        HVD_TRANSPORT=$transport job 2 replay --precision fp32 --tolerance 1e-5 "tests/golden/cases/$case.safetensors" ||
            fail "$case on 2 ranks, $transport: $(cat "$folder/out" "$folder/err")"
    done
done

# NCCL of the stand-in itself.
for ranks in 1 2 4; do
    EMULATED_DEVICES=4 job $ranks tests/emulated/test_emulated nccl || fail "nccl on $ranks ranks: $(cat "$folder/err")"
    EMULATED_DEVICES=4 job $ranks tests/emulated/test_emulated nccl duplicate ||
        fail "two ranks on one device, $ranks ranks: $(cat "$folder/err")"
done

conclude
