#!/usr/bin/env bash
# Usage: tests/valgrind.sh [NAME...]
#
# Runs a short training, replay, alone and on two ranks, the readers and the unit tests that read and write
# under valgrind's memcheck, which sees numbers that nobody has set, also inside libraries that no
# sanitizer has instrumented. Leaks are the address sanitizer's business. tests/valgrind.supp holds what
# others' libraries do; with SUPPRESSIONS=1 what is said comes in its form. A line for each; status 1 if
# valgrind has anything to say.

cd "$(dirname "$0")/.." || exit 2
. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVDLAB_FLAGS HVDLAB_TRACE "${!HVD_@}"
# One thread a device: valgrind runs one at a time.
export OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1 CK_TIMEOUT_MULTIPLIER=30

little=(--data synthetic --images 8 --batch-size 4 --val-batch-size 4 --epochs 1 --seed 1
    --loader-threads 1 --log-dir "$folder/logs")
memcheck=(valgrind --quiet --error-exitcode=99 --leak-check=no "--suppressions=$PWD/tests/valgrind.supp"
    "--log-file=$folder/%p.log" --)
[[ -z ${SUPPRESSIONS:-} ]] || memcheck=("${memcheck[@]:0:5}" --gen-suppressions=all "${memcheck[@]:5}")
runs=(
    "train tests/faults/small train ${little[*]}"
    "replay replay tests/golden/cases/mlp_nesterov.safetensors --out $folder/out"
    "labs tests/faults/small lab $folder/labs"
    "args tests/unit/test_args"
    "dataset tests/unit/test_dataset"
    "cifar10 tests/unit/test_cifar10"
    "safetensors tests/unit/test_safetensors"
    "tensorboard tests/unit/test_tensorboard"
    "base tests/unit/test_base"
    "error tests/unit/test_error"
    "launcher tests/unit/test_launcher"
    "ranks replay tests/golden/cases/mlp_adam.safetensors --tolerance 1e-4"
)
common/scripts/labs.sh runs >"$folder/labs"
for line in "${runs[@]}"; do
    read -ra words <<<"$line"
    name=${words[0]} begin=$SECONDS start=()
    [[ $# -eq 0 || " $* " = *" $name "* ]] || continue
    [[ $name != ranks ]] || start=(mpirun -np 2)
    rm -f "$folder"/*.log
    timeout 300 "${start[@]}" "${memcheck[@]}" "$build/${words[1]}" "${words[@]:2}" \
        >"$folder/printed" 2>&1 </dev/null
    status=$?
    # Errors begin so; what begins with -- is of valgrind's own troubles, such as a call of the kernel that it
    # does not know yet.
    grep -h -v '^--[0-9]*-- ' "$folder"/*.log >"$folder/said" 2>/dev/null
    if [[ $status -eq 0 && ! -s $folder/said ]]; then
        printf '%-12s %4d s  ok\n' "$name" $((SECONDS - begin))
    else
        fail "$name: status $status: $(tail -n 5 "$folder/printed") $(head -n 60 "$folder/said")"
    fi
done
conclude
