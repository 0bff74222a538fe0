#!/usr/bin/env bash
# Usage: tests/steps/test_release.sh [--all]
#
# The students' package: it is the same in two builds; it shows no answer; checks run in it, where neither the
# kit nor its history is in sight; and make update takes a new release without losing what a student wrote. With --all
# every exercise is tried in it, else two.

. tests/lib.sh
limit=600
for each in git openssl unifdef; do
    command -v $each >/dev/null || skip "$each is not there"
done
git rev-parse HEAD >/dev/null 2>&1 || skip "this is no clone: make release takes what git knows"
[[ -x $build/grades ]] || skip "make build/grades first"
unset MAKEFLAGS MFLAGS MAKELEVEL
release() { succeeds env "$@" BUILD="$build" common/scripts/release.sh; }

# ---- Twice the same; nothing that is not meant to be there.

refused "no exercise 'r.ng'" env BUILD="$build" TO="$folder/one" EXERCISES=r.ng common/scripts/release.sh
refused 'stands there twice' env BUILD="$build" TO="$folder/one" EXERCISES=ring,ring common/scripts/release.sh
echo course-secret >"$folder/secret"
printf 'id,name\nana,Ana\nbo,Bo\n' >"$folder/class.csv"
release TO="$folder/one" HINTS=2 STUDENTS="$folder/class.csv" SECRET="$folder/secret" EXERCISES="1 gather ring shard save"
release TO="$folder/two" HINTS=2 STUDENTS="$folder/class.csv" SECRET="$folder/secret" EXERCISES="1 gather ring shard save"
for each in hvdlab.tar.gz students/ana.tar.gz; do
    cmp -s "$folder/one/$each" "$folder/two/$each" || fail "$each differs between two builds"
done
[[ $(git -C "$folder/one/hvdlab.git" rev-parse HEAD) == $(git -C "$folder/two/hvdlab.git" rev-parse HEAD) ]] || fail "the repositories differ"
! cmp -s "$folder/one/students/ana.tar.gz" "$folder/one/students/bo.tar.gz" || fail "two students have one stamp"
tar -xOf "$folder/one/students/ana.tar.gz" hvdlab/stamp.txt | grep -q '^seed for profile and diagnose: [1-9]' || fail "no stamp"

mkdir "$folder/package"
tar -C "$folder/package" --strip-components=1 -xf "$folder/one/hvdlab.tar.gz"
cd "$folder/package" || exit 1
[[ -z $(find . -path ./solutions -o -name '*.patch' -o -name master.c -o -name ring.c -path '*labs*' -o -name PROMISES.md) ]] || fail "the package has what it must not have"
[[ -f labs/01-baseline/handout.md ]] || fail "lab 1 is not there"
! grep -rn '<summary>\(Answer\|Solution\)\|<!-- \|^This hint is not' README.md labs || fail "something was not cut"
{ grep -q 'ask' labs/03-allreduce/hints/ring.md && ! grep -q 'MPI_Sendrecv(values + begin\[out\]' labs/03-allreduce/hints/ring.md; } || fail "the third hint is there"
[[ $(common/scripts/labs.sh table | cut -d ' ' -f 1 | xargs) == "1 gather ring shard save" ]] || fail "not the exercises that were asked for: $(common/scripts/labs.sh table)"
# No line that the solution of a later exercise adds, except lines that any program has.
cd - >/dev/null || exit 1
for file in gather ring shard save; do
    diff "steps/$file.c" "solutions/$file.c" | sed -n 's/^> *//p' | grep -v '^//' | awk 'length($0) >= 30' |
        grep -v '^for (\(int\|size_t\) [a-z] = 0; [a-z] < [a-z]*; [a-z]++)' |
        grep -vxFf <(sed 's/^ *//' "steps/$file.c") >"$folder/lines"
    find "$folder/package" -type f \( -name '*.[ch]' -o -name '*.md' \) -exec sed 's/^ *//' {} + | grep -xFf "$folder/lines" >"$folder/found"
    [[ ! -s $folder/found ]] || fail "the package has lines of solutions/$file.c: $(cat "$folder/found")"
done

