#!/usr/bin/env bash
# Usage: test_bench.sh [gpu]
#
# The benchmark's own promises: it counts what a step costs as one does by hand, says what it
# lacks in one line, and, with `gpu` (where the build in BUILD has one, be it a pretended one),
# writes down what it measures on a GPU. How fast anything is does not matter here.

. tests/lib.sh
bench=$build/bench
limit=100
unset HVDLAB_FLAGS
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}

# cost WIDTH BATCH ELEMENT: flops and bytes of a training step of the Wide ResNet 16-WIDTH, where
# an element of an image takes ELEMENT bytes. Layer by layer, with pencil and paper:
#
# A convolution of p pixels multiplies and adds p taps in out times, going forward, for the gradient
# of its kernel, and for that of its input, which the first one does without. An operation reads
# what it needs and writes what it gives, once. The gradient of a value that two operations read
# comes in two parts.
cost()
{
    awk -v k="$1" -v b="$2" -v e="$3" '
    function image(p, c) { return b * p * c * e }          # bytes of an activation
    # A 3x3 convolution in front of a batch norm: its bias is not trained.
    function conv(p, in_, out) {
        macs += 3 * b * p * 9 * in_ * out
        trained += 9 * in_ * out
        bytes += image(p, in_) + image(p, out) + 4 * (9 * in_ * out + out)    # forward
        bytes += image(p, in_) + image(p, out) + 4 * 9 * in_ * out            # kernel gradient
        bytes += image(p, in_) + 4 * 9 * in_ * out                            # input gradient
    }
    function shortcut(p, in_, out) {
        macs += 3 * b * p * in_ * out
        trained += in_ * out + out
        bytes += image(p, in_) + image(p, out) + 4 * (in_ * out + out)
        bytes += image(p, in_) + image(p, out) + 4 * (in_ * out + out)
        bytes += image(p, in_) + 4 * in_ * out
    }
    # With ReLU, and what else is fused to it; its output is read `readers` times.
    function norm(p, c, residual, readers) {
        trained += 2 * c
        bytes += (2 + residual) * image(p, c) + 4 * 6 * c                     # forward
        bytes += (2 + readers + residual * (readers > 1)) * image(p, c) + 4 * 4 * c
    }
    function block(p, in_, out, scaled, readers) {
        if (scaled)
            shortcut(p, in_, out)
        conv(p, in_, out); norm(p, out, 0, 1)
        conv(p, out, out); norm(p, out, 1, readers)
    }
    function pool(p, c) {                                  # its output has two readers
        bytes += image(p, c) + image(p / 4, c) + 2 * image(p, c) + 2 * image(p / 4, c)
    }
    BEGIN {
        macs += 2 * b * 784 * 9 * 16                       # the first convolution reads floats
        trained += 9 * 16
        bytes += b * 784 * 4 + image(784, 16) + 4 * (9 * 16 + 16)
        bytes += b * 784 * 4 + image(784, 16) + 4 * 9 * 16
        norm(784, 16, 0, 2)
        block(784, 16, 16 * k, 1, 2);      block(784, 16 * k, 16 * k, 0, 1); pool(784, 16 * k)
        block(196, 16 * k, 32 * k, 1, 2);  block(196, 32 * k, 32 * k, 0, 1); pool(196, 32 * k)
        block(49, 32 * k, 64 * k, 1, 2);   block(49, 64 * k, 64 * k, 0, 1)
        c = 64 * k
        bytes += 2 * (image(49, c) + 4 * b * c)            # average pool, both ways
        macs += 3 * b * c * 10                             # dense layer
        trained += 10 * c + 10
        bytes += 4 * (b * c + 10 * b + 10 * c + 10) + 4 * (b * c + 10 * b + 10 * c + 10) + 4 * (10 * c + b * c)
        bytes += 2 * 4 * 10 * b + 4 * b                    # loss
        bytes += 4 * 784 * b + 4 * b                       # images and labels
        bytes += 3 * 4 * trained                           # update
        printf "%.0f %.0f\n", 2 * macs, bytes
    }'
}

# The lab's network has 1.847 billion multiply-adds an image: the sum of the list in any text.
read -r flops _ < <(cost 10 1 4)
[[ $flops -eq $((2 * (3 * 1846596096 - 784 * 9 * 16))) ]] || fail "by hand: $flops flops"

# ---- What a step consists of, on a CPU.

# profiled NAME CALLS GFLOP MB: a row of the table.
profiled()
{
    grep -qE "^ +$1 +$2 +[0-9.]+ +[0-9.]+ % +$3 +$4\$" "$folder/out" || fail "no row $*: $(cat "$folder/out")"
}
# As the table has them.
number="[0-9.]+"
rounded()
{
    awk "BEGIN { printf \"%.3f\", $1 }"
}

