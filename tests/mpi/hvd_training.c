// What hvd promises to a model that trains: the distributed optimizer against gradients averaged by
// hand, optimizers around it, and the broadcast of weights. A part of test_hvd.c.

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "backend/backend.h"
#include "hvd_checks.h"
#include "models/models.h"
#include "base/rng.h"
#include "base/memory.h"
#include "lessons/shards.h"
#include "lessons/shards_state.h"

Model *small_model(Optimizer *optimizer)
{
    ModelShape shape = {.height = 8, .width = 8, .channels = 1, .widths = {24, 16, 10}};
    return compile(l2_penalty(mlp(shape), 1e-3f), CATEGORICAL_CROSSENTROPY, optimizer);
}

Batch random_batch(Images *images)
{
    Rng rng = rng_stream(RNG_SYNTHETIC_DATA, 0);
    for (int i = 0; i < BATCH * PIXELS; i++)
        images->images[i] = rng_normal(&rng);
    for (int i = 0; i < BATCH; i++)
        images->labels[i] = (int)rng_below(&rng, 10);
    return (Batch){images->images, images->labels, BATCH};
}

bool same_everywhere(double value)
{
    float halves[2] = {(float)value, (float)(value - (double)(float)value)};
    float least[2], most[2];
    memcpy(least, halves, sizeof least);
    memcpy(most, halves, sizeof most);
    hvd_allreduce(least, 2, HVD_MIN);
    hvd_allreduce(most, 2, HVD_MAX);
    return least[0] == most[0] && least[1] == most[1];
}

static float *copy_of(const float *arena, size_t length)
{
    float *copy = allocate(length, sizeof *copy);
    Device *device = device_current();
    backend_of(device)->read(device, copy, arena, length * sizeof *copy);
    return copy;
}

float *copy_gradients(const Model *model)
{
    const Parameters *p = model_parameters(model);
    return copy_of(p->gradients, p->length);
}

// Gradients that travel as bfloat16 lose all but 8 bits.
static bool compressed(void)
{
    const char *text = getenv("HVD_COMPRESSION");
    return text && strcmp(text, "bf16") == 0 && hvd_size() > 1;
}

// Whether averages of `length` gradients are what they should be.
static bool close_enough(const float *gradients, const float *expected, size_t length)
{
    float largest = 0, worst = 0;
    for (size_t i = 0; i < length; i++) {
        largest = fmaxf(largest, fabsf(expected[i]));
        worst = fmaxf(worst, fabsf(gradients[i] - expected[i]));
    }
    return worst <= (compressed() ? 0.01f * largest : 1e-6f) && (!compressed() || worst > 0);
}

static void test_distributed_gradients(const char *threshold)
{
    setenv("HVD_FUSION_THRESHOLD", threshold, 1);
    set_seed(5); // the same weights everywhere; other images on each rank
    Model *plain = small_model(sgd(0.1f)), *distributed = NULL;
    set_seed(5);
    distributed = small_model(hvd_distributed_optimizer(sgd(0.1f)));
    set_seed(100 + (uint64_t)hvd_rank());
    Images images;
    Batch batch = random_batch(&images);

    train_on_batch(plain, &batch);
    float *averaged = copy_gradients(plain);
    size_t length = model_parameters(plain)->length;
    hvd_allreduce(averaged, length, HVD_AVERAGE);
    train_on_batch(distributed, &batch);
    float *gradients = copy_gradients(distributed);
    EXPECT(close_enough(gradients, averaged, length));
    free(gradients);
    for (int i = 0; i < 3; i++)
        train_on_batch(distributed, &batch);
    EXPECT(same_everywhere(model_fingerprints(distributed).weights));
    EXPECT(hvd_size() == 1 || !same_everywhere(model_fingerprints(plain).weights));
    free(averaged);
    model_free(plain);
    model_free(distributed);
    unsetenv("HVD_FUSION_THRESHOLD");
}

// An optimizer of a program's own around another one.
static int forwarded, applied;

static void forward_ready(Optimizer *self, const Parameters *parameters, size_t offset,
                          size_t length)
{
    forwarded++;
    if (self->inner->gradient_ready)
        self->inner->gradient_ready(self->inner, parameters, offset, length);
}

