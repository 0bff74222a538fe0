// The two halves of a model: their exchange, and the error messages for wrong schedules. The model
// computes; thread_pool.h has the threads.

#include "train/stages.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include "nn/parts.h"
#include "run/thread_pool.h"
#include "observe/span.h"
#include "observe/trace.h"
#include "base/share.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

enum { STAGES = 2 };

// A micro-batch in one stage.
typedef struct {
    int begin, count; // images of the batch
    bool forward, backward, sent, received;
    float *arrived; // from the other stage; NULL: nothing yet
} Micro;

struct Stage {
    Stages *stages;
    int number; // 0: the first half
    Model *model;
    Optimizer *optimizer; // the model's
    pthread_t thread;
    Schedule schedule; // that runs; NULL: it has returned
    Micro *micros;
    int waits_for; // the micro-batch that has not arrived, or -1
};

struct Stages {
    Stage stage[STAGES];
    ThreadPool *pool;
    int compiled; // the stage whose model is, now
    const Batch *batch;
    int64_t batches; // so far
    int micro_batches;
    pthread_mutex_t lock; // of schedules, of what arrives, and of waiting stages
    pthread_cond_t change;
};

static Stage *other(const Stage *stage)
{
    return &stage->stages->stage[1 - stage->number];
}

// ---- What is traced.

static void trace_call_of(const Stage *stage, const char *event, const char *call, int micro)
{
    trace(event, TEXT("call", call), NUMBER("batch", stage->stages->batches),
          NUMBER("micro", micro));
}

static void begin(const Stage *stage, const char *call, int micro)
{
    trace_call_of(stage, "stage_begin", call, micro);
}

static void end(const Stage *stage, const char *call, int micro)
{
    trace_call_of(stage, "stage_end", call, micro);
}

static Part whole_batch(const Stages *stages)
{
    return (Part){stages->micro_batches, stages->batch->count}; // behind the micro-batches
}

// The gradients of the whole batch at once, as one device would compute them.
static void compute_whole(const Stages *stages)
{
    Model *first = stages->stage[0].model, *second = stages->stage[1].model;
    const Part whole = whole_batch(stages);
    Metrics metrics = model_metrics(second);
    size_t floats = (size_t)whole.count * (size_t)model_output_size(first);
    float *between = allocate(floats, sizeof *between);
    model_forward_part(first, whole, stages->batch->images, NULL, true);
    model_read_output(first, whole, between);
    model_forward_part(second, whole, between, stages->batch->labels, true);
    model_backward_part(second, whole, NULL);
    model_read_input_gradient(second, whole, between);
    model_backward_part(first, whole, between);
    free(between);
    model_write_metrics(second, &metrics);
}

// With moving statistics or dropout no comparison is possible.
static bool is_comparable(const Stages *stages)
{
    bool comparable = true;
    for (int s = 0; s < STAGES; s++)
        comparable = comparable && model_repeats(stages->stage[s].model);
    return comparable;
}

static void trace_batch(const Stages *stages)
{
    bool comparable = is_comparable(stages);
    if (comparable)
        compute_whole(stages);
    for (int s = 0; s < STAGES; s++) {
        const Model *m = stages->stage[s].model;
        trace("staged_batch", NUMBER("batch", stages->batches), NUMBER("stage", s),
              NUMBER("device", model_parameters(m)->device->index),
              NUMBER("images", stages->batch->count),
              NUMBER("micro_batches", stages->micro_batches),
              NUMBER("value", comparable ? model_gradient_fingerprint(m) : (double)NAN),
              NUMBER("arena", model_arena_fingerprint(m)));
    }
}

static void trace_batch_end(const Stages *stages)
{
    for (int s = 0; s < STAGES; s++)
        trace("staged_batch_end", NUMBER("batch", stages->batches), NUMBER("stage", s),
              NUMBER("arena", model_arena_fingerprint(stages->stage[s].model)));
}

// ---- The two of them.

