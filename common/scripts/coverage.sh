#!/usr/bin/env bash
# Usage: coverage.sh FOLDER IMAGES
#
# Reads the traces that a job has left in FOLDER (HVDLAB_TRACE) and says for each epoch how many of the
# IMAGES training images its workers have drawn, all of them together.

set -euo pipefail

# Of the ranks that the job had: a larger one before it may have left others there.
size=$(sed -n 's/.*"event":"start".*"size":\([0-9]*\).*/\1/p;q' "${1:-}/rank-0.jsonl" 2>/dev/null || :)
traces=()
for ((rank = 0; rank < ${size:-0}; rank++)); do
    traces+=("$1/rank-$rank.jsonl")
done
if [[ ! ${2:-} =~ ^[1-9][0-9]*$ || ${#traces[@]} -eq 0 ]]; then
    echo "usage: coverage.sh FOLDER IMAGES: FOLDER is what HVDLAB_TRACE named, IMAGES the size of the training set" >&2
    exit 2
fi

awk -v images="$2" '
    # text(NAME): the value of a field of this line, as it stands there
    function text(name) { return match($0, "\"" name "\":\"?[^\"}]*") ? substr($0, RSTART, RLENGTH) : "" }
    /"event":"images"/ && /"split":"train"/ {
        epoch = text("permutation"); sub(/.*:/, "", epoch); epoch += 0
        drawn = text("drawn"); sub(/.*:"/, "", drawn)
        for (i = split(drawn, numbers, ","); i > 0; i--) {
            draws[epoch]++
            if (!((epoch, numbers[i]) in seen)) different[epoch]++
            seen[epoch, numbers[i]]
        }
        if (epoch > epochs) epochs = epoch
    }
    END { for (e = 1; e <= epochs; e++)
              printf "epoch %d: %d images drawn, %d of the %d: %.1f %%\n", e, draws[e], different[e], images, 100 * different[e] / images }
' "${traces[@]}"
