// What a schedule calls: the passes of its stage, the exchange with the neighbours, and the error
// messages for wrong schedules.

#include "train/stages_inside.h"

#include <stdlib.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "observe/span.h"
#include "observe/trace.h"

static const char *const words[HANDOVERS] = {"values", "gradient"};

// The stages between which it goes.
static Stage *sender(const Stage *stage, Handover what)
{
    return &stage->stages->stage[stage->number + (what == VALUES ? -1 : 1)];
}

static Stage *receiver(const Stage *stage, Handover what)
{
    return &stage->stages->stage[stage->number + (what == VALUES ? 1 : -1)];
}

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
    trace("stage_apply", NUMBER("batch", stage->stages->batches),
          NUMBER("value", model_sum_fingerprint(stage->model)));
    model_apply_sum(stage->model);
}
