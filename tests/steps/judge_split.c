// Split: the schedule of micro-batches over the two halves of a model. What a stage calls, in which
// order, and who waits for whom decides what can happen at the same time: two calls can where
// neither has to come before the other, by the order of its own stage or by what was received. So
// nothing here depends on how fast a machine is. Calls that could have met and never did prove
// nothing, for on a busy machine threads wake up late; but where a stage was in none of the
// library's calls as often as that, something in the program held it back. What the weights become
// is compared with the whole batch's gradient.

#include "end.h"
#include "judge.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CUT   "every batch is cut into the micro-batches asked for, and goes over two devices"
#define ALL   "both devices compute every micro-batch, forward and backward"
#define ONCE  "both devices update their weights once in a batch, from all of its micro-batches"
#define EQUAL "the weights become those of one device with the whole batch"
#define FILL  "forward, device 0 can compute micro-batch k + 1 while device 1 computes micro-batch k"
#define DRAIN                                                                                      \
    "backward, device 0 can compute micro-batch k while device 1 computes micro-batch k + 1"

// Of the largest gradient of a run, in fp32, as the runs ask for: in TF32 some units of a ReLU
// would be on for the whole batch and off for a part. A change of weights has fewer digits.
#define TOLERANCE        1e-4
#define WEIGHTS_ROUNDING 3e-6

// The share of pairs of calls that is no accident. A thread may lose its core between two calls,
// but seldom.
#define HELD 0.1

enum { STAGES = 2 };
typedef enum { FORWARD, BACKWARD, SEND, RECEIVE, APPLY, CALLS } CallKind;
static const char *const call_names[CALLS] = {"forward", "backward", "send", "receive", "apply"};

typedef struct {
    CallKind kind;
    int micro;
    int begin, end; // places in the trace; end is INT_MAX where it never came
} Call;

// What one stage did with one batch.
typedef struct {
    Call *calls;
    int count;
    int ready; // the place in the trace where its thread began; INT_MAX: never
    double device, value, arena, arena_after; // of the whole batch's gradient; of the weights
    double applied;                           // the gradients of all updates
} StageOf;

typedef struct {
    StageOf of[STAGES];
    int images, micros;
} BatchOf;

typedef struct {
    const Run *run;
    BatchOf *batches;
    int count;
    double rate;    // the learning rate of the command line
    double devices; // that there are: machines with one GPU are graded, too
    double scale[STAGES];
} Pipeline;

typedef struct {
    Pipeline *items;
    int count;
} Pipelines;

// ---- Reading the traces.

static bool is_event(const cJSON *event, const char *name)
{
    return strcmp(event_text(event, "event"), name) == 0;
}

static CallKind kind_of(const cJSON *event)
{
    CallKind kind = FORWARD;
    while (kind < APPLY && strcmp(call_names[kind], event_text(event, "call")) != 0)
        kind++;
    return kind;
}

static void add_call(StageOf *stage, Call call)
{
    stage->calls = enlarge(stage->calls, (size_t)stage->count + 1, sizeof *stage->calls);
    stage->calls[stage->count++] = call;
}

// The place of a call among those of its stage, or -1.
static int find(const StageOf *stage, CallKind kind, int micro)
{
    for (int i = 0; i < stage->count; i++)
        if (stage->calls[i].kind == kind && stage->calls[i].micro == micro)
            return i;
    return -1;
}

static void read_event(Pipeline *p, const cJSON *event, int at)
{
    int b = (int)event_number(event, "batch"), s = (int)event_number(event, "stage");
    if (b < 0 || b > p->count || s < 0 || s >= STAGES)
        return;
    if (is_event(event, "staged_batch") && b == p->count) {
        p->batches = enlarge(p->batches, (size_t)b + 1, sizeof *p->batches);
        p->batches[p->count++] = (BatchOf){.images = (int)event_number(event, "images"),
                                           .micros = (int)event_number(event, "micro_batches"),
                                           .of = {{.ready = INT_MAX}, {.ready = INT_MAX}}};
    }
    if (b == p->count)
        return;
    StageOf *stage = &p->batches[b].of[s];
    if (is_event(event, "staged_batch")) {
        stage->device = event_number(event, "device");
        stage->value = event_number(event, "value");
        stage->arena = event_number(event, "arena");
        p->scale[s] = fmax(p->scale[s], fabs(stage->value));
    } else if (is_event(event, "stage_ready")) {
        stage->ready = at;
    } else if (is_event(event, "stage_begin")) {
        add_call(stage, (Call){kind_of(event), (int)event_number(event, "micro"), at, INT_MAX});
    } else if (is_event(event, "stage_end") && stage->count > 0) {
        stage->calls[stage->count - 1].end = at;
    } else if (is_event(event, "stage_apply")) {
        add_call(stage, (Call){APPLY, -1, at, at});
        stage->applied += event_number(event, "value");
    } else if (is_event(event, "staged_batch_end")) {
        stage->arena_after = event_number(event, "arena");
    }
}

