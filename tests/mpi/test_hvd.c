// What hvd promises, on as many ranks as mpirun started: every collective against what each rank
// can work out alone, the callbacks, ranks that have joined; what concerns a model that trains is
// in hvd_training.c. A check that fails says where and aborts the job. The arenas may lie in a
// GPU's memory, and HVD_TRANSPORT and HVD_COMPRESSION may be anything.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/backend.h"
#include "run/device.h"
#include "train/fit.h"
#include "hvd_checks.h"
#include "models/models.h"
#include "base/rng.h"
#include "base/memory.h"

static const size_t counts[] = {1, 7, 4096, 100003, (1 << 20) + 1, 3 << 20};
enum { COUNTS = sizeof counts / sizeof *counts, MAX_COUNT = 3 << 20 };

// A number that depends on the rank and the place.
static float element(int rank, size_t i)
{
    return (float)((i * 31 + (size_t)rank * 17) % 101) - 50.0f + 0.25f * (float)rank;
}

static void fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = element(hvd_rank(), i);
}

static double expected(HvdOp op, size_t i)
{
    double sum = 0, least = INFINITY, most = -INFINITY;
    for (int rank = 0; rank < hvd_size(); rank++) {
        double value = (double)element(rank, i);
        sum += value;
        least = fmin(least, value);
        most = fmax(most, value);
    }
    return op == HVD_MIN ? least : op == HVD_MAX ? most : op == HVD_SUM ? sum : sum / hvd_size();
}

static void test_allreduce(float *values)
{
    for (HvdOp op = HVD_AVERAGE; op <= HVD_MAX; op++)
        for (int c = 0; c < COUNTS; c++) {
            fill(values, counts[c]);
            values[counts[c]] = 123;
            hvd_allreduce(values, counts[c], op);
            for (size_t i = 0; i < counts[c]; i++)
                EXPECT_NEAR(values[i], expected(op, i), 1e-4);
            EXPECT_EQUAL(values[counts[c]], 123); // not a float further
        }
    hvd_allreduce(values, 0, HVD_SUM);
}

// A value that is no number on one rank, whichever, is none in the result, with the same bits on
// all; the others are not touched by it. At several places, since loops may take them several at a
// time.
static void test_no_numbers(float *values)
{
    enum { COUNT = 1003 };
    float others[COUNT];
    for (HvdOp op = HVD_AVERAGE; op <= HVD_MAX; op++)
        for (int rank = 0; rank < hvd_size(); rank++) {
            fill(values, COUNT);
            for (size_t i = 5; i < COUNT && hvd_rank() == rank; i += 100)
                values[i] = i % 200 == 5 ? NAN : -NAN;
            hvd_allreduce(values, COUNT, op);
            for (size_t i = 0; i < COUNT; i++)
                EXPECT(i % 100 == 5 ? isnan(values[i])
                                    : fabs((double)values[i] - expected(op, i)) <= 1e-4);
            memcpy(others, values, sizeof others);
            hvd_broadcast(others, COUNT, 0);
            EXPECT(op < HVD_MIN || memcmp(others, values, sizeof others) == 0);
        }
    // Infinite is a number of its kind.
    values[0] = hvd_rank() == 0 ? INFINITY : 1;
    values[1] = hvd_rank() == 0 ? -INFINITY : 1;
    hvd_allreduce(values, 2, HVD_MAX);
    EXPECT(isinf(values[0]) && (hvd_size() == 1 || values[1] == 1));
}

// Weights that begin equal stay equal only if the averages are the same bits on all ranks.
static void test_same_bits(float *values)
{
    float *roots = allocate(100003, sizeof *roots);
    set_seed(40 + (uint64_t)hvd_rank());
    Rng rng = rng_stream(RNG_SYNTHETIC_DATA, 1);
    for (int c = 0; c < COUNTS && counts[c] <= 100003; c++) {
        for (size_t i = 0; i < counts[c]; i++)
            values[i] = rng_normal(&rng);
        hvd_allreduce(values, counts[c], HVD_AVERAGE);
        memcpy(roots, values, counts[c] * sizeof *roots);
        hvd_broadcast(roots, counts[c], 0);
        EXPECT(memcmp(roots, values, counts[c] * sizeof *roots) == 0);
    }
    free(roots);
}

