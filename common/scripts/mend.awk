# Mends a text that was cut (cut.awk), so that it names nothing that the students' package lacks:
#
#     awk -v table="$(labs.sh table)" -v released="1 2 ring" -v path=labs/03-allreduce/handout.md \
#         -f mend.awk ABSENT PRESENT TEXT
#
# ABSENT lists what the kit has and the package lacks, a word each: `ring.gp` is a file's path, `build/ring` a program,
# `make:diff-1` a target. PRESENT lists the package's files, folders and, after a #, headings, by which links are found.
#
# A command that names something absent is left out; so is a block without commands, the label above it and what it printed;
# and so is a section whose commands were all left out, and that asks nothing. In the text a sentence is left out that names something absent, `so`;
# in a table the row that begins with it, or another cell. A link that leads nowhere becomes its words. A row of
# README's table lists the exercises that are released, and none whose lab is absent.

BEGIN {
    split(released, words, /[ \n]+/)
    for (w in words)
        is_released[words[w]] = 1
    count = split(table, rows, "\n")
    for (r = 1; r <= count; r++) {
        order[r] = rows[r]
        sub(/ .*/, "", order[r])
        is_exercise[order[r]] = 1
    }
    folder = path
    if (!sub(/\/[^\/]*$/, "", folder))
        folder = "."
}

FILENAME == ARGV[1] { absent[$0] = 1; next }
FILENAME == ARGV[2] { present[$0] = 1; next }
{ line[++lines] = $0 }

