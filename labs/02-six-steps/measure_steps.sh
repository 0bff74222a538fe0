#!/usr/bin/env bash
# Usage: measure_steps.sh
#
# The table of labs/02-six-steps/handout.md, measured again, on standard output: the root's validation accuracies at
# the end of three runs of the solutions of steps 2 to 4.

. common/scripts/measuring.sh

make -s "$build"/solution_0{2,3,4} >&2
printf '| step | 6,000 images | 3,000 images |\n| --- | --- | --- |\n'
for step in 2 3 4; do
    printf '| %d |' $step
    for images in 6000 3000; do
        for _ in 1 2 3; do
            run 4 "$build/solution_0$step" --width 1 --epochs 3 --images $images |
                sed -n 's/.*val_accuracy: \([0-9.]*\).*/\1/p' | tail -n 1
        done | awk '{ printf "%s%.2f", (NR > 1 ? ", " : " "), $1 } END { printf " |" }'
    done
    echo
done
