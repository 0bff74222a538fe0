# Which files show which answers: awk -f answers.awk ANSWERS FILE... prints lines `EXERCISE FILE:LINE`.
#
# ANSWERS is what `release.sh` makes (answers): a line `EXERCISE<TAB>LINE` for each line that a solution adds to its
# untouched file, `EXERCISE<TAB>` where others stand between two of them, and first, as `EXERCISE<TAB><TAB>LINE`,
# the untouched file. Lines are compared without comments and blanks, and without
# the names of variables: lower-case words that are no function, no field and no word of C. A line of an answer that is
# long enough is found anywhere, a shorter one beside the answer's next or previous line. Lines that call nothing but
# C's library, or nothing, count only where they compute.

BEGIN {
    FS = "\t"
    keywords = "^(if|else|for|while|do|return|switch|case|break|continue|default|int|long|float|double|char|bool|void|size_t|const|static|struct|sizeof|unsigned|enum|true|false)$"
    c_library = "^(malloc|calloc|free|printf|snprintf|memcpy|memset|sizeof|if|for|while|switch|return)$"
}

# The line as it is compared; `weight` is its length, or 0 if any program may have it.
function normal(line,   out, word, calls) {
    sub(/\/\/.*/, "", line)
    gsub(/[ \t]+/, " ", line)
    calls = 0
    while (match(line, /[A-Za-z_][A-Za-z_0-9]*/)) {
        out = out substr(line, 1, RSTART - 1)
        word = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (line ~ /^\(/ && word !~ c_library)
            calls++
        out = out (line ~ /^\(/ || word ~ /^[A-Z]/ || out ~ /(\.|->)$/ || word ~ keywords ? word : "v")
    }
    out = out line
    gsub(/ /, "", out)
    weight = calls || out ~ /[-+%*\/].*[-+%*\/]/ ? length(out) : 0
    return out
}

FILENAME == ARGV[1] && NF == 3 { untouched[$1, normal($3)] = 1; next }
FILENAME == ARGV[1] {
    text = normal($2)
    if (($1, text) in untouched || text == "" || text ~ /^[{}();]*$/) {
        if ($2 == "")
            before = ""
        next
    }
    # Steps have short answers.
    if (weight >= ($1 ~ /^[0-9]/ ? 11 : 25))
        single[text] = single[text] " " $1
    if (before != "" && weight && weight_before && weight + weight_before >= 30)
        pair[before "\n" text] = pair[before "\n" text] " " $1
    before = text
    weight_before = weight
    next
}

FNR == 1 { before = "" }
/^ *[{}]?;?$/ { next }
{
    text = normal($0)
    if (text == "" || text ~ /^[{}();]*$/)
        next
    found = single[text] pair[before "\n" text]
    n = split(found, names, " ")
    for (i = 1; i <= n; i++)
        print names[i], FILENAME ":" FNR
    before = text
}
