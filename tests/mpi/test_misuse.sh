#!/usr/bin/env bash
# What a program can get wrong in calling hvd, on one rank and on several: one clear line and status
# 2, for each mistake. And what hvd says of trainings that follow each other: the table of ranks.

set -u
build=${BUILD:-build}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_FUSION_THRESHOLD HVDLAB_TRACE HVDLAB_FLAGS
failures=0

fail()
{
    printf 'FAIL: %s\n' "$1"
    failures=$((failures + 1))
}

# ranks N NAME WORD...: the program's case of that name. One rank needs no mpirun.
ranks()
{
    local start="mpirun -np $1"
    [[ $1 -gt 1 ]] || start=
    timeout $((30 * ${CK_TIMEOUT_MULTIPLIER:-1})) $start "$folder/cases" "${@:2}" >"$folder/out" 2>"$folder/err" </dev/null
}

# refused N NAME WORDS: status 2, and the words once on standard error.
refused()
{
    ranks "$1" "$2"
    local status=$?
    [[ $status -eq 2 ]] || fail "$2 on $1 ranks: status $status instead of 2: $(cat "$folder/err")"
    [[ $(grep -cF -e "$3" "$folder/err") -eq 1 ]] || fail "$2 on $1 ranks: \"$3\" not once in: $(cat "$folder/err")"
    [[ $(grep -c "internal error" "$folder/err") -eq 0 ]] || fail "$2 on $1 ranks: $(cat "$folder/err")"
}

cat >"$folder/cases.c" <<'END'
#include "hvdlab.h"
#include "lessons/exercises.h"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Dataset data;
static Batches *batches;

static Model *small(Optimizer *optimizer)
{
    Tensor image = input(28, 28, 1);
    return compile(model(image, softmax(dense(flatten(image), 10))), CATEGORICAL_CROSSENTROPY,
                   optimizer);
}

static Model *with_units(int units)
{
    Tensor image = input(28, 28, 1);
    Tensor x = dense(flatten(image), units);
    return compile(model(image, softmax(dense(x, 10))), CATEGORICAL_CROSSENTROPY, sgd(0));
}

static void train(Model *model, int epochs)
{
    fit(model, &(Fit){.train = batches, .epochs = epochs, .steps_per_epoch = 2});
}

static void three_seconds(Callback *self, Training *training)
{
    (void)self, (void)training;
    if (hvd_rank() == 1)
        sleep(3);
}

static void nothing(float *values, size_t count, MPI_Comm comm)
{
    (void)values, (void)count, (void)comm;
}

