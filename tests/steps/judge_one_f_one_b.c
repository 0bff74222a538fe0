// One_f_one_b: one forward, one backward, for any number of stages. What was computed, and what the
// weights become, is judged in staged_update.c; here it is how many micro-batches a stage keeps, and
// how long a batch takes. That follows from the order of the calls alone, as if a forward pass took
// one unit of time, a backward pass two, and all else none: it does not depend on a machine's speed.

#include "staged.h"
#include "diagnoses/judge_one_f_one_b.h"

#include <stdlib.h>
#include "base/format.h"
#include "base/memory.h"

#define CUT   "every batch is cut into the micro-batches asked for, and goes through all stages"
#define ALL   "every stage computes every micro-batch, forward and backward"
#define ONCE  "every stage updates its weights once in a batch, from all of its micro-batches"
#define EQUAL "the weights become those of one device with the whole batch"
#define KEPT  "stage s of S keeps at most S - s micro-batches at a time"
#define TIME  "a batch of M micro-batches takes as long as M + S - 1 take one stage"

enum { FORWARD_TIME = 1, BACKWARD_TIME = 2 };

// ---- Computed by all.

// Whether a stage computes all micro-batches forward, and some of them never backward.
static bool is_not_drained(const StageOf *stage, int micros)
{
    bool forward = true, backward = true;
    for (int k = 0; k < micros && forward; k++) {
        forward = find_call(stage, FORWARD, k) >= 0;
        backward = backward && find_call(stage, BACKWARD, k) >= 0;
    }
    return forward && !backward;
}

// A stage that went forward with all micro-batches, and with none backward, and did not end: it has
// no gradients to apply.
static void crashed(const Run *run, Report *report)
{
    Staged p = staged_batches(run);
    const BatchOf *batch = p.count > 0 ? &p.batches[p.count - 1] : NULL;
    for (int s = 0; batch && s < batch->stages && report_passed(report); s++) {
        const StageOf *stage = &batch->of[s];
        if (is_not_drained(stage, batch->micros) && count_calls(stage, BACKWARD) == 0 &&
            output_says(&run->output, "has no gradients"))
            report_failure(report, ALL, &d_cool_down_missing,
                           evidence_of_run(run, schedule_text(batch, p.count - 1)));
    }
    staged_batches_free(&p);
}

static Fault computed_fault(const void *item)
{
    const Staged *p = item;
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < p->batches[b].stages; s++)
            if (is_not_drained(&p->batches[b].of[s], p->batches[b].micros))
                return schedule_fault(&d_cool_down_missing, p, b);
    return all_fault(item);
}

// ---- Kept.

// How many micro-batches the stage keeps at a time, at most: forward, and not yet backward.
static int most_kept(const StageOf *stage)
{
    int kept = 0, most = 0;
    for (int i = 0; i < stage->count; i++) {
        kept += stage->calls[i].kind == FORWARD;
        most = kept > most ? kept : most;
        kept -= stage->calls[i].kind == BACKWARD;
    }
    return most;
}

// What each stage computes in which order, and keeps: "stage 0 keeps 4: F0 F1 F2 F3 B0 F4 ...".
static Fault passes_fault(const Diagnosis *diagnosis, const Staged *p, int b)
{
    enum { SHOWN = 24 };
    const BatchOf *batch = &p->batches[b];
    char *text = format_text(
        "batch %d, of %d micro-batches (F0: micro-batch 0 forward, B0: backward):", b + 1,
        batch->micros);
    for (int s = 0; s < batch->stages; s++) {
        const StageOf *stage = &batch->of[s];
        int shown = 0;
        text_add(&text, "\nstage %d keeps %d:", s, most_kept(stage));
        for (int i = 0; i < stage->count; i++) {
            const Call *call = &stage->calls[i];
            if (call->kind == FORWARD || call->kind == BACKWARD)
                if (shown++ < SHOWN)
                    text_add(&text, " %c%d", call->kind == FORWARD ? 'F' : 'B', call->micro);
        }
        text_add(&text, "%s", shown > SHOWN ? " ..." : "");
    }
    return (Fault){diagnosis, text};
}

// Why a stage of this batch keeps too many.
static const Diagnosis *kept_too_many(const BatchOf *batch)
{
    const int last = batch->stages - 1;
    bool all = true, equal = true;
    for (int s = 0; s < last; s++) {
        all = all && most_kept(&batch->of[s]) == batch->micros;
        equal = equal && most_kept(&batch->of[s]) == most_kept(&batch->of[last]);
    }
    if (all)
        return &d_all_forward_first;
    return equal && batch->stages > 2 ? &d_warm_up_equal : &d_warm_up_too_long;
}

static Fault kept_fault(const void *item)
{
    const Staged *p = item;
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < p->batches[b].stages; s++)
            if (most_kept(&p->batches[b].of[s]) > p->batches[b].stages - s)
                return passes_fault(kept_too_many(&p->batches[b]), p, b);
    return NO_FAULT;
}

// ---- The time of a batch.

// What would be otherwise than in the trace: each send directly behind what computes the data, each
// receive directly before what computes with them.
typedef struct {
    bool values_at_once, gradients_at_once, received_late;
} Variant;

// When things happen. Times are -1 where they have not happened yet.
typedef struct {
    const BatchOf *batch;
    Variant variant;
    int *there[2];               // when a stage can have the values, or the gradient, of each
    int now[MAX_JUDGED_STAGES];  // of each stage
    int next[MAX_JUDGED_STAGES]; // its next call
} Clock;

static int *there(const Clock *c, int s, int micro, bool gradient)
{
    bool is_there = micro >= 0 && micro < c->batch->micros;
    return is_there && s >= 0 && s < c->batch->stages
               ? &c->there[gradient][s * c->batch->micros + micro]
               : NULL;
}

