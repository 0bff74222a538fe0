#!/usr/bin/env bash
# What the solutions promise to whoever runs them under mpirun, beyond what the graders look at:
# devices, the table of ranks, the pieces in which gradients travel, the same figures from the same
# seed, and one clear line for whatever can't be done. On synthetic data, so that it is quick.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_FUSION_THRESHOLD HVDLAB_TRACE
export HVDLAB_FLAGS="--data synthetic --images 96 --batch-size 12 --val-batch-size 48 --width 1
    --epochs 2 --target-accuracy 1 --log-dir $folder/logs --loader-threads 2"

# ranks N PROGRAM WORD...: runs it; its output is in out and err, its trace in trace/.
ranks()
{
    rm -rf "$folder/trace"
    HVDLAB_TRACE=$folder/trace timeout $((40 * patience)) mpirun -np "$1" "$build/$2" "${@:3}" \
        >"$folder/out" 2>"$folder/err" </dev/null
}

# The value of a field in the first event of that name: field RANK EVENT FIELD
field()
{
    sed -n "s/^{\"event\":\"$2\",.*\"$3\":\"\?\([^,\"}]*\).*/\1/p" "$folder/trace/rank-$1.jsonl" |
        head -n 1
}

# The table of the last epoch: column 4 holds the weights' fingerprints, 5 the statistics'.
column()
{
    grep -A 4 "^rank " "$folder/out" | tail -n 4 | awk "{ print \$$1 }" | sort -u | wc -l
}

# refused WORDS COMMAND...: status 2, and on standard error a line that holds the words.
refused()
{
    local words=$1 begin=$SECONDS
    shift
    timeout $((30 * patience)) "$@" >"$folder/out" 2>"$folder/err" </dev/null
    local status=$?
    [[ $status -eq 2 ]] || fail "status $status instead of 2: $*"
    [[ $(grep -cF -e "$words" "$folder/err") -eq 1 ]] || fail "\"$words\" not once in: $(cat "$folder/err")"
    [[ $((SECONDS - begin)) -le $((10 * patience)) ]] || fail "took $((SECONDS - begin)) s: $*"
}

# Devices: four ranks on four shares of the cores, each its own; unpinned ones fight for device 0.
ranks 4 solution_06 || fail "solution_06: status $?: $(cat "$folder/err")"
[[ ! -s $folder/err ]] || fail "something on standard error: $(cat "$folder/err")"
for rank in 0 1 2 3; do
    [[ $(field $rank device device) = "$rank" ]] || fail "rank $rank is not on device $rank"
    [[ $(field $rank device cores) = $(field $rank first_step cores) ]] ||
        fail "rank $rank trains on other cores than its device's"
done
cores=$(common/scripts/cores.sh)
if [[ $cores -gt 1 ]]; then
    [[ $(field 0 device cores) != $(field 3 device cores) ]] || fail "devices 0 and 3 are the same cores"
fi
ranks 2 cut/baseline || fail "baseline on 2 ranks: status $?"
[[ $(field 0 device device)$(field 1 device device) = 00 ]] || fail "unpinned ranks are not on device 0"
[[ $(field 0 device cores) = $(field 1 device cores) ]] || fail "device 0 is not the same for both ranks"
HVDLAB_DEVICES=1 ranks 2 solution_01 || fail "more ranks than devices: status $?"
grep -q "rank 1: device 1 is not there, this node has 1; using device 0" "$folder/err" ||
    fail "no warning of a device that is not there: $(cat "$folder/err")"
HVD_RANKS_PER_NODE=2 ranks 4 solution_01
[[ $(field 1 init local_rank)$(field 2 init local_rank)$(field 2 init local_size) = 012 ]] ||
    fail "HVD_RANKS_PER_NODE=2 does not deal ranks to nodes in turn"
