#!/usr/bin/env bash
# Environments that users have: settings for other programs, machines with less than others, files of other systems. The
# targets do the same as elsewhere, or say in one line what is wrong and what to do. In a copy of the kit.

. tests/lib.sh
for each in git unifdef; do
    command -v $each >/dev/null || skip "$each is not there"
done
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD TMPDIR NO_COLOR "${!HVD_@}" "${!SLURM_@}"
built=$(realpath "$build")
kit=$folder/kit
mkdir "$kit"
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' path; do
    [[ ! -f $path ]] || printf '%s\0' "$path"
done | xargs -0 cp -Pp --parents -t "$kit"
cd "$kit" || exit 1

# says WORDS, says_not WORDS: of what ran last, on both outputs.
says() { grep -qF -e "$1" "$folder/out" "$folder/err" || fail "\"$1\" is not said: $(cat "$folder/out" "$folder/err")"; }
says_not() { ! grep -F -e "$1" "$folder/out" "$folder/err" || fail "\"$1\" is said"; }

# one_line WORDS COMMAND...: of make, with status 2; one line beside make's own has the words.
one_line()
{
    run "${@:2}"
    [[ $status -eq 2 ]] || fail "status $status instead of 2: ${*:2}: $(cat "$folder/out" "$folder/err")"
    # (make 4.4 has lines of its own about TMPDIR.)
    grep -vE '^make: (\*\*\* \[|TMPDIR value |using default temporary)' "$folder/err" >"$folder/line"
    [[ $(wc -l <"$folder/line") -eq 1 && $(cat "$folder/line") == *"$1"* ]] || fail "not one line with \"$1\": ${*:2}: $(cat "$folder/out" "$folder/err")"
}

# ---- Cores: those that this process may use, whatever OpenMP's threads are to be.

cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
for threads in 1 64; do
    [[ $(OMP_NUM_THREADS=$threads OMP_THREAD_LIMIT=$threads common/scripts/cores.sh) -eq $cores ]] || fail "OMP_NUM_THREADS=$threads: other cores than $cores"
    run env OMP_NUM_THREADS=$threads make -pn help
    grep -qE "^MAKEFLAGS = .*-j$cores( |\$)" "$folder/out" || fail "OMP_NUM_THREADS=$threads: $(grep ^MAKEFLAGS "$folder/out")"
    run env OMP_NUM_THREADS=$threads common/scripts/mpi.sh line $((cores + 1)) program
    says 'mpi_yield_when_idle 1'
done
! grep -rnE '\$\([^)]*\bnproc\b( -[^-]|[^ ]|$)' Makefile common .ci tests --include=Makefile --include='*.sh' --exclude=test_environment.sh || fail "nproc instead of common/scripts/cores.sh"

# ---- Settings of other programs, and empty ones, are none.

make -s help >"$folder/help"
make -s progress >"$folder/progress"
git init --quiet . && git add --all && git -c user.name=x -c user.email=x commit --quiet --message kit
echo 'echo from a start file; set -f; cd /' >"$folder/start"
# same VARIABLE=VALUE...: the same is printed as without.
same()
{
    run env "$@" make -s help
    cmp -s "$folder/out" "$folder/help" || fail "with $*, make help: $(diff "$folder/help" "$folder/out" | head -n 3)"
    run env "$@" make -s progress
    cmp -s "$folder/out" "$folder/progress" && [[ ! -s $folder/err ]] || fail "with $*, make progress: $(diff "$folder/progress" "$folder/out" | head -n 3) $(cat "$folder/err")"
}
same QUOTING_STYLE=shell-always CDPATH=".:$folder/kit" POSIXLY_CORRECT=1 GREP_OPTIONS=--color=always GREP_COLORS='mt=01;31' TMOUT=1 \
    BASH_ENV="$folder/start" ENV="$folder/start" SHELLOPTS=noglob BASHOPTS=failglob GLOBIGNORE='*' TAR_OPTIONS=--verbose \
    GIT_LITERAL_PATHSPECS=1 GIT_DIR=/nowhere GZIP=-v LS_COLORS=x LESS=-x BLOCK_SIZE=human OMP_NUM_THREADS=64
