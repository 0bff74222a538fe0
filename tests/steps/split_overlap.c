// What the two devices can compute at the same time. The order of a stage's calls, and which stage
// waits for which, decide that: two calls can where neither has to come before the other, by the
// order of its own stage or by what was received. So nothing here depends on how fast a machine is.
// Calls that could have met and never did prove nothing, for on a busy machine threads wake up
// late; but where a stage was in none of the library's calls as often as that, something in the
// program held it back.

#include "staged.h"
#include "diagnoses/split_overlap.h"

#define FILL "forward, device 0 can compute micro-batch k + 1 while device 1 computes micro-batch k"
#define DRAIN                                                                                      \
    "backward, device 0 can compute micro-batch k while device 1 computes micro-batch k + 1"

// The share of pairs of calls that is no accident. A thread may lose its core between two calls,
// but seldom.
#define HELD 0.1

// How many calls of the other stage have come to their end before this one begins: those before
// what was received so far.
static int known_before(const BatchOf *batch, int s, int call)
{
    int known = 0;
    for (int i = 0; i < call; i++) {
        int sender;
        const Call *sent = sent_for(batch, s, &batch->of[s].calls[i], &sender);
        if (sent && sent - batch->of[sender].calls >= known)
            known = (int)(sent - batch->of[sender].calls) + 1;
    }
    return known;
}

// Whether call i of stage s has to be over before call j of the other one begins.
static bool comes_before(const BatchOf *batch, int s, int i, int j)
{
    return i < known_before(batch, 1 - s, j);
}

// The micro-batch that comes after this one among the stage's calls of that kind, or -1.
static int next_of(const StageOf *stage, CallKind kind, int micro)
{
    for (int i = find_call(stage, kind, micro) + 1; i < stage->count; i++)
        if (stage->calls[i].kind == kind)
            return stage->calls[i].micro;
    return -1;
}

typedef struct {
    CallKind kind, send;
    int leader;                 // the stage that computes b while the other one computes a
    const Diagnosis *sent_late; // by the leader
    const Diagnosis *waited;    // by the other one, for b before it computes a
} Pass;

static const Pass fill = {FORWARD, SEND_VALUES, 0, &d_sent_too_late, &d_received_too_early},
                  drain = {BACKWARD, SEND_GRADIENT, 1, &d_gradient_sent_too_late,
                           &d_gradients_awaited};

// NULL where the leader may compute b, which comes after a there, while the other one computes a.
static const Diagnosis *wrong_pair(const BatchOf *batch, const Pass *pass, int a, int b)
{
    int leader = pass->leader, other = 1 - leader;
    int ahead = find_call(&batch->of[leader], pass->kind, b),
        behind = find_call(&batch->of[other], pass->kind, a);
    if (comes_before(batch, other, behind, ahead) && pass == &drain)
        return &d_sent_too_late_before_a_send;
    if (comes_before(batch, other, behind, ahead))
        return find_call(&batch->of[leader], BACKWARD, a) < ahead ? &d_one_at_a_time
                                                                  : &d_waits_in_between;
    if (!comes_before(batch, leader, ahead, behind))
        return NULL;
    return find_call(&batch->of[leader], pass->send, a) > ahead ? pass->sent_late : pass->waited;
}

typedef struct {
    int pairs;    // of micro-batches, a and the next one
    int serial;   // of them: a has gone all the way before b begins
    int together; // of them: both were computed at the same time
    int held;     // of them: one stage did nothing at the end of what the other one computed
    const Diagnosis *diagnosis; // of the first batch that is wrong; NULL: none is
    int bad_batch, bad_place;   // and where that one computes micro-batch a
} Overlap;

// Whether the stage, whose thread was there, was in no call of the library's at that place.
static bool is_idle(const StageOf *stage, int place)
{
    for (int i = 0; i < stage->count; i++)
        if (stage->calls[i].begin < place && place < stage->calls[i].end)
            return false;
    return stage->ready < place;
}

// What has come of the two calls that could be computed at the same time.
static void look_at_pair(const BatchOf *batch, const Pass *pass, int a, int b, Overlap *o)
{
    const StageOf *leader = &batch->of[pass->leader], *other = &batch->of[1 - pass->leader];
    const Call *x = &leader->calls[find_call(leader, pass->kind, b)];
    const Call *y = &other->calls[find_call(other, pass->kind, a)];
    o->pairs++;
    if (x->end < y->begin)
        o->held += is_idle(other, x->end);
    else if (y->end < x->begin)
        o->held += is_idle(leader, y->end);
    else
        o->together++;
}

// Looks at all batches of a run. Its fault is that of the first bad one.
static Fault look_at_run(const Run *run, const Pass *pass, Overlap *o)
{
    Staged p = staged_batches(run);
    for (int b = 0; b < p.count; b++)
        for (int k = 0; k < p.batches[b].micros; k++) {
            int next = next_of(&p.batches[b].of[pass->leader], pass->kind, k);
            if (next < 0)
                continue;
            const Diagnosis *wrong = wrong_pair(&p.batches[b], pass, k, next);
            look_at_pair(&p.batches[b], pass, k, next, o);
            o->serial += wrong == &d_one_at_a_time;
            if (wrong && !o->diagnosis) {
                const StageOf *other = &p.batches[b].of[1 - pass->leader];
                o->bad_batch = b;
                o->bad_place = other->calls[find_call(other, pass->kind, k)].begin;
                o->diagnosis = wrong;
            }
        }
    if (o->diagnosis == &d_one_at_a_time && o->serial < o->pairs)
        o->diagnosis = &d_waits_in_between;
    Fault fault =
        o->diagnosis ? schedule_fault(o->diagnosis, &p, o->bad_batch, o->bad_place) : NO_FAULT;
    staged_batches_free(&p);
    return fault;
}

// In the order of their calls both devices could compute at the same time, and the program prevents
// that by other means.
static Fault never_meet(const Run *first, const Overlap *o)
{
    if (o->together > 0 || o->held == 0 || o->held < o->pairs * HELD)
        return NO_FAULT;
    Staged p = staged_batches(first);
    Fault fault = fault_at(schedule_fault(&d_never_at_the_same_time, &p, 0, 0),
                           "of %d pairs of calls none met; in %d of them one stage was in no call "
                           "when the other one's ended\n",
                           o->pairs, o->held);
    staged_batches_free(&p);
    return fault;
}

static bool judge_overlap(const Runs *runs, const char *property, const Pass *pass, Report *report)
{
    Overlap sum = {0};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Overlap o = {0};
        if (!report_fault(report, runs, run, property, look_at_run(run, pass, &o)))
            return false;
        sum.pairs += o.pairs;
        sum.together += o.together;
        sum.held += o.held;
    }
    return report_fault(report, runs, runs->items, property, never_meet(runs->items, &sum)) &&
           report_ok(report, property);
}

void judge_split_overlaps(const Runs *runs, Report *report)
{
    if (judge_overlap(runs, FILL, &fill, report))
        judge_overlap(runs, DRAIN, &drain, report);
}