CUDA_VISIBLE_DEVICES='' succeeds "$bench" --profile --workload wrn:10:1
read -r flops bytes < <(cost 10 1 4)
profiled "conv2d forward" 16 3.693 "$number"
profiled "conv2d input gradient" 15 3.693 "$number"
profiled "conv2d kernel gradient" 16 3.693 "$number"
profiled "batch norm forward" 13 0.000 "$number"
profiled "batch norm backward" 13 0.000 "$number"
profiled "all of these" 86 "$(rounded "$flops / 1e9")" "$(rounded "$bytes / 1e6")"

# ---- What a checkpoint takes, and that none is left.

succeeds "$bench" --saving "$folder/saved" --workload wrn:1:1
[[ $(grep -cE '^\| (0\.7 MB, written plainly, and synced|the same as a checkpoint|a step, batch 1|a step and a checkpoint) \| [0-9]+ ' "$folder/out") -eq 4 ]] ||
    fail "no table: $(cat "$folder/out")"
[[ -d $folder/saved && -z $(ls -A "$folder/saved") ]] || fail "left: $(ls -A "$folder/saved")"

# ---- Convolutions one by one, in three directions.

succeeds "$bench" --quick --layers
[[ $(grep -cE '^64 x .* channels .* [0-9.]+ x$' "$folder/out") -eq 9 ]] || fail "no table: $(cat "$folder/out")"

# ---- What can't be done.

CUDA_VISIBLE_DEVICES='' refused "make info" "$bench" --gpu --out "$folder/none.json"
[[ ! -e $folder/none.json ]] || fail "a file of nothing was written"
for workload in wrn wrn:1 wrn:1:0 wrn:65:1 wrn:1:2x lenet:-1:2 cnn:1:2; do
    refused "$workload is not MODEL:WIDTH:BATCH" "$bench" --profile --workload $workload
done
refused "SSE41, AVX2 or AVX512_CORE, not AVX" "$bench" --isa AVX --profile
[[ $(uname -m) != x86_64 ]] || refused "--layers: the kit has none" "$bench" --isa SSE41 --layers
refused "usage" "$bench" --gpu
refused "usage" "$bench" --compare --profile
refused "usage" "$bench" --layers --profile

# ---- On a GPU.

# figures NAME FIELD PRECISION: the field of the results of that name, which are the kit's.
figures()
{
    awk -v name="\"$1\"" -v field="\"$2\":" -v precision="\"$3\"" '
        { gsub(/,$/, "") }
        $1 == "\"name\":" { is = $2 == name }
        $1 == "\"framework\":" { is = is && $2 == "\"hvdlab\"" }
        $1 == "\"precision\":" { is = is && $2 == precision }
        $1 == "\"device\":" { is = is && $2 == "\"gpu\"" }
        $1 == field && is { print $2 }' "$json"
}

on_gpu()
{
    json=$folder/gpu.json
    local flags="--data synthetic --images 16 --width 1 --batch-size 8 --val-batch-size 8 --target-accuracy 0"
    HVDLAB_FLAGS="$flags --seed 1 --log-dir $folder/logs" \
        succeeds "$bench" --gpu --quick --workload wrn:1:2 --trainer "${bench%/*}/solution_06" --out "$json"
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$json" >/dev/null || fail "this is no JSON: $(cat "$json")"
    fi
    grep -q '"gpu":' "$json" || fail "the machine has no GPU: $(head -n 12 "$json")"
    for precision in fp32 tf32 bf16; do
        local element=4
        [[ $precision != bf16 ]] || element=2
        read -r flops bytes < <(cost 1 2 $element)
        [[ $(figures train_step images_per_second $precision) =~ ^[1-9] ]] || fail "$precision: no images/s: $(cat "$json")"
        [[ $(figures roofline flops $precision) = "$flops" ]] || fail "$precision: not $flops flops: $(figures roofline flops $precision)"
        [[ $(figures roofline bytes $precision) = "$bytes" ]] || fail "$precision: not $bytes bytes: $(figures roofline bytes $precision)"
        [[ $(figures kind_of_work calls $precision | head -n 3 | xargs) = "16 15 16" ]] || fail "$precision: other calls"
        # With this seed both epochs are above the target.
        [[ $(figures time_to_accuracy epochs $precision) -eq 2 && $(figures time_to_accuracy reached $precision) = true ]] ||
            fail "$precision: no time to accuracy: $(cat "$folder/out" "$folder/err")"
    done
    grep -qE "reached$" "$folder/out" || fail "no share of the roofline: $(cat "$folder/out")"

    succeeds "$bench" --compare --quick --workload wrn:1:2
    for row in "cpu, .* [0-9.]+" "gpu, .* [0-9.]+ x"; do
        grep -qE "^  $row\$" "$folder/out" || fail "no row $row: $(cat "$folder/out")"
    done
}

[[ ${1:-} != gpu ]] || on_gpu
conclude
