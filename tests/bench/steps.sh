#!/usr/bin/env bash
# Usage: steps.sh pytorch PROGRAM PYTHON    (make bench STEPS=pytorch PEER=PYTHON)
#
# Races PROGRAM, a step 6, against the six steps in PyTorch (labs/02-six-steps/in_pytorch.py): NP (2) ranks of each train the same
# network in turn, three times, on the CPU. Prints the images/s of each last epoch, the medians, and how many times as fast the
# first is. BENCH=quick: one short run.

set -u
export LC_ALL=C
refuse() { echo "make bench: $1" >&2; exit 2; }
[[ $1 == pytorch ]] || refuse "STEPS=$1: there is pytorch only"
"$3" -c 'import numpy, torch' 2>/dev/null || refuse "PEER=$3: this Python has no PyTorch and NumPy"
ranks=${NP:-2} runs=3 epochs=2 images=3200
[[ ${BENCH:-} != quick ]] || runs=1 epochs=1 images=128
threads=$(($(common/scripts/cores.sh) / ranks))
threads=$((threads > 0 ? threads : 1))
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
unset HVDLAB_FLAGS
export CUDA_VISIBLE_DEVICES='' GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}

# race NAME COMMAND...: adds "NAME IMAGES/S ACCURACY" to the results. (Gloo may abort a rank when all is printed.)
race()
{
    "${@:2}" --width 1 --epochs $epochs --images $images --batch-size 64 >"$work/out" 2>"$work/err"
    awk -v name="$1" '/^Images\/sec: / { speed = $2 } /^Test accuracy: / { right = $3 }
        END { print name, speed, right; exit !(speed > 0 && right != "") }' "$work/out" >>"$work/results" || {
        cat "$work/out" "$work/err" >&2
        echo "make bench: $1 has failed" >&2
        exit 1
    }
}

for ((i = 0; i < runs; i++)); do
    race hvdlab common/scripts/mpi.sh run "$ranks" "$2" --val-batch-size 64 --no-augment --target-accuracy 1 --log-dir "$work/logs"
    race pytorch env OMP_NUM_THREADS=$threads "$3" -m torch.distributed.run --standalone --nproc-per-node "$ranks" \
        labs/02-six-steps/in_pytorch.py
done
echo "Wide ResNet 16-1, $images images, batch 64 of each of $ranks ranks, cores for each: $threads; epoch $epochs with its validation"
awk -v runs=$runs '
    { speed[$1, ++count[$1]] = $2; right[$1, count[$1]] = $3 }
    function median(of, name,   i, j, low) {
        for (i = 1; i <= runs; i++) {
            low = 0
            for (j = 1; j <= runs; j++) low += of[name, j] < of[name, i] || (of[name, j] == of[name, i] && j < i)
            if (low == (runs - 1) / 2) return of[name, i]
        }
    }
    END {
        printf "  %-14s %8s %8s\n", "images/s", "hvdlab", "pytorch"
        for (i = 1; i <= runs; i++) printf "  run %-10d %8.1f %8.1f\n", i, speed["hvdlab", i], speed["pytorch", i]
        printf "  %-14s %8.1f %8.1f   %.2f x\n", "median", median(speed, "hvdlab"), median(speed, "pytorch"),
            median(speed, "hvdlab") / median(speed, "pytorch")
        printf "  %-14s %8.4f %8.4f\n", "test accuracy", median(right, "hvdlab"), median(right, "pytorch")
    }' "$work/results"
