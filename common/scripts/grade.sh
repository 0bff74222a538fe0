#!/usr/bin/env bash
# Usage: grade.sh               grades the submissions of a class (make grade; labs/instructor.md)
#        grade.sh one ID NAME   grades one exercise of one student: for xargs, below
#
# From the environment:
#
#     SUBMISSIONS   a folder with an entry for each student: a folder, or an archive (.zip, .tar, .tar.gz, .tgz). The
#                   student's id is the entry's name; in what Moodle and Canvas let one download it is the number in it.
#     ROSTER        a table (CSV) with a column id, and any of name, email, repository, ref: who is in the class. With a
#                   repository, the submission is what its ref (HEAD) has.
#     EXERCISES     their names, each with its points if not 1: 1,2,ring:3. Without, all.
#     GRADES        the folder of the results (build/grades)
#     SECRET        a file with the course's secret, from which each student's seeds follow; one is made if there is none
#     SEAL          unsealed: grades even where nothing keeps submissions from this machine
#     AT_ONCE       checks at a time (as many as there are cores)
#     WORKSHEET, BOOK and COLUMN    Moodle's worksheet and Canvas's grade book, to be filled in
#
# In GRADES: submissions/ID/F.c, results/ID/F.json (what the check found; F.key says of which file, seed and kit), tasks.tsv,
# grades.json, table.txt, grades.csv, junit.xml, pages/ID.txt; moodle.csv and canvas.csv. A run that was
# ended goes on where it was: what has a result is not graded again. Nobody else can read the folder.

set -u
umask 077
scripts=$(dirname "$0")
build=${BUILD:-build}
grades=${GRADES:-$build/grades}
max_bytes=1048576 # of a file

fail()
{
    echo "make grade: $1" >&2
    exit 2
}

# ---- One check.

# As the key says it: the same file, seed and kit have the same result.
key_of()
{
    sha256sum <"$grades/submissions/$1/$3.c" | cut -c 1-64
    seed_of "$1" "$2"
    cat "$grades/kit"
}

# HMAC-SHA256 of the student and the exercise, as a number from 1.
seed_of()
{
    local digest
    digest=$(printf '%s\n%s' "$1" "$2" | openssl dgst -sha256 -hmac "$(cat "$grades/secret")" | sed 's/.*= *//')
    echo $((0x${digest:0:12} % 999999999 + 1))
}

file_of() { awk -F '\t' -v name="$1" '$1 == name { print $2 }' "$grades/exercises.tsv"; }

one()
{
    local id=$1 exercise=$2 file work to key
    file=$(file_of "$exercise")
    to=$grades/results/$id
    key=$(key_of "$id" "$exercise" "$file")
    [[ ! -e $to/$file.json || $(cat "$to/$file.key" 2>/dev/null) != "$key" ]] || return 0
    # A folder of its own for the verdict, which a user number of its own can enter.
    work=$build/grading/${SLOT:-0}
    (
        umask 022
        mkdir -p "$work"
        # A student's warnings are no errors, however the kit was built.
        sed 's/ -Werror / /' "$build/compile-step" >"$work/compile-step.new"
        chmod +x "$work/compile-step.new" && mv "$work/compile-step.new" "$work/compile-step"
        ln -sf "$(realpath "$build")/hvdlab.o" "$work/hvdlab.o"
    )
    BUILD=$work "$build/check-step" "--${SEAL:-sealed}" --seed "$(seed_of "$id" "$exercise")" "$exercise" \
        "$grades/submissions/$id/$file.c" >/dev/null 2>"$work/errors" </dev/null
    local status=$?
    if [[ $status -ge 2 ]]; then
        cat "$work/errors" >&2
        return 255 # xargs ends
    fi
    mkdir -p "$to"
    cp "$work/check/$file.json" "$to/$file.json.new"
    echo "$key" >"$to/$file.key"
    mv "$to/$file.json.new" "$to/$file.json"
    rm -rf "$work/check"
}

