#!/usr/bin/env bash
# The trainer on GPUs that are not there (README.md): each rank on its own device and on no other,
# no memory at each allocation in turn, devices that can't be seen, and training steps that neither
# allocate nor wait. BUILD is where the kit was built with the stand-in.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVDLAB_TRACE HVD_RANKS_PER_NODE HVD_FUSION_THRESHOLD HVD_TRANSPORT HVD_COMPRESSION \
    CUDA_VISIBLE_DEVICES "${!EMULATED_@}"
export EMULATED_REPORT=$folder/report
small="--data synthetic --images 8 --batch-size 2 --val-batch-size 4 --width 1 --epochs 1 --target-accuracy 1
    --log-dir $folder/logs --loader-threads 1 --deterministic"
export HVDLAB_FLAGS=$small

# run COMMAND...: leaves $status, and out, err and report in the folder.
run()
{
    rm -f "$folder/report"
    timeout 60 "$@" >"$folder/out" 2>"$folder/err" </dev/null
    status=$?
}

# job N PROGRAM WORD...: runs it on N ranks.
job() { run mpirun -np "$1" "$build/$2" "${@:3}"; }

promise() { [[ $status -eq 0 ]] || fail "$1: status $status: $(head -n 3 "$folder/err")"; }

# ---- Devices.

# touched "RANK:DEVICE ..." WORDS: these, and no others, were used; each rank had memory there.
touched()
{
    local found
    promise "$2"
    found=$(sed -nE 's/^rank ([0-9]+) device ([0-9]+) peak [1-9].*/\1:\2/p' "$folder/report" | sort | xargs)
    [[ $found = "$1" && $(wc -l <"$folder/report") -eq $(wc -w <<<"$1") ]] ||
        fail "$2: the ranks should touch $1: $(cat "$folder/report")"
}

# warned N WORDS: that many lines on standard error hold the words.
warned()
{
    [[ $(grep -cF -e "$2" "$folder/err") -eq $1 ]] || fail "not $1 times \"$2\": $(cat "$folder/err")"
}

export EMULATED_DEVICES=4
job 4 solution_06
touched "0:0 1:1 2:2 3:3" "four ranks on four GPUs"
[[ ! -s $folder/err ]] || fail "something on standard error: $(cat "$folder/err")"
job 3 cut/baseline
touched "0:0 1:0 2:0" "ranks that choose no GPU"
CUDA_VISIBLE_DEVICES=2,0 job 2 solution_06
touched "0:2 1:0" "CUDA_VISIBLE_DEVICES=2,0"
CUDA_VISIBLE_DEVICES=0,1 job 3 solution_06
touched "0:0 1:1 2:0" "three ranks on two GPUs"
warned 1 "is not there"
warned 1 "rank 2: device 2 is not there, this node has 2; using device 0"
# Simulated nodes: each has GPUs of its own, as long as there are enough.
export HVD_RANKS_PER_NODE=2
job 4 solution_06
touched "0:0 1:2 2:1 3:3" "two nodes of two ranks on four GPUs"
job 4 cut/baseline
touched "0:0 1:2 2:0 3:2" "ranks of two nodes that choose no GPU"
EMULATED_DEVICES=2 job 4 solution_06
touched "0:0 1:1 2:0 3:1" "two nodes of two ranks on two GPUs"
warned 2 "device 1 is not there, this node has 1; using device 0"
EMULATED_DEVICES=1 job 4 solution_06
touched "0:0 1:0 2:0 3:0" "two nodes on one GPU"
unset HVD_RANKS_PER_NODE
# A context on a GPU that a program does not use would take memory there.
sed 's/create_optimizer, NULL, 0/create_optimizer, (const int[]){1, 2}, 2/' solutions/mirrored.c >"$folder/two.c"
"$build/compile-step" "$folder/two.c" "$folder/two" || fail "mirrored on two of four GPUs does not compile"
HVDLAB_FLAGS='--data synthetic --images 8 --batch-size 4 --epochs 1' run "$folder/two" --device gpu
touched "0:1 0:2" "one process on GPUs 1 and 2 of four"
# GPUs add their gradients up directly, where the machine can; else through the host. The result is the same.
for peers in 1 0; do
    rm -rf "$folder/checkpoints"
    HVDLAB_FLAGS='' EMULATED_DEVICES=2 EMULATED_PEERS=$peers run "$build/mlp" --device gpu --data synthetic --images 640 --epochs 1 \
        --seed 1 --checkpoint-dir "$folder/checkpoints"
    promise "mirrored with EMULATED_PEERS=$peers"
    cp "$folder/out" "$folder/peers-$peers"
    [[ $(grep -c ' staged 0 ' "$folder/report") -eq $((2 * peers)) ]] || fail "EMULATED_PEERS=$peers: $(cat "$folder/report")"
