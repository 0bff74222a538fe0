#!/usr/bin/env bash
# Usage: release.sh    makes the students' package (make release; labs/instructor.md)
#
# In TO (build/release): hvdlab.git, a repository with one commit for each release; hvdlab.tar.gz, the same files; and,
# with STUDENTS=class.csv (a column id), students/ID.tar.gz with a stamp of each student's own. From the
# environment, beside these: EXERCISES (all) that are released; HINTS (3), how many of each exercise's three hints;
# MEASURED=cut, without what the handouts measured; TEXTS=zh_CN, the translated texts in the place of the English ones;
# SECRET, the course's secret, from which the stamps follow; WORKFLOW=github or gitlab, what that forge runs when a student
# pushes. For tests, RELEASE_TESTS=kept leaves their comments in the
# texts, and RELEASE_SHOWN=FILE gets the answers that the package shows.
#
# Only what is named here goes into it. It holds no solution, no answer, no master, no known mistake and no history
# of the kit's. Two builds of the same tree are the same, to the bit.

set -eu
export LC_ALL=C
scripts=$(dirname "$0")
kit=$PWD
goal="make release"
. common/scripts/folders.sh
. common/scripts/grade_exercises.sh
build=${BUILD:-build}
to=${TO:-$build/release}
hints=${HINTS:-3}

# ---- What is asked for. Nothing is written before all of it is possible.

[[ $hints =~ ^[0-3]$ ]] || refuse "HINTS=$hints is not a number from 0 to 3"
[[ ${MEASURED:-} == '' || $MEASURED == cut ]] || refuse "MEASURED=$MEASURED: only MEASURED=cut means something"
[[ ${WORKFLOW:-} == @(|github|gitlab) ]] || refuse "WORKFLOW=$WORKFLOW: only github and gitlab mean something"
[[ -z ${TEXTS:-} || -d labs/po/$TEXTS ]] || refuse "TEXTS=$TEXTS: there is no labs/po/$TEXTS"
read_exercises "${EXERCISES:-}"
exercises=$(cut -f 1 <<<"$exercises" | xargs)
is_released() { [[ " $exercises " == *" $1 "* ]]; }
use_git
repository=$to/hvdlab.git

