// Replicas of a model on several devices of one process: creates them, keeps them equal, exchanges
// their arrays, and makes the training loop's steps on all of them. thread_pool.h has the threads.

#include "train/mirrored.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "backend/backend.h"
#include "nn/weights.h"
#include "run/thread_pool.h"
#include "observe/span.h"
#include "observe/trace.h"
#include "train/fit_inside.h"
#include "base/share.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"

// An array that the replicas exchange: each has one of its own, all are equally long.
typedef struct {
    float *values;
    size_t length;
} Array;

// A replica, and its arrays in an exchange.
typedef struct {
    Replica replica;
    Array array[2];
    int arrays;
    double weight;
} Partner;

struct Mirrored {
    int count;
    Partner *members;
    ThreadPool *pool;

    // The settings of their creation.
    Model *(*create)(void);
    Optimizer *(*optimizer)(void);
    Loss loss;
    pthread_mutex_t turn; // of who calls these

    bool stale; // replica 0 may have got other weights than the rest
};

static void need(const Mirrored *m, const char *caller)
{
    if (!m)
        die("%s: there are no replicas (NULL)", caller);
}

// ---- Made.

static void check_devices(const int *devices, int count)
{
    int there = device_count();
    const char *more = there == 1 ? " (on a CPU HVDLAB_DEVICES makes more)" : "";
    if (count < 1)
        die("mirrored: there is no device in the list");
    if (count > there)
        die("mirrored: %d devices in the list, and this process has %d%s", count, there, more);
    for (int i = 0; i < count; i++) {
        if (devices[i] < 0 || devices[i] >= there)
            die("mirrored: there is no device %d; this process has %d, from 0%s", devices[i], there,
                more);
        for (int k = 0; k < i; k++)
            if (devices[k] == devices[i])
                die("mirrored: device %d is in the list twice", devices[i]);
    }
}

static void trace_devices(const int *devices, int count)
{
    if (!trace_on())
        return;
    char *text = numbers_text(devices, count);
    trace("mirrored", TEXT("devices", text));
    free(text);
}

// Each is created by its own device's thread.
static void make(int index, void *argument)
{
    Mirrored *m = argument;
    pthread_mutex_lock(&m->turn);
    Model *model = m->create();
    Optimizer *optimizer = m->optimizer();
    pthread_mutex_unlock(&m->turn);
    if (optimizer && optimizer->inner)
        die("mirrored: the optimizer %s wraps another one; replicas exchange their "
            "gradients themselves",
            optimizer->name);
    model = compile(model, m->loss, optimizer);
    model_is_replica(model, index);
    m->members[index].replica =
        (Replica){.index = index, .count = m->count, .model = model, .mirrored = m};
}

static Model *model_of(const Mirrored *m, int index)
{
    return m->members[index].replica.model;
}

static void check_equal(const Mirrored *m)
{
    const Parameters *first = model_parameters(model_of(m, 0));
    for (int i = 1; i < m->count; i++)
        if (strcmp(model_parameters(model_of(m, i))->description, first->description) != 0)
            die("mirrored: create() made another model for replica %d than for replica 0", i);
}

static void equalize(Mirrored *m);

static int *first_numbers(int count)
{
    int *numbers = allocate((size_t)count, sizeof *numbers);
    for (int i = 0; i < count; i++)
        numbers[i] = i;
    return numbers;
}

Mirrored *mirrored(Model *(*create)(void), Loss loss, Optimizer *(*optimizer)(void),
                   const int *devices, int count)
{
    if (!create || !optimizer)
        die("mirrored: there is no function that makes the %s (NULL)",
            create ? "optimizer" : "model");
    if (!devices && count != 0)
        die("mirrored: there is no list of %d devices (NULL); NULL and 0 mean all", count);
    int there = device_count(), *all = first_numbers(there);
    if (!devices) {
        devices = all;
        count = there;
    }
    check_devices(devices, count);
    trace_devices(devices, count);
    Mirrored *m = allocate(1, sizeof *m);
    *m = (Mirrored){.count = count, .create = create, .optimizer = optimizer, .loss = loss};
    m->members = allocate((size_t)count, sizeof *m->members);
    pthread_mutex_init(&m->turn, NULL);
    m->pool = thread_pool_start("replica", devices, count);
    thread_pool_run(m->pool, __func__, make, m);
    check_equal(m);
    equalize(m);
    lives_until_exit(m);
    free(all);
    return m;
}

