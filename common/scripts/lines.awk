# Draws lines and points as SVG, one panel beside the other, on a light page or a dark one. Input:
#
#     figure TITLE            of the whole
#     about WORDS             a description for readers who cannot see it
#     panel TITLE; X; Y       a panel and the labels of its axes, which begin at 0
#     panel TITLE; X; Y; log  a panel with logarithmic axes; of bytes, the marks are 10 KB, 1 MB
#     line NAME               a line of the panel
#     points NAME             points without a line
#     X Y                     a point of the line
#
# Lines of one name have the same colour in all panels, and so have names that differ only after a comma, such
# as "ring" and "ring, predicted".
#
# Usage: LC_ALL=C awk -f common/scripts/lines.awk FILE >FIGURE.svg

function log10(number) { return log(number) / log(10) }
function place(panel, low, high, at) { # 0 to 1
    return logarithmic[panel] ? log10(at / low) / log10(high / low) : at / high
}
function across(panel, x) { return (width + 80) * (panel - 1) + 60 + width * place(panel, narrowest[panel], widest[panel], x) }
function down(panel, y) { return 290 - 230 * place(panel, lowest[panel], highest[panel], y) }
function text(x, y, anchor, words) {
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, words
}

# Between grid lines: 1, 2 or 5 times a power of ten, so that there are at most six.
function step(most,    power, i) {
    split("1 2 5", first, " ")
    for (power = 0.001;; power *= 10)
        for (i = 1; i <= 3; i++)
            if (most <= 6 * power * first[i])
                return power * first[i]
}

function words_after(    words) {
    words = $0
    sub(/^[a-z]+ */, "", words)
    return words
}

function with_unit(bytes) {
    return bytes < 1e3 ? bytes " B" : bytes < 1e6 ? bytes / 1e3 " KB" : bytes < 1e9 ? bytes / 1e6 " MB" : bytes / 1e9 " GB"
}
function x_mark(panel, at) {
    text(across(panel, at), 308, "middle", logarithmic[panel] && x_label[panel] == "bytes" ? with_unit(at) : at)
}
function y_mark(panel, at) {
    printf "<path class=\"grid\" d=\"M%d %d h%d\"/>\n", across(panel, narrowest[panel]), down(panel, at), width
    text(across(panel, narrowest[panel]) - 8, down(panel, at) + 5, "end", at)
}

function draw_axes(panel,    at, apart) {
    if (logarithmic[panel]) {
        lowest[panel] = 10 ^ floor(log10(lowest[panel]))
        highest[panel] = 10 ^ -floor(-log10(highest[panel]))
        for (at = lowest[panel]; at < 1.5 * highest[panel]; at *= 10)
            y_mark(panel, at)
        for (at = 10 ^ -floor(-log10(narrowest[panel])); at <= widest[panel]; at *= 10)
            x_mark(panel, at)
    } else {
        narrowest[panel] = lowest[panel] = 0
        apart = step(highest[panel])
        highest[panel] += 0.05 * highest[panel]
        for (at = 0; at <= highest[panel]; at += apart)
            y_mark(panel, at)
        apart = step(widest[panel])
        for (at = 0; at <= widest[panel]; at += apart)
            x_mark(panel, at)
    }
    text(across(panel, narrowest[panel]) + width / 2, 328, "middle", x_label[panel])
    text(across(panel, narrowest[panel]) - 45, 24, "start", heading[panel] (y_label[panel] == "" ? "" : "; " y_label[panel]))
}

function floor(number) { return int(number) - (number < int(number)) }

function draw_line(l,    i) {
    printf "<g class=\"c%d\">", colour_of[l]
    if (!are_points[l])
        printf "<path d=\""
    for (i = 1; i <= points[l]; i++)
        printf are_points[l] ? "<circle cx=\"%.0f\" cy=\"%.0f\" r=\"3\"/>" : (i > 1 ? "L" : "M") "%.0f %.0f",
            across(panel_of[l], x[l, i]), down(panel_of[l], y[l, i])
    print (are_points[l] ? "" : "\"/>") "</g>"
}

# Places the names in rows. Returns the bottom of the last row.
function place_names(    n, left, row, space) {
    left = 60
    row = 358
    for (n = 1; n <= names; n++) {
        space = 60 + 7.5 * length(name[n])
        if (left > 60 && left + space > 720) {
            left = 60
            row += 22
        }
        name_left[n] = left
        name_row[n] = row
        left += space
    }
    return row + 22
}

function draw_names(    n) {
    for (n = 1; n <= names; n++) {
        if (are_points_named[n])
            printf "<g class=\"c%d\"><circle cx=\"%d\" cy=\"%d\" r=\"3\"/></g>\n", colour_named[n], name_left[n] + 12, name_row[n]
        else
            printf "<g class=\"c%d\"><path d=\"M%d %dh24\"/></g>\n", colour_named[n], name_left[n], name_row[n]
        text(name_left[n] + 30, name_row[n] + 5, "start", name[n])
    }
}

/^figure / { title = words_after(); next }
/^about / { about = words_after(); next }
/^panel / {
    split(words_after(), part, "; *")
    heading[++panels] = part[1]
    x_label[panels] = part[2]
    y_label[panels] = part[3]
    logarithmic[panels] = part[4] == "log"
    next
}
/^line |^points / {
    full = key = words_after()
    sub(/, .*/, "", key)
    if (!(key in colour))
        colour[key] = ++colours
    if (!(full in seen)) {
        seen[full] = ++names
        name[names] = full
        colour_named[names] = colour[key]
        are_points_named[names] = /^points/
    }
    panel_of[++lines] = panels
    colour_of[lines] = colour[key]
    are_points[lines] = /^points/
    next
}
NF == 2 {
    x[lines, ++points[lines]] = $1
    y[lines, points[lines]] = $2
    if ($1 > widest[panels]) widest[panels] = $1
    if ($2 > highest[panels]) highest[panels] = $2
    if (!(panels in narrowest) || $1 < narrowest[panels]) narrowest[panels] = $1
    if (!(panels in lowest) || $2 < lowest[panels]) lowest[panels] = $2
}

END {
    width = panels == 1 ? 620 : 280
    height = place_names()
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 %d\" width=\"720\" height=\"%d\" role=\"img\" aria-labelledby=\"t d\">\n", height, height
    printf "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n", title, about
    print "<style>.page { fill: #ffffff; stroke: #d0d7de } .grid { stroke: #d0d7de } text { font: 13px system-ui, sans-serif; fill: #1f2328 }"
    print "g { fill: none; stroke-width: 2 } .c1 { stroke: #57606a } .c2 { stroke: #2563a8 } .c3 { stroke: #9a6700 } .c4 { stroke: #1a7f37 }"
    print "@media (prefers-color-scheme: dark) { .page { fill: #0d1117; stroke: #30363d } .grid { stroke: #30363d } text { fill: #e6edf3 }"
    print ".c1 { stroke: #9da7b1 } .c2 { stroke: #6cb0f5 } .c3 { stroke: #d6a545 } .c4 { stroke: #4fb66d } }</style>"
    printf "<rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"719\" height=\"%d\" rx=\"8\"/>\n", height - 1
    for (p = 1; p <= panels; p++)
        draw_axes(p)
    for (l = 1; l <= lines; l++)
        draw_line(l)
    draw_names()
    print "</svg>"
}
