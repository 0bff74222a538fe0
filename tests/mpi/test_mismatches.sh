#!/usr/bin/env bash
# Usage: tests/mpi/test_mismatches.sh [--some]
#
# Ranks that disagree: each case is a program in which the last rank differs from the others. On 2, 3
# and 4 ranks (--some: a third of them, on one of these numbers) it must end with status 2 and one line that names both sides,
# with ranks and values. Right programs that look odd must end with status 0 and print no warning.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_FUSION_THRESHOLD HVD_COMPRESSION HVDLAB_TRACE HVDLAB_FLAGS
export HVD_STALL_SECONDS=60 # a busy machine is no matter here
some=${1:-} cases=0 slowest=0 turn=0

cat >"$folder/cases.c" <<'END'
#include "hvdlab.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool odd;        // the last rank
static float values[100000];
static int numbers[4];
static Callback *changer; // added where it is set
static int images = 64, batch = 16, steps = 2, epochs = 2;

typedef struct {
    float dropout, wd;
    int units;
    bool relu_more, residual, swapped;
} Net;

static Model *build(Net net, Optimizer *optimizer)
{
    Tensor image = input(28, 28, 1), x = dense(flatten(image), net.units ? net.units : 8), y = x;
    x = net.swapped ? dropout(relu(x), net.dropout) : relu(dropout(x, net.dropout));
    if (net.relu_more)
        x = relu(x);
    if (net.residual)
        x = add(x, y);
    Model *m = model(image, softmax(dense(x, 10)));
    return compile(l2_penalty(m, net.wd), CATEGORICAL_CROSSENTROPY, optimizer);
}

static void train(Net net, Optimizer *optimizer, bool broadcast, bool average)
{
    Args args = parse_args(1, (char *[]){(char[]){"cases"}, NULL});
    args.data = DATA_SYNTHETIC;
    args.images = images;
    Dataset data = load_data(&args, TRAIN);
    Callbacks callbacks = {0};
    if (broadcast)
        callbacks_add(&callbacks, hvd_broadcast_variables(0));
    if (average)
        callbacks_add(&callbacks, hvd_metric_average());
    if (changer)
        callbacks_add(&callbacks, changer);
    Batches *batches = plain_batches(&data, image_statistics(&data), batch);
    fit(build(net, optimizer), &(Fit){.train = batches, .epochs = epochs, .callbacks = &callbacks,
        .steps_per_epoch = steps ? steps : batches_len(batches) / 2});
}

static void train_with(Optimizer *optimizer)
{
    train((Net){0}, hvd_distributed_optimizer(optimizer), true, true);
}

static void train_net(Net net)
{
    train(net, hvd_distributed_optimizer(sgd(0.01f)), true, false);
}

static float drift_to;

// Wrong, and seen by nobody but the comparison of the weights.
static void change_weights(Callback *self, Training *training)
{
    (void)self;
    static float kernel[784 * 8];
    kernel[0] = drift_to;
    if (odd && training->epoch == 0)
        model_write_variable(training->model, 0, kernel);
}

static void broadcast_another(Callback *self, Training *training)
{
    (void)self, (void)training;
    hvd_broadcast_model(build((Net){0}, sgd(0.01f)), 0);
}

static void drift(bool another)
{
    static Callback change = {.name = "change", .epoch_end = change_weights};
    if (another)
        change.train_begin = broadcast_another;
    changer = &change;
    train_with(sgd(0.01f));
}

static void nothing(float *data, size_t count, MPI_Comm comm)
{
    (void)data, (void)count, (void)comm;
}