int main(int argc, char **argv)
{
    const char *name = argv[1];
    argv[1] = argv[0];
    Args args = parse_args(argc - 1, argv + 1);
    args.data = DATA_SYNTHETIC;
    args.images = 64;
    data = load_data(&args, TRAIN);
    batches = plain_batches(&data, image_statistics(&data), 32);
    float value = 1, *none = NULL;
    size_t total;
#define CASE(words) else if (strcmp(name, words) == 0)
    if (strcmp(name, "before init") == 0)
        hvd_allreduce(&value, 1, HVD_SUM);
    CASE("group before init") hvd_world();
    CASE("sweep before init") sweep_allreduce("nothing", nothing, 1);
    hvd_init();
    if (0) {}
    CASE("wrapped twice") (void)!hvd_distributed_optimizer(hvd_distributed_optimizer(sgd(0.1f)));
    CASE("wrapped nothing") (void)!hvd_distributed_optimizer(NULL);
    CASE("no passes") (void)!hvd_distributed_optimizer_every(sgd(0.1f), 0);
    CASE("warm-up from nowhere") (void)!hvd_learning_rate_warmup(0.0f / 0.0f, 1);
    CASE("trained after shutdown") {
        Model *model = small(hvd_distributed_optimizer(sgd(0.1f)));
        hvd_shutdown();
        train(model, 1);
    }
    CASE("trained after finalize") {
        Model *model = small(hvd_distributed_optimizer(sgd(0.1f)));
        MPI_Finalize();
        train(model, 1);
    }
    CASE("alone after shutdown") {
        Model *model = small(sgd(0.1f));
        train(model, 1);
        hvd_shutdown();
        train(model, 1);
    }
    CASE("init after shutdown") { hvd_shutdown(); hvd_init(); }
    CASE("rank after shutdown") { hvd_shutdown(); exit(hvd_rank()); }
    CASE("no values") hvd_allreduce(none, 3, HVD_SUM);
    CASE("no such operation") hvd_allreduce(&value, 1, (HvdOp)9);
    CASE("no such operation in a group") hvd_group_allreduce(hvd_world(), &value, 1, (HvdOp)4);
    CASE("an operation below all") hvd_group_allreduce(hvd_world(), &value, 1, (HvdOp)-1);
    CASE("more shares than MPI counts") {
        float *many = calloc((size_t)1 << 31, sizeof *many), *share = calloc((size_t)1 << 30, sizeof *share);
        hvd_reduce_scatter(many, (size_t)1 << 31, share, HVD_SUM);
    }
    CASE("no total") hvd_allgather(&value, 1, NULL);
    CASE("no total of ints") hvd_allgather_ints((int[]){1}, 1, NULL, NULL);
    CASE("rows of no gradient") hvd_allreduce_sparse(NULL, HVD_SUM);
    CASE("rows nowhere") hvd_allreduce_sparse(&(SparseGradient){.dimension = 1, .count = 1}, HVD_SUM);
    CASE("largest row") hvd_allreduce_sparse(&(SparseGradient){.dimension = 1}, HVD_MAX);
    CASE("nothing gathered") hvd_allgather(none, 3, &total);
    CASE("nothing broadcast") hvd_broadcast(none, 3, 0);
    CASE("an average of ints") hvd_allreduce_ints((int[]){1}, 1, HVD_AVERAGE);
    CASE("no bytes") hvd_broadcast_bytes(NULL, 3, 0);
    CASE("part of units") take_own_part(with_units(8), with_units(12));
    CASE("part of a row") take_part(with_units(6), with_units(12), 2);
    CASE("part after the last") slice_of_batch(with_units(8), &(Batch){.count = 6}, 3, 3);
    CASE("part of a batch") slice_of_batch(with_units(8), &(Batch){.count = 4}, 0, 3);
    CASE("columns") need_columns(2);
    CASE("no such root") hvd_broadcast(&value, 1, 7);
    CASE("no model") hvd_broadcast_model(NULL, 0);
    CASE("not in the group") hvd_group_allreduce(hvd_group_split(-1), &value, 1, HVD_SUM);
    CASE("no such rank in a group") hvd_group_of_ranks((int[]){0, 9}, 2);
    CASE("twice in a group") hvd_group_of_ranks((int[]){0, 0}, 2);
    CASE("nobody in a group") hvd_group_of_ranks(NULL, 0);
    CASE("sweep without a name") sweep_allreduce(NULL, nothing, 1);
    CASE("endless sweep") sweep_allreduce("nothing", nothing, (size_t)-1);
    CASE("own all-reduce") {
        hvd_use_allreduce(nothing);
        train(small(hvd_distributed_optimizer(sgd(0.1f))), 1);
    }
    CASE("one training") train(small(sgd(0.1f)), 1);
    CASE("two trainings") {
        // In the first one the others make more epochs than the root, in the second it makes more.
        Model *model = small(sgd(0.1f));
        train(model, hvd_rank() == 0 ? 1 : 3);
        train(model, hvd_rank() == 0 ? 3 : 2);
    }
    CASE("two on the root") {
        Model *model = small(sgd(0.1f));
        train(model, 2);
        if (hvd_rank() == 0)
            train(model, 2);
    }
    CASE("the root alone") {
        Model *model = small(sgd(0.1f));
        if (hvd_rank() == 0)
            train(model, 2);
        hvd_broadcast_model(model, 0);
        train(model, 1);
    }
    CASE("a late rank") { // the others' rows have long been there when its row comes
        Callbacks late = {0};
        callbacks_add(&late, lambda_callback((Callback){.name = "late", .epoch_end = three_seconds}));
        fit(small(hvd_distributed_optimizer(sgd(0.1f))),
            &(Fit){.train = batches, .epochs = 2, .steps_per_epoch = 2, .callbacks = &late});
    }
    CASE("two on the others") {
        Model *model = small(sgd(0.1f));
        train(model, 2);
        if (hvd_rank() != 0)
            train(model, 2);
    }
    return 0;
}
END
"$build/compile-step" "$folder/cases.c" "$folder/cases" || exit 1

refused 1 "before init" "hvd_allreduce: call hvd_init() first, at the beginning of main"
refused 1 "group before init" "hvd_world: call hvd_init() first"
refused 1 "sweep before init" "sweep_allreduce: call hvd_init() first"
for n in 1 2; do
    refused $n "sweep without a name" "sweep_allreduce: it needs a name for what it prints, not NULL"
    refused $n "endless sweep" "sweep_allreduce: 18446744073709551615 floats are more than it tries (268435456)"
    refused $n "wrapped twice" "hvd_distributed_optimizer: the gradients of DistributedSGD are averaged already; wrap an optimizer once"
done
refused 2 "more shares than MPI counts" "2147483648 values are more than MPI takes at once"
refused 1 "no values" "hvd_allreduce: the values are NULL"
refused 1 "init after shutdown" "hvd_init: MPI has been ended, by hvd_shutdown() or MPI_Finalize(), and cannot be started again"
refused 1 "warm-up from nowhere" "nan, and not a finite number from 0"
ended="hvd_shutdown() or MPI_Finalize() has been called before"
refused 1 "wrapped nothing" "hvd_distributed_optimizer: there is no optimizer to wrap (NULL)"
refused 1 "no passes" "hvd_distributed_optimizer_every: an update of 0 passes; at least 1"
refused 2 "trained after shutdown" "DistributedSGD: $ended"
refused 2 "trained after finalize" "DistributedSGD: $ended"
refused 1 "rank after shutdown" "hvd_rank: $ended"
refused 1 "no such operation" "hvd_allreduce: there is no operation 9"
for n in 1 2; do
    refused $n "no such operation in a group" "hvd_group_allreduce: there is no operation 4; they are HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX"
    refused $n "an operation below all" "hvd_group_allreduce: there is no operation -1"
