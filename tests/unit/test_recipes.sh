#!/usr/bin/env bash
# The recipes of CONTRIBUTING.md: each one's patch, in tests/unit/recipes/, is applied to a copy of the
# kit, which is built, and does what the recipe says. The recipe names each file that its patch touches.
# With --some, the patches are only applied.

. tests/lib.sh
command -v patch >/dev/null || skip "patch is not there"
limit=300

kit=$folder/kit
mkdir -p "$kit"
cp -Rp README.md Makefile CONTRIBUTING.md common labs tests "$kit/"
mkdir "$kit/build" "$kit/steps" "$kit/solutions" # which are cut again: what a student has edited is no matter
# What was built here need not be built again; the settings go along.
[[ ${1:-} == --some ]] || cp -Rp "$build"/common "$build"/tests "$build"/settings.* "$kit/build/" 2>/dev/null
cd "$kit" || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD FILE NAME YES V NP HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_TRACE

# section HEADING: that part of CONTRIBUTING.md.
section()
{
    awk -v heading="## $1" '/^## / { inside = $0 == heading } inside' CONTRIBUTING.md
}

# recipe NAME HEADING: applies its patch. A file counts as named where its folder is.
recipe()
{
    local patch=tests/unit/recipes/$1.patch file text
    text=$(section "$2")
    [[ $text == *"\`$1.patch\`"* ]] || fail "CONTRIBUTING.md, \"$2\", does not name $1.patch"
    for file in $(sed -n 's,^diff --git a/\([^ ]*\) .*,\1,p' "$patch"); do
        [[ $text == *"\`$file\`"* || $text == *"\`${file%/*}/\`"* ]] || fail "CONTRIBUTING.md, \"$2\", does not name $file"
    done
    patch --quiet --no-backup-if-mismatch -p1 <"$patch" >"$folder/out" 2>&1 || fail "$patch does not apply: $(cat "$folder/out")"
}
recipe callback "A callback"
recipe layer "A layer"
recipe transport "A transport"
recipe mistake "A known mistake, or a right answer written differently"
recipe lab "A lab"
if [[ ${1:-} == --some ]]; then
    recipe exercise "An exercise"
    conclude
fi

# ---- The lab, from nothing to passed.

succeeds make -s steps
succeeds tests/unit/test_labs.sh
succeeds common/scripts/layers.sh
succeeds make -s build/check-step build/compile-step build/replay build/tests/unit/test_csv_logger build/tests/unit/test_operations build/tests/unit/test_graphs
run make -s progress
grep -q '^  greeting .* untouched$' "$folder/out" || fail "make progress does not know the lab: $(cat "$folder/out")"
run make -s check-greeting
[[ $(tail -n 1 "$folder/out") == "greeting: failed: greeting-missing" ]] || fail "check-greeting, untouched: $(cat "$folder/out")"
succeeds make -s hint-greeting
sed -i 's|.*TODO: greeting.*|    if (hvd_rank() == 0) printf("Hello from %d workers\\n", hvd_size());|' steps/greeting.c
succeeds make -s step-greeting
grep -q '^mpirun .* build/greeting --width 1$' "$folder/out" || fail "step-greeting: $(cat "$folder/out")"
succeeds make -s check-greeting
[[ $(tail -n 1 "$folder/out") == "greeting: passed" ]] || fail "check-greeting: $(cat "$folder/out")"
succeeds tests/steps/test_graders.sh greeting
succeeds tests/steps/test_graders.sh validation-wrong--four-times
grep -q '^1 cases as expected, 0 not, 0 tried again$' "$folder/out" || fail "the known mistake: $(cat "$folder/out")"

# ---- A diagnosis: texts and uses fit together.

texts=tests/steps/diagnoses/judge_greeting.txt
cp $texts "$folder/texts"
# spoilt SED MESSAGE: with the texts changed like this, the judge is not compiled.
spoilt()
{
    sed "$1" "$folder/texts" >$texts
    run make -s build/tests/steps/judge_greeting.o
    [[ $status -ne 0 ]] && grep -qF -e "$2" "$folder/err" || fail "texts after sed '$1': status $status, $(cat "$folder/err")"
}
spoilt 's/^.greeting-wrong.$/[greeting-late]/' "judge_greeting.txt:7: d_greeting_late is not used in tests/steps/judge_greeting.c"
spoilt 's/^.greeting-wrong.$/[Greeting wrong]/' "judge_greeting.txt:7: no name of a diagnosis"
spoilt 's/^it is another line.*//' "judge_greeting.txt:8: no text above this line"
spoilt 1d "judge_greeting.txt:1: a text without a name"
spoilt '/^.greeting-wrong.$/,$d' "d_greeting_wrong"
cp "$folder/texts" $texts

# ---- An exercise more in it.

succeeds make -s reset-greeting YES=1
recipe exercise "An exercise"
succeeds make -s steps
succeeds tests/unit/test_labs.sh
succeeds make -s build/check-step
succeeds tests/steps/test_graders.sh farewell

# ---- The others.

succeeds build/tests/unit/test_csv_logger
CK_RUN_CASE="other operations" succeeds build/tests/unit/test_operations
succeeds build/tests/unit/test_graphs
succeeds make -s EMULATED=1 OPT=-O1 BUILD=build/simulated build/simulated/tests/unit/test_operations
CK_RUN_CASE="other operations" HVDLAB_TEST_DEVICE=gpu succeeds env -u CUDA_VISIBLE_DEVICES build/simulated/tests/unit/test_operations
HVD_TRANSPORT=root HVDLAB_TRACE=$folder/trace succeeds common/scripts/mpi.sh run 2 build/replay \
    tests/golden/cases/mlp_sgd.safetensors --tolerance 1e-5
grep -q '"event":"transport".*"name":"root"' "$folder/trace/rank-1.jsonl" || fail "HVD_TRANSPORT=root is not taken"

conclude
