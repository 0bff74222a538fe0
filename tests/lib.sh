# shellcheck shell=bash
# What the tests that are shell scripts share. Each begins with ". tests/lib.sh", in the root of the
# kit, says with fail what is wrong, and ends with conclude. BUILD is where the kit was built.

set -u
export LC_ALL=C # figures with a point
# shellcheck disable=SC2034 # of the scripts
build=${BUILD:-build}
limited=$PWD/tests/limit.sh
folder=$(mktemp -d) || exit 1 # for what a test writes; it is removed
trap 'rm -rf "$folder"' EXIT
failures=0
# How many times as long as elsewhere something may take: as run.sh says, or on a busy machine.
# shellcheck disable=SC2034 # of the scripts
patience=${CK_TIMEOUT_MULTIPLIER:-$(tests/limit.sh busy)}

fail()
{
    printf 'FAIL: %s\n' "$1"
    failures=$((failures + 1))
}

# The end of a test that this machine can't run.
skip()
{
    echo "skipped: $1"
    exit 77
}

# run COMMAND...: its status is in $status, and what it printed in out and err in the folder.
run()
{
    "$limited" $((${limit:-60} * ${TEST_PATIENCE:-${CK_TIMEOUT_MULTIPLIER:-1}})) "$@" >"$folder/out" 2>"$folder/err" </dev/null
    status=$?
}

# succeeds COMMAND...: status 0.
succeeds()
{
    run "$@"
    [[ $status -eq 0 ]] || fail "status $status: $*: $(cat "$folder/out" "$folder/err")"
}

# refused WORDS COMMAND...: status 2, nothing on standard output, and one line on standard error, which
# holds the words.
refused()
{
    run "${@:2}"
    [[ $status -eq 2 ]] || fail "status $status instead of 2: ${*:2}"
    [[ ! -s $folder/out ]] || fail "something on standard output: ${*:2}: $(cat "$folder/out")"
    [[ $(wc -l <"$folder/err") -eq 1 ]] || fail "not one line: ${*:2}: $(cat "$folder/err")"
    grep -qF -e "$1" "$folder/err" || fail "\"$1\" is not in: $(cat "$folder/err")"
}

# first_loss FILE: of what replay wrote, the first number of the tensor "loss" (safetensors: a length, a header, data).
first_loss()
{
    local header offset
    header=$(od -An -tu8 -N8 "$1")
    offset=$(head -c $((8 + header)) "$1" | grep -aoE '"loss":\{[^}]*\}' | sed -E 's/.*\[([0-9]+),.*/\1/')
    od -An -tf4 -j $((8 + header + offset)) -N4 "$1"
}

# The last line of a test.
conclude()
{
    [[ $failures -gt 0 ]] || echo "all as promised"
    exit $((failures > 0))
}
