#!/usr/bin/env bash
# Usage: tests/unit/test_class.sh
#
# What build/grades joins by numbers and names: nobody gets another student's points. A verdict "crashed" counts after a check
# beside no other. And the course's secret is in no command's arguments, which every user of a machine can read.

. tests/lib.sh
grades=$build/grades

# grades.json of these students, each with as many points as its number in the list, from 1.
students()
{
    local points=0 line between=''
    printf '{"students":['
    for line; do
        points=$((points + 1))
        IFS=, read -r id name email <<<"$line"
        printf '%s{"id":"%s","name":"%s","email":"%s","results":[{"exercise":"ring","verdict":"passed","passed":true,"points":%d,"max_points":9}]}' \
            "$between" "$id" "$name" "$email" "$points"
        between=,
    done
    printf ']}'
}

# given FORM TABLE [COLUMN]: the form's last column but what is behind the points, of all rows.
canvas_points() { succeeds "$grades" canvas "$folder/grades.json" "$folder/table.csv" Lab && cut -d , -f 5 "$folder/out" | tail -n +2 | xargs; }
moodle_points() { succeeds "$grades" moodle "$folder/grades.json" "$folder/table.csv" && cut -d , -f 5 "$folder/out" | tail -n +2 | xargs; }
canvas() { printf '%s\n' 'Student,ID,SIS User ID,SIS Login ID,Lab' "$@" >"$folder/table.csv"; }
moodle() { printf '%s\n' 'Identifier,Full name,Email address,ID number,Grade' "$@" >"$folder/table.csv"; }

students 100,Ann, 200,Bo, >"$folder/grades.json"
canvas Ann,1,100,ann, Bo,2,200,bo,
[[ $(canvas_points) == '1 2' ]] || fail "by student numbers: $(canvas_points)"
canvas Ann,100,7,ann, Bo,200,8,bo,
[[ $(canvas_points) == '1 2' ]] || fail "by Canvas's ids: $(canvas_points)"
# A Canvas id that is another one's student number.
canvas Bo,200,100,bo,
refused 'row 2 is student 200 by its "ID", and student 100 by its "SIS User ID"' "$grades" canvas "$folder/grades.json" "$folder/table.csv" Lab
canvas Ann,1,100,ann, Cy,100,,cy,
refused 'rows 2 and 3 are both student 100' "$grades" canvas "$folder/grades.json" "$folder/table.csv" Lab
moodle 'Participant 100,Bo,bo@x.org,200,'
refused 'row 2 is student 100 by its "Identifier", and student 200 by its "ID number"' "$grades" moodle "$folder/grades.json" "$folder/table.csv"

# Two of one name, of whom the class has one.
students ann@x.org,'Ann Lee', bo@x.org,'Bo Li', >"$folder/grades.json"
for rows in 'Participant 1,Ann Lee,ann@x.org,, Participant_2,Ann_Lee,lee@x.org,, Participant_3,Bo_Li,,,' \
    'Participant_2,Ann_Lee,lee@x.org,, Participant_1,Ann_Lee,ann@x.org,, Participant_3,Bo_Li,,,'; do
    read -ra list <<<"${rows/Participant 1,Ann Lee/Participant_1,Ann_Lee}"
    moodle "${list[@]//_/ }"
    [[ $(grep -c . "$folder/table.csv") -eq 4 ]] || fail "the table has other rows: $(cat "$folder/table.csv")"
    succeeds "$grades" moodle "$folder/grades.json" "$folder/table.csv"
    [[ $(grep 'ann@x.org' "$folder/out") == *,1.00 && $(grep 'lee@x.org' "$folder/out") == *, && $(grep Bo "$folder/out") == *,2.00 ]] ||
        fail "a namesake: $(cat "$folder/out")"
done
students 1,'Ann Lee', >"$folder/grades.json"
moodle 'Participant 8,Ann Lee,a@x.org,,' 'Participant 9,Ann Lee,b@x.org,,'
[[ $(moodle_points) == '' ]] || fail "two namesakes have points: $(cat "$folder/out")"

# The secret: the scripts as bash traces them, with each command's arguments.
echo a-secret-of-ours >"$folder/secret"
printf 'id,email\nann,ann@x.org\n' >"$folder/class.csv"
mkdir -p "$folder/handed-in/ann"
cp solutions/ring.c "$folder/handed-in/ann"
[[ -x $build/check-step && -x $build/compile-step && -x $grades ]] || fail "$build/check-step, compile-step or grades is not there: make them first"
run env SUBMISSIONS="$folder/handed-in" ROSTER="$folder/class.csv" EXERCISES=ring SECRET="$folder/secret" DRY=1 \
    GRADES="$folder/grades" bash -x common/scripts/grade.sh
