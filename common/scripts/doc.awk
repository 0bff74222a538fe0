# Usage: NAME=hvd_rank awk -f doc.awk common/*.h
#
# Prints what the headers say about a function, type, macro, enumerator or field: where it stands, its
# declaration, and the comment above, which declarations without a blank line between them share.
# An unknown name gets one line with the names near it, status 2; no name at all a list of what
# hvdlab.h offers.
#
# A block is a comment with the declarations under it, up to a blank line outside braces or to the
# next comment. The first block of a file without declarations is what the file says about itself.

# ---- Reading: one line after another, into blocks.

FNR == 1 {
    end_block()
    head_done = skipping = 0
}

FILENAME ~ /\/hvdlab\.h$/ && /^#include "/ {
    split($0, part, "\"")
    offered[++offered_count] = part[2]
}

# A macro may go on over several lines; other lines for the preprocessor only separate blocks.
brace == 0 && !skipping && /^#/ {
    if (!/^#define/ || $2 ~ /_H$/)
        end_block()
    else {
        add_code()
        if (split($2, part, "(") > 0)
            declare(part[1], FNR)
    }
    skipping = /\\$/
    next
}

skipping {
    add_code()
    skipping = /\\$/
    next
}

brace == 0 && /^[ \t]*$/ {
    end_block()
    next
}

brace == 0 && /^\/\// {
    if (lines[blocks] > 0)
        end_block()
    text = $0
    sub(/^\/\/ ?/, "", text)
    said[blocks] = said[blocks] text "\n"
    next
}

{
    add_code()
    read_tokens($0)
}

function add_code()
{
    code[blocks] = code[blocks] (/[^ \t]/ ? "    " $0 : "") "\n"
    file[blocks] = FILENAME
    lines[blocks]++
}

function end_block()
{
    if (lines[blocks] == 0 && said[blocks] != "" && !head_done) {
        head[FILENAME] = said[blocks]
        head_done = 1
    }
    blocks++
    brace = paren = 0
    new_declaration()
}

# ---- What a declaration declares.

function new_declaration()
{
    word = field = ""
    is_typedef = is_enum = is_function = closed = 0
}

