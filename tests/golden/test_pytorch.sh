#!/usr/bin/env bash
# labs/06-checkpoints/in_pytorch.py: PyTorch has the same images right as build/evaluate, with weights that the kit trained.
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
succeeds "$python" labs/06-checkpoints/in_pytorch.py "$folder/saved/ckpt-1.safetensors"
grep -qxF "Right: $right" "$folder/out" || fail "the kit has $right images right: $(cat "$folder/out")"
awk -v kit="$loss" '/^Test loss: / { d = $3 - kit; exit !(d * d <= 1e-10) }' "$folder/out" || fail "the kit's loss is $loss: $(cat "$folder/out")"

conclude
