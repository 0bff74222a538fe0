#!/usr/bin/env bash
# The autograder for Gradescope, in folders where it has them: set up once, then two submissions, sealed by a user
# number of its own, as in a container that allows no namespaces; and results.json where the grader itself fails.

. tests/lib.sh
limit=600
[[ $(id -u) -eq 0 ]] || skip "only root can pretend to be Gradescope's container"
for each in zip unzip git openssl python3; do
    command -v $each >/dev/null || skip "$each is not there"
done
git rev-parse HEAD >/dev/null 2>&1 || skip "this is no clone: make gradescope takes what git knows"
unset MAKEFLAGS MFLAGS MAKELEVEL
chmod 755 "$folder"
mkdir -p "$folder/autograder/source" "$folder/autograder/submission"
refused 'there is no exercise' env EXERCISES=nothing common/scripts/gradescope.sh
succeeds env EXERCISES="1 ring:2" TO="$folder/gradescope.zip" common/scripts/gradescope.sh
unzip -q "$folder/gradescope.zip" -d "$folder/autograder/source"
[[ -x $folder/autograder/source/setup.sh && -x $folder/autograder/source/run_autograder ]] || fail "setup.sh or run_autograder cannot be run"
# What apt-get would install is here already.
mkdir "$folder/bin"
printf '#!/bin/sh\nexit 0\n' >"$folder/bin/apt-get"
chmod +x "$folder/bin/apt-get"
