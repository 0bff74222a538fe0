# Cuts what students are not to see out of a text: what stands between `<!-- cut -->` and `<!-- /cut -->`; the answers
# and solutions that a reader unfolds (with measured=cut what was measured, too, and what stands between
# `<!-- measured -->` and `<!-- /measured -->`); comments for the tests. A block
# that does not end, or ends twice, is an error: status 1.
#
#     awk -v measured=cut -v table="$(labs.sh table)" -v released="1 2 ring" -f cut.awk handout.md
#
# With a table, exercises that are not released are cut, too: their sections, which begin with `## NAME: ` or `## Step N: ` and
# go on to the next such heading or line `---`;
# what stands between `<!-- with: A B -->` and `<!-- /with -->`, unless A and B are both released; and what stands
# between `<!-- after: A -->` and `<!-- /after -->`, which shows A's answer, unless an exercise after A is
# released, whose file shows it anyway. With tests=kept the comments for the tests stay.

BEGIN {
    count = split(table, rows, "\n")
    split(released, words, /[ \n]+/)
    for (w in words)
        is_released[words[w]] = 1
    for (r = 1; r <= count; r++) {
        name = rows[r]
        sub(/ .*/, "", name)
        place[name] = r
        if (name in is_released)
            last = r
    }
}

function fail(why) { printf "%s:%d: %s\n", FILENAME, FNR, why > "/dev/stderr"; failed = 1; exit 1 }

# The words of a marker, `<!-- with: A B -->`; each is an exercise.
function named_in(marker, names,   n, i) {
    gsub(/^<!-- [a-z]+: | -->$/, "", marker)
    n = split(marker, names, " ")
    for (i = 1; i <= n; i++)
        if (count && !(names[i] in place))
            fail(names[i] " is no exercise")
    return n
}

# The exercise that a heading begins; nothing: it is none's.
function exercise_of(heading) {
    if (heading !~ /^## (Step [0-9]+|[a-z0-9_]+): /)
        return ""
    gsub(/^## (Step )?|: .*/, "", heading)
    return heading in place ? heading : ""
}

comment { if (tests == "kept") print; if (/-->/) comment = 0; next }
/^<!-- (check|student|measure):/ { if (tests == "kept" && !hidden && !cut && !section && !left_out) print; if (!/-->/) comment = 1; next }

/^<!-- cut -->$/ { if (cut++) fail("a cut within a cut"); next }
/^<!-- \/cut -->$/ { if (cut-- != 1) fail("a cut ends that has not begun"); next }

/^<!-- (with|after): .* -->$/ {
    if (block)
        fail("a block within a block")
    block = substr($2, 1, length($2) - 1)
    n = named_in($0, names)
    for (i = 1; i <= n && count; i++)
        if (block == "with" ? !(names[i] in is_released) : last <= place[names[i]])
            left_out = 1
    next
}
/^<!-- measured -->$/ {
    if (block)
        fail("a block within a block")
    block = "measured"
    left_out = measured == "cut"
    next
}
/^<!-- \/(with|after|measured) -->$/ {
    if (block != substr($2, 2))
        fail("a block ends that has not begun")
    block = left_out = 0
    next
}

/^```/ { code = !code }
!code && /^##? / { name = exercise_of($0); section = name != "" && !(name in is_released) }
!code && /^---$/ { section = 0 }

/<details>/ {
    if (open++) fail("details within details")
    hidden = /<summary>(Answer|Solution)</ || (measured == "cut" && /<summary>Measured</)
}
/<\/details>/ {
    if (open-- != 1) fail("details end that have not begun")
    if (hidden) { hidden = 0; next }
}
cut || hidden || section || left_out { next }

measured == "cut" { sub(/Then open \*Measured\*\. /, "") }
# Where a command runs a solution, the student's own program stands in its place.
{
    gsub(/build\/solution_0/, "build/step_0")
    gsub(/build\/solution_/, "build/")
    gsub(/make solution-/, "make step-")
}
# Empty lines are not repeated, nor are lines between sections; none is last.
!code && /^(---)?$/ { if ($0 != "") rule = 1; else empty = 1; next }
{
    if (rule) print "\n---"
    if (rule || (empty && printed)) print ""
    rule = empty = 0
    printed = 1
    print
}

END { if (!failed && (cut || open || comment || block)) fail("a block does not end") }