static void forward_apply(Optimizer *self, const Parameters *parameters)
{
    applied++;
    self->inner->apply(self->inner, parameters);
}

static Optimizer *own_optimizer(Optimizer *inner, bool forwards)
{
    Optimizer *own = allocate(1, sizeof *own);
    *own = (Optimizer){.name = "Own", .inner = inner, .apply = forward_apply};
    if (forwards)
        own->gradient_ready = forward_ready;
    return own;
}

static Model *seeded_model(uint64_t seed, Optimizer *optimizer)
{
    set_seed(seed);
    return small_model(optimizer);
}

// Trains both models with the same batches, a new one in each step.
static void train_alike(Model *a, Model *b, void (*step_a)(Model *, const Batch *))
{
    Images images;
    for (int i = 0; i < 3; i++) {
        set_seed(200 + (uint64_t)(10 * i + hvd_rank()));
        Batch batch = random_batch(&images);
        step_a(a, &batch);
        train_on_batch(b, &batch);
    }
}

// The same weights, to the last bit; with fusion into other pieces, more ranks than two may add up
// in another order.
// Rounding is another where sums are made in another order.
#define ROUNDING 1e-5f

static bool same_weights(const Model *a, const Model *b, float tolerance)
{
    size_t length = model_parameters(a)->length;
    float *values = copy_of(model_parameters(a)->weights, length);
    float *others = copy_of(model_parameters(b)->weights, length);
    bool same = true;
    for (size_t i = 0; i < length; i++)
        same &= fabsf(values[i] - others[i]) <= tolerance;
    free(values);
    free(others);
    return same;
}

// Whether or not it tells the distributed optimizer inside it that gradients are ready, and also
// the other way round, on the outside.
static void test_own_optimizer(const char *threshold)
{
    setenv("HVD_FUSION_THRESHOLD", threshold, 1);
    for (int way = 0; way < 3; way++) {
        Optimizer *outer = way < 2 ? own_optimizer(hvd_distributed_optimizer(sgd(0.1f)), way == 1)
                                   : hvd_distributed_optimizer(own_optimizer(sgd(0.1f), false));
        Model *own = seeded_model(5, outer);
        Model *plain = seeded_model(5, hvd_distributed_optimizer(sgd(0.1f)));
        forwarded = applied = 0;
        train_alike(own, plain, train_on_batch);
        EXPECT(applied == 3 && (forwarded > 0) == (way == 1));
        EXPECT(same_everywhere(model_fingerprints(own).weights));
        EXPECT(compressed() || same_weights(own, plain, hvd_size() <= 2 ? 0 : ROUNDING));
        model_free(own);
        model_free(plain);
    }
    unsetenv("HVD_FUSION_THRESHOLD");
}

static void compute_and_apply(Model *model, const Batch *batch)
{
    compute_gradients(model, batch);
    apply_gradients(model);
}

// Gradients that are never applied have no effect.
static void compute_twice_and_apply(Model *model, const Batch *batch)
{
    Images images;
    Batch other = random_batch(&images);
    compute_gradients(model, &other);
    compute_gradients(model, batch);
    apply_gradients(model);
}

static Model *bystander;

// Another model's gradients are computed before this one's are applied.
static void compute_two_and_apply(Model *model, const Batch *batch)
{
    compute_gradients(model, batch);
    compute_gradients(bystander, batch);
    apply_gradients(model);
    apply_gradients(bystander);
}

static void test_halves_of_a_step(const char *threshold)
{
    void (*const steps[])(Model *, const Batch *) = {compute_and_apply, compute_twice_and_apply,
                                                     compute_two_and_apply};
    setenv("HVD_FUSION_THRESHOLD", threshold, 1);
    for (int i = 0; i < 3; i++) {
        Model *halves = seeded_model(5, hvd_distributed_optimizer(adam(0.01f)));
        Model *whole = seeded_model(5, hvd_distributed_optimizer(adam(0.01f)));
        bystander = seeded_model(5, hvd_distributed_optimizer(adam(0.01f)));
        train_alike(halves, whole, steps[i]);
        EXPECT(same_weights(halves, whole, 0));
        EXPECT(i < 2 || same_weights(bystander, whole, 0));
        Images images;
        Batch batch = random_batch(&images);
        compute_gradients(whole, &batch); // and never applied
        model_free(whole);
        model_free(halves);
        model_free(bystander);
    }
    unsetenv("HVD_FUSION_THRESHOLD");
}

