#!/usr/bin/env bash
# Usage: tests/steps/test_grade.sh [--some]
#
# make grade around the checks: whose each entry of a download is, in the forms that learning platforms and students send;
# which file of several counts; what has a mark and what has none; rosters and worksheets as spreadsheets write them;
# deadlines, teams, overrides; and, not with --some, faults of the grader's own, runs beside each other, and runs that are
# killed. test_rehearsal.sh grades a whole class.

. tests/lib.sh
limit=300
for each in zip git openssl python3; do
    command -v $each >/dev/null || skip "$each is not there"
done
[[ -x $build/check-step && -x $build/compile-step && -x $build/grades ]] || skip "make build/check-step build/compile-step build/grades first"
: >"$folder/nothing.c"
run "$build/check-step" --sealed --out "$folder/nothing.json" 1 "$folder/nothing.c"
[[ $status -ne 2 ]] || skip "$(cat "$folder/err")"
kit=$PWD
inbox=$folder/inbox
table=$folder/grades/table.txt

# grade NAME=VALUE...: as make grade calls it; the results are in $folder/grades.
grade()
{
    run env -u MAKEFLAGS -u MAKELEVEL BUILD="$build" SUBMISSIONS="$inbox" EXERCISES=1,ring:3 GRADES="$folder/grades" "$@" common/scripts/grade.sh
}
fresh() { rm -rf "$inbox" && mkdir "$inbox"; }

# row ID EXERCISE: "state|file; remarks" of a dry run.
row() { awk -F '  +' -v id="$1" -v exercise="$2" '$1 == id { for (i = 2; i <= 3; i++) if ($i == exercise) { print $(i + 1) "|" $NF; exit } }' "$folder/out"; }

# expect ID EXERCISE PATTERN: what the dry run says of it.
expect()
{
    local said
    said=$(row "$1" "$2")
    # shellcheck disable=SC2053 # a pattern
    [[ $said == $3 ]] || fail "$1, $2: \"$said\" is not $3"
}
dry() { grade DRY=1 "$@"; [[ $status -eq 0 ]] || fail "a dry run ended with status $status: $(cat "$folder/err")"; }

# ---- Forms, in the C locale and in others.

