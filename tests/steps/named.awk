# What a text of the students' package names, a line each: FILE:LINE KIND WORDS.
#
#     link TARGET         where a link leads
#     make TARGET         a target of make, in a command or in the text
#     program build/NAME  a file of the build folder
#     path NAME           a file or folder of the kit
#
#     awk -v exercise=1 -f named.awk TEXT...      exercise stands for the N of `make step-N`

function tell(kind, words) { if (words != "") print FILENAME ":" FNR, kind, words }

# A command begins a line or a `span`, or follows another or a setting.
function read_code(text,   words, n, i, word, making, before) {
    n = split(text, words, /[^A-Za-z0-9_.\/*=-]+/)
    for (i = 1; i <= n; i++) {
        word = words[i]
        sub(/[.]$/, "", word)
        sub(/^\.\//, "", word)
        if (making && word !~ /^-|=|^[0-9]*$/) {
            sub(/-[NX]$/, "-" exercise, word)
            tell("make", word)
            making = word ~ /^build\//
        }
        before = substr(text, 1, index(text, "make") - 1)
        if (word == "make" && before ~ /(^|[;&|(]|[A-Z_]+=[^ ]*) *$/)
            making = 1
        else if (word ~ /^build\/[a-z0-9_]+$/)
            tell("program", word)
        else if (word ~ /^(common|labs|solutions|steps|tests)\// && word !~ /backup-/)
            tell("path", word)
    }
}

FNR == 1 { code = open_span = "" }
/^$/ { open_span = "" }
/^ *```/ { code = code == "" ? $0 : ""; next }
{
    text = $0
    while (match(text, /\]\([^() ]+\)/)) {
        tell("link", substr(text, RSTART + 2, RLENGTH - 3))
        text = substr(text, RSTART + RLENGTH)
    }
    text = $0
}
code ~ /```(sh|c )/ || /^    make / { sub(/ #.*/, "", text); read_code(text); next }
code != "" { next }
{
    if (open_span)
        text = "`" text
    n = split(text, spans, "`")
    open_span = n && n % 2 == 0
    for (s = 2; s <= n; s += 2)
        read_code(spans[s])
}
