// What the exercises of labs 3 to 10 share; exercises.h says what each function does. The code is
// that of a step, except trace_call(), by which a check sees that a student has called one of these
// in place of the exercise.

#include "lessons/exercises.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "data/batches.h"
#include "data/dataset.h"
#include "hvd/hvd.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "observe/trace.h"
#include "run/device.h"
#include "train/callbacks.h"
#include "train/fit.h"

Model *create_lenet(int filters, int units)
{
    Tensor image = input(28, 28, 1);                         // (28, 28, 1)
    Tensor x = max_pool(relu(conv2d(image, filters, 3)), 2); // (14, 14, filters)
    x = max_pool(relu(conv2d(x, 2 * filters, 3)), 2);        // (7, 7, 2 * filters)
    x = flatten(x);
    if (units > 0)
        x = relu(dense(x, units));
    return model(image, softmax(dense(x, 10)));
}

void train_on_workers(Model *model, const Args *args)
{
    int verbose = hvd_rank() == 0;
    Dataset train = load_data(args, TRAIN);
    Dataset test = load_data(args, TEST);
    Statistics statistics = image_statistics(&train);
    Batches *train_batches = plain_batches(&train, statistics, args->batch_size);
    Batches *test_batches = plain_batches(&test, statistics, args->val_batch_size);

    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    if (verbose)
        callbacks_add(&callbacks, print_throughput(train.count));

    fit(model, &(Fit){
                   .train = train_batches,
                   .epochs = args->epochs,
                   .steps_per_epoch = batches_len(train_batches) / hvd_size(),
                   .validation = test_batches,
                   .validation_steps = 3 * batches_len(test_batches) / hvd_size(),
                   .callbacks = &callbacks,
                   .verbose = verbose,
               });
}

void train_lenet(const Args *args)
{
    Optimizer *opt = hvd_distributed_optimizer(sgd(args->base_lr));
    train_on_workers(compile(create_lenet(32, 512), CATEGORICAL_CROSSENTROPY, opt), args);
}

// ---- Gradients in pieces.

typedef struct {
    Optimizer optimizer;
    void (*ready)(float *gradients, int count);
    void (*finish)(float *gradients, size_t count);
} InPieces;

static void piece_ready(Optimizer *optimizer, const Parameters *parameters, size_t offset,
                        size_t length)
{
    const InPieces *self = (const InPieces *)optimizer;
    if (length == 0)
        return;
    trace("piece", NUMBER("count", length));
    self->ready(parameters->gradients + offset, (int)length);
    trace("piece_end", NUMBER("count", length));
}

static void apply_pieces(Optimizer *optimizer, const Parameters *parameters)
{
    const InPieces *self = (const InPieces *)optimizer;
    trace("pieces_finish", NUMBER("count", parameters->length));
    self->finish(parameters->gradients, parameters->length);
    trace("pieces_finished", NUMBER("count", parameters->length));
    optimizer->inner->apply(optimizer->inner, parameters);
}

Optimizer *optimizer_in_pieces(Optimizer *optimizer, void (*ready)(float *gradients, int count),
                               void (*finish)(float *gradients, size_t count))
{
    device_need_cpu(__func__);
    InPieces *pieces = allocate(1, sizeof *pieces);
    pieces->optimizer = (Optimizer){
        .name = optimizer->name,
        .inner = optimizer,
        .gradient_ready = piece_ready,
        .apply = apply_pieces,
    };
    pieces->ready = ready;
    pieces->finish = finish;
    return &pieces->optimizer;
}

void allreduce_in_pieces(float *values, size_t count, MPI_Comm comm,
                         void (*sum)(float *values, int count, MPI_Comm comm))
{
    const size_t longest = 1 << 18;
    size_t done = 0;
    do {
        size_t length = count - done < longest ? count - done : longest;
        sum(values + done, (int)length, comm);
        done += length;
    } while (done < count);
}

// The root's batch, on all workers, until the next call.
static Batch roots_batch(const Model *model, Batches *batches, float **images, int **labels)
{
    Batch batch = batches_next(batches);
    size_t floats = (size_t)batch.count * model_image_length(model);
    *images = enlarge(*images, floats, sizeof **images);
    *labels = enlarge(*labels, (size_t)batch.count, sizeof **labels);
    memcpy(*images, batch.images, floats * sizeof **images);
    memcpy(*labels, batch.labels, (size_t)batch.count * sizeof **labels);
    hvd_broadcast(*images, floats, 0);
    hvd_broadcast_bytes(*labels, (size_t)batch.count * sizeof **labels, 0);
    return (Batch){.images = *images, .labels = *labels, .count = batch.count};
}

