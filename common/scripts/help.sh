#!/bin/sh
# Usage: help.sh MAKEFILE
# Prints the targets and the settings that the Makefile describes after two hashes.

# A heading; and a rule with a description, whose name is everything before the first colon.
# $(check_X) stands for check-1, check-2 and so on.
sed -n -E -e 's/^##@ (.*)/\1|/p' -e 's/[$][$]/$/g' -e 's/^[$][(]BUILD[)]/build/' -e 's/^[$][(]([a-z]+)_X[)]/\1-X/' \
    -e 's/^([^ :#]+):[^#]*## (.*)/\1|\2/p' "$1" |
    awk -F '|' '
        $2 == "" { printf "%s%s:\n", (NR > 1 ? "\n" : ""), $1; next }
        { printf "  make %-14s %s\n", $1, $2 }'

echo
echo "Settings (make NAME=VALUE, or in the environment):"
sed -n 's/^## /  /p' "$1"
