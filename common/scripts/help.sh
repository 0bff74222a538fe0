#!/bin/sh
# Usage: help.sh MAKEFILE
# Prints the targets and the settings that the Makefile describes after two hashes; in the students' package without those
# that only the kit has (kit_only).

hidden=
[ ! -d steps/.original ] || hidden=$(sed -n 's/^kit_only := //p' "$1")

# A heading; and a rule with a description, whose name is everything before the first colon.
# $(check_X) stands for check-1, check-2 and so on.
sed -n -E -e 's/^##@ (.*)/\1|/p' -e 's/[$][$]/$/g' -e 's/^[$][(]BUILD[)]/build/' -e 's/^[$][(]([a-z]+)_X[)]/\1-X/' \
    -e 's/^([^ :#]+):[^#]*## (.*)/\1|\2/p' "$1" |
    awk -F '|' -v hidden="$hidden" '
        BEGIN { split(hidden, names, " "); for (n in names) is_hidden[names[n]] = 1 }
        $2 == "" { heading = (printed ? "\n" : "") $1 ":\n"; next }
        $1 in is_hidden { next }
        hidden != "" { gsub(/ CONTAINER=trixie;| \(SOLUTIONS=1: the solutions.\)/, "") }
        { printf "%s  make %-14s %s\n", heading, $1, $2; heading = ""; printed = 1 }'

echo
echo "Settings (make NAME=VALUE, or in the environment):"
sed -n 's/^## /  /p' "$1" | if [ -n "$hidden" ]; then grep -v 'make fuzz'; else cat; fi
