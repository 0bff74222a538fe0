#!/usr/bin/env bash
# make measure LAB=NN rewrites the tables of that lab's handouts that say how they are measured, and
# nothing else; where a command fails, nothing.

. tests/lib.sh
scripts=$PWD/common/scripts
mkdir -p "$folder/labs/77-lab" "$folder/labs/78-other"
handout=$folder/labs/77-lab/handout.md
cd "$folder" || exit 1

printf '%s\n' 'Text | with a bar.' '' '| kept |' '' "<!-- measure: printf '| %s |\\n' new 1 2 -->" '' '| old |' \
    '| 3 |' '' 'After it.' '' '| kept, too |' >"$handout"
cp "$handout" labs/78-other/handout.md
cp "$handout" before
"$scripts/measure.sh" 77 2>/dev/null || fail "status $?"
printf '%s\n' 'Text | with a bar.' '' '| kept |' '' "<!-- measure: printf '| %s |\\n' new 1 2 -->" '' '| new |' \
    '| 1 |' '| 2 |' '' 'After it.' '' '| kept, too |' | cmp -s - "$handout" || fail "it has become: $(cat "$handout")"
cmp -s before labs/78-other/handout.md || fail "another lab's handout has changed"

sed -i "s/measure: .* -->/measure: echo '| half |'; false -->/" "$handout"
cp "$handout" before
! "$scripts/measure.sh" 77 2>/dev/null || fail "a command that fails is taken for one that measures"
cmp -s before "$handout" || fail "a command failed, and the handout has changed: $(cat "$handout")"

for number in '' 79 x; do
    "$scripts/measure.sh" $number 2>"$folder/err"
    [[ $? -eq 2 && $(wc -l <"$folder/err") -eq 1 ]] || fail "LAB=$number: $(cat "$folder/err")"
done

conclude
