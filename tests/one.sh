#!/usr/bin/env bash
# Usage: tests/one.sh NAME CASE BUILT
#
# Runs the one test of that NAME, the first words of its line in `make test` or its file (test_stall), and shows what
# it prints. Builds before that what the test starts, or BUILT, the programs of all tests, where it is a script. CASE,
# if there is one: a test case of a Check program, a word for a script (for graders a part of an answer's name).
# Status 2 without such a test.

set -eu -o pipefail
name=$1 case=$2 built=$3 title=
while read -r _ limit test; do
    title=${test%% : *} command=${test#* : }
    [[ $title != "$name" && "$command " != *"/test_${name#test_}"?(.sh)" "* ]] || break
    [[ $title != *"$name"* ]] || near+=${near:+, }$title
    title=
done < <(tests/run.sh --list alone main more)
if [[ -z $name || -z $title ]]; then
    echo "make one: T=${name:-NAME}: no test has this name${near:+; similar: ${near:0:300}}" >&2
    exit 2
fi
if [[ $command =~ [a-z_]+\.sh && $command != common/scripts/mpi.sh* ]]; then
    # Case by case, as what make test takes is a part.
    [[ -z $case ]] || command="${command/ --some/} $case"
else
    [[ -z $case ]] || command="CK_RUN_CASE=$case $command"
    built=$(grep -oE '(^| )[^ =]+/(tests/|replay)[^ ]*' <<<"$command" | grep -v '^ *tests/')
fi
# shellcheck disable=SC2086 # words
make -s --no-print-directory $built
V=1 TEST_LIST=/dev/stdin tests/run.sh one <<<"one $limit $title : $command" |
    awk '{ print } /Checks: 0,/ { print "make one: CASE='"$case"': no test case has this name"; none = 1 } END { exit none }'
