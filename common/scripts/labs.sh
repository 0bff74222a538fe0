#!/bin/sh
# Usage: labs.sh table            a line for each exercise of all labs, in their order: NAME FILE LAB MASTER STEP
#        labs.sh make             the same for the Makefile: words NAME:FILE, and the programs' sources
#        labs.sh runs             the same for the graders (tests/steps/lab.h): "exercise NAME FILE", below it "holds NAMES",
#                                 "replaces FUNCTIONS", and for each run of its check
#                                 "run NAME RANKS LAYOUT DEVICES SERVERS PACES KILL FULL AFTER FLAGS", - or 0 for none
#        labs.sh baselines        a line for each lab's program before its first exercise: FILE MASTER
#        labs.sh titles           a line for each exercise: NAME TITLE
#        labs.sh get NAME KEY     what lab.conf says of an exercise; nothing where it says nothing
#        labs.sh judges NAME      the files' names of an exercise and of those that it holds
#        labs.sh labs             a line for each lab: FOLDER TITLE
#        labs.sh hours            how many hours the core path takes a typical student; nothing where no lab says it
#        labs.sh programs         a line for each program of a lab beside its exercises: NAME SOURCE
#        labs.sh core             a line for each exercise of the core path: NAME LAB yes; and for each of the labs of
#                                 which it has one: NAME LAB choice
#
# The only reader of labs/*/lab.conf; CONTRIBUTING.md says what may stand in one. An exercise has a name: a number, for
# the six steps, or a word. FILE is the name of its files (step_03, ring); LAB its lab's folder; MASTER the source that
# its files are cut from, and STEP its number among the exercises that are cut from the same one. An error message names
# the file and the line; the status is 2 then.

set -u
unset CDPATH
cd "$(dirname "$0")/../.." || exit 2

LC_ALL=C exec awk -v verb="$1" -v wanted="${2:-}" -v key="${3:-}" '
function fail(why) {
    printf "%s:%d: %s\n", FILENAME, FNR, why > "/dev/stderr"
    failed = 1
    exit 2
}
function file_of(name) { return name ~ /^[0-9]+$/ ? sprintf("step_%02d", name) : name }

# What follows the sign, with the words of the sets in place of their @NAMEs.
function value(   name) {
    sub(/^[^=]*=[ \t]*/, "")
    sub(/[ \t]+$/, "")
    while (match($0, /(^|[ \t])@[^ \t]*/)) {
        name = substr($0, RSTART, RLENGTH)
        sub(/^[ \t]*@/, "", name)
        if (!((lab, name) in words_of))
            fail("@" name ": there is no set of this name above this line")
        $0 = substr($0, 1, RSTART + RLENGTH - length(name) - 2) words_of[lab, name] substr($0, RSTART + RLENGTH)
    }
    return $0
}

# NAME RANKS LAYOUT FLAGS..., or devices=N or servers=N:PACES in place of the layout. The longest job is MAX_RANKS of
# tests/steps/words.h.
function add_run(text,   word, nodes, layout, processes) {
    split(text, word, " ")
    if (word[2] !~ /^[1-9][0-9]*$/)
        fail("run: \"" word[2] "\" is no number of ranks")
    if (word[3] ~ /^devices=[1-9][0-9]*$/) {
        processes = substr(word[3], 9) + 0
        layout = "- " processes " 0 -"
    } else if (word[3] ~ /^servers=[1-9][0-9]*(:[0-9]+(,[0-9]+)*)?$/) {
        split(substr(word[3], 9), nodes, ":")
        processes = word[2] + nodes[1]
        layout = "- 0 " nodes[1] " " (nodes[2] != "" ? nodes[2] : "-")
    } else {
        if (word[3] != "-" && (word[3] !~ /^[0-9]+(,[0-9]+)*$/ || split(word[3], nodes, ",") != word[2]))
            fail("run: the layout " word[3] " does not name a node for each of " word[2] " ranks")
        layout = word[3] " 0 0 -"
    }
    if (word[2] > 16 || processes > 16)
        fail("run: more than 16 ranks, devices or processes")
    if ((owner, word[1]) in begin_of)
        fail("run: " word[1] " is there already")
    run_names[owner] = run_names[owner] " " word[1]
    sub(/^[^ \t]+[ \t]+[^ \t]+[ \t]+[^ \t]+[ \t]*/, "", text)
    begin_of[owner, word[1]] = word[2] " " layout
    flags_of[owner, word[1]] = text
}

