// The distributed optimizer, and the callbacks. A transport (comm/transport.h) moves the arenas of
// a model.

#include "hvd/hvd.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "hvd/accumulate.h"
#include "comm/transport_choice.h"
#include "backend/constants.h"
#include "observe/span.h"
#include "observe/trace.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/setting.h"
#include "base/format.h"
#include "comm/world.h"

// ---- The distributed optimizer.

typedef struct {
    Optimizer optimizer;
    size_t threshold; // floats in a piece, at least
    int passes;       // batches of an update, on each worker
    size_t sent;      // gradients[0 ... sent - 1] have been sent
    bool averaged;    // all of them are, and not applied yet
    const Parameters *parameters;
    bool agreed;                // all ranks have the same arenas
    const Transport *transport; // of this update
    uint64_t model;             // the hash of the model's description
    Update rule;                // last described (below)
    char rule_text[256];
    uint64_t rule_hash;
} Distributed;

// A transport transfers the pieces of one optimizer at a time.
static Distributed *sending;

// Begins to average the gradients up to `end`.
static void send_piece(Distributed *d, size_t end)
{
    timeline_piece_ready(SPAN_QUEUED(d->parameters->device->gpu, "piece"),
                         (int64_t)((end - d->sent) * sizeof(float)), (int64_t)d->sent);
    d->transport->average(d->parameters, d->sent, end - d->sent);
    d->sent = end;
}

// Describes the optimizer, with a line for each constant, where one has changed.
static void describe_rule(Distributed *d)
{
    const Update *rule = &optimizer_innermost(d->optimizer.inner)->rule;
    if (d->rule_hash && memcmp(&d->rule, rule, sizeof *rule) == 0)
        return;
    trace("rule", NUMBER("learning_rate", rule->learning_rate));
    memcpy(&d->rule, rule, sizeof *rule);
    snprintf(d->rule_text, sizeof d->rule_text,
             "%s\nlearning rate %s\nmomentum %s\nnesterov %s\nbeta_1 %s\nbeta_2 %s\nrho %s\n"
             "epsilon %s",
             d->optimizer.name, float_text(rule->learning_rate).text,
             float_text(rule->momentum).text, rule->nesterov ? "true" : "false",
             float_text(rule->beta_1).text, float_text(rule->beta_2).text,
             float_text(rule->rho).text, float_text(rule->epsilon).text);
    d->rule_hash = hash_text(d->rule_text);
}

// Compares each update among the ranks: else weights drift apart, or ranks wait forever. Returns
// how many contribute gradients.
static int agree_on_update(Distributed *d)
{
    describe_rule(d);
    int64_t number = optimizer_iterations(&d->optimizer) + 1;
    Term model = hvd_model_term(d->parameters);
    model.hash = d->model;
    Term rule = text_term("use", "", d->rule_text, NULL);
    rule.hash = d->rule_hash;
    Term threshold =
        number_term("find", "HVD_FUSION_THRESHOLD=", (int64_t)(d->threshold * sizeof(float)), NULL);
    threshold.advice = PASS_ON(HVD_FUSION_THRESHOLD);
    return agree_only(
        &(Collective){.name = "hvd_distributed_optimizer",
                      .channel = "gradients",
                      .object = "the average of gradients",
                      .terms = {model, number_term("make", "update ", number, NULL),
                                number_term("make", "updates of ", d->passes, " gradients"), rule,
                                hvd_adder_term(), threshold},
                      .sum = {.open = !hvd_own_allreduce(),
                              .channel = WORLD_GRADIENTS,
                              .count = d->parameters->length}},
        world_comm(WORLD_GRADIENTS));
}

// Sends the remaining pieces and waits for all.
static void complete(Distributed *d)
{
    span_begin(SPAN_WAIT, "wait for the gradients", -1, -1);
    if (d->sent < d->parameters->length)
        send_piece(d, d->parameters->length);
    d->transport->finish(d->parameters);
    timeline_pieces_averaged();
    span_end();
    d->averaged = true;
    sending = NULL;
}

// Before the first gradients of an update are sent.
static void begin_update(Distributed *d, const Parameters *parameters)
{
    if (sending)
        complete(sending);
    sending = d;
    d->sent = 0;
    d->averaged = false;
    if (d->parameters != parameters)
        d->model = hash_text(parameters->description);
    d->parameters = parameters;
    int working = agree_on_update(d);
    if (!d->agreed && working == world_size()) {
        hvd_agree_on_arenas(parameters, world_comm(WORLD_GRADIENTS));
        d->agreed = true;
    }
    d->transport = hvd_transport(working, world_comm(WORLD_GRADIENTS));
}

