#!/usr/bin/env bash
# Usage: labs/09-many-machines/slurm/grade.sh EXERCISE FILE...
#
# Grades all files as answers to the exercise, each as a task of one array of Slurm's (grade.sbatch), waits for
# them, and prints a table: the file, and passed, or the diagnosis. What each check said stays in a folder that
# the last line names. SBATCH_PARTITION and sbatch's other variables are Slurm's own way to say more. Status 0:
# all passed; 1: some did not; 2: not all were graded.

set -u
built=${BUILD:-build}
here=$(dirname "$0")

fail()
{
    printf 'grade.sh: %s\n' "$1" >&2
    exit 2
}

[[ $# -ge 2 ]] || fail "usage: grade.sh EXERCISE FILE..."
exercise=$1
shift
command -v sbatch >/dev/null || fail "there is no sbatch here (Debian package slurm-client)"
[[ -x $built/check-step && -x $built/compile-step ]] || fail "type first: make $built/check-step $built/compile-step"
[[ -n $(common/scripts/labs.sh get "$exercise" title) ]] || fail "$exercise: there is no such exercise; make progress lists them"
for file; do
    [[ -f $file && -r $file ]] || fail "there is no file '$file' that can be read"
    [[ $file != *$'\n'* ]] || fail "a file's name has two lines"
done
mkdir -p "$built/graded" && folder=$(mktemp -d "$built/graded/$exercise-XXXXXX") || exit 2
printf '%s\n' "$@" >"$folder/files"

# Its status is the tasks' largest.
said=$(sbatch --wait --parsable --array="1-$#" --output="$folder/%a.txt" "$here/grade.sbatch" "$exercise" "$folder" 2>&1)
[[ -n $(ls "$folder"/*.txt 2>/dev/null) ]] || fail "sbatch: ${said:-no task has run}"

verdict() # TASK
{
    cat "$folder/$1"/check/*.json 2>/dev/null | sed -n -e 's/^[[:space:]]*"passed":[[:space:]]*true.*/passed/p' \
        -e 's/^[[:space:]]*"diagnosis":[[:space:]]*"\([^"]*\)".*/\1/p'
}

passed=0 graded=0 task=0
for file; do
    task=$((task + 1))
    result=$(verdict $task)
    printf '%-40s %s\n' "$file" "${result:-not graded: $(tail -n 1 "$folder/$task.txt" 2>&1)}"
    [[ -z $result ]] || graded=$((graded + 1))
    [[ $result != passed ]] || passed=$((passed + 1))
done
echo "$passed of $# passed; what the checks said is in $folder/"
[[ $graded -eq $# ]] || exit 2
[[ $passed -eq $# ]]
