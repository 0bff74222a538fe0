#!/usr/bin/env bash
# Checks under conditions that have nothing to do with the program that is graded: two at once, a path with blanks, an
# environment made for other programs, a full disk, a compiler or an mpirun that fails. A verdict is right, or there is
# none. Also: files that are no C, SEED, and what the JSON says of the file.

. tests/lib.sh
limit=120
[[ -x $build/check-step && -x $build/compile-step ]] || {
    echo "$build/check-step or $build/compile-step is not there: make them first" >&2
    exit 2
}
here=$(realpath "$build")
common/scripts/steps.sh cut "$folder/cut" || exit 1
solution=$folder/cut/solutions/tensor.c untouched=$folder/cut/steps/tensor.c # an exercise of one process, which takes little time
export BUILD=$folder/build
mkdir "$BUILD"
cp "$here/hvdlab.o" "$here/compile-step" "$BUILD"
json=$BUILD/check/step_01.json
echo 'int main(void) { return 3; }' >"$folder/ends.c"
echo 'int main(void) { return no_such_name; }' >"$folder/wrong.c"

# verdict FILE, of what a check has printed; field NAME, of the verdict.
verdict() { tail -n 1 "$1" | sed 's/^[^:]*: //; s/^failed: //'; }
field() { sed -n "s/^\t\"$1\":\t\(.*\),\$/\1/p" "${2:-$json}"; }

# expect VERDICT WORD...: a check with these words. No folder of a run may be left.
expect()
{
    run "$here/check-step" "${@:2}"
    [[ $(verdict "$folder/out") == "$1" ]] || fail "$(verdict "$folder/out") instead of $1: ${*:2}: $(cat "$folder/out" "$folder/err")"
    [[ -z $(left) ]] || fail "left behind by ${*:2}: $(left)"
}
left() { compgen -G "$BUILD/check/run-*"; }
says() { grep -qF -e "$1" "$folder/out" || fail "\"$1\" is not said: $(cat "$folder/out")"; }

# no_verdict WORDS WORD...: status 2, one line with the words, and no verdict.
no_verdict()
{
    rm -f "$json"
    refused "$1" "$here/check-step" "${@:2}"
    [[ ! -e $json ]] || fail "there is a verdict all the same: ${*:2}"
    [[ -z $(left) ]] || fail "left behind by ${*:2}: $(left)"
}

# Where nothing can seal a submission, as in a chroot, it is graded all the same.
: >"$folder/nothing.c"
run "$here/check-step" --sealed 1 "$folder/nothing.c"
sealed=--sealed
[[ $status -ne 2 ]] || sealed=--unsealed

# ---- Two checks at once.

# both FILE VERDICT FILE VERDICT EXERCISE JSON
both()
{
    "$here/check-step" "$5" "$1" >"$folder/one" 2>&1 &
    "$here/check-step" "$5" "$3" >"$folder/two" 2>&1
    wait
    [[ $(verdict "$folder/one") == "$2" ]] || fail "at once: $(verdict "$folder/one") instead of $2: $(cat "$folder/one")"
    [[ $(verdict "$folder/two") == "$4" ]] || fail "at once: $(verdict "$folder/two") instead of $4: $(cat "$folder/two")"
    # The verdict that stays is that of the file beside it.
    [[ $(field sha256 "$6") == "\"$(sha256sum <"${6%.json}.c" | cut -c 1-64)\"" ]] || fail "at once: the verdict is not that of the file beside it"
}
both "$solution" passed "$untouched" "$(cat tests/mistakes/tensor/untouched)" tensor "$BUILD/check/tensor.json"
for _ in 1 2 3 4; do
    both "$folder/ends.c" crashed "$folder/wrong.c" does-not-compile tensor "$BUILD/check/tensor.json"
done
[[ -z $(left) ]] || fail "left behind: $(left)"

# What a check leaves that is killed, the next one removes, but nothing of one that is at work.
"$here/check-step" tensor "$solution" >/dev/null 2>&1 &
killed=$!
for ((i = 0; i < 600; i++)); do
    ! compgen -G "$BUILD/check/run-*/1-*/temporary" >/dev/null || break
    sleep 0.05
done
temporary=$(readlink "$BUILD"/check/run-*/1-*/temporary)
[[ -d $temporary ]] || fail "the run has no temporary folder"
kill -9 $killed
wait $killed 2>/dev/null
# As mpirun may, which ends a moment later.
for ((end = SECONDS + 2, i = 0; SECONDS < end; i++)); do : >"$temporary/late-$i"; done 2>/dev/null &
"$here/check-step" tensor "$solution" >"$folder/one" 2>&1 &
run "$here/check-step" --out "$folder/out.json" 1 "$folder/wrong.c"
[[ $(verdict "$folder/out") == does-not-compile && $(field diagnosis "$folder/out.json") == '"does-not-compile"' ]] || fail "--out has no verdict"
wait
[[ $(verdict "$folder/one") == passed ]] || fail "another check has disturbed this one: $(cat "$folder/one")"
[[ -z $(left) && ! -d $temporary ]] || fail "a check that was killed has left: $(left) $temporary"