// Values in the device's memory, which may be a GPU's.
static void test_device_values(float *values)
{
    enum { COUNT = 1000 };
    size_t bytes = COUNT * sizeof(float), total;
    Device *device = device_current();
    const Backend *backend = backend_of(device);
    float *arena = backend->allocate(device, bytes);
    int last = hvd_size() - 1;
    fill(values, COUNT);
    backend->write(device, arena, values, bytes);
    hvd_allreduce(arena, COUNT, HVD_SUM);
    backend->read(device, values, arena, bytes);
    for (size_t i = 0; i < COUNT; i++)
        EXPECT_NEAR(values[i], expected(HVD_SUM, i), 1e-4);
    fill(values, COUNT);
    backend->write(device, arena, values, bytes);
    float *all = hvd_allgather(arena, COUNT, &total);
    EXPECT_EQUAL(total, (size_t)hvd_size() * COUNT);
    for (size_t i = 0; i < total; i++)
        EXPECT_EQUAL(all[i], element((int)(i / COUNT), i % COUNT));
    free(all);
    hvd_broadcast(arena, COUNT, last);
    backend->read(device, values, arena, bytes);
    for (size_t i = 0; i < COUNT; i++)
        EXPECT_EQUAL(values[i], element(last, i));
    backend->release(device, arena);
}

// The collectives among the ranks of a group, given the rank in the job of each of its members.
static void test_group(HvdGroup group, const int *members, float *values)
{
    enum { COUNT = 1000 };
    EXPECT_EQUAL(members[group.rank], hvd_rank());
    for (HvdOp op = HVD_AVERAGE; op <= HVD_SUM; op++) {
        fill(values, COUNT);
        hvd_group_allreduce(group, values, COUNT, op);
        for (size_t i = 0; i < COUNT; i++) {
            double sum = 0;
            for (int m = 0; m < group.size; m++)
                sum += (double)element(members[m], i);
            EXPECT_NEAR(values[i], (op == HVD_SUM ? sum : sum / group.size), 1e-4);
        }
    }
    size_t total, place = 0;
    fill(values, (size_t)group.rank + 1);
    float *all = hvd_group_allgather(group, values, (size_t)group.rank + 1, &total);
    for (int m = 0; m < group.size; m++)
        for (size_t i = 0; i <= (size_t)m; i++)
            EXPECT_EQUAL(all[place++], element(members[m], i));
    EXPECT_EQUAL(place, total);
    free(all);
    for (int root = 0; root < group.size; root++) {
        fill(values, COUNT);
        hvd_group_broadcast(group, values, COUNT, root);
        for (size_t i = 0; i < COUNT; i++)
            EXPECT_EQUAL(values[i], element(members[root], i));
    }
    hvd_group_barrier(group);
}

static void test_groups(float *values)
{
    enum { MAX_RANKS = 64 };
    int size = hvd_size(), rank = hvd_rank(), count = 0, members[MAX_RANKS];
    EXPECT(size <= MAX_RANKS);

    for (int r = 0; r < size; r++)
        members[r] = r;
    HvdGroup world = hvd_world();
    EXPECT_EQUAL(world.size, size);
    test_group(world, members, values);
    hvd_group_free(&world);
    hvd_barrier(); // the world is still there

    for (int r = rank % 2; r < size; r += 2)
        members[count++] = r;
    HvdGroup parity = hvd_group_split(rank % 2);
    EXPECT_EQUAL(parity.size, count);
    test_group(parity, members, values);
    hvd_group_free(&parity);
    EXPECT(parity.size == 0 && parity.comm == MPI_COMM_NULL);
    hvd_group_free(&parity);

    for (int r = 0; r < size; r++)
        members[r] = size - 1 - r;
    HvdGroup reversed = hvd_group_of_ranks(members, size);
    test_group(reversed, members, values);
    hvd_group_free(&reversed);

    HvdGroup others = hvd_group_split(rank == 0 ? -1 : 7);
    EXPECT(others.size == (rank == 0 ? 0 : size - 1) && others.rank == rank - 1);
    hvd_group_free(&others);
    HvdGroup last = hvd_group_of_ranks((int[]){size - 1}, 1);
    EXPECT(last.size == (rank == size - 1) && last.rank == last.size - 1);
    hvd_group_free(&last);
}

