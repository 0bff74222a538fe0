#!/usr/bin/env bash
# Usage: tests/faults/test_inject.sh [--all] [NAME...]
#
# Makes one call fail after another (inject.c): allocations, files that can't be opened, read, written,
# synced, closed or renamed, threads that can't be started; in a short training, in replay, and in each
# reader. Each time the program must end within ten seconds: with status 0 and all that it was to bring,
# or with status 1 or 2 and a line of its own on standard error. Never by a signal, and never with
# status 0 and something lost. After each call that failed in a training with checkpoints another
# training goes on from what is there: from a checkpoint, if there was one before or one was saved.
# Without --all, some calls of each kind, spread over all of them; with NAMEs
# of runs below, these alone.
#
# A failure in a library that others wrote is listed, not counted, where it ends there by a signal or in
# words of its own; but it must end.

. tests/lib.sh
sample=6 slow_sample=2
if [[ ${1:-} = --all ]]; then
    sample=1000000 slow_sample=1000000
    shift
fi
[[ ${SANITIZE:-} = '' ]] || skip "the sanitizers have an allocator of their own"
inject=$(realpath "$build/tests/faults/inject.so")
unset HVDLAB_DEVICES HVDLAB_FLAGS HVDLAB_TRACE "${!HVD_@}"

# ---- What is run: NAME, whose calls fail, how many of each kind without --all, and the command. What a
# command leaves behind is in made/.

case_file=tests/golden/cases/mlp_nesterov.safetensors
little=(--data synthetic --images 32 --batch-size 16 --val-batch-size 16 --epochs 1 --seed 1
    --target-accuracy 1 --loader-threads 1 --log-dir "$folder/made")
runs=(
    "train ours $sample tests/faults/small train ${little[*]}"
    "save ours $slow_sample tests/faults/small train ${little[*]} --checkpoint-dir $folder/made/saved"
    "resume ours $((slow_sample / 2)) tests/faults/small train ${little[*]} --epochs 2 --checkpoint-dir $folder/saved --resume"
    "baseline ours $slow_sample cut/baseline ${little[*]} --width 1"
    "replay ours $sample replay $case_file --out $folder/made/out"
    "idx ours $((3 * sample)) tests/faults/small idx $folder/images $folder/labels"
    "gzip ours $((3 * sample)) tests/faults/small idx $folder/images.gz $folder/labels.gz"
    "cifar10 ours $sample tests/faults/small cifar10 $folder"
    "safetensors ours $((3 * sample)) tests/faults/small safetensors $case_file $folder/made/copy"
    "lab.conf ours $((3 * sample)) tests/faults/small lab $folder/labs"
    "train others $sample tests/faults/small train ${little[*]}"
)

# Three images of two rows and four columns, and their labels; a batch of CIFAR-10, all black.
printf '\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\4%024d' 7 >"$folder/images"
printf '\0\0\10\1\0\0\0\3\11\0\4' >"$folder/labels"
common/scripts/labs.sh runs >"$folder/labs"
gzip -k "$folder/images" "$folder/labels"
"$build/tests/faults/small" train "${little[@]}" --checkpoint-dir "$folder/first" >"$folder/out" 2>&1 ||
    fail "no checkpoint to go on from: $(cat "$folder/out")"
head -c 30730000 /dev/zero >"$folder/test_batch.bin"

# ---- One run.

# inject KIND OWNER NUMBER COMMAND...: status, out and err as run() has them, what happened in report.
inject()
{
    local kind=$1 owner=$2 number=$3
    shift 3
    rm -rf "$folder/report" "$folder/made"
    mkdir "$folder/made"
    rm -rf "$folder/saved"
    cp -r "$folder/first" "$folder/saved"
    # (The shell has words of its own for a program that a signal ends.)
    {
        timeout --foreground -k 1 10 env FAULT_KIND="${kind%-on}" FAULT_OWNER="$owner" \
            ${number:+FAULT_NUMBER="$number"} ${lasting[$kind]:-} FAULT_REPORT="$folder/report" \
            LD_PRELOAD="$inject" "$@" >"$folder/out" 2>"$folder/err" </dev/null
    } 2>/dev/null
    status=$?
}

# "memory-on": that allocation fails, and all after it.
declare -A lasting=([memory-on]=FAULT_LASTS=1)