# kill: NAME RANK:EVENT:N; full: NAME N; after: NAME EARLIER; lose: NAME FILE
function add_to_run(name, text,   word) {
    if (split(text, word, " ") != 2 || !((owner, word[1]) in flags_of))
        fail(name ": it is of a run above this line, and has two words")
    if (name == "kill" && word[2] !~ /^[0-9]+:[a-z_]+:[1-9][0-9]*$/)
        fail("kill: " word[2] " is no RANK:EVENT:N")
    if (name == "full" && word[2] !~ /^[1-9][0-9]*$/)
        fail("full: " word[2] " is no number from 1")
    if (name == "after" && (!((owner, word[2]) in flags_of) || word[1] == word[2]))
        fail("after: " word[2] " is no other run above this line")
    if (name == "lose" && (word[2] !~ /^[a-z0-9_.\/-]+$/ || word[2] ~ /^\/|\/$|\.\./))
        fail("lose: " word[2] " is no file of a run")
    to_run[owner, word[1], name] = word[2]
}

# A program has a name of its own in the build folder.
function add_program(file,   program) {
    if (file !~ /^[a-z0-9_]+\.c$/)
        fail("programs: \"" file "\" is no NAME.c")
    program = substr(file, 1, length(file) - 2)
    if (program in source_of)
        fail("programs: " file " is there already, in " source_of[program])
    source_of[program] = lab "/" file
    programs[++program_count] = program
}

