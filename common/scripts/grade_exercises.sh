# shellcheck shell=bash
# read_exercises LIST: checks a list as EXERCISES= has it (all where it is empty). A bash script sources this file beside
# folders.sh. In $table is then the table of labs.sh, in $exercises a line for each exercise: NAME, FILE and POINTS, tabs between.

read_exercises()
{
    local words word name points file
    table=$(common/scripts/labs.sh table) || exit 2
    exercises=
    read -r -d '' -a words <<<"${1:-$(cut -d ' ' -f 1 <<<"$table")}" || true
    read -r -d '' -a words <<<"${words[*]//,/ }" || true
    for word in ${words[@]+"${words[@]}"}; do
        name=${word%%:*} points=1
        [[ $word != *:* ]] || points=${word#*:}
        [[ $points =~ ^[0-9]+(\.[0-9]+)?$ ]] || refuse "EXERCISES: '$word': the points are no number"
        file=$(awk -v name="$name" '$1 "" == name "" { print $2 }' <<<"$table")
        [[ -n $file ]] || refuse "EXERCISES: there is no exercise '$name'; they are $(cut -d ' ' -f 1 <<<"$table" | xargs)"
        [[ $'\n'$exercises != *$'\n'"$name"$'\t'* ]] || refuse "EXERCISES: '$name' stands there twice"
        exercises+=$name$'\t'$file$'\t'$points$'\n'
    done
    [[ -n $exercises ]] || refuse "EXERCISES names no exercise; they are $(cut -d ' ' -f 1 <<<"$table" | xargs)"
}
