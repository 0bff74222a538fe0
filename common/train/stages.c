// The parts of a model: their exchange, and the error messages for wrong schedules. The model
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

// What stages hand over: values to the next one, and their gradient to the one before.
typedef enum { VALUES, GRADIENT, HANDOVERS } Handover;

static const char *const words[HANDOVERS] = {"values", "gradient"};

// A micro-batch in one stage.
typedef struct {
    int begin, count; // images of the batch
    int slot;         // that has its activations, from forward to backward
    bool forward, backward, sent[HANDOVERS], received[HANDOVERS];
    float *arrived[HANDOVERS]; // from the other stages, until it is computed; NULL: nothing yet
    float *gradient;           // of the values that it received, until it is sent
} Micro;

struct Stage {
    Stages *stages;
    int number; // 0: the first one
    Model *model;
    Optimizer *optimizer; // the model's
    pthread_t thread;
    Schedule schedule; // that runs; NULL: it has returned
    Micro *micros;
    bool *used;    // slots: parts of the model in which a micro-batch's activations are
    int waits_for; // the micro-batch that has not arrived, or -1
    Handover waits_for_what;
    double returned; // when its schedule did
    double waited;   // seconds since the last reset: for others, or with nothing left to do
    int most_kept;   // micro-batches since then, at a time
};

struct Stages {
    Stage *stage;
    int count;
    bool halves; // made by two_stages(): schedules call stage_send and stage_receive
    ThreadPool *pool;
    int compiled; // the stage whose model is, now
    const Batch *batch;
    int64_t batches; // so far
    int micro_batches;
    double seconds;       // of all batches since the last reset
    pthread_mutex_t lock; // of schedules, of what arrives, and of waiting stages
    pthread_cond_t change;
};

static bool is_first(const Stage *stage)
{
    return stage->number == 0;
}

static bool is_last(const Stage *stage)
{
    return stage->number == stage->stages->count - 1;
}

static Stage *last_stage(const Stages *stages)
{
    return &stages->stage[stages->count - 1];
}

// The stages between which it goes.
static Stage *sender(const Stage *stage, Handover what)
{
    return &stage->stages->stage[stage->number + (what == VALUES ? -1 : 1)];
}

