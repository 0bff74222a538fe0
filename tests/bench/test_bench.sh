#!/usr/bin/env bash
# Usage: test_bench.sh [gpu]
#
# The benchmark's own promises: it counts what a step costs as one does by hand, says what it
# lacks in one line, and, with `gpu` (where the build in BUILD has one, be it a simulated one),
# writes down what it measures on a GPU. How fast anything is does not matter here.

. tests/lib.sh
bench=$build/bench
limit=100
unset HVDLAB_FLAGS
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}

# cost WIDTH BATCH ELEMENT DEVICE: flops and bytes of a training step of the Wide ResNet 16-WIDTH, where
# an element of an image takes ELEMENT bytes. Layer by layer, with pencil and paper:
#
# A convolution of p pixels multiplies and adds p taps in out times, going forward, for the gradient
# of its kernel, and for that of its input, which the first one does without. An operation reads
# what it needs and writes what it gives, once. The gradient of a value that two operations read
# comes in two parts.
cost()
{
    awk -v k="$1" -v b="$2" -v e="$3" -v device="$4" '
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
    # Its output has two readers. A CPU notes which pixel was the largest, in a byte; a GPU looks again.
    function pool(p, c) {
        bytes += image(p, c) + image(p / 4, c) + image(p, c) + 2 * image(p / 4, c)
        bytes += device == "cpu" ? 2 * b * p / 4 * c : image(p, c)
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
read -r flops _ < <(cost 10 1 4 cpu)
[[ $flops -eq $((2 * (3 * 1846596096 - 784 * 9 * 16))) ]] || fail "by hand: $flops flops"

# ---- The race. A Python that has no PyTorch and no Keras leaves them out, in a line each.

# fields FRAMEWORK NAME...: their values in its result.
fields()
{
    awk -v framework="\"$1\"" -v names="${*:2}" '
        BEGIN { count = split(names, name, " ") }
        { gsub(/,$/, "") }
        $1 == "\"framework\":" { is = $2 == framework }
        is { for (i = 1; i <= count; i++) if ($1 == "\"" name[i] "\":") print $2 }' "$folder/race.json" | xargs
}

race()
{
    CUDA_VISIBLE_DEVICES='' succeeds "$bench" --quick --workload wrn:1:2 --peer "$folder/python" --out "$folder/race.json" "$@"
    for peer in pytorch pytorch-channels-last keras; do
        grep -qE "^  $peer is left out: no such thing, [a-z0-9]+\$" "$folder/out" || fail "$peer: $(cat "$folder/out")"
    done
    [[ $(grep -cE '^  (hvdlab|convolutions-only) +[0-9.]+ +[0-9.]+ +[0-9]+ % +[0-9]+( +[0-9.]+ x)?$' "$folder/out") -eq 2 ]] ||
        fail "no table: $(cat "$folder/out")"
}

printf '#!/bin/sh\nfor last; do :; done\necho "absent: no such thing, $last"\n' >"$folder/python"
chmod +x "$folder/python"
race
grep -q "threads, fp32" "$folder/out" || fail "the precision is not told: $(cat "$folder/out")"
grep -q "such thing, fp32" "$folder/out" || fail "the peers are not told the precision: $(cat "$folder/out")"
for framework in hvdlab convolutions-only; do
    [[ $(fields $framework model width batch precision device ranks isa) = "wrn 1 2 fp32 cpu 1" ]] ||
        fail "$framework: $(cat "$folder/race.json")"
    [[ $(fields $framework images_per_second) =~ [1-9] ]] || fail "$framework: no images/s: $(cat "$folder/race.json")"
done
race --isa SSE41
[[ $(fields hvdlab isa) = SSE41 ]] || fail "it is not told what it was limited to: $(cat "$folder/race.json")"

# ---- The race of whole programs. Both only say how fast they were: the next of three speeds in each run.

for of in hvdlab:300:100:200 pytorch:50:400:100; do
    name=${of%%:*}
    printf '#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-0}" = 0 ] && [ "$1" != -c ] || exit 0\necho "$@" >>%s\n' "$folder/$name.words" >"$folder/$name"
    printf 'echo "Images/sec: $(echo %s | cut -d : -f $(wc -l <%s))"\necho "Test accuracy: 0.5"\n' "${of#*:}" "$folder/$name.words" >>"$folder/$name"
    chmod +x "$folder/$name"
done
NP=2 succeeds tests/bench/steps.sh pytorch "$folder/hvdlab" "$folder/pytorch"
grep -qxE "  median +200.0 +100.0 +2.00 x" "$folder/out" || fail "no medians: $(cat "$folder/out")"
for words in "--images 3200 --batch-size 64" "--nproc-per-node 2 labs/02-six-steps/in_pytorch.py"; do
    [[ $(grep -c -e "$words" "$folder/pytorch.words") -eq 3 ]] || fail "not told $words: $(cat "$folder/pytorch.words")"
done
refused "STEPS=keras" tests/bench/steps.sh keras "$folder/hvdlab" "$folder/pytorch"
refused "no PyTorch" tests/bench/steps.sh pytorch "$folder/hvdlab" false
printf '#!/bin/sh\n[ "$1" = -c ]\n' >"$folder/silent"
chmod +x "$folder/silent" && rm "$folder/hvdlab.words"
run tests/bench/steps.sh pytorch "$folder/hvdlab" "$folder/silent"
[[ $status -eq 1 ]] && grep -q "pytorch has failed" "$folder/err" || fail "it has not failed: $status, $(cat "$folder/out" "$folder/err")"

# Whatever the peaks are here, each row's roofline follows from them, and the last row is their sum.
rooflines()
{
    awk '
        # What is printed is rounded to thousandths.
        function near(a, b, rounding) { rounding += 0.001 + 0.01 * b; return a - b < rounding && b - a < rounding }
        /^    roofline: / {
            for (i = 1; i <= NF; i++) { if ($i == "Gflop/s") flops = $(i - 1); if ($i == "GB/s,") bytes = $(i - 1) }
        }
        / % / { gflop[++rows] = $(NF - 2); mb[rows] = $(NF - 1); ms[rows] = $NF }
        END {
            good = rows > 5 && flops > 0 && bytes > 0
            for (r = 1; r < rows; r++) {
                arithmetic = 1e3 * gflop[r] / flops; memory = mb[r] / bytes
                good = good && near(ms[r], arithmetic > memory ? arithmetic : memory, 0.5 / flops + 0.0005 / bytes)
                sum += ms[r]
            }
            exit !(good && near(ms[rows], sum, 0.0005 * rows))
        }' "$folder/out"
}

# Where the processor has bf16, it is profiled and raced in it, and else refused.
if CUDA_VISIBLE_DEVICES='' "$bench" --precision bf16 --profile --workload wrn:1:1 >"$folder/out" 2>&1; then
    rooflines || fail "the rooflines in bf16 do not follow from the peaks: $(cat "$folder/out")"
    race --precision bf16 --isa AVX512_CORE_BF16
    grep -q "such thing, bf16" "$folder/out" || fail "the peers are not told the precision: $(cat "$folder/out")"
    [[ $(fields convolutions-only precision isa) = "bf16 AVX512_CORE_BF16" ]] || fail "not in bf16: $(cat "$folder/race.json")"
    [[ $(fields convolutions-only images_per_second) =~ [1-9] ]] || fail "no images/s in bf16: $(cat "$folder/race.json")"
else
    CUDA_VISIBLE_DEVICES='' refused "--precision bf16 needs" "$bench" --precision bf16 --profile
fi

# ---- What a step consists of, on a CPU.

# profiled NAME CALLS GFLOP MB: a row of the table, which ends with the roofline.
profiled()
{
    grep -qE "^ +$1 +$2 +[0-9.]+ +[0-9.]+ % +$3 +$4 +[0-9.]+\$" "$folder/out" || fail "no row $*: $(cat "$folder/out")"
}
# As the table has them.
number="[0-9.]+"
rounded()
{
    awk "BEGIN { printf \"%.3f\", $1 }"
}

CUDA_VISIBLE_DEVICES='' succeeds "$bench" --profile --workload wrn:10:1
read -r flops bytes < <(cost 10 1 4 cpu)
profiled "conv2d forward" 16 3.693 "$number"
profiled "conv2d input gradient" 15 3.693 "$number"
profiled "conv2d kernel gradient" 16 3.693 "$number"
profiled "batch norm forward" 13 0.000 "$number"
profiled "batch norm backward" 13 0.000 "$number"
profiled "all of these" 86 "$(rounded "$flops / 1e9")" "$(rounded "$bytes / 1e6")"

rooflines || fail "the rooflines do not follow from the peaks: $(cat "$folder/out")"

# ---- What a checkpoint takes, and that none is left.

succeeds "$bench" --saving "$folder/saved" --workload wrn:1:1
[[ $(grep -cE '^\| (0\.7 MB, written plainly, and synced|the same as a checkpoint|a step, batch 1|a step and a checkpoint) \| [0-9]+ ' "$folder/out") -eq 4 ]] ||
    fail "no table: $(cat "$folder/out")"
[[ -d $folder/saved && -z $(ls -A "$folder/saved") ]] || fail "left: $(ls -A "$folder/saved")"

# ---- Where ranks lose time. On one core there are none to compare.

if [[ ${1:-} = gpu ]]; then
    : # on the CPU only
elif [[ $(common/scripts/cores.sh) -eq 1 ]]; then
    CUDA_VISIBLE_DEVICES='' refused "--ranks: there is one core" "$bench" --quick --ranks --workload wrn:1:1
else
    CUDA_VISIBLE_DEVICES='' succeeds "$bench" --quick --ranks --workload wrn:1:4
    figure="-?[0-9.]+"
    [[ $(grep -cE "^  [0-9]+ ranks?, (alone|each for itself|all in step|hvdlab) +$number +$number % +$number %( +$figure %  .*)?\$" "$folder/out") -eq 4 ]] ||
        fail "no table of steps: $(cat "$folder/out")"
    [[ $(grep -cE "^  (an epoch|  steps|  waiting .*|  validation) +$number ms +$number ms +$figure %\$" "$folder/out") -eq 5 ]] ||
        fail "no table of epochs: $(cat "$folder/out")"
    # Threads have prepared these batches, where the kernel counts what they take.
    [[ ! -r /proc/self/schedstat ]] || grep -qE "^  threads that prepare images +[0-9.]*[1-9][0-9.]* ms" "$folder/out" ||
        fail "nobody has prepared images: $(cat "$folder/out")"
fi

# ---- Convolutions one by one, in three directions.

succeeds "$bench" --quick --layers
[[ $(grep -cE '^64 x .* channels .* [0-9.]+ x$' "$folder/out") -eq 9 ]] || fail "no table: $(cat "$folder/out")"

# ---- What can't be done.

CUDA_VISIBLE_DEVICES='' refused "make info" "$bench" --gpu --out "$folder/none.json"
[[ ! -e $folder/none.json ]] || fail "a file of nothing was written"
for workload in wrn wrn:1 wrn:1:0 wrn:65:1 wrn:1:2x lenet:-1:2 cnn:1:2; do
    refused "$workload is not MODEL:WIDTH:BATCH" "$bench" --profile --workload $workload
done
refused "SSE41, AVX2, AVX512_CORE or AVX512_CORE_BF16, not AVX" "$bench" --isa AVX --profile
refused "--precision is fp32 or bf16, not tf32" "$bench" --precision tf32 --profile
for mode in --profile --compare --mirrored "--scaling $folder" "--out $folder/none.json"; do
    # shellcheck disable=SC2086 # words
    CUDA_VISIBLE_DEVICES='' refused "--precision bf16 needs" "$bench" --isa SSE41 --precision bf16 $mode
done
[[ ! -e $folder/none.json ]] || fail "a file of nothing was written"
[[ $(uname -m) != x86_64 ]] || refused "--layers: the kit has none" "$bench" --isa SSE41 --layers
refused "usage" "$bench" --gpu
refused "usage" "$bench" --compare --profile
refused "usage" "$bench" --layers --profile
refused "usage" "$bench" --layers --precision fp32
refused "usage" "$bench" --ranks --profile
refused "usage" "$bench" --gpu --precision bf16 --out "$folder/none.json"

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
        read -r flops bytes < <(cost 1 2 $element gpu)
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
