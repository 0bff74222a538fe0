#!/usr/bin/env bash
# Usage: tests/steps/test_outcomes.sh [EXERCISE...]
#
# The line that `make step-X` prints shows what the exercise is about: with the solution it does better than with the untouched
# file, as the handout says. Both are run, on a few synthetic images, and what they print or leave is compared. Times are
# not, nor what needs real data (the accuracy after a warm-up) or a slow worker that nothing else slows down (bounded).

. tests/lib.sh
limit=90
common/scripts/steps.sh cut "$folder/cut" || exit 1
eval "$(make -s env)"
unset MAKEFLAGS MFLAGS MAKELEVEL NP HVD_LAYOUT HVDLAB_DEVICES HVDLAB_FLAGS

# ---- How a run is read. Each prints a number; $out is what the run printed, $trace and $saved are what it left.

lines() { grep -c "$1" "$out"; }
# Different values of column $1 of the last table of ranks.
different() { awk -v column="$1" '/^rank /{ table++ } / cpu /{ of[table] = of[table] " " $column } END { print of[table] }' "$out" | xargs -n 1 | sort -u | wc -l; }
devices() { sed -n 's/^ *[0-9]* *cpu \([0-9]*\) .*/\1/p' "$out" | sort -u | wc -l; }
# By how much ranks differ in what an epoch changes in their weights.
spread() { awk '/ cpu /{ if ($1 in first) { d = $4 - first[$1]; if (!n++ || d < low) low = d; if (n == 1 || d > high) high = d } else first[$1] = $4 } END { print high - low }' "$out"; }
last() { sed -n "s/.*\<$1:* \([0-9.]*\).*/\1/p" "$out" | tail -n 1; }
largest() { sed -n "s/.*\<$1: \([0-9.]*\).*/\1/p" "$out" | sort -g | tail -n 1; }
steps() { sed -n 's/^\([0-9]*\)\/[0-9]* - .*/\1/p' "$out" | tail -n 1; }
wrong() { awk 'NF == 6 && /^[-0-9. ]*$/ { sum += $6 } END { print sum + 0 }' "$out"; }
messages() { cat "$trace"/rank-*.jsonl | grep -c '"event":"message_begin"'; }
# Of four ranks, which two hosts have in turn, 0 and 1 on different ones. MPI_Allreduce counts as a ring of its ranks in their order.
between_hosts()
{
    sed -n '/"function":"MPI_Allreduce"/s/.*"ranks":"0,1\([^"]*\)","bytes":\([0-9]*\).*/\1;\2/p' "$trace"/rank-?.jsonl |
        awk -F ';' '{ n = 1 + split("1" $1, ranks, ","); sum += 2 * (n - 1) / n * $2 } END { print sum + 0 }'
}
models() { for f in "$trace"/rank-*.jsonl; do grep '"event":"apply"' "$f" | tail -n 1 | sed 's/.*"value":\([^,}]*\).*/\1/'; done | sort -u | wc -l; }
drawn() { common/scripts/coverage.sh "$trace" "$1" | sed -n 's/.*: \([0-9.]*\) %$/\1/p' | tail -n 1; }
images() { sed -n 's/.*images: \([0-9]*\) .*/\1/p' "$out" | tail -n 1; }
checkpoints() { find "$saved" -name '*.safetensors' ! -name '*.rank-*' 2>/dev/null | wc -l; }
# MB of rank 0: weights, gradients and optimizer.
memory() { awk '$1 == "0" && NF == 6 { print $2 + $3 + $4 }' "$out" | tail -n 1; }
# Layers of a training step, and of tests, that rank 0 computes while a transfer goes on.
meanwhile()
{
    awk '/"event":"collective_end"/ && /"request":[1-9]/ { n++ } /"event":"wait_end"/ && /"requests":"[1-9]/ { n-- }
        /"event":"pass_weights"/ { layers += n > 0 } END { print layers + 0 }' "$trace/rank-0.jsonl"
}
shards() { find "$saved" -name 'shard-*' -size +100k 2>/dev/null | wc -l; }
goes_on() { timeout $((limit * patience)) bash -c "$line" >"$out.again" 2>&1 </dev/null && echo 0 || echo 1; }

# ---- What is promised: EXERCISE | FLAGS, to shorten it | how it is read | what holds of u, the untouched file's number, and s,
# the solution's | in the handout's words.