static void test_allgather(float *values)
{
    size_t total, own = (size_t)hvd_rank() * 3; // the root has none
    fill(values, own);
    float *all = hvd_allgather(values, own, &total);
    size_t place = 0;
    for (int rank = 0; rank < hvd_size(); rank++)
        for (size_t i = 0; i < (size_t)rank * 3; i++)
            EXPECT_EQUAL(all[place++], element(rank, i));
    EXPECT_EQUAL(place, total);
    free(all);
}

// Each rank has its part, by every operation, and not a float more; an array may be shorter than
// the ranks are many.
static void test_reduce_scatter(float *values)
{
    static const size_t lengths[] = {0, 1, 2, 5, 4096, 100003};
    size_t size = (size_t)hvd_size(), rank = (size_t)hvd_rank();
    float *own = allocate(100004, sizeof *own);
    for (HvdOp op = HVD_AVERAGE; op <= HVD_MAX; op++)
        for (size_t c = 0; c < sizeof lengths / sizeof *lengths; c++) {
            size_t count = lengths[c], each = count / size, longer = count % size;
            size_t begin = rank * each + (rank < longer ? rank : longer);
            fill(values, count);
            own[each + (rank < longer)] = 123;
            EXPECT_EQUAL(hvd_reduce_scatter(values, count, own, op), each + (rank < longer));
            for (size_t i = 0; i < each + (rank < longer); i++)
                EXPECT_NEAR(own[i], expected(op, begin + i), 1e-4);
            EXPECT_EQUAL(own[each + (rank < longer)], 123);
            for (size_t i = 0; i < count; i++)
                EXPECT_EQUAL(values[i], element(hvd_rank(), i));
        }
    free(own);
}

static void test_allgather_ints(void)
{
    int size = hvd_size(), rank = hvd_rank(), own[2 * 64];
    size_t total, brought[64];
    for (int i = 0; i < 2 * rank; i++) // the root has none
        own[i] = 1000 * rank - i;
    int *all = hvd_allgather_ints(own, 2 * (size_t)rank, &total, brought), *next = all;
    for (int r = 0; r < size; r++) {
        EXPECT_EQUAL(brought[r], 2 * (size_t)r);
        for (int i = 0; i < 2 * r; i++)
            EXPECT_EQUAL(*next++, 1000 * r - i);
    }
    EXPECT(next == all + total);
    free(all);

    HvdGroup others = hvd_group_split(rank % 2);
    own[0] = rank;
    all = hvd_group_allgather_ints(others, own, 1, &total, NULL);
    EXPECT_EQUAL((int)total, others.size);
    for (int m = 0; m < others.size; m++)
        EXPECT_EQUAL(all[m], 2 * m + rank % 2);
    free(all);
    hvd_group_free(&others);
}

