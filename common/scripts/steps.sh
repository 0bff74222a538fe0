#!/bin/sh
# Usage: steps.sh cut FOLDER          cuts the labs' masters into FOLDER/steps and FOLDER/solutions
#        steps.sh write               the same into steps/ and solutions/; refuses if one of them was edited
#        steps.sh check               status 1 where steps/ or solutions/ are not what the masters say
#        steps.sh edited              prints the files of steps/ and solutions/ that were edited, one a line
#        steps.sh original FILE TO    writes steps/FILE.c into TO as it was before anybody edited it
#
# Of the exercises that are cut from one master, STEP is the number of the last one that is done; TODO is
# 1 where the ones after it are to be shown.

set -eu
export LC_ALL=C
scripts=$(dirname "$0")
goal="make steps"
. common/scripts/folders.sh
forget_hook
sums=solutions/steps.sha256 # of both as they were cut, to tell an edited one
originals=steps/.original   # in the students' package, which has no masters
[ ! -d "$originals" ] || sums=$originals/steps.sha256

# one MASTER STEP TODO TO
one()
{
    status=0
    unifdef -k -DSTEP="$2" -DTODO="$3" "$1" >"$4" || status=$?
    [ $status -le 1 ] || exit 2 # 1: something was cut out
}

# cut FOLDER
cut()
{
    baselines=$("$scripts/labs.sh" baselines) && table=$("$scripts/labs.sh" table) || exit 2
    mkdir -p "$1/steps" "$1/solutions"
    echo "$baselines" | while read -r file master; do
        one "$master" 0 0 "$1/steps/$file.c"
    done
    echo "$table" | while read -r _ file _ master step; do
        one "$master" $((step - 1)) 1 "$1/steps/$file.c"
        one "$master" "$step" 1 "$1/solutions/$file.c"
    done
}

# Files that are gone count as untouched: nothing is lost when they come back.
edited()
{
    [ ! -e "$sums" ] || sha256sum --check --quiet --ignore-missing "$sums" 2>/dev/null | sed -n 's/: FAILED$//p'
}

# is_original FILE COPY
is_original()
{
    [ "$(sha256sum <"$2")" = "$(sed -n "s|^\([0-9a-f]*\)  steps/$1.c\$|\1  -|p" "$sums")" ]
}

# original FILE TO: cut from its master, or as git has it where unifdef is missing; else unifdef is
# installed. What doesn't have the sum that was written down is not the original.
original()
{
    # shellcheck disable=SC2046 # words
    set -- "$1" "$2" $("$scripts/labs.sh" table | awk -v file="$1" '$2 == file { print $4, $5 - 1 }')
    if [ -e "$originals/$1.c" ]; then
        cp "$originals/$1.c" "$2"
    elif command -v unifdef >/dev/null; then
        one "$3" "$4" 1 "$2"
    elif ! git show "HEAD:steps/$1.c" >"$2" 2>/dev/null || ! is_original "$1" "$2"; then
        "$scripts/deps.sh" install steps
        one "$3" "$4" 1 "$2"
    fi
    is_original "$1" "$2" || {
        echo "make: $3 was changed since steps/$1.c was cut from it: make steps" >&2
        exit 2
    }
}

# check: writes what differs.
check()
{
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cut "$folder"
    same=true
    for file in "$folder"/steps/*.c "$folder"/solutions/*.c; do
        committed=${file#"$folder"/}
        diff -u "$committed" "$file" >&2 || same=false
    done
    (cd "$folder" && sha256sum steps/*.c solutions/*.c) | diff -u "$sums" - >&2 || same=false
    $same || {
        echo "make check-steps: steps/ or solutions/ are not what the labs' masters say: make steps" >&2
        exit 1
    }
}

case $1 in
cut) cut "$2" ;;
write)
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cut "$folder"
    lost=$(edited | while read -r file; do
        cmp -s "$file" "$folder/$file" || printf '%s ' "$file"
    done)
    [ -z "$lost" ] || refuse "edited, so not overwritten (make reset-N throws edits of a step away): $lost"
    mkdir -p steps solutions
    cp "$folder"/steps/*.c steps/ && cp "$folder"/solutions/*.c solutions/
    (cd "$folder" && sha256sum steps/*.c solutions/*.c) >"$sums"
    ;;
check) check ;;
edited) edited ;;
original) original "$2" "$3" ;;
esac
