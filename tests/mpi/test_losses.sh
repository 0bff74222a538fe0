#!/usr/bin/env bash
# What gets lost or goes wrong on the way, and is told: a log that can't be written, standard output
# that is closed or goes to a full disk, a loss that is no number, sizes and counts from the
# environment that make no sense. A line of the program's, and its status; nothing hangs.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
baseline=$build/cut/baseline
solution=$build/solution_06
small=(--data synthetic --images 128 --width 1 --batch-size 32 --epochs 1 --loader-threads 2)
here=("${small[@]}" --log-dir "$folder/logs")

# ends STATUS WORDS COMMAND...: status and words, of which one line on standard error has them.
ends()
{
    run "${@:3}"
    told "$1" "$2" "${*:3}"
}
told()
{
    [[ $status -eq $1 ]] || fail "status $status instead of $1: $3: $(cat "$folder/err")"
    [[ $(grep -cF -e "$2" "$folder/err") -eq 1 ]] || fail "\"$2\" is not once in: $3: $(cat "$folder/err")"
}
# Only that line.
alone()
{
    [[ $(wc -l <"$folder/err") -eq 1 ]] || fail "not one line: $(cat "$folder/err")"
}

# Standard output: full, closed; and nothing of it lands in a file that is opened instead.
if [[ -w /dev/full ]]; then
    "$baseline" "${here[@]}" >/dev/full 2>"$folder/err"
    status=$?
    told 1 "baseline: standard output could not be written" "to a full disk"
    alone
    timeout $((60 * patience)) mpirun -np 2 "$solution" "${here[@]}" >/dev/full 2>"$folder/err"
    status=$?
    told 1 "solution_06: mpirun could not write all of standard output: its disk was full" "mpirun to a full disk"
fi
rm -rf "$folder/logs"
"$baseline" "${here[@]}" >&- 2>"$folder/err"
status=$?
told 1 "baseline: standard output could not be written" "closed"
alone
! grep -qra "Epoch 1/1" "$folder/logs" || fail "standard output was closed, and a log got it"
rm -rf "$folder/logs"
"$baseline" "${here[@]}" --base-lr 1e30 >&- 2>&-
[[ $? -eq 1 ]] || fail "both are closed: status is not 1"
! grep -qra "baseline:" "$folder/logs" || fail "standard error was closed, and a log got it"

# A small network, which trains fast.
cat >"$folder/one.c" <<'END'
#include "hvdlab.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// Rank 2 loses its numbers before it computes a step; the others only get them by the average.
static void spoil(Callback *self, Training *training)
{
    (void)self;
    static float values[28 * 28 * 10];
    if (hvd_rank() != 2 || training->epoch != 1 || training->step != 2)
        return;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = NAN;
    model_write_variable(training->model, 0, values);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    Dataset train = load_data(&args, TRAIN);
    Batches *batches = plain_batches(&train, image_statistics(&train), args.batch_size);
    Tensor image = input(28, 28, 1);
    Model *net = compile(model(image, softmax(dense(flatten(image), 10))), CATEGORICAL_CROSSENTROPY,
                         hvd_distributed_optimizer(sgd(args.base_lr)));
    Callback *spoiler = calloc(1, sizeof *spoiler);
    spoiler->batch_begin = spoil;
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, spoiler);
    callbacks_add(&callbacks, tensorboard(args.log_dir));
    fit(net, &(Fit){.train = batches, .epochs = args.epochs, .steps_per_epoch = 4,
                    .callbacks = &callbacks});
    printf("came to its end\n");
    return 0;
}
END
"$build/compile-step" "$folder/one.c" "$folder/one" || exit 1

# A log folder that is deleted while the training goes on.
rm -rf "$folder/logs"
(
    for ((i = 0; i < 500 * patience; i++)); do
        compgen -G "$folder/logs/events*" >/dev/null && break
        sleep 0.02
    done
    rm -r "$folder/logs"
) &
ends 1 "it has been deleted; the training goes on without it" "$folder/one" "${here[@]}" --epochs 1000
wait
grep -q "^one: the log .* is not complete: it has been deleted$" "$folder/err" ||
    fail "the end does not say what is missing: $(cat "$folder/err")"
grep -q "^came to its end" "$folder/out" || fail "the training did not go on"

