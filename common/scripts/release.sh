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
build=${BUILD:-build}
to=${TO:-$build/release}
hints=${HINTS:-3}

fail()
{
    echo "make release: $1" >&2
    exit 2
}
[[ $hints =~ ^[0-3]$ ]] || fail "HINTS=$hints is not a number from 0 to 3"
[[ ${MEASURED:-} == '' || $MEASURED == cut ]] || fail "MEASURED=$MEASURED: only MEASURED=cut means something"
table=$("$scripts/labs.sh" table)
exercises=${EXERCISES:-$(cut -d ' ' -f 1 <<<"$table")}
exercises=${exercises//,/ }
for name in $exercises; do
    grep -q "^$name " <<<"$table" || fail "EXERCISES: there is no exercise '$name'"
done
is_released() { [[ " ${exercises//$'\n'/ } " == *" $1 "* ]]; }

mkdir -p "$to"
to=$(realpath "$to")
tree=$to/hvdlab
rm -rf "$tree" && mkdir -p "$tree"

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
        awk -v measured="${MEASURED:-}" -f "$scripts/cut.awk" "$path" >"$tree/$path" || fail "$path: not cut"
    done
}

# Files that git knows, so that nothing of a build or an editor comes along.
known() { git ls-files -- "$@"; }

add Makefile LICENSE .gitignore .editorconfig .clang-format
add_text README.md labs/{devices,differences,scaling,speed,which-way}.md
while read -r path; do
    case $path in
    common/scripts/release.sh | common/scripts/grade.sh | common/scripts/cut.awk | common/tools/grades.c) ;;
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

"$scripts/steps.sh" cut "$to/cut"
mkdir -p "$tree/steps/.original"
while read -r lab; do
    of_lab=$(awk -v lab="$lab" '$3 == lab { print $1 " " $2 }' <<<"$table")
    released=
    while read -r name file; do
        { [[ -n $name ]] && is_released "$name"; } || continue
        released=1
        add "$lab/hints/$file.md"
        awk -v hints="$hints" '/^---$/ { part++ }
            part <= hints { print; next }
            /^---$/ { print; print "This hint is your instructor'"'"'s: ask." }' "$lab/hints/$file.md" >"$tree/$lab/hints/$file.md"
        cp "$to/cut/steps/$file.c" "$tree/steps/"
        cp "$to/cut/steps/$file.c" "$tree/steps/.original/"
    done <<<"$of_lab"
    # A lab without exercises of its own is always there.
    [[ -n $released || -z $of_lab ]] || continue
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
        [[ $master != "$lab"/* ]] || cp "$to/cut/steps/$file.c" "$tree/steps/"
    done
done < <(printf '%s\n' labs/*/lab.conf | xargs -n 1 dirname)
(cd "$tree" && sha256sum steps/*.c >steps/.original/steps.sha256)
# After the cut, which knows an answer by its English word.
[[ -z ${TEXTS:-} ]] || FROM=$tree TO=$tree "$scripts/translate.sh" >/dev/null

# answers FILE: the lines that its solution adds, those that say something.
answers()
{
    diff "$to/cut/steps/$1.c" "$to/cut/solutions/$1.c" | sed -n 's/^> *//p' | grep -v '^//' | awk 'length($0) >= 30'
}
# A file of a later exercise may show an earlier one's answer: say so, so that it is released after it.
while read -r name file _; do
    is_released "$name" || continue
    answers "$file" >"$to/answers"
    telling=
    while read -r other other_file _; do
        { [[ $other != "$name" && -s $to/answers ]] && is_released "$other"; } || continue
        shown=$(sed 's/^ *//' "$to/cut/steps/$other_file.c" | grep -cxFf "$to/answers" || true)
        [[ $shown -lt 3 && $shown -lt $(wc -l <"$to/answers") ]] || telling+=" $other"
    done <<<"$table"
    [[ -z $telling ]] || echo "make release: note: what $name asks for stands in:$telling; release those after it" >&2
done <<<"$table"
rm -f "$to/answers"
rm -rf "$to/cut"

# ---- The repository, and the archive.

stamp=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export GIT_DIR=$to/hvdlab.git GIT_WORK_TREE=$tree
export GIT_AUTHOR_NAME=hvdlab GIT_AUTHOR_EMAIL=hvdlab@localhost GIT_COMMITTER_NAME=hvdlab GIT_COMMITTER_EMAIL=hvdlab@localhost
export GIT_AUTHOR_DATE="$stamp +0000" GIT_COMMITTER_DATE="$stamp +0000" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
[[ -d $GIT_DIR ]] || env -u GIT_DIR -u GIT_WORK_TREE git init --quiet --bare --initial-branch=main "$GIT_DIR"
git config core.bare false
git add --all --force .
{ git rev-parse --verify --quiet HEAD >/dev/null && git diff --cached --quiet HEAD; } ||
    git commit --quiet --message "hvdlab, release $(($(git rev-list --count HEAD 2>/dev/null || echo 0) + 1))"
git config core.bare true
unset GIT_DIR GIT_WORK_TREE

# archive TO: of the tree.
archive()
{
    tar -C "$to" --sort=name --mtime="@$stamp" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --format=gnu -cf - hvdlab | gzip -n >"$1"
}
archive "$to/hvdlab.tar.gz"

# A stamp says whose copy it is, and which seed the exercise `profile` takes there.
if [[ -n ${STUDENTS:-} ]]; then
    [[ -s ${SECRET:-} ]] || fail "stamps need SECRET=, a file with the course's secret"
    make -s "$build/grades"
    "$build/grades" roster "$STUDENTS" >"$to/roster"
    mkdir -p "$to/students"
    while IFS=$'\x1f' read -r id _; do
        [[ $id =~ ^[A-Za-z0-9_@+-][A-Za-z0-9._@+-]*$ ]] || fail "$STUDENTS: '$id' is no id of letters, digits and ._@+-"
        mark=$(printf 'stamp\n%s' "$id" | openssl dgst -sha256 -hmac "$(cat "$SECRET")" | sed 's/.*= *//')
        printf 'This copy was made for %s.\nstamp: %s\nseed for profile: %d\n' "$id" "${mark:0:16}" \
            $((0x${mark:16:8} % 999999 + 1)) >"$tree/stamp.txt"
        archive "$to/students/$id.tar.gz"
    done <"$to/roster"
    rm -f "$tree/stamp.txt" "$to/roster"
fi
rm -rf "$tree"
echo "make release: $(wc -w <<<"$exercises") exercises: $to/hvdlab.git, $to/hvdlab.tar.gz${STUDENTS:+, $to/students/}"
