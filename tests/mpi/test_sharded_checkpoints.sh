#!/usr/bin/env bash
# Checkpoints of an optimizer in shards: any number of ranks goes on from what another number has saved, with the same
# bits; the later updates are the same except for rounding, with an optimizer that is not in shards, too; and a lost or damaged
# part is named.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_FLAGS HVDLAB_TRACE
"$build/compile-step" tests/mpi/sharded.c "$folder/sharded" || exit 1

# sharded RANKS save|load FOLDER NAME: what it prints is in $folder/NAME.out.
sharded()
{
    limit=60 run mpirun -np "$1" "$folder/sharded" "$folder/$3" "$2" "$4"
    cp "$folder/out" "$folder/$4.out"
}
done_well() { sharded "$@"; [[ $status -eq 0 ]] || fail "$*: status $status: $(cat "$folder/err")"; }

# same_weights FOLDER A B: to 1e-5.
same_weights()
{
    mpirun -np 1 "$folder/sharded" "$folder/$1" compare "$2" "$3" >"$folder/out" 2>"$folder/err" </dev/null ||
        fail "$1: from $2 to $3: $(cat "$folder/err")"
}

for conv in '' 1; do
    export CONV=$conv
    [[ -n $conv ]] || unset CONV
    for before in 4 2; do
        here=by-$before$conv
        done_well "$before" save "$here" unbroken
        state=$(cat "$folder/unbroken.out")
        [[ $state = 'state '* ]] || fail "no state: $state"
        [[ $(find "$folder/$here" -name 'ckpt-1.rank-*' | wc -l) -eq $before ]] || fail "$(ls "$folder/$here")"
        for after in 1 2 3; do
            [[ $after -eq 3 || $before$conv = 4 ]] || continue
            done_well "$after" load "$here" "after-$after"
            [[ $(cat "$folder/after-$after.out") = "$state" ]] ||
                fail "$before to $after: other bits: $state, and then $(cat "$folder/after-$after.out")"
            same_weights "$here" unbroken "after-$after"
        done
    done
done
unset CONV
BROADCAST=1 TWICE=1 done_well 3 load by-4 twice
same_weights "by-4" unbroken "twice"
WHOLE=1 done_well 2 load by-4 whole
same_weights "by-4" unbroken "whole"
WHOLE=1 done_well 2 save by-whole unbroken
done_well 3 load by-whole shards
same_weights "by-whole" unbroken "shards"
# Some ranks have no state, the root among them.
for first in 0 2; do
    OWNERS=$first done_well 4 save "by-owners-$first" unbroken
    OWNERS=$first done_well 4 load "by-owners-$first" owners
    done_well 3 load "by-owners-$first" shards
    for after in owners shards; do
        same_weights "by-owners-$first" unbroken "$after"
    done
done

# A layer that no rank updates has no state.
FROZEN=1 OWNERS=0 done_well 2 save by-frozen unbroken
FROZEN=1 OWNERS=0 done_well 3 load by-frozen frozen
same_weights by-frozen unbroken frozen

# names WORDS: one line that names the part, and status 2.
names()
{
    sharded "$1" load by-4 refused
    [[ $status -eq 2 && $(grep -c "^sharded: " "$folder/err") -eq 1 ]] || fail "$2: status $status: $(cat "$folder/err")"
    grep -qF -e "$2" "$folder/err" || fail "\"$2\" is not in: $(cat "$folder/err")"
}
part=$folder/by-4/ckpt-1.rank-3.safetensors
cp "$part" "$folder/part"
printf x | dd of="$part" bs=1 seek=$(($(stat -c %s "$part") - 5)) conv=notrunc 2>/dev/null
names 2 "ckpt-1.rank-3.safetensors: the file is damaged"
rm "$part"
names 3 "ckpt-1.rank-3.safetensors: No such file or directory; it belongs to"
cp "$folder/by-4/ckpt-1.rank-2.safetensors" "$part" # of the same checkpoint, but not this rank's
names 1 "ckpt-1.rank-3.safetensors: it is another rank's part"
cp "$folder/part" "$part"
done_well 1 load by-4 again

conclude