static Pipeline read_pipeline(const Run *run)
{
    Pipeline p = {.run = run, .rate = run_flag(run, "--base-lr ")};
    if (isnan(p.rate))
        p.rate = 0.01;
    const Events *events = &run->traces.of[0];
    p.devices = event_number(event_nth(events, "device", 0), "devices");
    for (int i = 0; i < events->count; i++)
        if (strncmp(event_text(events->items[i], "event"), "stage", strlen("stage")) == 0)
            read_event(&p, events->items[i], i);
    return p;
}

static void free_pipeline(Pipeline *p)
{
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < STAGES; s++)
            free(p->batches[b].of[s].calls);
    free(p->batches);
}

// "stage 0, on device 0: forward 0, send 0, receive 0, ...", and the same of the other one.
static char *schedule_of(const BatchOf *batch, int number)
{
    char *text = format_text("in batch %d, of %d micro-batches:", number + 1, batch->micros);
    for (int s = 0; s < STAGES; s++) {
        const StageOf *stage = &batch->of[s];
        text_add(&text, "\nstage %d, on device %.0f:%s", s, stage->device,
                 stage->count == 0 ? " nothing" : "");
        for (int i = 0; i < stage->count && i < 24; i++) {
            const Call *call = &stage->calls[i];
            text_add(&text, "%s %s", i ? "," : "", call_names[call->kind]);
            if (call->kind != APPLY)
                text_add(&text, " %d", call->micro);
        }
        text_add(&text, "%s", stage->count > 24 ? ", ..." : "");
    }
    return text;
}

static void fail(const Runs *runs, const Pipeline *p, int batch, const char *property,
                 const Diagnosis *diagnosis, Report *report)
{
    report_failure(report, property, diagnosis,
                   evidence_in(runs, p->run, schedule_of(&p->batches[batch], batch)));
}

// ---- What was trained.

static bool judge_cut(const Runs *runs, const Pipelines *all, Report *report)
{
    static const Diagnosis images_wrong = {
        "not-every-image-trained",
        "an epoch trains on each image once: the page calls train_in_stages() for each batch that "
        "it takes.",
        NULL};
    static const Diagnosis micros = {
        "micro-batches-wrong",
        "a batch is cut into as many micro-batches as --micro-batches asks for, or, where it has "
        "fewer images, into as many as these are: the page hands args.micro_batches to "
        "train_in_stages().",
        NULL};
    static const Diagnosis device = {
        "on-one-device", "both halves are on the same device: the page asks for devices 0 and 1.",
        NULL};
    for (int i = 0; i < all->count; i++) {
        const Pipeline *p = &all->items[i];
        int images = (int)run_flag(p->run, "--images "), asked, trained = 0;
        for (int b = 0; b < p->count; b++)
            trained += p->batches[b].images;
        if (trained != images * (int)run_flag(p->run, "--epochs ")) {
            report_failure(
                report, CUT, &images_wrong,
                evidence_in(runs, p->run,
                            format_text("trained on %d images, where %d epochs of %d "
                                        "were asked for",
                                        trained, (int)run_flag(p->run, "--epochs "), images)));
            return false;
        }
        asked = (int)run_flag(p->run, "--micro-batches ");
        for (int b = 0; b < p->count; b++) {
            const BatchOf *batch = &p->batches[b];
            bool cut = batch->micros == (asked < batch->images ? asked : batch->images);
            if (cut && (batch->of[0].device != batch->of[1].device || p->devices < 2))
                continue;
            fail(runs, p, b, CUT, cut ? &device : &micros, report);
            return false;
        }
    }
    report_ok(report, CUT);
    return true;
}

