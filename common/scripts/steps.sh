#!/bin/sh
# Usage: steps.sh cut FOLDER          cuts labs/02-six-steps/master.c into FOLDER/steps and FOLDER/solutions
#        steps.sh write               the same into steps/ and solutions/; refuses if a step was edited
#        steps.sh check               status 1 where steps/ or solutions/ are not what master.c says
#        steps.sh edited              prints the files of steps/ that were edited, one a line
#        steps.sh original N FILE     writes step N into FILE as it was before anybody edited it
#
# STEP is the number of the last step that is done; TODO is 1 where the ones after it are to be shown.

set -eu
export LC_ALL=C
master=labs/02-six-steps/master.c
sums=solutions/steps.sha256 # of steps/ as they were cut, to tell an edited one
scripts=$(dirname "$0")

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

# Files that are gone count as untouched: nothing is lost when they come back.
edited()
{
    [ ! -e "$sums" ] || sha256sum --check --quiet --ignore-missing "$sums" 2>/dev/null | sed -n 's/: FAILED$//p'
}

# is_original N FILE
is_original()
{
    [ "$(sha256sum <"$2")" = "$(sed -n "s|^\([0-9a-f]*\)  steps/step_0$1.c\$|\1  -|p" "$sums")" ]
}

# original N FILE: cut from master.c, or as git has it where unifdef is missing; else unifdef is
# installed. What doesn't have the sum that was written down is not the original.
original()
{
    if command -v unifdef >/dev/null; then
        one $(($1 - 1)) 1 "$2"
    elif ! git show "HEAD:steps/step_0$1.c" >"$2" 2>/dev/null || ! is_original "$1" "$2"; then
        "$scripts/deps.sh" install steps
        one $(($1 - 1)) 1 "$2"
    fi
    is_original "$1" "$2" || {
        echo "make reset-$1: $master was changed since steps/step_0$1.c was cut from it: make steps" >&2
        exit 2
    }
}

# check: writes what differs.
check()
{
    folder=${BUILD:-build}/cut
    cut "$folder"
    same=true
    for file in "$folder"/steps/*.c "$folder"/solutions/*.c; do
        committed=${file#"$folder"/}
        diff -u "$committed" "$file" >&2 || same=false
    done
    (cd "$folder" && sha256sum steps/*.c) | diff -u "$sums" - >&2 || same=false
    $same || {
        echo "make check-steps: steps/ or solutions/ are not what $master says: make steps" >&2
        exit 1
    }
}

case $1 in
cut) cut "$2" ;;
write)
    if [ -n "$(edited)" ]; then
        echo "make steps: edited, so not overwritten (make reset-N throws edits away): $(edited | tr '\n' ' ')" >&2
        exit 2
    fi
    cut .
    sha256sum steps/baseline.c steps/step_0?.c >"$sums"
    ;;
check) check ;;
edited) edited ;;
original) original "$2" "$3" ;;
esac