# A disk that is full: as much of it as the log begins with, in a place of its own.
cat >"$folder/on-small-disk" <<'END'
mount -t tmpfs -o size=16k none "$1" || exit 77
head -c 12k /dev/zero >"$1/rest" || exit 77
shift
exec "$@"
END
mkdir "$folder/disk"
run unshare -rm bash "$folder/on-small-disk" "$folder/disk" "$folder/one" "${small[@]}" --epochs 100 \
    --log-dir "$folder/disk/logs"
if grep -q "^came to its end" "$folder/out"; then
    told 1 "No space left on device; the training goes on without it" "a full disk"
    run unshare -rm env HVDLAB_TRACE="$folder/disk/trace" bash "$folder/on-small-disk" "$folder/disk" \
        "$folder/one" "${here[@]}"
    told 1 "one: warning: HVDLAB_TRACE: cannot write: " "a trace on a full disk"
    told 1 "one: HVDLAB_TRACE: the trace is not complete: " "a trace on a full disk"
    grep -q "^came to its end" "$folder/out" || fail "the program did not go on without its trace"
else
    echo "no disk of its own: $(cat "$folder/err")"
fi

# Losses that are no numbers.
ends 1 "baseline: the loss is nan in epoch 1, step 2, at learning rate 1e+30: " "$baseline" "${here[@]}" --base-lr 1e30
alone
ends 1 "one: rank 2: the loss is nan in epoch 2, step 3, at learning rate 0.01: " \
    mpirun -np 3 "$folder/one" "${here[@]}" --epochs 3
[[ $(grep -c "^one: " "$folder/err") -eq 1 ]] || fail "not one line of the program: $(cat "$folder/err")"

# More workers than batches.
ends 2 "solution_06: fit: steps_per_epoch is 0, but an epoch needs at least 1: 128 images (--images) in batches of 64 (--batch-size) make 2 of them, for 3 workers" \
    mpirun -np 3 "$solution" "${here[@]}" --batch-size 64

# Sizes and counts from the environment. nonsense VARIABLE=VALUE... WORDS
nonsense()
{
    ends 2 "${*: -1}" env "${@:1:$#-1}" "$baseline" "${here[@]}"
    alone
}
for value in 2147483647 99999999999999999999 0 -1 1.5 2x 1025; do
    nonsense "HVDLAB_DEVICES=$value" "HVDLAB_DEVICES=$value is not a whole number from 1 to 1024"
done
for value in 2147483647 -2147483648 0 x; do
    nonsense "HVD_RANKS_PER_NODE=$value" "HVD_RANKS_PER_NODE=$value is not a whole number from 1 to 1048576"
done
nonsense HVD_LAYOUT=999 HVDLAB_DEVICES=1024 "1000 nodes (HVD_LAYOUT, HVD_RANKS_PER_NODE) of 1024 devices each"
nonsense HVD_LAYOUT=10000 "HVD_LAYOUT=10000 does not name a node"

# A launcher's environment that contradicts itself.
open_mpi=OMPI_COMM_WORLD
nonsense ${open_mpi}_RANK=0 ${open_mpi}_SIZE=2147483647 "${open_mpi}_SIZE=2147483647 is not a whole number from 1 to 1048576"
nonsense ${open_mpi}_RANK=4 ${open_mpi}_SIZE=4 "${open_mpi}_RANK=4 is not a whole number from 0 to 3"
nonsense ${open_mpi}_RANK=-1 ${open_mpi}_SIZE=4 "${open_mpi}_RANK=-1 is not a whole number from 0 to 3"
nonsense ${open_mpi}_RANK=0 ${open_mpi}_SIZE=0 "${open_mpi}_SIZE=0 is not a whole number from 1"
nonsense ${open_mpi}_RANK=0 ${open_mpi}_SIZE=4 ${open_mpi}_LOCAL_SIZE=5 "${open_mpi}_LOCAL_SIZE=5 is not a whole number from 1 to 4"
nonsense ${open_mpi}_RANK=0 ${open_mpi}_SIZE=4 ${open_mpi}_LOCAL_SIZE=2 ${open_mpi}_LOCAL_RANK=2 \
    "${open_mpi}_LOCAL_RANK=2 is not a whole number from 0 to 1"
nonsense PMI_RANK=3 PMI_SIZE=x "PMI_SIZE=x is not a whole number"
nonsense SLURM_STEP_ID=0 SLURM_PROCID=9 SLURM_NTASKS=9 "SLURM_PROCID=9 is not a whole number from 0 to 8"
succeeds env SLURM_PROCID=9 SLURM_NTASKS=9 "$baseline" "${here[@]}" # of a job's shell: no step

conclude
