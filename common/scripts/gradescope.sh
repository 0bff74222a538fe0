#!/usr/bin/env bash
# Usage: gradescope.sh    makes an autograder for Gradescope (make gradescope): TO (build/gradescope.zip)
#
# From the environment: EXERCISES as in make grade, which must be given; SECRET, the course's secret, if any. The zip
# has setup.sh, which Gradescope runs once as root, run_autograder, which it runs for each submission, and the kit. Its
# containers may allow no namespaces: setup.sh makes the answers unreadable to others, so that a user number of its own
# is a seal (labs/sealed-grading.md).

set -eu
goal="make gradescope"
. common/scripts/folders.sh
. common/scripts/grade_exercises.sh
to=${TO:-${BUILD:-build}/gradescope.zip}
[[ -n ${EXERCISES:-} ]] || refuse 'say which exercises, and their points: EXERCISES=ring:2,save'
read_exercises "$EXERCISES"
[[ -z ${SECRET:-} || (-f $SECRET && -s $SECRET && -r $SECRET) ]] || refuse "SECRET does not name a file with a secret in it"
use_git

# Is it an older autograder, with nothing else in it?
is_autograder() { [[ $(unzip -Z1 "$1" 2>/dev/null | grep -vx secret | LC_ALL=C sort | xargs) == "exercises kit.tar.gz run_autograder setup.sh" ]]; }
need_file "$to" is_autograder
! holds "${BUILD:-build}" "$to" || begin_build
folder=$(mktemp -d) zip=$(mktemp)
trap 'rm -rf "$folder" "$zip"' EXIT
# As make release: the files that git knows, as they are here, which the autograder's users read, whatever the umask here.
git ls-files -z | while IFS= read -r -d '' file; do
    [[ ! -e $file ]] || printf '%s\0' "$file"
done | tar --null -T - --mode=u+rwX,go+rX,go-w -czf "$folder/kit.tar.gz"
[[ -z ${SECRET:-} ]] || cp "$SECRET" "$folder/secret"
echo "$EXERCISES" >"$folder/exercises"

cat >"$folder/setup.sh" <<'SETUP'
#!/bin/bash
# Gradescope runs this once, as root, when it makes the container.
set -e
apt-get update
apt-get install -y make gcc
mkdir -p /autograder/kit
tar -C /autograder/kit -xzf /autograder/source/kit.tar.gz
cd /autograder/kit
make deps
common/scripts/deps.sh install class
make -j"$(common/scripts/cores.sh)" build/check-step build/compile-step build/grades
# Other users find their way to the compiler, and no answers.
chmod o+x /autograder /autograder/kit
chmod -R o-rwx solutions labs tests /autograder/source
SETUP

cat >"$folder/run_autograder" <<'RUN'
#!/bin/bash
# Gradescope runs this for each submission: /autograder/submission to /autograder/results/results.json.
results=/autograder/results/results.json
mkdir -p /autograder/results
# What stands there if anything below fails.
echo '{"score": 0, "output": "The grader itself failed. This is not your mistake: tell your instructor."}' >$results
rm -rf /autograder/inbox /autograder/grades
mkdir -p /autograder/inbox
# The student's e-mail address, from which the seeds follow; of a group the first one's.
id=$(grep -oE '"email" *: *"[^"/]+"' /autograder/submission_metadata.json 2>/dev/null | head -n 1 | sed 's/.*"\(.*\)"/\1/')
id=${id:-submission}
cp -rP /autograder/submission "/autograder/inbox/$id"
cd /autograder/kit || exit 1
export SUBMISSIONS=/autograder/inbox GRADES=/autograder/grades EXERCISES AT_ONCE=1
EXERCISES=$(cat /autograder/source/exercises)
[ ! -s /autograder/source/secret ] || export SECRET=/autograder/source/secret
common/scripts/grade.sh >/autograder/log 2>&1 &&
    build/grades gradescope /autograder/grades/grades.json "$id" >$results.new &&
    mv $results.new $results || cat /autograder/log >&2
RUN
chmod +x "$folder/setup.sh" "$folder/run_autograder"
(cd "$folder" && zip -qr - .) >"$zip"
mkdir -p "$(dirname "$to")"
rm -f -- "$to"
(umask 077 && cat "$zip" >"$to") # it has the course's secret
echo "make gradescope: $to"