static void test_ints_and_bytes(void)
{
    int size = hvd_size(), rank = hvd_rank();
    int sums[] = {rank, 1 << 24, 1}, lowest[] = {16777217 + rank, -rank}, highest[] = {-rank, rank};
    hvd_allreduce_ints(sums, 3, HVD_SUM);
    EXPECT(sums[0] == size * (size - 1) / 2 && sums[1] == size << 24 && sums[2] == size);
    hvd_allreduce_ints(lowest, 2, HVD_MIN); // 2^24 + 1, which no float holds
    EXPECT(lowest[0] == 16777217 && lowest[1] == 1 - size);
    hvd_allreduce_ints(highest, 2, HVD_MAX);
    EXPECT(highest[0] == 0 && highest[1] == size - 1);

    char name[] = "rank ?";
    name[5] = (char)('0' + rank);
    hvd_broadcast_bytes(name, sizeof name, size - 1);
    EXPECT(strncmp(name, "rank ", 5) == 0 && name[5] == '0' + size - 1 && name[6] == '\0');
    hvd_broadcast_bytes(NULL, 0, 0);
}

// Two calls that are alike except in their line and in their arrays, which lie
// elsewhere on each rank: all ranks make them in one order, so there is nothing to complain of.
static void test_calls_from_two_lines(void)
{
    size_t total, rank = (size_t)hvd_rank();
    void *gap = malloc(64 * (rank + 1));
    float *first = calloc(8, sizeof *first);
    void *other_gap = malloc(1024 * (rank + 1));
    float *second = calloc(8, sizeof *second);
    for (int i = 0; i < 3; i++) {
        free(hvd_allgather(first, 8, &total));
        free(hvd_allgather(second, 8, &total));
    }
    // One array in one order, from another line on the root.
    static float here[4], there[4];
    for (int i = 0; i < 3; i++) {
        if (rank == 0)
            hvd_allreduce(here, 4, HVD_SUM);
        else
            hvd_allreduce(here, 4, HVD_SUM);
        hvd_allreduce(there, 4, HVD_SUM);
    }
    free(gap);
    free(other_gap);
    free(first);
    free(second);
}

// Sentences of up to four words: many of them the same on all ranks, some only here; the last rank
// has none at all.
static Batch sentences(void)
{
    enum { COUNT = 3, WORDS = 4 };
    static float tokens[COUNT * WORDS];
    static int labels[COUNT] = {1, 0, 2};
    for (int i = 0; i < COUNT * WORDS; i++) {
        int word = i % 3 ? i % 5 : 5 + (7 * hvd_rank() + i) % 35;
        bool empty = hvd_rank() == hvd_size() - 1 && hvd_size() > 1;
        tokens[i] = (float)(empty || i % WORDS > hvd_rank() ? NO_TOKEN : word);
    }
    return (Batch){tokens, labels, COUNT};
}

// What gathering rows gives is what the all-reduce of the whole table gives.
static void test_sparse(void)
{
    enum { ROWS = 40, DIMENSION = 6 };
    set_seed(3);
    Model *model = compile(bag_of_words((ModelShape){.width = 4, .widths = {ROWS, DIMENSION}}),
                           CATEGORICAL_CROSSENTROPY, sgd(0.1f));
    for (HvdOp op = HVD_AVERAGE; op <= HVD_SUM; op++) {
        float dense[ROWS * DIMENSION], sparse[ROWS * DIMENSION];
        Batch batch = sentences();
        compute_gradients(model, &batch);
        model_read_gradient(model, 0, dense);
        hvd_allreduce(dense, ROWS * DIMENSION, op);
        SparseGradient own = model_sparse_gradient(model, 0);
        SparseGradient all = hvd_allreduce_sparse(&own, op);
        EXPECT(own.count < ROWS && all.count >= own.count && all.dimension == DIMENSION);
        model_write_sparse_gradient(model, 0, &all);
        model_read_gradient(model, 0, sparse);
        for (int i = 0; i < ROWS * DIMENSION; i++)
            EXPECT(fabsf(sparse[i] - dense[i]) <= 1e-7f);
        sparse_gradient_free(&own);
        sparse_gradient_free(&all);
    }
    model_free(model);
}