# A field only counts where nothing else has its name, and "typedef struct X X;" where no struct X
# says more.
function declare(name, line)
{
    if (name == "" || (name, blocks) in line_of)
        return
    line_of[name, blocks] = line
    if (brace > 0 && !is_enum)
        fields[name] = fields[name] " " blocks
    else if ($0 == "typedef struct " name " " name ";")
        forward[name] = forward[name] " " blocks
    else
        places[name] = places[name] " " blocks
    if (is_function || (brace == 0 && line == FNR && /^#/))
        listed[FILENAME] = listed[FILENAME] " " name
}

function read_tokens(rest,    token, previous, before)
{
    sub(/\/\/.*/, "", rest)
    while (match(rest, /[A-Za-z_][A-Za-z0-9_]*|[^ \tA-Za-z_0-9]|[0-9][A-Za-z0-9_.]*/)) {
        token = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (brace == 0)
            read_outside(token, previous, before)
        else
            read_inside(token, previous, before)
        before = previous
        previous = token
    }
}

function read_outside(token, previous, before)
{
    if (token == "typedef")
        is_typedef = 1
    else if (token == "enum")
        is_enum = 1
    else if (token == "(") {
        if (!paren++ && !is_typedef && !is_function) {
            is_function = 1
            declare(word, FNR)
        }
    } else if (token == ")")
        paren--
    else if (token == "{") {
        if (!is_function && word != "struct" && word != "enum" && word != "union")
            declare(word, FNR)
        brace++
    } else if (token == ";" && paren == 0) {
        if (!is_function && !(closed && !is_typedef))
            declare(word, FNR)
        new_declaration()
    } else if (token ~ /^[A-Za-z_]/ && paren == 0)
        word = token
    else if (token ~ /^[A-Za-z_]/ && is_typedef && previous == "*" && before == "(")
        word = token # of a pointer to a function
}

# Enumerators and fields; the body of a function declares nothing.
function read_inside(token, previous, before)
{
    if (token == "{")
        brace++
    else if (token == "(")
        paren++
    else if (token == ")")
        paren--
    else if (!is_function && paren == 0 && token ~ /^[,;}[]$/) {
        declare(field, FNR)
        field = ""
    } else if (!is_function && paren == 0 && is_enum && token == "=") {
        declare(field, FNR)
        field = ""
    } else if (token ~ /^[A-Za-z_]/ && paren == 0 && previous != "=" && previous != "[")
        field = token
    else if (token ~ /^[A-Za-z_]/ && paren == 1 && previous == "*" && before == "(" && field != "")
        declare(token, FNR)
    if (token == "}") {
        brace--
        closed = 1
        if (is_function && brace == 0)
            new_declaration()
    }
}

# ---- Answering.

# Where nothing is said about one thing, what is said about all of them has to do.
function show(block, name)
{
    printf "%s:%d\n\n%s\n", file[block], line_of[name, block], code[block]
    if (said[block] != "")
        printf "%s\n", said[block]
    if (said[block] != "" || code[block] ~ /\/\//)
        printf "What the whole header is about: the top of %s.\n", file[block]
    else
        printf "From the top of %s:\n\n%s", file[block], head[file[block]]
}

# How many letters have to change to make one word of the other (Levenshtein, 1966).
function distance(a, b,    i, j, row, diagonal, above, cost)
{
    for (j = 0; j <= length(b); j++)
        row[j] = j
    for (i = 1; i <= length(a); i++) {
        diagonal = row[0]
        row[0] = i
        for (j = 1; j <= length(b); j++) {
            above = row[j]
            cost = diagonal + (substr(a, i, 1) != substr(b, j, 1))
            if (above + 1 < cost)
                cost = above + 1
            if (row[j - 1] + 1 < cost)
                cost = row[j - 1] + 1
            row[j] = cost
            diagonal = above
        }
    }
    return row[length(b)]
}

# The up to five names nearest to `wanted`, or nothing where none is near.
function near(wanted,    name, d, best, found, count, score, limit)
{
    limit = length(wanted) / 3 < 2 ? 2 : length(wanted) / 3
    for (name in places) {
        d = distance(tolower(wanted), tolower(name))
        if (length(wanted) > 3 && index(tolower(name), tolower(wanted)))
            d = 1
        if (d <= limit)
            score[name] = d
    }
    while (count++ < 5) {
        best = ""
        for (name in score)
            if (best == "" || score[name] < score[best] || (score[name] == score[best] && name < best))
                best = name
        if (best == "")
            break
        found = found (found ? ", " : "") best
        delete score[best]
    }
    return found
}

function show_list(    i, j, name, count, part, line)
{
    print "What a step can use; make doc NAME=hvd_rank tells more about one of them."
    for (i = 1; i <= offered_count; i++) {
        name = "common/" offered[i]
        printf "\n%s:\n", name
        count = split(listed[name], part, " ")
        line = "   "
        for (j = 1; j <= count; j++) {
            if (length(line " " part[j]) > 80) {
                print line
                line = "   "
            }
            line = line " " part[j]
        }
        print line
    }
}

END {
    end_block()
    wanted = ENVIRON["NAME"]
    if (wanted == "") {
        show_list()
        exit 0
    }
    found = wanted in places ? places[wanted] : wanted in forward ? forward[wanted] : fields[wanted]
    count = split(found, block, " ")
    for (i = 1; i <= count; i++) {
        if (i > 1)
            print ""
        show(block[i], wanted)
    }
    if (count == 0) {
        found = near(wanted)
        printf "make doc: there is no %s in common/*.h; %s\n", wanted,
            found ? "near it: " found : "make doc lists what there is" >"/dev/stderr"
        exit 2
    }
}