table='softmax_twice | --images 600 --epochs 3 --seed 1 | last val_loss | u >= 1.46 && s < 1.46 | a softmax too many keeps the loss above 1.46
1 | --images 64 --batch-size 8 | devices | u == 1 && s == 4 | devices that work
2 | --images 64 --batch-size 8 --epochs 1 | lines ^Epoch.1/1$ | u == 4 && s == 1 | one display in place of four
3 | --images 64 --batch-size 8 --epochs 2 --wd 0 | spread | u > 0.001 && s < u / 100 | all ranks change by the same amount
4 | --images 64 --batch-size 8 --epochs 2 | different 4 | u == 4 && s == 1 | the same weights, to the last digit
5 | --images 64 --batch-size 4 --epochs 1 | steps | u == 16 && s == 4 | steps of a worker
6 | --images 64 --batch-size 4 --epochs 2 | different 6 | u == 4 && s == 1 | the loss of all ranks is the same
gather | --images 64 --batch-size 8 --max-count 1024 | wrong | u > 0 && s == 0 | the last column must be 0 in each line
ring | --images 64 --batch-size 8 --max-count 1024 | wrong | u > 0 && s == 0 | the same
fast_ring | --images 64 --batch-size 8 --max-count 1600003 | messages | s > 2 * u | small pieces are many messages
by_hand | --images 64 --batch-size 8 | models | u == 4 && s == 1 | all apply the mean of the gradients
wrap | --images 64 --batch-size 8 | lines ^DistributedSGD: | u == 0 && s == 1 | the wrapper has a name of its own
sparse | --images 6400 --seed 1 | last loss | s < u | the embedding learns from all workers
shard | --images 512 --batch-size 8 --epochs 1 | drawn 512 | u < 90 && s == 100 | each image is drawn once
uneven | --images 120 --batch-size 4 | images | u == 75 && s == 120 | images that all workers train on
clip | --images 64 --batch-size 8 | models | u == 4 && s == 1 | all apply the same clipped mean
warmup | --images 256 --batch-size 8 --epochs 5 | largest lr | u == 0.02 && s == 0.16 | eight times the rate
save | --images 64 --batch-size 8 --epochs 2 | checkpoints | u == 0 && s >= 2 | a checkpoint after each epoch
resume | --images 64 --batch-size 4 --epochs 1 | goes_on | u == 1 && s == 0 | a second run goes on from the first
two_level | --images 64 --batch-size 8 --max-count 1024 | between_hosts | u > 2 * s | fewer bytes go between the hosts
zero | --images 128 --batch-size 8 | memory | u > 1.5 * s | a part of the optimizer on each worker
gathered | --images 128 --batch-size 8 | memory | u > 1.5 * s | the weights of a layer only while it is computed
gathered_early | --images 128 --batch-size 8 | meanwhile | u == 0 && s >= 4 * 16 | weights travel while another layer is computed
reshard | --images 64 --batch-size 8 | shards | u == 0 && s == 4 | each worker saves its shard
two_ways | --images 32 --batch-size 8 | last weights | s > 1.9 * u | as many parts of the layers as a row has workers
recompute | --images 20 --batch-size 8 | last activations | u > 2 * s | activations that are kept'

# measure X FLAGS READING WHICH PROGRAM: the number, in a file.
measure()
{
    local here=$folder/$1-$4
    out=$here/out trace=$here/trace saved=$here/saved
    mkdir -p "$here"
    line=$(common/scripts/student.sh line "$1" "$5")
    [[ $line != *--checkpoint-dir* ]] || set -- "$1" "$2 --checkpoint-dir $saved" "$3"
    export HVDLAB_FLAGS="--data synthetic --loader-threads 1 --log-dir $here/logs $2" HVDLAB_TRACE=$trace
    timeout $((limit * patience)) bash -c "$line" >"$out" 2>&1 </dev/null
    # shellcheck disable=SC2086 # words
    eval $3 >"$here/number"
}

while IFS='|' read -r x flags reading holds promise; do
    x=${x// /}
    [[ $# -eq 0 || " $* " == *" $x "* ]] || continue
    file=$(common/scripts/labs.sh table | awk -v x="$x" '$1 == x { print $2 }')
    program=$folder/$file
    BUILD=$build "$build/compile-step" "$folder/cut/steps/$file.c" "$program" >"$folder/compiled" 2>&1 || fail "$x: $(cat "$folder/compiled")"
    measure "$x" "$flags" "$reading" untouched "$program" &
    measure "$x" "$flags" "$reading" solved "$build/solution_${file#step_}" &
    wait
    u=$(cat "$folder/$x-untouched/number") s=$(cat "$folder/$x-solved/number")
    printf '%-14s untouched %-12s solved %-12s %s\n' "$x" "$u" "$s" "$promise"
    [[ $u =~ ^[0-9.e+-]+$ && $s =~ ^[0-9.e+-]+$ ]] && awk "BEGIN { u = $u; s = $s; exit !($holds) }" ||
        fail "$x:$promise: it is $u untouched and $s solved: $(tail -n 5 "$folder/$x-untouched/out" "$folder/$x-solved/out")"
done <<<"$table"

conclude