static bool judge_all(const Runs *runs, const Pipelines *all, Report *report)
{
    static const Diagnosis left_out = {
        "micro-batch-left-out",
        "a micro-batch of the batch is not computed, or not backward, on one of the devices: its "
        "images have no part in the update. A batch has `micro_batches` of them, from 0.",
        NULL};
    for (int i = 0; i < all->count; i++) {
        const Pipeline *p = &all->items[i];
        for (int b = 0; b < p->count; b++)
            for (int s = 0; s < STAGES; s++)
                for (int k = 0; k < p->batches[b].micros; k++) {
                    const StageOf *stage = &p->batches[b].of[s];
                    if (find(stage, FORWARD, k) >= 0 && find(stage, BACKWARD, k) >= 0)
                        continue;
                    fail(runs, p, b, ALL, &left_out, report);
                    return false;
                }
    }
    report_ok(report, ALL);
    return true;
}

static int count_calls(const StageOf *stage, CallKind kind)
{
    int count = 0;
    for (int i = 0; i < stage->count; i++)
        count += stage->calls[i].kind == kind;
    return count;
}

// NULL: the stage has made its one update after all that it has computed backward.
static const Diagnosis *wrong_update(const StageOf *stage)
{
    static const Diagnosis never = {
        "not-applied",
        "a device computes gradients and never updates its weights from them: stage_apply() ends "
        "each stage's part of a batch.",
        NULL};
    static const Diagnosis often = {
        "applied-too-often",
        "a device updates its weights several times in a batch: the micro-batches behind an update "
        "are computed with other weights than those before it. stage_apply() is called once, "
        "behind the loop.",
        NULL};
    static const Diagnosis early = {
        "applied-too-early",
        "a device updates its weights before it has the gradients of all micro-batches; those that "
        "come later are lost.",
        NULL};
    int updates = count_calls(stage, APPLY);
    if (updates != 1)
        return updates == 0 ? &never : &often;
    for (int i = find(stage, APPLY, -1); i < stage->count; i++)
        if (stage->calls[i].kind == BACKWARD)
            return &early;
    return NULL;
}

static bool judge_once(const Runs *runs, const Pipelines *all, Report *report)
{
    for (int i = 0; i < all->count; i++)
        for (int b = 0; b < all->items[i].count; b++)
            for (int s = 0; s < STAGES; s++) {
                const Diagnosis *wrong = wrong_update(&all->items[i].batches[b].of[s]);
                if (!wrong)
                    continue;
                fail(runs, &all->items[i], b, ONCE, wrong, report);
                return false;
            }
    report_ok(report, ONCE);
    return true;
}

// By the sum of gradients that was applied, and by what the weights have changed.
static bool is_whole_batch(const Pipeline *p, const StageOf *stage, int s)
{
    double changed = (stage->arena - stage->arena_after) / p->rate;
    return fabs(stage->applied - stage->value) <= TOLERANCE * p->scale[s] &&
           fabs(changed - stage->applied) <= TOLERANCE * p->scale[s] + WEIGHTS_ROUNDING / p->rate;
}

static bool judge_equal(const Runs *runs, const Pipelines *all, Report *report)
{
    static const Diagnosis wrong = {
        "weights-differ",
        "every micro-batch is computed and there is one update, and yet it is not that of the "
        "whole batch. The page's model, learning rate and optimizer are to stay as they are; "
        "nothing else that this check knows explains it.",
        NULL};
    for (int i = 0; i < all->count; i++) {
        const Pipeline *p = &all->items[i];
        for (int b = 0; b < p->count; b++)
            for (int s = 0; s < STAGES; s++) {
                const StageOf *stage = &p->batches[b].of[s];
                if (is_whole_batch(p, stage, s))
                    continue;
                char *evidence = format_text(
                    "in batch %d, stage %d, as fingerprints:\nthe whole batch's gradient %.7g, "
                    "applied %.7g, changed the weights as %.7g would",
                    b + 1, s, stage->value, stage->applied,
                    (stage->arena - stage->arena_after) / p->rate);
                report_failure(report, EQUAL, &wrong, evidence_in(runs, p->run, evidence));
                return false;
            }
    }
    report_ok(report, EQUAL);
    return true;
}

// ---- What may happen at the same time.