// An update after a broadcast is that of gradients after the broadcast, all of them.
static void test_broadcast_forgets(Model *many, int passes)
{
    Images own;
    Batch batch = random_batch(&own);
    for (int pass = 1; pass < passes; pass++)
        train_on_batch(many, &batch);
    hvd_broadcast_model(many, 0);
    int64_t before = optimizer_iterations(model_optimizer(many));
    for (int pass = 0; pass < passes; pass++) {
        EXPECT_EQUAL(optimizer_iterations(model_optimizer(many)), before);
        train_on_batch(many, &batch);
    }
    EXPECT_EQUAL(optimizer_iterations(model_optimizer(many)), before + 1);
}

// One update from several batches is that of one batch with all their images; what the batches
// before the last one leave are the weights as they were.
static void test_passes(int passes, const char *threshold)
{
    enum { MAX_PASSES = 3 };
    static float images[MAX_PASSES * BATCH * PIXELS];
    static int labels[MAX_PASSES * BATCH];
    setenv("HVD_FUSION_THRESHOLD", threshold, 1);
    Model *many =
        seeded_model(5, hvd_distributed_optimizer_every(sgd_momentum(0.1f, 0.9f, false), passes));
    Model *large = seeded_model(5, hvd_distributed_optimizer(sgd_momentum(0.1f, 0.9f, false)));
    EXPECT(strcmp(model_optimizer(many)->name, "DistributedSGD") == 0);
    for (int update = 0; update < 3; update++) {
        Batch whole = {images, labels, passes * BATCH};
        for (int pass = 0; pass < passes; pass++) {
            EXPECT_EQUAL(optimizer_iterations(model_optimizer(many)), update);
            EXPECT(compressed() || same_weights(many, large, ROUNDING));
            Images own;
            set_seed(200 + (uint64_t)(100 * update + 10 * pass + hvd_rank()));
            Batch batch = random_batch(&own);
            memcpy(&images[pass * BATCH * PIXELS], own.images, sizeof own.images);
            memcpy(&labels[pass * BATCH], own.labels, sizeof own.labels);
            train_on_batch(many, &batch);
        }
        train_on_batch(large, &whole);
    }
    EXPECT(same_everywhere(model_fingerprints(many).weights));
    EXPECT(compressed() || same_weights(many, large, passes == 1 ? 0 : ROUNDING));
    test_broadcast_forgets(many, passes);
    Images own;
    Batch batch = random_batch(&own);
    train_on_batch(many, &batch); // of an update that is never made
    model_free(many);
    model_free(large);
    unsetenv("HVD_FUSION_THRESHOLD");
}

// ---- An optimizer in shards, in host memory, against the distributed one.

static int part_begin(int count)
{
    int each = count / hvd_size(), longer = count % hvd_size();
    return hvd_rank() * each + (hvd_rank() < longer ? hvd_rank() : longer);
}

static int part_count(int count)
{
    return count / hvd_size() + (hvd_rank() < count % hvd_size());
}

static void keep_part(Piece *piece)
{
    int count = piece_count(piece);
    hvd_reduce_scatter(piece_gradients(piece), (size_t)count,
                       kept_gradients(piece, part_count(count)), HVD_AVERAGE);
}

static void update_part(Piece *piece)
{
    int count = piece_count(piece);
    update_weights(piece, part_begin(count), part_count(count));
    size_t total;
    float *all =
        hvd_allgather(piece_weights(piece) + part_begin(count), (size_t)part_count(count), &total);
    EXPECT_EQUAL(total, (size_t)count);
    memcpy(piece_weights(piece), all, total * sizeof *all);
    free(all);
}