FNR == 1 {
    lab = FILENAME
    sub(/\/lab\.conf$/, "", lab)
    if (lab ~ /[^\/A-Za-z0-9._-]/)
        fail("a lab\047s folder has a name of letters, digits, and . _ -")
    labs[++lab_count] = owner = lab
}
/^[ \t]*(#|$)/ { next }
/^\[[a-z0-9_]+\]$/ {
    owner = substr($0, 2, length($0) - 2)
    if (owner in lab_of)
        fail("[" owner "] is there already, in " lab_of[owner])
    if (owner ~ /^0/ || owner ~ /^(all|answers|baseline|bench|devices|format|fresh|replay|steps)$/)
        fail("[" owner "]: a number begins with no 0, and make has that word for something else")
    names[++count] = owner
    lab_of[owner] = lab
    next
}
/^set [a-z0-9_]+[ \t]*=/ {
    name = $2
    sub(/=.*/, "", name)
    text = value()
    words_of[lab, name] = text
    next
}
/^[a-z]+[ \t]*=/ {
    name = $1
    sub(/=.*/, "", name)
    if (name !~ /^(title|hours|baseline|programs|core|master|flags|ranks|devices|servers|layout|holds|replaces|run|kill|full|after|lose)$/)
        fail("no setting is called " name)
    if (owner != lab && name ~ /^(hours|baseline|programs)$/)
        fail(name " belongs to the lab, above its first [name]")
    text = value()
    if (name == "core" && text !~ /^(yes|choice)$/)
        fail("core: \"" text "\" is not yes or choice")
    if (name == "hours" && text !~ /^[1-9][0-9]*(\.5)?$/)
        fail("hours: \"" text "\" is no number of hours, as 2 or 2.5 is")
    if (name == "devices" && text !~ /^[1-9][0-9]*$/)
        fail("devices: \"" text "\" is no number of devices")
    if (name == "servers" && text !~ /^[1-9][0-9]*(:[0-9]+(,[0-9]+)*)?$/)
        fail("servers: \"" text "\" is no number of servers, and no N:PACES")
    if (name == "ranks" && text !~ /^[1-9][0-9]?$/)
        fail("ranks: \"" text "\" is no number from 1 to 99")
    if (name == "layout" && text !~ /^[0-9]+(,[0-9]+)*$/)
        fail("layout: \"" text "\" names no node for each rank, as 0,1,0 does")
    if (name == "run")
        add_run(text)
    if (name ~ /^(kill|full|after|lose)$/)
        add_to_run(name, text)
    count_of_words = split(text, word, " ")
    for (i = 1; i <= count_of_words; i++) {
        if (name == "programs")
            add_program(word[i])
        if (name == "holds" && (!(word[i] in lab_of) || word[i] == owner))
            fail("holds: " word[i] " is no exercise above this one")
    }
    text = (owner, name) in said ? said[owner, name] "\n" text : text
    said[owner, name] = text
    next
}
{ fail("neither [exercise] nor name = value") }

# What lab.conf says of an exercise, or else of all exercises of its lab.
function setting(x, name) {
    return (x, name) in said ? said[x, name] : name != "title" ? said[lab_of[x], name] : ""
}
function master_of(x,   name) {
    name = setting(x, "master")
    return lab_of[x] "/" (name != "" ? name : "master.c")
}
function part(owner, run, name) { return (owner, run, name) in to_run ? to_run[owner, run, name] : "-" }
function print_words(name, text) {
    if (gsub(/[ \t\n]+/, " ", text) || text != "")
        print name, text
}
function print_runs(x,   owner, run, i, n) {
    print "exercise", x, file_of(x)
    print_words("holds", setting(x, "holds"))
    print_words("replaces", setting(x, "replaces"))
    owner = x in run_names ? x : lab_of[x]
    n = split(run_names[owner], run, " ")
    for (i = 1; i <= n; i++)
        print "run", run[i], begin_of[owner, run[i]], part(owner, run[i], "kill"), part(owner, run[i], "full"), \
            part(owner, run[i], "after"), part(owner, run[i], "lose"), flags_of[owner, run[i]]
}
END {
    if (failed)
        exit 2
    for (i = 1; i <= count; i++)
        if (names[i] in source_of) {
            print source_of[names[i]] ": an exercise has this name" > "/dev/stderr"
            exit 2
        }
    for (i = 1; i <= lab_count; i++) {
        lab = labs[i]
        if (verb == "labs" && (lab, "title") in said)
            print lab, said[lab, "title"]
        # The path has one of the labs that are a choice.
        if ((lab, "hours") in said && !(said[lab, "core"] == "choice" && chosen++))
            hours += said[lab, "hours"]
        if (verb == "baselines" && (lab, "baseline") in said)
            print said[lab, "baseline"], lab "/master.c"
    }
    if (verb == "hours" && hours)
        print hours
    for (i = 1; i <= count; i++) {
        x = names[i]
        if (verb == "table")
            print x, file_of(x), lab_of[x], master_of(x), ++step[master_of(x)]
        if (verb == "make")
            print x ":" file_of(x)
        if (verb == "titles")
            print x, setting(x, "title")
        if (verb == "runs")
            print_runs(x)
        if (verb == "judges" && x == wanted) {
            text = file_of(x)
            n = split(setting(x, "holds"), held, " ")
            for (j = 1; j <= n; j++)
                text = text " " file_of(held[j])
            print text
        }
        if (verb == "core" && setting(x, "core") != "")
            print x, lab_of[x], setting(x, "core")
        if (verb == "get" && x == wanted && setting(x, key) != "")
            print setting(x, key)
    }
    for (i = 1; i <= program_count; i++) {
        if (verb == "programs")
            print programs[i], source_of[programs[i]]
        if (verb == "make")
            print source_of[programs[i]]
    }
}' labs/*/lab.conf
