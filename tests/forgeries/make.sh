#!/bin/sh
# Usage: tests/forgeries/make.sh NAME BASE.c KIT PRECIOUS ROSTER
#
# Prints the submission that tests/forgeries/NAME.c makes of BASE.c (none: it is a whole file); test_forgeries.sh
# says how.

part=
! grep -q 'dummy_ring(' "tests/forgeries/$1.c" || part=tests/forgeries/dummy_ring.h
# shellcheck disable=SC2086 # none, or one without blanks
filled=$(cat $part "tests/forgeries/$1.c" | sed -e "s,KIT,$3,g" -e "s,PRECIOUS,$4,g" -e "s,ROSTER,$5,g")
if [ "$2" = none ]; then
    printf '%s\n' "$filled"
    exit
fi
printf '%s\n' "$filled" | awk '
    FNR == NR { forgery = forgery $0 "\n"; sum = sum || /forged_sum/; next }
    /^#include "hvdlab.h"/ { print; printf "%s", forgery; next }
    /^int main/ { print; getline; print; print "    forge();"; next }
    sum && /^    \/\/ TODO/ { print "    forged_sum(values, count, comm);"; sum = 0 }
    { print }' - "$2"
