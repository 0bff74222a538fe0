#!/usr/bin/env bash
# labs/06-checkpoints/in_pytorch.py and in_keras.py: PyTorch and Keras have the same images right as build/evaluate, with weights
# that the kit trained. (Keras where the Python has it, computed by PyTorch.)
# labs/02-six-steps/in_pytorch.py: of three ranks one prints; they share an epoch, and end with the same weights and metrics.
# The Python is PEER, else python3; skipped where it has no PyTorch.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
python=${PEER:-python3}
data=/usr/share/datasets/fashion-mnist
"$python" -c 'import numpy, safetensors, torch' 2>/dev/null || skip "$python has no PyTorch, NumPy and safetensors"
[[ -d $data ]] || skip "there is no $data"
unset HVDLAB_FLAGS
limit=400

sed '/callbacks_add(&callbacks, tensorboard/i\
    callbacks_add(\&callbacks, checkpoint(\&(Checkpoint){.folder = args.checkpoint_dir, .weights_only = true}));' \
    solutions/step_06.c >"$folder/trainer.c"
succeeds "$build/compile-step" "$folder/trainer.c" "$folder/trainer"
succeeds mpirun -np 2 "$folder/trainer" --width 1 --epochs 1 --images 1000 --batch-size 20 --base-lr 0.05 --target-accuracy 1 \
    --log-dir "$folder/logs" --checkpoint-dir "$folder/saved"
succeeds "$build/evaluate" --weights "$folder/saved/ckpt-1.safetensors" --data-dir "$data"
right=$(sed -n 's/^Test accuracy: .*(\(.*\))$/\1/p' "$folder/out")
loss=$(sed -n 's/^Test loss: //p' "$folder/out")
frameworks=pytorch
if KERAS_BACKEND=torch "$python" -c 'import keras' 2>"$folder/err"; then
    frameworks+=" keras"
else
    echo "not tested: in_keras.py, since $python has no Keras: $(tail -n 1 "$folder/err")"
fi
for framework in $frameworks; do
    KERAS_BACKEND=torch succeeds "$python" "labs/06-checkpoints/in_$framework.py" "$folder/saved/ckpt-1.safetensors"
    grep -qxF "Right: $right" "$folder/out" || fail "the kit has $right images right: $framework: $(cat "$folder/out")"
    awk -v kit="$loss" '/^Test loss: / { d = $3 - kit; near = d * d <= 1e-10 } END { exit !near }' "$folder/out" ||
        fail "the kit's loss is $loss: $framework: $(cat "$folder/out")"
done

# The program is run by another one, which sees what it leaves.
cat >"$folder/six_steps.py" <<'END'
import os, runpy, sys
left = runpy.run_path("labs/02-six-steps/in_pytorch.py", run_name="__main__")
weights = sum((p.double() ** 2).sum().item() for p in left["model"].parameters())
with open(f"{os.environ['RESULTS']}/rank-{os.environ['RANK']}", "w") as file:
    print(repr(weights), len(left["train_sampler"]), len(left["train"][1]), repr(left["test_loss"]), file=file)
sys.stdout.flush()
os._exit(0)  # without the end of Python, in which gloo's threads may abort a rank
END
RESULTS=$folder CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 succeeds "$python" -m torch.distributed.run --standalone --nproc-per-node 3 \
    "$folder/six_steps.py" --images 999 --epochs 2 --base-lr 0.05 --batch-size 20
[[ $(grep -c -e '^Epoch [12]/2$' -e '^Images/sec: [1-9]' "$folder/out") -eq 4 ]] || fail "not one rank prints: $(cat "$folder/out")"
sort -u "$folder"/rank-? >"$folder/ranks"
[[ $(wc -l <"$folder/ranks") -eq 1 ]] || fail "the ranks differ: $(cat "$folder"/rank-?)"
[[ $(cut -d ' ' -f 2,3 "$folder/ranks") == "333 999" ]] || fail "an epoch is not shared: $(cat "$folder/ranks")"
awk '/Epoch 2/ { second = 1 } second && / - accuracy: / { right = $7 } END { exit !(right > 0.4) }' "$folder/out" ||
    fail "it does not learn: $(cat "$folder/out")"
BENCH=quick succeeds tests/bench/steps.sh pytorch "$build/solution_06" "$python"
grep -qE "^  median +[1-9].* x$" "$folder/out" || fail "no race: $(cat "$folder/out")"

conclude