fresh
step=$kit/solutions/step_01.c ring=$kit/solutions/ring.c
(
    cd "$inbox" || exit 1
    mkdir plain steps kit both upper copies two empty odd "d'arcy" 'back\slash' '%41' $'line\nbreak' nested utf16 textfile many
    cp "$step" "$ring" plain/
    mkdir steps/steps steps/other && cp "$ring" steps/steps/ring.c && echo other >steps/other/ring.c
    mkdir kit/steps kit/labs kit/solutions && cp "$kit/steps/ring.c" kit/steps/ && cp "$ring" kit/ring.c && echo x >kit/labs/ring.c
    cp "$ring" both/ring.c && touch -d '2026-05-01 10:00' both/ring.c
    (cd two && cp "$step" "$ring" . && touch -d '2026-06-01 10:00' ring.c && zip -q ../both.zip ring.c step_01.c && rm ring.c step_01.c && echo x >note)
    cp "$ring" upper/RING.C && cp "$step" upper/Step_01.c
    cp "$ring" 'copies/ring (1).c' && cp "$kit/steps/ring.c" copies/ring.c
    cp "$step" 'two/step_01.c' && cp "$ring" 'two/my ring final.c'
    cp "$ring" odd/ring.c.txt && cp "$ring" "d'arcy/ring.c" && cp "$ring" 'back\slash/ring.c' && cp "$ring" '%41/ring.c'
    (cd plain && zip -qr ../nested/homework.zip ring.c && tar -cJf ../xz.tar.xz ring.c && tar -cjf ../bz2.tar.bz2 ring.c &&
        tar -czf ../gz.tgz ring.c && tar -cf ../TAR.TAR ring.c && zip -q -P pw ../locked.zip ring.c && zip -q ../inner.zip ring.c)
    zip -q zipzip.zip inner.zip && mkdir gz1 && gzip -c plain/ring.c >gz1/ring.c.gz
    head -c 700 inner.zip >cut.zip && rm inner.zip && : >zero.zip && echo nothing >noarchive.zip && echo x >r.rar && echo x >notes.pdf
    iconv -f UTF-8 -t UTF-16 plain/ring.c >utf16/ring.c
    ln -s "$kit/solutions/ring.c" many/ring.c && ln -s "$kit/solutions" link
    cp "$ring" textfile/ring.txt
    # Moodle, with folders and without; Canvas.
    mkdir 'Boris Müller_100002_assignsubmission_file' && cp nested/homework.zip 'Boris Müller_100002_assignsubmission_file/'
    mkdir 'Ана Петрова_100003_assignsubmission_file_' && tar -C plain -czf 'Ана Петрова_100003_assignsubmission_file_/abgabe.tar.gz' ring.c
    cp "$ring" 'Ada Lovelace_100001_assignsubmission_file_ring.c' && cp "$step" 'Ada Lovelace_100001_assignsubmission_file_step_01.c'
    cp nested/homework.zip 'Zoë_Ø_100004_assignsubmission_file_homework.zip'
    mkdir 'Default group_assignsubmission_file' && cp "$ring" 'Default group_assignsubmission_file/'
    mkdir 'Eva Lang_100005_assignsubmission_onlinetext' && echo '<p>' >'Eva Lang_100005_assignsubmission_onlinetext/onlinetext.html'
    cp "$ring" anon_Xy1Ab_990004_ring.c && cp "$ring" LATE_anon_Zz9_990005_ring.c && cp "$step" van_der_1105_990005_step_01.c
    cp "$ring" 'Lab 3_Part_A_jmueller_attempt_2026-05-06-12-00-01_ring.c' && echo '<p>' >smithanna_1120_text.html
    for name in müllerboris_2002_5004_ring.c gonzálezana_LATE_2007_5011_ring.c 李明_2005_5008_ring-1.c حسنعلي_2006_5012_ring.c; do cp "$ring" "$name"; done
    python3 - <<'PYTHON'
import zipfile
def make(path, names):
    with zipfile.ZipFile(path, "w") as z:
        for name, text in names:
            z.writestr(name, text)
ring = open("plain/ring.c").read()
make("slashes.zip", [("work\\steps\\ring.c", ring), ("__MACOSX/steps/._ring.c", "x")])
make("nothing.zip", [])
# A name in code page 437, without the flag of UTF-8.
make("cp437.zip", [("xber/ring.c", ring)])
make("checksum.zip", [("ring.c", ring)])
data = bytearray(open("checksum.zip", "rb").read())
data[200] ^= 1 # in the file's bytes, which are not compressed
open("checksum.zip", "wb").write(data)
data = open("cp437.zip", "rb").read().replace(b"xber/", b"\x81ber/")
open("cp437.zip", "wb").write(data)
PYTHON
)
for locale in C.UTF-8 C tr_TR.UTF-8; do
    dry LC_ALL=$locale
    for id in plain steps kit both upper copies odd "d'arcy" 'back\slash' '%41' nested utf16 xz bz2 gz TAR zipzip gz1 cp437 slashes 100001 100002 100003 100004 anon_Xy1Ab anon_Zz9 jmueller 2002 2005 2006 2007; do
        expect "$id" ring 'taken|*'
    done