same BUILD= CC= CXX= LD= OBJCOPY= CLANG_FORMAT=
[[ ! -e /settings.compile ]] || fail "an empty BUILD is the root folder"
umask 077
succeeds env TAR_OPTIONS='--exclude=*.c' GIT_LITERAL_PATHSPECS=1 CDPATH=.:.. BASH_ENV="$folder/start" QUOTING_STYLE=c GZIP=-v make -s release EXERCISES=1 TO=class
umask 022
tar -C "$folder" -xf class/hvdlab.tar.gz
for file in .gitattributes Makefile steps/step_01.c tests/steps/check.c labs/02-six-steps/handout.md; do
    [[ -e $folder/hvdlab/$file ]] || fail "the release lacks $file"
done
# Students read it, whatever the instructor's umask.
[[ -z $(find class ! -path class/students ! -path class/.made-by-hvdlab ! -perm -o+r) ]] || fail "not for students: $(find class ! -perm -o+r | head -n 3)"
rm -r class

# ---- What students type: NP, hints that were not seen, files of other systems, terminals that know no codes.

for np in abc 0 -2 01 1x 1000 '2 3'; do
    refused "NP=$np is not a number from 1 to 999" env NP="$np" common/scripts/student.sh line 1 program
done
if [[ -w /dev/full ]]; then
    for target in hint-2 progress; do
        run sh -c "make -s $target >/dev/full"
        [[ $status -ne 0 && ! -e build/hints/step_02 ]] || fail "make $target >/dev/full: status $status"
        [[ $(wc -l <"$folder/err") -le 2 ]] || fail "make $target >/dev/full: $(cat "$folder/err")"
    done
fi
succeeds make -s hint-1
for content in '' x 99; do
    printf '%s' "$content" >build/hints/step_02
    succeeds make -s hint-2
    says 'Step 2, hint 1 of 3'
    [[ ! -s $folder/err ]] || fail "hint-2: $(cat "$folder/err")"
done
sed 's/$/\r/' steps/step_01.c >-x.c
make -s diff-1 >"$folder/diff"
run make -s diff-1 FILE=-x.c
[[ $status -eq 0 ]] && cmp -s <(tail -n +2 "$folder/out") <(tail -n +2 "$folder/diff") || fail "diff-1 of a file with CRLF: $(cat "$folder/out" "$folder/err")"
rm ./-x.c
# on_terminal VARIABLE=VALUE... COMMAND: in the file out, what it prints on a terminal.
on_terminal() { run script -qec "env $*" /dev/null; }
if command -v script >/dev/null; then
    for variable in NO_COLOR=1 TERM=dumb; do
        on_terminal TERM=xterm $variable make -s diff-1
        ! grep -q $'\033' "$folder/out" || fail "$variable make diff-1: colours"
    done
    on_terminal TERM=xterm make -s diff-1
    grep -q $'\033' "$folder/out" || fail "no colours on a terminal"
fi

# A user who wants no merges gets the course's files all the same.
git clone --quiet --bare . "$folder/course.git" && git clone --quiet "$folder/course.git" "$folder/student"
echo more >>README.md
git -c user.name=x -c user.email=x commit --quiet --all --message more && git push --quiet "$folder/course.git" HEAD
echo mine >>"$folder/student/steps/step_01.c"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=merge.ff GIT_CONFIG_VALUE_0=only
(cd "$folder/student" && succeeds common/scripts/update.sh && conclude) >"$folder/said" || fail "make update with merge.ff=only: $(cat "$folder/said")"
unset GIT_CONFIG_COUNT
cmp -s README.md "$folder/student/README.md" || fail "make update took nothing"

# What the course has renamed onto a student's own file: the student's moves aside.
git mv CITATION.cff mine.txt
git -c user.name=x -c user.email=x commit --quiet --message renamed && git push --quiet "$folder/course.git" HEAD
echo mine >"$folder/student/mine.txt"
(cd "$folder/student" && succeeds common/scripts/update.sh && conclude) >"$folder/said" || fail "make update where a file was renamed: $(cat "$folder/said")"
cmp -s mine.txt "$folder/student/mine.txt" && grep -qx mine "$folder"/student/mine.txt.mine-* || fail "a file of the student's is lost: $(ls "$folder/student")"
git mv mine.txt CITATION.cff
# The same where the student has committed or staged it.
for path in "labs/committed.txt" "labs/staged.txt"; do
    echo course >"$path"
    echo mine >"$folder/student/$path"
    git -C "$folder/student" add "$path"
    [[ $path != *committed* ]] || git -C "$folder/student" -c user.name=x -c user.email=x commit --quiet --message mine
    git add "$path" && git -c user.name=x -c user.email=x commit --quiet --message new && git push --quiet "$folder/course.git" HEAD
    run env -C "$folder/student" common/scripts/update.sh
    [[ $status -eq 0 && $(cat "$folder/student/$path") == course ]] && grep -qx mine "$folder/student/$path".mine-* &&
        grep -q "your $path is now $path.mine-" "$folder/out" || fail "make update where the student has $path: $(cat "$folder/out" "$folder/err")"
