#!/usr/bin/env bash
# Usage: measure_losses.sh softmax|devices
#
# A table of labs/01-baseline/handout.md, measured again, on standard output: losses and accuracies of three
# epochs, with the softmax applied twice and once. And one of labs/more-programs.md: those of
# the perceptron on 1, 2 and 4 devices.
# The programs are the untouched file and the solution, cut for it, whatever a student has made of steps/.

set -euo pipefail
export LC_ALL=C
build=${BUILD:-build}
work=$build/measure
unset HVDLAB_DEVICES

# figures NAME: of what fit printed, one row for each epoch: "| NAME, epoch 1 | loss | accuracy | ... |"
figures()
{
    awk -v name="$1" '
        function value(of,   i) { for (i = 1; i < NF; i++) if ($i == of ":") return $(i + 1) }
        / val_accuracy: / {
            printf "| %s, epoch %d | %s | %s | %s | %s |", name, ++epoch, value("loss"), value("accuracy"),
                value("val_loss"), value("val_accuracy")
            printf sum ? " %.2f |\n" : "\n", value("loss") + value("accuracy")
        }' sum="${2:-}"
}

softmax_table()
{
    mkdir -p "$work"
    common/scripts/steps.sh cut "$work" >&2
    make -s "$build/compile-step" >&2
    "$build/compile-step" "$work/steps/softmax_twice.c" "$work/untouched" >&2
    "$build/compile-step" "$work/solutions/softmax_twice.c" "$work/yours" >&2
    printf '| | loss | accuracy | val_loss | val_accuracy | loss + accuracy |\n'
    printf '| --- | --- | --- | --- | --- | --- |\n'
    "$work/untouched" --epochs 3 --images 12000 --seed 1 | figures twice sum
    "$work/yours" --epochs 3 --images 12000 --seed 1 | figures once sum
}

devices_table()
{
    make -s "$build/mlp" >&2
    printf '| devices | loss | accuracy | val_loss | val_accuracy |\n| --- | --- | --- | --- | --- |\n'
    for devices in 1 2 4; do
        rm -rf "$work/mlp-checkpoints"
        HVDLAB_DEVICES=$devices "$build/mlp" --batch-size 32 --epochs 2 --seed 1 --checkpoint-dir "$work/mlp-checkpoints" |
            figures $devices
    done
}

case ${1:-} in
softmax | devices) "$1_table" ;;
*)
    echo "usage: measure_losses.sh softmax|devices" >&2
    exit 2
    ;;
esac