done
expect steps ring 'taken|steps/steps/ring.c; not taken: steps/other/ring.c (a file in steps/ comes first)'
expect kit ring 'taken|kit/ring.c; not taken: *'
expect both ring 'taken|both.zip/ring.c*'
expect copies ring 'taken|copies/ring (1).c; not taken: copies/ring.c (it is as it was handed out)'
expect two ring 'missing|there is no ring.c; there is my ring final.c*'
expect textfile ring 'missing|*there is ring.txt'
expect empty ring 'missing|*an empty folder'
expect zero ring 'missing|*an empty archive'
expect nothing ring 'missing|*an empty archive'
expect many ring 'missing|*a link, which is not followed'
expect locked ring 'not-understood|*locked by a password'
expect cut ring 'not-understood|*cut short or damaged*'
expect noarchive ring 'not-understood|*it is no archive*'
expect checksum ring 'not-understood|*damaged*'
expect 100005 ring 'missing|*there is onlinetext.html'
expect 1120 ring 'missing|*there is smithanna_1120_text.html'
expect 1105 1 'taken|van_der_1105_990005_step_01.c'
expect r ring 'not-understood|*a RAR archive, which is not opened*'
expect 2007 ring 'taken|*'
expect cp437 ring 'taken|cp437.zip/über/ring.c'
grep -q '^  notes.pdf: it names no student' "$folder/out" || fail "an entry that no rule takes is not named"
[[ ! -e $folder/grades ]] || fail "a dry run wrote a folder of grades"
# The same, all in one archive.
(cd "$inbox" && zip -qry "$folder/download.zip" plain 'Boris Müller_100002_assignsubmission_file' müllerboris_2002_5004_ring.c both.zip)
dry SUBMISSIONS="$folder/download.zip"
for id in plain both 100002 2002; do
    expect $id ring 'taken|*'
done
# Where it is cut, who comes behind the cut has no mark.
head -c 8000 "$folder/download.zip" >"$folder/cut.zip"
printf 'id\nplain\nboth\n100002\nsomebody\n' >"$folder/class.csv"
dry SUBMISSIONS="$folder/cut.zip" ROSTER="$folder/class.csv"
expect plain ring 'taken|*'
expect somebody ring 'not-understood|nothing was handed in; *cut.zip: the archive is cut short or damaged'
grade DRY=1 SUBMISSIONS="$folder/cut.zip"
[[ $status -eq 2 ]] && grep -q 'cut.zip: .* without ROSTER=' "$folder/err" || fail "a cut archive without a roster: status $status: $(cat "$folder/err")"
grade DRY=1 SUBMISSIONS="$inbox/noarchive.zip" ROSTER="$folder/class.csv"
[[ $status -eq 2 ]] && grep -q 'noarchive.zip: it is no archive' "$folder/err" || fail "an inbox that is no archive: $(cat "$folder/err")"

# What is skipped in a compressed archive counts: 1.1 GB of zeros before ring.c. The folder may be a link.
fresh
mkdir "$inbox/large" && ln -s inbox "$folder/link"
python3 - "$inbox/large/large.tar.bz2" <<'PYTHON'
import bz2, sys, tarfile
def head(name, size):
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf()
part, parts = 100 * 1024 * 1024, 11
with open(sys.argv[1], "wb") as archive:
    archive.write(bz2.compress(head("zeros.dat", parts * part)) + parts * bz2.compress(bytes(part)))
    archive.write(bz2.compress(head("ring.c", 512) + b" " * 512 + bytes(1024)))
PYTHON
dry SUBMISSIONS="$folder/link"
expect large ring 'not-understood|*too many or too large files, read in part'

# ---- Rosters, as spreadsheets write them; worksheets and grade books that say whose number is whose.

