#!/usr/bin/env bash
# build/evaluate (lab 6): one file gives the same on a device, on several, and on 1, 2 and 3 ranks; pictures and images
# of one's own; and one line for whatever can't be used. On synthetic images.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVDLAB_TRACE
export HVDLAB_FLAGS="--data synthetic --images 250 --width 1 --loader-threads 1"
evaluate=$build/evaluate

# Without mpirun's absence being noted, which is no error.
refused_once()
{
    run "${@:2}"
    [[ $status -eq 2 && ! -s $folder/out ]] || fail "status $status: ${*:2}: $(cat "$folder/out" "$folder/err")"
    grep -v 'note: started without mpirun' "$folder/err" >"$folder/errors"
    [[ $(wc -l <"$folder/errors") -eq 1 ]] && grep -qF -e "$1" "$folder/errors" ||
        fail "\"$1\" is not the one line of: $(cat "$folder/err")"
}

# The six steps with a line more, on two ranks, and the network of steps/save.c.
sed '/callbacks_add(&callbacks, tensorboard/i\
    callbacks_add(\&callbacks, checkpoint(\&(Checkpoint){.folder = args.checkpoint_dir, .weights_only = true}));' \
    solutions/step_06.c >"$folder/trainer.c"
succeeds "$build/compile-step" "$folder/trainer.c" "$folder/trainer"
limit=120 succeeds mpirun -np 2 "$folder/trainer" --epochs 1 --batch-size 25 --base-lr 0.1 --target-accuracy 1 \
    --log-dir "$folder/logs" --checkpoint-dir "$folder/wide"
succeeds mpirun -np 2 "$build/solution_save" --epochs 1 --batch-size 25 --checkpoint-dir "$folder/small"
[[ $(find "$folder/wide" -type f | wc -l) -eq 1 ]] || fail "weights alone are more than a file: $(ls "$folder/wide")"

for file in wide/ckpt-1 small/best; do
    said=
    for how in "mpirun -np 1" "mpirun -np 2" "mpirun -np 3" "env HVDLAB_DEVICES=1" "env HVDLAB_DEVICES=3"; do
        # shellcheck disable=SC2086 # words
        succeeds $how "$evaluate" --weights "$folder/$file.safetensors" --val-batch-size 40
        [[ -n $said ]] || said=$(cat "$folder/out")
        # All but the loss is the same, to the letter.
        [[ $(grep -v '^Test loss' "$folder/out") == "$(grep -v '^Test loss' <<<"$said")" ]] ||
            fail "$file: $how: $(cat "$folder/out") instead of $said"
        awk -v said="$said" '/^Test loss: / { split(said, word, "[ \n]"); d = $3 - word[3]; exit !(d * d <= 1e-12) }' \
            "$folder/out" || fail "$file: $how: another loss: $(head -n 1 "$folder/out") instead of $said"
    done
    grep -qE '^Test accuracy: [01]\.[0-9]{4} \([0-9]+ of 250\)$' <<<"$said" || fail "$file: $said"
    [[ $(grep -c '^ [0-9] class [0-9] ' <<<"$said") -eq 10 ]] || fail "$file: no table: $said"
    awk '/^ [0-9] class/ { for (i = 4; i <= 13; i++) sum += $i } END { exit sum != 250 }' <<<"$said" || fail "$file: the table's sum: $said"
    [[ $(grep -c '^predicted: class [0-9] ([0-9]* %), true: class [0-9]$' <<<"$said") -eq 3 ]] || fail "$file: no images: $said"
done
# What the trainer itself says after its last epoch.
succeeds mpirun -np 1 "$build/solution_save" --epochs 1 --batch-size 50 --checkpoint-dir "$folder/one"
val=$(grep -o 'val_accuracy: [0-9.]*' "$folder/out")
succeeds "$evaluate" --weights "$folder/one/ckpt-1.safetensors"
grep -q "^Test accuracy: ${val#* } " "$folder/out" || fail "the trainer said $val: $(cat "$folder/out")"