Metrics pass_of_all(Model *model, Batches *batches, void (*function)(Model *, const Batch *))
{
    float *images = NULL;
    int *labels = NULL;
    int steps = batches_len(batches);
    model_reset_metrics(model);
    batches_begin(batches, steps);
    for (int step = 0; step < steps; step++) {
        Batch batch = roots_batch(model, batches, &images, &labels);
        function(model, &batch);
    }
    free(images);
    free(labels);
    return model_metrics(model);
}

void measure_exchange(const char *name, int (*exchange)(Model *model), int floats, Model *model)
{
    enum { TIMES = 10 };
    int rows = 0;
    hvd_barrier();
    double begin = seconds_now();
    for (int i = 0; i < TIMES; i++)
        rows = exchange(model);
    hvd_barrier();
    double seconds = (seconds_now() - begin) / TIMES;
    if (hvd_rank() == 0)
        printf("%-8s %6d rows %10.1f KB %9.3f ms\n", name, rows, rows * floats * 4 / 1e3,
               seconds * 1e3);
}

Metrics pass_of_replicas(Mirrored *replicas, Batches *batches,
                         void (*function)(Replica *replica, const Batch *batch))
{
    for (int i = 0; i < mirrored_devices(replicas); i++)
        model_reset_metrics(mirrored_model(replicas, i));
    int steps = batches_len(batches);
    batches_begin(batches, steps);
    for (int step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        batch_on_each_device(replicas, function, &batch);
    }
    Metrics all = {0};
    for (int i = 0; i < mirrored_devices(replicas); i++) {
        Metrics own = model_metrics(mirrored_model(replicas, i));
        all.loss += own.loss;
        all.correct += own.correct;
        all.images += own.images;
    }
    return all;
}

// Copies the block of a matrix that begins at (row, column). A row of `whole` has `columns` numbers,
// and the block has own_rows x own_columns.
static void copy_block(const float *whole, int columns, int row, int column, float *own,
                       int own_rows, int own_columns)
{
    for (int r = 0; r < own_rows; r++)
        memcpy(own + r * own_columns, whole + (row + r) * columns + column,
               (size_t)own_columns * sizeof *own);
}

// Every variable is taken for a matrix: one without rows for one row, a kernel of a convolution for
// one column for each filter.
static void take_part_for(const char *caller, Model *own, const Model *whole, int part)
{
    for (int v = 0; v < model_variable_count(own); v++) {
        const Variable *from = model_variable(whole, v), *to = model_variable(own, v);
        int columns = from->dims[from->ndims - 1], rows = (int)variable_size(from) / columns;
        int own_columns = to->dims[to->ndims - 1], own_rows = (int)variable_size(to) / own_columns;
        bool fewer_rows = own_rows < rows, fewer_columns = own_columns < columns;
        bool divided = rows % own_rows == 0 && columns % own_columns == 0;
        int of_rows = rows / own_rows, of_columns = columns / own_columns;
        int parts = fewer_rows && !(fewer_columns && of_columns < of_rows) ? of_rows : of_columns;
        if (!divided)
            die("%s: %s is not divided into equal parts of %d x %d: give every worker as many units",
                caller, from->name, own_rows, own_columns);
        if ((fewer_rows || fewer_columns) && (part < 0 || part >= parts))
            die("%s: part %d of %d of %s is not there: parts are numbered from 0", caller, part,
                parts, from->name);
        float *all = allocate(variable_size(from), sizeof *all);
        float *block = allocate(variable_size(to), sizeof *block);
        model_read_variable(whole, v, all);
        copy_block(all, columns, fewer_rows ? part * own_rows : 0,
                   fewer_columns ? part * own_columns : 0, block, own_rows, own_columns);
        model_write_variable(own, v, block);
        free(all);
        free(block);
    }
}

void take_part(Model *own, const Model *whole, int part)
{
    take_part_for(__func__, own, whole, part);
}

