#!/usr/bin/env bash
# Usage: release.sh    makes the students' package (make release; labs/instructor.md)
#
# In TO (build/release): hvdlab.git, a repository with one commit for each release; hvdlab.tar.gz, the same files; and,
# with STUDENTS=class.csv (a column id), students/ID.tar.gz with a stamp of each student's own. From the
# environment, beside these: EXERCISES (all) that are released; HINTS (3), how many of each exercise's three hints;
# MEASURED=cut, without what the handouts measured; TEXTS=zh_CN, the translated texts in the place of the English ones;
# SECRET, the course's secret, from which the stamps follow.
#
# Only what is named here goes into it. It holds no solution, no answer, no master, no known mistake and no history
# of the kit's. Two builds of the same tree are the same, to the bit.

set -eu
export LC_ALL=C
scripts=$(dirname "$0")
goal="make release"
. common/scripts/folders.sh
build=${BUILD:-build}
to=${TO:-$build/release}
hints=${HINTS:-3}

# ---- What is asked for. Nothing is written before all of it is possible.

[[ $hints =~ ^[0-3]$ ]] || refuse "HINTS=$hints is not a number from 0 to 3"
[[ ${MEASURED:-} == '' || $MEASURED == cut ]] || refuse "MEASURED=$MEASURED: only MEASURED=cut means something"
[[ -z ${TEXTS:-} || -d labs/po/$TEXTS ]] || refuse "TEXTS=$TEXTS: there is no labs/po/$TEXTS"
table=$("$scripts/labs.sh" table)
exercises=${EXERCISES:-$(cut -d ' ' -f 1 <<<"$table")}
exercises=${exercises//,/ }
for name in $exercises; do
    grep -q "^$name " <<<"$table" || refuse "EXERCISES: there is no exercise '$name'"
done
is_released() { [[ " ${exercises//$'\n'/ } " == *" $1 "* ]]; }
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
    while IFS=$'\x1f' read -r id _; do
        [[ -n $id ]] || continue
        name=$(safe_name "$id")
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

# add PATH...: as they are.
add()
{
    local path
    for path; do
        mkdir -p "$tree/$(dirname "$path")"
        cp -Pp "$path" "$tree/$path"
    done
}

# add_text PATH...: what students may read of it.
add_text()
{
    local path
    for path; do
        mkdir -p "$tree/$(dirname "$path")"
        awk -v measured="${MEASURED:-}" -f "$scripts/cut.awk" "$path" >"$tree/$path" || refuse "$path: not cut"
    done
}

# Files that git knows, so that nothing of a build or an editor comes along.
known() { git ls-files -- "$@"; }

add Makefile LICENSE .gitattributes .gitignore .editorconfig .clang-format
add_text README.md labs/{devices,differences,scaling,speed,which-way,clusters,errors,more-programs,precision,questions}.md
while read -r path; do
    case $path in
    common/scripts/release.sh | common/scripts/grade.sh | common/scripts/cut.awk | common/tools/grades.c | common/class/*) ;;
    *) add "$path" ;;
    esac
done < <(known common)
while read -r path; do
    add "$path"
done < <(known 'tests/steps/*.[ch]' 'tests/golden/*.[ch]' 'tests/models/*.[ch]' 'tests/bench/*.[ch]' 'tests/bench/*.plt' 'tests/bench/*.py')

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
mkdir -p "$tree/steps/.original"
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
    while read -r path; do
        case $path in
        "$lab"/figures/* | "$lab"/slurm/* | "$lab"/Containerfile | "$lab"/*.def) add "$path" ;;
        "$lab"/*/*) ;;
        "$lab"/*.md) [[ $path == */handout.md ]] || add_text "$path" ;;
        esac
    done < <(known "$lab")
    "$scripts/labs.sh" programs | while read -r _ source; do
        [[ $source != "$lab"/* ]] || add "$source"
    done
    "$scripts/labs.sh" baselines | while read -r file master; do
        [[ $master != "$lab"/* ]] || cp "$cut/steps/$file.c" "$tree/steps/"
    done
done < <(printf '%s\n' labs/*/lab.conf | xargs -n 1 dirname)
(cd "$tree" && sha256sum steps/*.c >steps/.original/steps.sha256)
# After the cut, which knows an answer by its English word.
if [[ -n ${TEXTS:-} ]]; then
    set_mark "$tree"
    FROM=$tree TO=$tree "$scripts/translate.sh" >/dev/null
    rm "$tree/$mark"
fi

# answers FILE: the lines that its solution adds, those that say something.
answers()
{
    diff "$cut/steps/$1.c" "$cut/solutions/$1.c" | sed -n 's/^> *//p' | grep -v '^//' | awk 'length($0) >= 30'
}
# A file of a later exercise may show an earlier one's answer: say so, so that it is released after it.
while read -r name file _; do
    is_released "$name" || continue
    answers "$file" >"$fresh/answers"
    telling=
    while read -r other other_file _; do
        { [[ $other != "$name" && -s $to/answers ]] && is_released "$other"; } || continue
        shown=$(sed 's/^ *//' "$cut/steps/$other_file.c" | grep -cxFf "$fresh/answers" || true)
        [[ $shown -lt 3 && $shown -lt $(wc -l <"$fresh/answers") ]] || telling+=" $other"
    done <<<"$table"
    [[ -z $telling ]] || echo "make release: note: what $name asks for stands in:$telling; release those after it" >&2
done <<<"$table"

# ---- The archives. A stamp says whose copy it is, and which seed the exercise `profile` takes there.

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
        code=$(printf 'stamp\n%s' "$name" | openssl dgst -sha256 -hmac "$(cat "$SECRET")" | sed 's/.*= *//')
        printf 'This copy was made for %s.\nstamp: %s\nseed for profile: %d\n' "${id_of[$name]}" "${code:0:16}" \
            $((0x${code:16:8} % 999999 + 1)) >"$tree/stamp.txt"
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