done

# git may ask on the terminal.
if command -v script >/dev/null; then
    git clone --quiet "$folder/course.git" "$folder/asked"
    git -C "$folder/asked" remote set-url origin ssh://nowhere/course
    printf '#!/bin/sh\nread -r name </dev/tty && echo "$name" >"%s"\nexit 1\n' "$folder/name" >"$folder/ssh" && chmod +x "$folder/ssh"
    (cd "$folder/asked" && echo me | GIT_SSH_COMMAND=$folder/ssh timeout $((20 * patience)) script -qec common/scripts/update.sh /dev/null) >"$folder/out"
    grep -qx me "$folder/name" || fail "make update, where git asks for a name: $(cat "$folder/out")"
fi

# An archive whose update was killed while it fetched: the next one begins again. A student's own repository stays.
mkdir "$folder/archive" && git archive HEAD | tar -C "$folder/archive" -x
printf '#!/bin/sh\nkill -9 "$UPDATE"\n' >"$folder/ssh" && chmod +x "$folder/ssh"
# shellcheck disable=SC2016 # of the shell that becomes it
run env -C "$folder/archive" FROM=ssh://nowhere/course GIT_SSH_COMMAND="$folder/ssh" sh -c 'export UPDATE=$$ && exec common/scripts/update.sh'
[[ $status -ne 0 && -e $folder/archive/.git ]] || fail "make update was not killed: $(cat "$folder/out" "$folder/err")"
git push --quiet "$folder/course.git" HEAD:main
succeeds env -C "$folder/archive" FROM="$folder/course.git" common/scripts/update.sh
git -C "$folder/archive" rev-parse --quiet --verify HEAD >/dev/null || fail "make update after one that was killed: $(cat "$folder/out" "$folder/err")"
# The same of an older kit's, which has no mark.
rm -rf "$folder/archive/.git" && git init --quiet "$folder/archive" && git -C "$folder/archive" remote add origin "$folder/course.git"
succeeds env -C "$folder/archive" FROM="$folder/course.git" common/scripts/update.sh
[[ -e $(echo "$folder/archive"/.git.mine-*) ]] || fail "make update has removed a repository: $(cat "$folder/out")"
rm -rf "$folder/archive/.git" && git init --quiet "$folder/archive" && touch "$folder/archive/.git/mine"
run env -C "$folder/archive" FROM="$folder/course.git" common/scripts/update.sh
[[ $status -eq 2 && -e $folder/archive/.git/mine ]] || fail "make update in another repository: $(cat "$folder/out" "$folder/err")"

# ---- Settings that can't be right: one line, before anything is built.

one_line "gcc: error: unrecognized argument to" env SANITIZE=1 make -s step-1
one_line "gcc: error: 3:" env OPT=3 make -s step-1
one_line "cannot find -lnot-there" env LDFLAGS=-lnot-there make -s build/settings.link
one_line "use SANITIZE=address" env CFLAGS=-fsanitize=address make -s step-1
one_line "make takes no blank" env BUILD="a folder" make -s step-1
for build in 'R&D' "it's" 'a(b' 'a=b'; do
    one_line "the shell and make take none of" make -s plan BUILD="$folder/named/$build"
done
succeeds bash -o pipefail -c 'make -s -n plan MODEL="it'\''s" | sh -n'
[[ ! -e $folder/named ]] || fail "something is built where BUILD is refused: $(ls "$folder/named")"
one_line "TMPDIR=/nowhere is no folder" env TMPDIR=/nowhere make -s step-1
one_line "no file may be larger than 100 KiB" bash -c 'ulimit -f 100; make -s step-1'
one_line "no file may be larger than 100 KiB" bash -c 'ulimit -f 100; . common/scripts/folders.sh; need_rights'
rm -rf build

