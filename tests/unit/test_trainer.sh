#!/usr/bin/env bash
# What the baseline promises to whoever runs it: its lines, the same figures from the same seed,
# and one line with status 2 for whatever it can't do. Runs on synthetic data, so that it is quick.

. tests/lib.sh
baseline=$build/cut/baseline
replay=$build/replay
small=(--data synthetic --images 320 --width 1 --epochs 2 --log-dir "$folder/logs" --loader-threads 2)

# Figures without times: those depend on the machine's mood.
figures()
{
    grep -oE '(loss|accuracy|lr): [0-9.e-]+' "$1"
}

# The lines, where standard output is no terminal.
"$baseline" "${small[@]}" --seed 7 --target-accuracy 0 --patience 2 >"$folder/lines" ||
    fail "baseline: status $?"
number='[0-9]+\.[0-9]+'
expected="^Epoch 1/2
Images/sec: $number
Cumulative training time after epoch 1: $number
10/10 - ${number}s - loss: $number - accuracy: $number - val_loss: $number - val_accuracy: $number - lr: 0\.0100
Epoch 2/2
Images/sec: $number
Cumulative training time after epoch 2: $number
10/10 - ${number}s - loss: $number - accuracy: $number - val_loss: $number - val_accuracy: $number - lr: 0\.0100
Early stopping after epoch 2
Cumulative training time: $number
Test loss: $number
Test accuracy: $number\$"
[[ $(cat "$folder/lines") =~ $expected ]] || fail "other lines than expected: $(cat "$folder/lines")"
compgen -G "$folder/logs/events.out.tfevents.*" >/dev/null || fail "no TensorBoard file"

# Seeds.
"$baseline" "${small[@]}" --seed 7 --loader-threads 5 >"$folder/again"
cmp -s <(figures "$folder/lines") <(figures "$folder/again") ||
    fail "the same seed and another number of loader threads gave other figures"
"$baseline" "${small[@]}" >"$folder/first"
"$baseline" "${small[@]}" >"$folder/second"
cmp -s <(figures "$folder/first") <(figures "$folder/second") &&
    fail "two runs without a seed gave the same figures"
"$baseline" "${small[@]}" --seed 7 --wd 0.1 >"$folder/decayed"
cmp -s <(figures "$folder/lines") <(figures "$folder/decayed") && fail "--wd changes nothing"

# Flags from the environment win.
HVDLAB_FLAGS="--epochs 1" "$baseline" "${small[@]}" >"$folder/short"
grep -q "^Epoch 1/1$" "$folder/short" || fail "HVDLAB_FLAGS was not read"

# Figures that can't be written are no success.
if [[ -w /dev/full ]]; then
    "$baseline" "${small[@]}" >/dev/full 2>"$folder/err"
    [[ $? -eq 2 && $(wc -l <"$folder/err") -eq 1 ]] || fail "a full disk went unnoticed"
fi

# What can't be done.
refused "--epochs" "$baseline" --epochs 0
refused "--epoch" "$baseline" --epochs
refused "--wdth" "$baseline" --wdth 1
refused "stray" "$baseline" stray
refused "--target-accuracy" "$baseline" --target-accuracy 1.5
refused "--device gpu" "$baseline" "${small[@]}" --device gpu
refused "bf16" "$baseline" "${small[@]}" --precision bf16
refused "$folder/nowhere" "$baseline" --data-dir "$folder/nowhere"
printf "not IDX" | tee "$folder/train-images-idx3-ubyte" >"$folder/train-labels-idx1-ubyte"
refused "$folder/train-images-idx3-ubyte" "$baseline" --data-dir "$folder"
refused "$folder/lines" "$baseline" "${small[@]}" --log-dir "$folder/lines"
refused "nothing.safetensors" "$replay" nothing.safetensors
refused "$folder/lines" "$replay" "$folder/lines"
refused "expected one case" "$replay"
refused "--tolerance" "$replay" --tolerance x case

# Replay tells agreement from disagreement by its status, and writes what it computed.
case=tests/golden/cases/mlp_sgd.safetensors
"$replay" "$case" --out "$folder/out.safetensors" >/dev/null || fail "replay: status $?"
[[ -s $folder/out.safetensors ]] || fail "replay --out wrote nothing"
"$replay" "$case" --tolerance 1e-12 >/dev/null
[[ $? -eq 1 ]] || fail "replay with a tolerance that nothing meets: status is not 1"

conclude