static void check_halves(const Model *first, const Optimizer *first_optimizer, const Model *second,
                         const Optimizer *second_optimizer, const int devices[2])
{
    if (!first || !second || !first_optimizer || !second_optimizer || !devices)
        die("two_stages: a model, an optimizer or the devices are not there (NULL)");
    if (first == second || first_optimizer == second_optimizer)
        die("two_stages: each half is a model of its own, with an optimizer of its own");
    if (first_optimizer->gradient_ready || second_optimizer->gradient_ready)
        die("two_stages: the gradients of halves are not exchanged between workers: give it "
            "optimizers that are not distributed");
    if (!model_reads_vector(second) || model_output_size(first) != model_input_size(second))
        die("two_stages: the first half hands over %d numbers for an image; the second has to "
            "begin with input_vector(%d)",
            model_output_size(first), model_output_size(first));
}

static void compile_half(int number, void *argument)
{
    Stages *stages = argument;
    Stage *stage = &stages->stage[number];
    if (number != stages->compiled)
        return;
    stage->thread = pthread_self();
    compile(stage->model,
            number == 0 ? CATEGORICAL_CROSSENTROPY_FROM_LOGITS : CATEGORICAL_CROSSENTROPY,
            stage->optimizer);
}

// One after the other: errors of the first half are reported first.
static void compile_halves(Stages *stages)
{
    for (stages->compiled = 0; stages->compiled < STAGES; stages->compiled++)
        thread_pool_run(stages->pool, "two_stages", compile_half, stages);
}

Stages *two_stages(Model *first, Optimizer *first_optimizer, Model *second,
                   Optimizer *second_optimizer, const int devices[2])
{
    check_halves(first, first_optimizer, second, second_optimizer, devices);
    model_follow(second, model_variable_count(first));
    Stages *stages = allocate(1, sizeof *stages);
    *stages = (Stages){.stage = {{.model = first, .optimizer = first_optimizer},
                                 {.model = second, .optimizer = second_optimizer}},
                       .batches = -1};
    pthread_mutex_init(&stages->lock, NULL);
    pthread_cond_init(&stages->change, NULL);
    for (int s = 0; s < STAGES; s++) {
        stages->stage[s].stages = stages;
        stages->stage[s].number = s;
    }
    lives_until_exit(stages);
    stages->pool = thread_pool_start("stage", devices, STAGES);
    compile_halves(stages);
    return stages;
}

static void need_stages(const Stages *stages, const char *caller)
{
    if (!stages)
        die("%s: there are no stages (NULL)", caller);
}

void stages_free(Stages *stages)
{
    if (!stages)
        return;
    thread_pool_free(stages->pool, __func__);
    for (int s = 0; s < STAGES; s++)
        model_free(stages->stage[s].model);
    pthread_mutex_destroy(&stages->lock);
    pthread_cond_destroy(&stages->change);
    free(stages);
}

// ---- A batch.

static void begin_batch(Stages *stages, const Batch *batch, int micro_batches)
{
    stages->batch = batch;
    stages->batches++;
    stages->micro_batches = micro_batches < batch->count ? micro_batches : batch->count;
    for (int s = 0; s < STAGES; s++) {
        Stage *stage = &stages->stage[s];
        stage->micros = allocate((size_t)stages->micro_batches, sizeof *stage->micros);
        stage->waits_for = -1;
        for (int k = 0; k < stages->micro_batches; k++) {
            Share part = share_of((size_t)batch->count, k, stages->micro_batches);
            stage->micros[k] = (Micro){.begin = (int)part.begin, .count = (int)part.count};
        }
    }
}

static void end_batch(Stages *stages)
{
    for (int s = 0; s < STAGES; s++) {
        Stage *stage = &stages->stage[s];
        for (int k = 0; k < stages->micro_batches; k++)
            free(stage->micros[k].arrived);
        free(stage->micros);
        model_drop_sum(stage->model);
    }
}

static void run_schedule(int number, void *argument)
{
    Stages *stages = argument;
    Stage *stage = &stages->stage[number];
    trace("stage_ready", NUMBER("batch", stages->batches));
    stage->schedule(stage, stages->micro_batches);
    pthread_mutex_lock(&stages->lock);
    stage->schedule = NULL;
    pthread_cond_broadcast(&stages->change);
    pthread_mutex_unlock(&stages->lock);
}