void mirrored_free(Mirrored *m)
{
    if (!m)
        return;
    thread_pool_free(m->pool, __func__);
    for (int i = 0; i < m->count; i++)
        model_free(model_of(m, i));
    pthread_mutex_destroy(&m->turn);
    free(m->members);
    free(m);
}

int mirrored_devices(const Mirrored *m)
{
    need(m, __func__);
    return m->count;
}

Model *mirrored_model(const Mirrored *m, int index)
{
    need(m, __func__);
    if (index < 0 || index >= m->count)
        die("%s: there is no replica %d; there are %d, from 0", __func__, index, m->count);
    return model_of(m, index);
}

// ---- Run.

typedef struct {
    Mirrored *mirrored;
    void (*function)(Replica *replica, void *argument);
    void *argument;
} ReplicaCall;

static void call(int index, void *argument)
{
    const ReplicaCall *c = argument;
    c->function(&c->mirrored->members[index].replica, c->argument);
}

static void run(Mirrored *m, const char *caller, bool has_function, const ReplicaCall *what)
{
    need(m, caller);
    if (!has_function)
        die("%s: there is no function (NULL)", caller);
    thread_pool_run(m->pool, caller, call, (void *)(uintptr_t)what);
}

void on_each_device(Mirrored *m, void (*function)(Replica *replica, void *argument), void *argument)
{
    run(m, __func__, function != NULL, &(ReplicaCall){m, function, argument});
}

typedef struct {
    void (*function)(Replica *replica, const Batch *batch);
    const Batch *batch;
} BatchCall;

static void call_with_batch(Replica *replica, void *argument)
{
    const BatchCall *c = argument;
    c->function(replica, c->batch);
}

void batch_on_each_device(Mirrored *m, void (*function)(Replica *replica, const Batch *batch),
                          const Batch *batch)
{
    BatchCall with_batch = {function, batch};
    run(m, __func__, function != NULL, &(ReplicaCall){m, call_with_batch, &with_batch});
}

static Partner *member_of(const Replica *replica, const char *caller)
{
    if (!replica || !replica->mirrored)
        die("%s: there is no replica (NULL)", caller);
    if (replica->index < 0 || replica->index >= replica->mirrored->count)
        die("%s: there is no replica %d; there are %d, from 0", caller, replica->index,
            replica->mirrored->count);
    return &replica->mirrored->members[replica->index];
}

Batch part_of_batch(const Replica *replica, const Batch *batch)
{
    trace_call();
    member_of(replica, __func__);
    if (!batch || !batch->images || batch->count < 0)
        die("%s: there are no images in the batch", __func__);
    Share part = share_of((size_t)batch->count, replica->index, replica->count);
    return (Batch){.images = batch->images + part.begin * model_image_length(replica->model),
                   .labels = batch->labels ? batch->labels + part.begin : NULL,
                   .count = (int)part.count};
}

// ---- Exchanged.

// Each replica must pass its own array, and all must have the same length.
static void check_exchange(const Mirrored *m, int which, const char *call)
{
    for (int i = 0; i < m->count; i++)
        for (int k = 0; k < i; k++) {
            const Array *one = &m->members[k].array[which], *other = &m->members[i].array[which];
            if (other->length != one->length)
                die("%s: replica %d passes %zu values, replica %d %zu", call, k, one->length, i,
                    other->length);
            if (other->values == one->values && other->length > 0)
                die("%s: replicas %d and %d pass the same array; each needs one of its own", call,
                    k, i);
        }
}

// The part of the arrays that a replica sums for all: whole blocks, aligned to vectors.
static void add_slice(const Mirrored *m, int index, int which, const Addend *addends,
                      const Backend *backend)
{
    Share slice = share_of_blocks(m->members[0].array[which].length, 2048, index, m->count);
    if (slice.count > 0)
        backend->add_up(addends[index].device, addends, m->count, slice.begin,
                        slice.begin + slice.count);
}