# is_listed FILE: did a release write this file of TO?
is_listed() { [[ -f $to/$mark && ! -L $1 ]] && grep -qxF -e "$(cd "$to" && sha256sum -- "${1#"$to"/}")" "$to/$mark"; }

# A repository of releases begins with the first one.
is_repository()
{
    [[ -d $1 && ! -L $1 && $(git --git-dir="$1" log --max-parents=0 --format='%an: %s' HEAD 2>/dev/null) == "hvdlab: hvdlab, release 1" ]]
}

need_folder "$to"
need_no_link "$to/students"
[[ ! -e $to/students || -d $to/students ]] || refuse "$to/students is there, and is no folder"
[[ ! -e $repository && ! -L $repository ]] || is_repository "$repository" ||
    refuse "$repository is there, and is no repository of releases: name another folder, or move it away"
need_file "$to/hvdlab.tar.gz" is_listed
declare -A id_of
if [[ -n ${STUDENTS:-} ]]; then
    [[ -f ${SECRET:-} && -s $SECRET && -r $SECRET ]] || refuse "stamps need SECRET=, a file with the course's secret"
    [[ -f $STUDENTS && -r $STUDENTS ]] || refuse "STUDENTS=$STUDENTS is no file that can be read"
    # (Without the jobserver of the make that calls this.)
    MAKEFLAGS=$(sed 's/ *-j[0-9]* *--jobserver-[a-z]*=[^ ]*//' <<<"${MAKEFLAGS:-}") make -s "$build/grades"
    roster=$("$build/grades" roster "$STUDENTS") || exit 2
    while IFS=$'\x1f' read -r id name _; do
        [[ -n $id ]] || continue
        [[ -z ${id_of[$name]+there} ]] || refuse "$STUDENTS: two students have the id $id"
        id_of[$name]=$id
        need_file "$to/students/$name.tar.gz" is_listed
    done <<<"$roster"
fi

own_umask=$(umask)
umask 022 # students read it
! holds "$build" "$to" || begin_build
mkdir -p "$to"
to=$(realpath "$to")
repository=$to/hvdlab.git
fresh=$(mktemp -d "$to/.hvdlab-XXXXXX")
trap 'rm -rf "$fresh"' EXIT
tree=$fresh/hvdlab cut=$fresh/cut
mkdir "$tree"

# ---- The files.

# add PATH...: as they are, in folders that this user can write to.
add()
{
    local path folders=("$tree")
    for path; do
        [[ $path != */* ]] || folders+=("$tree/${path%/*}")
    done
    mkdir -p -- "${folders[@]}"
    cp -P --parents -t "$tree" -- "$@"
}

# add_text PATH...: what students may read of it.
add_text()
{
    local path
    for path; do
        mkdir -p "$tree/$(dirname "$path")"
        awk -v table="$table" -v released="$exercises" -v measured="${MEASURED:-}" -v tests="${RELEASE_TESTS:-}" -f "$scripts/cut.awk" "$path" \
            >"$tree/$path" || refuse "$path: not cut"
    done
}

# Files that git knows, so that nothing of a build or an editor comes along. (No list comes from a process substitution,
# whose failure nobody would see.)
known() { git -c core.quotePath=off ls-files -- "$@"; }

# add_configured PATH...: in which the students' program stands in the place of a solution.
add_configured()
{
    local path program=baseline
    ! is_released 6 || program=step_06
    add "$@"
    for path; do
        sed -i "/^COPY solutions /d; s,build/solution_06,build/$program,g" "$tree/$path"
    done
}

# workflow: for a forge that makes a Debian for each push, has a copy of the repository, and runs these lines.
workflow()
{
    local install="apt-get update && apt-get install -y git make" name
    case ${WORKFLOW:-} in
    github)
        mkdir -p "$tree/.github/workflows"
        {
            printf '%s\n' "name: checks" "on: [push, workflow_dispatch]" "jobs:" "  checks:" "    runs-on: ubuntu-latest" \
                "    container: debian:13" "    steps:" "      - run: $install" "      - uses: actions/checkout@v4" "      - run: make deps"
            # shellcheck disable=SC2016 # not the shell's $
            for name in $exercises; do
                printf '%s\n' "      - run: make check-$name" '        if: ${{ !cancelled() }}'
            done
        } >"$tree/.github/workflows/checks.yml"
        ;;
    gitlab)
        printf '%s\n' "checks:" "  image: debian:13" "  script:" "    - $install" "    - make deps" "    - make check-all" >"$tree/.gitlab-ci.yml"
        ;;
    esac
}

# named PATTERN: what the texts name, one a line.
named() { find "$tree" -name '*.md' -exec grep -ohE -e "$1" {} + | sort -u; }

add Makefile LICENSE .gitattributes .gitignore .editorconfig .clang-format .devcontainer/devcontainer.json
add_configured "$(sed -n 's,.*"dockerfile": "../\([^"]*\)".*,\1,p' .devcontainer/devcontainer.json)"
workflow
known README.md ':(glob)labs/*.md' >"$fresh/list"
while read -r path; do
    case $path in
    labs/instructor.md | labs/adopting.md | labs/sealed-grading.md | labs/stability.md) ;;
    *) add_text "$path" ;;
    esac
done <"$fresh/list"
known common >"$fresh/list"
sources=(common/scripts/{doc,lines,spans}.awk)
while read -r path; do
    case $path in
    common/class/* | common/tools/grades.c | common/scripts/*.awk | common/scripts/measure.sh | common/scripts/measuring.sh) ;;
    common/scripts/release.sh | common/scripts/grade*.sh | common/scripts/print.* | common/scripts/translate.sh) ;;
    common/scripts/demo.sh | common/scripts/gpu_pack.sh | common/scripts/layers.sh) ;;
    *) sources+=("$path") ;;
    esac
done <"$fresh/list"
add "${sources[@]}"
known 'tests/steps/*.[ch]' 'tests/steps/diagnoses*' 'tests/golden/*.[ch]' 'tests/models/*.[ch]' 'tests/bench/*.[ch]' 'tests/bench/*.gp' 'tests/bench/*.py' tests/bench/steps.sh >"$fresh/list"
mapfile -t sources <"$fresh/list"
add "${sources[@]}"

# A lab's settings, of the exercises that are released.
settings()
{
    local section='' line
    while IFS= read -r line; do
        [[ ! $line =~ ^\[(.*)\]$ ]] || section=${BASH_REMATCH[1]}
        { [[ -n $section ]] && ! is_released "$section"; } || printf '%s\n' "$line"
    done <"$1"
}

"$scripts/steps.sh" cut "$cut"
for path in $("$scripts/steps.sh" edited | grep ^steps/ || true); do
    echo "make release: note: $path was edited, which changes nothing of the release: what students get is cut from" \
        "$("$scripts/labs.sh" table | awk -v path="$path" '"steps/" $2 ".c" == path { print $4 }') (CONTRIBUTING.md)" >&2
done
mkdir -p "$tree/steps/.original"
printf '%s\n' labs/*/lab.conf | xargs -n 1 dirname >"$fresh/labs"
while read -r lab; do
    of_lab=$(awk -v lab="$lab" '$3 == lab { print $1 " " $2 }' <<<"$table")
    first=${first:-$lab} released=
    while read -r name file; do
        { [[ -n $name ]] && is_released "$name"; } || continue
        released=1
        add "$lab/hints/$file.md"
        awk -v hints="$hints" '/^---$/ { part++ }
            part <= hints { print; next }
            /^---$/ { print; print "This hint is your instructor'"'"'s: ask." }' "$lab/hints/$file.md" >"$tree/$lab/hints/$file.md"
        cp "$cut/steps/$file.c" "$tree/steps/"
        cp "$cut/steps/$file.c" "$tree/steps/.original/"
    done <<<"$of_lab"
    # A lab without exercises of its own is always there, and so is the first one.
    [[ -n $released || -z $of_lab || $lab == "$first" ]] || continue
    add_text "$lab/handout.md"
    settings "$lab/lab.conf" >"$tree/$lab/lab.conf"
    known "$lab" >"$fresh/list"
    while read -r path; do
        case $path in
        "$lab"/slurm/* | "$lab"/Containerfile | "$lab"/*.def) add_configured "$path" ;;
        "$lab"/*/*) ;;
        "$lab"/*.md) [[ $path == */handout.md ]] || add_text "$path" ;;
        esac
    done <"$fresh/list"
    "$scripts/labs.sh" programs | while read -r _ source; do
        [[ $source != "$lab"/* ]] || add "$source"
    done
    "$scripts/labs.sh" baselines | while read -r file master; do
        [[ $master != "$lab"/* ]] || cp "$cut/steps/$file.c" "$tree/steps/"
    done
done <"$fresh/labs"
(cd "$tree" && sha256sum steps/*.c >steps/.original/steps.sha256)
# What the texts show and run.
known 'labs/*/figures/*' >"$fresh/list"
while read -r path; do
    ! named "figures/${path##*/}" | grep -q . || add "$path"
done <"$fresh/list"
named 'tests/golden/cases/[a-z_0-9]+\.safetensors|labs/[0-9a-z-]+/(measure_[a-z]+\.sh|[a-z_]+\.py)' >"$fresh/named"
while read -r path; do
    [[ $path != labs/* || -e $tree/${path%/*}/handout.md ]] || continue # of a lab that is not released
    add "$path"
done <"$fresh/named"
# After the cut, which knows an answer by its English word.
if [[ -n ${TEXTS:-} ]]; then
    set_mark "$tree"
    FROM=$tree TO=$tree "$scripts/translate.sh" >/dev/null
    rm "$tree/$mark"
fi

# ---- No text names what is not there (mend.awk).

# programs FOLDER: what make builds there of the exercises, and of the labs' programs.
programs()
{
    "$1/common/scripts/labs.sh" table | awk '{ print "build/" $2; sub(/^step_/, "", $2); print "build/solution_" $2 }'
    "$1/common/scripts/labs.sh" programs | sed 's,^\([^ ]*\) .*,build/\1,'
}

# The kit's files and folders, programs and targets.
everything()
{
    known . | awk '{ print; while (sub(/\/[^\/]*$/, "")) { print; print $0 "/" } }'
    programs .
    printf '%s\n' build/grades CONTAINER=trixie SOLUTIONS=1 make:{diff,solution}-{N,X}
    "$scripts/help.sh" Makefile kit | sed 's/^/make:/'
    cut -d ' ' -f 1 <<<"$table" | sed 's/.*/make:step-&\nmake:check-&\nmake:hint-&\nmake:reset-&\nmake:diff-&\nmake:solution-&/'
}

# Those of the package.
existing()
{
    (cd "$tree" && find . -mindepth 1 -printf '%P\n%P/\n')
    programs "$tree" | grep -v /solution_
    "$tree/common/scripts/labs.sh" table | cut -d ' ' -f 1 | sed 's/.*/make:step-&\nmake:check-&\nmake:hint-&\nmake:reset-&/'
}

# headings FILE: what a link to one says.
headings() { sed -n 's/^##* //p; s/^<a id="\(.*\)"><\/a>$/\1/p' "$1" | tr '[:upper:] ' '[:lower:]-' | tr -cd 'a-z0-9_\n-'; }

texts=$(cd "$tree" && find . -name '*.md' ! -path '*/hints/*' -printf '%P\n' | sort)
mend()
{
    local text
    existing | sort -u >"$fresh/existing"
    everything | sort -u | comm -23 - "$fresh/existing" >"$fresh/absent"
    while read -r text; do
        headings "$tree/$text" | sed "s|^|$text#|"
    done <<<"$texts" | cat - "$fresh/existing" >"$fresh/present"
    while read -r text; do
        awk -v table="$table" -v released="$exercises" -v path="$text" -f "$scripts/mend.awk" "$fresh/absent" "$fresh/present" "$tree/$text" >"$fresh/text"
        cat "$fresh/text" >"$tree/$text"
    done <<<"$texts"
}
# A section that is left out may be one that a link leads to.
mend
mend

# ---- Which files show which answers: the later ones are to be released after these exercises were handed in.

answers()
{
    local name file
    while read -r name file _; do
        sed "s/^/$name\t\t/" "$cut/steps/$file.c"
        diff "$cut/steps/$file.c" "$cut/solutions/$file.c" | sed -n -e "s/^> /$name\t/p" -e "s/^[0-9].*/$name\t/p"
    done <<<"$table"
}
answers >"$fresh/answers"
(cd "$tree" && { printf '%s\n' steps/*.c && find common labs tests -name '*.[ch]' -o -name '*.txt' | sort; } |
    xargs awk -f "$kit/$scripts/answers.awk" "$fresh/answers") | sed 's/:[0-9]*$//' | awk '!seen[$0]++' >"$fresh/shown"
cut -d ' ' -f 1 <<<"$table" | awk 'FNR == NR { count[$1]++; if (count[$1] <= 4) files[$1] = files[$1] (count[$1] > 1 ? ", " : "") $2; next }
    count[$1] { print "make release: note: the answer of " $1 " stands in " files[$1] (count[$1] > 4 ? " and " count[$1] - 4 " more" : "") }' \
    "$fresh/shown" - >&2
[[ -z ${RELEASE_SHOWN:-} ]] || cp "$fresh/shown" "$RELEASE_SHOWN"

# ---- The archives. A stamp says whose copy it is, and which seed the answer sheets take there.

stamp=$(git log -1 --format=%ct)
# archive TO: of the tree.
archive()
{
    tar -C "$fresh" --sort=name --mtime="@$stamp" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --format=gnu -cf - hvdlab | gzip -n >"$1"
}
mkdir "$fresh/made"
archive "$fresh/made/hvdlab.tar.gz"
if [[ -n ${STUDENTS:-} ]]; then
    mkdir "$fresh/made/students"
    for name in "${!id_of[@]}"; do
        stamp_text=$("$build/grades" stamp "$SECRET" "$name")
        printf 'This copy was made for %s.\nstamp: %s\nseed for profile and diagnose: %d\n' "${id_of[$name]}" "${stamp_text% *}" \
            "${stamp_text#* }" >"$tree/stamp.txt"
        archive "$fresh/made/students/$name.tar.gz"
    done
    rm "$tree/stamp.txt"
fi

# ---- The repository: a commit after those that are there, unless the last one has the same files.

export GIT_AUTHOR_NAME=hvdlab GIT_AUTHOR_EMAIL=hvdlab@localhost GIT_COMMITTER_NAME=hvdlab GIT_COMMITTER_EMAIL=hvdlab@localhost
export GIT_AUTHOR_DATE="$stamp +0000" GIT_COMMITTER_DATE="$stamp +0000" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
released=$repository
[[ -e $repository ]] || {
    released=$fresh/made/hvdlab.git
    git init --quiet --bare --initial-branch=main "$released"
}
into() { GIT_DIR=$released GIT_WORK_TREE=$tree GIT_INDEX_FILE=$fresh/index git -c core.bare=false "$@"; }
into add --all --force "$tree"
files=$(into write-tree)
if [[ $files != "$(into rev-parse --quiet --verify 'HEAD^{tree}' || true)" ]]; then
    last=$(into rev-parse --quiet --verify HEAD || true)
    into update-ref HEAD "$(into commit-tree ${last:+-p "$last"} -m "hvdlab, release $(($(into rev-list --count HEAD 2>/dev/null || echo 0) + 1))" "$files")"
fi

# ---- Into place. The mark lists old and new archives until all are there, so that a run that was ended can be repeated.

list() { [[ ! -f $to/$mark ]] || (cd "$to" && sha256sum --check --ignore-missing "$mark" 2>/dev/null | sed -n 's/: OK$//p' | xargs -r -d '\n' sha256sum); }
mark_lists()
{
    set_mark "$fresh"
    sort -u >>"$fresh/$mark"
    mv "$fresh/$mark" "$to/$mark"
}
{
    list
    (cd "$fresh/made" && find . -name '*.tar.gz' -printf '%P\n' | xargs -d '\n' sha256sum)
} | mark_lists
[[ ! -e $fresh/made/students ]] || (umask "$own_umask" && mkdir -p "$to/students")
(cd "$fresh/made" && find . -name '*.tar.gz' -printf '%P\n') | while read -r path; do
    mv -T "$fresh/made/$path" "$to/$path"
done
[[ ! -e $fresh/made/hvdlab.git ]] || mv -T "$fresh/made/hvdlab.git" "$repository"
list | mark_lists
echo "make release: $(wc -w <<<"$exercises") exercises: $to/hvdlab.git, $to/hvdlab.tar.gz${STUDENTS:+, $to/students/}"
