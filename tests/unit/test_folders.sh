#!/usr/bin/env bash
# Usage: tests/unit/test_folders.sh [--all]
#
# Nothing of a user's is removed or overwritten: each target that takes a folder or a file is given those of another
# user's file, the kit itself, its parent, the home folder, / and links, and all files are the same afterwards. In a copy
# of the kit with a home folder of its own. Variables of common names count on make's command line only. With --all
# more of them, and programs that train.

. tests/lib.sh
limit=200
for each in git unifdef unzip zip openssl; do
    command -v $each >/dev/null || skip "$each is not there"
done
[[ -x $build/grades && -x $build/page && -x $build/replay ]] || skip "make build/grades build/page build/replay first"
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD TO TRACE GRADES
built=$(realpath "$build")
home=$folder/home
kit=$home/desk/hvdlab
other=$home/thesis # another user's folder, as far as the kit is concerned
export HOME=$home TMPDIR=$folder/tmp
mkdir -p "$kit" "$other/text" "$folder/tmp" "$folder/bin"
echo 'a thesis' | tee "$other/text/thesis.tex" "$other/notes.txt" "$home/letter.txt" "$home/desk/plan.txt" >"$other/rank-0.jsonl"
ln -s "$other" "$home/link"
git ls-files -z | while IFS= read -r -d '' path; do
    [[ ! -f $path ]] || printf '%s\0' "$path"
done | xargs -0 cp -Pp --parents -t "$kit"
cd "$kit" || exit 1
commit() { git add --all && git -c user.name=x -c user.email=x commit --quiet --message "$1"; }
git init --quiet . && commit kit
# What is built, with its times, so that make finds it done.
mkdir build
cp -Rp "$built"/{common,settings.*,library.o,grades,page,replay} build/
cp -Rp build "$folder/built"

# Stand-ins where a program is missing, and no network.
if ! command -v pandoc >/dev/null; then
    printf '#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\ncat >"$2"\n' >"$folder/bin/pandoc"
fi
command -v chromium >/dev/null || printf '#!/bin/sh\nexit 1\n' >"$folder/bin/chromium"
if ! command -v po4a-translate >/dev/null; then
    printf '#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in -m) from=$2 ;; -l) to=$2 ;; esac; shift; done\ncp "$from" "$to"\n' >"$folder/bin/po4a-translate"
    cp "$folder/bin/po4a-translate" "$folder/bin/msgfmt"
