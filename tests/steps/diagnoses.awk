# Makes a header of a judge's texts, diagnoses/F.txt: awk -f diagnoses.awk F.c diagnoses/F.txt >F.h
#
# Above each text stands its name, [no-update], or [no-update/zero] where a name has several texts; after it `hint: X` where the
# hint of exercise X helps, and `extern` where other files use it, too. In F.c the text is d_no_update or d_no_update_zero, a
# Diagnosis (report.h), and F.c must use it.

function refuse(what) {
    print FILENAME ":" FNR ": " what >"/dev/stderr"
    name = ""
    exit 1
}
function finish() {
    if (name == "")
        return
    if (text == "")
        refuse("no text above this line")
    printf "%sconst Diagnosis %s = {\"%s\", \"%s\", %s};\n", linkage, id, name, text, hint
}

NR == FNR {
    n = split($0, words, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= n; i++)
        used[words[i]]
    next
}
/^\[/ {
    finish()
    if ($0 !~ /^\[[a-z0-9-]+(\/[a-z0-9 -]+)?\]( hint: [a-z0-9_]+)?( extern)?$/)
        refuse("no name of a diagnosis: " $0)
    name = id = substr($0, 2, index($0, "]") - 2)
    gsub(/[^a-z0-9]/, "_", id)
    id = "d_" id
    sub(/\/.*/, "", name)
    linkage = / extern$/ ? "" : "static "
    if (linkage && !(id in used))
        refuse(id " is not used in " ARGV[1])
    hint = sub(/.* hint: /, "") ? "\"" $1 "\"" : "NULL"
    text = ""
    next
}
NF {
    if (name == "")
        refuse("a text without a name")
    gsub(/["\\]/, "\\\\&")
    text = text (text == "" ? "" : " ") $0
}
END { finish() }
