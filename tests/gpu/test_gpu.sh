#!/usr/bin/env bash
# Usage: tests/gpu/test_gpu.sh losses|deterministic|accuracy|refusals|profile|pinning|memcheck|racecheck
#
# What the programs in BUILD promise on a GPU, beyond what they promise everywhere: each word is a
# test. Status 77, after a line that says why, where this machine can't run it.

. tests/lib.sh
limit=120
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVDLAB_FLAGS HVDLAB_TRACE "${!HVD_@}"
small=(--data synthetic --images 64 --batch-size 16 --val-batch-size 32 --width 1 --epochs 1 --log-dir "$folder/logs")

# ---- A model's loss in the arithmetic of tensor cores, in every golden case. Only before the first
# update: gradients may differ more, where a ReLU lets a value through here and not there.

losses()
{
    local case precision tolerance
    while read -r precision tolerance; do
        for case in tests/golden/cases/*.safetensors; do
            rm -f "$folder/computed"
            "$build/replay" "$case" --device gpu --precision "$precision" --out "$folder/computed" >"$folder/out" 2>&1
            [[ -s $folder/computed ]] || { fail "$case, $precision: $(cat "$folder/out")"; continue; }
            echo "$(first_loss "$folder/computed") $(first_loss "$case") $tolerance" |
                awk '{ d = $1 - $2; exit !(d <= $3 * $2 && -d <= $3 * $2) }' ||
                fail "$case, $precision: the loss is $(first_loss "$folder/computed") instead of $(first_loss "$case")"
        done
    done <<<"tf32 2e-3
bf16 2e-2"
}

# ---- With --deterministic the same seed gives the same bits: the fingerprints of all weights after each step.

fingerprints()
{
    rm -rf "$folder/trace"
    HVDLAB_TRACE=$folder/trace "$build/cut/baseline" "${small[@]}" --seed 1 --device gpu --deterministic --precision "$1" \
        >"$folder/out" 2>"$folder/err" || fail "$1: status $?: $(cat "$folder/err")"
    sed -n 's/.*"event":"step".*\("weights":[^,}]*\).*/\1/p' "$folder/trace/rank-0.jsonl"
}

deterministic()
{
    local precision first
    for precision in fp32 tf32 bf16; do
        first=$(fingerprints $precision)
        [[ -n $first ]] || fail "$precision: no fingerprints in the trace"
        [[ $first == "$(fingerprints $precision)" ]] || fail "$precision: two trainings with one seed differ"
    done
}

# ---- Where a step's time goes, by NVIDIA's tools, if they are there.

profile()
{
    local tool words=("$build/cut/baseline" "${small[@]}" --device gpu)
    PATH=$PATH:/usr/local/cuda/bin
    if tool=$(command -v nsys); then
        "$tool" profile --stats=true --force-overwrite=true -o "$folder/profile" "${words[@]}" 2>&1 || fail "nsys: status $?"
    elif tool=$(command -v ncu); then
        "$tool" --launch-skip 200 --launch-count 60 "${words[@]}" 2>&1 || fail "ncu: status $?"
    else
        skip "neither nsys nor ncu is here"
    fi
}

# ---- Training on real images comes to the accuracy that the CPU comes to. The same seed draws the
# same images; another order of sums leads to other weights in the end.

# trained WORD...: the accuracy on the test images.
trained()
{
    "$build/cut/baseline" --seed 1 --width 1 --images 6000 --epochs 3 --batch-size 16 --target-accuracy 1 \
        --log-dir "$folder/logs" "$@" >"$folder/out" 2>"$folder/err" || fail "$*: status $?: $(cat "$folder/err")"
    awk '/^Test accuracy:/ { print $3 }' "$folder/out"
}

accuracy()
{
    local cpu gpu precision band=0.05
    cpu=$(trained --device cpu)
    for precision in fp32 tf32 bf16; do
        gpu=$(trained --device gpu --precision "$precision")
        awk "BEGIN { d = ${gpu:-9} - ${cpu:-0}; exit !(d < $band && d > -$band && ${cpu:-0} > 0.5) }" ||
            fail "$precision: accuracy ${gpu:-?} on the GPU, ${cpu:-?} on the CPU"
        echo "$precision: accuracy $gpu, on the CPU $cpu"
    done
}

# ---- What can't be done: status 2, and one line that holds the words.

