#!/usr/bin/env bash
# Usage: tests/steps/carry.sh COMMIT [EXERCISE...]
#
# After a change of solutions: carries the known mistakes, right answers and kept answers, which are patches against the
# solutions of COMMIT, over to those of now. Each becomes the merge of what it changes with what the solution changes. Where
# both change the same lines, the patch's win, and it is named: look at it. test_graders.sh tells whether all still hold.

set -euo pipefail
cd "$(dirname "$0")/../.."
commit=$(git rev-parse --verify "$1^{commit}")
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

carried=0
for solution in solutions/*.c; do
    name=$(basename "$solution" .c)
    [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
    git show "$commit:$solution" >"$folder/old" 2>/dev/null || continue
    ! cmp -s "$folder/old" "$solution" || continue
    for patch in tests/{mistakes,alternatives,answers}/"$name"/*.patch; do
        [[ -e $patch ]] || continue
        # (One that applies with each line at its place has been carried.)
        ! said=$(patch -f --dry-run -F 0 -o /dev/null "$solution" "$patch" 2>&1) || [[ $said == *offset* ]] || continue
        patch -f -s -r - -o "$folder/changed" "$folder/old" "$patch" >/dev/null || { echo "$patch: does not apply"; continue; }
        git merge-file -p --quiet "$folder/changed" "$folder/old" "$solution" >/dev/null || echo "$patch: look at it"
        git merge-file -p --ours "$folder/changed" "$folder/old" "$solution" >"$folder/merged"
        # What stands above the patch stays.
        sed '/^+++ /q' "$patch" >"$folder/patch"
        diff -u "$solution" "$folder/merged" | tail -n +3 >>"$folder/patch" || true
        cat "$folder/patch" >"$patch"
        carried=$((carried + 1))
    done
done
echo "$carried carried"