# What a run has brought, without times.
brought()
{
    sed -E 's/[0-9]+\.[0-9]+s? - loss/loss/; s/(Images.sec|time[a-z0-9 ]*): .*/\1/' "$folder/out"
    # (An event's time has nine bytes always; the files' names hold the time, too.)
    (cd "$folder/made" && find . -type f -size +0 -printf '%s\n' | sort)
}

# ended_well PROGRAM KIND: else says what is wrong.
ended_well()
{
    local lines
    lines=$(grep -c "^$1: " "$folder/err")
    ! grep -q "internal error" "$folder/err" || { echo "a CHECK fails"; return 1; }
    case $status in
    0)
        [[ $(brought) = "$good" ]] || [[ -s $folder/err && $2 = memory* ]] || { echo "status 0, and something is lost"; return 1; }
        ;;
    1 | 2)
        [[ $lines -ge 1 ]] || { echo "status $status without a line of its own"; return 1; }
        ;;
    124 | 137) echo "it hangs"; return 1 ;;
    *) echo "status $status"; return 1 ;;
    esac
}

# restores NAME: after the run, a training without faults goes on; else says what is wrong.
restores()
{
    local folder_of="$folder/made/saved" printed status_of
    [[ $1 = save ]] || folder_of=$folder/saved
    [[ $1 = save || $1 = resume ]] || return 0
    printed=$("$build/tests/faults/small" train "${little[@]}" --epochs 2 --checkpoint-dir "$folder_of" --resume 2>&1)
    status_of=$?
    [[ $status_of -eq 0 ]] || { echo "status $status_of when a training goes on from what is left: $printed"; return 1; }
    [[ $1 = save && $status -ne 0 ]] || [[ $printed = *"Restoring from "* ]] ||
        { echo "the checkpoints are lost: a new training does not go on"; return 1; }
}

# place PROGRAM-PATH: where the call that failed was made, in the report.
place()
{
    local function owner where
    read -r _ function owner where < <(grep '^failed' "$folder/report")
    [[ ${owner:-} != ours ]] || where=$(addr2line -s -f -e "$1" "0x${where##*+0x}" | paste -sd ' ')
    echo "${function:-no call} in ${where:-${owner:-?}}"
}

# ---- All of them.

injected=0 known=0 names=("$@")
for line in "${runs[@]}"; do
    read -ra words <<<"$line"
    name=${words[0]} owner=${words[1]} most=${words[2]} path=$build/${words[3]}
    command=("$path" "${words[@]:4}")
    [[ ${#names[@]} -eq 0 || " ${names[*]} " = *" $name "* ]] || continue
    program=$(basename "$path")
    inject memory "$owner" "" "${command[@]}"
    if [[ $status -ne 0 ]]; then
        fail "$name: without a fault: status $status: $(cat "$folder/err")"
        continue
    fi
    good=$(brought)
    mv "$folder/report" "$folder/counts"
    for kind in memory memory-on open read write sync close rename map thread; do
        calls=$(sed -n "s/^counted ${kind%-on} $owner //p" "$folder/counts")
        [[ $calls -gt 0 ]] || continue
        [[ $owner = ours || $most -lt 200 ]] || most=200 # there are tens of thousands
        step=$(((calls + most - 1) / most))
        [[ $name != @(save|resume) || $kind != @(open|sync|close|rename) ]] || step=1 # few, and all matter
        done=0 bad=0
        declare -A seen=() # what is wrong, and in which calls
        for ((number = 1; number <= calls; number += step)); do
            inject "$kind" "$owner" "$number" "${command[@]}"
            done=$((done + 1))
            if ! why=$(ended_well "$program" "$kind" && restores "$name"); then
                bad=$((bad + 1))
                what="$name: $kind: $(place "$path"): $why: $(head -n 2 "$folder/err" | paste -sd ' ' | cut -c 1-160)"
                seen["$what"]="${seen["$what"]:-} $number"
            fi
        done
        for what in "${!seen[@]}"; do
            if [[ $owner = others && $what != *"it hangs"* && $what != *"is lost"* && $what != *"a CHECK"* ]]; then
                known=$((known + 1))
                echo "known: $what"
            else
                fail "$what (numbers${seen[$what]})"
            fi
        done
        injected=$((injected + done))
        printf '%-12s %-7s %-10s %6d calls, %5d made to fail, %d ended badly\n' \
            "$name" "$owner" "$kind" "$calls" "$done" "$bad"
    done
done
echo "$injected calls made to fail; $known kinds of failure in others' libraries"
conclude