if [[ ${1:-} == one ]]; then
    one "$2" "$3"
    exit
fi

# ---- The class.

# A name that is safe as a file's: other characters than these become %XX.
safe_name()
{
    local LC_ALL=C text=$1 i c out=
    for ((i = 0; i < ${#text} && i < 100; i++)); do
        c=${text:i:1}
        case $c in
        [A-Za-z0-9._@+-]) out+=$c ;;
        *) out+=$(printf '%%%02X' "'$c") ;;
        esac
    done
    [[ $out != .* ]] || out=%2E${out:1}
    echo "$out"
}

# Whom an entry of SUBMISSIONS belongs to, and as what: ID KIND, where KIND is folder, zip, tar or file.
# Moodle: "Jane Doe_123456_assignsubmission_file"; Canvas: "doejane_LATE_1234_56789_ring-1.c".
identify()
{
    local name=${1##*/} kind
    if [[ -L $1 ]]; then
        return 1
    elif [[ -d $1 ]]; then
        kind=folder
    else
        case ${name,,} in
        *.zip) kind=zip name=${name%.*} ;;
        *.tar.gz) kind=tar name=${name%.*.*} ;;
        *.tar | *.tgz) kind=tar name=${name%.*} ;;
        *.c) kind="file" ;;
        *) return 1 ;;
        esac
    fi
    if [[ $name =~ ^.*_([0-9]+)_assignsubmission_ ]]; then
        name=${BASH_REMATCH[1]}
    elif [[ $name =~ ^[a-z0-9-]+(_LATE)?_([0-9]+)_[0-9]+_ ]]; then
        name=${BASH_REMATCH[2]}
    elif [[ $kind == file ]]; then
        return 1
    fi
    echo "$(safe_name "$name") $kind"
}

# The paths in an entry, one a line; those with a line break are left out.
list_entry()
{
    case $2 in
    folder) (cd "$1" && find . -type f ! -path $'*\n*' -name '*.c' 2>/dev/null) ;;
    file) echo "${1##*/}" ;;
    zip) timeout 20 unzip -Z1 "$1" 2>/dev/null ;;
    tar) timeout 20 tar -tf "$1" 2>/dev/null ;;
    git) git --git-dir="$1" -c core.quotepath=off ls-tree -r --name-only --end-of-options "$ref" 2>/dev/null ;;
    esac | head -n 20000
}

# What unzip takes for a pattern, as itself.
escaped() { printf '%s\n' "$1" | sed 's/[][*?\\]/\\&/g'; }

# What is at a path in an entry, its first megabyte and a byte. Nothing is ever unpacked.
read_entry()
{
    case $2 in
    folder) [[ -L $1/$3 || ! -f $1/$3 ]] || cat "$1/$3" ;;
    file) cat "$1" ;;
    zip) timeout 20 unzip -P x -p "$1" "$(escaped "$3")" 2>/dev/null ;;
    tar) timeout 20 tar -xOf "$1" -- "$3" 2>/dev/null ;;
    git) git --git-dir="$1" show --end-of-options "$ref:$3" 2>/dev/null ;;
    esac | head -c $((max_bytes + 1))
}

