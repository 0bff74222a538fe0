// One_f_one_b: one forward, one backward, for any number of stages. What was computed, and what the
// weights become, is judged in staged_update.c; here it is how many micro-batches a stage keeps, and
// how long a batch takes. That follows from the order of the calls alone, as if a forward pass took
// one unit of time, a backward pass two, and all else none: it does not depend on a machine's speed.

#include "staged.h"
#include "diagnoses/judge_one_f_one_b.h"

#include <limits.h>
#include <stdlib.h>
#include "base/format.h"
#include "base/memory.h"

#define CUT    "every batch is cut into the micro-batches asked for, and goes through all stages"
#define ALL    "every stage computes every micro-batch, forward and backward"
#define ONCE   "every stage updates its weights once in a batch, from all of its micro-batches"
#define EQUAL  "the weights become those of one device with the whole batch"
#define NUMBER "the schedule takes no other number for that of the stages"
#define KEPT   "stage s of S keeps at most S - s micro-batches at a time"
#define TIME   "a batch of M micro-batches takes as long as M + S - 1 take one stage"

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

// A stage that went forward with all micro-batches, and with none backward, has no gradients to
// apply.
static Fault end_fault(const void *item)
{
    const Staged *p = item;
    Fault fault = staged_end_fault(p);
    for (int s = 0; fault.evidence && s < p->batches[p->count - 1].stages; s++) {
        const BatchOf *batch = &p->batches[p->count - 1];
        char *words = format_text("stage %d has no gradients", s);
        if (output_says(&p->run->output, words) && is_not_drained(&batch->of[s], batch->micros) &&
            count_calls(&batch->of[s], BACKWARD) == 0)
            fault.diagnosis = &d_cool_down_missing;
        free(words);
    }
    return fault;
}

static Fault ended(const Run *run)
{
    return staged_in(NULL, run, end_fault);
}

static Fault computed_fault(const void *item)
{
    const Staged *p = item;
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < p->batches[b].stages; s++)
            if (is_not_drained(&p->batches[b].of[s], p->batches[b].micros))
                return fault_at(schedule_fault(&d_cool_down_missing, p, b, INT_MAX),
                                "stage %d goes backward with %d of %d micro-batches\n", s,
                                count_calls(&p->batches[b].of[s], BACKWARD), p->batches[b].micros);
    return all_fault(item);
}

// ---- Kept.

static Fault passes_fault(const Diagnosis *diagnosis, const Staged *p, int b, int place)
{
    return (Fault){diagnosis, schedule_text(p, b, place, true)};
}

// The number of stages for which some stage of the batch would keep what it keeps, if there is one
// alone; else 0.
static int stages_taken(const BatchOf *batch)
{
    for (int s = 0; s < batch->stages; s++) {
        int kept = most_kept(&batch->of[s]);
        if (kept > 1 && kept < batch->micros)
            return s + kept;
    }
    return 0;
}

static bool keeps_as_of(const BatchOf *batch, int stages)
{
    for (int s = 0; s < batch->stages; s++) {
        int kept = stages - s > 1 ? stages - s : 1;
        if (most_kept(&batch->of[s]) != (kept < batch->micros ? kept : batch->micros))
            return false;
    }
    return true;
}

// Whether every batch is as if there were so many stages; 0: as many as devices.
static bool all_keep_as_of(const Runs *runs, int stages)
{
    bool all = true;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Staged p = staged_batches(run);
        for (int b = 0; b < p.count; b++)
            all = all && keeps_as_of(&p.batches[b], stages ? stages : (int)p.devices);
        staged_batches_free(&p);
    }
    return all;
}

// Whether all runs together prove that the schedule goes by another number than that of the stages.
static Fault number_fault(const void *item)
{
    const Staged *p = item;
    for (int b = 0; b < p->count; b++) {
        int taken = stages_taken(&p->batches[b]);
        if (taken == 0 || taken == p->batches[b].stages)
            continue;
        bool devices = all_keep_as_of(p->runs, 0),
             fixed = p->runs->count > 1 && all_keep_as_of(p->runs, taken);
        if (devices == fixed)
            return NO_FAULT;
        return fault_at(
            passes_fault(devices ? &d_devices_for_stages : &d_number_of_stages_fixed, p, b, 0),
            "there are %d stages (devices: %.0f); they keep as many micro-batches as if "
            "there were %d\n",
            p->batches[b].stages, p->devices, taken);
    }
    return NO_FAULT;
}