# With translated texts the same is cut; hints, diagnoses and `make progress` speak that language.
if command -v po4a-translate >/dev/null; then
    release TO="$folder/chinese" TEXTS=zh_CN EXERCISES="1 ring"
    mkdir "$folder/translated"
    tar -C "$folder/translated" --strip-components=1 -xf "$folder/chinese/hvdlab.tar.gz"
    grep -q '^## 步骤 1' "$folder/translated/labs/02-six-steps/handout.md" || fail "the handout is not translated"
    ! grep -rnE '<summary>(答案|参考答案)|<!-- |device_use\(hvd_local_rank' "$folder/translated/README.md" "$folder/translated"/labs/0[1-3]*/handout.md ||
        fail "something was not cut from the translated texts"
    grep -q '^画三个' "$folder/translated/labs/03-allreduce/hints/ring.md" || fail "the hints are not translated"
    grep -q '^缺少 hvd_init()' "$folder/translated/tests/steps/diagnoses/judge_step_01.txt" || fail "the diagnoses are not translated"
    make -s -C "$folder/translated" progress >"$folder/out"
    grep -q '^\* ring  绕环的全归约  *未修改' "$folder/out" && grep -q '^下一步：编辑 steps/step_01.c' "$folder/out" ||
        fail "make progress is not translated: $(cat "$folder/out")"
fi

# What ends where nothing began, or does not end, is an error.
for text in '<!-- cut -->' '<!-- /cut -->' '<!-- with: ring -->' '<!-- /with -->' '<!-- /after -->' '<!-- measured -->' '<details><summary>Answer</summary>' '</details>' '<!-- check: x'; do
    printf 'a\n%s\nb\n' "$text" >"$folder/odd.md"
    ! awk -f common/scripts/cut.awk "$folder/odd.md" >/dev/null 2>&1 || fail "cut.awk takes: $text"
done

# ---- In the package.

all=(1 ring)
if [[ ${1:-} == --all ]]; then
    release TO="$folder/whole"
    rm -rf "$folder/package" && mkdir "$folder/package"
    tar -C "$folder/package" --strip-components=1 -xf "$folder/whole/hvdlab.tar.gz"
    mapfile -t all < <(common/scripts/labs.sh table | cut -d ' ' -f 1)
fi
table=$(common/scripts/labs.sh table)
common/scripts/steps.sh cut "$folder/cut" || exit 1
kit=$PWD
# Objects that are the same need not be made again. (A test of the kit's Makefile with nothing built is test_fresh's.)
mkdir "$folder/package/build"
cp "$build"/settings.* "$folder/package/build/" && cp -R "$build"/common "$build"/tests "$folder/package/build/"
cd "$folder/package" || exit 1
unset BUILD
# The kit is out of sight, where the system can do that.
hidden=()
! bwrap --ro-bind / / --dev-bind /dev /dev true 2>/dev/null ||
    hidden=(bwrap --bind / / --dev-bind /dev /dev --tmpfs "$kit" --bind "$folder" "$folder" --chdir "$folder/package")
succeeds "${hidden[@]}" make -s build/check-step build/compile-step build/baseline
for name in "${all[@]}"; do
    file=$(awk -v name="$name" '$1 == name { print $2 }' <<<"$table")
    run "${hidden[@]}" make -s "check-$name"
    { [[ $status -ne 0 ]] && grep -q ': failed: ' "$folder/out"; } || fail "$name, untouched: $(tail -n 3 "$folder/out" "$folder/err")"
    cp "$folder/cut/solutions/$file.c" steps/
    succeeds "${hidden[@]}" make -s "check-$name"
    succeeds "${hidden[@]}" make -s "reset-$name" YES=1
    cmp -s "steps/$file.c" "$folder/cut/steps/$file.c" || fail "$name: reset brings back another file"
done
refused 'ask your instructor' "${hidden[@]}" common/scripts/student.sh diff 1
succeeds make -s help
succeeds make -s progress
cd "$kit" || exit 1

# ---- A second release, and three students' histories.

# A changed kit, as a repository of its own.
git clone --quiet . "$folder/kit"
cp -p "$build/grades" "$folder/grades"
course=$folder/course
(cd "$folder/kit" && BUILD=$kit/$build TO=$course EXERCISES="1 ring" common/scripts/release.sh) >"$folder/out" 2>&1 || fail "$(cat "$folder/out")"
for student in a b c; do
    git clone --quiet "$course/hvdlab.git" "$folder/$student"
