#!/usr/bin/env bash
# Usage: tests/steps/test_package.sh
#
# What the students' package says is true there, whichever exercises are released: every program, target, file and link that a
# text names exists; make help lists what works; no file shows a later exercise's answer, except those that
# shown.txt lists. (test_handouts.sh --package runs the commands.)

. tests/lib.sh
limit=600
for each in git unifdef; do
    command -v $each >/dev/null || skip "$each is not there"
done
git rev-parse HEAD >/dev/null 2>&1 || skip "this is no clone: make release takes what git knows"
unset MAKEFLAGS MFLAGS MAKELEVEL
kit=$PWD
tools=$(basename -s .c common/tools/*.c)
hidden=$(common/scripts/help.sh Makefile kit | xargs)

# release NAME EXERCISES [SETTING...]: as $folder/NAME.
release()
{
    succeeds env TO="$folder/releases" EXERCISES="$2" "${@:3}" BUILD="$build" common/scripts/release.sh
    mkdir "$folder/$1"
    tar -C "$folder/$1" --strip-components=1 -xf "$folder/releases/hvdlab.tar.gz"
}

# ---- What texts name.

# The name that a link to a heading uses.
anchors() { sed -n 's/^##* //p; s/^<a id="\(.*\)"><\/a>$/\1/p' "$1" | tr '[:upper:] ' '[:lower:]-' | tr -cd 'a-z0-9_\n-'; }

check_link() # FROM TARGET
{
    local file=${2%%#*} anchor=
    [[ $2 != *'#'* ]] || anchor=${2#*#}
    [[ $2 != http*://* ]] || return
    file=${file:+$(dirname "$1")/$file}
    file=${file:-$1}
    [[ -e $file ]] || fail "$place: no file for the link $2"
    [[ -z $anchor ]] || anchors "$file" | grep -qxF -e "$anchor" || fail "$place: no heading for the link $2"
}

# Those of an exercise are known by its name; make says of all others at once which have no rule.
check_targets()
{
    local target named=() names
    names=$(common/scripts/labs.sh table | cut -d ' ' -f 1)
    while read -r target; do
        case $target in
        step-* | check-* | hint-* | reset-*)
            [[ $target == check-all ]] || grep -qxF -e "${target#*-}" <<<"$names" || fail "$package: a text names make $target"
            ;;
        diff-* | solution-*) fail "$package: a text names make $target" ;;
        *)
            [[ " $hidden " != *" $target "* ]] || fail "$package: a text names make $target"
            named+=("$target")
            ;;
        esac
    done
    run make -n -k "${named[@]}"
    ! grep -q -e 'No rule' -e '^make: \*\*\*' -e 'Makefile:' "$folder/err" || fail "$package: $(grep -e 'No rule' -e '\*\*\*' "$folder/err")"
}

# What make builds in the kit; a file of another name is a run's.
is_program()
{
    [[ -e $kit/solutions/$1.c || $1 == solution_* || $1 =~ ^(replay|bench|check-step|compile-step|grades|baseline)$ ]] ||
        grep -qxF -e "$1" <<<"$tools" || compgen -G "$kit/labs/*/$1.c" >/dev/null
}

read_texts()
{
    local kind words
    find README.md labs -name '*.md' | sort | xargs awk -v exercise="$(common/scripts/labs.sh table | head -n 1 | cut -d ' ' -f 1)" \
        -f "$kit/tests/steps/named.awk" | sort -u >"$folder/named"
    while read -r place kind words; do
        case $kind in
        link) check_link "${place%:*}" "$words" ;;
        path) compgen -G "$words" >/dev/null || fail "$package: $place names $words" ;;
        esac
    done <"$folder/named"
    {
        sed -n 's/^[^ ]* make //p' "$folder/named"
        sed -n 's/^[^ ]* program build\///p' "$folder/named" | sort -u | while read -r words; do
            ! is_program "$words" || echo "build/$words"
        done
    } | sort -u | check_targets < <(cat)
}

