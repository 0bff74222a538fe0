#!/usr/bin/env bash
# Usage: measure_sharding.sh zero|gathered|gathered_early|reshard|tensor|two_ways|recompute
#
# The tables of labs/10-sharding/handout.md, measured again, on standard output: the memory of a worker with sharded
# gradients and optimizer, with sharded weights, too, and with these gathered early; what shards are saved, and how the
# training goes on; what a worker has, and what it sends, of a network whose layers are divided; what a grid of workers
# sends between hosts; the memory and the speed of a chain of blocks that computes activations again. The
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

# MB that rank 0 sends in a step by rings: an all-gather N - 1 of its parts, a reduce-scatter (N - 1) / N of the array.
sent_in_a_step() # N PROGRAM
{
    rm -rf "$work/trace"
    HVDLAB_TRACE=$work/trace run "$1" "$2" --data synthetic --epochs 1 --images $((128 * $1)) --base-lr 0.001 >/dev/null
    awk -v n="$1" '
        /"event":"collective_begin"/ && /"function":"MPI_(I?[Aa]llgatherv|Reduce_scatter)","name":"(values|MPI_COMM_WORLD)"/ {
            match($0, /"bytes":[0-9]+/)
            bytes += substr($0, RSTART + 8, RLENGTH - 8) * (n - 1) / (/Reduce_scatter/ ? n : 1)
        }
        /"event":"step"/ { all = bytes; steps++ } # tests come behind the last one
        END { printf "%.1f\n", all / steps / 1e6 }' "$work/trace/rank-0.jsonl"
}

gathered_table()
{
    compile gathered
    echo '| | weights, MB | gradients, MB | optimizer, MB | process, MB | sent in a step, MB |'
    echo '| --- | --- | --- | --- | --- | --- |'
    for program in untouched yours; do
        for workers in 1 2 3 4; do
            sent=$(sent_in_a_step $workers "$work/$program")
            run $workers "$work/$program" --epochs 1 --images 600 --base-lr 0.001 --show-memory |
                awk -v name="$program on $workers" -v sent="$sent" '/^ +0 / {
                    printf "| %s | %.1f | %.1f | %.1f | %.0f | %s |\n", name, $2, $3, $4, $6, sent }'
        done
    done
}

# Layers that rank 0 computes in the last step of such a run while a transfer goes on.
computed_meanwhile()
{
    awk '
        /"event":"collective_end"/ && /"request":[1-9]/ { under_way++ }
        /"event":"wait_end"/ && /"requests":"[1-9]/ { under_way-- }
        /"event":"pass_weights"/ { layers += under_way > 0 }
        /"event":"step"/ { last = layers; layers = 0 } # tests come behind the last one
        END { print last + 0 }' "$work/trace/rank-0.jsonl"
}

gathered_early_table()
{
    compile gathered_early
    echo '| | weights, MB | sent in a step, MB | go on, of 18 |'
    echo '| --- | --- | --- | --- |'
    for program in untouched yours; do
        for workers in 1 2 4; do
            sent=$(sent_in_a_step $workers "$work/$program")
            run $workers "$work/$program" --epochs 1 --images 600 --base-lr 0.001 --show-memory |
                awk -v name="$program on $workers" -v sent="$sent" -v meanwhile="$(computed_meanwhile)" '/^ +0 / {
                    printf "| %s | %.2f | %s | %d |\n", name, $2, sent, meanwhile }'
        done
    done
}

# One epoch, saved by so many workers, and one more by others.
reshard_table()
{
    compile reshard
    local flags=(--images 6000 --base-lr 0.001 --seed 1 --no-shuffle --checkpoint-dir) saved
    echo '| saved by | resumed by | KB of each file | loss of epoch 2 |'
    echo '| --- | --- | --- | --- |'
    run 1 "$work/yours" --epochs 2 "${flags[@]}" "$work/unbroken" | awk '/^Epoch 2/ { printf "| nobody: two epochs | | | %s |\n", $NF }'
    for pair in '1 4' '2 3' '4 1' '4 2' '4 3'; do
        read -r before after <<<"$pair"
        saved=$work/saved-$before-$after
        run "$before" "$work/yours" --epochs 1 "${flags[@]}" "$saved" >/dev/null
        sizes=$(stat -c %s "$saved"/* | awk '{ printf "%s%.0f", (NR > 1 ? ", " : ""), $1 / 1000 }')
        run "$after" "$work/yours" --epochs 1 "${flags[@]}" "$saved" --resume |
            awk -v before="$before" -v after="$after" -v sizes="$sizes" '/^Epoch 1/ { printf "| %d | %d | %s | %s |\n", before, after, sizes, $NF }'
    done
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

# MB that four workers send to another host in an update of so many images: of activations, and of gradients.
sent_between_hosts() # IMAGES COLUMNS
{
    rm -rf "$work/trace"
    HVDLAB_TRACE=$work/trace HVD_HIERARCHICAL=1 run 4 "$work/yours" --data synthetic --epochs 1 --images "$1" --batch-size "$1" \
        --columns "$2" >/dev/null
    awk '
        FNR == 1 { updated = 0 }
        /"event":"apply"/ { updated = 1 } # tests come after it
        updated { next }
        /"event":"custom_(begin|end)"/ { inside = /custom_begin/ }
        /"event":"between_hosts"/ && /"name":"group"/ {
            match($0, /"bytes":[0-9]+/)
            bytes[inside ? 1 : 0] += substr($0, RSTART + 8, RLENGTH - 8)
        }
        END { printf "%.1f %.1f\n", bytes[1] / 1e6, bytes[0] / 1e6 }' "$work"/trace/rank-*.jsonl
}

two_ways_table()
{
    compile two_ways
    local few many gradients
    echo '| rows x columns | hosts of ranks 0 to 3 | weights of a worker, MB | loss of the epoch | activations, 32 images | activations, 2048 images | gradients |'
    echo '| --- | --- | --- | --- | --- | --- | --- |'
    for grid in '4 0,0,1,1' '2 0,0,1,1' '2 0,1,0,1' '1 0,0,1,1'; do
        read -r columns HVD_LAYOUT <<<"$grid"
        export HVD_LAYOUT
        read -r few gradients <<<"$(sent_between_hosts 32 "$columns")"
        read -r many _ <<<"$(sent_between_hosts 2048 "$columns")"
        run 4 "$work/yours" --epochs 1 --images 1600 --base-lr 0.05 --seed 1 --columns "$columns" |
            awk -v grid="$((4 / columns)) x $columns | $HVD_LAYOUT" -v sent="$few | $many | $gradients" '/^Epoch 1/ {
                printf "| %s | %s | %s | %s |\n", grid, $(NF - 1), $5, sent }'
    done
    unset HVD_LAYOUT
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
zero | gathered | gathered_early | reshard | tensor | two_ways | recompute) "$1_table" ;;
*)
    echo "usage: measure_sharding.sh zero|gathered|gathered_early|reshard|tensor|two_ways|recompute" >&2
    exit 2
    ;;
esac