done
# A step of replicas does not wait for the GPUs: they add up, and who wants the loss asks for it.
for images in 640 1280; do
    rm -rf "$folder/checkpoints"
    HVDLAB_FLAGS='' EMULATED_DEVICES=2 run "$build/mlp" --device gpu --data synthetic --images $images --epochs 1 --checkpoint-dir "$folder/checkpoints"
    promise "mirrored, $images images"
    sed -nE 's/.* (device [0-9]+) .* (waits [0-9]+) .*/\1 \2/p' "$folder/report" | sort >"$folder/waits-$images"
done
cmp -s "$folder/waits-640" "$folder/waits-1280" || fail "replicas wait in each step: $(cat "$folder"/waits-*)"
tail -n 1 "$folder/peers-1" | cmp -s - <(tail -n 1 "$folder/peers-0") || fail "mirrored on GPUs that reach each other has another result"
export EMULATED_DEVICES=1

# Functions of the program's own that work in the host's memory: the CPU computes, unless a GPU is asked for. Those of a layer
# get copies.
for exercise in overlap:optimizer_in_pieces zero:optimizer_in_shards reshard:optimizer_in_shards tensor: two_ways:; do
    name=${exercise%:*} call=${exercise#*:}
    "$build/compile-step" "solutions/$name.c" "$folder/$name" || fail "$name does not compile"
    HVDLAB_FLAGS="--data synthetic --images 16 --batch-size 4 --epochs 1" EMULATED_DEVICES=2 run mpirun -np 2 "$folder/$name"
    if [[ ! $call ]]; then
        touched "0:0 1:1" "$name on two GPUs"
        [[ ! -s $folder/err ]] || fail "$name on two GPUs: $(cat "$folder/err")"
        continue
    fi
    promise "$name where there are GPUs"
    [[ $(cat "$folder/err") = "$name: note: $call: its functions work in the host's memory, so the CPU computes" ]] ||
        fail "$name: not one line: $(cat "$folder/err")"
    [[ ! -s $folder/report ]] || fail "$name uses a GPU: $(cat "$folder/report")"
    HVDLAB_FLAGS="--data synthetic --images 16" run "$folder/$name" --device gpu
    [[ $status -eq 2 ]] || fail "$name --device gpu: status $status"
    warned 1 "$name: $call: its functions work in the host's memory, not on a GPU; use --device cpu"
done

# ---- A loss that is no number: looked at when the GPU's sums are, and the step is the first one.

for n in 1 2; do
    job $n solution_06 --base-lr 1e30 --no-shuffle
    [[ $status -eq 1 ]] || fail "a loss that is no number on $n GPUs: status $status: $(cat "$folder/err")"
    [[ $n -eq 1 ]] || at="rank 0: "
    warned 1 "solution_06: ${at-}the loss is nan in epoch 1, step 2, at learning rate 1e+30: "
done

# ---- A training step: what is counted must not depend on how many there are. What the first one
# allocates, and what is read at the end of an epoch, is the same in both runs.

# counted NAME FIELD: the field in each line of that report.
counted() { sed -nE "s/^(rank [0-9]+) .* $2 ([0-9]+).*/\1 \2/p" "$folder/$1" | sort | xargs; }

# steady N PROGRAM WORD...: so on N ranks.
steady()
{
    local images field words
    words="$(env | grep -E '^HVD_' | xargs) ${*:2} on $1 ranks"
    for images in 8 16; do
        job "$@" --images $images
        promise "$words"
        mv "$folder/report" "$folder/report-$images"
    done
    for field in allocations frees host waits; do
        [[ $(counted report-8 $field) = "$(counted report-16 $field)" ]] ||
            fail "$words: $field, with few steps: $(counted report-8 $field), with many: $(counted report-16 $field)"
    done
    [[ $(counted report-8 launches) != "$(counted report-16 launches)" ]] || fail "$words: no more launches"
}

export HVDLAB_FLAGS=${small/--images 8/}
for precision in fp32 tf32 bf16; do
    steady 1 cut/baseline --precision $precision
done
export EMULATED_DEVICES=2
for compression in none bf16; do
    for transport in nccl mpi; do
        HVD_COMPRESSION=$compression HVD_TRANSPORT=$transport steady 2 solution_06
    done
done
export EMULATED_DEVICES=1 HVDLAB_FLAGS=$small

# ---- No memory, at each allocation in turn: status 2, and one line that says what to do.

# allocations COMMAND...: how many the command makes, where all find memory.
allocations()
{
    run "$@"
    promise "$*"
    sed -nE 's/.* allocations ([0-9]+) .* host ([0-9]+) .*/\1 \2/p' "$folder/report" |
        awk '{ sum += $1 + $2 } END { print sum + 0 }'
}

# One line, and what it says.
advice=$'^[^\n]*out of (GPU|the host.s) memory[^\n]*; [^\n]*(--batch-size|--width)[^\n]*$'

# refusals COMMAND...: lets each allocation fail; leaves in $refused how many end the program. Those
# that it can do without must not keep it from its end.
refusals()
{
    local n total
    total=$(allocations "$@")
    refused=0
    [[ $total -gt 5 ]] || fail "$*: only $total allocations"
    for ((n = 1; n <= total; n++)); do
        EMULATED_FAIL_ALLOCATION=$n run "$@"
        [[ $status -ne 0 ]] || continue
        refused=$((refused + 1))
        [[ $status -eq 2 && $(cat "$folder/err") =~ $advice ]] ||
            fail "no memory at allocation $n of $total: $*: status $status: $(cat "$folder/err")"
    done
}

refusals "$build/cut/baseline"
[[ $refused -eq $(allocations "$build/cut/baseline") ]] ||
    fail "$refused of $(allocations "$build/cut/baseline") allocations are needed"
# Where cuDNN measures its algorithms, the workspace to measure in is one that it can do without: one for each of two
# convolutions.
case=tests/golden/cases/lenet_sgd.safetensors
refusals "$build/replay" $case --device gpu
optional=$(($(allocations "$build/replay" $case --device gpu) - refused))
[[ $optional -eq 2 ]] || fail "$optional allocations of the replay are not needed, instead of 2"

# on_rank R NAME=VALUE COMMAND: that setting on one rank alone. (mpirun's own way, programs with colons
# between, crashes Open MPI 5.0.7's.)
cat >"$folder/on_rank" <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" != "$1" ] || export "$2"
shift 2
exec "$@"
END
chmod +x "$folder/on_rank"

# Under mpirun, on one rank and on both; the last one is in the first step, where the ranks meet.
export EMULATED_DEVICES=2
for setting in HVD_TRANSPORT=nccl HVD_COMPRESSION=bf16 HVD_TRANSPORT=mpi; do
    export "${setting?}"
    total=$(allocations mpirun -np 2 "$folder/on_rank" 1 EMULATED_REPORT= "$build/solution_06")
    run mpirun -np 2 "$folder/on_rank" 1 "EMULATED_FAIL_ALLOCATION=$total" "$build/solution_06"
    [[ $status -eq 2 ]] || fail "$setting, no memory at the last allocation on rank 1: status $status"
    warned 1 "rank 1: out of "
    EMULATED_FAIL_ALLOCATION=$total run mpirun -np 2 "$build/solution_06"
    [[ $status -eq 2 ]] || fail "$setting, no memory at the last allocation: status $status"
    warned 1 ": out of "
    unset "${setting%=*}"
done
export EMULATED_DEVICES=1

# ---- No GPU, or none that can be seen.

# on_cpu WORDS: the trainer works, and says nothing; no GPU was touched.
on_cpu()
{
    run "$build/cut/baseline"
    promise "$1"
    [[ ! -s $folder/err && ! -s $folder/report ]] || fail "$1: $(cat "$folder/err" "$folder/report")"
}

CUDA_VISIBLE_DEVICES='' on_cpu "CUDA_VISIBLE_DEVICES="
EMULATED_DEVICES=0 on_cpu "no GPU"
EMULATED_DRIVER=0 on_cpu "no driver"
EMULATED_DRIVER=0 CUDA_VISIBLE_DEVICES=0,1 on_cpu "no driver, and CUDA_VISIBLE_DEVICES of another machine"
CUDA_VISIBLE_DEVICES=7 refused "CUDA_VISIBLE_DEVICES=7 names no GPU that is there" "$build/cut/baseline"
CUDA_VISIBLE_DEVICES=7 refused "CUDA_VISIBLE_DEVICES=7 names no GPU that is there" "$build/replay" $case
CUDA_VISIBLE_DEVICES='' refused "--device gpu: no GPU can be used" "$build/cut/baseline" --device gpu
EMULATED_DEVICES=0 refused "--device gpu: no GPU can be used" "$build/cut/baseline" --device gpu
EMULATED_DRIVER=0 refused "--device gpu: no GPU can be used" "$build/cut/baseline" --device gpu
EMULATED_CAPABILITY=7.5 refused "--precision bf16 needs a GPU of compute capability 8.0" "$build/cut/baseline" --precision bf16
CUDA_VISIBLE_DEVICES=7 job 2 solution_06
[[ $status -eq 2 ]] || fail "CUDA_VISIBLE_DEVICES=7 on 2 ranks: status $status"
warned 1 "CUDA_VISIBLE_DEVICES=7 names no GPU that is there"

# A server on the CPU keeps the weights in another order than a worker on a GPU.
"$build/compile-step" labs/08-parameter-server/lenet_ps.c "$folder/lenet_ps" || fail "lenet_ps does not compile"
cat >"$folder/server_on_cpu" <<'END'
#!/bin/sh
[ "$HVD_ROLE" != server:0 ] || export CUDA_VISIBLE_DEVICES=
exec "$@"
END
chmod +x "$folder/server_on_cpu"
HVD_START_SECONDS=5 run common/scripts/servers.sh 1 1 "$folder/server_on_cpu" "$folder/lenet_ps"
[[ $status -ne 0 ]] || fail "a server on the CPU takes a worker on a GPU"
warned 1 "refuses this worker: its model has other variables, or only one of both is on a GPU"

# with_conv2d FILTERS: makes $folder/odd, shard with a model of one convolution.
with_conv2d()
{
    sed "s/create_lenet(16, 64)/odd/
        s/^    Model \*model = compile/    Tensor x = input(28, 28, 1);\n    Model *odd = model(x, softmax(dense(flatten(conv2d(x, $1, 3)), 10)));\n&/" \
        solutions/shard.c >"$folder/odd.c"
    "$build/compile-step" "$folder/odd.c" "$folder/odd" 2>"$folder/err" || fail "$1 channels: $(cat "$folder/err")"
}

# More than cuDNN counts.
with_conv2d 1024
HVDLAB_FLAGS="--data synthetic --images 2700 --batch-size 2700 --deterministic" EMULATED_MEMORY=$((8 << 30)) run "$folder/odd" --device gpu
[[ $status -eq 2 ]] || fail "a batch of 2700: status $status"
warned 1 "a convolution's images are 2167603200 numbers, and cuDNN takes 2147483647; a smaller --batch-size"

# A layer that cuDNN has no algorithm for: it is named, with its shape. (Tensor cores want rows of 16 bytes.)
with_conv2d 12
HVDLAB_FLAGS="$small --precision bf16" EMULATED_CHANNELS=8 run "$folder/odd" --device gpu
[[ $status -eq 2 ]] || fail "12 channels in bf16: status $status: $(cat "$folder/err")"
warned 1 "algorithm that runs for conv2d/kernel: images of 28x28x1 to 12 channels, size 3, batch 2; try --precision fp32"

# A benchmark of kernels that were compiled for another GPU would say nothing.
EMULATED_PTX=75 run "$build/bench" --gpu --quick --out "$folder/bench.json"
[[ $status -eq 2 ]] || fail "a benchmark of an older form of the kernels: status $status"
warned 1 "bench: the kernels were compiled for GPUs of capability 7.5, where bfloat16 is emulated"

# A kernel that fails shows later, in whatever call comes next, and in every one after it.
EMULATED_FAIL_LAUNCH=40 run "$build/cut/baseline"
[[ $status -ne 0 ]] || fail "a kernel failed, and the program ended well"
warned 1 "an illegal memory access was encountered"

conclude
