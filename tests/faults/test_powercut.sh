#!/usr/bin/env bash
# Usage: tests/faults/test_powercut.sh [--some]
#
# Power is cut at every call that has to do with a checkpoint's files, and what was not synced is lost, in
# every way (cuts.c): names, also some of them and not others, and bytes. Each time there must be one whole
# checkpoint, the last whose save returned, or the next one; and a training that goes on from what is there
# comes to the weights and figures of one that was never ended. With --some, few of the latter, and fewer
# kinds of jobs.

. tests/lib.sh
[[ ${SANITIZE:-} = '' ]] || skip "the sanitizers want to be the first library"
eval "$(common/scripts/mpi.sh env)"
some=${1:-}
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_FLAGS HVDLAB_TRACE HVDLAB_RESUME KILLS
shim=$(realpath "$build/tests/faults/powercut.so")
"$build/compile-step" tests/mpi/train.c "$folder/train" || exit 1
small=(--data synthetic --images 48 --batch-size 8 --val-batch-size 12 --loader-threads 1 --epochs 2
    --target-accuracy 1 --seed 5)

# train RANKS NAME FLAG...: what it printed is in NAME.out.
train()
{
    timeout 60 mpirun -np "$1" "$folder/train" "${small[@]}" "${@:3}" >"$folder/$2.out" 2>"$folder/err" </dev/null ||
        fail "$2: status $?: $(cat "$folder/err")"
}

# cut RANKS RESUMED: a job of so many ranks is cut everywhere; from so many of the folders that are left,
# spread over all cuts, it goes on.
cut()
{
    local ranks=$1 most=$2 lines number point way
    rm -rf "$folder"/{log,saved,left}
    mkdir "$folder/log" "$folder/saved"
    CUT_FOLDER=$folder/saved CUT_LOG=$folder/log LD_PRELOAD=$shim train "$ranks" whole --checkpoint-dir "$folder/saved"
    lines=$(wc -l <"$folder/log/log")
    [[ $(grep -c ^returned "$folder/log/log") -ge 2 && $(grep -c ^folder "$folder/log/log") -ge 4 ]] ||
        fail "on $ranks: what is this list: $(cat "$folder/log/log")"
    "$build/tests/faults/cuts" "$folder/log" "$folder/left" >"$folder/wrong" 2>&1 ||
        fail "on $ranks, EVERY=$EVERY BEST=$BEST: $(tail -n 5 "$folder/wrong")"
    tail -n 1 "$folder/wrong"
    for ((number = 1; number <= most; number++)); do
        point=$((number * lines / (most + 1))) way=$((number % 12))
        "$build/tests/faults/cuts" "$folder/log" "$folder/left" $point $way || fail "no folder of a cut"
        train "$ranks" resumed --checkpoint-dir "$folder/left" --resume
        [[ $(grep "^history\|^score" "$folder/whole.out") = $(grep "^history\|^score" "$folder/resumed.out") ]] ||
            fail "on $ranks, cut at line $point, way $way: other figures: $(diff "$folder/whole.out" "$folder/resumed.out")"
    done
}

export EVERY=2 KEEP=1 BEST=1
resumed=20
[[ $some = '' ]] || resumed=2
cut 2 $resumed
if [[ $some = '' ]]; then
    cut 1 $resumed
    EVERY=1 KEEP=0 cut 3 $resumed
    EVERY=0 BEST=2 cut 1 $resumed # the best one alone, which is written over
    EVERY=0 BEST=2 cut 3 $resumed
fi
conclude
