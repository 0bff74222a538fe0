#!/usr/bin/env bash
# A class of made-up students (rehearsal.tsv) is graded, from what they hand in to the grade book, killed in the middle
# once, and the table must be the one that was written by hand. Each form of the results is read by a program that is none
# of ours: Python's csv, json, and XML modules, where there is a python3.

. tests/lib.sh
for each in unzip zip git openssl; do
    command -v $each >/dev/null || skip "$each is not there"
done
[[ -x $build/check-step && -x $build/compile-step && -x $build/grades ]] || {
    echo "$build/check-step, compile-step or grades is not there: make them first" >&2
    exit 2
}
: >"$folder/nothing.c"
run "$build/check-step" --sealed --out "$folder/nothing.json" 1 "$folder/nothing.c"
[[ $status -ne 2 ]] || skip "$(cat "$folder/err")"
table=tests/steps/rehearsal.tsv
grep -v '^#' $table >"$folder/class"
files=(step_02 step_05 ring save)
columns=(0 1 2 3) asked="2 5 ring:2 save" total=5
common/scripts/steps.sh cut "$folder/cut" || exit 1
inbox=$folder/inbox
mkdir -p "$inbox" "$folder/repositories"

# make_file WHAT FILE TO: one submission.
make_file()
{
    local name=${1#*:}
    case $1 in
    none) ;;
    solution) cp "$folder/cut/solutions/$2.c" "$3" ;;
    untouched) cp "$folder/cut/steps/$2.c" "$3" ;;
    empty) : >"$3" ;;
    broken) sed 's/int main/int main(/' "$folder/cut/solutions/$2.c" >"$3" ;;
    big) head -c 2000000 /dev/zero | tr '\0' ' ' >"$3" ;;
    link) ln -s "$folder/cut/solutions/$2.c" "$3" ;;
    bomb) head -c 500000000 /dev/zero >"$3" ;; # of which a zip keeps half a megabyte
    mistake:* | alternative:*)
        cp "$folder/cut/solutions/$2.c" "$3"
        patch --quiet --no-backup-if-mismatch "$3" "tests/${1%%:*}s/$2/$name.patch" || fail "$name does not apply"
        ;;
    forgery:*)
        local base
        read -r _ _ base _ <"tests/forgeries/$name.c"
        tests/forgeries/make.sh "$name" "$folder/cut/$base.c" "$PWD" /dev/null >"$3"
        ;;
    esac
}

while IFS=$'\t' read -r id name form work; do
    IFS=$'\t' read -r -a cells <<<"$work"
    hand_in=$folder/hand-in/$id
    mkdir -p "$hand_in/steps"
    for i in "${columns[@]}"; do
        make_file "${cells[i]%=*}" "${files[i]}" "$hand_in/steps/${files[i]}.c"
    done
    case $form in
    folder) mkdir "$inbox/$id" && cp -P "$hand_in"/steps/* "$inbox/$id/" 2>/dev/null ;;
    steps) cp -rP "$hand_in" "$inbox/$id" ;;
    moodle) mkdir "$inbox/${name//\//_}_${id}_assignsubmission_file" && cp -P "$hand_in"/steps/* "$inbox/${name//\//_}_${id}_assignsubmission_file/" ;;
    zip) (cd "$hand_in" && zip -qr "$inbox/$id.zip" steps) ;;
    tar) tar -C "$hand_in" -czf "$inbox/$id.tar.gz" steps ;;
    git)
        git -C "$hand_in" init --quiet && git -C "$hand_in" add -A
        git -C "$hand_in" -c user.name=x -c user.email=x@x commit --quiet --allow-empty -m work
        mv "$hand_in" "$folder/repositories/$id"
        ;;
    esac
    [[ $form != git ]] || repository=$folder/repositories/$id
    printf '%s,"%s",s%s@example.org,%s\n' "$id" "${name//\"/\"\"}" "$id" "$([[ $form == git ]] && echo "$repository")" >>"$folder/roster"
done <"$folder/class"
{
    echo id,name,email,repository
    cat "$folder/roster"
} >"$folder/class.csv"
mkdir "$inbox/unknown" "$inbox/a
line" # who are not in the class
cp "$folder/cut/solutions/ring.c" "$inbox/unknown/"

grade()
{
    env -u MAKEFLAGS -u MAKELEVEL BUILD="$build" GRADES="$folder/grades" SUBMISSIONS="$inbox" ROSTER="$folder/class.csv" \
        EXERCISES="$asked" WORKSHEET="$folder/moodle.csv" BOOK="$folder/canvas.csv" COLUMN="Labs 2 to 6 (4711)" \
        common/scripts/grade.sh >"$folder/out" 2>"$folder/err"
}

# What the two platforms let one download.
{
    echo 'Identifier,"Full name","Email address",Status,Grade,"Maximum Grade","Last modified (grade)","Feedback comments"'
    cut -f 1 "$folder/class" | sed 's/.*/"Participant &",Somebody,s&@example.org,"Submitted for grading",,100.00,"Monday, 1 June 2026, 9:00 AM",/'
} >"$folder/moodle.csv"
{
    echo 'Student,ID,SIS User ID,SIS Login ID,Section,"Labs 2 to 6 (4711)",Final'
    echo "    Points Possible,,,,,$total,(read only)"
    cut -f 1 "$folder/class" | sed 's/.*/"Somebody, One",&,,s&@example.org,All,,/'
} >"$folder/canvas.csv"