// The penalty and the state are those of the weights' own variables. The parts of all ranks take
// the memory of one state.
static void test_shards(Optimizer *(*optimizer)(float))
{
    if (device_is_gpu() || compressed())
        return;
    Model *shards = seeded_model(5, optimizer_in_shards(optimizer(0.01f), keep_part, update_part));
    Model *whole = seeded_model(5, hvd_distributed_optimizer(optimizer(0.01f)));
    EXPECT(model_memory(shards).gradients < model_memory(whole).gradients);
    train_alike(shards, whole, train_on_batch);
    EXPECT(same_everywhere(model_fingerprints(shards).weights));
    EXPECT(same_weights(shards, whole, 1e-5f));
    EXPECT(optimizer_iterations(model_optimizer(shards)) ==
           optimizer_iterations(model_optimizer(whole)));
    float state = (float)model_memory(shards).optimizer;
    hvd_allreduce(&state, 1, HVD_SUM);
    // The weights of a variable are padded in the arena, and a piece ends where its last one does.
    float padding = 64.0f * 2 * 3 * sizeof(float);
    EXPECT(fabsf(state - (float)model_memory(whole).optimizer) <= padding);
    model_free(shards);
    model_free(whole);
}

// Weights in shards, too.
static Piece *divided[8];
static int divided_count;

static void gather_piece(Piece *piece)
{
    size_t total;
    float *all = hvd_allgather(kept_weights(piece), (size_t)part_count(piece_count(piece)), &total);
    memcpy(allocate_weights(piece), all, total * sizeof *all);
    free(all);
}

static void divide_piece(Piece *piece)
{
    int count = piece_count(piece);
    keep_weights(piece, part_begin(count), part_count(count));
    free_weights(piece);
    divided[divided_count++] = piece;
}

static void update_own(Piece *piece)
{
    int count = piece_count(piece);
    update_weights(piece, part_begin(count), part_count(count));
}

static void test_weights_in_shards(Optimizer *(*optimizer)(float))
{
    if (device_is_gpu() || compressed())
        return;
    divided_count = 0;
    Optimizer *inner = optimizer_in_shards(optimizer(0.01f), keep_part, update_own);
    Model *shards =
        seeded_model(5, weights_in_shards(inner, divide_piece, gather_piece, free_weights));
    Model *whole = seeded_model(5, hvd_distributed_optimizer(optimizer(0.01f)));
    train_alike(shards, whole, train_on_batch);
    EXPECT(model_fingerprints(shards).weights == 0);
    for (int i = 0; i < divided_count; i++)
        gather_piece(divided[i]);
    EXPECT(same_everywhere(model_fingerprints(shards).weights));
    EXPECT(same_weights(shards, whole, 1e-5f));
    model_free(shards);
    model_free(whole);
}

// Of each array of the state every number is one rank's own, and all ranks have the variables.
static void test_state_arrays(void)
{
    if (device_is_gpu() || compressed())
        return;
    Model *m = seeded_model(5, optimizer_in_equal_shards(adam(0.01f)));
    Model *whole = seeded_model(5, hvd_distributed_optimizer(adam(0.01f)));
    train_alike(m, whole, train_on_batch);
    EXPECT(same_weights(m, whole, 1e-5f));
    int variables = state_array_count(m) / 3;
    for (int i = 0; i < 3 * variables; i++) {
        StateArray array = state_array(m, i);
        float owned = (float)array.own.count;
        hvd_allreduce(&owned, 1, HVD_SUM);
        EXPECT_EQUAL((int)owned, array.length);
        EXPECT_EQUAL(array.needed.count, i < variables ? array.length : array.own.count);
        EXPECT_EQUAL(array.needed.begin, i < variables ? 0 : array.own.begin);
        EXPECT((strncmp(array.name, "optimizer/", 10) != 0) == (i < variables));
    }
    EXPECT(strncmp(state_array(m, variables).name, "optimizer/m/", 12) == 0);
    EXPECT(same_everywhere(state_array(m, 0).values[0]));
    model_free(m);
    model_free(whole);
}

// An all-reduce of a program's own.
static int own_calls;
static size_t own_values;

static void own_allreduce(float *values, size_t count, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    EXPECT_EQUAL(size, hvd_size());
    own_calls++;
    own_values += count;
    float *sum = allocate(count, sizeof *sum);
    MPI_Reduce(values, sum, (int)count, MPI_FLOAT, MPI_SUM, 0, comm);
    MPI_Bcast(sum, (int)count, MPI_FLOAT, 0, comm);
    memcpy(values, sum, count * sizeof *sum);
    free(sum);
}