refusals()
{
    local baseline=$build/cut/baseline
    # More than cuDNN can count; and 160 GB in all. Measuring its algorithms would take minutes.
    local large=(--data synthetic --width 64 --epochs 1 --deterministic --log-dir "$folder/logs")
    refused "a smaller --batch-size or --width" "$baseline" "${large[@]}" --batch-size 6000
    refused "out of GPU memory" "$baseline" "${large[@]}" --batch-size 2600
    CUDA_VISIBLE_DEVICES=7777 refused "CUDA_VISIBLE_DEVICES=7777 names no GPU that is there" "$baseline" "${small[@]}"
    CUDA_VISIBLE_DEVICES='' refused "--device gpu: no GPU can be used" "$baseline" "${small[@]}" --device gpu
    # The CPU, without a word. (Programs of a pack compute on GPUs only.)
    if [[ -z ${HVDLAB_PACK:-} ]]; then
        CUDA_VISIBLE_DEVICES='' HVDLAB_TRACE=$folder/trace "$baseline" "${small[@]}" >"$folder/out" 2>"$folder/err" ||
            fail "CUDA_VISIBLE_DEVICES=: status $?"
        [[ ! -s $folder/err ]] || fail "CUDA_VISIBLE_DEVICES=: $(cat "$folder/err")"
        grep -q '"kind":"cpu"' "$folder/trace/rank-0.jsonl" || fail "CUDA_VISIBLE_DEVICES=: not on the CPU"
    fi
    # More ranks than GPUs: the last one shares, and says so.
    local ranks=$(($(sed -n 's/.*"devices":\([0-9]*\).*/\1/p' <(trace_device)) + 1))
    timeout 120 mpirun -np "$ranks" "$build/solution_06" "${small[@]}" >"$folder/out" 2>"$folder/err" ||
        fail "$ranks ranks: status $?: $(cat "$folder/err")"
    [[ $(grep -c "rank $((ranks - 1)): device $((ranks - 1)) is not there" "$folder/err") -eq 1 ]] ||
        fail "no warning of a GPU that is not there: $(cat "$folder/err")"
}

# The event that tells how many GPUs a process sees.
trace_device()
{
    HVDLAB_TRACE=$folder/seen "$build/cut/baseline" "${small[@]}" --device gpu >"$folder/out" 2>&1
    grep '"event":"device"' "$folder/seen/rank-0.jsonl"
}

# ---- Two ranks: each takes memory on its own GPU; where they choose none, both on the first.

# used: MiB in use on each GPU.
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 2 | xargs; }

# grown PROGRAM: which of the first two GPUs has some 100 MiB more in use while it trains on 2 ranks.
grown()
{
    local before after i
    rm -rf "$folder/trace"
    before=$(used)
    HVDLAB_TRACE=$folder/trace timeout 120 mpirun -np 2 "$build/$1" "${small[@]}" --epochs 1000000 --target-accuracy 1 \
        >"$folder/out" 2>"$folder/err" &
    for ((i = 0; i < 600; i++)); do
        [[ $(cat "$folder"/trace/rank-?.jsonl 2>/dev/null | grep -c '"event":"first_step"') -lt 2 ]] || break
        sleep 0.1
    done
    after=$(used)
    # The ranks, by the numbers in their traces; mpirun then ends by itself.
    sed -n 's/.*"event":"start".*"pid":\([0-9]*\).*/\1/p' "$folder"/trace/rank-?.jsonl | xargs kill
    wait
    awk "BEGIN { split(\"$before\", b); split(\"$after\", a); for (i = 1; i <= 2; i++) if (a[i] - b[i] > 100) print i - 1 }" | xargs
}

pinning()
{
    [[ $(nvidia-smi -L 2>/dev/null | wc -l) -ge 2 ]] || skip "pinning is seen on two GPUs or more"
    [[ $(grown solution_06) = "0 1" ]] || fail "pinned ranks are not on a GPU each"
    [[ $(grown cut/baseline) = 0 ]] || fail "ranks that choose no GPU are not all on the first"
}

# ---- Kernels that touch what they should not, or at the same time: NVIDIA's compute-sanitizer.

sanitized()
{
    local tool
    tool=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) ||
        skip "$1 needs compute-sanitizer, which comes with the CUDA toolkit"
    for precision in fp32 bf16; do
        "$tool" --tool "$1" --error-exitcode 9 "$build/cut/baseline" "${small[@]}" --deterministic --device gpu \
            --precision "$precision" >"$folder/out" 2>&1 || fail "$1, $precision: status $?: $(grep '=' "$folder/out" | head -n 20)"
    done
}

case ${1:-} in
losses | deterministic | accuracy | refusals | profile | pinning) "$1" ;;
memcheck | racecheck) sanitized "$1" ;;
*)
    sed -n 's/^# Usage: /usage: /p' "$0" >&2
    exit 2
    ;;
esac
conclude