done
a=$folder/a b=$folder/b c=$folder/c d=$folder/d
mkdir "$d" && tar -C "$d" --strip-components=1 -xf "$course/hvdlab.tar.gz"
sed -i 's/^    train_lenet.*/    train_lenet(\&args); \/\/ b/' "$d/steps/ring.c"
sed -i 's/^static void ring(/\/\/ By a.\n&/' "$a/steps/ring.c" # above; the course changes the end
echo 'note of a' >"$a/notes.txt"
sed -i 's/^    train_lenet.*/    train_lenet(\&args); \/\/ b/' "$b/steps/ring.c" # the same line
git -C "$b" -c user.name=b -c user.email=b commit --quiet --all -m mine
rm "$c/labs/03-allreduce/handout.md"
echo mine >"$c/labs/errata.md"
(
    cd "$folder/kit" || exit 1
    sed -i 's/^    train_lenet(&args);/    train_lenet(\&args); \/\/ corrected/' labs/03-allreduce/ring.c
    echo 'A correction.' >>labs/03-allreduce/handout.md
    echo '// Not released.' >>steps/ring.c
    echo 'Errata.' >labs/errata.md
    git add -A
    git -c user.name=x -c user.email=x commit --quiet -m corrected
    BUILD=$kit/$build TO=$course EXERCISES="1 ring" common/scripts/release.sh
) >"$folder/out" 2>&1 || fail "$(cat "$folder/out")"
grep -q 'note: steps/ring.c was edited.* labs/03-allreduce/ring.c' "$folder/out" || fail "nothing is said of an edited step: $(cat "$folder/out")"
[[ $(git -C "$course/hvdlab.git" rev-list --count HEAD) -eq 2 ]] || fail "a second release is no second commit"
# One that fails commits nothing.
(
    cd "$folder/kit" || exit 1
    echo '<!-- cut -->' >>labs/03-allreduce/handout.md
    ! BUILD=$kit/$build TO=$course EXERCISES="1 ring" common/scripts/release.sh >"$folder/out" 2>&1 && grep -q 'not cut' "$folder/out"
) || fail "a marker that does not end: $(cat "$folder/out")"
[[ $(git -C "$course/hvdlab.git" rev-list --count HEAD) -eq 2 ]] || fail "a release that failed was committed"
for student in a b c; do
    run make -s -C "$folder/$student" update
    [[ $status -eq 0 ]] || fail "$student: make update: $(cat "$folder/out" "$folder/err")"
    tail -n 1 "$folder/$student/labs/03-allreduce/handout.md" | grep -q 'A correction' || fail "$student: a file that was not edited is not taken"
    [[ -z $(git -C "$folder/$student" status --porcelain --untracked-files=no) ]] || fail "$student: something is left open"
    cp "$folder/out" "$folder/$student.update"
done
grep -q '^make update: steps/ring.c: in 1 place yours stays' "$b.update" || fail "b: nothing says that the correction did not come in: $(cat "$b.update")"
! grep -q 'yours stays' "$a.update" "$c.update" || fail "a or c: something says that lines did not come in"
{ grep -q 'By a' "$a/steps/ring.c" && grep -q '// corrected' "$a/steps/ring.c"; } || fail "a: other lines are not merged"
grep -q 'note of a' "$a/notes.txt" || fail "a: a file of the student's own is gone"
{ grep -q '// b' "$b/steps/ring.c" && ! grep -q '// corrected' "$b/steps/ring.c"; } || fail "b: in the same line the student's does not stay"
{ grep -q 'Errata' "$c/labs/errata.md" && grep -qx mine "$c"/labs/errata.md.mine-*; } || fail "c: a file that was in the way: $(ls "$c/labs")"
# A folder that came as an archive becomes a clone, at the release that it came from.
run make -s -C "$d" update
{ [[ $status -ne 0 ]] && grep -q 'FROM=URL' "$folder/err"; } || fail "d: no clone: $(cat "$folder/err")"
run make -s -C "$d" update FROM="$folder/nowhere"
[[ $status -ne 0 && ! -e $d/.git ]] || fail "d: a repository that is not there"
run make -s -C "$d" update FROM="$course/hvdlab.git"
{ [[ $status -eq 0 ]] && grep -q 'steps/ring.c: in 1 place yours stays' "$folder/out" && grep -q 'Errata' "$d/labs/errata.md" && grep -q '// b' "$d/steps/ring.c"; } ||
    fail "d: make update FROM=: $(cat "$folder/out" "$folder/err")"
run make -s -C "$a" update
grep -q 'nothing new' "$folder/out" || fail "once more: $(cat "$folder/out")"
conclude