static void test_own_allreduce(const char *threshold)
{
    if (compressed()) // which it does not go with
        return;
    setenv("HVD_FUSION_THRESHOLD", threshold, 1);
    Model *own = seeded_model(5, hvd_distributed_optimizer(sgd(0.1f)));
    Model *library = seeded_model(5, hvd_distributed_optimizer(sgd(0.1f)));
    Images images;
    for (int i = 0; i < 3; i++) {
        set_seed(200 + (uint64_t)(10 * i + hvd_rank()));
        Batch batch = random_batch(&images);
        own_calls = 0, own_values = 0;
        train_on_batch(library, &batch);
        EXPECT_EQUAL(own_calls, 0);
        hvd_use_allreduce(own_allreduce);
        train_on_batch(own, &batch);
        hvd_use_allreduce(NULL);
        EXPECT(own_values == (hvd_size() > 1 ? model_parameters(own)->length : 0));
        EXPECT(hvd_size() == 1 || (*threshold == '0' ? own_calls > 1 : own_calls == 1));
    }
    EXPECT(same_everywhere(model_fingerprints(own).weights));
    EXPECT(same_weights(own, library, ROUNDING));
    model_free(own);
    model_free(library);
    unsetenv("HVD_FUSION_THRESHOLD");
}

// With one worker the distributed optimizer changes nothing, to the last bit; with several it still
// has the name, the learning rate and the number of updates of the one that it wraps.
static void test_delegation(void)
{
    Optimizer *inner = adam(0.25f), *outer = hvd_distributed_optimizer(inner);
    EXPECT(strcmp(outer->name, "DistributedAdam") == 0);
    EXPECT_EQUAL(optimizer_learning_rate(outer), 0.25f);
    optimizer_set_learning_rate(outer, 0.5f);
    EXPECT(inner->rule.learning_rate == 0.5f && optimizer_learning_rate(outer) == 0.5f);
    EXPECT(optimizer_innermost(outer) == inner);

    set_seed(3);
    Model *model = small_model(outer), *twin = NULL;
    set_seed(3);
    twin = small_model(adam(0.5f));
    Images images;
    Batch batch = random_batch(&images);
    for (int i = 0; i < 3; i++) {
        train_on_batch(model, &batch);
        train_on_batch(twin, &batch);
    }
    EXPECT_EQUAL(optimizer_iterations(outer), 3);
    double a = model_fingerprints(model).weights, b = model_fingerprints(twin).weights;
    // Equal batches: the average is each one's. Rounded gradients soon lead Adam elsewhere.
    EXPECT(hvd_size() == 1 ? a == b : compressed() || fabs(a - b) < 1e-4);
    model_free(model);
    model_free(twin);
}

// Weights, statistics, slots and the number of updates come from the root, whichever it is.
static void test_broadcast_model(int root)
{
    set_seed(10 + (uint64_t)hvd_rank());
    Model *model = small_model(hvd_distributed_optimizer(sgd_momentum(0.1f, 0.9f, false)));
    Images images;
    Batch batch = random_batch(&images);
    Optimizer *inner = optimizer_innermost(model_optimizer(model));
    for (int i = 0; hvd_rank() == root && i < 4; i++)
        inner->iterations += 1; // a root that comes back from a checkpoint ...
    optimizer_set_learning_rate(inner, hvd_rank() == root ? 0.02f : 0.5f);
    size_t length = model_parameters(model)->length;
    float *momenta = allocate(length, sizeof *momenta);
    for (size_t i = 0; i < length; i++)
        momenta[i] = 0.01f * (float)(i % 13);
    if (hvd_rank() == root) {
        optimizer_allocate_slots(inner, model_parameters(model)); // ... with its momenta
        backend_of(inner->device)
            ->write(inner->device, inner->slots[0], momenta, length * sizeof *momenta);
    }
    float weights = (float)model_fingerprints(model).weights;
    hvd_broadcast(&weights, 1, root);
    hvd_broadcast_model(model, root);
    EXPECT_EQUAL((float)model_fingerprints(model).weights, weights);
    EXPECT(inner->iterations == 4 && inner->rule.learning_rate == 0.02f);
    float *received = copy_of(inner->slots[0], length);
    EXPECT(memcmp(received, momenta, length * sizeof *momenta) == 0);
    free(received);
    free(momenta);
    train_on_batch(model, &batch);
    EXPECT(same_everywhere(model_fingerprints(model).weights));
    model_free(model);
}