int main(int argc, char **argv)
{
    (void)argc;
    const char *name = argv[1];
    bool returns = strcmp(name, "MPI's error, returned") == 0;
    if (returns) {
        MPI_Init(NULL, NULL);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    }
    hvd_init();
    device_use(hvd_local_rank());
    odd = hvd_rank() == hvd_size() - 1;
    size_t total, many = 100000;
#define CASE(words) else if (strcmp(name, words) == 0)
    if (0) {}
    CASE("root") hvd_broadcast(values, 4, odd);
    CASE("sum or max") hvd_allreduce(values, 4, odd ? HVD_MAX : HVD_SUM);
    CASE("average or sum") hvd_allreduce(values, many, odd ? HVD_SUM : HVD_AVERAGE);
    CASE("count") hvd_allreduce(values, odd ? 8 : 4, HVD_SUM);
    CASE("large count") hvd_allreduce(values, odd ? many : many - 1, HVD_SUM);
    CASE("count of none") hvd_allreduce(values, odd ? 0 : 4, HVD_SUM);
    CASE("broadcast's count") hvd_broadcast(values, odd ? 8 : 4, 0);
    CASE("large broadcast's count") hvd_broadcast(values, odd ? 1 : many, 0);
    CASE("count of ints") hvd_allreduce_ints(numbers, odd ? 2 : 4, HVD_MIN);
    CASE("ints or floats") {
        if (odd) hvd_allreduce_ints(numbers, 4, HVD_SUM); else hvd_allreduce(values, 4, HVD_SUM);
    }
    CASE("count of bytes") hvd_broadcast_bytes(numbers, odd ? 2 : 4, 0);
    CASE("left out") {
        hvd_allreduce(values, 4, HVD_SUM);
        if (!odd)
            hvd_allreduce(values, 4, HVD_SUM);
        hvd_allreduce(values, 4, HVD_SUM);
    }
    CASE("barrier") {
        if (odd) hvd_barrier(); else hvd_allreduce(values, 4, HVD_SUM);
    }
    CASE("broadcast") {
        if (odd) hvd_broadcast(values, 4, 0); else hvd_allreduce(values, 4, HVD_SUM);
    }
    CASE("all-gather") {
        if (odd) free(hvd_allgather(values, 4, &total)); else hvd_allreduce(values, 4, HVD_SUM);
    }
    CASE("type") {
        int number = 1;
        if (odd) free(hvd_allgather_ints(&number, 1, &total, NULL)); else free(hvd_allgather(values, 1, &total));
    }
    CASE("length of rows") {
        SparseGradient rows = {.dimension = odd ? 8 : 4};
        hvd_allreduce_sparse(&rows, HVD_AVERAGE);
    }
    CASE("returned") {
        if (odd) return 0;
        hvd_allreduce(values, 4, HVD_SUM);
    }
    CASE("exit") {
        if (odd) exit(0);
        hvd_barrier();
    }
    CASE("shutdown") {
        if (odd) hvd_shutdown(); else hvd_allreduce(values, many, HVD_SUM);
    }
    CASE("group's list") hvd_group_of_ranks((int[]){odd}, 1);
    CASE("group's count") {
        HvdGroup all = hvd_group_split(0);
        hvd_group_allreduce(all, values, odd ? 3 : 1, HVD_SUM);
    }
    CASE("group in another order") {
        HvdGroup others = hvd_group_of_ranks((int[]){1, 0}, 2);
        hvd_group_allreduce(others, values, odd ? 3 : 1, HVD_SUM);
    }
    CASE("count in a group without the root") {
        HvdGroup others = hvd_group_split(hvd_rank() > 0);
        if (hvd_rank() > 0) hvd_group_allreduce(others, values, odd ? 3 : 1, HVD_SUM); else hvd_barrier();
    }
    CASE("group's root") {
        HvdGroup all = hvd_group_split(0);
        hvd_group_broadcast(all, values, 1, odd);
    }
    CASE("sweep's name") sweep_allreduce(odd ? "ring" : "gather", nothing, 10);
    CASE("sweep's end") sweep_allreduce("ring", nothing, odd ? 20 : 10);
    CASE("sweep of MPI's") sweep_allreduce("ring", odd ? NULL : nothing, 10);
    CASE("sweep on one") {
        if (odd) sweep_allreduce("ring", nothing, 10); else hvd_barrier();
    }
    CASE("optimizer") train_with(odd ? adam(0.01f) : sgd(0.01f));
    CASE("optimizer, no broadcast") train((Net){0}, hvd_distributed_optimizer(odd ? adam(0.01f) : sgd(0.01f)), false, true);
    CASE("learning rate") train((Net){0}, hvd_distributed_optimizer(adam(odd ? 0.02f : 0.01f)), false, false);
    CASE("momentum") train_with(sgd_momentum(0.01f, odd ? 0.8f : 0.9f, false));
    CASE("nesterov") train_with(sgd_momentum(0.01f, 0.9f, odd));
    CASE("passes") train((Net){0}, hvd_distributed_optimizer_every(sgd(0.01f), 1 + odd), true, true);
    CASE("wrapper on one") train((Net){0}, odd ? hvd_distributed_optimizer(sgd(0.01f)) : sgd(0.01f), true, true);
    CASE("wrapper but on one") train((Net){0}, odd ? sgd(0.01f) : hvd_distributed_optimizer(sgd(0.01f)), false, false);
    CASE("penalty") train_net((Net){.wd = odd ? 0.001f : 0});
    CASE("width") train_net((Net){.units = odd ? 9 : 8});
    CASE("dropout") train_net((Net){.dropout = odd ? 0.02f : 0.01f});
    CASE("one more relu") train_net((Net){.relu_more = odd});
    CASE("order of layers") train_net((Net){.swapped = odd});
    CASE("residual") train_net((Net){.residual = odd});
    CASE("steps") { steps += odd; train_with(sgd(0.01f)); }
    CASE("epochs") { epochs += odd; train_with(sgd(0.01f)); }
    CASE("batch size") { batch *= 1 + odd; train_with(sgd(0.01f)); }
    CASE("images") { images += 64 * odd; steps = 0; train_with(sgd(0.01f)); }
    CASE("metric average on one") train((Net){0}, hvd_distributed_optimizer(sgd(0.01f)), true, odd);
    CASE("broadcast on one") train((Net){0}, hvd_distributed_optimizer(sgd(0.01f)), odd, true);
    CASE("own all-reduce on one") {
        if (odd) hvd_use_allreduce(nothing);
        train_with(sgd(0.01f));
    }
    CASE("training on one") {
        if (odd) train_with(sgd(0.01f));
    }
    CASE("rank to itself") train_with(sgd(0.01f));
    CASE("drift") drift(false);
    CASE("drift to no number") {
        drift_to = NAN;
        drift(false);
    }
    CASE("drift, another model broadcast") drift(true);
    CASE("joined, broadcast") {
        hvd_allreduce(values, 4, HVD_SUM);
        if (odd) hvd_join(); else hvd_broadcast(values, 4, 0);
    }
    CASE("joined, largest") {
        if (odd) hvd_join(); else hvd_allreduce(values, 4, HVD_MAX);
    }
    CASE("all but one joined") {
        if (odd) free(hvd_allgather(values, 4, &total)); else hvd_join();
    }
    CASE("joined, fit") {
        if (odd) hvd_join(); else train_with(sgd(0.01f));
    }
    CASE("joined, own all-reduce") {
        train((Net){0}, hvd_distributed_optimizer(sgd(0.01f)), true, false);
        hvd_use_allreduce(nothing);
        Optimizer *optimizer = hvd_distributed_optimizer(sgd(0.01f));
        Model *model = build((Net){0}, optimizer);
        static float image[784];
        Batch one = {.images = image, .labels = (int[]){1}, .count = 1};
        if (odd) hvd_join(); else train_on_batch(model, &one);
    }
    CASE("joined, counts") { // of three; the third brings nothing
        if (odd) hvd_join(); else hvd_allreduce(values, hvd_rank() ? 8 : 4, HVD_SUM);
    }
    CASE("joined root, counts") {
        if (hvd_rank() == 0) hvd_join(); else hvd_allreduce(values, odd ? 8 : 4, HVD_SUM);
    }
    CASE("joined, left") {
        if (odd) return 0;
        hvd_join();
    }
    CASE("MPI's count") MPI_Allreduce(MPI_IN_PLACE, values, odd ? 8 : 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CASE("MPI's rank") {
        if (odd) MPI_Send(values, 1, MPI_FLOAT, hvd_size(), 0, MPI_COMM_WORLD); else hvd_barrier();
    }
    CASE("MPI's rank in a group, in the background") {
        MPI_Comm group;
        MPI_Request request;
        MPI_Comm_split(MPI_COMM_WORLD, odd, 0, &group);
        if (odd) MPI_Isend(values, 1, MPI_FLOAT, 1, 0, group, &request);
        hvd_barrier();
    }
    CASE("not caused by the program") {
        if (odd) MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_INTERN); else hvd_barrier();
    }
    else if (returns) return MPI_Send(values, 1, MPI_FLOAT, hvd_size(), 0, MPI_COMM_WORLD) == MPI_SUCCESS;
    // Right, if unusual: which line calls, with which array, is each worker's own affair.
    CASE("root by turns") {
        for (int i = 0; i < hvd_size(); i++)
            if (hvd_rank() == i)
                hvd_broadcast(values, 4, i);
            else
                hvd_broadcast(values + 4, 4, i);
    }
    CASE("zeros from another line") {
        for (int i = 0; i < 20; i++)
            if (odd)
                hvd_allreduce(values, 4, HVD_SUM);
            else
                hvd_allreduce(values + 4, 4, HVD_SUM);
    }
    CASE("values by turns") {
        for (int i = 0; i < 4 * hvd_size(); i++)
            if (i % hvd_size() == hvd_rank())
                hvd_allreduce(values, 4, HVD_SUM);
            else
                hvd_allreduce((float[4]){0}, 4, HVD_SUM);
    }
    CASE("values in another order") {
        float *heap = calloc(8, sizeof *heap);
        for (int i = 0; i < 8; i++) {
            hvd_allreduce(&heap[odd ? 7 - i : i], 1, HVD_SUM);
            hvd_allreduce(&values[odd ? 7 - i : i], 1, HVD_SUM);
        }
        free(heap);
    }
    else return 3;
    return 0;
}
END
"$build/compile-step" "$folder/cases.c" "$folder/cases" || exit 1