# ---- Settings for other programs, a job without its Slurm, and a rank that this process is not.

OMPI_MCA_btl=openib OMPI_MCA_pml=ucx PMIX_MCA_gds=none SLURM_JOBID=77 SLURM_NODELIST=node1 SLURM_NTASKS=8 OMPI_COMM_WORLD_RANK=3 \
    OMPI_COMM_WORLD_SIZE=4 OMP_NUM_THREADS=x HWLOC_SYNTHETIC=pack:1 TMPDIR=/nowhere LANG=de_DE.UTF-8 expect passed 1 "$folder/cut/solutions/step_01.c"

# ---- Files that are no C, and what compilers say of a submission.

# no_c WORDS BYTES: a file of these bytes, as printf writes them.
no_c()
{
    # shellcheck disable=SC2059 # it is one
    printf "$2" >"$folder/no-c.c"
    expect does-not-compile $sealed 1 "$folder/no-c.c"
    tr -s '\n ' '  ' <"$folder/out" >"$folder/words"
    grep -qF -e "$1" "$folder/words" || fail "\"$1\" is not said: $(cat "$folder/out")"
}
iconv -f UTF-8 -t UTF-16LE "$folder/cut/solutions/step_01.c" >"$folder/utf-16.c"
expect does-not-compile 1 "$folder/utf-16.c"
says 'the file is UTF-16: save it as UTF-8'
no_c 'UTF-16' '\377\376i\0n\0t\0'
no_c 'UTF-16' '\376\377\0i\0n\0t'
no_c 'a zip archive' 'PK\003\004ring.c'
no_c 'gzip' '\037\213\010\0'
no_c 'an archive' 'Rar!\032\007\001'
no_c 'a compiled program' '\177ELF\002\001'
no_c 'a PDF' '%%PDF-1.5'
no_c 'a word processor' '{\\rtf1 int main'
no_c 'a page of the web' '\n<!DOCTYPE html>\n<html>'
no_c 'a picture' '\211PNG\r\n'
if [[ $sealed = --sealed ]]; then
    expect does-not-compile --sealed 1 "$folder/wrong.c"
    says 'step_01.c:1:'
    ! grep -qE '(^| )/' "$folder/out" || fail "a path of this machine is shown: $(cat "$folder/out")"
    echo 'int main(void) { return no_such_function(); }' >"$folder/no-name.c"
    expect does-not-compile --sealed 1 "$folder/no-name.c"
    ! grep -qE '(^| )/' "$folder/out" || fail "a path of this machine is shown: $(cat "$folder/out")"
fi

# ---- SEED, and what the JSON says of the file.

check() { run env "$@" BUILD="$BUILD" FILE="$folder/cut/steps/step_01.c" common/scripts/student.sh check 1; }
for seed in 0 -1 01 x 1.5 1000000000 '1 2'; do
    check SEED="$seed"
    [[ $status -eq 2 && $(cat "$folder/err") == *"SEED=$seed is not a whole number from 1 to 999999999" ]] || fail "SEED=$seed is taken: $(cat "$folder/err")"
done
cp "$here/check-step" "$BUILD"
check SEED=858134435
[[ $(field seed) == 858134435 && $(verdict "$folder/out") == "$(cat tests/mistakes/step_01/untouched)" ]] || fail "SEED is not taken: $(cat "$folder/out" "$folder/err")"
cp "$folder/out" "$folder/one"
expect "$(cat tests/mistakes/step_01/untouched)" $sealed --seed 858134435 1 "$folder/cut/steps/step_01.c"
cmp -s "$folder/one" "$folder/out" || fail "with one seed there are two verdicts: $(diff "$folder/one" "$folder/out")"
refused 'from 1 to 999999999' "$here/check-step" --seed 0 1 "$folder/ends.c"
expect passed --seed 5 resume "$folder/cut/solutions/resume.c" # other hosts' numbers: the first of them sees all checkpoints
[[ $(field sha256) == "\"$(sha256sum <"$folder/cut/steps/step_01.c" | cut -c 1-64)\"" && $(field untouched) == true ]] || fail "the JSON does not name its file"
sed 's/$/\r/' "$folder/cut/steps/tensor.c" >"$folder/untouched.c"
expect "$(cat tests/mistakes/tensor/untouched)" tensor "$folder/untouched.c"
says 'note  untouched: this is the file as it was handed out'
[[ $(field untouched "$BUILD/check/tensor.json") == true ]] || fail "the JSON does not say that the file is untouched"

