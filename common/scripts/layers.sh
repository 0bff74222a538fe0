#!/bin/sh
# Usage: layers.sh
#
# Holds the includes of common/ to the picture in CONTRIBUTING.md. A file includes only from its own
# folder or from one below it, and writes the folder. Modules include each other in no circle: a module
# is x.h with x.c and x_inside.h, the header for the other files of its folder that implement it; what
# x.h declares, these define. No two types have the same name. Nothing but start/start.c runs before main,
# or is registered to run at exit. Only start.c knows watch/, which alone holds the faults that checks
# arrange. Status 0, or 1 with a line for each place that is wrong.

set -u
cd "$(dirname "$0")/.." || exit 2

if grep -rnE --include='*.[ch]*' --exclude-dir=start '__attribute__\(\(constructor|\b(on_exit|atexit)\(' .; then
    echo "common/: only start/start.c may have a constructor, or register an exit handler"
    exit 1
fi

# HVDLAB_TRACE is a setting; these are faults.
if grep -rnE --include='*.[chd]*' --exclude-dir=watch 'HVDLAB_(KILL|FULL|LATE_NAMES|SYNCHRONOUS_SENDS)' .; then
    echo "common/: only watch/ knows what a check arranges"
    exit 1
fi

status=0

# From the bottom to the top; cpu and cuda stand side by side, and the backends' common header below.
find . -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs grep -nE '^[ \t]*#[ \t]*include' /dev/null |
    sed 's,^\./,,' | awk '
BEGIN {
    split("base observe run data backend cpu cuda comm nn train hvd lessons watch start", folders, " ")
    for (i = 1; i in folders; i++)
        height[folders[i]] = i
    height["class"] = height["page"] = 98
    height["hvdlab.h"] = height["tools"] = 99
}
function complain(why) { print "common/" $0 ": " why; wrong = 1 }
function module(file) { sub(/(_inside)?\.[a-z]+$/, "", file); return file }
# Prints the circle that leads from `from` back to `to`; state: 1 on the way, 2 done.
function visit(from, path,    targets, n, i) {
    state[from] = 1
    n = split(edges[from], targets, " ")
    for (i = 1; i <= n; i++) {
        if (state[targets[i]] == 1) {
            print "common/: a circle of includes:" path " " from " " targets[i]
            wrong = 1
        } else if (!state[targets[i]])
            visit(targets[i], path " " from)
    }
    state[from] = 2
}
{
    split($0, place, ":")
    file = place[1]
    folder = file
    sub(/\/.*/, "", folder)
    if (!(folder in height))
        complain("no layer is called " folder)
    # The transports between GPUs call CUDA themselves.
    gpu = folder == "cuda" || file ~ /^comm\/transport_(cuda|nccl)\.c$/
    if (match($0, /"[^"]*"/)) {
        to = substr($0, RSTART + 1, RLENGTH - 2)
        target = to
        sub(/\/.*/, "", target)
        if (to !~ /\// || !(target in height)) {
            complain("write the folder of the library that it is in")
            next
        }
        if (module(to) != module(file))
            edges[module(file)] = edges[module(file)] " " module(to)
        if (target == folder)
            next
        if (target == "watch" && folder != "start")
            complain("only start/ knows watch/")
        else if (height[target] > height[folder])
            complain(target "/ is above " folder "/")
        else if (target == "cpu" || (target == "cuda" && !gpu))
            complain("only backend.h knows " target "/")
    } else if (/<(mpi|mpi-ext)\.h>/ && folder !~ /^(hvd|comm|watch)$/)
        complain("MPI belongs to comm/, hvd/ and watch/")
    else if (/<(cuda|cudnn|cublas|nccl)[a-z0-9_]*\.h>/ && !gpu && file != "run/device.c")
        complain("CUDA belongs to cuda/, the transports between GPUs and run/device.c")
}
END {
    for (file in edges)
        if (!state[file])
            visit(file, "")
    exit wrong
}' || status=1

# Functions and types, by the code outside of braces, up to the end of a declaration. What macros declare is not seen.
find . -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | sed 's,^\./,,' | xargs awk '
BEGIN {
    # Headers whose functions lie in other files.
    elsewhere["comm/comm.h"] = "comm/collectives comm/transport_own" # transports include its types
    elsewhere["comm/transport.h"] = "comm/transport_mpi comm/transport_own comm/transport_cuda comm/transport_nccl" # a file each
    elsewhere["nn/layers.h"] = "nn/graph" # a layer adds a node to a graph
    elsewhere["nn/model.h"] = "nn/weights" # beside the tensors of a file
    elsewhere["nn/graph.h"] = "nn/describe nn/summary" # two ways to write one
    elsewhere["cuda/kernels.h"] = "cuda/norm cuda/loss cuda/update" # files of kernels
    elsewhere["train/hooks.h"] = "train/fit" # where the hook is called
}
function module(file) { sub(/(_inside)?\.[a-z]+$/, "", file); return file }
function take_type(code) {
    gsub(/ *__attribute__.*/, ";", code)
    forward = code ~ /^ *typedef struct [A-Za-z]+ [A-Za-z]+;/
    if (match(code, /\(\*[A-Za-z]+\)/) && code !~ /{/)
        code = substr(code, RSTART + 2, RLENGTH - 3)
    else if (code !~ /}/)
        sub(/[[(].*/, "", code)
    gsub(/.*[ *}]|;/, "", code)
    if (code in type && type[code] != module(FILENAME) && !(forward && was_forward[code])) {
        print "common/" FILENAME ": " type[code] " has a type " code ", too"
        wrong = 1
    }
    type[code] = module(FILENAME)
    was_forward[code] = forward
}
function take_function(code,    head) {
    head = code
    if (!sub(/ *\(.*/, "", head) || head ~ /=|(^| )static / || head !~ /[ *]/)
        return
    sub(/.*[ *]/, "", head)
    if (code ~ /{/)
        defined[head] = defined[head] " " FILENAME
    else if (FILENAME ~ /h$/ && head != "void")
        declared[FILENAME " " head] = 1
}
FNR == 1 { depth = 0; code = "" }
match($0, /^#include "[^"]*_inside\.h"/) { inside[FILENAME " " module(substr($0, 11, RLENGTH - 11))] = 1 }
/^[ \t]*#/ || continued { continued = /\\$/; next }
{
    line = $0
    gsub(/\047([^\047\\]|\\.)\047/, "", line)
    gsub(/"([^"\\]|\\.)*"/, "", line)
    sub(/ *\/\/.*/, "", line)
    if (line ~ /^extern +{$/)
        next
    if (depth == 0 || code ~ /typedef/)
        code = code (code == "" ? "" : " ") line
    depth += gsub(/{/, "{", line) - gsub(/}/, "}", line)
    if (code ~ /typedef/ ? depth > 0 || line !~ /;$/ : line !~ /[;{}]$/)
        next
    if (code ~ /^typedef/)
        take_type(code)
    else
        take_function(code)
    code = ""
}
END {
    for (d in declared) {
        split(d, of, " ")
        count = split(defined[of[2]], files, " ")
        found = 0
        for (i = 1; i <= count; i++) {
            folder = of[1]
            sub(/[^\/]*$/, "", folder)
            found += module(files[i]) == module(of[1]) || index(elsewhere[of[1]] " ", module(files[i]) " ") ||
                ((files[i] " " module(of[1])) in inside && index(files[i], folder) == 1)
        }
        if (!found) {
            print "common/" of[1] ": " of[2] "() is not in that module, but in" (count ? defined[of[2]] : " no file")
            wrong = 1
        }
    }
    exit wrong
}' || status=1
exit $status