HVD_RANKS_PER_NODE=2 ranks 4 solution_02 --show-ranks
[[ $(column 3) -eq 2 && $(column 8) -eq 2 ]] || fail "the table does not name the machines: $(cat "$folder/out")"
HVDLAB_DEVICES=2 "$build/solution_01" >"$folder/out" 2>"$folder/err" || fail "without mpirun: status $?"
grep -q "started without mpirun: this is the only worker" "$folder/err" || fail "nothing says that mpirun is missing"
if [[ $cores -gt 1 ]]; then
    HVDLAB_TRACE=$folder/trace taskset -c 1 mpirun -np 2 "$build/solution_01" >/dev/null
    [[ $(field 0 device cores)$(field 1 device cores) = 11 ]] || fail "taskset's mask is not kept"
    HVDLAB_TRACE=$folder/trace timeout $((20 * patience)) mpirun -np 1 "$build/solution_01" >/dev/null
    [[ $(field 0 device cores) = *[-,]* ]] || fail "one rank alone does not have all cores"
fi

# Ready-made calls leave an event, which an exercise may ask for: each call one, but those that only
# ask once.
ranks 2 solution_06
calls=$(sed -n 's/^{"event":"call",.*"function":"\([^"]*\)".*/\1/p' "$folder/trace/rank-1.jsonl" | sort | tr '\n' ' ')
[[ $calls = "augmented_batches hvd_broadcast_variables hvd_distributed_optimizer hvd_local_rank hvd_metric_average hvd_rank hvd_size plain_batches " ]] ||
    fail "other ready-made calls than the program's: $calls"

# After step 3 the ranks differ, after step 4 only their moving statistics do: the table shows it.
ranks 4 solution_03 --show-ranks
[[ $(column 4) -eq 4 ]] || fail "step 3: the weights do not differ between all ranks: $(cat "$folder/out")"
ranks 4 solution_04 --show-ranks
[[ $(column 4) -eq 1 && $(column 5) -eq 4 ]] || fail "step 4: $(cat "$folder/out")"
[[ $(grep -c "^rank " "$folder/out") -eq 2 ]] || fail "not one table for each epoch"
ranks 4 solution_06 --show-ranks
[[ $(column 4) -eq 1 && $(column 7) -eq 1 ]] || fail "step 6: $(cat "$folder/out")"
# The memory of each rank, beside that table and alone: weights as the gradients, and no state of plain SGD.
ranks 3 solution_06 --show-memory --epochs 2
awk '/^rank  weights MB  gradients MB  optimizer MB  activations MB  process MB$/ { tables++ }
    tables && /^ +[0-2]  / { rows += $2 > 0.7 && $3 > 0.7 && $2 < 0.71 && $4 == 0 && $5 > 1 && $6 > $2 + $3 + $5 && $6 < 1000 }
    END { exit !(tables == 2 && rows == 6) }' "$folder/out" || fail "--show-memory: $(cat "$folder/out")"
ranks 2 solution_06 --show-memory --show-ranks
[[ $(grep -c "^rank " "$folder/out") -eq 4 ]] || fail "--show-memory with --show-ranks: $(cat "$folder/out")"
# Ranks that stop in different epochs (no averages, no all-reduce) keep nobody waiting.
HVDLAB_FLAGS="$HVDLAB_FLAGS --epochs 4 --target-accuracy 0.1 --patience 1" ranks 4 solution_02 --show-ranks ||
    fail "the table of ranks that stop one by one: status $?"

# The pieces: one for a small model, one for each gradient with a threshold of 0; bits that agree.
ranks 2 solution_06 --seed 3 --epochs 1
pieces=$(grep -c '"collective_begin".*"gradients",.*"bytes":702464' "$folder/trace/rank-0.jsonl")
steps=$(grep -c '"event":"step"' "$folder/trace/rank-0.jsonl")
[[ $pieces -eq $steps ]] || fail "$pieces all-reduces in $steps steps"
cp "$folder/trace/rank-0.jsonl" "$folder/first"
ranks 2 solution_06 --seed 3 --epochs 1
cmp -s <(grep -o '"weights":.*' "$folder/first") <(grep -o '"weights":.*' "$folder/trace/rank-0.jsonl") ||
    fail "the same seed and number of ranks gave other weights"
for nodes in 1 2; do
    HVD_RANKS_PER_NODE=$nodes HVD_FUSION_THRESHOLD=0 ranks 2 solution_06 --seed 3 --epochs 1
    many=$(grep -c '"collective_begin".*"gradients"' "$folder/trace/rank-0.jsonl")
    [[ $many -gt $((20 * steps)) ]] || fail "HVD_FUSION_THRESHOLD=0: $many all-reduces in $steps steps"
    cmp -s <(grep -o '"weights":.*' "$folder/first") <(grep -o '"weights":.*' "$folder/trace/rank-0.jsonl") ||
        fail "two ranks, added up in other pieces, gave other weights"
