#!/bin/sh
# Usage: help.sh MAKEFILE        prints the targets and the settings that the Makefile describes after two hashes; in the
#                                students' package without those that only the kit has (mark k)
#        help.sh MAKEFILE kit    prints the names of these

# A heading; and a rule with marks and a description, whose name is everything before the first colon.
# $(check_X) stands for check-1, check-2 and so on.
targets=$(sed -n -E -e 's/^##@ (.*)/\1|/p' -e 's/[$][$]/$/g' -e 's/^[$][(]BUILD[)]/build/' -e 's/^[$][(]([a-z]+)_X[)]/\1-X/' \
    -e 's/^([^ :#]+):[^#]*##([a-z]*) (.*)/\1|\3|\2/p' "$1")
if [ "${2:-}" = kit ]; then
    echo "$targets" | sed -n 's/^\([^|]*\)|.*|[a-z]*k[a-z]*$/\1/p'
    exit
fi
package=
[ ! -d steps/.original ] || package=1
echo "$targets" | awk -F '|' -v package=$package '
    $2 == "" { heading = (printed ? "\n" : "") $1 ":\n"; next }
    package && $3 ~ /k/ { next }
    package { gsub(/ CONTAINER=trixie;| \(SOLUTIONS=1: the solutions.\)/, "") }
    { printf "%s  make %-14s %s\n", heading, $1, $2; heading = ""; printed = 1 }'

echo
echo "Settings (make NAME=VALUE, or in the environment):"
sed -n 's/^## /  /p' "$1" | if [ -n "$package" ]; then grep -v 'make fuzz'; else cat; fi
