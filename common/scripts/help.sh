#!/bin/sh
# Usage: help.sh MAKEFILE
# Prints the targets and the settings that the Makefile describes after two hashes.

echo "Targets:"
# A rule with a description: everything before the first colon is its name.
sed -n -E -e 's/^[$][(]BUILD[)]/build/' -e 's/^([^ :#]+):[^#]*## (.*)/\1|\2/p' "$1" |
    awk -F '|' '{ printf "  make %-14s %s\n", $1, $2 }'

echo
echo "Settings (make NAME=VALUE, or in the environment):"
sed -n 's/^## /  /p' "$1"