weights=(--weights "$folder/small/best.safetensors")
succeeds "$evaluate" "${weights[@]}" --pictures "$folder/pictures"
succeeds "$evaluate" "${weights[@]}" "--pictures=$folder/pictures" # its own files are replaced
for number in 0 1 2; do
    ! command -v python3 >/dev/null ||
        python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$folder/pictures/image-$number.svg" ||
        fail "image-$number.svg is not well-formed"
    [[ $(tail -n 1 "$folder/pictures/image-$number.svg") == '</svg>' ]] || fail "image-$number.svg does not end"
done
echo mine >"$folder/pictures/image-1.svg"
run "$evaluate" "${weights[@]}" --pictures "$folder/pictures"
[[ $status -eq 2 && $(cat "$folder/pictures/image-1.svg") == mine ]] || fail "a user's file: status $status"
grep -q 'image-1.svg is there, and was not written by this program' "$folder/err" || fail "$(cat "$folder/err")"

# An image of one's own, in both forms of PGM.
awk 'BEGIN { print "P2\n# a square\n28 28 15"; for (i = 0; i < 784; i++) print (i % 28 > 6 && i % 28 < 21 && i > 195 && i < 588 ? 15 : 0) }' \
    >"$folder/own.pgm"
{ printf 'P5 28 28 15\n' && awk 'NR > 3 { printf "%s", $1 ? "\017" : "0" }' "$folder/own.pgm" | tr 0 '\000'; } >"$folder/binary.pgm"
succeeds "$evaluate" "${weights[@]}" --image "$folder/own.pgm"
cp "$folder/out" "$folder/first"
[[ $(grep -c '^predicted: class [0-9] ([0-9]* %)$' "$folder/out") -eq 1 && $(grep -c '@@@@' "$folder/out") -eq 6 ]] ||
    fail "an image of one's own: $(cat "$folder/out")"
succeeds "$evaluate" "${weights[@]}" --image "$folder/binary.pgm"
cmp -s "$folder/first" "$folder/out" || fail "P5 is not as P2: $(cat "$folder/out")"

refused_once "--weights is missing" "$evaluate"
refused_once "--weights lacks its value" "$evaluate" --weights
refused_once "$folder/none: No such file" "$evaluate" --weights "$folder/none"
head -c 2000 "$folder/small/best.safetensors" >"$folder/cut"
refused_once "$folder/cut: " "$evaluate" --weights "$folder/cut"
cp "$folder/small/best.safetensors" "$folder/damaged"
printf 'x' | dd of="$folder/damaged" bs=1 seek=100000 conv=notrunc status=none
refused_once "$folder/damaged: the file is damaged" "$evaluate" --weights "$folder/damaged"
refused_once "unknown flag --pixels" "$evaluate" "${weights[@]}" --pixels
refused_once "cannot make the folder /proc/none" "$evaluate" "${weights[@]}" --pictures /proc/none
refused_once "cannot read $folder/none" "$evaluate" "${weights[@]}" --image "$folder/none"
printf '\211PNG\r\n' >"$folder/x.png"
refused_once "convert $folder/x.png -resize 28x28! -colorspace Gray x.pgm" "$evaluate" "${weights[@]}" --image "$folder/x.png"
for header in 'P2 28 27 255' 'P5 28 28 65535' 'P2 x'; do
    echo "$header" >"$folder/bad.pgm"
    refused_once "has to be 28 x 28 pixels" "$evaluate" "${weights[@]}" --image "$folder/bad.pgm"
done
head -c 300 "$folder/own.pgm" >"$folder/bad.pgm"
refused_once "is missing or above 15" "$evaluate" "${weights[@]}" --image "$folder/bad.pgm"
run mpirun -np 3 "$evaluate" --weights "$folder/own.pgm"
[[ $status -eq 2 && $(grep -c "^evaluate: " "$folder/err") -eq 1 ]] || fail "3 ranks: status $status: $(cat "$folder/err")"

conclude