# ---- On a terminal no line is longer than it is wide, and all words are there.

sed 's/opt = hvd_distributed_optimizer(opt);/Optimizer *other = hvd_distributed_optimizer(opt); (void)other;/' "$folder/cut/solutions/step_03.c" >"$folder/other.c"
expect wrapped-but-not-used 3 "$folder/other.c"
says ' opt = hvd_distributed_optimizer(opt), before'
if command -v script >/dev/null; then
    expect init-missing 1 "$folder/cut/steps/step_01.c"
    tr -s ' \n' ' ' <"$folder/out" >"$folder/words"
    for columns in 30 50 72; do
        script -qec "stty cols $columns; '$here/check-step' 1 '$folder/cut/steps/step_01.c'" /dev/null </dev/null | tr -d '\r' >"$folder/out"
        awk -v most=$((columns < 40 ? 40 : columns)) 'length > most { exit 1 }' "$folder/out" || fail "on $columns columns: $(cat "$folder/out")"
        [[ $(tail -n 1 "$folder/out") == "step 1: failed: init-missing" ]] || fail "on $columns columns the last line is no verdict"
        tr -s ' \n' ' ' <"$folder/out" | cmp -s - "$folder/words" || fail "on $columns columns there are other words: $(cat "$folder/out")"
    done
fi

# ---- A path with blanks, and what else shells and make may take for something.

kit="$folder/my lab ü 100% \$x 'q' [a] {b,c};e & f"
mkdir -p "$kit/build"
cp -R Makefile common labs solutions steps tests "$kit/"
cp "$here/hvdlab.o" "$here/compile-step" "$here/check-step" "$kit/build/"
sed -i "s|[^ ]*/hvdlab.o|build/hvdlab.o|" "$kit/build/compile-step"
(cd "$kit" && BUILD='' run build/check-step 1 "$folder/cut/solutions/step_01.c")
[[ $(verdict "$folder/out") == passed ]] || fail "in a path with blanks: $(cat "$folder/out" "$folder/err")"

# The stamp in a student's package sets the seed of the answer sheets; an old one names one of them.
for names in profile 'profile and diagnose'; do
    echo "seed for $names: 4711" >"$kit/stamp.txt"
    (cd "$kit" && BUILD='' run build/check-step ${names##* } "$folder/cut/solutions/${names##* }.c")
    [[ $(verdict "$folder/out") == another-seed ]] || fail "stamp.txt is not read: $(cat "$folder/out" "$folder/err")"
done

# ---- What fails is not the program: the compiler, mpirun, the disk, rights. compiler COMMAND: edits compile-step.

solution=$folder/cut/solutions/step_01.c
compiler() { sed "$1" "$here/compile-step" >"$BUILD/compile-step"; }
compiler 's|[^ ]*/hvdlab.o|/nowhere/hvdlab.o|'
no_verdict '/nowhere/hvdlab.o' 1 "$solution"
compiler "s|^[^ ]* -std=|no-such-compiler -std=|"
no_verdict 'no-such-compiler' 1 "$solution"
compiler 's|^[^ ]* -std=.*|kill -9 $$|'
no_verdict 'status 137' 1 "$solution"
compiler ''
mkdir "$folder/bin"
cat >"$folder/bin/mpirun" <<'END'
#!/bin/sh
[ "$1" != --version ] || exec "$MPIRUN" --version
exec "$MPIRUN" --mca btl none --mca pml ob1 "$@"
END
sed -i "s|\$MPIRUN|$(command -v mpirun)|" "$folder/bin/mpirun"
chmod +x "$folder/bin/mpirun"
PATH=$folder/bin:$PATH no_verdict "can't communicate" 1 "$solution"
if mount -t tmpfs -o size=64k tmpfs "$BUILD/check" 2>/dev/null; then
    no_verdict 'is full' 1 "$solution"
    mount -o remount,size=1200k "$BUILD/check"
    no_verdict 'No space left' 1 "$solution"
    umount "$BUILD/check"
fi
chmod 755 "$folder" "$BUILD"
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
if [[ $(id -u) -eq 0 ]] && "${nobody[@]}" test -r Makefile -a -x "$here/check-step" -a -r "$solution"; then
    refused 'which belongs to root: sudo rm -rf' "${nobody[@]}" "$here/check-step" 1 "$solution"
fi

conclude
