#!/usr/bin/env bash
# Training steps that are recorded and played back (common/cuda/cuda_graph.c) are the steps that they
# replace, each with a dropout pattern of its own; and where nothing can be recorded, training goes on
# without. On the GPU that is not there (README.md). BUILD is where the kit was built with it.

. tests/lib.sh
unset HVDLAB_TRACE "${!EMULATED_@}"

eval "$(common/scripts/mpi.sh env)"

# train PLAYS SETTING...: on each of $ranks, two batches of two images, and a last one of one, twice. The
# rows of its tables go to the file out; PLAYS graphs must have been played on each rank.
ranks=1
train()
{
    local epochs=2
    [[ $ranks -eq 1 ]] || epochs=3 # each makes half of the steps
    rm -f "$folder/report"
    env EMULATED_REPORT="$folder/report" "${@:2}" mpirun -np $ranks "$build/solution_06" --device gpu --width 1 \
        --data synthetic --images 5 --batch-size 2 --val-batch-size 5 --epochs $epochs --seed 3 --show-ranks \
        --log-dir "$folder/logs" >"$folder/all" 2>"$folder/err" || fail "(${*:2}) status $?: $(cat "$folder/err")"
    grep -E '^ +[0-9] ' "$folder/all" >"$folder/out"
    [[ $(wc -l <"$folder/out") -eq $((ranks * epochs)) ]] || fail "(${*:2}) not $epochs tables: $(cat "$folder/all")"
    [[ $(grep -c " plays $1\$" "$folder/report") -eq $ranks ]] || fail "(${*:2}) not $1 graphs: $(cat "$folder/report")"
}

# A trace needs the host in every step, so that nothing is recorded.
train 0 HVDLAB_TRACE="$folder/trace"
mv "$folder/out" "$folder/want"
same()
{
    cmp -s "$folder/want" "$folder/out" || fail "($*) other weights: $(cat "$folder/want" "$folder/out")"
}
# All but the first step of each batch size.
train 4
same "as it is"
train 4 EMULATED_STREAMS=lazy
same "lazy streams"
train 0 EMULATED_GRAPHS=0
same "nothing can be recorded"

# Several ranks record a step in pieces: between them the host sends gradients, as many at once as HVD_FUSION_THRESHOLD says.
ranks=2
export EMULATED_DEVICES=2
train 0 HVDLAB_TRACE="$folder/traces"
mv "$folder/out" "$folder/want"
for transport in nccl mpi; do
    train 2 HVD_TRANSPORT=$transport
    same "2 ranks, $transport"
    for piece in "4 300000" "60 0"; do
        train ${piece% *} HVD_TRANSPORT=$transport HVD_FUSION_THRESHOLD=${piece#* }
        same "2 ranks, $transport, pieces of ${piece#* } bytes"
    done
done

# What a recording contains: the kernels of a step of WRN-16-1, counted where nothing can be recorded.
launches()
{
    for images in 8 16; do
        succeeds env EMULATED_REPORT="$folder/report" EMULATED_GRAPHS=0 mpirun -np 1 "$build/solution_06" --device gpu --precision "$1" --width 1 \
            --data synthetic --images $images --batch-size 2 --epochs 1 --log-dir "$folder/logs"
        sed -nE 's/.* launches ([0-9]+).*/\1/p' "$folder/report"
        rm "$folder/report"
    done | awk '{ before = last; last = $1 } END { print (last - before) / 4 }'
}
for bound in "fp32 124" "bf16 129"; do
    count=$(launches ${bound% *})
    [[ $count -le ${bound#* } ]] || fail "a step launches $count kernels (${bound% *}), more than ${bound#* }"
done

conclude