fi
chmod +x "$folder"/bin/* 2>/dev/null
PATH=$folder/bin:$PATH

# All files and folders of the home, with hashes; those of the kit, which are many, with the time of their last change.
# Without a build, and git's index, which git refreshes.
listing()
{
    (
        cd "$home" || exit
        find . -path ./desk/hvdlab -prune -o -printf '%y %p %l\n' -type f -exec sha256sum {} +
        find desk/hvdlab \( -path desk/hvdlab/build -o -path desk/hvdlab/.git/index \) -prune -o \( -type d -printf '%p\n' \) -o -printf '%p %s %C@ %l\n'
    ) | sort
}

# kept WORDS COMMAND...: status 2, one line of the kit's with the words, and no file is changed, made or gone.
kept()
{
    listing >"$folder/before"
    run "${@:2}"
    listing | diff "$folder/before" - >"$folder/diff" || fail "${*:2}: files are not as they were: $(head -n 4 "$folder/diff")"
    [[ $status -eq 2 ]] || fail "status $status instead of 2: ${*:2}: $(cat "$folder/out" "$folder/err")"
    [[ $(grep -vc '^make: \*\*\*' "$folder/err") -eq 1 && $(cat "$folder/err") == *"$1"* ]] || fail "not one line with \"$1\": ${*:2}: $(cat "$folder/err")"
}

# lost_nothing COMMAND...: whatever comes of it, no file that was there is changed or gone.
lost_nothing()
{
    listing >"$folder/before"
    run "$@"
    listing | comm -23 "$folder/before" - >"$folder/diff"
    [[ ! -s $folder/diff ]] || fail "lost: $*: $(head -n 3 "$folder/diff")"
}

# ---- Folders that a target makes.

# made_twice COMMAND...: with TO it makes a folder, again, and in an empty one; not where a file is added or changed.
made_twice()
{
    local made=$home/made page
    succeeds env TO="$made" "$@"
    succeeds env TO="$made" "$@"
    echo mine >"$made/mine.txt"
    kept "$made/mine.txt" env TO="$made" "$@"
    rm "$made/mine.txt"
    page=$(cd "$made" && find . -name 'README*' | head -n 1)
    echo mine >>"$made/$page"
    kept "${page#./}" env TO="$made" "$@"
    rm -r "$made" && mkdir "$made"
    succeeds env TO="$made" "$@"
    rm -r "$made"
}
touch "$home/file"
for target in "print PDF=0" translate; do
    read -ra words <<<"$target"
    kept "$other holds files" make -s "${words[@]}" TO="$other"
    kept 'holds the kit' make -s "${words[@]}" TO=.
    kept 'holds the kit' make -s "${words[@]}" TO="$kit/"
    kept 'holds the kit' make -s "${words[@]}" TO=..
    kept 'holds' make -s "${words[@]}" TO="$home"
    kept 'is a link' make -s "${words[@]}" TO="$home/link"
    kept 'is a link' make -s "${words[@]}" TO="$home/link/"
    kept 'is no folder' make -s "${words[@]}" TO="$home/file"
    kept 'steps holds files' make -s "${words[@]}" TO=steps
done
cat >common/scripts/quick.sh <<'END'
set -euo pipefail
goal="make quick"
. common/scripts/folders.sh
trap 'rm -rf "$fresh"' EXIT
begin_folder "$TO"
mkdir "$fresh/a folder"
echo text | tee "$fresh/README.md" >"$fresh/a folder/b"
end_folder "$TO"
END
made_twice bash common/scripts/quick.sh
rm common/scripts/quick.sh
if [[ ${1:-} == --all ]]; then
    PDF=0 made_twice common/scripts/print.sh
    made_twice common/scripts/translate.sh
fi
# Left over in the environment.
lost_nothing env TO="$other" make -s release EXERCISES=1
[[ $status -eq 0 && -e build/release/hvdlab.git && ! -e $other/hvdlab.git ]] || fail "TO of the environment: $(cat "$folder/err")"
[[ -z $(find "$home" -name '.hvdlab-*') ]] || fail "left over: $(find "$home" -name '.hvdlab-*')"
kept 'was not made by the kit' env FROM="$other" TO="$other" common/scripts/translate.sh
for to in "$other" . .. "$home" "$home/link"; do
    kept 'make gpu-pack: ' env TO="$to" common/scripts/gpu_pack.sh
done

# ---- Files that a target makes.

succeeds make -s gradescope EXERCISES=ring TO="$home/grader.zip"
succeeds make -s gradescope EXERCISES=ring,save TO="$home/grader.zip"
(cd "$home" && zip -q mine.zip letter.txt && cp grader.zip more.zip && zip -q more.zip letter.txt)
for to in "$home/letter.txt" "$home/mine.zip" "$home/more.zip" "$other" . "$home/link" Makefile; do
    kept 'make gradescope: ' make -s gradescope EXERCISES=ring TO="$to"
done
kept 'SECRET does not name a file' make -s gradescope EXERCISES=ring SECRET=hunter2-token TO="$home/grader.zip"
! grep -q hunter2 "$folder/err" || fail "the secret is shown"

mkdir "$folder/trace"
printf '{"event":"start","t":1,"program":"p","pid":1,"rank":0,"size":1,"local_rank":0,"local_size":1,"node":0,"nodes":1}\n{"event":"end","t":2,"status":0,"lost":0}\n' >"$folder/trace/rank-0.jsonl"
page=build/page
cp -R "$folder/trace" "$folder/my trace(2)"
succeeds make -s page TRACE="$folder/my trace(2)" TO="$home/it's a run.html"
[[ -s "$home/it's a run.html" ]] || fail "make page, with a name of several words: $(cat "$folder/out")"
succeeds $page "$folder/trace" "$home/run.html"
echo mine >"$home/run.html.new"
succeeds $page "$folder/trace" "$home/run.html"
[[ $(<"$home/run.html.new") == mine ]] || fail "a user's run.html.new is overwritten"
for to in "$home/letter.txt" Makefile common/tools/page.html; do
    [[ $to != *.html ]] || sed -i 's/A run of/A/' "$to" # so that it is not known by its title
    kept 'was not written by' $page "$folder/trace" "$to"
    [[ $to != *.html ]] || sed -i 's/<title>A /<title>A run of /' "$to"
done
for trace in "$other" . .. "$home" "$home/link" /; do
    lost_nothing $page "$trace" "$home/run2.html"
done
case=tests/golden/cases/mlp_sgd.safetensors
succeeds build/replay $case --out "$home/out.safetensors"
succeeds build/replay $case --out "$home/out.safetensors"
kept 'was not written by' build/replay $case --out $case
kept 'was not written by' build/replay $case --save "$home/letter.txt"
kept 'was not written by' env HVDLAB_TRACE="$other" build/replay $case
for to in "$other" . .. "$home" "$home/link"; do
    # Nothing can be fetched from there.
    lost_nothing make -s data DATA_DIR="$to" FASHION_MNIST_URL="file://$folder/nowhere"
    [[ $status -eq 2 && -z $(find "$home" -name '.part*') ]] || fail "make data, from nowhere: status $status"
done
mkdir "$home/images"
echo mine >"$home/images/train-images-idx3-ubyte.gz"
lost_nothing make -s data DATA_DIR="$home/images" FASHION_MNIST_URL="file://$folder/nowhere"

# ---- A release: whatever else lies in its folder stays, and one that fails has written nothing.

printf "id,name\nana,Ana\no'brien,Bo\n" >"$home/class.csv"
echo secret >"$home/secret"
course=$home/course
class=(STUDENTS="$home/class.csv" SECRET="$home/secret")
for to in . .. "$home" "$home/link" "$home/file"; do
    kept 'make release: ' make -s release EXERCISES=1 TO="$to"
done
kept 'need SECRET=' make -s release EXERCISES=1 TO="$course" STUDENTS="$home/class.csv"
kept 'need SECRET=' make -s release EXERCISES=1 TO="$course" STUDENTS="$home/class.csv" SECRET=hunter2-token
! grep -q hunter2 "$folder/err" || fail "the secret is shown"
kept 'is no file' make -s release EXERCISES=1 TO="$course" STUDENTS="$home/nobody.csv" SECRET="$home/secret"
printf 'id\nana\nana\n' >"$home/twice.csv"
lost_nothing env TO="$course" STUDENTS="$home/twice.csv" SECRET="$home/secret" EXERCISES=1 common/scripts/release.sh
[[ $status -eq 2 && ! -e $course ]] || fail "a roster with a student twice: status $status"
mkdir -p "$course/hvdlab"
echo mine >"$course/hvdlab/trial.txt"
release() { lost_nothing env TO="$course" "$@" common/scripts/release.sh; [[ $status -eq 0 ]] || fail "release: $(cat "$folder/err")"; }
release EXERCISES=1 "${class[@]}"
[[ -s $course/students/ana.tar.gz && -s $course/students/o%27brien.tar.gz ]] || fail "students: $(ls "$course/students")"
tar -xOf "$course/students/o%27brien.tar.gz" hvdlab/stamp.txt | grep -q "for o'brien\." || fail "no stamp of o'brien"
first=$(git -C "$course/hvdlab.git" rev-parse HEAD)
succeeds env TO="$course" EXERCISES="1 2" GIT_DIR="$folder/nowhere" GIT_INDEX_FILE="$folder/index" common/scripts/release.sh
[[ $(git -C "$course/hvdlab.git" rev-parse HEAD~1) == "$first" && $(cat "$course/hvdlab/trial.txt") == mine ]] || fail "a second release"
echo more >>"$course/hvdlab.tar.gz"
kept 'hvdlab.tar.gz' make -s release EXERCISES=1 TO="$course"
rm "$course/hvdlab.tar.gz"
echo mine >"$course/students/ana.tar.gz"
kept 'ana.tar.gz' env TO="$course" EXERCISES=1 "${class[@]}" common/scripts/release.sh
mkdir "$home/second"
git clone --quiet --bare . "$home/second/hvdlab.git"
kept 'no repository of releases' make -s release EXERCISES=1 TO="$home/second"
rm -rf "$home/second/hvdlab.git" && ln -s "$course/hvdlab.git" "$home/second/hvdlab.git"
kept 'no repository of releases' make -s release EXERCISES=1 TO="$home/second"
# In a clone of another user's.
if [[ $(id -u) -eq 0 ]]; then
    chown 12345 . .git
    kept 'git config --global --add safe.directory' env -u SUDO_UID make -s release EXERCISES=1 TO="$home/third"
    chown 0 . .git
fi

# ---- Build folders.

mkdir -p "$home/proj/src"
echo code >"$home/proj/src/main.c"
for to in "$home/proj" "$other" . .. "$home" "$home/link"; do
    kept "$to holds" make -s clean BUILD="$to"
    kept "$to holds" env BUILD="$to" make -s hint-1
done
# Into which an older kit has built.
mkdir "$home/proj/common"
touch "$home/proj/settings.compile" "$home/proj/common/x.o"
kept 'src/main.c' make -s clean BUILD="$home/proj"
rm -rf build && cp -Rp "$folder/built" build
mkdir -p build/saved build/check/ring.run build/class build/cut/steps
cp "$folder/trace/rank-0.jsonl" build/saved/
cp "$home/out.safetensors" build/saved/
echo '{}' >build/class/grades.json
echo mine >build/saved/mine.txt
run make -s clean
[[ $status -eq 2 && -e build/page && -e build/saved/mine.txt ]] && grep -q 'build/saved/mine.txt' "$folder/err" || fail "make clean, with a file of a user's: $(cat "$folder/err")"
rm build/saved/mine.txt
# Names that the kit gives elsewhere, and files in folders of its own.
mkdir -p build/carried build/graded build/hints build/sub/print build/tests/steps/diagnoses build/emulated build/traces
touch build/emulated/settings.compile
echo '# Made by make print, which' >build/sub/print/.made-by-hvdlab
for name in notes.log report.out plot.png data.dat run.err mine.svg bench-mine.json settings.txt check/essay.txt check/mine.json check/mine.c graded/essay.txt \
    carried/mine.c hints/essay cut/steps/mine.c saved/notes.log traces/notes.log own.o emulated/notes.log sub/print/essay.txt; do
    echo mine >"build/$name"
    run make -s clean
    [[ $status -eq 2 && -s build/$name && -e build/page ]] && grep -qF "build/$name was not made by the kit: move it away first" "$folder/err" ||
        fail "make clean, with $name of a user's: status $status: $(cat "$folder/err")"
    rm -f "build/$name"
done
rm -r build/sub
# What it gives itself.
mkdir -p build/graded/1-abcdef build/pictures
echo '<svg class="build-evaluate">' >build/pictures/image-1.svg
for name in graded/1-abcdef/files graded/1-abcdef/1.txt check/step_01.c graded/ring.c carried/step_02.c hints/step_01 check/lock cut/steps/ring.c tests/steps/diagnoses/judge_ring.h demo.log \
    sweep-2.dat sweep.svg many_nodes-42.out emulated/library.o; do
    echo kit >"build/$name"
done
echo '{ "diagnosis": null }' | tee build/check/step_01.json >build/graded/ring.json
succeeds make -s clean
[[ $(ls build) == class && -s build/class/grades.json ]] || fail "make clean leaves: $(ls build)"
rm -r build/class
succeeds make -s clean
[[ ! -e build ]] || fail "make clean leaves: $(ls -A build)"
succeeds make -s clean
succeeds make -s hint-1
succeeds make -s clean
[[ ! -e build ]] || fail "make clean, after a hint: $(ls -A build)"
cp -Rp "$folder/built" build

# A solution that was edited, and a step, are not cut again.
echo '// mine' >>solutions/ring.c
kept 'solutions/ring.c' make -s steps
git checkout --quiet solutions/ring.c

# ---- Common names: in the environment they mean nothing, on the command line all.

run env NP=7 make -s -n step-1
printf '#!/bin/sh\nenv >"$ENVIRONMENT"\n' >common/scripts/help.sh
names=(TO FILE NP SEED HINTS STUDENTS TRACE NAME TEXTS PART LAB HOSTS RATE DELAY PDF V YES BOOK COLUMN SUBMISSIONS ROSTER EXERCISES
    GRADES SECRET ONLY DRY DEADLINE PENALTY OVERRIDES TEAM WORKFLOW WORKSHEET MEASURED RESET GIT_DIR GIT_INDEX_FILE)
export ENVIRONMENT=$folder/environment
succeeds env "${names[@]/%/=from-outside}" make -s help
! grep from-outside "$ENVIRONMENT" || fail "these come from the environment"
succeeds env -u TO make -s help "${names[@]/%/=typed}"
for name in "${names[@]}"; do
    grep -qx "$name=typed" "$ENVIRONMENT" || fail "$name of the command line is lost"
done
git checkout --quiet common/scripts/help.sh

# ---- Submissions of a class.

if grep -q folders.sh common/scripts/grade.sh; then
    mkdir -p "$home/fall/submissions/ann/steps"
    cp steps/ring.c "$home/fall/submissions/ann/steps/"
    grade() { lost_nothing env SUBMISSIONS="$1" GRADES="$2" EXERCISES=ring "$kit/common/scripts/grade.sh"; [[ $status -eq 2 ]] || fail "make grade, GRADES=$2: status $status"; }
    grade "$home/fall/submissions" "$home/fall"
    grade "$home/fall/submissions" "$home/fall/submissions"
    grade "$home/fall/submissions" "$home/fall/submissions/ann"
    for to in "$other" . .. "$home" "$home/link"; do
        grade "$home/fall/submissions" "$to"
        lost_nothing env SUBMISSIONS="$to" GRADES="$home/grades" EXERCISES=ring common/scripts/grade.sh
    done
else
    echo "not tried: make grade (grade.sh does not use folders.sh)"
fi

# ---- The root of all files, where nothing can be written to but a folder for temporary files.

sealed=(bwrap --ro-bind / / --dev /dev --bind "$folder/tmp" "$folder/tmp" --bind "$kit/build" "$kit/build" --chdir "$kit")
if "${sealed[@]}" true 2>/dev/null; then
    for target in "print PDF=0" translate "release EXERCISES=1" "gradescope EXERCISES=ring" "clean BUILD=/"; do
        read -ra words <<<"$target"
        kept "/ " "${sealed[@]}" make -s "${words[@]}" TO=/
    done
    kept 'holds the kit' "${sealed[@]}" env TO=/ common/scripts/gpu_pack.sh
    kept 'holds the kit' "${sealed[@]}" make -s step-1 BUILD=/
else
    echo "not tried: / (bwrap does not work here)"
fi

# ---- Programs that train.

if [[ ${1:-} == --all && -x $built/cnn && -x $built/solution_06 ]]; then
    flags=(--data synthetic --images 32 --epochs 1)
    for to in "$other" . .. "$home" "$home/link"; do
        lost_nothing "$built/solution_06" --width 1 "${flags[@]}" --log-dir "$to"
        lost_nothing "$built/cnn" "${flags[@]}" --log-dir "$folder/logs" --checkpoint-dir "$to"
    done
    HVD_TIMELINE=$home/letter.txt lost_nothing "$built/solution_06" --width 1 "${flags[@]}" --log-dir "$folder/logs"
    [[ $status -eq 2 ]] && grep -q 'letter.txt is there' "$folder/err" || fail "HVD_TIMELINE: status $status: $(cat "$folder/err")"
    mkdir "$home/models"
    for name in best ckpt-1 ckpt-7; do
        cp $case "$home/models/$name.safetensors"
        kept 'models' "$built/cnn" "${flags[@]}" --log-dir "$folder/logs" --checkpoint-dir "$home/models"
        rm "$home/models/$name.safetensors"
    done
fi
# In another repository, which knows none of the kit's files: no empty release, and no commit there.
mv .git "$folder/kits-own.git"
(cd "$home" && git init --quiet . && git -c user.name=x -c user.email=x commit --quiet --allow-empty --message other)
kept 'another one' env TO="$home/new" EXERCISES=1 common/scripts/release.sh
kept 'another one' env TO="$home/new.zip" EXERCISES=1 common/scripts/gradescope.sh
kept 'another one' common/scripts/update.sh
kept 'another one' make -s dist
# A folder of builds, as make fuzz leaves it, is one to build in; with another file it is not.
mkdir -p "$folder/only/fuzz" && : >"$folder/only/fuzz/settings.compile"
taken() { (BUILD=$folder/only && . common/scripts/folders.sh && need_build) 2>"$folder/err"; }
taken || fail "a folder of builds: $(cat "$folder/err")"
: >"$folder/only/mine"
! taken || fail "a folder with a file of a user's is one to build in"
conclude