# start N NAME [PREFIX...]: the case on N ranks; $status, and $seconds.
start()
{
    local begin=$EPOCHREALTIME
    limit=30 run mpirun -np "$1" "${@:3}" "$folder/cases" "$2"
    seconds=$(awk "BEGIN { print $EPOCHREALTIME - $begin }")
    slowest=$(awk "BEGIN { print ($seconds > $slowest ? $seconds : $slowest) }")
    cases=$((cases + 1))
}

# The program's lines. (Open MPI 5 writes a zero now and again.)
said() { tr -d '\0' <"$folder/err" | grep '^cases: '; }

# named NAME LINE [PREFIX...]: ALL and ODD in the line stand for the ranks, with the verb that comes
# behind as `verb(s)`.
named()
{
    local n all line numbers="2 3 4"
    turn=$((turn + 1))
    [[ -z $some || $((turn % 3)) -eq 1 ]] || return
    [[ -z $some ]] || numbers=$((2 + turn / 3 % 3))
    for n in $numbers; do
        [[ $n -gt 2 ]] && all="ranks 0-$((n - 2))" || all="rank 0"
        [[ $n -ne 3 ]] || all="ranks 0 and 1"
        line=${2//ODD/rank $((n - 1))}
        if [[ $n -eq 2 ]]; then
            line=$(sed "s/ALL \([a-z]*\)(s)/$all \1s/g; s/ALL are/$all is/g; s/ALL have/$all has/g" <<<"$line")
        else
            line=$(sed "s/ALL \([a-z]*\)(s)/$all \1/g; s/ALL/$all/g" <<<"$line")
        fi
        start $n "$1" "${@:3}"
        [[ ${V:-} != 1 ]] || printf '%s, %d ranks, %.1f s: %s\n' "$1" $n "$seconds" "$(said)"
        [[ $status -eq 2 ]] || fail "$1 on $n ranks: status $status instead of 2: $(head -5 "$folder/err")"
        [[ $(grep -c '^cases: ' "$folder/err") -eq 1 ]] || fail "$1 on $n ranks: not one line: $(cat "$folder/err")"
        grep -qF -e "cases: $line" "$folder/err" || fail "$1 on $n ranks: \"$line\" is not in: $(cat "$folder/err")"
    done
}

# quiet NAME: the job comes to its end without a word, on 2, 3 and 4 ranks.
quiet()
{
    for n in 2 3 4; do
        start $n "$1"
        [[ $status -eq 0 && ! -s $folder/err ]] || fail "$1 on $n ranks: status $status: $(cat "$folder/err")"
    done
}

named "root" "hvd_broadcast: ALL name(s) root 0, ODD names root 1 (call 1)"
named "sum or max" "hvd_allreduce: ALL ask(s) for HVD_SUM, ODD asks for HVD_MAX (call 1)"
named "average or sum" "hvd_allreduce: ALL ask(s) for HVD_AVERAGE, ODD asks for HVD_SUM"
named "count" "hvd_allreduce: ALL give(s) 4 values, ODD gives 8 values (call 1)"
named "large count" "hvd_allreduce: ALL give(s) 99999 values, ODD gives 100000 values"
named "count of none" "hvd_allreduce: ALL give(s) 4 values, ODD gives 0 values"
named "broadcast's count" "hvd_broadcast: ALL give(s) 4 values, ODD gives 8 values"
named "count of ints" "hvd_allreduce_ints: ALL give(s) 4 values, ODD gives 2 values"
named "ints or floats" "the workers make different calls: "
named "count of bytes" "hvd_broadcast_bytes: ALL give(s) 4 values, ODD gives 2 values"
named "large broadcast's count" "hvd_broadcast: ALL give(s) 100000 values, ODD gives 1 value (call 1)"
different="the workers make different calls: "
named "barrier" "${different}ALL are in hvd_allreduce, ODD is in hvd_barrier (call 1)"
named "broadcast" "${different}ALL are in hvd_allreduce, ODD is in hvd_broadcast (call 1)"
named "all-gather" "${different}ALL are in hvd_allreduce, ODD is in hvd_allgather (call 1)"
named "type" "${different}ALL are in hvd_allgather, ODD is in hvd_allgather_ints (call 1)"
named "length of rows" "hvd_allreduce_sparse: ALL give(s) rows of 4 values, ODD gives rows of 8 values (call 1)"
left="ODD has left main (exit status 0) while ALL wait(s) in "
named "left out" "${left}hvd_allreduce (call 3, 4 values)"
named "returned" "${left}hvd_allreduce (call 1, 4 values)"
named "exit" "${left}hvd_barrier (call 1)"
named "shutdown" "ODD has called hvd_shutdown while ALL wait(s) in hvd_allreduce (call 1, 100000 values)"
named "group's list" "hvd_group_of_ranks: ALL name(s) the list 0, ODD names the list 1"
named "group's count" "hvd_group_allreduce: ALL give(s) 1 value, ODD gives 3 values (call 1)"
start 4 "count in a group without the root"
[[ $status -eq 2 && $(said) = "cases: rank 1: hvd_group_allreduce: ranks 1 and 2 give 1 value, rank 3 gives 3 values (call 1)" ]] ||
    fail "count in a group without the root: status $status: $(cat "$folder/err")"
start 2 "group in another order"
[[ $status -eq 2 && $(said) = "cases: hvd_group_allreduce: rank 1 gives 3 values, rank 0 gives 1 value (call 1)" ]] ||
    fail "group in another order: status $status: $(cat "$folder/err")"
named "group's root" "hvd_group_broadcast: ALL name(s) root 0, ODD names root 1 (call 1)"
named "sweep's name" "sweep_allreduce: ALL sweep(s) gather, ODD sweeps ring (call 1)"
named "sweep's end" "sweep_allreduce: ALL want(s) at most 10 values, ODD wants at most 20 values (call 1)"
named "sweep of MPI's" "sweep_allreduce: ALL call(s) a function of the program's, ODD calls MPI_Allreduce (call 1)"
named "sweep on one" "${different}ALL are in hvd_barrier, ODD is in sweep_allreduce (call 1)"
named "optimizer" "hvd_broadcast_variables: ALL use(s) SGD, ODD uses Adam"
named "optimizer, no broadcast" "hvd_distributed_optimizer: ALL use(s) DistributedSGD, ODD uses DistributedAdam"
named "learning rate" "hvd_distributed_optimizer: ALL use(s) learning rate 0.01, ODD uses learning rate 0.02"
named "momentum" "hvd_distributed_optimizer: ALL use(s) momentum 0.9, ODD uses momentum 0.8"
named "nesterov" "hvd_distributed_optimizer: ALL use(s) nesterov false, ODD uses nesterov true"
named "passes" "hvd_distributed_optimizer: ALL make(s) updates of 1 gradient, ODD makes updates of 2 gradients"
named "wrapper on one" "${different}ALL are in hvd_broadcast_variables, ODD is in fit, where a training with a distributed optimizer begins"
named "wrapper but on one" "${left}fit (call 1)"
named "training on one" "ALL have left main (exit status 0) while ODD waits in fit (call 1)"
named "penalty" "hvd: ALL build(s) a model with layer 2: dense of layer 1, 1x1x8, ODD builds a model with layer 2: dense of layer 1, 1x1x8, L2 penalty 0.001"
named "width" "hvd: ALL build(s) a model with layer 2: dense of layer 1, 1x1x8, ODD builds a model with layer 2: dense of layer 1, 1x1x9"
named "dropout" "hvd: ALL build(s) a model with layer 3: dropout of layer 2, rate 0.01, 1x1x8, ODD builds"
named "one more relu" "hvd: ALL build(s) a model with layer 5: dense of layer 4, 1x1x10, ODD builds a model with layer 5: relu of layer 4, 1x1x8"
named "order of layers" "hvd: ALL build(s) a model with layer 3: dropout of layer 2, rate 0, 1x1x8, ODD builds a model with layer 3: relu of layer 2, 1x1x8"
named "residual" "hvd: ALL build(s) a model with layer 5: dense of layer 4, 1x1x10, ODD builds a model with layer 5: add of layer 4 and layer 2, 1x1x8"
named "steps" "fit: ALL train(s) 2 steps an epoch, ODD trains 3 steps an epoch (call 1)"
named "epochs" "fit: ALL train(s) 2 epochs, ODD trains 3 epochs (call 1)"
named "batch size" "fit: ALL train(s) on batches of 16 images, ODD trains on batches of 32 images"
named "images" "fit: ALL train(s) 2 steps an epoch, ODD trains 4 steps an epoch (call 1)"
named "metric average on one" "${different}"
named "broadcast on one" "${different}ALL are in the average of gradients, ODD is in hvd_broadcast_variables"
named "own all-reduce on one" "hvd: ALL add(s) gradients up by the library's all-reduce, ODD adds gradients up by a function of the program's (hvd_use_allreduce)"
# shellcheck disable=SC2016 # for another shell
own='[ $OMPI_COMM_WORLD_RANK -lt $((OMPI_COMM_WORLD_SIZE - 1)) ] || export "$0"; exec "$@"'
named "rank to itself" "hvd: ALL find(s) HVD_COMPRESSION=none, ODD finds HVD_COMPRESSION=bf16" sh -c "$own" HVD_COMPRESSION=bf16
named "rank to itself" "hvd_distributed_optimizer: ALL find(s) HVD_FUSION_THRESHOLD=16777216, ODD finds HVD_FUSION_THRESHOLD=400 (call 4); mpirun -x" sh -c "$own" HVD_FUSION_THRESHOLD=400
# Numbers of ten digits whose last ones differ.
named "rank to itself" "hvd_distributed_optimizer: ALL find(s) HVD_FUSION_THRESHOLD=1073741824, ODD finds HVD_FUSION_THRESHOLD=1073741820 (call 4); mpirun -x" env HVD_FUSION_THRESHOLD=1073741824 sh -c "$own" HVD_FUSION_THRESHOLD=1073741820

until="until all workers have (hvd_join), nothing but sums and averages can be made"
named "joined, broadcast" "hvd_broadcast: ODD has joined (call 2); $until"
named "joined, largest" "hvd_allreduce: ODD has joined (call 1); $until"
named "all but one joined" "hvd_allgather: ALL have joined (call 1); $until"
named "joined, fit" "fit: ODD has joined (call 1); $until"
named "joined, own all-reduce" "hvd_distributed_optimizer: ODD has joined (call "
named "joined, left" "${left}hvd_join (call 1)"
start 3 "joined, counts"
[[ $status -eq 2 && $(grep -c '^cases: ' "$folder/err") -eq 1 ]] || fail "joined, counts: status $status: $(cat "$folder/err")"
grep -qF "cases: hvd_allreduce: rank 0 gives 4 values, rank 1 gives 8 values (call 1)" "$folder/err" ||
    fail "joined, counts: $(cat "$folder/err")"

start 3 "joined root, counts"
[[ $status -eq 2 && $(said) = "cases: rank 1: hvd_allreduce: rank 1 gives 4 values, rank 2 gives 8 values (call 1)" ]] ||
    fail "joined root, counts: status $status: $(cat "$folder/err")"

named "MPI's rank" "ODD: MPI_Send (1 value): MPI_ERR_RANK: invalid rank"
named "MPI's rank in a group, in the background" "ODD: MPI_Isend: MPI_ERR_RANK: invalid rank"
start 3 "not caused by the program"
[[ $status -eq 1 && $(grep -c '^cases: rank 2: MPI_Comm_call_errhandler: MPI_ERR_INTERN: ' "$folder/err") -eq 1 ]] ||
    fail "an error of MPI's own: status $status: $(cat "$folder/err")"
# Which ranks are sent too much depends on how MPI adds up; several may say so at once.
for n in 2 3 4; do
    start $n "MPI's count"
    [[ $status -eq 2 ]] || fail "MPI's count on $n ranks: status $status instead of 2: $(head -5 "$folder/err")"
    [[ $(said) ]] && ! said | grep -vE '^cases: rank [0-9]: MPI_Allreduce \(call 1, [48] values\): MPI_ERR_TRUNCATE: ' ||
        fail "MPI's count on $n ranks: $(cat "$folder/err")"
done
start 2 "MPI's error, returned"
[[ $status -eq 0 && ! -s $folder/err ]] || fail "a program that takes MPI's errors itself: status $status: $(cat "$folder/err")"

quiet "root by turns"
quiet "zeros from another line"
quiet "values by turns"
quiet "values in another order"

# Weights that differ are no reason to end, but one to say so, once.
for n in 2 4; do
    for drift in "drift" "drift, another model broadcast"; do
        start $n "$drift"
        [[ $status -eq 0 && $(grep -c . "$folder/err") -eq 1 ]] || fail "$drift on $n ranks: status $status: $(cat "$folder/err")"
        grep -q "^cases: warning: after epoch 1 the weights differ among the workers: .* on rank 0 and .* on rank $((n - 1));" \
            "$folder/err" || fail "$drift on $n ranks: $(cat "$folder/err")"
    done
done

start 2 "drift to no number" # which ends it in the next epoch
grep -q "^cases: warning: after epoch 1 the weights differ among the workers: .* on rank 0 and nan on rank 1;" "$folder/err" || fail "drift to no number: $(cat "$folder/err")"

echo "$cases runs; the slowest took $slowest s"
conclude
