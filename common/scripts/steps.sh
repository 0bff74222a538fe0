#!/bin/sh
# Usage: steps.sh cut FOLDER    cuts solutions/master.c into FOLDER/steps and FOLDER/solutions
#        steps.sh write         the same into steps/ and solutions/; refuses if a step was edited
#        steps.sh check         status 1 where steps/ or solutions/ are not what master.c says
#
# STEP is the number of the last step that is done; TODO is 1 where the ones after it are to be shown.

set -eu
master=solutions/master.c
sums=solutions/steps.sha256 # of steps/ as they were cut, to tell an edited one

# one STEP TODO FILE
one()
{
    status=0
    unifdef -k -DSTEP="$1" -DTODO="$2" "$master" >"$3" || status=$?
    [ $status -le 1 ] || exit 2 # 1: something was cut out
}

# cut FOLDER
cut()
{
    mkdir -p "$1/steps" "$1/solutions"
    one 0 0 "$1/steps/baseline.c"
    for n in 1 2 3 4 5 6; do
        one $((n - 1)) 1 "$1/steps/step_0$n.c"
        one "$n" 1 "$1/solutions/step_0$n.c"
    done
}

# The edited files of steps/, one a line.
edited()
{
    [ -e "$sums" ] || return 0
    sha256sum --check --quiet "$sums" 2>/dev/null | sed -n 's/: FAILED.*//p'
}

case $1 in
cut) cut "$2" ;;
write)
    if [ -n "$(edited)" ]; then
        echo "make steps: edited, so not overwritten: $(edited | tr '\n' ' ')" >&2
        echo "make steps: to throw the edits away: make reset-N; to keep them, copy them first" >&2
        exit 2
    fi
    cut .
    sha256sum steps/*.c >"$sums"
    ;;
check)
    folder=${BUILD:-build}/cut
    cut "$folder"
    diff -r -q "$folder/steps" steps && for file in "$folder"/solutions/*.c; do
        cmp "$file" "solutions/${file##*/}" || exit 1
    done
    ;;
esac