# take ENTRY KIND ID: the files of the exercises, from the shortest path with their name; those in steps/ first. Canvas
# names a file "doejane_1234_56789_ring-1.c".
take()
{
    local entry=$1 kind=$2 to=$grades/submissions/$3 file path
    list_entry "$entry" "$kind" >"$grades/list"
    while read -r file; do
        path=$(awk -v file="$file" '{
                name = $0; sub(/.*\//, "", name)
                sub(/^[a-z0-9-]+(_LATE)?_[0-9]+_[0-9]+_/, "", name); sub(/( \([0-9]+\)|-[0-9]+)\.c$/, ".c", name)
                if (tolower(name) == file ".c") print ($0 ~ "(^|/)steps/[^/]*$" ? 0 : 1), length($0), $0
            }' "$grades/list" | sort -k1,1n -k2,2n -k3 | head -n 1 | cut -d ' ' -f 3-)
        [[ -n $path ]] || continue
        mkdir -p "$to"
        read_entry "$entry" "$kind" "$path" >"$to/$file.c"
    done < <(cut -f 2 "$grades/exercises.tsv")
}

clone()
{
    local to=$grades/repositories/$2
    rm -rf "$to"
    mkdir -p "$grades/repositories"
    GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1 timeout 120 git -c core.hooksPath=/dev/null -c protocol.ext.allow=never \
        clone --quiet --bare -- "$1" "$to" 2>/dev/null
}

# ---- What is asked for.

[[ -n ${SUBMISSIONS:-}${ROSTER:-} ]] || fail "say where the submissions are: SUBMISSIONS=folder, or ROSTER=class.csv with repositories"
[[ -z ${SUBMISSIONS:-} || -d $SUBMISSIONS ]] || fail "SUBMISSIONS=$SUBMISSIONS is no folder"
[[ -z ${ROSTER:-} || -r $ROSTER ]] || fail "ROSTER=$ROSTER cannot be read"
[[ ${SEAL:-sealed} == sealed || $SEAL == unsealed ]] || fail "SEAL=$SEAL is not sealed or unsealed"
[[ ${AT_ONCE:-1} =~ ^[1-9][0-9]?$ ]] || fail "AT_ONCE=$AT_ONCE is not a number from 1 to 99"
[[ -z ${BOOK:-} || -n ${COLUMN:-} ]] || fail "BOOK=$BOOK needs COLUMN=, the name of the assignment's column"

mkdir -p "$grades" && chmod 700 "$grades" || exit 2
grades=$(realpath "$grades")
export GRADES=$grades
exec 9>"$grades/lock"
flock -n 9 || fail "another make grade works in $grades"

known=$("$scripts/labs.sh" table)
: >"$grades/exercises.tsv"
asked=${EXERCISES:-$(cut -d ' ' -f 1 <<<"$known")}
for word in ${asked//,/ }; do
    name=${word%%:*} points=1
    [[ $word != *:* ]] || points=${word#*:}
    [[ $points =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "EXERCISES: '$word': the points are no number"
    file=$(awk -v name="$name" '$1 == name { print $2 }' <<<"$known")
    [[ -n $file ]] || fail "EXERCISES: there is no exercise '$name'; they are $(cut -d ' ' -f 1 <<<"$known" | xargs)"
    printf '%s\t%s\t%s\n' "$name" "$file" "$points" >>"$grades/exercises.tsv"
done

if [[ -n ${SECRET:-} ]]; then
    [[ -s $SECRET ]] || fail "SECRET=$SECRET is no file with a secret in it"
    cp "$SECRET" "$grades/secret"
elif [[ ! -s $grades/secret ]]; then
    openssl rand -hex 16 >"$grades/secret"
fi
# What decides: the check, the library, the exercises.
cat "$build/check-step" "$build/hvdlab.o" "$build/compile-step" labs/*/lab.conf | sha256sum | cut -c 1-12 >"$grades/kit"

# ---- Who, and what each of them has handed in.

rm -rf "$grades/submissions"
mkdir -p "$grades/submissions" "$grades/results" "$grades/pages"
declare -A name_of email_of
ids=()
if [[ -n ${ROSTER:-} ]]; then
    "$build/grades" roster "$ROSTER" >"$grades/roster.tsv" || exit 2
    while IFS=$'\x1f' read -r id name email repository ref; do
        id=$(safe_name "$id")
        [[ -z ${name_of[$id]+there} ]] || fail "$ROSTER: two students have the id $id"
        ids+=("$id")
        name_of[$id]=$name email_of[$id]=$email
        ref=${ref:-HEAD}
        [[ -z $repository ]] || { clone "$repository" "$id" && take "$grades/repositories/$id" git "$id"; }
    done <"$grades/roster.tsv"
fi
others=0
while IFS= read -r -d '' entry; do
    said=$(identify "$entry") || continue
    id=${said% *}
    if [[ -z ${name_of[$id]+there} ]]; then
        if [[ -n ${ROSTER:-} ]]; then
            others=$((others + 1))
            continue
        fi
        ids+=("$id")
        name_of[$id]='' email_of[$id]=''
    fi
    take "$entry" "${said##* }" "$id"
done < <([[ -z ${SUBMISSIONS:-} ]] || find "$SUBMISSIONS" -mindepth 1 -maxdepth 1 -print0 | sort -z)
[[ ${#ids[@]} -gt 0 ]] || fail "no student: SUBMISSIONS has no folder and no archive"
[[ $others -eq 0 ]] || echo "make grade: note: $others entries of $SUBMISSIONS belong to nobody in $ROSTER" >&2

# ---- The checks.

: >"$grades/tasks.new"
: >"$grades/todo"
while read -r id; do
    while IFS=$'\t' read -r exercise file points; do
        submission=$grades/submissions/$id/$file.c state=graded hash=
        if [[ ! -e $submission ]]; then
            state=missing
        elif [[ $(stat -c %s "$submission") -gt $max_bytes ]]; then
            state=too-large
        else
            hash=$(sha256sum <"$submission" | cut -c 1-64)
            printf '%s\t%s\n' "$id" "$exercise" >>"$grades/todo"
        fi
        printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$id" "${name_of[$id]}" "${email_of[$id]}" "$exercise" "$file" "$points" \
            "$state" "$(seed_of "$id" "$exercise")" "$hash" >>"$grades/tasks.new"
    done <"$grades/exercises.tsv"
done < <(printf '%s\n' "${ids[@]}" | sort)
mv "$grades/tasks.new" "$grades/tasks.tsv"

# check_all LIST AT_ONCE
check_all()
{
    # (Without the lock: a check may outlive a make grade that is killed.)
    tr '\t' '\n' <"$1" | xargs -r -d '\n' -n 2 -P "$2" --process-slot-var=SLOT "$0" one 9>&- 2> >(grep -v "^xargs: " >&2)
}
count=$(grep -c '' "$grades/todo")
echo "make grade: ${#ids[@]} students, $count submissions"
check_all "$grades/todo" "${AT_ONCE:-$(nproc)}" || exit 2

# What stood still beside other checks is tried once more, alone: then the machine was not busy with them.
: >"$grades/again"
while IFS=$'\t' read -r id exercise; do
    result=$grades/results/$id/$(file_of "$exercise")
    grep -q '"diagnosis":[[:space:]]*"\(hung\|crashed\)"' "$result.json" || continue
    ! cmp -s "$result.key" "$result.alone" || continue
    printf '%s\t%s\n' "$id" "$exercise" >>"$grades/again"
    mv "$result.key" "$result.alone"
done <"$grades/todo"
check_all "$grades/again" 1 || exit 2

# ---- What comes of it.

tool=$build/grades
"$tool" collect "$grades" || exit 2
json=$grades/grades.json
"$tool" table "$json" >"$grades/table.txt"
"$tool" csv "$json" >"$grades/grades.csv"
"$tool" junit "$json" >"$grades/junit.xml"
for id in "${ids[@]}"; do
    "$tool" page "$json" "$id" >"$grades/pages/$id.txt"
done
[[ -z ${WORKSHEET:-} ]] || "$tool" moodle "$json" "$WORKSHEET" >"$grades/moodle.csv" || exit 2
[[ -z ${BOOK:-} ]] || "$tool" canvas "$json" "$BOOK" "$COLUMN" >"$grades/canvas.csv" || exit 2
rm -f "$grades/list" "$grades/todo" "$grades/again"
sed -n '/^What did not pass/,$p' "$grades/table.txt"
echo "make grade: $grades/table.txt, grades.csv, grades.json, junit.xml, pages/"
