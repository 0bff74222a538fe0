#!/usr/bin/env bash
# Usage: coverage.sh FOLDER IMAGES
#
# Reads the traces that the newest run has left in FOLDER (HVDLAB_TRACE) and says for each epoch how many of the
# IMAGES training images its workers have drawn, all of them together. A line on standard error names traces of
# other runs.

set -euo pipefail

# field NAME FILE: of the first line of a trace; "" where it has none
field() { sed -nE '1s/.*"event":"start".*"'"$1"'":"?([^",}]*).*/\1/p;1q' "$2"; }

# The newest run is the one whose job the file with the latest time names. (Older kits wrote neither: there the
# size that rank 0 has tells which files are of one run.)
newest=${1:-}/rank-0.jsonl last=0 traces=() others=()
shopt -s nullglob
for file in "${1:-}"/rank-*.jsonl; do
    time=$(field time "$file")
    if awk "BEGIN { exit !(${time:-0} + 0 > $last) }"; then newest=$file last=$time; fi
done
[[ -f $newest ]] && job=$(field job "$newest") size=$(field size "$newest") || size=0
for file in "${1:-}"/rank-*.jsonl; do
    rank=${file##*/rank-} rank=${rank%.jsonl}
    if [[ $rank -lt ${size:-0} && $(field job "$file") = "$job" ]]; then
        traces+=("$file")
    else
        others+=("${file##*/}")
    fi
done
if [[ ! ${2:-} =~ ^[1-9][0-9]*$ || ${#traces[@]} -eq 0 ]]; then
    echo "usage: coverage.sh FOLDER IMAGES: FOLDER is what HVDLAB_TRACE named, IMAGES the size of the training set" >&2
    exit 2
fi
[[ ${#others[@]} -eq 0 ]] || echo "coverage.sh: warning: $1 also has files of another run, which are left out: ${others[*]}" >&2

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
