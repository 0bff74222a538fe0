// Reads what the stages did; staged.h says what is promised.

#include "staged.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/format.h"

// Indices of CallKind.
static const char *const call_names[] = {"forward",       "backward",       "send_values",
                                         "send_gradient", "receive_values", "receive_gradient",
                                         "apply"};

// Of two stages the first one sends values and receives gradients.
static CallKind kind_of(const char *name, int stage)
{
    if (strcmp(name, "send") == 0)
        return stage == 0 ? SEND_VALUES : SEND_GRADIENT;
    if (strcmp(name, "receive") == 0)
        return stage == 0 ? RECEIVE_GRADIENT : RECEIVE_VALUES;
    CallKind kind = FORWARD;
    while (kind < APPLY && strcmp(call_names[kind], name) != 0)
        kind++;
    return kind;
}

static void add_call(StageOf *stage, Call call)
{
    stage->calls = enlarge(stage->calls, (size_t)stage->count + 1, sizeof *stage->calls);
    stage->calls[stage->count++] = call;
}

int find_call(const StageOf *stage, CallKind kind, int micro)
{
    for (int i = 0; i < stage->count; i++)
        if (stage->calls[i].kind == kind && stage->calls[i].micro == micro)
            return i;
    return -1;
}

int count_calls(const StageOf *stage, CallKind kind)
{
    int count = 0;
    for (int i = 0; i < stage->count; i++)
        count += stage->calls[i].kind == kind;
    return count;
}

int most_kept(const StageOf *stage)
{
    int kept = 0, most = 0;
    for (int i = 0; i < stage->count; i++) {
        kept += stage->calls[i].kind == FORWARD;
        most = kept > most ? kept : most;
        kept -= stage->calls[i].kind == BACKWARD;
    }
    return most;
}

const Call *sent_for(const BatchOf *batch, int s, const Call *receive, int *sender)
{
    bool values = receive->kind == RECEIVE_VALUES;
    *sender = values ? s - 1 : s + 1;
    if ((!values && receive->kind != RECEIVE_GRADIENT) || *sender < 0 || *sender >= batch->stages) {
        *sender = -1;
        return NULL;
    }
    const StageOf *from = &batch->of[*sender];
    int at = find_call(from, values ? SEND_VALUES : SEND_GRADIENT, receive->micro);
    return at < 0 ? NULL : &from->calls[at];
}

static void read_event(Staged *p, const cJSON *event, int at)
{
    int b = event_int(event, "batch"), s = event_int(event, "stage");
    if (b < 0 || b > p->count || s < 0 || s >= MAX_JUDGED_STAGES)
        return;
    if (event_is(event, "staged_batch") && b == p->count) {
        p->batches = enlarge(p->batches, (size_t)b + 1, sizeof *p->batches);
        p->batches[p->count++] = (BatchOf){.images = event_int(event, "images"),
                                           .micros = event_int(event, "micro_batches")};
        for (int i = 0; i < MAX_JUDGED_STAGES; i++)
            p->batches[b].of[i].ready = INT_MAX;
    }
    if (b == p->count)
        return;
    StageOf *stage = &p->batches[b].of[s];
    if (event_is(event, "staged_batch")) {
        p->batches[b].stages = s + 1;
        stage->device = event_number(event, "device");
        stage->value = event_number(event, "value");
        stage->arena = event_number(event, "arena");
        p->scale[s] = fmax(p->scale[s], fabs(stage->value));
    } else if (event_is(event, "stage_ready")) {
        stage->ready = at;
    } else if (event_is(event, "stage_begin")) {
        const char *name = event_text(event, "call");
        add_call(stage, (Call){kind_of(name, s), name, event_int(event, "micro"), at, INT_MAX});
    } else if (event_is(event, "stage_end") && stage->count > 0) {
        stage->calls[stage->count - 1].end = at;
    } else if (event_is(event, "stage_apply")) {
        add_call(stage, (Call){APPLY, call_names[APPLY], -1, at, at});
        stage->applied += event_number(event, "value");
    } else if (event_is(event, "staged_batch_end")) {
        stage->arena_after = event_number(event, "arena");
        p->batches[b].over = true;
    }
}

Staged staged_batches(const Run *run)
{
    double asked = run_flag(run, "--stages ");
    Staged p = {
        .run = run, .rate = run_flag(run, "--base-lr "), .stages = isnan(asked) ? 2 : (int)asked};
    if (isnan(p.rate))
        p.rate = 0.01;
    const Events *events = &run->traces.of[0];
    p.devices = event_number(event_nth(events, "device", 0), "devices");
    for (int i = 0; i < events->count; i++)
        if (strncmp(event_text(events->items[i], "event"), "stage", strlen("stage")) == 0)
            read_event(&p, events->items[i], i);
    return p;
}

void staged_batches_free(Staged *p)
{
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < MAX_JUDGED_STAGES; s++)
            free(p->batches[b].of[s].calls);
    free(p->batches);
}

static bool is_shown(const Call *call, bool passes)
{
    return !passes || call->kind == FORWARD || call->kind == BACKWARD;
}

static void add_shown(char **text, const StageOf *stage, int place, bool passes)
{
    enum { SHOWN = 24, BEFORE = 16 };
    int total = 0, first = -BEFORE;
    for (int i = 0; i < stage->count; i++)
        if (is_shown(&stage->calls[i], passes)) {
            total++;
            first += stage->calls[i].begin < place;
        }
    first = first > total - SHOWN ? total - SHOWN : first;
    first = first > 0 ? first : 0;
    text_add(text, "%s", first > 0 ? " ..." : "");
    for (int i = 0, shown = 0; i < stage->count; i++) {
        const Call *call = &stage->calls[i];
        if (!is_shown(call, passes) || shown++ < first || shown > first + SHOWN)
            continue;
        if (passes)
            text_add(text, " %c%d", call->kind == FORWARD ? 'F' : 'B', call->micro);
        else
            text_add(text, "%s %s", shown > 1 ? "," : "", call->name);
        if (!passes && call->kind != APPLY)
            text_add(text, " %d", call->micro);
    }
    text_add(text, "%s", first + SHOWN < total ? " ..." : "");
}

char *schedule_text(const Staged *p, int number, int place, bool passes)
{
    const BatchOf *batch = &p->batches[number];
    char *text = format_text("in batch %d, of %d micro-batch%s%s:", number + 1, batch->micros,
                             batch->micros == 1 ? "" : "es",
                             passes ? " (F0: micro-batch 0 forward, B0: backward)" : "");
    for (int s = 0; s < batch->stages; s++) {
        const StageOf *stage = &batch->of[s];
        if (passes)
            text_add(&text, "\nstage %d keeps %d:", s, most_kept(stage));
        else
            text_add(&text, "\nstage %d, on device %.0f:%s", s, stage->device,
                     stage->count == 0 ? " nothing" : "");
        add_shown(&text, stage, place, passes);
    }
    return text;
}

Fault schedule_fault(const Diagnosis *diagnosis, const Staged *p, int batch, int place)
{
    return (Fault){diagnosis, schedule_text(p, batch, place, false)};
}
