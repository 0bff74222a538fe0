#!/usr/bin/env bash
# Usage: measure_sharding.sh zero|tensor|recompute
#
# The tables of labs/10-sharding/handout.md, measured again, on standard output: the memory of a worker
# with sharded gradients and optimizer; what a worker has, and what it sends, of a network whose layers
# are divided; the memory and the speed of a chain of blocks that computes activations again. The
# programs are the untouched files and the solutions, cut for it, whatever a student has made of steps/.

. common/scripts/measuring.sh

zero_table()
{
    compile zero
    echo '| | weights | gradients | optimizer | together |'
    echo '| --- | --- | --- | --- | --- |'
    for program in untouched yours; do
        for workers in 1 2 4; do
            run $workers "$work/$program" --epochs 1 --images 600 --base-lr 0.001 --show-memory |
                awk -v name="${program/#untouched/whole} on $workers" '/^ +0 / {
                    printf "| %s | %.1f | %.1f | %.1f | %.1f |\n", name, $2, $3, $4, $2 + $3 + $4 }'
        done
    done | sed 's/yours on/sharded on/'
}

tensor_table()
{
    compile tensor
    echo '| workers | weights of a worker, MB | loss of the epoch | test accuracy |'
    echo '| --- | --- | --- | --- |'
    for workers in 1 2 4; do
        run $workers "$work/yours" --epochs 1 --images 1600 --base-lr 0.05 --seed 1 |
            awk -v workers=$workers '/^Epoch 1/ { gsub(",", ""); printf "| %d | %s | %s | %s |\n", workers, $(NF - 1), $5, $12 }'
    done
}

recompute_table()
{
    compile recompute
    echo '| blocks | program | activations, MB | images/s, median of five epochs |'
    echo '| --- | --- | --- | --- |'
    for blocks in 16 36; do
        for program in untouched yours; do
            "$work/$program" --epochs 5 --images 6000 --batch-size 500 --base-lr 0.001 --seed 1 --blocks $blocks |
                sort -k10n | awk -v blocks=$blocks -v name=$program '
                    { speed[NR] = $10; memory = $(NF - 1) }
                    END { printf "| %d | %s | %s | %d |\n", blocks, name, memory, speed[3] }'
        done
    done
}

case ${1:-} in
zero | tensor | recompute) "$1_table" ;;
*)
    echo "usage: measure_sharding.sh zero|tensor|recompute" >&2
    exit 2
    ;;
esac
