#!/usr/bin/env bash
# Usage: tests/unit/test_measure.sh [--servers]
#
# make measure LAB=NN rewrites the tables of that lab's handouts that say how they are measured, and
# nothing else; where a command fails, nothing. With --servers only that what measures lab 8 on a cluster
# makes tables and figures of the handout's form, whatever stands in them, and leaves nothing behind.

. tests/lib.sh

# ---- Lab 8's.

# table COMMAND: QUICK; a heading, a line under it, rows with as many cells, none of them empty.
table()
{
    QUICK=1 FIGURES=$folder succeeds labs/08-parameter-server/measure_servers.sh "$1"
    awk -F '|' '
        NR == 1 { cells = NF }
        { if (NF != cells || cells < 4) bad = 1 }
        NR != 2 { for (i = 3; i < NF; i++) if ($i !~ /[^ ]/) bad = 1 }
        END { exit bad || NR < 4 }' "$folder/out" || fail "$1: no table: $(cat "$folder/out")"
    nothing_left "$1"
}

figure() # NAME
{
    awk '
        /<title.*<\/title>/ { titles++ }
        /<desc.*<\/desc>/ { titles++ }
        /nan|inf/ { bad = 1 }
        { bytes += length($0) + 1; last = $0 }
        END { exit bad || titles != 2 || bytes >= 6000 || last != "</svg>" }' "$folder/$1.svg" || fail "figure $1.svg: $(head -c 2000 "$folder/$1.svg")"
}

nothing_left() # WHEN
{
    local i
    for ((i = 0; i < 50; i++)); do
        [[ -e $build/measure/cluster ]] || grep -alsF "$(realpath "$build")/measure/cluster" /proc/[0-9]*/cmdline >/dev/null || return
        sleep 0.1
    done
    fail "$1: left: $(ls -d "$build/measure/cluster")"
}

if [[ ${1:-} == --servers ]]; then
    limit=200
    run env BUILD="$folder" common/scripts/cluster.sh up
    BUILD=$folder common/scripts/cluster.sh down
    [[ $status -eq 0 ]] || skip "$(cat "$folder/err")"
    for name in images traffic slow staleness accuracy; do table $name; done
    figure images
    figure course
    refused usage: labs/08-parameter-server/measure_servers.sh everything
    QUICK=1 FIGURES=$folder labs/08-parameter-server/measure_servers.sh images >"$folder/out" 2>"$folder/err" &
    sleep 5
    kill -TERM $!
    wait $!
    status=$?
    [[ $status -eq 130 ]] || fail "ended by SIGTERM: status $status: $(cat "$folder/err")"
    nothing_left "ended by SIGTERM"
    conclude
fi

# ---- make measure.

scripts=$PWD/common/scripts
mkdir -p "$folder/labs/77-lab" "$folder/labs/78-other"
handout=$folder/labs/77-lab/handout.md
cd "$folder" || exit 1

printf '%s\n' 'Text | with a bar.' '' '| kept |' '' "<!-- measure: printf '| %s |\\n' new 1 2 -->" '' '| old |' \
    '| 3 |' '' 'After it.' '' '| kept, too |' >"$handout"
cp "$handout" labs/78-other/handout.md
cp "$handout" before
"$scripts/measure.sh" 77 2>/dev/null || fail "status $?"
printf '%s\n' 'Text | with a bar.' '' '| kept |' '' "<!-- measure: printf '| %s |\\n' new 1 2 -->" '' '| new |' \
    '| 1 |' '| 2 |' '' 'After it.' '' '| kept, too |' | cmp -s - "$handout" || fail "it has become: $(cat "$handout")"
cmp -s before labs/78-other/handout.md || fail "another lab's handout has changed"
cp before labs/page.md
"$scripts/measure.sh" page 2>/dev/null || fail "a page: status $?"
cmp -s "$handout" labs/page.md || fail "a page has become: $(cat labs/page.md)"

sed -i "s/measure: .* -->/measure: echo '| half |'; false -->/" "$handout"
cp "$handout" before
! "$scripts/measure.sh" 77 2>/dev/null || fail "a command that fails is taken for one that measures"
cmp -s before "$handout" || fail "a command failed, and the handout has changed: $(cat "$handout")"

for number in '' 79 x; do
    "$scripts/measure.sh" $number 2>"$folder/err"
    [[ $? -eq 2 && $(wc -l <"$folder/err") -eq 1 ]] || fail "LAB=$number: $(cat "$folder/err")"
done

conclude