# A system that lets nobody make networks: make cluster says so before it installs anything.
mkdir "$folder/no-networks"
printf '#!/bin/sh\necho "unshare: unshare failed: Operation not permitted" >&2\nexit 1\n' >"$folder/no-networks/unshare"
chmod +x "$folder/no-networks/unshare"
one_line "does not let you make networks: unshare: " env PATH="$folder/no-networks:$PATH" make -s cluster

# ---- What keeps mpirun and ranks from running: a job's variables without the job, no loopback, a full TMPDIR.

SLURM_JOBID=7 SLURM_NODELIST=a refused "unset SLURM_JOBID" common/scripts/mpi.sh line 2 program
SLURM_JOBID=7 SLURM_NODELIST=a refused "unset SLURM_JOBID" common/scripts/mpi.sh run 2 true
SLURM_JOBID=7 SLURM_NODELIST=$(uname -n) SLURM_TASKS_PER_NODE=2 succeeds common/scripts/mpi.sh line 2 program
command -v srun >/dev/null || # a shell kept from a job, on a machine without Slurm
    SLURM_JOBID=7 SLURM_NODELIST=a SLURM_TASKS_PER_NODE=2 refused "unset SLURM_JOBID" common/scripts/mpi.sh run 2 true
SLURM_JOBID=7 OMPI_MCA_btl=x OMP_NUM_THREADS=3 TMPDIR=/nowhere succeeds common/scripts/info.sh
says 'here: hvdlab: SLURM_JOBID is set, and other variables of a Slurm job are not: unset SLURM_JOBID, else mpirun fails'
says 'OMPI_MCA_btl OMP_NUM_THREADS SLURM_JOBID'
says '/nowhere is no folder that can be written to'
if [[ -x $built/solution_06 ]] && command -v script >/dev/null; then
    on_terminal SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_NTASKS=4 "$built/solution_06" --data synthetic --images 64 --width 1 --epochs 1
    says 'in a shell that srun started unset SLURM_STEP_ID'
fi
if unshare -n true 2>/dev/null; then
    refused 'ip link set lo up' unshare -n common/scripts/servers.sh 1 2 true
    succeeds unshare -n common/scripts/info.sh
    says 'the loopback interface is down'
fi
mkdir "$folder/tiny"
if mount -t tmpfs -o size=1m tmpfs "$folder/tiny" 2>/dev/null; then
    TMPDIR=$folder/tiny run timeout -k 1 50 common/scripts/info.sh
    says 'has 1 MB left, and Open MPI needs some'
    umount "$folder/tiny"
fi

# ---- Folders that can't be written to: root's, another user's, of a read-only disk.

nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/nonexistent)
chmod 755 "$folder"
if [[ $(id -u) -eq 0 ]] && "${nobody[@]}" test -r Makefile; then
    one_line "kit can't be written to: BUILD=/nonexistent/hvdlab-build builds there" "${nobody[@]}" make -s step-1
    mkdir -p build/steps && touch build/settings.compile
    chown 65534 build build/settings.compile
    for target in step-1 check-1 next clean; do
        one_line "build/steps belongs to root: sudo rm -rf build, then make without sudo" "${nobody[@]}" make -s $target
    done
    chown 1 build/steps
    one_line "build/steps belongs to another user, $(id -un 1): BUILD=folder builds in a folder of your own" "${nobody[@]}" make -s step-1
    rm -r build
fi

# ---- Git for Windows: a clone has the line ends that shells need; one that has not gets one line.

git -c core.autocrlf=true -c core.eol=crlf clone --quiet . "$folder/clone"
[[ -z $(git -C "$folder/clone" ls-files --eol | grep w/crlf | grep -v attr/-text) ]] || fail "core.autocrlf writes CRLF"
cp -R "$folder/clone" "$folder/crlf"
sed -i 's/$/\r/' "$folder/crlf/Makefile" "$folder"/crlf/common/scripts/*.sh
for target in help step-1 progress; do
    one_line "CRLF line ends" make -s -C "$folder/crlf" $target
done

conclude
