#!/bin/sh
# Usage: labs.sh table [:]        a line for each exercise of all labs, in their order:
#                                 NAME FILE LAB MASTER STEP, with blanks or colons between them
#        labs.sh baselines        a line for each lab's program before its first exercise: FILE MASTER
#        labs.sh get NAME KEY     what lab.conf says of an exercise; nothing where it says nothing
#        labs.sh labs             a line for each lab: FOLDER TITLE
#        labs.sh programs         a line for each program of a lab beside its exercises: NAME SOURCE
#        labs.sh core             a line for each exercise of the core path: NAME LAB yes; and for each of the labs of
#                                 which it has one: NAME LAB choice
#
# An exercise has a name: a number, for the six steps, or a word. FILE is the name of its files
# (step_03, ring); LAB its lab's folder; MASTER the source that its files are cut from, and STEP its
# number among the exercises that are cut from the same one. CONTRIBUTING.md says what may stand in a
# lab.conf. A line that nobody could understand ends this with status 2.

set -u
unset CDPATH
cd "$(dirname "$0")/../.." || exit 2

exec awk -v verb="$1" -v wanted="${2:-}" -v key="${3:-}" '
BEGIN { OFS = verb == "table" && wanted != "" ? wanted : " " }
function fail(why) {
    printf "%s:%d: %s\n", FILENAME, FNR, why > "/dev/stderr"
    failed = 1
    exit 2
}
function value() {
    sub(/^[^=]*=[ \t]*/, "")
    sub(/[ \t]+$/, "")
    return $0
}
function file_of(name) { return name ~ /^[0-9]+$/ ? sprintf("step_%02d", name) : name }

# NAME RANKS LAYOUT FLAGS..., or devices=N or servers=N:PACES in the place of the layout
function check_run(text,   word, nodes) {
    split(text, word, " ")
    if (word[2] !~ /^[1-9][0-9]*$/)
        fail("run: \"" word[2] "\" is no number of ranks")
    is_run[exercise, word[1]] = 1
    if (word[3] ~ /^devices=[1-9][0-9]*$/ || word[3] ~ /^servers=[1-9][0-9]*(:[0-9]+(,[0-9]+)*)?$/)
        return
    if (word[3] != "-" && (word[3] !~ /^[0-9]+(,[0-9]+)*$/ || split(word[3], nodes, ",") != word[2]))
        fail("run: the layout " word[3] " does not name a node for each of " word[2] " ranks")
}

# kill: NAME RANK:EVENT:N; full: NAME N; after: NAME EARLIER
function check_named(key, text,   word) {
    if (split(text, word, " ") != 2 || !((exercise, word[1]) in is_run))
        fail(key ": it is of a run above this line, and has two words")
    if (key == "kill" && word[2] !~ /^[0-9]+:[a-z_]+:[1-9][0-9]*$/)
        fail("kill: " word[2] " is no RANK:EVENT:N")
    if (key == "full" && word[2] !~ /^[1-9][0-9]*$/)
        fail("full: " word[2] " is no number from 1")
    if (key == "after" && (!((exercise, word[2]) in is_run) || word[1] == word[2]))
        fail("after: " word[2] " is no other run above this line")
}

# A program has a name of its own in the build folder.
function add_program(file,   program) {
    if (file !~ /^[a-z0-9_]+\.c$/)
        fail("programs: \"" file "\" is no NAME.c")
    program = substr(file, 1, length(file) - 2)
    if (program in source_of)
        fail("programs: " file " is there already, in " source_of[program])
    source_of[program] = lab "/" file
    if (verb == "programs")
        print program, source_of[program]
}

FNR == 1 {
    lab = FILENAME
    sub(/\/lab\.conf$/, "", lab)
    exercise = ""
}
/^[ \t]*(#|$)/ { next }
/^\[[a-z0-9_]+\]$/ {
    exercise = substr($0, 2, length($0) - 2)
    if (exercise in lab_of)
        fail("[" exercise "] is there already, in " lab_of[exercise])
    if (exercise ~ /^0/ || exercise ~ /^(all|answers|baseline|bench|devices|format|fresh|replay|steps)$/)
        fail("[" exercise "]: a number begins with no 0, and make has that word for something else")
    names[++count] = exercise
    lab_of[exercise] = lab
    master_of[exercise] = lab "/master.c"
    next
}
/^[a-z]+[ \t]*=/ {
    name = $1
    sub(/=.*/, "", name)
    if (exercise == "") {
        if (name !~ /^(title|baseline|programs)$/)
            fail(name " belongs to an exercise, below its [name]")
        text = value()
        if (name == "title" && verb == "labs")
            print lab, text
        if (name == "baseline" && verb == "baselines")
            print text, lab "/master.c"
        for (i = split(text, word, " "); name == "programs" && i > 0; i--)
            add_program(word[i])
        next
    }
    if (name !~ /^(title|core|master|flags|ranks|devices|servers|layout|holds|replaces|run|kill|full|after)$/)
        fail("no setting is called " name)
    text = value()
    if (name == "core" && text !~ /^(yes|choice)$/)
        fail("core: \"" text "\" is not yes or choice")
    if (name == "core" && verb == "core")
        print exercise, lab, text
    if (name == "run")
        check_run(text)
    if (name == "devices" && text !~ /^[1-9][0-9]*$/)
        fail("devices: \"" text "\" is no number of devices")
    if (name == "servers" && text !~ /^[1-9][0-9]*(:[0-9]+(,[0-9]+)*)?$/)
        fail("servers: \"" text "\" is no number of servers, and no N:PACES")
    if (name == "ranks" && text !~ /^[1-9][0-9]?$/)
        fail("ranks: \"" text "\" is no number from 1 to 99")
    if (name == "layout" && text !~ /^[0-9]+(,[0-9]+)*$/)
        fail("layout: \"" text "\" names no node for each rank, as 0,1,0 does")
    if (name == "kill" || name == "full" || name == "after")
        check_named(name, text)
    for (i = split(text, earlier, " "); name == "holds" && i > 0; i--)
        if (!(earlier[i] in lab_of) || earlier[i] == exercise)
            fail("holds: " earlier[i] " is no exercise above this one")
    if (name == "master")
        master_of[exercise] = lab "/" text
    if (verb == "get" && exercise == wanted && name == key)
        print text
    next
}
{ fail("neither [exercise] nor name = value") }
END {
    if (failed)
        exit 2
    for (i = 1; i <= count; i++)
        if (names[i] in source_of) {
            print source_of[names[i]] ": an exercise has this name" > "/dev/stderr"
            exit 2
        }
    for (i = 1; i <= count && verb == "table"; i++)
        print names[i], file_of(names[i]), lab_of[names[i]], master_of[names[i]], ++step[master_of[names[i]]]
}' labs/*/lab.conf