static void test_broadcast(float *values)
{
    for (int root = 0; root < hvd_size(); root++)
        for (int c = 0; c < COUNTS; c++) {
            fill(values, counts[c]);
            hvd_broadcast(values, counts[c], root);
            for (size_t i = 0; i < counts[c]; i++)
                EXPECT_EQUAL(values[i], element(root, i));
        }
    hvd_barrier();
}

static void test_places(void)
{
    float locals = (float)hvd_local_rank() < (float)hvd_local_size();
    hvd_allreduce(&locals, 1, HVD_MIN);
    EXPECT_EQUAL(locals, 1);
    float ranks = (float)hvd_rank();
    hvd_allreduce(&ranks, 1, HVD_SUM);
    EXPECT_EQUAL(ranks, (float)(hvd_size() * (hvd_size() - 1) / 2)); // each rank is there, once
    EXPECT_EQUAL(device_index(), hvd_local_rank() % device_count());
}

// ---- Callbacks.

// Unequal numbers of images must not bias the mean.
static void test_metric_average(void)
{
    int size = hvd_size(), rank = hvd_rank();
    Training training = {.logs = {.loss = 1 + rank,
                                  .accuracy = 0.1 * rank,
                                  .val_loss = 2 + rank,
                                  .val_accuracy = 0.2 * rank,
                                  .images = 10 * (rank + 1),
                                  .val_images = 5 * (size - rank),
                                  .lr = 0.5}};
    double images = 0, val_images = 0, loss = 0, accuracy = 0, val_loss = 0, val_accuracy = 0;
    for (int r = 0; r < size; r++) {
        images += 10 * (r + 1);
        val_images += 5 * (size - r);
        loss += 10 * (r + 1) * (1 + r);
        accuracy += 10 * (r + 1) * 0.1 * r;
        val_loss += 5 * (size - r) * (2 + r);
        val_accuracy += 5 * (size - r) * 0.2 * r;
    }
    Callback *average = hvd_metric_average();
    average->epoch_end(average, &training);
    const Logs *logs = &training.logs;
    EXPECT_NEAR(logs->loss, loss / images, 1e-12);
    EXPECT_NEAR(logs->accuracy, accuracy / images, 1e-12);
    EXPECT_NEAR(logs->val_loss, val_loss / val_images, 1e-12);
    EXPECT_NEAR(logs->val_accuracy, val_accuracy / val_images, 1e-12);
    EXPECT(logs->images == images && logs->val_images == val_images && logs->lr == 0.5);
    training.logs = (Logs){.loss = rank, .images = 1};
    average->epoch_end(average, &training); // no validation: no division by zero
    EXPECT_NEAR(logs->loss, 0.5 * (size - 1), 1e-12);
    EXPECT(logs->val_loss == 0 && logs->val_accuracy == 0);
    free(average);
}

// ---- Ranks that have joined.

// How many calls a rank makes before it joins: not in the order of the ranks.
static int calls_of(int rank)
{
    return (3 * rank + 1) % 5 + 1;
}

static int last_to_join(void)
{
    int last = 0;
    for (int r = 1; r < hvd_size(); r++)
        if (calls_of(r) >= calls_of(last))
            last = r;
    return last;
}

static int working_in(int call)
{
    int working = 0;
    for (int r = 0; r < hvd_size(); r++)
        working += calls_of(r) > call;
    return working;
}

static void test_join_values(float *values)
{
    const size_t count = 100003;
    for (int call = 0; call < calls_of(hvd_rank()); call++) {
        HvdOp op = call % 2 ? HVD_SUM : HVD_AVERAGE;
        fill(values, count);
        hvd_allreduce(values, count, op);
        for (size_t i = 0; i < count; i++) {
            double sum = 0;
            for (int r = 0; r < hvd_size(); r++)
                sum += calls_of(r) > call ? (double)element(r, i) : 0;
            EXPECT_NEAR(values[i], (op == HVD_SUM ? sum : sum / working_in(call)), 1e-4);
        }
    }
    EXPECT_EQUAL(hvd_join(), last_to_join());
    test_allreduce(values);                   // all are back
    EXPECT_EQUAL(hvd_join(), hvd_size() - 1); // no rank works any more, none was later than others
    hvd_barrier();
}