void train_in_stages(Stages *stages, const Batch *batch, int micro_batches, Schedule first,
                     Schedule second)
{
    need_stages(stages, __func__);
    if (!batch || !batch->images || !batch->labels || batch->count < 1)
        die("%s: there are no images or labels in the batch", __func__);
    if (micro_batches < 1)
        die("%s: a batch can't have %d micro-batches", __func__, micro_batches);
    if (!first || !second)
        die("%s: a schedule is not there (NULL)", __func__);
    thread_pool_check_outside(__func__);
    begin_batch(stages, batch, micro_batches);
    if (trace_on())
        trace_batch(stages);
    stages->stage[0].schedule = first;
    stages->stage[1].schedule = second;
    thread_pool_run(stages->pool, __func__, run_schedule, stages);
    if (trace_on())
        trace_batch_end(stages);
    end_batch(stages);
}

Metrics stages_metrics(const Stages *stages)
{
    need_stages(stages, __func__);
    return model_metrics(stages->stage[1].model);
}

void stages_reset_metrics(Stages *stages)
{
    need_stages(stages, __func__);
    model_reset_metrics(stages->stage[1].model);
}

static void check_images(const Model *first, const Dataset *data)
{
    int numbers = data->height * data->width * data->channels;
    if (numbers != model_input_size(first))
        die("evaluate_in_stages: the images are of %d numbers, the first half reads %d", numbers,
            model_input_size(first));
}

Score evaluate_in_stages(Stages *stages, Batches *batches)
{
    need_stages(stages, __func__);
    if (!batches)
        die("%s: there are no batches (NULL)", __func__);
    thread_pool_check_outside(__func__);
    Model *first = stages->stage[0].model, *second = stages->stage[1].model;
    check_images(first, batches_dataset(batches));
    Metrics before = model_metrics(second);
    float *between = NULL;
    model_reset_metrics(second);
    batches_begin(batches, batches_len(batches));
    for (int step = 0; step < batches_len(batches); step++) {
        Batch batch = batches_next(batches);
        Part all = {0, batch.count};
        between = enlarge(between, (size_t)batch.count * (size_t)model_output_size(first),
                          sizeof *between);
        model_forward_part(first, all, batch.images, NULL, false);
        model_read_output(first, all, between);
        model_forward_part(second, all, between, batch.labels, false);
    }
    free(between);
    Metrics metrics = model_metrics(second);
    model_write_metrics(second, &before);
    return (Score){metrics.loss / metrics.images, metrics.correct / metrics.images};
}

// ---- What a schedule calls.

static Micro *micro_of(Stage *stage, int micro, const char *caller)
{
    if (!stage)
        die("%s: there is no stage (NULL)", caller);
    if (!pthread_equal(pthread_self(), stage->thread))
        die("%s: stage %d is not this thread's: a schedule calls it for its own stage", caller,
            stage->number);
    if (micro < 0 || micro >= stage->stages->micro_batches)
        die("%s: there is no micro-batch %d; this batch has %d, from 0", caller, micro,
            stage->stages->micro_batches);
    return &stage->micros[micro];
}

// A `done` call can't be repeated, and a `needed` one must come first.
static void check(const Stage *stage, int micro, const char *caller, bool done, bool needed,
                  const char *need)
{
    if (done)
        die("%s: stage %d has done that for micro-batch %d of this batch already", caller,
            stage->number, micro);
    if (!needed)
        die("%s: stage %d has not called %s for micro-batch %d", caller, stage->number, need,
            micro);
}

// The minimum time of a micro-batch's pass through one half, in seconds, from the batch's pace:
// backward twice as long as forward.
static double least_seconds(const Stage *stage, const Micro *m, int thirds)
{
    double share = (double)m->count / stage->stages->batch->count;
    return (double)settings()->pace / 1000 / STAGES * thirds / 3 * share;
}

static bool is_on_gpu(const Stage *stage)
{
    return model_parameters(stage->model)->device->gpu;
}

void stage_forward(Stage *stage, int micro)
{
    Micro *m = micro_of(stage, micro, __func__);
    check(stage, micro, __func__, m->forward, stage->number == 0 || m->received, "stage_receive");
    begin(stage, "forward", micro);
    span_begin(SPAN_COMPUTE, SPAN_QUEUED(is_on_gpu(stage), "forward"), m->count, -1);
    double over = seconds_now() + least_seconds(stage, m, 1);
    const Part part = {micro, m->count};
    const Batch *batch = stage->stages->batch;
    size_t begin_float = (size_t)m->begin * (size_t)model_input_size(stage->model);
    if (stage->number == 0)
        model_forward_part(stage->model, part, batch->images + begin_float, NULL, true);
    else
        model_forward_part(stage->model, part, m->arrived, batch->labels + m->begin, true);
    sleep_seconds(over - seconds_now());
    m->forward = true;
    span_end();
    end(stage, "forward", micro);
}

