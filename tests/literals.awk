# Usage: awk -f tests/literals.awk FILE...
#
# Names string literals of one word on a line beside another literal: leftovers of a line break that a formatter made.
# A break behind \n is meant, and so is one behind \x.., which would take the next letters. Status 1 where there is one.

function is_word(text) { return text !~ /[ \t]/ && text !~ /\\n$/ && text !~ /\\[xu]/ }
FNR == 1 { before = "" }
{
    # The last literal of the line, if it ends it; and a line that begins with one.
    opens = match($0, /^[ \t]*"([^"\\]|\\.)*"/) ? substr($0, RSTART, RLENGTH) : ""
    gsub(/^[ \t]*"|"$/, "", opens)
    if (before != "" && opens != "" && before !~ /\\n$/ && before !~ /\\[xu]/ && (is_word(before) || is_word(opens))) {
        print FILENAME ":" FNR ": fill these lines: \"" before "\" \"" opens "\"" > "/dev/stderr"
        wrong = 1
    }
    before = match($0, /"([^"\\]|\\.)*"$/) ? substr($0, RSTART + 1, RLENGTH - 2) : ""
}
END { exit wrong }