static void hand_over(Clock *c, int s, int micro, bool gradient)
{
    int *when = there(c, gradient ? s - 1 : s + 1, micro, gradient);
    if (when && *when < 0)
        *when = c->now[s];
}

// Lets the stage wait for data, or returns false: nobody has sent them yet.
static bool wait_for(Clock *c, int s, int micro, bool gradient)
{
    const int *when = there(c, s, micro, gradient);
    if (!when || s == (gradient ? c->batch->stages - 1 : 0))
        return true;
    if (*when < 0)
        return false;
    c->now[s] = *when > c->now[s] ? *when : c->now[s];
    return true;
}

// Lets the stage make its next call. False: it has to wait for another one.
static bool take_call(Clock *c, int s)
{
    const Call *call = &c->batch->of[s].calls[c->next[s]];
    const Variant *v = &c->variant;
    bool gradient =
        call->kind == BACKWARD || call->kind == SEND_GRADIENT || call->kind == RECEIVE_GRADIENT;
    if (call->kind == FORWARD || call->kind == BACKWARD) {
        if (v->received_late && !wait_for(c, s, call->micro, gradient))
            return false;
        c->now[s] += gradient ? BACKWARD_TIME : FORWARD_TIME;
        if (gradient ? v->gradients_at_once : v->values_at_once)
            hand_over(c, s, call->micro, gradient);
    } else if (call->kind == SEND_VALUES || call->kind == SEND_GRADIENT) {
        hand_over(c, s, call->micro, gradient);
    } else if (call->kind != APPLY && !v->received_late) {
        if (!wait_for(c, s, call->micro, gradient))
            return false;
    }
    c->next[s]++;
    return true;
}

// When the last stage is done with all that it can do.
static int batch_time(const BatchOf *batch, Variant variant)
{
    Clock c = {.batch = batch, .variant = variant};
    size_t count = (size_t)(batch->stages * batch->micros);
    for (int i = 0; i < 2; i++) {
        c.there[i] = allocate(count, sizeof *c.there[i]);
        for (size_t k = 0; k < count; k++)
            c.there[i][k] = -1;
    }
    for (bool moves = true; moves;) {
        moves = false;
        for (int s = 0; s < batch->stages; s++)
            while (c.next[s] < batch->of[s].count && take_call(&c, s))
                moves = true;
    }
    int end = 0;
    for (int s = 0; s < batch->stages; s++)
        end = c.now[s] > end ? c.now[s] : end;
    free(c.there[0]);
    free(c.there[1]);
    return end;
}

static int best_time(const BatchOf *batch)
{
    return (FORWARD_TIME + BACKWARD_TIME) * (batch->micros + batch->stages - 1);
}

// Whether some stage goes backward in another order than forward.
static bool is_out_of_order(const BatchOf *batch)
{
    for (int s = 0; s < batch->stages; s++) {
        const StageOf *stage = &batch->of[s];
        int forward = -1;
        for (int i = 0; i < stage->count; i++) {
            if (stage->calls[i].kind != BACKWARD)
                continue;
            int at = find_call(stage, FORWARD, stage->calls[i].micro);
            if (at < forward)
                return true;
            forward = at;
        }
    }
    return false;
}

// Why the order of the passes takes too long.
static const Diagnosis *wrong_order(const BatchOf *batch)
{
    if (is_out_of_order(batch))
        return &d_backward_out_of_order;
    int most = 0;
    bool fewer_kept = false;
    for (int s = 0; s < batch->stages; s++) {
        int kept = most_kept(&batch->of[s]);
        most = kept > most ? kept : most;
        fewer_kept = fewer_kept || (kept < batch->stages - s && kept < batch->micros);
    }
    if (most == 1)
        return &d_one_at_a_time;
    return fewer_kept ? &d_warm_up_too_short : &d_waits_too_long;
}

static Fault time_fault(const void *item)
{
    static const struct {
        Variant variant;
        const Diagnosis *diagnosis;
    } causes[] = {
        {{.values_at_once = true}, &d_sent_too_late},
        {{.gradients_at_once = true}, &d_gradient_sent_too_late},
        {{.received_late = true}, &d_received_too_early},
        {{true, true, true}, &d_sent_too_late_or_received_too_early},
    };
    const Staged *p = item;
    for (int b = 0; b < p->count; b++) {
        const BatchOf *batch = &p->batches[b];
        const int best = best_time(batch), taken = batch_time(batch, (Variant){0});
        if (taken <= best)
            continue;
        Fault fault = {0};
        for (size_t i = 0; i < sizeof causes / sizeof *causes && !fault.diagnosis; i++)
            if (batch_time(batch, causes[i].variant) <= best)
                fault = schedule_fault(causes[i].diagnosis, p, b);
        if (!fault.diagnosis)
            fault = passes_fault(wrong_order(batch), p, b);
        return fault_at(fault,
                        "if a forward pass takes 1 and a backward pass 2, a batch takes %d in this "
                        "order; it needs (M + S - 1) x 3 = (%d + %d - 1) x 3 = %d\n",
                        taken, batch->micros, batch->stages, best);
    }
    return NO_FAULT;
}

static const ItemProperty properties[] = {{CUT, cut_fault, NULL},
                                          {ALL, computed_fault, CUT},
                                          {ONCE, once_fault, ALL},
                                          {EQUAL, equal_fault, ONCE},
                                          {KEPT, kept_fault, ALL},
                                          {TIME, time_fault, ALL},
                                          {0}};

static void judge(const Runs *runs, Report *report)
{
    judge_items(runs, staged_in, properties, report);
}

JUDGE("one_f_one_b", judge)
OWN_ENDS("one_f_one_b", .explanations = staged_explanations, .crashed = crashed)