fresh
mkdir "$inbox/s1" "$inbox/Boris Müller_100002_assignsubmission_file" "$inbox/S2"
for each in "$inbox"/*; do cp "$ring" "$each/"; done
cp "$ring" "$inbox/lovelaceada_77_5_ring.c"
roster=$folder/class.csv
write_roster() { printf '%s' "$1" | sed 's/|/\r\n/g' >"$roster"; }
plain='id,name,email|s1,Ana,a@x.org|s2,"Müller, Boris",b@x.org|s3,Ada Lovelace,c@x.org|'
write_roster "$plain" && dry ROSTER="$roster"
expect s1 ring 'taken|*' && expect s2 ring 'taken|*' && expect s3 ring 'taken|*found by name'
bom=$(printf '\xef\xbb\xbf')
for form in "${bom}Id ;NAME;Email|s1;Ana;a@x.org|" "$(printf 'ID\tname\n s1 \tAna\n')" "sep=;|id;name|s1;Ana|" "id,name|\"s1\",\"Ana \"\"A\"\"\"|"; do
    write_roster "$form" && dry ROSTER="$roster"
    expect s1 ring 'taken|*'
done
write_roster 'id;name|s2;Boris Müller|' && iconv -f UTF-8 -t CP1252 "$roster" >"$roster.ansi" && dry ROSTER="$roster.ansi"
grep -q 'Boris Müller' "$folder/out" || fail "a roster in Windows-1252 is not read: $(cat "$folder/out")"
iconv -f UTF-8 -t UTF-16 "$roster" >"$roster.utf16" && dry ROSTER="$roster.utf16"
grep -q 'Boris Müller' "$folder/out" || fail "a roster in UTF-16 is not read"
# A letter and its mark, as macOS writes them.
write_roster "$(printf 'id|mu\xcc\x88ller|')" && mkdir "$inbox/müller" && cp "$ring" "$inbox/müller/" && dry ROSTER="$roster"
grep -q 'taken .* müller/ring.c' "$folder/out" || fail "a decomposed ü is another one: $(cat "$folder/out")"
write_roster 'id,email|u1,b@x.org|'
printf 'Identifier,"Full name","Email address",Grade\n"Participant 100002",B,b@x.org,\n' >"$folder/sheet.csv"
dry ROSTER="$roster" WORKSHEET="$folder/sheet.csv"
expect u1 ring 'taken|*'
# A team's folder has the group's number, here also a participant's.
write_roster 'id,email,team|u1,b@x.org,Team A|u2,c@x.org,Team B|u3,d@x.org,Team B|' && mkdir "$inbox/Team B_100002_assignsubmission_file" && cp "$ring" "$inbox/Team B_100002_assignsubmission_file/"
rm -r "$inbox/Boris Müller_100002_assignsubmission_file"
dry ROSTER="$roster" WORKSHEET="$folder/sheet.csv"
expect u1 ring 'missing|*' && expect u2 ring 'taken|Team B_100002*' && expect u3 ring 'taken|Team B_100002*'
# Moodle's worksheet as the roster, in its languages.
cp -r "$inbox/S2" "$inbox/Nguyễn Thị Ánh_16_assignsubmission_file"
for head in 'ID,"Vollständiger Name",E-Mail-Adresse,Status,Bewertung|Teilnehmer/in16' 'Identifiant,"Nom complet","Adresse de courriel",Statut,Note|Participant16' \
    'Identificador,"Nombre completo","Dirección de correo",Estado,Calificación|Participante16' '标识符,全名,电子邮件地址,状态,成绩|参与人16' '识别码,全名,Email地址,状态,成绩|参与者16'; do
    write_roster "$head,x,x@x.org,,|" && dry ROSTER="$roster"
    expect 16 ring 'taken|*'
done
write_roster 'id|nobody1|nobody2|'
grade ROSTER="$roster" && [[ $status -eq 2 ]] || fail "a roster that matches nobody: status $status"
grep -q 'nobody in .* has handed in anything' "$folder/err" || fail "a roster that matches nobody: $(cat "$folder/err")"
[[ ! -e $folder/grades/grades.json ]] || fail "grading began with a roster that matches nobody"
for bad in 'name,email|x,y|' 'id|a|A|' 'id,deadline|a,soon|' 'id,name|s1,"A|s2,B|' 'id,name|s1,A|,B|' ''; do
    write_roster "$bad" && grade DRY=1 ROSTER="$roster"
    [[ $status -eq 2 && $(grep -vc '^make grade: deadline' "$folder/err") -eq 1 ]] || fail "roster $bad: status $status: $(cat "$folder/err")"
done

# ---- Deadlines: of the class, of one student, of repositories; Canvas's LATE.

fresh
mkdir "$inbox"/{early,late,extended,two}
for each in "$inbox"/*; do cp "$ring" "$each/"; done
touch -d '2026-05-01 12:00 UTC' "$inbox/early/ring.c"
touch -d '2026-05-03 12:00 UTC' "$inbox/late/ring.c" "$inbox/extended/ring.c" "$inbox/two/ring.c"
cp "$kit/solutions/step_01.c" "$inbox/two/ring (1).c" && touch -d '2026-05-01 12:00 UTC' "$inbox/two/ring (1).c"
printf 'id,deadline\nearly,\nlate,\nextended,2026-05-04 00:00 UTC\ntwo,\n' >"$roster"
dry ROSTER="$roster" DEADLINE='2026-05-01 14:30 Europe/Berlin'
late_of() { awk -F '  +' -v id="$1" '$1 == id && /  ring  / { print $(NF - 1); exit }' "$folder/out"; }
[[ "$(late_of early) $(late_of late) $(late_of extended) $(late_of two)" == "0 2 0 0" ]] || fail "days late: $(cat "$folder/out")"
expect two ring 'taken|two/ring (1).c; not taken: two/ring.c (it came after the deadline)'
for bad in soon 2026-13-01 '2026-02-30 10:00' '2026-05-01 12:00 Mars/Olympus' '2026-05-01 12:00 Europe' '2026-05-01 12:00 tzdata.zi'; do
    grade DRY=1 DEADLINE="$bad"
    [[ $status -eq 2 ]] && grep -q 'is no date' "$folder/err" || fail "DEADLINE=$bad: status $status"
done
repository=$folder/repository
git init --quiet "$repository" && cp "$ring" "$repository/ring.c"
commit() { (cd "$repository" && git add -A && GIT_COMMITTER_DATE="$1" git -c user.name=x -c user.email=x@x commit --quiet -m x); }
commit '2026-05-01T10:00:00Z' && echo '// later' >>"$repository/ring.c" && commit '2026-05-09T10:00:00Z'
printf 'id,repository,ref\ng1,%s,\ng2,%s/nothing,\ng3,%s,no-such\n' "$repository" "$repository" "$repository" >"$roster"
dry SUBMISSIONS= ROSTER="$roster" DEADLINE='2026-05-02 UTC'
expect g1 ring 'taken|repository/ring.c; not taken: commits after the deadline: 1'
expect g2 ring 'not-fetched|*repository*'
expect g3 ring 'not-fetched|*no no-such*'
# ssh asks nothing, such as whether a host's key is right.
# shellcheck disable=SC2016 # the script's own
printf '#!/bin/sh\ncase "$*" in *BatchMode=yes*) echo "Host key verification failed." >&2 ;; esac\nexit 255\n' >"$folder/ssh" && chmod +x "$folder/ssh"
printf 'id,repository\ng1,ssh://nowhere.example/x.git\n' >"$roster"
dry SUBMISSIONS= ROSTER="$roster" GIT_SSH_COMMAND="$folder/ssh"
expect g1 ring 'not-fetched|Host key verification failed: *once by hand*'
# A team's repository may stand in any member's row.
printf 'id,repository,team\ng1,,a\ng2,%s/nothing,a\n' "$repository" >"$roster"
dry SUBMISSIONS= ROSTER="$roster"
expect g1 ring 'not-fetched|*repository*'

# ---- Grading: who has no mark, a team, points by hand, late, one again; four runs and a run that is killed.

fresh
mkdir "$inbox"/{ana,bo,cy,di,eve}
cp "$step" "$ring" "$inbox/ana/" && touch -d '2026-05-01 12:00 UTC' "$inbox"/ana/* && cp "$kit/steps/ring.c" "$inbox/bo/" && cp "$ring" "$inbox/bo/step_01.c"
{ cat "$ring" && echo '// mine'; } >"$inbox/cy/ring.c" && touch -d '2026-05-03 12:00 UTC' "$inbox/cy/ring.c"
rm -r "$inbox/eve" && echo x >"$inbox/eve.rar"
printf 'id,name,email,team\nana,Ana <A>,a@x.org,\nbo,Bo,b@x.org,red\ncy,Cy,c@x.org,blue\ndi,Di,d@x.org,blue\neve,Eve,e@x.org,\n' >"$roster"
grade ROSTER="$roster" DEADLINE='2026-05-02 12:00 UTC' PENALTY=10
[[ $status -eq 1 ]] || fail "a class with a submission that has no mark: status $status: $(cat "$folder/err")"
verdict() { awk -v id="$1" -v exercise="$2" '$1 == id && $2 == exercise { print $3, $4, $5; exit }' "$table"; }
is() { [[ $(verdict "$1" "$2") == "$3" ]] || fail "$1 $2: $(verdict "$1" "$2") is not $3"; }
touch_now() { awk -v id="$1" '$1 == id' "$table"; }
is cy ring 'passed 2.7 1' && is di ring 'passed 2.7 1' && is eve ring 'not-understood - 0' && is di 1 'missing 0 0'
touch_now bo | grep -q 'ring.*untouched' || fail "the untouched file is not named: $(touch_now bo)"
touch_now cy | grep -q 'the same as the solution; the same as ana' || fail "the same code is not named: $(touch_now cy)"
[[ $(find "$folder/grades/results" -name 'ring*.json' | wc -l) -eq 3 ]] || fail "a team was not graded once"
grep -q 'make check-ring SEED=' "$folder/grades/pages/bo.txt" && grep -q 'Ana &lt;A&gt; (ana)' "$folder/grades/pages/ana.html" ||
    fail "a page lacks the seed or the name"
! grep -rqF "$folder" "$folder/grades/pages" || fail "a page has a path of this machine: $(grep -rF "$folder" "$folder/grades/pages" | head -n 3)"
grep -q '^eve,Eve,e@x.org,,not-understood,,not-understood,,' "$folder/grades/grades.csv" || fail "grades.csv: $(cat "$folder/grades/grades.csv")"

cp "$table" "$folder/first"
rows() { awk '$2 ~ /^(1|ring)$/ { print $1, $2, $3, $4 }' "$1"; }
late_options=(ROSTER="$roster" DEADLINE='2026-05-02 12:00 UTC' PENALTY=10)
printf 'id;exercise;points;reason\nbo;ring;1,5;he showed it\n' >"$folder/hand.csv"
grade "${late_options[@]}" OVERRIDES="$folder/hand.csv"
is bo ring 'not-summed 1.5 '"$(verdict bo ring | cut -d ' ' -f 3)"
grep -q '0 to check' "$folder/out" || fail "something was graded again: $(cat "$folder/out")"
grep -q 'points changed by hand: he showed it' "$folder/grades/pages/bo.txt" || fail "a page does not say that points were changed by hand"
printf 'id,exercise,points\nnobody,ring,1\n' >"$folder/bad.csv"
grade "${late_options[@]}" OVERRIDES="$folder/bad.csv" && [[ $status -eq 2 ]] && grep -q 'no student "nobody"' "$folder/err" || fail "an override of nobody: status $status"
printf 'id,exercise,points\nana,rign,1\n' >"$folder/bad.csv"
grade "${late_options[@]}" OVERRIDES="$folder/bad.csv" && [[ $status -eq 2 ]] && grep -q 'no exercise "rign"' "$folder/err" || fail "an override of no exercise: status $status"
grade "${late_options[@]}" ONLY=ana
grep -q '2 to check' "$folder/out" || fail "ONLY=ana: $(cat "$folder/out")"
[[ $(rows "$table") == "$(rows "$folder/first" | sed '/^bo ring/s/0$/1.5/')" ]] || fail "ONLY changed others: $(diff "$folder/first" "$table")"
# Worksheets and grade books come back as they were, except for the marks.
printf '%sID;"Vollständiger Name";E-Mail-Adresse;Bewertung;Bestwertung;"Zuletzt geändert (Bewertung)";"Feedback als Kommentar"\r\n' "$bom" >"$folder/sheet.csv"
printf 'Teilnehmer/in%d;"%s";%s;%s;"100,00";-;%s\r\n' 11 'O_Ana, ""A""' a@x.org '' x 12 Bo b@x.org '7,00' y 13 Eve e@x.org '5,00' - 14 Zed z@x.org '-' =z >>"$folder/sheet.csv"
printf 'Student,ID,SIS User ID,SIS Login ID,Section,"Lab 3 (47)",Final\n"    Points Possible",,,,,4,(read only)\n"Ana, A",901,,ana,All,,-\n"Bo, B",902,,bo,All,EX,=1\n"Eve",903,,e@x.org,All,2,\n"Student, Test",999,,,All,,\n' >"$folder/canvas.csv"
grade "${late_options[@]}" WORKSHEET="$folder/sheet.csv" BOOK="$folder/canvas.csv" COLUMN='Lab 3 (47)'
sed 's/\r$//; s/^"*$//' "$folder/grades/moodle.csv" | tr '\n' ' ' | grep -qF "Teilnehmer/in11;\"O_Ana, \"\"A\"\"\";a@x.org;100,00;100,00;-;\"1: passed ring: passed\" " || fail "moodle.csv: $(cat "$folder/grades/moodle.csv")"
grep -q '^Teilnehmer/in13;Eve;e@x.org;5,00;100,00;-;' "$folder/grades/moodle.csv" || fail "who has no mark has another one than before: $(cat "$folder/grades/moodle.csv")"
grep -q '^Teilnehmer/in14;Zed;z@x.org;-;100,00;-;=z$' "$folder/grades/moodle.csv" || fail "a row of nobody's was changed: $(cat "$folder/grades/moodle.csv")"
[[ $(head -c 3 "$folder/grades/moodle.csv") == "$bom" ]] || fail "the byte order mark is gone"
diff <(sed 's/^"Ana, A",901,,ana,All,,/"Ana, A",901,,ana,All,4,/; s/"\([^",]*\)"/\1/g' "$folder/canvas.csv") "$folder/grades/canvas.csv" >"$folder/out" || fail "canvas.csv: $(cat "$folder/out")"
# The zip that Moodle takes: a part of the path is NAME_NUMBER_assignsubmission_file, without another _.
python3 -c 'import sys, zipfile; print("\n".join(zipfile.ZipFile(sys.argv[1]).namelist()))' "$folder/grades/feedback.zip" >"$folder/out" 2>&1
grep -qx 'O Ana, "A"_11_assignsubmission_file_/check.html' "$folder/out" && [[ $(wc -l <"$folder/out") -eq 3 ]] || fail "feedback.zip: $(cat "$folder/out")"
# Points by hand outlive the next run, and a table that another one replaces is kept.
is bo ring 'not-summed 1.5 '"$(verdict bo ring | cut -d ' ' -f 3)"
printf 'id;exercise;points;reason\nbo;ring;0,5;twice\n' >"$folder/hand.csv"
grade "${late_options[@]}" OVERRIDES="$folder/hand.csv"
grep -qs 'he showed it' "$folder"/grades/earlier/*/overrides.csv || fail "the overrides of before are not kept"
is bo ring 'not-summed 0.5 '"$(verdict bo ring | cut -d ' ' -f 3)"
# Another week, in the same folder.
grade "${late_options[@]}" EXERCISES=2
head -n 1 "$folder/grades/book.csv" | grep -q '^id,name,email,1,ring,2,points' || fail "book.csv: $(head -n 1 "$folder/grades/book.csv")"
grade "${late_options[@]}"