begin=$SECONDS
# Killed in the middle, with all that it started.
set -m
grade &
running=$!
set +m
for ((i = 0; i < 600; i++)); do
    done_so_far=$(find "$folder/grades/results" -name '*.json' 2>/dev/null | wc -l)
    [[ $done_so_far -lt 4 ]] || break
    sleep 0.2
done
kill -KILL -- -$running || fail "make grade ended by itself: $(cat "$folder/err")"
wait $running 2>/dev/null
before=$(find "$folder/grades/results" -name '*.json' -newermt @0 -printf '%p %T@\n' | sort)
[[ -n $before ]] || fail "nothing was graded before it was killed: $(cat "$folder/err")"
[[ ! -e $folder/grades/grades.json ]] || fail "there is a grades.json of a run that was killed"
grade || fail "make grade: status $?: $(cat "$folder/out" "$folder/err")"
seconds=$((SECONDS - begin))
count=$(find "$folder/grades/results" -name '*.json' | wc -l)
# What had a result was not graded again, except a run that stood still, once more alone.
again=$(find "$folder/grades/results" -name '*.alone' | sed 's/alone$/json/')
while read -r path time; do
    [[ $again == *"$path"* || $(find "$path" -printf '%T@') == "$time" ]] || fail "$path was graded again"
done <<<"$before"

# The table that was written by hand.
awk -F '\t' -v columns="${columns[*]}" 'BEGIN { split("2 5 ring save", name, " ") }
    { for (i = 0; i < 4; i++) if ((" " columns " ") ~ " " i " ") { sub(/.*=/, "", $(4 + i)); print $1, name[i + 1], $(4 + i) } }' \
    "$folder/class" | sort >"$folder/wanted"
sed '/^$/,$d' "$folder/grades/table.txt" | awk 'NR > 1 { print $1, $2, $3 }' | sort >"$folder/found"
diff "$folder/wanted" "$folder/found" >"$folder/difference" || fail "not the table written by hand (<): $(cat "$folder/difference")"

[[ $(stat -c %a "$folder/grades") == 700 ]] || fail "others can read the grades"
! grep -rqE 'seed|look_at|PMPI' "$folder/grades/pages" || fail "a student's page has what the instructor alone may see"
grep -q 'PMPI_Allreduce\|dlsym' "$folder/grades/table.txt" || fail "the table does not say what to look at"
# A second time nothing is graded, and the result is the same.
cp "$folder/grades/grades.json" "$folder/first.json"
grade || fail "once more: status $?: $(cat "$folder/err")"
cmp -s "$folder/grades/grades.json" "$folder/first.json" || fail "another grades.json of the same results"

if command -v python3 >/dev/null; then
    python3 - "$total" "${#columns[@]}" "$folder" "$(sed -n 1p "$folder/class" | cut -f 1)" "$build/grades" <<'PYTHON' >"$folder/out" 2>&1 || fail "$(cat "$folder/out")"
import csv, json, subprocess, sys
from xml.etree import ElementTree
total, count, folder, first, tool = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
grades = json.load(open(folder + "/grades/grades.json"))
points = {s["id"]: sum(r["points"] for r in s["results"]) for s in grades["students"]}
assert all(r["seed"] > 0 and r["seal"] for s in grades["students"] for r in s["results"] if r["verdict"] not in ("missing", "too-large"))
rows = list(csv.DictReader(open(folder + "/grades/grades.csv", newline="")))
assert {r["id"]: float(r["points"]) for r in rows} == points, "grades.csv"
assert not any(v and v[0] in "=+@\t\r" for r in rows for v in r.values()), "a formula in grades.csv"
xml = ElementTree.parse(folder + "/grades/junit.xml").getroot()
for suite in xml:
    cases = suite.findall("testcase")
    assert int(suite.get("tests")) == len(cases) == count
    assert int(suite.get("failures")) == sum(c.find("failure") is not None for c in cases)
sheet = list(csv.DictReader(open(folder + "/grades/moodle.csv", newline="")))
for row in sheet:
    id = row["Identifier"].split()[1]
    assert abs(float(row["Grade"]) - points[id] / total * 100) < 0.01, row
    assert row["Last modified (grade)"] == "Monday, 1 June 2026, 9:00 AM" and "2: " in row["Feedback comments"]
book = list(csv.DictReader(open(folder + "/grades/canvas.csv", newline="")))
assert book[0]["Student"].strip() == "Points Possible" and book[0]["Labs 2 to 6 (4711)"] == str(total)
assert {r["ID"]: float(r["Labs 2 to 6 (4711)"]) for r in book[1:]} == points, "canvas.csv"
result = json.loads(subprocess.run([tool, "gradescope", folder + "/grades/grades.json", first], capture_output=True, text=True, check=True).stdout)
assert result["score"] == points[first] and len(result["tests"]) == count and isinstance(result["execution_time"], int)
for test in result["tests"]:
    assert test["status"] in ("passed", "failed") and 0 <= test["score"] <= test["max_score"] and test["visibility"] == "visible"
scores = json.loads(subprocess.run([tool, "autolab", folder + "/grades/grades.json", first], capture_output=True, text=True, check=True).stdout.splitlines()[-1])
assert sum(scores["scores"].values()) == points[first]
PYTHON
fi
echo "$(wc -l <"$folder/class") students, $count submissions graded in $seconds s, $(awk "BEGIN { printf \"%.1f\", $count / $seconds * 60 }") a minute"
conclude