static double total_weight(const Mirrored *m, const char *call)
{
    double total = 0;
    for (int i = 0; i < m->count; i++)
        total += m->members[i].weight;
    if (total == 0)
        die("%s: the weights of all replicas are 0", call);
    if (!isfinite(total))
        die("%s: the sum of the replicas' weights is %g", call, total);
    return total;
}

// The replicas' values, for a mean multiplied by weight / sum of weights.
static Addend *addends_of(const Mirrored *m, int which, bool mean, const char *call)
{
    Addend *addends = allocate((size_t)m->count, sizeof *addends);
    double total = total_weight(m, call);
    for (int i = 0; i < m->count; i++)
        addends[i] = (Addend){.device = model_parameters(model_of(m, i))->device,
                              .values = m->members[i].array[which].values,
                              .factor = (float)(m->members[i].weight / (mean ? total : 1))};
    return addends;
}

// All replicas come here. What their devices do from now on waits for what all have queued; the
// host does not.
static void meet(const Partner *own, const Backend *backend, const char *call)
{
    const Mirrored *m = own->replica.mirrored;
    Device *device = model_parameters(own->replica.model)->device;
    if (backend->mark)
        backend->mark(device);
    thread_pool_barrier(m->pool, own->replica.index, call);
    for (int i = 0; i < m->count && backend->follow; i++)
        if (i != own->replica.index)
            backend->follow(device, model_parameters(model_of(m, i))->device);
}

// Called by all replicas, each with its arrays in the backend's memory. Together they sum all of
// them.
static void exchange(Partner *own, const Backend *backend, bool mean, const char *call)
{
    const Mirrored *m = own->replica.mirrored;
    meet(own, backend, call);
    for (int which = 0; which < own->arrays; which++) {
        check_exchange(m, which, call);
        Addend *addends = addends_of(m, which, mean, call);
        add_slice(m, own->replica.index, which, addends, backend);
        free(addends);
    }
    meet(own, backend, call);
}

static void trace_sum(const char *event, const char *function, size_t length)
{
    trace(event, TEXT("function", function), NUMBER("bytes", length * sizeof(float)));
}

void average_gradients(Replica *replica, double weight)
{
    trace_call();
    Partner *own = member_of(replica, __func__);
    const Parameters *p = model_parameters(replica->model);
    if (!(weight >= 0) || !isfinite(weight))
        die("%s: the weight of replica %d is %g", __func__, replica->index, weight);
    if (weight > 0)
        model_check_has_gradients(replica->model, __func__);
    own->weight = weight;
    if (replica->count == 1) { // its mean is what it has
        total_weight(replica->mirrored, __func__);
        return;
    }
    model_gradients_are_new(replica->model);
    span_begin(SPAN_WAIT, "average among replicas", -1, -1);
    trace_sum("sum_begin", __func__, p->length);
    own->array[0] = (Array){p->gradients, p->length};
    own->array[1].values = model_statistics(replica->model, &own->array[1].length);
    own->arrays = own->array[1].length > 0 ? 2 : 1;
    exchange(own, backend_of(p->device), true, __func__);
    trace_sum("sum_end", __func__, p->length);
    span_end();
}

void sum_among_replicas(Replica *replica, float *values, size_t length)
{
    Partner *own = member_of(replica, __func__);
    if (!values && length > 0)
        die("%s: there are no values (NULL)", __func__);
    own->weight = 1;
    span_begin(SPAN_WAIT, "sum among replicas", -1, -1);
    trace_sum("sum_begin", __func__, length);
    own->array[0] = (Array){values, length};
    own->arrays = 1;
    exchange(own, &backend_cpu, false, __func__);
    trace_sum("sum_end", __func__, length);
    span_end();
}

// ---- Kept equal.

static void copy_variable(Model *to, const Model *from, int index, float *values)
{
    model_read_variable(from, index, values);
    model_write_variable(to, index, values);
    const Optimizer *optimizer = model_optimizer(from);
    if (!model_variable(from, index)->trainable || !optimizer->slots[0])
        return;
    for (int slot = 0; slot < optimizer->slot_count; slot++) {
        model_read_slot(from, index, slot, values);
        model_write_slot(to, index, slot, values);
    }
}

