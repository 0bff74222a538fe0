#!/usr/bin/env bash
# Translated texts: the PO files are well formed; code, commands, comments, links and words between backticks are those of the
# English text; a link to a heading leads somewhere; a term has one Chinese name; and for each file, how many of its paragraphs as
# they are now are translated.

. tests/lib.sh
for each in po4a-translate po4a-updatepo msgfmt; do
    command -v $each >/dev/null || skip "$each is not there"
done

# What must be the same: fenced and indented blocks, comments, the lines between hints and the names of diagnoses; links; words
# between backticks; in diagnoses, which have none, functions.
kept()
{
    awk '/^```/ { inside = !inside; print; next } inside || /^    / || /^<!--/ || /^---$/ || FILENAME ~ /txt$/ && /^\[/' "$1"
}
links() { grep -oE '\]\([^)]*\)' "$1" | sort; }
words() { grep -v '^```' "$1" | tr '\n' ' ' | grep -oE "$([[ $1 == *.txt ]] && echo '[a-zA-Z_]+\(\)' || echo '`[^`]+`')" | sort; }
for language in labs/po/*/; do
    language=$(basename "$language")
    TEXTS=$language TO=$folder/$language succeeds common/scripts/translate.sh
    for text in README.md labs/*.md labs/*/*.md labs/*/hints/*.md tests/steps/diagnoses/*.txt; do
        new=$folder/$language/$text
        for what in kept links words; do
            diff <($what "$text") <($what "$new") >"$folder/diff" || fail "$text: $what differ: $(head -n 5 "$folder/diff")"
        done
        while read -r anchor; do
            grep -q "<a id=\"$anchor\">" "$new" || fail "$new: no heading for a link to #$anchor"
        done < <(grep -q '<a id=' "$new" && grep -oE '\]\(#[^)]*\)' "$new" | sed 's/](#//; s/)//')
    done
    awk -F '\t' '{ of = gsub(/%s/, "", $1); if ($2 == "" || gsub(/%s/, "", $2) != of) print }' "$folder/$language/common/scripts/words" >"$folder/faults"
    [[ ! -s $folder/faults ]] || fail "a word of make progress lacks a translation, or its parts: $(cat "$folder/faults")"
    # The Chinese name of a term is that of its translated heading. (A term that stays English has none.)
    [[ $language != zh_CN ]] || awk -v page="$folder/$language/labs/terms.md" 'function fault(why) { print term ": " why; faults++ }
        /^## / { term = substr($0, 4); while ((getline line <page) > 0 && line !~ /^## /) ; heading = substr(line, 4) }
        term != "" && match($0, /^\*\*[^*]*\.\*\* /) { name = substr($0, 3, RLENGTH - 6)
            if (index(heading, name) != 1) fault(name " here, " heading " as a heading") }
        END { exit faults > 0 }' labs/terms.md >"$folder/faults" || fail "labs/terms.md: $(cat "$folder/faults")"
    cp -R "labs/po/$language" "$folder/now"
    TEXTS=$language PO=$folder/now succeeds common/scripts/translate.sh update
    for po in labs/po/"$language"/*.po; do
        msgfmt -c -o /dev/null "$po" 2>"$folder/err" || fail "$po: $(cat "$folder/err")"
        echo "$po: $(msgfmt --statistics -o /dev/null "$folder/now/$(basename "$po")" 2>&1)"
    done
    rm -rf "$folder/now"
done
conclude