# A judge was corrected: here a verdict that the kit of before is said to have found.
sed -i 's/"verdict":[[:space:]]*"passed"/"verdict": "bits-differ"/' "$folder/grades/grades.json"
grade "${late_options[@]}"
grep -q 'ana  ring: passed, before: bits-differ' "$folder/out" || fail "changed verdicts are not listed: $(cat "$folder/out")"
grep -rq bits-differ "$folder/grades/earlier" || fail "the tables of before are not kept"
# What is changed by hand in the folder is kept, in each later run.
echo 'my words' >>"$folder/grades/pages/ana.txt" && echo mine >"$folder/grades/pages/notes.txt" && echo mine >"$folder/grades/mine.txt"
echo mine >"$folder/grades/submissions/ana/notes.txt"
grade "${late_options[@]}" && grade "${late_options[@]}"
grep -rq 'my words' "$folder/grades/earlier" && [[ -e $folder/grades/pages/notes.txt && -e $folder/grades/submissions/ana/notes.txt && -e $folder/grades/mine.txt ]] || fail "a file of the instructor's is gone"

# Without GRADES= the results are in the build folder.
mkdir "$folder/default" && ln -s "$(realpath "$build")"/{grades,check-step,hvdlab.o,compile-step} "$folder/default/"
grade BUILD="$folder/default" GRADES= EXERCISES=2 "${late_options[@]}"
[[ -e $folder/default/class/grades.json ]] || fail "no results without GRADES=: $(cat "$folder/err")"

