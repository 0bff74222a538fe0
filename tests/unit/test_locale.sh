#!/usr/bin/env bash
# A program that calls setlocale(LC_ALL, "") where numbers have a decimal comma: what it wrote it reads, and another
# program reads it, too; flags and variables have a point as before.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
small=(--data synthetic --images 32 --batch-size 8 --val-batch-size 8 --loader-threads 1 --seed 5 --log-dir "$folder/logs")

mkdir "$folder/locales"
cat >"$folder/comma" <<'LOCALE'
LC_NUMERIC
decimal_point ","
thousands_sep "."
grouping 3;3
END LC_NUMERIC
LOCALE
localedef -c -i "$folder/comma" "$folder/locales/comma" >/dev/null 2>&1
[[ -e $folder/locales/comma/LC_NUMERIC ]] || skip "localedef has made no locale (Debian's package locales)"
in_comma=(env -u LC_ALL LOCPATH="$folder/locales" LC_NUMERIC=comma)
# (The shell's own printf: the locale works here.)
[[ $("${in_comma[@]}" bash -c 'printf %.1f 1,5') = 1,5 ]] || skip "the locale is not used"

# Checkpoints, from one locale to another, to the bit.
"$build/compile-step" tests/mpi/train.c "$folder/train" || exit 1

steps=(--base-lr 0.25 --epochs 2 --checkpoint-dir "$folder/saved")
train=$build/tests/faults/small
for from in here comma; do
    for to in here comma; do
        rm -rf "$folder/saved"
        prefix=() && [[ $from = here ]] || prefix=("${in_comma[@]}")
        succeeds "${prefix[@]}" "$train" train "${small[@]}" "${steps[@]}" --epochs 1
        prefix=() && [[ $to = here ]] || prefix=("${in_comma[@]}")
        succeeds "${prefix[@]}" "$train" train "${small[@]}" "${steps[@]}" --resume
        grep 'Test loss' "$folder/out" | tr , . >>"$folder/losses"
    done
done
[[ $(sort -u "$folder/losses" | wc -l) -eq 1 ]] || fail "other losses: $(cat "$folder/losses")"

# What --help prints as a default can be typed.
"${in_comma[@]}" "$train" train --help | grep -q 'default: 0\.01' || fail "--help has no 0.01"
refused "'0,5'" "${in_comma[@]}" "$train" train --base-lr 0,5

# Ranks: variables, traces, checkpoints with a rank's own part.
ranks=("${in_comma[@]}" HVDLAB_TRACE="$folder/trace" HVD_STALL_SECONDS=0.5 mpirun -np 2 "$folder/train" "${small[@]}"
    --images 64 --epochs 2 --checkpoint-dir "$folder/ranks" --target-accuracy 0.5)
succeeds "${ranks[@]}"
succeeds "${ranks[@]}" --epochs 3 --resume
[[ $(grep -c '^history' "$folder/out") -eq 3 ]] || fail "not three epochs: $(cat "$folder/out")"
succeeds "${in_comma[@]}" "$build/tests/unit/test_numbers"

conclude
