#!/bin/sh
# Usage: labs.sh table            a line for each exercise of all labs, in their order:
#                                 NAME FILE LAB MASTER STEP
#        labs.sh baselines        a line for each lab's program before its first exercise: FILE MASTER
#        labs.sh get NAME KEY     what lab.conf says of an exercise; nothing where it says nothing
#        labs.sh labs             a line for each lab: FOLDER TITLE
#
# An exercise has a name: a number, for the six steps, or a word. FILE is the name of its files
# (step_03, ring); LAB its lab's folder; MASTER the source that its files are cut from, and STEP its
# number among the exercises that are cut from the same one. CONTRIBUTING.md says what may stand in a
# lab.conf. A line that nobody could understand ends this with status 2.

set -u
cd "$(dirname "$0")/../.." || exit 2

confs=$(ls labs/*/lab.conf)
# shellcheck disable=SC2086 # words; the folders of labs have no blanks in their names
exec awk -v verb="$1" -v wanted="${2:-}" -v key="${3:-}" '
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

FNR == 1 {
    lab = FILENAME
    sub(/\/lab\.conf$/, "", lab)
    exercise = ""
    master = lab "/master.c"
}
/^[ \t]*(#|$)/ { next }
/^\[[a-z0-9_]+\]$/ {
    exercise = substr($0, 2, length($0) - 2)
    if (exercise in lab_of)
        fail("[" exercise "] is there already, in " lab_of[exercise])
    names[++count] = exercise
    lab_of[exercise] = lab
    master_of[exercise] = lab "/master.c"
    next
}
/^[a-z]+[ \t]*=/ {
    name = $1
    sub(/=.*/, "", name)
    if (exercise == "") {
        if (name !~ /^(title|baseline)$/)
            fail(name " belongs to an exercise, below its [name]")
        text = value()
        if (name == "title" && verb == "labs")
            print lab, text
        if (name == "baseline" && verb == "baselines")
            print text, lab "/master.c"
        next
    }
    if (name !~ /^(title|master|flags|holds|replaces|run)$/)
        fail("no setting is called " name)
    text = value()
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
    for (i = 1; i <= count && verb == "table"; i++)
        print names[i], file_of(names[i]), lab_of[names[i]], master_of[names[i]], ++step[master_of[names[i]]]
}' $confs