// How many micro-batches go forward before the first one goes backward.
static int warm_up(const StageOf *stage)
{
    int forward = 0;
    for (int i = 0; i < stage->count && stage->calls[i].kind != BACKWARD; i++)
        forward += stage->calls[i].kind == FORWARD;
    return forward;
}

// Why a stage keeps too many in this batch, the first one in which one does.
static const Diagnosis *kept_too_many(const Staged *p, int b)
{
    const BatchOf *batch = &p->batches[b];
    bool all = true, equal = true, later = true;
    for (int s = 0; s < batch->stages; s++) {
        const StageOf *stage = &batch->of[s];
        const int kept = most_kept(stage), may = batch->stages - s;
        all = all && (kept <= may || kept == batch->micros);
        equal = equal && kept == most_kept(&batch->of[0]);
        later = later && (kept <= may || warm_up(stage) <= may);
    }
    if (all)
        return b > 0 || p->run > p->runs->items ? &d_all_forward_first_in_this_batch
                                                : &d_all_forward_first;
    if (later)
        return &d_forward_too_early;
    return equal && batch->stages > 2 ? &d_warm_up_equal : &d_warm_up_too_long;
}

// The place of the first pass by which the stage keeps too many; -1: none.
static int kept_from(const StageOf *stage, int may)
{
    int kept = 0;
    for (int i = 0; i < stage->count; i++) {
        kept += (stage->calls[i].kind == FORWARD) - (stage->calls[i].kind == BACKWARD);
        if (kept > may)
            return stage->calls[i].end;
    }
    return -1;
}

static Fault kept_fault(const void *item)
{
    const Staged *p = item;
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < p->batches[b].stages; s++) {
            const int may = p->batches[b].stages - s;
            int place = kept_from(&p->batches[b].of[s], may);
            if (place >= 0)
                return fault_at(passes_fault(kept_too_many(p, b), p, b, place),
                                "stage %d of %d keeps %d, and may keep %d\n", s,
                                p->batches[b].stages, most_kept(&p->batches[b].of[s]), may);
        }
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
    int busy;                    // of the last stage: the time that it has computed
    const Call *late;            // its first pass behind a wait that need not be
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
        if (s == c->batch->stages - 1) {
            if (!c->late && c->now[s] > FORWARD_TIME * s + c->busy)
                c->late = call;
            c->busy += gradient ? BACKWARD_TIME : FORWARD_TIME;
        }
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

// When all stages are done with all that they can do; `late` (NULL: not asked for) as in Clock.
static int batch_time(const BatchOf *batch, Variant variant, const Call **late)
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
    if (late)
        *late = c.late;
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
        const Call *late;
        const int best = best_time(batch), taken = batch_time(batch, (Variant){0}, &late);
        if (taken <= best)
            continue;
        const int place = late ? late->end : INT_MAX;
        Fault fault = {0};
        for (size_t i = 0; i < sizeof causes / sizeof *causes && !fault.diagnosis; i++)
            if (batch_time(batch, causes[i].variant, NULL) <= best)
                fault = schedule_fault(causes[i].diagnosis, p, b, place);
        if (!fault.diagnosis)
            fault = passes_fault(wrong_order(batch), p, b, place);
        if (late)
            fault = fault_at(
                fault, "stage %d waits too long before it goes %s with micro-batch %d\n",
                batch->stages - 1, late->kind == FORWARD ? "forward" : "backward", late->micro);
        return fault_at(fault,
                        "if a forward pass takes 1 and a backward pass 2, a batch takes %d in this "
                        "order; it needs (M + S - 1) x 3 = (%d + %d - 1) x 3 = %d\n",
                        taken, batch->micros, batch->stages, best);
    }
    return NO_FAULT;
}

static const ItemProperty properties[] = {{CUT, cut_fault, NULL},      {ALL, computed_fault, CUT},
                                          {ONCE, once_fault, ALL},     {EQUAL, equal_fault, ONCE},
                                          {NUMBER, number_fault, ALL}, {KEPT, kept_fault, NUMBER},
                                          {TIME, time_fault, NUMBER},  {0}};

static void judge(const Runs *runs, Report *report)
{
    judge_items(runs, staged_in, properties, report);
}

JUDGE("one_f_one_b", judge)
OWN_ENDS("one_f_one_b", .explanations = staged_explanations, .ended = ended)
