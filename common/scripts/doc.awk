# Usage: NAME=hvd_rank awk -f doc.awk common/*.h common/*/*.h
#
# Prints the section of a header that declares a function, type, macro, enumerator or field: where it
# stands, its declarations, and the comment above them. Without a name it lists what hvdlab.h offers;
# an unknown one gets a line with the names near it, status 2.
#
# A section is a comment with the declarations under it, up to a blank line outside braces or to the
# next comment. Who declares what is told by how .clang-format lays out code: a declaration begins in
# the first column, and so does the brace that opens a function's body.

BEGIN { wanted = ENVIRON["NAME"] }

FNR == 1 { section++; depth = hidden = 0 }
/^#pragma GCC visibility pop/ { hidden = 1 }
FILENAME ~ /\/hvdlab\.h$/ && /^#include "/ { gsub(/"/, "", $2); offered[++offered_count] = "common/" $2 }
depth == 0 && /^[ \t]*$/ { section++; next }
depth == 0 && /^\/\// {
    if (section in code)
        section++
    said[section] = said[section] substr($0, 4) "\n"
    if (!(FILENAME in first))
        first[FILENAME] = section
    next
}
depth == 0 && /^#/ && !/^#define/ { section++; next }
{
    line = $0
    sub(/^USE_RESULT /, "", line) # (a note for compilers)
    code[section] = code[section] (line == "" ? "" : "    ") line "\n"
    sub(/ *\/\/.*/, "", line)
    if (line == "{")
        in_body = 1
    else if (line ~ /^[^ \t]/)
        declare(name_in(line), line ~ /^typedef struct [A-Za-z]+ [A-Za-z]+;$/ ? 2 : 1)
    if (!in_body && !parameters && (depth > 0 || line ~ /{.*}/) && declares_inside(line))
        declare(wanted, 3)
    parameters += gsub(/\(/, "", line) - gsub(/\)/, "", line)
    depth += gsub(/{/, "", line) - gsub(/}/, "", line)
    in_body = in_body && depth > 0
}

# What a line that begins in the first column declares.
function name_in(line,    name)
{
    if (line ~ /^#define /) {
        name = $2
        sub(/\(.*/, "", name)
        return name ~ /_H$/ ? "" : name
    }
    if (match(line, /^typedef .*\(\*[A-Za-z0-9_]+\)/))
        sub(/^typedef .*\(\*/, "", line)
    else if (match(line, /^(struct|enum|union) [A-Za-z0-9_]+ {/))
        sub(/^[a-z]+ /, "", line)
    else if (line ~ /^[^(]*[A-Za-z0-9_]\(/) {
        sub(/\(.*/, "", line)
        sub(/.*[ *]/, "", line)
        if (!hidden)
            listed[FILENAME] = listed[FILENAME] " " line
    } else if (line ~ /;$/) {
        sub(/(\[.*\])?;$/, "", line)
        sub(/.*[ *]/, "", line)
    } else
        return ""
    match(line, /^[A-Za-z0-9_]+/)
    return substr(line, 1, RLENGTH)
}

# Is the wanted name an enumerator or a field of this line?
function declares_inside(line)
{
    if (wanted !~ /^[A-Za-z0-9_]+$/) # no name, and no regular expression
        return 0
    if (line ~ "\\(\\*" wanted "\\)")
        return 1
    sub(/\(.*/, "", line)
    return line ~ "[ *]" wanted "(\\[[^]]*\\])*( = [^,]*)?([,;]|$| })"
}

# What stands in the first column (rank 1) goes before "typedef struct X X;" (2), and that before a
# field or an enumerator (3).
function declare(name, rank)
{
    if (name != "" && rank == 1)
        names[name] = 1
    if (name == "" || name != wanted || (section, rank) in at)
        return
    at[section, rank] = FILENAME ":" FNR
    found[rank] = found[rank] " " section
}

# Where nothing is said about one thing, what is said about the whole header has to do.
function show(section, rank,    file)
{
    file = at[section, rank]
    sub(/:.*/, "", file)
    printf "%s\n\n%s\n%s", at[section, rank], code[section], said[section]
    if (said[section] == "" && code[section] !~ /\/\//)
        printf "From the top of %s:\n\n%s", file, said[first[file]]
}

# Up to five names that share the most pairs of letters with the wanted one (Dice's coefficient).
function near(    name, i, score, best, list, count)
{
    for (name in names)
        for (i = 1; i < length(wanted); i++)
            if (index(tolower(name), tolower(substr(wanted, i, 2))))
                score[name] += 2 / (length(name) + length(wanted) - 2)
    for (; count < 5; count++) {
        best = ""
        for (name in score)
            if (score[name] >= 0.4 && (best == "" || score[name] > score[best]))
                best = name
        if (best == "")
            break
        list = list (list ? ", " : "") best
        delete score[best]
    }
    return list
}

END {
    if (wanted == "") {
        print "What a step can use; make doc NAME=hvd_rank tells more about one of them."
        for (i = 1; i <= offered_count; i++) {
            printf "\n%s:\n", offered[i]
            fflush()
            system("echo '" listed[offered[i]] "' | fmt -w 76 | sed 's/^ */    /'")
        }
        exit 0
    }
    for (rank = 1; !count && rank <= 3; rank++)
        count = split(found[rank], sections, " ")
    for (i = 1; i <= count; i++)
        show(sections[i], rank - 1)
    if (count == 0) {
        list = near()
        printf "make doc: there is no %s in common/*.h; %s\n", wanted, list ? "near it: " list : "make doc lists what there is" >"/dev/stderr"
        exit 2
    }
}