done
refused 2 "no such operation" "hvd_allreduce: there is no operation 9"
refused 1 "no total" "hvd_allgather: it needs a place for the total count, not NULL"
refused 1 "no total of ints" "hvd_allgather_ints: it needs a place for the total count, not NULL"
refused 1 "rows of no gradient" "hvd_allreduce_sparse: there is no gradient"
refused 1 "rows nowhere" "hvd_allreduce_sparse: the values are NULL"
refused 1 "largest row" "hvd_allreduce_sparse: rows can be averaged or added up: HVD_AVERAGE, HVD_SUM"
refused 1 "nothing gathered" "hvd_allgather: the values are NULL"
refused 1 "nothing broadcast" "hvd_broadcast: the values are NULL"
refused 1 "an average of ints" "hvd_allreduce_ints: an average of whole numbers is none; ask for HVD_SUM, HVD_MIN or HVD_MAX"
refused 1 "no bytes" "hvd_broadcast_bytes: the values are NULL"
refused 1 "no such root" "hvd_broadcast: there is no rank 7 among 1 to be the root"
refused 2 "part of units" "take_own_part: dense/kernel is not divided into equal parts of 784 x 8: give every worker as many units"
refused 1 "part of a row" "take_part: part 2 of 2 of dense/kernel is not there: parts are numbered from 0"
refused 1 "part after the last" "slice_of_batch: part 3 of 3 is not there: parts are numbered from 0"
refused 1 "part of a batch" "slice_of_batch: 4 images of a batch are not 3 equal parts: change --batch-size or --images"
refused 3 "columns" "the number of workers, 3, is not a multiple of --columns 2"
refused 1 "no model" "hvd_broadcast_model: there is no model (NULL)"
refused 1 "not in the group" "hvd_group_allreduce: this worker is not in the group"
refused 1 "no such rank in a group" "hvd_group_of_ranks: there is no rank 9 among 1"
refused 1 "twice in a group" "hvd_group_of_ranks: rank 0 is in the list twice"
refused 1 "nobody in a group" "hvd_group_of_ranks: a group needs a list of at least one rank"
HVD_COMPRESSION=bf16 refused 2 "own all-reduce" "HVD_COMPRESSION=bf16: a function given to hvd_use_allreduce adds up floats; unset it"
ranks 2 "alone after shutdown" || fail "training alone after hvd_shutdown: status $?: $(cat "$folder/err")"
ranks 2 "alone after shutdown" --show-ranks || fail "the same with --show-ranks: status $?: $(cat "$folder/err")"

# The table of ranks: each of the root's epochs has one, of the same training on all ranks.
# table N NAME LINES: which of the tables' lines say that a rank has stopped (-), or waits elsewhere (~).
table()
{
    ranks "$1" "$2" --show-ranks || fail "$2: status $?: $(cat "$folder/err")"
    [[ ! -s $folder/err ]] || fail "$2: something on standard error: $(cat "$folder/err")"
    local lines
    lines=$(grep -E '^(rank| +[0-9]+ )' "$folder/out" | awk '
        $1 == "rank" { printf "%s", (NR == 1 ? "" : " "); next }
        { printf "%s", (/has stopped/ ? "-" : /waits for rank 0/ ? "~" : $1) }')
    [[ $lines = "$3" ]] || fail "$2: the tables are \"$lines\", not \"$3\": $(cat "$folder/out")"
}
table 3 "two trainings" "012 012 012 0--"
table 3 "two on the root" "012 012 0-- 0--"
table 3 "two on the others" "012 012"
table 3 "the root alone" "0~~ 0~~ 012"
table 3 "a late rank" "012 012"

# What MPI says of who shares a machine counts, whatever the environment says.
export HVDLAB_TRACE=$folder/trace
timeout $((30 * ${CK_TIMEOUT_MULTIPLIER:-1})) mpirun -np 3 env OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "$folder/cases" \
    "one training" >"$folder/out" 2>"$folder/err" </dev/null || fail "status $?: $(cat "$folder/err")"
for rank in 0 1 2; do
    grep -q "^{\"event\":\"init\",.*\"rank\":$rank,\"size\":3,\"local_rank\":$rank,\"local_size\":3}" \
        "$folder/trace/rank-$rank.jsonl" || fail "rank $rank's place is not MPI's: $(grep '"init"' "$folder/trace/rank-$rank.jsonl")"
done

[[ $failures -eq 0 ]] && echo "all as promised"
exit $((failures > 0))