done

# One rank prints, and as to a file; the job's size is what mpirun was told.
ranks 3 solution_06
[[ $(grep -c "^Epoch 1/2$" "$folder/out") -eq 1 ]] || fail "several ranks print"
grep -q $'\r' "$folder/out" && fail "a progress bar in a file"
mpirun -np 2 "$build/solution_06" --help >"$folder/out" 2>"$folder/err" || fail "--help: status $?"
[[ $(grep -c -e "--base-lr" "$folder/out") -eq 1 && ! -s $folder/err ]] || fail "--help is not printed once"

# What can't be done.
sed '/hvd_init();/d; /device_use/d' solutions/step_02.c >"$folder/no_init.c"
"$build/compile-step" "$folder/no_init.c" "$folder/no_init" || fail "compile-step: status $?"
refused "--epochs" mpirun -np 3 "$build/solution_06" --epochs 0 # HVDLAB_FLAGS come after it
refused "hvd_rank: call hvd_init() first" mpirun -np 2 "$folder/no_init"
mkdir "$folder/other"
printf '#!/bin/sh\necho "HYDRA build details:"\n' >"$folder/other/mpirun"
chmod +x "$folder/other/mpirun"
for action in line run; do
    refused "$folder/other/mpirun is not Open MPI's (it says: HYDRA build details:)" \
        env PATH="$folder/other:$PATH" common/scripts/mpi.sh $action 2 "$build/solution_06"
done
run env PMI_RANK=1 PMI_SIZE=4 "$build/solution_06"
[[ $status -eq 2 && ! -s $folder/err ]] || fail "not the first of another MPI's ranks: status $status: $(cat "$folder/err")"
refused "another MPI's launcher started 4 processes" env PMI_RANK=0 PMI_SIZE=4 "$build/solution_06"
refused "HVDLAB_DEVICES=0" env HVDLAB_DEVICES=0 mpirun -np 2 "$build/solution_06"
refused "HVDLAB_DEVICES=x" env HVDLAB_DEVICES=x "$build/cut/baseline"
refused "HVD_RANKS_PER_NODE=-1" env HVD_RANKS_PER_NODE=-1 mpirun -np 2 "$build/solution_06"
refused "HVD_FUSION_THRESHOLD=1k" env HVD_FUSION_THRESHOLD=1k mpirun -np 2 "$build/solution_06"
refused "HVDLAB_TRACE" env HVDLAB_TRACE=/dev/null/trace mpirun -np 2 "$build/solution_06"
refused "3 ranks cannot share batches of 8" mpirun -np 3 "$build/replay" tests/golden/cases/mlp_sgd.safetensors

# Shards of 3 and 4 images, which are fewer than a batch.
HVDLAB_FLAGS="$HVDLAB_FLAGS --images 7" mpirun -np 2 "$build/solution_shard" >"$folder/out" 2>"$folder/err" </dev/null ||
    fail "shards smaller than a batch: status $?: $(cat "$folder/err")"

# A rank that dies ends the job.
mpirun -np 3 bash -c "if [ \$OMPI_COMM_WORLD_RANK = 1 ]; then ulimit -v 300000; fi; exec '$build/solution_06'" \
    >"$folder/out" 2>"$folder/err" </dev/null &
wait $! && fail "a rank without memory, and the job succeeds"

# mpirun binds a single rank to one core. OpenMP counts the cores when it is loaded: they must be the launcher's by then.
cat >"$folder/counted.c" <<'END'
#include <stdio.h>
#include "hvdlab.h"
int omp_get_max_threads(void);
int main(int argc, char **argv)
{
    printf("%d\n", omp_get_max_threads());
    parse_args(argc, argv);
    return 0;
}
END
"$build/compile-step" "$folder/counted.c" "$folder/counted" || exit 1
env -u OMP_NUM_THREADS mpirun -np 1 "$folder/counted" >"$folder/out" 2>"$folder/err"
[[ $(<"$folder/out") == "$(common/scripts/cores.sh)" ]] || fail "OpenMP counts $(<"$folder/out") of $(common/scripts/cores.sh) cores: $(cat "$folder/err")"

conclude