function works(command,   words, n, i, making) {
    n = split(command, words, /[^A-Za-z0-9_.\/=-]+/)
    for (i = 1; i <= n; i++) {
        sub(/^\.\//, "", words[i])
        if (words[i] in absent || (making && ("make:" words[i]) in absent))
            return 0
        if (words[i] == "make")
            making = 1
    }
    return 1
}

# The file that a link of this text leads to, without dots.
function target_of(link,   parts, n, i, kept, out) {
    n = split((link ~ /^#/ ? path : folder "/") link, parts, "/")
    kept = 0
    for (i = 1; i <= n; i++) {
        if (parts[i] == "..")
            kept--
        else if (parts[i] != "." && parts[i] != "")
            out[++kept] = parts[i]
    }
    link = out[1]
    for (i = 2; i <= kept; i++)
        link = link "/" out[i]
    return link
}

function mend_links(text,   out, link, words, at) {
    while (match(text, /\[[^][]*\]\([^() ]+\)/)) {
        out = out substr(text, 1, RSTART - 1)
        link = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        at = index(link, "](")
        words = substr(link, 2, at - 2)
        target = substr(link, at + 2, length(link) - at - 2)
        out = out (target ~ /^https?:/ || target_of(target) in present ? link : words)
    }
    return out text
}

# Does some `span` of a text name something absent?
function names_absent(text,   spans, n, s) {
    n = split(text, spans, "`")
    for (s = 2; s <= n; s += 2)
        if (!works(spans[s]))
            return 1
    return 0
}

# A sentence ends with . ? ! (and ) or **, and a blank) outside of a `span`; or as Chinese ones do.
function mend_sentences(text,   out, sentence, part, ticks) {
    if (!names_absent(text))
        return text
    while (text != "") {
        sentence = ""
        do {
            part = match(text, /[.?!][)*"]*[ \n]|。|？|！/) ? substr(text, 1, RSTART + RLENGTH - 1) : text
            text = substr(text, length(part) + 1)
            sentence = sentence part
            ticks = gsub(/`/, "`", sentence)
        } while (ticks % 2 && text != "")
        # What begins a list's item stays in front of what is left of it.
        if (!names_absent(sentence))
            out = out sentence
        else if (match(sentence, /^( *[-*]|[0-9]+\.) /) && text ~ /^[^\n-]/)
            out = out substr(sentence, 1, RLENGTH)
        else if (sentence ~ /\n$/)
            sub(/ $/, "\n", out)
    }
    return out ~ /^[ \n]*$/ ? "" : out
}

# A row of a table.
function mend_row(row,   cells, n, i) {
    if (!names_absent(row))
        return row
    n = split(row, cells, "|")
    if (names_absent(cells[2]))
        return ""
    row = ""
    for (i = 2; i < n; i++)
        row = row "|" (names_absent(cells[i]) ? " " : cells[i])
    return row "|"
}

# "**`1` to `6`**" and "`ring`" of README's table: those that are released.
function mend_cell(cell,   items, n, i, r, name, out, bold, begin) {
    n = split(cell, items, ", ")
    for (i = 1; i <= n; i++) {
        bold = items[i] ~ /\*\*/ ? "**" : ""
        gsub(/^[ *]+|[ *]+$/, "", items[i])
        if (split(items[i], ends, "`") == 5) {
            begin = 0
            for (r = 1; r <= count; r++) {
                begin = begin || order[r] == ends[2]
                if (begin && order[r] in is_released)
                    out = out (out == "" ? "" : ", ") bold "`" order[r] "`" bold
                if (order[r] == ends[4])
                    break
            }
        } else if (!(ends[2] in is_exercise) || ends[2] in is_released)
            out = out (out == "" ? "" : ", ") bold items[i] bold
    }
    return out
}

# Leaves out lines a to b, and the empty one after them.
function leave_out(a, b) {
    for (; a <= b; a++)
        gone[a] = 1
    if (line[b + 1] == "")
        gone[b + 1] = 1
}

function mend_blocks(   i, begin, kind, left, after_gone) {
    for (i = 1; i <= lines; i++) {
        if (!begin && line[i] ~ /^#+ /) {
            heads[++head_count] = i
            level[head_count] = index(line[i], " ") - 1
        }
        if (line[i] ~ /^\*\*(Question|Predict)/)
            shown[head_count]++ # a student can do it
        if (!begin && line[i] ~ /^```/) {
            begin = i
            kind = line[i]
            left = 0
        } else if (begin && line[i] == "```") {
            if (kind == "```text prints" ? after_gone : kind ~ /^```sh/ && !left)
                leave_out(begin, i)
            after_gone = kind ~ /^```sh/ && !left
            if (after_gone && line[begin - 2] ~ /^\*\*[A-Za-z]+:\*\*$/)
                leave_out(begin - 2, begin - 2)
            begin = 0
        } else if (begin && kind ~ /^```sh/) {
            commands[head_count]++
            if (works(line[i])) {
                left++
                shown[head_count]++
            } else
                gone[i] = 1
        }
    }
    heads[head_count + 1] = lines + 1
}

# Has no section below heading h commands that are shown, and one at least had some?
function is_empty(h,   i, had) {
    for (i = h; i == h || (i <= head_count && level[i] > level[h]); i++) {
        if (shown[i])
            return 0
        had += commands[i]
    }
    return had > 0 && level[h] > 1 && line[heads[h]] !~ /^## (Step [0-9]+|[a-z0-9_]+): /
}

END {
    mend_blocks()
    for (h = 1; h <= head_count; h++)
        if (is_empty(h))
            for (i = h; i == h || (i <= head_count && level[i] > level[h]); i++)
                leave_out(heads[i], heads[i + 1] - 1)
    for (i = 1; i <= lines; i++) {
        if (gone[i] || (line[i] ~ /^    / && !works(line[i])))
            continue
        if (line[i] ~ /^```/)
            code = !code
        if (path == "README.md" && line[i] ~ /^\| [0-9]+\. \[/) {
            split(line[i], cells, "|")
            match(cells[2], /\]\([^)]*/)
            if (substr(cells[2], RSTART + 2, RLENGTH - 2) in present)
                text = text "|" cells[2] "| " mend_cell(cells[3]) " |\n"
        } else if (line[i] !~ /^\|/ || (row = mend_row(line[i])) != "")
            text = text (line[i] ~ /^\|/ ? row : line[i]) "\n"
        # A paragraph, an item of a list or a table is whole: words of a link may be on two lines.
        if (code || line[i] ~ /^(```.*)?$/ || line[i + 1] ~ /^ *([-*]|[0-9]+\.) |^```/) {
            printf "%s", code || line[i] ~ /^```/ ? text : mend_links(text ~ /^[|#]/ ? text : mend_sentences(text))
            text = ""
        }
    }
    printf "%s", mend_links(mend_sentences(text))
}
