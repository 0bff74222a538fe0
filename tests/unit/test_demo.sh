#!/usr/bin/env bash
# make demo: with its own flags the validation accuracy is above 0.80 at the end, and stays there after the learning rate has
# fallen; a training that ended has status 0, whatever accuracy it reached; one that failed has its status. Nothing about time.

. tests/lib.sh
export BENCH=quick BUILD=$folder/build
limit=400
unset HVDLAB_DEVICES HVDLAB_TRACE "${!HVD_@}"
mkdir "$BUILD"
cp "$build/solution_06" "$build/bench" "$BUILD"

# above NAME TARGET: of the last metric of that name.
above()
{
    local last
    last=$(grep -oE "$1: [0-9.]+" "$folder/out" | tail -n 1 | sed 's/.*: //')
    awk "BEGIN { exit !(${last:-0} > $2) }" || fail "$1 is ${last:-not there} at the end, not above $2"
}

HVDLAB_FLAGS="--log-dir $folder/logs" succeeds common/scripts/demo.sh
above val_accuracy 0.80
above 'Test accuracy' 0.80
for each in "time to train" "validation accuracy" "test accuracy" "images/s, 1 worker"; do
    grep -qE "^$each +[0-9.]+" "$folder/out" || fail "no line \"$each\": $(tail -n 8 "$folder/out")"
done

HVDLAB_FLAGS="--images 64 --epochs 1 --log-dir $folder/logs" succeeds common/scripts/demo.sh
HVDLAB_FLAGS="--epochs 0" run common/scripts/demo.sh
[[ $status -ne 0 ]] || fail "status 0 although the training failed"
conclude