# ---- What is asked for.
refused 'names no file with a secret' env BUILD="$build" SUBMISSIONS="$inbox" SECRET=hunter2-token common/scripts/grade.sh
! grep -q hunter2 "$folder/err" || fail "the secret is printed"
refused "'1' stands there twice" env BUILD="$build" SUBMISSIONS="$inbox" EXERCISES=1,1 common/scripts/grade.sh
refused 'lie one in the other' env BUILD="$build" SUBMISSIONS="$folder/grades/submissions" GRADES="$folder/grades" common/scripts/grade.sh
refused 'holds files that make grade did not write' env BUILD="$build" SUBMISSIONS="$folder" GRADES="$inbox" common/scripts/grade.sh
[[ ${1:-} != --some ]] || conclude

# The grader's own fault is no verdict.
broken=$folder/broken
mkdir "$broken" && ln -s "$(realpath "$build")"/{grades,check-step,hvdlab.o} "$broken/" && printf '#!/bin/sh\nexit 0\n' >"$broken/compile-step" # and it is no program
grade BUILD="$broken" GRADES="$folder/other" EXERCISES=1
awk '$1 == "ana" && $2 == 1 { print $3, $4 }' "$folder/other/table.txt" | grep -q '^not-graded -$' || fail "a fault of the grader's own: $(cat "$folder/other/table.txt" "$folder/err")"
grade GRADES="$folder/other" EXERCISES=1
awk '$1 == "ana" && $2 == 1 { print $3, $4 }' "$folder/other/table.txt" | grep -q '^passed 1$' || fail "what was not graded is not tried again: $(cat "$folder/other/table.txt")"
# A submission at which a check dies ends nobody else's grading.
dying=$folder/dying
mkdir "$dying" && ln -s "$(realpath "$build")"/{grades,hvdlab.o,compile-step} "$dying/"
# shellcheck disable=SC2016 # the script's own
printf '#!/bin/bash\n[[ $* != */ana/* ]] || kill -SEGV $$\nexec %s "$@"\n' "$(realpath "$build/check-step")" >"$dying/check-step" && chmod +x "$dying/check-step"
grade BUILD="$dying" GRADES="$folder/died" EXERCISES=1
died=$(awk '$2 == 1 { print $1, $3 }' "$folder/died/table.txt" | xargs)
[[ $died == *'ana not-graded bo '* && $died != *'bo not-graded'* && $status -eq 1 ]] ||
    fail "a check that dies: status $status: $(cat "$folder/died/table.txt" "$folder/err")"

# Four at once in one clone, and a run that was killed with its checks still going on.
undisturbed=$(rows "$folder/first")
for i in 1 2 3 4; do
    (env BUILD="$build" SUBMISSIONS="$inbox" EXERCISES=1,ring:3 GRADES="$folder/at-once-$i" "${late_options[@]}" common/scripts/grade.sh >"$folder/at-once-$i.out" 2>&1) &
done
sleep 2
env BUILD="$build" SUBMISSIONS="$inbox" EXERCISES=1,ring:3 GRADES="$folder/killed" "${late_options[@]}" common/scripts/grade.sh >/dev/null 2>&1 &
sleep 3
kill -9 $!
wait
env BUILD="$build" SUBMISSIONS="$inbox" EXERCISES=1,ring:3 GRADES="$folder/killed" "${late_options[@]}" common/scripts/grade.sh >"$folder/killed.out" 2>&1
for each in at-once-{1,2,3,4} killed; do
    found=$(rows "$folder/$each/table.txt")
    [[ $found == "$undisturbed" ]] || fail "$each: not the table of an undisturbed run: $(diff <(echo "$undisturbed") <(echo "$found")) $(cat "$folder/$each.out")"
done
conclude
