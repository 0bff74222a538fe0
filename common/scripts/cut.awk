# Cuts what students are not to see out of a text: what stands between `<!-- cut -->` and `<!-- /cut -->`; the answers
# and solutions that a reader unfolds (with measured=cut what was measured, too); comments for the tests. A block
# that does not end, or ends twice, is an error: status 1.
#
#     awk -v measured=cut -f cut.awk handout.md

function fail(why) { printf "%s:%d: %s\n", FILENAME, FNR, why > "/dev/stderr"; failed = 1; exit 1 }

comment { if (/-->/) comment = 0; next }
/^<!-- (check|student|measure):/ { if (!/-->/) comment = 1; next }

/^<!-- cut -->$/ { if (cut++) fail("a cut within a cut"); next }
/^<!-- \/cut -->$/ { if (cut-- != 1) fail("a cut ends that has not begun"); next }

/<details>/ {
    if (open++) fail("details within details")
    hidden = /<summary>(Answer|Solution)</ || (measured == "cut" && /<summary>Measured</)
}
/<\/details>/ {
    if (open-- != 1) fail("details end that have not begun")
    if (hidden) { hidden = 0; next }
}
cut || hidden { next }

# Where a command runs a solution, the student's own program stands in its place.
{
    gsub(/build\/solution_0/, "build/step_0")
    gsub(/build\/solution_/, "build/")
    gsub(/make solution-/, "make step-")
    gsub(/make build\/solution_0/, "make build/step_0")
}
# Empty lines are not repeated.
/^$/ { if (empty) next; empty = 1; print; next }
{ empty = 0; print }

END { if (!failed && (cut || open || comment)) fail("a block does not end") }
