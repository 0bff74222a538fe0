#!/usr/bin/env bash
# Environments that users have: settings for other programs, machines with less than others, files of other systems. The
# targets do the same as elsewhere, or say in one line what is wrong and what to do. In a copy of the kit.

. tests/lib.sh
for each in git unifdef; do
    command -v $each >/dev/null || skip "$each is not there"
done
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD TMPDIR NO_COLOR "${!HVD_@}" "${!SLURM_@}"
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
    grep -v '^make: \*\*\* \[' "$folder/err" >"$folder/line"
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

conclude