[[ $status -eq 0 ]] || fail "grade.sh: status $status: $(tail -n 3 "$folder/err")"
! grep -n a-secret-of-ours "$folder/err" || fail "make grade: the secret is an argument"

# A class in which nobody has handed in anything has its tables, which the next run replaces.
mkdir "$folder/nothing" "$folder/nothing/ann"
for _ in 1 2; do
    succeeds env SUBMISSIONS="$folder/nothing" ROSTER="$folder/class.csv" EXERCISES=ring GRADES="$folder/none" common/scripts/grade.sh
    grep -q 'ring: missing' "$folder/out" || fail "no table: $(cat "$folder/out" "$folder/err")"
done
[[ ! -e $folder/none/earlier ]] || fail "tables that are the same are kept: $(ls "$folder/none/earlier"/*)"

# A run that is killed in the check that a verdict "crashed" needs, alone: the next run makes it. So does one with ONLY=.
export STUB=$folder/stub
mkdir "$STUB" && ln -s "$(realpath "$build")"/{grades,hvdlab.o,compile-step} "$STUB"
cat >"$STUB/check-step" <<'END'
#!/usr/bin/env bash
echo "$*" >>"$STUB/checks"
if [[ -e $STUB/run && $(wc -l <"$STUB/checks") -eq 2 ]]; then
    kill -9 "$(cat "$STUB/run")"
    exit 1
fi
while [[ $# -gt 1 ]]; do
    case $1 in
    --seed) seed=$2 ;;
    --out) out=$2 ;;
    esac
    shift
done
printf '{"passed":false,"diagnosis":"crashed","seed":%s,"sha256":"%s"}' "$seed" "$(sha256sum <"$1" | cut -c 1-64)" >"$out"
exit 1
END
chmod +x "$STUB/check-step"
# crashed CHECKS WORD...: make grade has made so many checks, in all its runs.
crashed()
{
    run env BUILD="$STUB" SUBMISSIONS="$folder/handed-in" ROSTER="$folder/class.csv" EXERCISES=ring GRADES="$folder/crashed" "${@:2}"
    local checks
    checks=$(wc -l <"$STUB/checks")
    [[ $checks -eq $1 ]] || fail "$checks checks instead of $1: ${*:2}: status $status: $(cat "$folder/out" "$folder/err")"
}
# shellcheck disable=SC2016 # the inner shell's
crashed 2 bash -c 'echo $$ >"$STUB/run" && exec common/scripts/grade.sh'
rm "$STUB/run"
crashed 3 common/scripts/grade.sh
crashed 3 common/scripts/grade.sh
crashed 5 env ONLY=ann common/scripts/grade.sh
crashed 7 env ONLY=ann@x.org common/scripts/grade.sh

long=$(printf 'x%.0s' {1..105})
printf 'id\nann\n%s1\n%s2\n' "$long" "$long" >"$folder/students.csv"
limit=100 run env STUDENTS="$folder/students.csv" EXERCISES=ring SECRET="$folder/secret" TO="$folder/release" bash -x common/scripts/release.sh
[[ $status -eq 0 ]] || fail "release.sh: status $status: $(tail -n 3 "$folder/err")"
! grep -n a-secret-of-ours "$folder/err" || fail "make release: the secret is an argument"
stamp=$(tar -xzOf "$folder/release/students/ann.tar.gz" hvdlab/stamp.txt | sed -n 's/^stamp: //p')
code=$(printf 'stamp\nann' | openssl dgst -sha256 -hmac "$(cat "$folder/secret")" | sed 's/.*= *//')
[[ $stamp == "${code:0:16}" ]] || fail "the stamp is $stamp instead of ${code:0:16}"

# Long ids stay two, with the names and so the stamps that make grade has.
diff <("$grades" roster "$folder/students.csv" | cut -d $'\x1f' -f 2 | sort) <(cd "$folder/release/students" && printf '%s\n' *.tar.gz | sed 's/\.tar\.gz$//' | sort) ||
    fail "packages of other students"

# A sheet must have the seed of that stamp.
cp solutions/diagnose.c "$folder/handed-in/ann"
seed=$(tar -xzOf "$folder/release/students/ann.tar.gz" hvdlab/stamp.txt | sed -n 's/^seed for profile and diagnose: //p')
run env BUILD="$STUB" SUBMISSIONS="$folder/handed-in" ROSTER="$folder/class.csv" EXERCISES=diagnose SECRET="$folder/secret" STAMPS=1 \
    GRADES="$folder/stamped" common/scripts/grade.sh
grep -q -e "--stamp-seed $seed .*/diagnose.c$" "$STUB/checks" || fail "the check has not the seed $seed: $(tail -n 1 "$STUB/checks")"
conclude
