#!/usr/bin/env bash
# Usage: measure.sh NUMBER|NAME
#
# Measures again what the handouts of a lab say, or a page: each table below a line
#
#     <!-- measure: COMMAND -->
#
# is replaced by what COMMAND prints, a table; it runs in the kit's folder. NUMBER is the
# lab's, 03; NAME the page's, labs/NAME.md.
# What the text around a table says of its figures is for whoever runs this to read again.

set -euo pipefail
export LC_ALL=C
shopt -s nullglob

handouts=(labs/"${1:-}"-*/*.md)
[[ ! -f labs/${1:-}.md ]] || handouts=("labs/$1.md")
if [[ ! ${1:-} =~ ^[0-9a-z-]+$ || ${#handouts[@]} -eq 0 ]]; then
    echo "make measure: LAB=NUMBER names a lab, such as 03: labs/NUMBER-...; LAB=NAME a page: labs/NAME.md" >&2
    exit 2
fi
if ! grep -q '^<!-- measure: ' "${handouts[@]}"; then
    echo "make measure: no text of labs/$1... has a line \"<!-- measure: COMMAND -->\"" >&2
    exit 2
fi

# measured FILE: the file with its tables made again.
measured()
{
    local line command='' table
    while IFS= read -r line; do
        if [[ -n $command && $line == '|'* ]]; then
            [[ -z $table ]] || printf '%s\n' "$table"
            table=
            continue
        fi
        [[ -n $line ]] && command=
        printf '%s\n' "$line"
        if [[ $line =~ ^'<!-- measure: '(.*)' -->'$ ]]; then
            command=${BASH_REMATCH[1]}
            echo "make measure: $command" >&2
            table=$(bash -euo pipefail -c "$command" </dev/null)
        fi
    done <"$1"
}

for handout in "${handouts[@]}"; do
    new=$(mktemp)
    trap 'rm -f "$new"' EXIT
    measured "$handout" >"$new"
    cmp -s "$new" "$handout" || cat "$new" >"$handout"
    rm -f "$new"
done
