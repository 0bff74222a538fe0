# Draws lines as SVG, one panel beside the other, on a light page or a dark one. What to draw:
#
#     figure TITLE            of the whole
#     about WORDS             for those who cannot see it
#     panel TITLE; X; Y       a panel, and what its axes are; both begin at 0
#     line NAME               a line of the panel; one of the same name has the same colour in each
#     X Y                     a point of the line
#
# Usage: LC_ALL=C awk -f common/scripts/lines.awk FILE >FIGURE.svg

function across(panel, x) { return 360 * (panel - 1) + 60 + 280 * x / widest[panel] }
function down(panel, y) { return 290 - 230 * y / highest[panel] }
function text(x, y, anchor, words) {
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, words
}

# Between grid lines: 1, 2 or 5 times a power of ten, so that there are no more than six.
function step(most,    power, i) {
    split("1 2 5", first, " ")
    for (power = 0.001;; power *= 10)
        for (i = 1; i <= 3; i++)
            if (most <= 6 * power * first[i])
                return power * first[i]
}

function words_behind(    words) {
    words = $0
    sub(/^[a-z]+ */, "", words)
    return words
}

/^figure / { title = words_behind(); next }
/^about / { about = words_behind(); next }
/^panel / {
    split(words_behind(), part, "; *")
    heading[++panels] = part[1]
    x_label[panels] = part[2]
    y_label[panels] = part[3]
    next
}
/^line / {
    if (!(words_behind() in colour))
        names[colour[words_behind()] = ++colours] = words_behind()
    panel_of[++lines] = panels
    colour_of[lines] = colour[words_behind()]
    next
}
NF == 2 {
    x[lines, ++points[lines]] = $1
    y[lines, points[lines]] = $2
    if ($1 > widest[panels]) widest[panels] = $1
    if ($2 > highest[panels]) highest[panels] = $2
}

END {
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 380\" width=\"720\" height=\"380\" role=\"img\" aria-labelledby=\"t d\">"
    printf "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n", title, about
    print "<style>.page { fill: #ffffff; stroke: #d0d7de } .grid { stroke: #d0d7de } text { font: 13px system-ui, sans-serif; fill: #1f2328 }"
    print "g { fill: none; stroke-width: 2 } .c1 { stroke: #57606a } .c2 { stroke: #2563a8 } .c3 { stroke: #9a6700 }"
    print "@media (prefers-color-scheme: dark) { .page { fill: #0d1117; stroke: #30363d } .grid { stroke: #30363d } text { fill: #e6edf3 } .c1 { stroke: #9da7b1 } .c2 { stroke: #6cb0f5 } .c3 { stroke: #d6a545 } }</style>"
    print "<rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"719\" height=\"379\" rx=\"8\"/>"
    for (p = 1; p <= panels; p++) {
        apart = step(highest[p])
        highest[p] += 0.05 * highest[p]
        for (at = 0; at <= highest[p]; at += apart) {
            printf "<path class=\"grid\" d=\"M%d %d h280\"/>\n", across(p, 0), down(p, at)
            text(across(p, 0) - 8, down(p, at) + 5, "end", at)
        }
        apart = step(widest[p])
        for (at = 0; at <= widest[p]; at += apart)
            text(across(p, at), 308, "middle", at)
        text(across(p, widest[p] / 2), 328, "middle", x_label[p])
        text(across(p, 0) - 45, 24, "start", heading[p] (y_label[p] == "" ? "" : "; " y_label[p]))
    }
    for (l = 1; l <= lines; l++) {
        printf "<g class=\"c%d\"><path d=\"", colour_of[l]
        for (i = 1; i <= points[l]; i++)
            printf "%s%.0f %.0f", (i > 1 ? "L" : "M"), across(panel_of[l], x[l, i]), down(panel_of[l], y[l, i])
        print "\"/></g>"
    }
    for (c = 1; c <= colours; c++) {
        printf "<g class=\"c%d\"><path d=\"M%d 358h24\"/></g>\n", c, 210 * c - 150
        text(210 * c - 120, 363, "start", names[c])
    }
    print "</svg>"
}