// With learning rate 0 a rank's own gradient is the same in every update, but what travels is not.
static void test_join_gradients(const char *threshold)
{
    setenv("HVD_FUSION_THRESHOLD", threshold, 1);
    set_seed(5);
    Model *plain = small_model(sgd(0));
    set_seed(5);
    Model *distributed = small_model(hvd_distributed_optimizer(sgd(0)));
    set_seed(100 + (uint64_t)hvd_rank());
    Images images;
    Batch batch = random_batch(&images);
    train_on_batch(plain, &batch);
    size_t length = model_parameters(plain)->length, total;
    float *own = copy_gradients(plain), *all = hvd_allgather(own, length, &total);
    for (int call = 0; call < calls_of(hvd_rank()); call++) {
        train_on_batch(distributed, &batch);
        float *gradients = copy_gradients(distributed);
        for (size_t i = 0; i < length && working_in(call) < hvd_size(); i++) {
            float sum = 0;
            for (int r = 0; r < hvd_size(); r++)
                sum += calls_of(r) > call ? all[(size_t)r * length + i] : 0;
            EXPECT(fabsf(gradients[i] - sum / (float)working_in(call)) < 1e-6f);
        }
        free(gradients);
    }
    EXPECT_EQUAL(hvd_join(), last_to_join());
    free(own);
    free(all);
    model_free(plain);
    model_free(distributed);
    unsetenv("HVD_FUSION_THRESHOLD");
}

// As an epoch of one's own loop goes: joined, and the weights broadcast by the last rank. In the
// first epoch one rank has no batch at all, before anything of the model has travelled.
static void test_join_training(void)
{
    Model *model = small_model(hvd_distributed_optimizer(sgd_momentum(0.1f, 0.9f, false)));
    set_seed(100 + (uint64_t)hvd_rank());
    Images images;
    Batch batch = random_batch(&images);
    for (int epoch = 0; epoch < 3; epoch++) {
        Training training = {.logs = {.loss = hvd_rank(), .images = 2}};
        int steps = calls_of(hvd_rank()) - 1;
        for (int step = 0; step < steps; step++)
            train_on_batch(model, &batch);
        Callback *average = hvd_metric_average();
        if (steps == calls_of(last_to_join()) - 1) { // who works to the end has the last word
            average->epoch_end(average, &training);
            EXPECT_EQUAL(training.logs.loss, last_to_join());
        }
        free(average);
        int last = hvd_join();
        EXPECT_EQUAL(last, last_to_join());
        hvd_broadcast_model(model, last);
        EXPECT(same_everywhere(model_fingerprints(model).weights));
        EXPECT(optimizer_iterations(model_optimizer(model)) ==
               (epoch + 1) * (calls_of(last_to_join()) - 1));
    }
    model_free(model);
}

int main(void)
{
    hvd_init();
    hvd_init(); // once more does no harm
    device_use(hvd_local_rank());
    // A GPU's usual tf32 rounds a third of a gradient otherwise than the gradient.
    char *words[] = {"test_hvd", "--precision", "fp32", NULL};
    parse_args(3, words);
    float *values = allocate(MAX_COUNT + 1, sizeof *values);
    test_places();
    test_allreduce(values);
    test_no_numbers(values);
    test_same_bits(values);
    test_allgather(values);
    test_reduce_scatter(values);
    test_allgather_ints();
    test_ints_and_bytes();
    test_calls_from_two_lines();
    test_sparse();
    test_groups(values);
    test_broadcast(values);
    test_training();
    test_device_values(values);
    test_metric_average();
    test_join_values(values);
    test_join_gradients("");
    test_join_gradients("0");
    test_join_training();
    free(values);
    if (hvd_rank() == 0)
        printf("hvd keeps its promises on %d ranks\n", hvd_size());
    return 0;
}