void take_own_part(Model *own, const Model *whole)
{
    take_part_for(__func__, own, whole, hvd_rank());
}

Batch slice_of_batch(const Model *model, const Batch *batch, int part, int parts)
{
    if (part < 0 || part >= parts)
        die("%s: part %d of %d is not there: parts are numbered from 0", __func__, part, parts);
    if (batch->count % parts != 0)
        die("%s: %d images of a batch are not %d equal parts: change --batch-size or --images",
            __func__, batch->count, parts);
    int count = batch->count / parts;
    size_t image = model_image_length(model);
    return (Batch){.images = batch->images + (size_t)part * (size_t)count * image,
                   .labels = batch->labels + part * count,
                   .count = count};
}

void need_columns(int columns)
{
    if (hvd_size() % columns != 0)
        die("the number of workers, %d, is not a multiple of --columns %d", hvd_size(), columns);
}

// ---- A learning rate that falls from batch to batch.

typedef struct {
    Callback callback;
    float lr, decay;
    double batches; // that are done
} InverseTimeDecay;

static void decay_batch_begin(Callback *self, Training *training)
{
    InverseTimeDecay *state = (InverseTimeDecay *)self;
    float lr = state->lr / (1 + state->decay * (float)state->batches);
    optimizer_set_learning_rate(model_optimizer(training->model), lr);
    state->batches++;
}

Callback *inverse_time_decay(float lr, float decay)
{
    InverseTimeDecay *state = allocate(1, sizeof *state);
    *state = (InverseTimeDecay){.lr = lr, .decay = decay};
    state->callback = (Callback){
        .name = "inverse_time_decay",
        .batch_begin = decay_batch_begin,
        .kept = &state->batches, // a checkpoint keeps it, and restoring brings it back
        .kept_count = 1,
    };
    return &state->callback;
}

// ---- The two roles of lab 8.

static void respond_to_pull(PsServer *server, const PsRequest *request)
{
    ps_send_weights(server, request->worker);
}

static void respond_to_push(PsServer *server, const PsRequest *request)
{
    ps_apply(server, request->gradients);
}

typedef struct {
    void (*act)(PsServer *server, const PsRequest *request); // NULL: nothing
    bool leaves;
} Response;

static const Response responses[] = {
    [PS_PULL] = {.act = respond_to_pull},
    [PS_PUSH] = {.act = respond_to_push},
    [PS_DONE] = {.leaves = true},
    [PS_LOST] = {.leaves = true},
};

void serve_workers(PsServer *server)
{
    trace_call();
    int left = 0;
    do {
        PsRequest request = ps_next(server);
        const Response *response = &responses[request.kind];
        if (response->act)
            response->act(server, &request);
        left += response->leaves;
    } while (left < ps_workers());
}

static int64_t pull_all(PsWorker *worker)
{
    int64_t version;
    int server = 0;
    do
        version = ps_pull(worker, server);
    while (++server < ps_servers());
    return version;
}

static void push_all(PsWorker *worker)
{
    int server = 0;
    do
        ps_push(worker, server);
    while (++server < ps_servers());
}

int64_t pull_weights(PsWorker *worker)
{
    trace_call();
    return pull_all(worker);
}

void push_gradients(PsWorker *worker)
{
    trace_call();
    push_all(worker);
}

void train_with_servers(PsWorker *worker, Model *model, Batches *batches, int epochs)
{
    trace_call();
    int steps = batches_len(batches);
    for (int epoch = 1; epoch <= epochs; epoch++) {
        model_reset_metrics(model);
        batches_begin(batches, steps);
        for (int step = 0; step < steps; step++) {
            pull_all(worker);
            Batch batch = batches_next(batches);
            compute_gradients(model, &batch);
            push_all(worker);
        }
        Metrics metrics = model_metrics(model);
        printf("worker %d: epoch %d/%d - loss: %.4f - accuracy: %.4f\n", ps_number(), epoch, epochs,
               metrics.loss / metrics.images, metrics.correct / metrics.images);
    }
}

Batches *own_batches(const Args *args)
{
    Dataset images = load_data(args, TRAIN);
    Dataset shard = shard_dataset(&images, ps_number(), ps_workers());
    return augmented_batches(&shard, image_statistics(&images), args->batch_size);
}
