#!/usr/bin/env bash
# Translated texts: the PO files are well formed; code, commands, links and most numbers are those of the English text; and
# for each file, how many of its paragraphs as they are now are translated.

. tests/lib.sh
for each in po4a-translate po4a-updatepo msgfmt; do
    command -v $each >/dev/null || skip "$each is not there"
done
TO=$folder/zh succeeds common/scripts/translate.sh

# What must be the same: fenced and indented blocks; links; words between backticks.
kept()
{
    awk '/^```/ { inside = !inside; print; next } inside || /^    /' "$1"
}
links() { grep -oE '\]\([^)]*\)' "$1" | sort; }
words() { grep -v '^```' "$1" | tr '\n' ' ' | grep -oE '`[^`]+`' | sort; }
for po in labs/po/*/*.po; do
    msgfmt -c -o /dev/null "$po" 2>"$folder/err" || fail "$po: $(cat "$folder/err")"
    name=$(basename "$po" .po) text=labs/$(basename "$po" .po)/handout.md
    [[ $name != README ]] || text=README.md
    [[ -e $text ]] || { fail "$po: there is no $text"; continue; }
    for what in kept links words; do
        diff <($what "$text") <($what "$folder/zh/$text") >"$folder/diff" || fail "$text: $what differ: $(head -n 5 "$folder/diff")"
    done
    cp "$po" "$folder/now.po"
    po4a-updatepo -f text -o markdown -o neverwrap -M UTF-8 -m "$text" -p "$folder/now.po" >/dev/null 2>&1
    echo "$po: $(msgfmt --statistics -o /dev/null "$folder/now.po" 2>&1)"
done
conclude
