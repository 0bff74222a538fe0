# shellcheck shell=sh
# What scripts may remove or replace: only what the kit made. A script sources this file; `goal` begins its messages.
#
#     begin_folder FOLDER     checks that FOLDER can be made or replaced, and makes $fresh, an empty folder beside it
#     end_folder FOLDER       moves $fresh to FOLDER, in the place of the older one, with a mark that lists its files
#     need_folder FOLDER      checks that FOLDER is no link, and not the kit, the home folder or one above them
#     remove_folder FOLDER    removes it, if all its files are listed in its mark and as they were
#     need_file FILE COMMAND  checks that FILE is not there, is empty, or that COMMAND FILE knows it as the kit's
#     need_build              checks that $BUILD (build) is not there, is empty, or was made by the kit
#     need_rights             checks that it and TMPDIR can be written to, and that files may be as large as programs
#     begin_build             the same as need_build, and makes it
#     clean_build             removes it, but for results of a class
#     forget_hook             unsets what git sets for its hooks, which would lead git to another repository
#     use_git [HINT]          the same, and checks that git reads this clone
#
# A refusal is one line on standard error and status 2, before anything is changed. The script that calls begin_folder
# removes "$fresh" when it ends (trap). A mark's first line says who made the folder; the others are sha256sum's.

unset CDPATH # cd would print
mark=.made-by-hvdlab
fresh=

refuse()
{
    echo "${goal:-${0##*/}}: $1" >&2
    exit 2
}

# Is there nothing, or an empty folder?
is_free()
{
    [ ! -e "$1" ] || { [ -d "$1" ] && [ -z "$(ls -A -- "$1" 2>&1)" ]; }
}

# has_mark FOLDER [GOAL]
has_mark() { [ -f "$1/$mark" ] && [ ! -L "$1/$mark" ] && head -n 1 "$1/$mark" | grep -q "^# Made by ${2:-make.*},"; }

set_mark() { echo "# Made by ${2:-$goal}, which may remove what is listed here, unless it was changed." >"$1/$mark"; }

need_no_link()
{
    named=$1
    while case $named in ?*/ | ?*/.) ;; *) false ;; esac; do
        named=${named%/*}
    done
    [ ! -L "$named" ] || refuse "$1 is a link; name the folder that it leads to, $(readlink -f -- "$named")"
}

# holds FOLDER OTHER: is OTHER the folder, or in it?
holds()
{
    holder=$(realpath -m -- "$1")
    [ "$holder" = / ] || holder=$holder/
    case $(realpath -m -- "$2")/ in "$holder"*) ;; *) return 1 ;; esac
}

need_folder()
{
    need_no_link "$1"
    [ ! -e "$1" ] || [ -d "$1" ] || refuse "$1 is there, and is no folder"
    ! holds "$1" . || refuse "$1 holds the kit itself; name another folder"
    ! holds "$1" "${HOME:-/}" || refuse "$1 holds the home folder; name another folder"
}

# The first file of a folder with a mark that the mark does not list, or that was changed since.
foreign_file()
{
    (
        cd "$1" || exit
        find . ! -type d | LC_ALL=C awk -v mark="$mark" '
            FILENAME == mark { own[/^[0-9a-f]+  / ? substr($0, 67) : ""]; next }
            { name = substr($0, 3) }
            name != mark && !(name in own) { print name; exit }' "$mark" -
        LC_ALL=C sha256sum --check --quiet --ignore-missing "$mark" 2>/dev/null | sed -n 's/: FAILED.*//p'
    ) | head -n 1 || : # sha256sum's status, where a caller has pipefail
}

# Can it be removed?
need_own()
{
    need_folder "$1"
    ! is_free "$1" || return 0
    has_mark "$1" "$goal" || refuse "$1 holds files, and was not made by $goal: name another folder, or move it away"
    foreign=$(foreign_file "$1")
    [ -z "$foreign" ] || refuse "$1/$foreign was not made by the kit, or was changed since: move it away, or name another folder"
}

remove_folder()
{
    need_own "$1"
    rm -rf -- "$1"
}

begin_folder()
{
    need_own "$1"
    ! holds "${BUILD:-build}" "$1" || begin_build
    mkdir -p -- "$(dirname -- "$1")" && fresh=$(mktemp -d -- "$(dirname -- "$1")/.hvdlab-XXXXXX") || exit 2
    fresh=$(realpath "$fresh")
    chmod "$(umask -S)" "$fresh"
    set_mark "$fresh"
}

end_folder()
{
    (cd "$fresh" && find . -type f ! -path "./$mark" -printf '%P\0' | LC_ALL=C sort -z | xargs -0 -r sha256sum -- >>"$mark") || exit 2
    remove_folder "$1"
    mv -T -- "$fresh" "$1" || exit 2
}

