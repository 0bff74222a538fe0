#!/usr/bin/env bash
# Usage: tests/one.sh NAME CASE BUILT
#
# Runs the tests of that NAME, the first words of their lines in `make test`, else of their file (test_stall), and shows
# what they print. Builds before that what a test starts, or BUILT, the programs of all tests, where it is a script. CASE,
# if there is one: a test case of a Check program, a word for a script (for graders a part of an answer's name).
# Status 2 without such a test.

set -eu -o pipefail
name=$1 case=$2 built=$3 tests=() of_files=() near=
while read -r _ limit test; do
    title=${test%% : *} command=${test#* : }
    if [[ $title == "${name#test_}" ]]; then
        tests+=("$limit $test")
    elif [[ "$command " == *"/test_${name#test_}"?(.sh)" "* ]]; then
        of_files+=("$limit $test")
    elif [[ $title == *"$name"* ]]; then
        near+=${near:+, }$title
    fi
done < <(tests/run.sh --list alone main more)
[[ ${#tests[@]} -gt 0 ]] || tests=("${of_files[@]:0:1}")
if [[ -z $name || -z ${tests[0]:-} ]]; then
    echo "make one: T=${name:-NAME}: no test has this name${near:+; similar: ${near:0:300}}" >&2
    exit 2
fi
for i in "${!tests[@]}"; do
    read -r limit test <<<"${tests[i]}"
    title=${test%% : *} command=${test#* : } needed=$built
    if [[ $command =~ [a-z_]+\.sh && $command != common/scripts/mpi.sh* ]]; then
        # Case by case, as what make test takes is a part.
        [[ -z $case ]] || command="${command/ --some/} $case"
    else
        [[ -z $case ]] || command="CK_RUN_CASE=${case@Q} $command"
        needed=$(grep -oE '(^| )[^ =]+/(tests/|replay)[^ ]*' <<<"$command" | grep -v '^ *tests/')
    fi
    # shellcheck disable=SC2086 # words
    make -s --no-print-directory $needed
    tests[i]="one $limit $title : $command"
done
V=1 TEST_LIST=/dev/stdin tests/run.sh one < <(printf '%s\n' "${tests[@]}") |
    CASE=$case awk '{ print } /Checks: 0,/ { print "make one: CASE=" ENVIRON["CASE"] ": no test case has this name"; none = 1 } END { exit none }'