# look_at NAME: at a package.
look_at()
{
    local target
    package=$1
    cd "$folder/$1" || exit 1
    for target in $hidden; do
        # (steps.sh also knows which steps were edited.)
        [[ $target == steps || ! -e common/scripts/${target//-/_}.sh ]] || fail "$package: it has the script of make $target, which it lacks"
    done
    read_texts
    ! grep -rlE '<summary>(Answer|Solution|答案|参考答案)|<!-- |SOLUTIONS=1|CONTAINER=' README.md labs || fail "$package: something was not cut"
    succeeds make help
    sed -n 's/^  make \([^ ]*\) .*/\1/p' "$folder/out" | sed "s/-X$/-$(common/scripts/labs.sh table | head -n 1 | cut -d ' ' -f 1)/" | sort -u >"$folder/listed"
    check_targets <"$folder/listed"
    cd "$kit" || exit 1
}

release first "1 2"
release middle "1 2 3 4 5 6 ring shard worker"
release late "1 2 3 4 5 6 bounded" MEASURED=cut HINTS=0
release whole "" RELEASE_SHOWN="$folder/shown"
for each in first middle late whole; do
    look_at $each
done
if command -v po4a-translate >/dev/null; then
    release chinese "1 2 server" TEXTS=zh_CN
    look_at chinese
fi

# A forge's file has the checks that this release has.
release github "1 2 ring" WORKFLOW=github HINTS=0
release gitlab "1 2" WORKFLOW=gitlab HINTS=0
file=$folder/github/.github/workflows/checks.yml
[[ $(sed -n 's/^ *- run: make check-//p' "$file" | tr '\n' ' ') == "1 2 ring " ]] || fail "WORKFLOW=github: $(cat "$file")"
grep -q '^    - make check-all$' "$folder/gitlab/.gitlab-ci.yml" || fail "WORKFLOW=gitlab: $(cat "$folder/gitlab/.gitlab-ci.yml")"
[[ -z $(find "$folder/first" -name '*.yml') ]] || fail "a forge's file that nobody has asked for"
if python3 -c 'import yaml' 2>/dev/null; then
    python3 -c 'import sys, yaml; [yaml.safe_load(open(f))["checks" if "gitlab" in f else "jobs"] for f in sys.argv[1:]]' \
        "$file" "$folder/gitlab/.gitlab-ci.yml" || fail "a forge's file is no YAML"
fi
run make -s release TO="$folder/refused" WORKFLOW=jenkins
[[ $status -eq 2 && ! -e $folder/refused ]] || fail "WORKFLOW=jenkins: status $status, $(cat "$folder/err")"

# What a section needs comes along, and what belongs to others does not.
cd "$folder" || exit 1
[[ ! -e first/labs/03-allreduce/handout.md && -e first/labs/02-six-steps/figures/ranks.svg ]] || fail "the first release's labs"
[[ $(grep -c '^## Step' first/labs/02-six-steps/handout.md) -eq 2 ]] || fail "the first release's sections: $(grep '^## ' first/labs/02-six-steps/handout.md)"
[[ $(grep -cE '^## (gather|ring|around|fast_ring):' middle/labs/03-allreduce/handout.md) -eq 1 ]] || fail "lab 3 is not cut by exercise"
tail -n 1 middle/labs/03-allreduce/handout.md | grep -q '^Next: ' || fail "lab 3 lacks its last line"
grep -q 'build/lenet_ps' middle/labs/08-parameter-server/handout.md || fail "lab 8 has no server that works"
[[ -e middle/tests/golden/cases/wrn_sgd.safetensors && -e middle/tests/bench/scaling.gp && -e middle/tests/bench/sweep.gp ]] || fail "cases or figures' scripts are not there"
[[ ! -e first/labs/02-six-steps/in_pytorch.py && -e middle/labs/02-six-steps/in_pytorch.py ]] ||
    fail "lab 2's steps in PyTorch are not shown when its exercises are done"
[[ -e first/.devcontainer/devcontainer.json && -e first/labs/09-many-machines/Containerfile ]] || fail "no .devcontainer"
! grep -q solutions first/labs/09-many-machines/Containerfile || fail "the container copies solutions"
grep -q 'device_use(hvd_local_rank())' first/labs/01-baseline/keras.md || fail "keras.md lacks step 1, which step_02.c shows"
! grep -q 'hvd_rank() == 0' first/labs/01-baseline/keras.md || fail "keras.md shows step 2"
! grep -q 'This is what we saw' late/labs/02-six-steps/handout.md || fail "MEASURED=cut leaves a table"
cd "$kit" || exit 1

# ---- Answers. Steps 1 to 6 stand in what comes after them, as `make release` says.

grep -v '^[0-9]' "$folder/shown" | sort >"$folder/found"
grep -v '^#' tests/steps/shown.txt | sed 's/:.*//' | sort | diff - "$folder/found" >"$folder/differences" ||
    fail "what the package shows of answers is not what shown.txt lists (<), but (>): $(cat "$folder/differences")"
run env TO="$folder/notes" EXERCISES="1 2" BUILD="$build" common/scripts/release.sh
grep -q 'note: the answer of 1 stands in steps/step_02.c' "$folder/err" || fail "no note of step 2's file: $(cat "$folder/err")"
run env TO="$folder/notes" EXERCISES="ring fast_ring" BUILD="$build" common/scripts/release.sh
grep -q 'note: the answer of ring stands in steps/fast_ring.c' "$folder/err" || fail "no note of fast_ring's file: $(cat "$folder/err")"

# A line that an answer alone has, with other names and blanks, or two of its short ones in a row.
printf 'x\t\tint n = 0;\nx\tint left = (rank + size - 1) %% size, right = (rank + 1) %% size;\nx\t\nx\tps_a(b);\nx\tps_pull_all(c);\nx\tps_b(d);\n' >"$folder/answers"
finds() # LINES WORDS
{
    printf '%b' "$1" >"$folder/file.c"
    [[ $(awk -f common/scripts/answers.awk "$folder/answers" "$folder/file.c" | sed 's/ .*:/:/' | xargs) == "$2" ]] ||
        fail "answers.awk: $1: $(awk -f common/scripts/answers.awk "$folder/answers" "$folder/file.c")"
}
finds '   int a=(b + n - 1)%n,  c = (b+1) % n; // here\n' x:1
finds 'ps_a(z);\nint other;\nps_b(z);\n' ''
finds 'ps_pull_all(z);\n\n   ps_b(y);\n' ''
conclude