static void copy_state(Replica *replica, void *unused)
{
    (void)unused;
    const Model *from = model_of(replica->mirrored, 0);
    if (replica->index == 0)
        return;
    if (!model_optimizer(from)->slots[0])
        optimizer_free_slots(model_optimizer(replica->model));
    for (int i = 0; i < model_variable_count(from); i++) {
        float *values = allocate(variable_size(model_variable(from, i)), sizeof *values);
        copy_variable(replica->model, from, i, values);
        free(values);
    }
}

// Gives all replicas the weights, the moving statistics and the optimizer's slots of replica 0.
static void equalize(Mirrored *m)
{
    if (m->count > 1)
        on_each_device(m, copy_state, NULL);
    m->stale = false;
}

// Copies to their optimizers the learning rate, other values that a callback may change, and the
// counts of passes, since a replica may have had no part of a batch.
static void follow(Mirrored *m)
{
    const Optimizer *first = model_optimizer(model_of(m, 0));
    for (int i = 1; i < m->count; i++) {
        Optimizer *optimizer = model_optimizer(model_of(m, i));
        optimizer->rule = first->rule;
        optimizer->iterations = first->iterations;
        model_set_passes(model_of(m, i), model_passes(model_of(m, 0)));
    }
}

// ---- Trained.

// Adds the metrics of the other replicas since the last call to replica 0's, as those of its
// batches. On GPUs reading them waits, so that it is done only when somebody asks.
static void gather_metrics(void *self)
{
    Mirrored *m = self;
    Metrics all = model_own_metrics(model_of(m, 0));
    for (int i = 1; i < m->count; i++) {
        Metrics own = model_own_metrics(model_of(m, i));
        all.loss += own.loss;
        all.correct += own.correct;
        all.images += own.images;
        if (own.finite < own.batches) // of the last ones
            all.finite = fmin(all.finite, all.batches - (own.batches - own.finite));
        model_reset_metrics(model_of(m, i));
    }
    if (m->count > 1)
        model_write_metrics(model_of(m, 0), &all);
}

static Metrics metrics_of_all(void *self)
{
    return model_metrics(model_of(self, 0));
}

static void trace_update(const Model *model)
{
    if (!trace_on())
        return;
    Fingerprints prints = model_fingerprints(model);
    trace("update", NUMBER("weights", prints.weights), NUMBER("statistics", prints.statistics),
          NUMBER("arena", model_arena_fingerprint(model)));
}

static void train_part(Replica *replica, const Batch *batch)
{
    Batch part = part_of_batch(replica, batch);
    if (part.count > 0)
        compute_gradients(replica->model, &part);
    average_gradients(replica, part.count);
    apply_gradients(replica->model);
    trace_update(replica->model);
}

static void train_all(void *self, const Batch *batch)
{
    Mirrored *m = self;
    if (m->stale)
        equalize(m);
    follow(m);
    batch_on_each_device(m, train_part, batch);
}

static void test_part(Replica *replica, const Batch *batch)
{
    Batch part = part_of_batch(replica, batch);
    if (part.count > 0)
        test_on_batch(replica->model, &part);
}

static void test_all(void *self, const Batch *batch)
{
    Mirrored *m = self;
    if (m->stale)
        equalize(m);
    batch_on_each_device(m, test_part, batch);
}

static void reset_all(void *self)
{
    Mirrored *m = self;
    for (int i = 0; i < m->count; i++)
        model_reset_metrics(model_of(m, i));
}

static Trainer begin(Mirrored *m, const char *caller)
{
    need(m, caller);
    trace_call_by(caller);
    m->stale = true;
    model_gather_metrics(model_of(m, 0), gather_metrics, m);
    return (Trainer){.model = model_of(m, 0),
                     .self = m,
                     .train_on_batch = train_all,
                     .test_on_batch = test_all,
                     .metrics = metrics_of_all,
                     .reset_metrics = reset_all};
}

static void end(Mirrored *m)
{
    model_gather_metrics(model_of(m, 0), NULL, NULL);
}

History fit_mirrored(Mirrored *m, const Fit *fit)
{
    Trainer trainer = begin(m, __func__);
    History history = fit_with(&trainer, fit);
    end(m);
    return history;
}

Score evaluate_mirrored(Mirrored *m, Batches *batches, int verbose)
{
    Trainer trainer = begin(m, __func__);
    Score score = evaluate_with(&trainer, batches, verbose);
    end(m);
    return score;
}
