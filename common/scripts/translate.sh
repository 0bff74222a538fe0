#!/usr/bin/env bash
# Usage: translate.sh           makes the translated texts (make translate), in TO (build/zh_CN)
#        translate.sh update    brings the PO files up to date with the English texts
# TEXTS (zh_CN) is the language; PO (labs/po/LANGUAGE) the folder of its PO files; FROM (.) has the English texts, and may be
# TO, if a script of the kit made it. labs/po/README.md says more.

set -eu
goal="make translate"
. common/scripts/folders.sh
language=${TEXTS:-zh_CN}
files=${PO:-labs/po/$language}
[[ -d $files ]] || refuse "there is no $files"
from=${FROM:-.}
target=${TO:-${BUILD:-build}/$language}
work=$(mktemp -d)
trap 'rm -rf "$work" "$fresh"' EXIT
markdown=(-f text -o markdown -o neverwrap -M UTF-8)

quietly()
{
    "$@" >"$work/errors" 2>&1 || {
        cat "$work/errors" >&2
        exit 1
    }
}

# masters PO: the English texts of a PO file, as far as they are there.
masters()
{
    case $(basename "$1" .po) in
    README) echo README.md ;;
    diagnoses) printf '%s\n' tests/steps/diagnoses/*.txt ;;
    keras) echo labs/01-baseline/keras.md ;;
    words) echo common/scripts/words ;;
    hints) (cd "$from" && find labs -path 'labs/*/hints/*.md' | LC_ALL=C sort) ;;
    [0-9]*) echo "labs/$(basename "$1" .po)/handout.md" ;;
    *) echo "labs/$(basename "$1" .po).md" ;;
    esac | while read -r text; do
        [[ ! -e $from/$text && $text != */words ]] || echo "$text"
    done
}

# What `make progress` says, and the titles of labs and exercises.
words()
{
    (cd "$from" && grep -oE "said '[^']*'" common/scripts/student.sh | cut -d "'" -f 2 &&
        for list in labs titles; do common/scripts/labs.sh "$list" | cut -d ' ' -f 2-; done) | awk '!seen[$0]++'
}

# english TEXT: a copy for po4a. Hints stand behind lines of three dashes, which Markdown takes for the underline of a title.
english()
{
    mkdir -p "$work/$(dirname "$1")"
    case $1 in
    */words) words | sed 's/$/\n/' ;;
    */hints/*) awk '/^---$/ { print "\n<!-- hint -->\n"; next } { print }' "$from/$1" ;;
    *) cat "$from/$1" ;;
    esac >"$work/$1"
    echo "$work/$1"
}

if [[ ${1:-} == update ]]; then
    for po in "$files"/*.po; do
        texts=()
        while read -r text; do
            texts+=(-m "$(english "$text")")
        done < <(masters "$po")
        quietly po4a-updatepo "${markdown[@]}" --porefs none "${texts[@]}" -p "$po"
        rm -f "$po~"
        sed -i '/^"POT-Creation-Date:/d' "$po"
    done
    exit
fi

# with_anchors ENGLISH TRANSLATED: links lead to a heading by its English words.
with_anchors()
{
    awk '/^```/ { code = !code }
        /^##/ && !code {
            if (FNR == NR) {
                anchor = tolower($0)
                gsub(/^#+ +|[^a-z0-9 _-]/, "", anchor)
                gsub(/ /, "-", anchor)
                anchors[++headings] = anchor
            } else
                printf "<a id=\"%s\"></a>\n\n", anchors[++heading]
        }
        FNR != NR' "$1" "$2"
}

# All that links lead to; what has no translation stands there in English.
if [[ $from == "$target" ]]; then
    need_folder "$target"
    has_mark "$target" || refuse "$target was not made by the kit: name another folder"
    to=$target
else
    begin_folder "$target"
    to=$fresh
    cp -R "$from"/{README.md,CONTRIBUTING.md,LICENSE,labs} "$to"
fi
for po in "$files"/*.po; do
    while read -r text; do
        master=$(english "$text")
        mkdir -p "$to/$(dirname "$text")"
        quietly po4a-translate "${markdown[@]}" -L UTF-8 -k 0 -m "$master" -p "$po" -l "$work/translated"
        case $text in
        */words) paste <(words) <(grep . "$work/translated") ;;
        */hints/*) sed -z 's/\n*<!-- hint -->\n*/\n---\n/g' "$work/translated" ;;
        *) with_anchors "$master" "$work/translated" ;;
        esac >"$to/$text"
    done < <(masters "$po")
done
[[ -z $fresh ]] || end_folder "$target"
echo "make translate: $target"
