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

# A decimal point of two bytes.
sed 's/^decimal_point.*/decimal_point "<U066B>"/' "$folder/comma" >"$folder/arabic"
localedef -c -f UTF-8 -i "$folder/arabic" "$folder/locales/arabic" >/dev/null 2>&1
rm -rf "$folder/trace"
succeeds env -u LC_ALL LOCPATH="$folder/locales" LC_NUMERIC=arabic HVDLAB_TRACE="$folder/trace" mpirun -np 2 "$folder/train" "${small[@]}" --images 64 --epochs 1
grep -q '"t":[0-9]*\.[0-9]' "$folder/trace/rank-0.jsonl" && ! LC_ALL=C grep -q $'\xd9\xab' "$folder/trace/rank-0.jsonl" || fail "a trace: $(head -n 1 "$folder/trace/rank-0.jsonl")"

# Other programs' words, translated: a file that was changed is still seen.
localedef -c -f UTF-8 -i de_DE "$folder/locales/de_DE.UTF-8" >/dev/null 2>&1
german=(env LOCPATH="$folder/locales" LC_ALL=de_DE.UTF-8)
if "${german[@]}" cat /nowhere 2>&1 | grep -q Datei; then
    # shellcheck disable=SC2016 # of the inner shell
    refused "made/file was not made by the kit, or was changed since" "${german[@]}" sh -c '
        goal=test; . common/scripts/folders.sh
        begin_folder "$1" && echo a >"$fresh/file" && end_folder "$1"
        echo b >>"$1/file"; need_own "$1"' sh "$folder/made"
fi

conclude