// A program's optimizer that wraps this one may leave this call out.
static void gradient_ready(Optimizer *self, const Parameters *parameters, size_t offset,
                           size_t length)
{
    Distributed *d = (Distributed *)self;
    world_need(self->name);
    if (length == 0) { // the next batch overwrites these gradients
        if (sending == d)
            complete(d);
        return;
    }
    if (offset == 0)
        begin_update(d, parameters);
    // The padding after a variable is sent with it.
    size_t ready = (offset + length + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    if (ready - d->sent >= d->threshold)
        send_piece(d, ready);
    if (d->transport->progress)
        d->transport->progress();
}

static void distributed_apply(Optimizer *self, const Parameters *parameters)
{
    Distributed *d = (Distributed *)self;
    world_need(self->name);
    if (!d->averaged && sending != d)
        begin_update(d, parameters);
    if (!d->averaged)
        complete(d);
    d->averaged = false;
    self->inner->apply(self->inner, parameters);
}

static void undistributed_apply(Optimizer *self, const Parameters *parameters)
{
    self->inner->apply(self->inner, parameters);
}

static void release(Optimizer *self)
{
    Distributed *d = (Distributed *)self;
    if (sending == d && world_started())
        complete(d);
    if (sending == d)
        sending = NULL;
    free((void *)(uintptr_t)self->name);
}

bool hvd_is_distributed(const Optimizer *optimizer)
{
    for (; optimizer; optimizer = optimizer->inner)
        if (optimizer->release == release)
            return true;
    return false;
}

static Optimizer *distribute(const char *caller, Optimizer *optimizer, int passes)
{
    if (!optimizer)
        die("%s: there is no optimizer to wrap (NULL)", caller);
    if (hvd_is_distributed(optimizer))
        die("%s: the gradients of %s are averaged already; wrap an optimizer once", caller,
            optimizer->name);
    trace("distributed", TEXT("optimizer", optimizer->name));
    Distributed *d = allocate(1, sizeof *d);
    d->optimizer = (Optimizer){
        .name = format_text("Distributed%s", optimizer->name),
        .inner = optimizer,
        .apply = undistributed_apply,
        .release = release,
    };
    if (world_size() > 1) {
        d->optimizer.gradient_ready = gradient_ready;
        d->optimizer.apply = distributed_apply;
    }
    d->threshold = setting_bytes(HVD_FUSION_THRESHOLD) / sizeof(float);
    d->optimizer.waits_for = d->threshold;
    d->passes = passes;
    lives_until_exit(d); // in a program that forgets it, too
    hvd_check_settings();
    return &d->optimizer;
}

Optimizer *hvd_distributed_optimizer(Optimizer *optimizer)
{
    world_called(__func__);
    return distribute(__func__, optimizer, 1);
}

Optimizer *hvd_distributed_optimizer_every(Optimizer *optimizer, int passes)
{
    world_called(__func__);
    if (passes < 1)
        die("%s: an update of %d passes; at least 1", __func__, passes);
    Optimizer *distributed = distribute(__func__, optimizer, passes);
    return passes > 1 ? hvd_accumulate(distributed, passes) : distributed;
}

// ---- Broadcast of the model.

static void broadcast_model(const char *caller, Model *model, int root)
{
    world_need(caller);
    if (!model)
        die("%s: there is no model (NULL)", caller);
    const Parameters *parameters = model_is_compiled(model) ? model_parameters(model) : NULL;
    trace("broadcast", NUMBER("root", root),
          NUMBER("weights", parameters ? parameters->length : 0));
    if (!parameters)
        die("%s: the model has no weights before compile()", caller);
    hvd_drop_held_gradients(model_optimizer(model));
    if ((world_size() == 1 && root == 0) || parameters->length == 0)
        return;
    MPI_Comm comm = world_comm(WORLD_VARIABLES);
    Optimizer *optimizer = optimizer_innermost(model_optimizer(model));
    agree(&(Collective){.name = caller,
                        .channel = "variables",
                        .terms = {hvd_root_term(root), text_term("use", "", optimizer->name, NULL),
                                  number_term("keep", "", optimizer->slot_count,
                                              " values of state for each weight")}},
          comm);
    hvd_check_root(caller, root, comm);
    hvd_agree_on_arenas(parameters, comm);
    const Transport *transport = hvd_transport(world_size(), comm);
    transport->broadcast(parameters->weights, parameters->length, root);
    size_t length;
    float *statistics = model_statistics(model, &length);
    if (length > 0)
        transport->broadcast(statistics, length, root);

    int64_t counts[] = {optimizer->iterations, model_passes(model),
                        !optimizer_is_in_parts(optimizer)}; // 0: in shards
    MPI_Bcast(counts, 3, MPI_INT64_T, root, comm);
    optimizer->iterations = counts[0];
    model_set_passes(model, counts[1]);
    MPI_Bcast(&optimizer->rule.learning_rate, 1, MPI_FLOAT, root, comm);
    if (optimizer->iterations == 0) {
        optimizer_drop_state(optimizer);
    } else if (counts[2]) {
        optimizer_allocate_slots(optimizer, parameters);
        for (int i = 0; i < optimizer->slot_count; i++)
            transport->broadcast(optimizer->slots[i], parameters->length, root);
    }
    model_mark_broadcast(model);
    agreed_call_ends();
}

void hvd_broadcast_model(Model *model, int root)
{
    world_called(__func__);
    broadcast_model(__func__, model, root);
}

typedef struct {
    Callback callback;
    int root;
} Broadcast;

static void broadcast_train_begin(Callback *self, Training *training)
{
    broadcast_model("hvd_broadcast_variables", training->model, ((Broadcast *)self)->root);
}

Callback *hvd_broadcast_variables(int root)
{
    world_called(__func__);
    Broadcast *b = allocate(1, sizeof *b);
    *b = (Broadcast){
        .callback = {.name = "hvd_broadcast_variables", .train_begin = broadcast_train_begin},
        .root = root,
    };
    return &b->callback;
}

// ---- Averages of the metrics.

static void average_epoch_end(Callback *self, Training *training)
{
    (void)self;
    if (world_size() == 1)
        return;
    Logs *logs = &training->logs;
    double sums[] = {
        logs->images,     logs->loss * logs->images,         logs->accuracy * logs->images,
        logs->val_images, logs->val_loss * logs->val_images, logs->val_accuracy * logs->val_images,
    };
    agree(&(Collective){.name = "hvd_metric_average",
                        .channel = "metrics",
                        .terms = {number_term("end", "epoch ", training->epoch + 1, NULL)},
                        .sum = {.open = true,
                                .doubles = true,
                                .channel = WORLD_METRICS,
                                .count = sizeof sums / sizeof *sums}},
          world_comm(WORLD_METRICS));
    MPI_Allreduce(MPI_IN_PLACE, sums, sizeof sums / sizeof *sums, MPI_DOUBLE, MPI_SUM,
                  world_comm(WORLD_METRICS));
    agreed_call_ends();
    logs->images = sums[0];
    logs->loss = sums[1] / sums[0];
    logs->accuracy = sums[2] / sums[0];
    logs->val_images = sums[3];
    if (sums[3] > 0) {
        logs->val_loss = sums[4] / sums[3];
        logs->val_accuracy = sums[5] / sums[3];
    }
}

Callback *hvd_metric_average(void)
{
    world_called(__func__);
    Callback *callback = allocate(1, sizeof *callback);
    *callback = (Callback){.name = "hvd_metric_average", .epoch_end = average_epoch_end};
    return callback;
}

// ---- Warm-up.

typedef struct {
    Callback callback;
    float lr;
    int epochs;
    double last;        // the rate of the last update
    float momentum;     // the optimizer's own
    int64_t iterations; // updates before this batch
} Warmup;

// Momentum v = m v - lr g holds updates at the old rate, which would count too little. An update
// may have several batches: the rate of the last one counts.
static void warmup_batch_begin(Callback *self, Training *training)
{
    Warmup *w = (Warmup *)self;
    Update *rule = &optimizer_innermost(model_optimizer(training->model))->rule;
    w->momentum = rule->momentum;
    w->iterations = optimizer_iterations(model_optimizer(training->model));
    if (training->epoch >= w->epochs)
        return;
    float epochs_done =
        (float)training->epoch + (float)(training->step + 1) / (float)training->steps;
    rule->learning_rate = w->lr * (1 + (float)(world_size() - 1) * epochs_done / (float)w->epochs);
    if (w->last > 0)
        rule->momentum *= rule->learning_rate / (float)w->last;
}

static void warmup_batch_end(Callback *self, Training *training)
{
    Warmup *w = (Warmup *)self;
    Optimizer *optimizer = optimizer_innermost(model_optimizer(training->model));
    optimizer->rule.momentum = w->momentum;
    if (optimizer->iterations > w->iterations)
        w->last = (double)optimizer->rule.learning_rate;
}

Callback *hvd_learning_rate_warmup(float lr, int epochs)
{
    world_called(__func__);
    if (epochs < 1)
        die("%s: %d epochs; at least 1", __func__, epochs);
    if (!(lr >= 0 && lr < INFINITY))
        die("%s: the learning rate is %g, and not a finite number from 0", __func__, (double)lr);
    Warmup *w = allocate(1, sizeof *w);
    *w = (Warmup){
        .callback = {.name = "hvd_learning_rate_warmup",
                     .batch_begin = warmup_batch_begin,
                     .batch_end = warmup_batch_end,
                     .kept = &w->last,
                     .kept_count = 1},
        .lr = lr,
        .epochs = epochs,
        .last = (double)lr,
    };
    return &w->callback;
}