void stage_backward(Stage *stage, int micro)
{
    Micro *m = micro_of(stage, micro, __func__);
    bool first = stage->number == 0;
    check(stage, micro, __func__, m->backward, m->forward, "stage_forward");
    check(stage, micro, __func__, m->backward, !first || m->received, "stage_receive");
    begin(stage, "backward", micro);
    span_begin(SPAN_COMPUTE, SPAN_QUEUED(is_on_gpu(stage), "backward"), m->count, -1);
    double over = seconds_now() + least_seconds(stage, m, 2);
    model_backward_part(stage->model, (Part){micro, m->count}, first ? m->arrived : NULL);
    model_add_gradients(stage->model, (float)m->count / (float)stage->stages->batch->count);
    sleep_seconds(over - seconds_now());
    m->backward = true;
    span_end();
    end(stage, "backward", micro);
}

// The vectors of all images of the micro-batch.
static float *to_send(Stage *stage, int micro, const Micro *m)
{
    Model *model = stage->model;
    bool first = stage->number == 0;
    int size = first ? model_output_size(model) : model_input_size(model);
    float *values = allocate((size_t)m->count * (size_t)size, sizeof *values);
    if (first)
        model_read_output(model, (Part){micro, m->count}, values);
    else
        model_read_input_gradient(model, (Part){micro, m->count}, values);
    return values;
}

void stage_send(Stage *stage, int micro)
{
    Micro *m = micro_of(stage, micro, __func__);
    bool first = stage->number == 0;
    check(stage, micro, __func__, m->sent, first ? m->forward : m->backward,
          first ? "stage_forward" : "stage_backward");
    begin(stage, "send", micro);
    float *values = to_send(stage, micro, m);
    Stages *stages = stage->stages;
    pthread_mutex_lock(&stages->lock);
    other(stage)->micros[micro].arrived = values;
    end(stage, "send", micro); // before the other one can go on
    pthread_cond_broadcast(&stages->change);
    pthread_mutex_unlock(&stages->lock);
    m->sent = true;
}

static bool waits_for_data(const Stage *stage)
{
    return stage->waits_for >= 0 && !stage->micros[stage->waits_for].arrived;
}

// Called with the lock held. Exits if no thread is left that could send the data that a stage waits
// for.
static void check_deadlock(const Stages *stages)
{
    const Stage *a = &stages->stage[0], *b = &stages->stage[1];
    if (waits_for_data(a) && waits_for_data(b))
        die("the stages hang: stage 0 waits for the gradient of micro-batch %d, and stage 1 for "
            "the values of micro-batch %d; each would have to be sent by the other",
            a->waits_for, b->waits_for);
    for (int s = 0; s < STAGES; s++)
        if (waits_for_data(&stages->stage[s]) && !stages->stage[1 - s].schedule)
            die("the stages hang: stage %d waits for the %s of micro-batch %d, and the schedule of "
                "stage %d has returned without sending it",
                s, s == 0 ? "gradient" : "values", stages->stage[s].waits_for, 1 - s);
}

void stage_receive(Stage *stage, int micro)
{
    Micro *m = micro_of(stage, micro, __func__);
    check(stage, micro, __func__, m->received, true, NULL);
    begin(stage, "receive", micro);
    span_begin(SPAN_WAIT, "receive", -1, -1);
    Stages *stages = stage->stages;
    pthread_mutex_lock(&stages->lock);
    stage->waits_for = micro;
    while (!m->arrived) {
        check_deadlock(stages);
        pthread_cond_wait(&stages->change, &stages->lock);
    }
    stage->waits_for = -1;
    pthread_mutex_unlock(&stages->lock);
    m->received = true;
    span_end();
    end(stage, "receive", micro);
}

void stage_apply(Stage *stage)
{
    micro_of(stage, 0, __func__);
    if (!model_has_sum(stage->model))
        die("%s: stage %d has no gradients; stage_backward() comes before", __func__,
            stage->number);
    if (trace_on())
        trace("stage_apply", NUMBER("batch", stage->stages->batches),
              NUMBER("value", model_sum_fingerprint(stage->model)));
    model_apply_sum(stage->model);
}
