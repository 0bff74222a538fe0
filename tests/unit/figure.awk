# Prints what is wrong with a figure (SVG): no title or description, a class without a style, a point or a text
# outside of the view box, a number that needs a unit. A text's width is estimated from its number of characters.
#
# Usage: LC_ALL=C awk -f tests/unit/figure.awk FIGURE.svg

function attribute(tag, name,    from)
{
    if (!match(tag, "[ \"]" name "=\"[^\"]*\""))
        return ""
    from = RSTART + length(name) + 3
    return substr(tag, from, RSTART + RLENGTH - 1 - from)
}

function inside(x, y, what)
{
    if (x < 0 || x > width || y < 0 || y > height)
        print what " at " x ", " y " is outside of the view box"
}

# The corners of a path, which has the commands M, L, H, V, h, v and z.
function check_path(path,    command, numbers, x, y)
{
    while (match(path, /^[MLHVhvz][-0-9., ]*/)) {
        command = substr(path, 1, 1)
        split(substr(path, 2, RLENGTH - 1), numbers, /[ ,]+/)
        path = substr(path, RLENGTH + 1)
        if (numbers[1] == "") {
            numbers[1] = numbers[2]
            numbers[2] = numbers[3]
        }
        if (command ~ /[ML]/) { x = numbers[1]; y = numbers[2] }
        if (command == "H") x = numbers[1]
        if (command == "V") y = numbers[1]
        if (command == "h") x += numbers[1]
        if (command == "v") y += numbers[1]
        inside(x + 0, y + 0, "a path")
    }
    if (path != "")
        print "a path with \"" substr(path, 1, 20) "\""
}

function check_text(tag, words,    anchor, size, wide, left)
{
    anchor = attribute(tag, "text-anchor")
    if (anchor == "") anchor = attribute(tag, "class") in anchors ? anchors[attribute(tag, "class")] : anchors[""]
    gsub(/&[a-z]+;/, "x", words)
    if (words ~ /^[0-9]+$/ && length(words) > 5 || words ~ /[0-9][kmg]bit/)
        print "\"" words "\" is without a unit, such as MB or Mbit/s"
    wide = 6.6 * length(words)
    left = attribute(tag, "x") - (anchor == "middle" ? wide / 2 : anchor == "end" ? wide : 0)
    inside(left, attribute(tag, "y") + 0, "\"" words "\"")
    inside(left + wide, attribute(tag, "y") + 0, "\"" words "\"")
}

{ text = text $0 " " }

END {
    split(substr(text, match(text, /viewBox="[^"]*"/) + 9), box, /[ "]/)
    width = box[3] + 0
    height = box[4] + 0
    if (text !~ /<title [^>]*>[^<]/ || text !~ /<desc [^>]*>[^<]/)
        print "no title, or no description"
    style = text
    sub(/.*<style>/, "", style)
    sub(/<\/style>.*/, "", style)
    while (match(style, /[.a-z][-.a-z0-9 ]*\{[^{}]*\}/)) {
        rule = substr(style, RSTART, RLENGTH)
        style = substr(style, RSTART + RLENGTH)
        name = rule
        sub(/ *\{.*/, "", name)
        styled[substr(name, 2)] = name ~ /^\./
        if (match(rule, /text-anchor: [a-z]+/))
            anchors[name == "text" ? "" : substr(name, 2)] = substr(rule, RSTART + 13, RLENGTH - 13)
    }
    sub(/<defs>.*<\/defs>/, "", text)
    sub(/.*<\/style>/, "", text)
    while (match(text, /<[^>]*>/)) {
        tag = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        count = split(attribute(tag, "class"), classes, " ")
        for (i = 1; i <= count; i++)
            if (!styled[classes[i]])
                print "class " classes[i] " has no style"
        if (tag ~ /^<path/) check_path(attribute(tag, "d"))
        if (tag ~ /^<(rect|use)/) inside(attribute(tag, "x") + 0, attribute(tag, "y") + 0, "a box")
        if (tag ~ /^<circle/) inside(attribute(tag, "cx") + 0, attribute(tag, "cy") + 0, "a circle")
        if (tag ~ /^<text/) check_text(tag, substr(text, 1, index(text, "<") - 1))
    }
}
