#!/usr/bin/env bash
# The autograder for Gradescope, in folders where it has them: set up once, then two submissions, sealed by a user
# number of its own, as in a container that allows no namespaces; and results.json where the grader itself fails.

. tests/lib.sh
limit=600
[[ $(id -u) -eq 0 ]] || skip "only root can set up what Gradescope has"
for each in zip unzip git openssl python3; do
    command -v $each >/dev/null || skip "$each is not there"
done
git rev-parse HEAD >/dev/null 2>&1 || skip "this is no clone: make gradescope takes what git knows"
unset MAKEFLAGS MFLAGS MAKELEVEL
# Another user number must find its way there, which TMPDIR may not allow.
place=$(mktemp -d /tmp/hvdlab-gradescope-XXXXXX) || exit 1
chmod 755 "$place"
trap 'rm -rf "$folder" "$place"' EXIT
mkdir -p "$place/source" "$place/submission"
refused 'there is no exercise' env EXERCISES=r.ng:2 common/scripts/gradescope.sh
refused 'the points are no number' env EXERCISES=ring:x common/scripts/gradescope.sh
refused 'stands there twice' env EXERCISES=ring,ring common/scripts/gradescope.sh
# Its users can read a kit that nobody else can read here.
kit=$PWD
(umask 077 && git clone --quiet . "$folder/private" && cp common/scripts/*.sh "$folder/private/common/scripts/")
(cd "$folder/private" && umask 077 && EXERCISES=ring TO="$folder/private.zip" "$kit/common/scripts/gradescope.sh") >/dev/null || fail "a private kit"
[[ $(unzip -p "$folder/private.zip" kit.tar.gz | tar -tvz | grep -c '^-r..r--r--\|^-r.xr-xr-x') -gt 100 ]] || fail "a private kit: no modes"
! unzip -p "$folder/private.zip" kit.tar.gz | tar -tvz | grep -v '^-r..r--r--\|^-r.xr-xr-x\|^l' || fail "files that others cannot read"
succeeds env EXERCISES="1 ring:2" TO="$folder/gradescope.zip" common/scripts/gradescope.sh
[[ $(stat -c %a "$folder/gradescope.zip") == 600 ]] || fail "others can read the zip, and so the course's secret"
unzip -q "$folder/gradescope.zip" -d "$place/source"
[[ -x $place/source/setup.sh && -x $place/source/run_autograder ]] || fail "setup.sh or run_autograder cannot be run"
# What apt-get would install is here already.
mkdir "$folder/bin"
printf '#!/bin/sh\nexit 0\n' >"$folder/bin/apt-get"
chmod +x "$folder/bin/apt-get"
[[ ! -e /autograder ]] || skip "there is a folder /autograder"
ln -s "$place" /autograder
trap 'rm -f /autograder; rm -rf "$folder" "$place"' EXIT
succeeds env PATH="$folder/bin:$PATH" CUDA=0 /autograder/source/setup.sh

# submit WANTED FILE=SOURCE...: the score, and the tests with their status.
submit()
{
    local wanted=$1 pair
    rm -rf /autograder/submission/*
    for pair in "${@:2}"; do
        cp "${pair#*=}" "/autograder/submission/${pair%%=*}"
    done
    HVDLAB_SEAL=user run /autograder/source/run_autograder
    [[ $(python3 -c 'import json; r = json.load(open("/autograder/results/results.json")); print(r["score"], *[t["name"] + ":" + t["status"] for t in r.get("tests", [])])') == "$wanted" ]] ||
        fail "results.json is not $wanted: $(cat /autograder/results/results.json "$folder/err")"
}
common/scripts/steps.sh cut "$folder/cut" || exit 1
submit '3 1:passed ring:passed' step_01.c="$folder/cut/solutions/step_01.c" ring.c="$folder/cut/solutions/ring.c"
grep -q '"seal":[[:space:]]*"user"' /autograder/grades/grades.json || fail "another seal than user"
submit '0 1:failed ring:failed' ring.c="$folder/cut/steps/ring.c"
# Another student has other seeds: they follow from the e-mail address.
printf '{"id": 1, "users": [{"id": 7, "email": "ana@x.org", "name": "Ana"}, {"email": "bo@x.org"}]}' >/autograder/submission_metadata.json
seed() { grep -o '"seed":[[:space:]]*[0-9]*' /autograder/grades/grades.json | head -n 1; }
before=$(seed)
submit '2 1:failed ring:passed' ring.c="$folder/cut/solutions/ring.c"
grep -q '"id":[[:space:]]*"ana@x.org"' /autograder/grades/grades.json && [[ $(seed) != "$before" ]] || fail "the seeds do not follow from the student"
mv /autograder/kit/build/check-step /autograder/kit/build/away
submit '0' ring.c="$folder/cut/steps/ring.c"
conclude