static Stage *receiver(const Stage *stage, Handover what)
{
    return &stage->stages->stage[stage->number + (what == VALUES ? 1 : -1)];
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

// A micro-batch through all stages and back, as one device would compute it. In memory behind that of
// the slots. Returns `between`, enlarged: what stages pass on.
static float *compute_alone(const Stages *stages, const Micro *micro, float *between)
{
    const Batch *batch = stages->batch;
    const Part part = {stages->micro_batches, micro->count};
    for (int s = 0; s < stages->count; s++) {
        Model *m = stages->stage[s].model;
        bool last = s == stages->count - 1;
        size_t begin_float = (size_t)micro->begin * (size_t)model_input_size(m);
        model_forward_part(m, part, s == 0 ? batch->images + begin_float : between,
                           last ? batch->labels + micro->begin : NULL, true);
        if (!last) {
            size_t floats = (size_t)part.count * (size_t)model_output_size(m);
            between = enlarge(between, floats, sizeof *between);
            model_read_output(m, part, between);
        }
    }
    for (int s = stages->count - 1; s >= 0; s--) {
        Model *m = stages->stage[s].model;
        model_backward_part(m, part, s == stages->count - 1 ? NULL : between);
        model_add_gradients(m, (float)part.count / (float)batch->count);
        if (s > 0) {
            size_t floats = (size_t)part.count * (size_t)model_input_size(m);
            between = enlarge(between, floats, sizeof *between);
            model_read_input_gradient(m, part, between);
        }
        model_free_part(m, part);
    }
    return between;
}

// The sums of gradients to which a right schedule comes, too. Micro by micro: as one batch, rounding
// would turn some units of a ReLU on that are off in a micro-batch.
static void compute_sums(const Stages *stages)
{
    const Metrics metrics = model_metrics(last_stage(stages)->model);
    float *between = NULL;
    for (int k = 0; k < stages->micro_batches; k++)
        between = compute_alone(stages, &stages->stage[0].micros[k], between);
    free(between);
    model_write_metrics(last_stage(stages)->model, &metrics);
}

// With moving statistics or dropout no comparison is possible.
static bool is_comparable(const Stages *stages)
{
    bool comparable = true;
    for (int s = 0; s < stages->count; s++)
        comparable = comparable && model_repeats(stages->stage[s].model);
    return comparable;
}

static void trace_batch(const Stages *stages)
{
    bool comparable = is_comparable(stages);
    if (comparable)
        compute_sums(stages);
    for (int s = 0; s < stages->count; s++) {
        Model *m = stages->stage[s].model;
        trace("staged_batch", NUMBER("batch", stages->batches), NUMBER("stage", s),
              NUMBER("device", model_parameters(m)->device->index),
              NUMBER("images", stages->batch->count),
              NUMBER("micro_batches", stages->micro_batches),
              NUMBER("value", comparable ? model_sum_fingerprint(m) : (double)NAN),
              NUMBER("arena", model_arena_fingerprint(m)));
        model_drop_sum(m);
    }
}

static void trace_batch_end(const Stages *stages)
{
    for (int s = 0; s < stages->count; s++)
        trace("staged_batch_end", NUMBER("batch", stages->batches), NUMBER("stage", s),
              NUMBER("arena", model_arena_fingerprint(stages->stage[s].model)));
}

// ---- All of them.

static void check_parts(const StagePart *parts, int count, const char *caller)
{
    if (count < 1 || count > MAX_STAGES)
        die("%s: %d stages; there are 1 to %d", caller, count, MAX_STAGES);
    for (int s = 0; s < count; s++) {
        if (!parts[s].model || !parts[s].optimizer)
            die("%s: a model or an optimizer is not there (NULL)", caller);
        for (int before = 0; before < s; before++)
            if (parts[before].model == parts[s].model ||
                parts[before].optimizer == parts[s].optimizer)
                die("%s: each stage has a model of its own, with an optimizer of its own", caller);
        if (parts[s].optimizer->gradient_ready)
            die("%s: the gradients of stages are not exchanged between workers: give it "
                "optimizers that are not distributed",
                caller);
        int passed_on = s > 0 ? model_output_size(parts[s - 1].model) : 0;
        if (s > 0 &&
            (!model_reads_vector(parts[s].model) || passed_on != model_input_size(parts[s].model)))
            die("%s: stage %d hands over %d numbers for an image; the model of stage %d has to "
                "begin with input_vector(%d)",
                caller, s - 1, passed_on, s, passed_on);
    }
}

static void compile_part(int number, void *argument)
{
    Stages *stages = argument;
    Stage *stage = &stages->stage[number];
    if (number != stages->compiled)
        return;
    stage->thread = pthread_self();
    compile(stage->model,
            is_last(stage) ? CATEGORICAL_CROSSENTROPY : CATEGORICAL_CROSSENTROPY_FROM_LOGITS,
            stage->optimizer);
}

static Stages *make_stages(const StagePart *parts, int count, const char *caller)
{
    check_parts(parts, count, caller);
    Stages *stages = allocate(1, sizeof *stages);
    *stages = (Stages){
        .stage = allocate((size_t)count, sizeof *stages->stage), .count = count, .batches = -1};
    pthread_mutex_init(&stages->lock, NULL);
    pthread_cond_init(&stages->change, NULL);
    int devices[MAX_STAGES], variables = 0;
    for (int s = 0; s < count; s++) {
        stages->stage[s] = (Stage){.stages = stages,
                                   .number = s,
                                   .model = parts[s].model,
                                   .optimizer = parts[s].optimizer};
        model_follow(parts[s].model, variables);
        variables += model_variable_count(parts[s].model);
        devices[s] = parts[s].device;
    }
    lives_until_exit(stages);
    stages->pool = thread_pool_start("stage", devices, count);
    // One after the other: errors of the first one are reported first.
    for (stages->compiled = 0; stages->compiled < count; stages->compiled++)
        thread_pool_run(stages->pool, caller, compile_part, stages);
    return stages;
}

Stages *stages_in_a_row(const StagePart *parts, int count)
{
    if (!parts)
        die("%s: the parts are not there (NULL)", __func__);
    return make_stages(parts, count, __func__);
}

Stages *two_stages(Model *first, Optimizer *first_optimizer, Model *second,
                   Optimizer *second_optimizer, const int devices[2])
{
    if (!devices)
        die("%s: the devices are not there (NULL)", __func__);
    const StagePart parts[] = {{first, first_optimizer, devices[0]},
                               {second, second_optimizer, devices[1]}};
    Stages *stages = make_stages(parts, 2, __func__);
    stages->halves = true;
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
    for (int s = 0; s < stages->count; s++)
        model_free(stages->stage[s].model);
    pthread_mutex_destroy(&stages->lock);
    pthread_cond_destroy(&stages->change);
    free(stages->stage);
    free(stages);
}

// ---- A batch.

static void begin_batch(Stages *stages, const Batch *batch, int micro_batches)
{
    stages->batch = batch;
    stages->batches++;
    stages->micro_batches = micro_batches < batch->count ? micro_batches : batch->count;
    for (int s = 0; s < stages->count; s++) {
        Stage *stage = &stages->stage[s];
        stage->micros = allocate((size_t)stages->micro_batches, sizeof *stage->micros);
        stage->used = allocate((size_t)stages->micro_batches, sizeof *stage->used);
        stage->waits_for = -1;
        for (int k = 0; k < stages->micro_batches; k++) {
            Share part = share_of((size_t)batch->count, k, stages->micro_batches);
            stage->micros[k] = (Micro){.begin = (int)part.begin, .count = (int)part.count};
        }
    }
}

static void end_batch(Stages *stages)
{
    for (int s = 0; s < stages->count; s++) {
        Stage *stage = &stages->stage[s];
        for (int k = 0; k < stages->micro_batches; k++) {
            free(stage->micros[k].arrived[VALUES]);
            free(stage->micros[k].arrived[GRADIENT]);
            free(stage->micros[k].gradient);
        }
        free(stage->micros);
        free(stage->used);
        model_drop_sum(stage->model);
    }
}

static void run_schedule(int number, void *argument)
{
    Stages *stages = argument;
    Stage *stage = &stages->stage[number];
    trace("stage_ready", NUMBER("batch", stages->batches));
    stage->schedule(stage, stages->micro_batches);
    stage->returned = seconds_now();
    pthread_mutex_lock(&stages->lock);
    stage->schedule = NULL;
    pthread_cond_broadcast(&stages->change);
    pthread_mutex_unlock(&stages->lock);
}

static void train(Stages *stages, const Batch *batch, int micro_batches, const Schedule *schedules,
                  const char *caller)
{
    if (!batch || !batch->images || !batch->labels || batch->count < 1)
        die("%s: there are no images or labels in the batch", caller);
    if (micro_batches < 1)
        die("%s: a batch can't have %d micro-batches", caller, micro_batches);
    for (int s = 0; s < stages->count; s++)
        if (!schedules[s])
            die("%s: a schedule is not there (NULL)", caller);
    thread_pool_check_outside(caller);
    begin_batch(stages, batch, micro_batches);
    if (trace_on())
        trace_batch(stages);
    for (int s = 0; s < stages->count; s++)
        stages->stage[s].schedule = schedules[s];
    double begin = seconds_now();
    thread_pool_run(stages->pool, caller, run_schedule, stages);
    double now = seconds_now();
    stages->seconds += now - begin;
    for (int s = 0; s < stages->count; s++)
        stages->stage[s].waited += now - stages->stage[s].returned;
    if (trace_on())
        trace_batch_end(stages);
    end_batch(stages);
}

void train_in_stages(Stages *stages, const Batch *batch, int micro_batches, Schedule first,
                     Schedule second)
{
    need_stages(stages, __func__);
    if (stages->count != 2)
        die("%s: there are %d stages; train_by_schedule() is for any number", __func__,
            stages->count);
    train(stages, batch, micro_batches, (Schedule[]){first, second}, __func__);
}

void train_by_schedule(Stages *stages, const Batch *batch, int micro_batches, Schedule schedule)
{
    need_stages(stages, __func__);
    Schedule schedules[MAX_STAGES];
    for (int s = 0; s < stages->count; s++)
        schedules[s] = schedule;
    train(stages, batch, micro_batches, schedules, __func__);
}

Metrics stages_metrics(const Stages *stages)
{
    need_stages(stages, __func__);
    return model_metrics(last_stage(stages)->model);
}

void stages_reset_metrics(Stages *stages)
{
    need_stages(stages, __func__);
    model_reset_metrics(last_stage(stages)->model);
    stages->seconds = 0;
    for (int s = 0; s < stages->count; s++) {
        stages->stage[s].waited = 0;
        stages->stage[s].most_kept = 0;
    }
}

StageUse stage_use(const Stages *stages, int stage)
{
    need_stages(stages, __func__);
    if (stage < 0 || stage >= stages->count)
        die("%s: there is no stage %d; there are %d, from 0", __func__, stage, stages->count);
    const Stage *of = &stages->stage[stage];
    return (StageUse){.kept = of->most_kept,
                      .megabytes = (double)model_memory(of->model).activations / 1e6,
                      .idle = stages->seconds > 0 ? of->waited / stages->seconds : 0};
}

static void check_images(const Model *first, const Dataset *data)
{
    int numbers = data->height * data->width * data->channels;
    if (numbers != model_input_size(first))
        die("evaluate_in_stages: the images are of %d numbers, the first stage reads %d", numbers,
            model_input_size(first));
}

// Returns `between`, enlarged, the memory for what stages pass on.
static float *evaluate_batch(Stages *stages, const Batch *batch, float *between)
{
    Part all = {0, batch->count};
    for (int s = 0; s < stages->count; s++) {
        Model *m = stages->stage[s].model;
        bool last = s == stages->count - 1;
        model_forward_part(m, all, s == 0 ? batch->images : between, last ? batch->labels : NULL,
                           false);
        if (last)
            continue;
        between =
            enlarge(between, (size_t)batch->count * (size_t)model_output_size(m), sizeof *between);
        model_read_output(m, all, between);
    }
    return between;
}

Score evaluate_in_stages(Stages *stages, Batches *batches)
{
    need_stages(stages, __func__);
    if (!batches)
        die("%s: there are no batches (NULL)", __func__);
    thread_pool_check_outside(__func__);
    Model *last = last_stage(stages)->model;
    check_images(stages->stage[0].model, batches_dataset(batches));
    Metrics before = model_metrics(last);
    float *between = NULL;
    model_reset_metrics(last);
    batches_begin(batches, batches_len(batches));
    for (int step = 0; step < batches_len(batches); step++) {
        Batch batch = batches_next(batches);
        between = evaluate_batch(stages, &batch, between);
    }
    free(between);
    Metrics metrics = model_metrics(last);
    model_write_metrics(last, &before);
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

static const char *receive_call(const Stage *stage, Handover what)
{
    if (stage->stages->halves)
        return "stage_receive";
    return what == VALUES ? "stage_receive_values" : "stage_receive_gradient";
}

// The minimum time of a micro-batch's pass through one stage, in seconds, from the batch's pace:
// backward twice as long as forward.
static double least_seconds(const Stage *stage, const Micro *m, int thirds)
{
    double share = (double)m->count / stage->stages->batch->count;
    return (double)settings()->pace / 1000 / stage->stages->count * thirds / 3 * share;
}

static bool is_on_gpu(const Stage *stage)
{
    return model_parameters(stage->model)->device->gpu;
}

// A micro-batch's activations are in one slot of its stage; slots are used again, so that there are
// as many as it keeps at a time.
static int take_slot(Stage *stage)
{
    int slot = 0;
    while (stage->used[slot])
        slot++;
    stage->used[slot] = true;
    stage->most_kept = slot + 1 > stage->most_kept ? slot + 1 : stage->most_kept;
    return slot;
}

static void forget(float **values)
{
    free(*values);
    *values = NULL;
}

// Numbers for each image, of the values on their way or of their gradient.
static float *for_images(const Micro *m, int size)
{
    return allocate((size_t)m->count * (size_t)size, sizeof(float));
}

void stage_forward(Stage *stage, int micro)
{
    Micro *m = micro_of(stage, micro, __func__);
    check(stage, micro, __func__, m->forward, is_first(stage) || m->received[VALUES],
          receive_call(stage, VALUES));
    begin(stage, "forward", micro);
    span_begin(SPAN_COMPUTE, SPAN_QUEUED(is_on_gpu(stage), "forward"), m->count, -1);
    double over = seconds_now() + least_seconds(stage, m, 1);
    m->slot = take_slot(stage);
    const Batch *batch = stage->stages->batch;
    size_t begin_float = (size_t)m->begin * (size_t)model_input_size(stage->model);
    model_forward_part(stage->model, (Part){m->slot, m->count},
                       is_first(stage) ? batch->images + begin_float : m->arrived[VALUES],
                       is_last(stage) ? batch->labels + m->begin : NULL, true);
    forget(&m->arrived[VALUES]);
    sleep_seconds(over - seconds_now());
    m->forward = true;
    span_end();
    end(stage, "forward", micro);
}

void stage_backward(Stage *stage, int micro)
{
    Micro *m = micro_of(stage, micro, __func__);
    check(stage, micro, __func__, m->backward, m->forward, "stage_forward");
    check(stage, micro, __func__, m->backward, is_last(stage) || m->received[GRADIENT],
          receive_call(stage, GRADIENT));
    begin(stage, "backward", micro);
    span_begin(SPAN_COMPUTE, SPAN_QUEUED(is_on_gpu(stage), "backward"), m->count, -1);
    double over = seconds_now() + least_seconds(stage, m, 2);
    const Part part = {m->slot, m->count};
    model_backward_part(stage->model, part, is_last(stage) ? NULL : m->arrived[GRADIENT]);
    model_add_gradients(stage->model, (float)m->count / (float)stage->stages->batch->count);
    forget(&m->arrived[GRADIENT]);
    sleep_seconds(over - seconds_now());
    m->backward = true;
    span_end();
    if (!is_first(stage)) {
        m->gradient = for_images(m, model_input_size(stage->model));
        model_read_input_gradient(stage->model, part, m->gradient);
    }
    stage->used[m->slot] = false;
    end(stage, "backward", micro);
}

// What is to be sent, for the receiver.
static float *values_of(Stage *stage, Micro *m, Handover what)
{
    float *values = m->gradient;
    m->gradient = NULL;
    if (what == VALUES) {
        values = for_images(m, model_output_size(stage->model));
        model_read_output(stage->model, (Part){m->slot, m->count}, values);
    }
    return values;
}

static void hand_over(Stage *stage, int micro, Handover what, const char *call, const char *caller)
{
    Micro *m = micro_of(stage, micro, caller);
    check(stage, micro, caller, m->sent[what], what == VALUES ? m->forward : m->backward,
          what == VALUES ? "stage_forward" : "stage_backward");
    begin(stage, call, micro);
    float *values = values_of(stage, m, what);
    Stages *stages = stage->stages;
    pthread_mutex_lock(&stages->lock);
    receiver(stage, what)->micros[micro].arrived[what] = values;
    end(stage, call, micro); // before the other one can go on
    pthread_cond_broadcast(&stages->change);
    pthread_mutex_unlock(&stages->lock);
    m->sent[what] = true;
}

static bool waits_for(const Stage *stage, Handover what)
{
    return stage->waits_for >= 0 && stage->waits_for_what == what &&
           !stage->micros[stage->waits_for].arrived[what];
}

// Called with the lock held. Exits if no thread is left that could send the data that a stage waits
// for.
static void check_deadlock(const Stages *stages)
{
    for (int s = 0; s + 1 < stages->count; s++) {
        const Stage *a = &stages->stage[s], *b = a + 1;
        if (waits_for(a, GRADIENT) && waits_for(b, VALUES))
            die("the stages hang: stage %d waits for the gradient of micro-batch %d, and stage %d "
                "for the values of micro-batch %d; each would have to be sent by the other",
                s, a->waits_for, s + 1, b->waits_for);
    }
    for (int s = 0; s < stages->count; s++) {
        const Stage *stage = &stages->stage[s];
        for (Handover what = VALUES; what < HANDOVERS; what++)
            if (waits_for(stage, what) && !sender(stage, what)->schedule)
                die("the stages hang: stage %d waits for the %s of micro-batch %d, and the "
                    "schedule of stage %d has returned without sending it",
                    s, words[what], stage->waits_for, sender(stage, what)->number);
    }
}

static void wait_for(Stage *stage, int micro, Handover what, const char *call, const char *caller)
{
    Micro *m = micro_of(stage, micro, caller);
    check(stage, micro, caller, m->received[what], true, NULL);
    begin(stage, call, micro);
    span_begin(SPAN_WAIT, "receive", -1, -1);
    double since = seconds_now();
    Stages *stages = stage->stages;
    pthread_mutex_lock(&stages->lock);
    stage->waits_for = micro;
    stage->waits_for_what = what;
    while (!m->arrived[what]) {
        check_deadlock(stages);
        pthread_cond_wait(&stages->change, &stages->lock);
    }
    stage->waits_for = -1;
    pthread_mutex_unlock(&stages->lock);
    stage->waited += seconds_now() - since;
    m->received[what] = true;
    span_end();
    end(stage, call, micro);
}

// stage_send and stage_receive leave no choice at either end of a row.
static void need_end(const Stage *stage, const char *caller)
{
    if (is_first(stage) == is_last(stage))
        die("%s: stage %d has %s; %s_values() and %s_gradient() are for any number of stages",
            caller, stage->number, is_first(stage) ? "no neighbour" : "two neighbours", caller,
            caller);
}

void stage_send(Stage *stage, int micro)
{
    micro_of(stage, micro, __func__);
    need_end(stage, __func__);
    hand_over(stage, micro, is_first(stage) ? VALUES : GRADIENT, "send", __func__);
}

void stage_receive(Stage *stage, int micro)
{
    micro_of(stage, micro, __func__);
    need_end(stage, __func__);
    wait_for(stage, micro, is_first(stage) ? GRADIENT : VALUES, "receive", __func__);
}

void stage_send_values(Stage *stage, int micro)
{
    micro_of(stage, micro, __func__);
    if (!is_last(stage))
        hand_over(stage, micro, VALUES, "send_values", __func__);
}

void stage_receive_values(Stage *stage, int micro)
{
    micro_of(stage, micro, __func__);
    if (!is_first(stage))
        wait_for(stage, micro, VALUES, "receive_values", __func__);
}

void stage_send_gradient(Stage *stage, int micro)
{
    micro_of(stage, micro, __func__);
    if (!is_first(stage))
        hand_over(stage, micro, GRADIENT, "send_gradient", __func__);
}

void stage_receive_gradient(Stage *stage, int micro)
{
    micro_of(stage, micro, __func__);
    if (!is_last(stage))
        wait_for(stage, micro, GRADIENT, "receive_gradient", __func__);
}

int stage_index(const Stage *stage)
{
    if (!stage)
        die("%s: there is no stage (NULL)", __func__);
    return stage->number;
}

int stage_count(const Stage *stage)
{
    if (!stage)
        die("%s: there is no stage (NULL)", __func__);
    return stage->stages->count;
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