// How many calls of the other stage have come to their end before this one begins: those before
// what was received so far.
static int known_before(const BatchOf *batch, int s, int call)
{
    int known = 0;
    for (int i = 0; i < call; i++) {
        const Call *c = &batch->of[s].calls[i];
        int sent = c->kind == RECEIVE ? find(&batch->of[1 - s], SEND, c->micro) : -1;
        if (sent >= known)
            known = sent + 1;
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
    for (int i = find(stage, kind, micro) + 1; i < stage->count; i++)
        if (stage->calls[i].kind == kind)
            return stage->calls[i].micro;
    return -1;
}

static const Diagnosis one_at_a_time = {
    "one-at-a-time",
    "each micro-batch goes all the way, forward and back, before the next one begins: device 0 "
    "waits while device 1 computes, and the other way round. Device 0 needs no gradient to begin "
    "with the next micro-batch.",
    NULL};
static const Diagnosis waits_between = {
    "waits-in-between",
    "device 0 waits for a gradient before it begins a micro-batch that device 1 is going to need, "
    "so device 1 runs out of work.",
    NULL};

// NULL where device 0 may compute b, which it computes after a, while device 1 computes a.
static const Diagnosis *wrong_fill(const BatchOf *batch, int a, int b)
{
    static const Diagnosis late = {
        "sent-too-late",
        "device 0 hands a micro-batch over only after it has computed the next one, too; device 1 "
        "could have begun with it before.",
        NULL};
    static const Diagnosis received = {
        "received-too-early",
        "device 1 waits for the next micro-batch before it computes the one that it has.", NULL};
    const StageOf *first = &batch->of[0], *second = &batch->of[1];
    int ahead = find(first, FORWARD, b), behind = find(second, FORWARD, a);
    if (comes_before(batch, 1, behind, ahead))
        return find(first, BACKWARD, a) < ahead ? &one_at_a_time : &waits_between;
    if (!comes_before(batch, 0, ahead, behind))
        return NULL;
    return find(first, SEND, a) > ahead ? &late : &received;
}

// NULL where device 0 may go backward with a while device 1 does with b, which comes after a there.
static const Diagnosis *wrong_drain(const BatchOf *batch, int a, int b)
{
    static const Diagnosis no_work = {"sent-too-late",
                                      "device 0 goes backward with a micro-batch before it hands "
                                      "over another one, which device 1 "
                                      "could have been computing meanwhile.",
                                      NULL};
    static const Diagnosis late = {
        "gradient-sent-too-late",
        "device 1 hands a gradient back only after it has computed that of the next micro-batch, "
        "too; device 0 could have gone on with it before.",
        NULL};
    static const Diagnosis received = {
        "gradients-awaited",
        "device 0 waits for the gradient of a later micro-batch before it goes backward with the "
        "one whose gradient is there.",
        NULL};
    const StageOf *first = &batch->of[0], *second = &batch->of[1];
    int ahead = find(second, BACKWARD, b), behind = find(first, BACKWARD, a);
    if (comes_before(batch, 0, behind, ahead))
        return &no_work;
    if (!comes_before(batch, 1, ahead, behind))
        return NULL;
    return find(second, SEND, a) > ahead ? &late : &received;
}

typedef struct {
    const Diagnosis *(*wrong)(const BatchOf *, int, int);
    CallKind kind;
    int leader;    // the stage that computes b while the other one computes a
    int pairs;     // of micro-batches, a and the next one
    int serial;    // of them: a has gone all the way before b begins
    int together;  // of them: both were computed at the same time
    int held;      // of them: one stage did nothing at the end of what the other one computed
    int bad_batch; // the first one, or -1
    const Diagnosis *diagnosis;
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
static void look_at_pair(const BatchOf *batch, int a, int b, Overlap *o)
{
    const StageOf *leader = &batch->of[o->leader], *other = &batch->of[1 - o->leader];
    const Call *x = &leader->calls[find(leader, o->kind, b)];
    const Call *y = &other->calls[find(other, o->kind, a)];
    o->pairs++;
    if (x->end < y->begin)
        o->held += is_idle(other, x->end);
    else if (y->end < x->begin)
        o->held += is_idle(leader, y->end);
    else
        o->together++;
}

static void look_at_batch(const Pipeline *p, int b, Overlap *o)
{
    const BatchOf *batch = &p->batches[b];
    for (int k = 0; k < batch->micros; k++) {
        int next = next_of(&batch->of[o->leader], o->kind, k);
        if (next < 0)
            continue;
        const Diagnosis *wrong = o->wrong(batch, k, next);
        look_at_pair(batch, k, next, o);
        o->serial += wrong == &one_at_a_time;
        if (wrong && o->bad_batch < 0) {
            o->bad_batch = b;
            o->diagnosis = wrong;
        }
    }
}

// In the order of their calls both devices could compute at the same time. Reports it where the
// program prevents that by other means.
static bool never_meet(const Runs *runs, const Pipelines *all, const char *property,
                       const Overlap *o, Report *report)
{
    static const Diagnosis apart = {
        "never-at-the-same-time",
        "in this order of calls both devices could compute at the same time, and yet they never "
        "did: a schedule waited outside of the library's calls. Often a lock or a flag of the "
        "program's own lets one wait for the other.",
        NULL};
    if (o->together > 0 || o->held == 0 || o->held < o->pairs * HELD)
        return false;
    char *schedule = schedule_of(&all->items[0].batches[0], 0);
    char *evidence =
        format_text("of %d pairs of calls none met; in %d of them one stage was in no call when "
                    "the other one's ended\n%s",
                    o->pairs, o->held, schedule);
    free(schedule);
    report_failure(report, property, &apart, evidence_in(runs, all->items[0].run, evidence));
    return true;
}

static bool judge_overlap(const Runs *runs, const Pipelines *all, const char *property,
                          Overlap begin, Report *report)
{
    Overlap sum = begin;
    for (int i = 0; i < all->count; i++) {
        const Pipeline *p = &all->items[i];
        Overlap o = begin;
        for (int b = 0; b < p->count; b++)
            look_at_batch(p, b, &o);
        if (o.bad_batch >= 0) {
            if (o.diagnosis == &one_at_a_time && o.serial < o.pairs)
                o.diagnosis = &waits_between;
            fail(runs, p, o.bad_batch, property, o.diagnosis, report);
            return false;
        }
        sum.pairs += o.pairs;
        sum.together += o.together;
        sum.held += o.held;
    }
    if (never_meet(runs, all, property, &sum, report))
        return false;
    report_ok(report, property);
    return true;
}

static void judge(const Runs *runs, Report *report)
{
    Pipelines all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = read_pipeline(&runs->items[i]);
    if (judge_cut(runs, &all, report) && judge_all(runs, &all, report) &&
        judge_once(runs, &all, report) && judge_equal(runs, &all, report) &&
        judge_overlap(runs, &all, FILL,
                      (Overlap){.wrong = wrong_fill, .kind = FORWARD, .leader = 0, .bad_batch = -1},
                      report))
        judge_overlap(
            runs, &all, DRAIN,
            (Overlap){.wrong = wrong_drain, .kind = BACKWARD, .leader = 1, .bad_batch = -1},
            report);
    for (int i = 0; i < runs->count; i++)
        free_pipeline(&all.items[i]);
    free(all.items);
}

static const Explanation explanations[] = {
    {"each would have to be sent by the other",
     {"hung",
      "each device waits for something that the other one has not sent, and will never send, "
      "since it waits itself. What a device waits for the other has to send before it waits in "
      "turn.",
      NULL}},
    {"has returned without sending it",
     {"hung",
      "a device waits for what the other one never sends: both have to go through the same "
      "micro-batches, and each that is received must have been sent.",
      NULL}},
    {"has not called stage_receive",
     {"not-received",
      "what comes from the other device is there when stage_receive() has returned, and not "
      "before.",
      NULL}},
    {"has not called stage_forward",
     {"not-computed",
      "what is handed over, or computed backward, has to be computed forward before.", NULL}},
    {"has not called stage_backward",
     {"no-gradient-yet",
      "the gradient that goes back to device 0 is there when stage_backward() has returned.",
      NULL}},
    {"of this batch already",
     {"done-twice",
      "a schedule computes, sends and receives each micro-batch once: the message says which.",
      NULL}},
    {"there is no micro-batch",
     {"no-such-micro-batch",
      "the micro-batches of a batch are those from 0 to micro_batches - 1: another batch has "
      "another number of them.",
      NULL}},
    {"has no gradients; stage_backward",
     {"nothing-to-apply",
      "stage_apply() uses up the gradients that stage_backward() has computed: it comes behind "
      "them, and once.",
      NULL}},
    {"is not this thread's",
     {"other-stage",
      "a stage is called by its own schedule, in the thread that the library has made for it: not "
      "by the other stage's, and not by a thread of the program's own.",
      NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations};

JUDGE("split", judge)
ENDS("split", &ends)