need_file() # FILE COMMAND...
{
    chosen=$1
    shift
    need_no_link "$chosen"
    [ ! -d "$chosen" ] || refuse "$chosen is a folder; name a file"
    [ ! -s "$chosen" ] || "$@" "$chosen" || refuse "$chosen is there, and was not made by $goal: name another file, or move it away"
}

# ---- The build folder.

# Is it a build folder, or in one? (One that was made before there were marks has settings.compile.)
is_build()
{
    part=$(realpath -m -- "$1")
    until [ "$part" = / ] || holds "$part" . || holds "$part" "${HOME:-/}"; do
        [ ! -e "$part/settings.compile" ] && ! has_mark "$part" make || return 0
        part=$(dirname -- "$part")
    done
    return 1
}

# The first of these files that this user can't write to.
first_refusing() { find "$@" -maxdepth 0 ! -writable -print -quit 2>/dev/null || :; }

need_writable()
{
    set -- "${BUILD:-build}"
    part=$(first_refusing "$1" "$1"/settings.* "$1"/common "$1"/tests "$1"/check "$1"/hints "$1"/steps "$1"/steps/*)
    owner=$(stat -c %U -- "${part:-.}")
    case $owner in
    "$(id -un)") ;;
    root) [ -z "$part" ] || refuse "$part belongs to root: sudo rm -rf $1, then make without sudo" ;;
    *) [ -z "$part" ] || refuse "$part belongs to another user, $owner: BUILD=folder builds in a folder of your own" ;;
    esac
    parent=$(realpath -m -- "$1")
    until [ -e "$parent" ]; do
        parent=$(dirname -- "$parent")
    done
    [ -w "$parent" ] && [ -z "$part" ] || refuse "${part:-$parent} can't be written to: BUILD=${HOME:-/tmp}/hvdlab-build builds there instead"
}

need_rights()
{
    need_writable
    [ -d "${TMPDIR:-/tmp}" ] && [ -w "${TMPDIR:-/tmp}" ] || refuse "TMPDIR=${TMPDIR:-/tmp} is no folder that can be written to: name another, or unset TMPDIR"
    limit=$(sh -c 'ulimit -f') # in units of 512 bytes, which bash's own are not
    [ "$limit" = unlimited ] || [ "$limit" -ge 200000 ] || refuse "no file may be larger than $((limit / 2)) KiB here (ulimit -f), and programs are; a new shell may allow more"
}

# Does the folder hold nothing but builds, such as build/fuzz?
holds_builds()
{
    for part in "$1"/* "$1"/.[!.]*; do
        [ -e "$part/settings.compile" ] || { [ ! -e "$part" ] && [ ! -L "$part" ]; } || return 1
    done
}

need_build()
{
    set -- "${BUILD:-build}"
    ! holds "$1" . || refuse "BUILD=$1 holds the kit itself; name another folder"
    ! holds "$1" "${HOME:-/}" || refuse "BUILD=$1 holds the home folder; name another folder"
    need_rights
    is_free "$1" || is_build "$1" || holds_builds "$1" || refuse "BUILD=$1 holds files, and was not made by the kit: name another folder"
}

begin_build()
{
    need_build
    mkdir -p -- "${BUILD:-build}" || exit 2
    is_build "${BUILD:-build}" || set_mark "${BUILD:-build}" make
}

# is_product FILE: did a program of the kit write it?
is_product()
{
    case ${1%.new-[0-9]*} in # (file_replace's, where it was killed)
    */rank-*.jsonl) head -c 20 "$1" | grep -q '^{"event":"start"' ;;
    *.safetensors*) head -c 65536 "$1" | grep -aqE 'hvdlab-1|"prediction"' ;;
    *.json) head -c 20 "$1" | grep -q '^{"displayTimeUnit"' ;;
    *.html) grep -q '<title>A run of hvdlab</title>' "$1" ;;
    */image-*.svg) grep -q '<svg class="build-evaluate"' "$1" ;;
    *.html.js) head -c 20 "$1" | grep -q '^hvdlabTake(' ;;
    *) [ "$(head -c 4 "$1" | tail -c 3)" = ELF ] && grep -aq hvdlab "$1" ;;
    esac
}

