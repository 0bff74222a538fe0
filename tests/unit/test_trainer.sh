#!/usr/bin/env bash
# What the baseline promises to whoever runs it: its lines, the same figures from the same seed,
# and one line with status 2 for whatever it can't do. Runs on synthetic data, so that it is quick.

. tests/lib.sh
baseline=$build/cut/baseline
replay=$build/replay
devices=$build/devices
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

# OpenMP may be told to start fewer threads.
for setting in OMP_THREAD_LIMIT=1 OMP_DYNAMIC=true OMP_MAX_ACTIVE_LEVELS=0; do
    succeeds env $setting "$baseline" "${small[@]}" --epochs 1 --images 64 --batch-size 16
done

# Flags from the environment win.
HVDLAB_FLAGS="--epochs 1" "$baseline" "${small[@]}" >"$folder/short"
grep -q "^Epoch 1/1$" "$folder/short" || fail "HVDLAB_FLAGS was not read"

# Figures that can't be written are no success.
if [[ -w /dev/full ]]; then
    "$baseline" "${small[@]}" >/dev/full 2>"$folder/err"
    [[ $? -eq 1 && $(wc -l <"$folder/err") -eq 1 ]] || fail "a full disk went unnoticed"
fi

# A system that does not tell which cores a thread is bound to.
cat >"$folder/silent.c" <<'END'
#include <errno.h>
int hwloc_get_cpubind(void *machine, void *cores, int flags)
{
    (void)machine, (void)cores, (void)flags;
    errno = ENOSYS;
    return -1;
}
int hwloc_get_proc_cpubind(void *machine, int process, void *cores, int flags)
{
    (void)process;
    return hwloc_get_cpubind(machine, cores, flags);
}
END
"${CC:-gcc}" -shared -fPIC -o "$folder/silent.so" "$folder/silent.c"
LD_PRELOAD=$folder/silent.so ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 \
    "$baseline" "${small[@]}" --epochs 1 >"$folder/out" 2>"$folder/err" ||
    fail "where bindings can't be asked for: status $?: $(cat "$folder/err")"

# A device with more processors than the name of a file could list (of a machine that hwloc makes up) is
# shown whole. The program is looked at while it has its device, and ended.
indexes=$(seq -s, 1000 2 1118)
HWLOC_SYNTHETIC="core:2 pu:30(indexes=$indexes)" HVDLAB_DEVICES=1 \
    "$baseline" "${small[@]}" --epochs 1000000 >/dev/null 2>"$folder/err" &
many=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
    "$devices" >"$folder/out"
    ! grep -q " $many " "$folder/out" || break
done
kill $many
wait $many 2>/dev/null
grep -qE "^ *0 +$indexes +.* $many +0 +baseline" "$folder/out" ||
    fail "60 processors are not all shown: $(cat "$folder/err" "$folder/out")"

# What can't be done.
refused "--epochs" "$baseline" --epochs 0
refused "--epoch" "$baseline" --epochs
refused "--wdth" "$baseline" --wdth 1
refused "stray" "$baseline" stray
refused "--target-accuracy" "$baseline" --target-accuracy 1.5
refused "--device gpu" "$baseline" "${small[@]}" --device gpu
DNNL_MAX_CPU_ISA=AVX2 refused "--precision bf16" "$baseline" "${small[@]}" --precision bf16
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