// Moving statistics, too, begin as the root's.
static void test_broadcast_statistics(void)
{
    ModelShape shape = {.height = 8, .width = 8, .channels = 1, .widths = {4, 4, 8, 8, 10}};
    Model *model = compile(wide_resnet(shape), CATEGORICAL_CROSSENTROPY, sgd(0.1f));
    set_seed(20 + (uint64_t)hvd_rank());
    Images images;
    Batch batch = random_batch(&images);
    train_on_batch(model, &batch);
    EXPECT(hvd_size() == 1 || !same_everywhere(model_fingerprints(model).statistics));
    hvd_broadcast_model(model, hvd_size() - 1);
    EXPECT(same_everywhere(model_fingerprints(model).statistics));
    model_free(model);
}

// A model without weights is broadcast, trained and saved like any other.
static void test_weightless(void)
{
    Dataset data = load_data(&(Args){.data = DATA_SYNTHETIC, .images = 32}, TRAIN);
    data.classes = 28 * 28;
    Tensor image = input(28, 28, 1);
    Model *m = compile(model(image, softmax(flatten(image))), CATEGORICAL_CROSSENTROPY,
                       hvd_distributed_optimizer(adam(0.1f)));
    hvd_broadcast_model(m, 0);
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    History history = fit(m, &(Fit){.train = plain_batches(&data, image_statistics(&data), 8),
                                    .epochs = 1,
                                    .steps_per_epoch = 2,
                                    .callbacks = &callbacks});
    EXPECT(history.logs[0].loss > 0);
}

// One update for every `passes` batches: the momentum follows the rates of updates.
static void test_warmup(int passes)
{
    const float lr = 0.1f;
    const int epochs = 3, steps = 4;
    Callback *warmup = hvd_learning_rate_warmup(lr, epochs);
    Model *model =
        small_model(hvd_distributed_optimizer_every(sgd_momentum(lr, 0.9f, false), passes));
    const Update *rule = &optimizer_innermost(model_optimizer(model))->rule;
    Training training = {.model = model, .epochs = 5, .steps = steps};
    float before = lr;
    for (training.epoch = 0; training.epoch < 5; training.epoch++)
        for (training.step = 0; training.step < steps; training.step++) {
            warmup->batch_begin(warmup, &training);
            float done = (float)training.epoch + (float)(training.step + 1) / (float)steps;
            float ramp = fminf(done / (float)epochs, 1);
            EXPECT(fabsf(rule->learning_rate - lr * (1 + (float)(hvd_size() - 1) * ramp)) < 1e-6f);
            EXPECT(fabsf(rule->momentum - 0.9f * rule->learning_rate / before) < 1e-6f);
            Images own;
            Batch batch = random_batch(&own);
            train_on_batch(model, &batch);
            if ((training.step + 1) % passes == 0)
                before = rule->learning_rate;
            warmup->batch_end(warmup, &training);
            EXPECT_EQUAL(rule->momentum, 0.9f);
        }
    EXPECT(fabsf(rule->learning_rate - lr * (float)hvd_size()) < 1e-6f);
    free(warmup);
    model_free(model);
}

void test_training(void)
{
    static const char *const thresholds[] = {"", "0", "1000", "1000000000"};
    for (int i = 0; i < 4; i++)
        test_distributed_gradients(thresholds[i]);
    for (int i = 0; i < 2; i++) {
        test_own_optimizer(thresholds[i]);
        test_halves_of_a_step(thresholds[i]);
        test_own_allreduce(thresholds[i]);
        for (int passes = 1; passes <= 3; passes++)
            test_passes(passes, thresholds[i]);
    }
    test_shards(sgd);
    test_shards(adam);
    test_shards(adagrad);
    test_weights_in_shards(sgd);
    test_weights_in_shards(adam);
    test_state_arrays();
    test_delegation();
    for (int root = 0; root < hvd_size(); root++)
        test_broadcast_model(root);
    test_broadcast_statistics();
    test_weightless();
    for (int passes = 1; passes <= 2; passes++)
        test_warmup(passes);
}