# The files in a build folder that the kit did not write.
foreign_in_build()
{
    (
        kit=$PWD
        cd "$1" || exit
        for part in */; do
            [ ! -L "${part%/}" ] || echo "${part%/}"
            ! has_mark "$part" || foreign_file "$part" | sed "s|^|$part|"
            [ ! -e "$part/settings.compile" ] || (cd "$kit" && foreign_in_build "$1/$part" | sed "s|^|$part|")
        done
        # Working folders of scripts and tests; folders with a mark and builds, which were looked at; a class's. Files with names of the kit's; empty files.
        find . -mindepth 1 \( -path ./measure -o -path ./cluster -o -path ./slurm -o -path ./fresh -o -path ./arm -o -path ./corpus -o -path ./found \
            -o -path './graders*' -o -type d ! -path './*/*' \( -exec test -e '{}/settings.compile' \; -o -exec test -e "{}/$mark" \; \
            -o -exec test -e '{}/grades.json' \; -o -exec test -e '{}/hvdlab.git' \; \) \) -prune -o \
            ! -type d ! -empty ! -name "$mark" -print | grep -vxE "\./($built_names)" | while read -r part; do
            is_product "$part" || is_verdict "$part" "$kit" || echo "${part#./}"
        done
    )
}

# The names that the Makefile, scripts and handouts give: files to build, logs, tables, figures.
built_names='settings\.(compile|link|check|kernels|judges)|(library|hvdlab)(-all)?\.o|(common|labs|solutions|steps|tests)/.*\.[do]'
built_names="$built_names|tests/faults/(inject|powercut)\.so|tests/steps/diagnoses/[a-z0-9_]*\.h|common/watch/mpi_others\.c|no_onednn\.c|compile-step|watched|tried"
built_names="$built_names|pack-gpu_[0-9a-z]*|hvdlab-[0-9.]*\.tar\.gz|gradescope\.zip|(.*/)?events\.out\.tfevents\..*"
built_names="$built_names|bench(-gpu)?\.json|ranks\.log|target|two-by-two|demo\.log(\.scaling)?|scaling\.(dat|svg|png)|sweep\.(json|svg|png)|sweep-[0-9]*\.dat|[a-zA-Z0-9_-]*-[0-9]+\.out"

# is_verdict FILE KIT: is it what make check, make next, make hint or a cut keeps of an exercise?
is_verdict()
{
    case $1 in
    ./check/lock | ./check/run-??????/*) ;;
    ./graded/*-??????/*) ;;
    ./check/*/* | ./graded/*/* | ./carried/*/* | ./hints/*/*) return 1 ;;
    ./check/*.json | ./graded/*.json) grep -q '"diagnosis":' "$1" ;;
    ./check/*.c | ./graded/*.c | ./carried/*.c | ./hints/* | ./cut/steps/*.c | ./cut/solutions/*.c)
        exercise=${1##*/}
        [ -e "$2/steps/${exercise%.c}.c" ]
        ;;
    *) return 1 ;;
    esac
}

clean_build()
{
    set -- "${BUILD:-build}"
    [ -e "$1" ] || return 0
    need_folder "$1"
    need_writable
    is_free "$1" || is_build "$1" || holds_builds "$1" || refuse "BUILD=$1 holds files, and was not made by the kit"
    foreign=$(foreign_in_build "$1")
    [ -z "$foreign" ] || {
        more=$(($(echo "$foreign" | wc -l) - 1))
        [ "$more" -eq 0 ] && more=" was" || more=" (and $more more) were"
        refuse "$1/$(printf '%s\n' "$foreign" | head -n 1)$more not made by the kit: move it away first"
    }
    find "$1" -mindepth 1 -maxdepth 1 ! -exec test -e '{}/grades.json' \; ! -exec test -e '{}/hvdlab.git' \; -exec rm -rf -- {} + || exit 2
    rmdir -- "$1" 2>/dev/null && return
    set_mark "$1" make
    echo "$goal: $(cd "$1" && echo *) of $1 stays: a course's results or its history; remove it yourself"
}

# ---- Git.

forget_hook()
{
    unset GIT_DIR GIT_INDEX_FILE GIT_WORK_TREE GIT_PREFIX GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR \
        GIT_NAMESPACE GIT_LITERAL_PATHSPECS GIT_GLOB_PATHSPECS GIT_NOGLOB_PATHSPECS GIT_ICASE_PATHSPECS
}

use_git()
{
    forget_hook
    said=$(git rev-parse HEAD 2>&1) || case $said in
    *safe.directory* | *"dubious ownership"*) refuse "another user owns this clone, so git does not read it: git config --global --add safe.directory '$(pwd -P)'" ;;
    *"not a git repository"*) refuse "this is no clone of a git repository${1:+; $1}" ;;
    *) refuse "git does not read this clone: $(echo "$said" | head -n 1)" ;;
    esac
    [ -n "$(git ls-files -- Makefile)" ] || refuse "the git repository here is another one, which does not know the kit's files${1:+; $1}"
}
