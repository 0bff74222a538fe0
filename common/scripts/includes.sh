#!/bin/sh
# Usage: includes.sh FILE.c...    prints these and the other .c files of their folder that they need: x.c of an #include "x.h"

exec awk '
function take(file,   line, header, found) {
    if (file in seen)
        return
    seen[file] = 1
    while ((getline line <file) > 0) {
        found = 1
        if (line !~ /^#include "[a-z0-9_]+\.h"/)
            continue
        split(line, header, "\"")
        header[2] = folder header[2]
        take(header[2])
        sub(/h$/, "c", header[2])
        take(header[2])
    }
    if (found && file ~ /c$/)
        print file
}
BEGIN {
    for (i = 1; i < ARGC; i++) {
        folder = ARGV[i]
        sub(/[^\/]*$/, "", folder)
        take(ARGV[i])
    }
}' "$@"
