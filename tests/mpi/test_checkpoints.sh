#!/usr/bin/env bash
# What checkpoint.h promises across ranks: a training that goes on from a checkpoint, of an epoch's end or
# inside one, makes the same steps, bit for bit, and sees the same figures as the one that saved it; and
# what ends a program at any moment leaves the last whole one.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_FLAGS HVDLAB_TRACE
small=(--data synthetic --images 120 --batch-size 8 --val-batch-size 24 --loader-threads 2 --epochs 3
    --target-accuracy 1)

# A training in which everything draws random numbers and keeps something: dropout, batch norm, momentum,
# a warm-up, augmentation, and, with PIPELINE, a stream that goes on over epochs. KILL=N kills rank 0 in
# the N-th step.
cat >"$folder/train.c" <<'END'
#include "hvdlab.h"
#include <signal.h>
#include <stdlib.h>

static Model *net(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = relu(batch_norm(max_pool(conv2d(image, 4, 3), 4)));
    return l2_penalty(model(image, softmax(dense(dropout(flatten(x), 0.3f), 10))), 0.0001f);
}

static int number(const char *name)
{
    return getenv(name) ? atoi(getenv(name)) : 0;
}

// A rate of its own for every step, which depends on the one before.
static void decay(Callback *self, Training *training)
{
    (void)self;
    Optimizer *optimizer = model_optimizer(training->model);
    if (training->epoch > 0)
        optimizer_set_learning_rate(optimizer, 0.99f * optimizer_learning_rate(optimizer));
}

static void kill_root(Callback *self, Training *training)
{
    (void)self;
    static int steps;
    (void)training;
    if (hvd_rank() == 0 && ++steps == number("KILL"))
        raise(SIGKILL);
}

static Batches *stream(const Dataset *data, Statistics statistics, int size)
{
    Pipeline *p = pipeline_from_dataset(data, statistics);
    p = pipeline_augment(p);
    p = pipeline_cache(p);
    p = pipeline_shuffle(p, 50);
    p = pipeline_repeat(p);
    p = pipeline_augment(p);
    p = pipeline_batch(p, size, true);
    if (number("PIPELINE") > 1)
        p = pipeline_prefetch(p, 3);
    return batches_from(p);
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    Dataset train = load_data(&args, TRAIN), test = load_data(&args, TEST);
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = number("PIPELINE") ? stream(&train, statistics, args.batch_size)
                                                : augmented_batches(&train, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args.val_batch_size);
    Optimizer *opt = number("ADAM") ? adam(0.003f) : sgd_momentum(0.02f, 0.9f, true);
    Model *model = compile(net(), CATEGORICAL_CROSSENTROPY, hvd_distributed_optimizer(opt));
    Callbacks callbacks = {0};
    Callback decays = {.batch_end = decay}, kills = {.batch_end = kill_root};
    if (args.checkpoint_dir)
        callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = args.checkpoint_dir,
                                                           .every = number("EVERY"),
                                                           .keep = number("KEEP"),
                                                           .best = number("BEST"),
                                                           .best_only = number("BEST") > 1}));
    callbacks_add(&callbacks, hvd_learning_rate_warmup(0.02f, 1));
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, &decays);
    callbacks_add(&callbacks, &kills);
    callbacks_add(&callbacks, hvd_metric_average());
    callbacks_add(&callbacks, stop_at_accuracy(args.target_accuracy, args.patience, 1));
    Fit plan = {
        .train            = train_batches,
        .epochs           = args.epochs,
        .steps_per_epoch  = batches_len(train_batches) / hvd_size(),
        .validation       = test_batches,
        .validation_steps = 2,
        .callbacks        = &callbacks,
        .verbose          = hvd_rank() == 0,
    };
    if (args.resume)
        restore_latest(model, &plan, args.checkpoint_dir);
    History history = fit(model, &plan);
    Score score = evaluate(model, test_batches, 0);
    if (hvd_rank() == 0) {
        for (int i = 0; i < history.epochs; i++)
            printf("history %d: %a %a %a\n", i, history.logs[i].loss, history.logs[i].val_loss, history.logs[i].lr);
        printf("score %a\n", score.loss);
    }
    return 0;
}
END
"$build/compile-step" "$folder/train.c" "$folder/train" || exit 1

# train RANKS NAME FLAG...: its trace is in NAME/, what it printed in NAME.out and NAME.err.
train()
{
    local ranks=$1 name=$2
    rm -rf "${folder:?}/$name"
    HVDLAB_TRACE=$folder/$name timeout 60 mpirun -np "$ranks" "$folder/train" "${small[@]}" "${@:3}" \
        >"$folder/$name.out" 2>"$folder/$name.err" </dev/null
    status=$?
}
trained()
{
    train "$@"
    [[ $status -eq 0 ]] || fail "status $status: $*: $(cat "$folder/$2.err")"
}

# What a rank did: steps, and what each epoch came to, without times.
deeds()
{
    grep -hE '"event":"(step|history|callback|evaluate_end|images|gradient|apply)"' "$folder/$1/rank-$2.jsonl" |
        sed 's/"t":[0-9.]*,//'
}

# goes_on RANKS WHOLE RESUMED: what the resumed run did on each rank is the end of what the whole one did.
goes_on()
{
    local rank lines
    for ((rank = 0; rank < $1; rank++)); do
        deeds "$3" "$rank" >"$folder/after"
        lines=$(wc -l <"$folder/after")
        [[ $(grep -c '"step"' "$folder/after") -gt 0 || ${steps_left:-} = none ]] || fail "$3: rank $rank trains nothing"
        deeds "$2" "$rank" | tail -n "$lines" | cmp -s - "$folder/after" ||
            fail "$3: rank $rank of $1 goes on otherwise: $(deeds "$2" "$rank" | tail -n "$lines" | diff - "$folder/after" | head -n 4)"
    done
    grep -h "^history\|^score" "$folder/$2.out" | cmp -s - <(grep "^history\|^score" "$folder/$3.out") ||
        fail "$3: other figures than $2: $(diff "$folder/$2.out" "$folder/$3.out")"
}

# only FOLDER NAME: a folder that has this checkpoint alone.
only()
{
    rm -rf "$folder/only"
    mkdir "$folder/only"
    cp "$folder/$1/$2".* "$folder/only"
}

# check RANKS WHICH... with the settings that are exported: from each of these checkpoints.
check()
{
    local ranks=$1 name
    rm -rf "$folder/saved"
    trained "$ranks" whole "${seed[@]}" --checkpoint-dir "$folder/saved"
    for name in "${@:2}"; do
        only saved "$name"
        trained "$ranks" "resumed" "${seed[@]}" --checkpoint-dir "$folder/only" --resume
        grep -q "^Restoring from $folder/only/$name$" "$folder/resumed.out" || fail "$name: $(head -n 2 "$folder/resumed.out")"
        goes_on "$ranks" whole resumed
    done
}

seed=(--seed 3)
EVERY=4 check 1 ckpt-1 ckpt-1-8
seed=()
EVERY=2 check 2 ckpt-0-4 ckpt-2
EVERY=3 PIPELINE=2 ADAM=1 check 3 ckpt-1-3 ckpt-2
EVERY=7 PIPELINE=1 check 2 ckpt-1-7

conclude
