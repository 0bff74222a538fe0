#!/usr/bin/env bash
# Usage: tests/steps/test_hints.sh
#
# Code in hints, as CONTRIBUTING.md wants it written, is what takes the place of a TODO: each block of it, in its order, is in the
# solution and not in the student's file, or in a right answer of tests/alternatives, which compiles. Lines of text fit
# into 82 columns.

. tests/lib.sh

# squeezed FILE: without comments and white space.
squeezed() { sed 's://.*::' "$1" | tr -d ' \n'; }

# blocks HINTS: of each block of code, the number of its first line and a regular expression.
blocks()
{
    awk '
        function flush() { if (block != "") print start " " block; block = "" }
        !/^    / || /^ *(make|awk|https:)/ { flush(); next }
        {
            if (block == "") start = NR
            if ($0 ~ /^ *(\/\/|\.\.\.$)/) $0 = "@"
            sub(/\/\/.*/, ""); gsub(/ /, "")
            block = block $0
        }
        END { flush() }' "$1" |
        sed -E 's/[][\\.*^$(){}+?|]/\\&/g; s/for\\\((\\\.){3}\\\)/for\\([^{}]*\\)/g; s/(\\\.){3}/[^;{}]*/g; s/@/.*/g'
}

# in_alternative NAME REGEX
in_alternative()
{
    local patch
    for patch in tests/alternatives/"$1"/*.patch; do
        patch -s -o "$folder/$1.c" "solutions/$1.c" "$patch"
        squeezed "$folder/$1.c" | grep -qE -e "$2" && "$build/compile-step" "$folder/$1.c" "$folder/program" && return
    done
}

count=0
for hints in labs/*/hints/*.md; do
    name=$(basename "$hints" .md)
    while read -r line regex; do
        count=$((count + 1))
        ! squeezed "steps/$name.c" | grep -qE -e "$regex" || fail "$hints:$line: this code is in steps/$name.c already"
        squeezed "solutions/$name.c" | grep -qE -e "$regex" || in_alternative "$name" "$regex" ||
            fail "$hints:$line: neither solutions/$name.c nor an alternative has this code: $regex"
    done < <(blocks "$hints")
done
echo "$count blocks of code in hints"
# A terminal of 80 columns breaks no word of a hint's text.
wide=$(grep -nE '^[^ ].{82}' labs/*/hints/*.md) && fail "a hint's line is longer than 82 characters: $wide"
[[ $count -gt 50 ]] || fail "that is too few"
conclude
