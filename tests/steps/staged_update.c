// What any schedule of stages must do: staged.h lists it. What was computed, and what the weights
// become, beside the whole batch's gradient; and how schedules end that don't come to their end.

#include "staged.h"
#include "diagnoses/staged_update.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

// Of the largest gradient of a run. A change of weights has fewer digits.
#define TOLERANCE        1e-4
#define WEIGHTS_ROUNDING 3e-6

static int devices_used(const BatchOf *batch)
{
    int used = 0;
    for (int s = 0; s < batch->stages; s++) {
        bool other = true;
        for (int before = 0; before < s; before++)
            other = other && batch->of[before].device != batch->of[s].device;
        used += other;
    }
    return used;
}

// Of the update after `before` others. Each epoch begins with whole batches.
static int images_of_update(int images, int size, int before)
{
    const int remaining = images - before % ((images + size - 1) / size) * size;
    return remaining < size ? remaining : size;
}

Fault cut_fault(const void *item)
{
    const Staged *p = item;
    int images = (int)run_flag(p->run, "--images "), epochs = (int)run_flag(p->run, "--epochs "),
        size = (int)run_flag(p->run, "--batch-size "),
        asked = (int)run_flag(p->run, "--micro-batches "), trained = 0;
    for (int b = 0; b < p->count; b++)
        trained += p->batches[b].images;
    if (trained != images * epochs)
        return fault_with(&d_not_every_image_trained,
                          "trained on %d images, where %d epochs of %d were asked for", trained,
                          epochs, images);
    for (int b = 0; b < p->count; b++)
        if (p->batches[b].images != images_of_update(images, size, b))
            return fault_with(&d_batches_wrong,
                              "update %d is from %d images, and must be from %d: an epoch has %d "
                              "images, and --batch-size asks for %d",
                              b + 1, p->batches[b].images, images_of_update(images, size, b),
                              images, size);
    for (int b = 0; b < p->count; b++) {
        const BatchOf *batch = &p->batches[b];
        const int micros = asked < batch->images ? asked : batch->images;
        if (batch->micros != micros)
            return fault_at(schedule_fault(&d_micro_batches_wrong, p, b, 0),
                            "batch %d, of %d images, must be cut into %d\n", b + 1, batch->images,
                            micros);
        if (batch->stages != p->stages)
            return schedule_fault(&d_stages_wrong, p, b, 0);
        if (devices_used(batch) < fmin(p->stages, p->devices))
            return schedule_fault(p->stages == 2 ? &d_on_one_device : &d_on_one_device_of_several,
                                  p, b, 0);
    }
    return NO_FAULT;
}

// Shows what comes behind the same pass of the micro-batch before, mostly.
static Fault left_out(const Staged *p, int b, int s, int k)
{
    const StageOf *stage = &p->batches[b].of[s];
    CallKind kind = find_call(stage, FORWARD, k) < 0 ? FORWARD : BACKWARD;
    int before = find_call(stage, kind, k - 1);
    return fault_at(
        schedule_fault(&d_micro_batch_left_out, p, b, before < 0 ? 0 : stage->calls[before].end),
        "stage %d does not go %s with micro-batch %d\n", s,
        kind == FORWARD ? "forward" : "backward", k);
}

Fault all_fault(const void *item)
{
    const Staged *p = item;
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < p->batches[b].stages; s++)
            for (int k = 0; k < p->batches[b].micros; k++) {
                const StageOf *stage = &p->batches[b].of[s];
                if (find_call(stage, FORWARD, k) < 0 || find_call(stage, BACKWARD, k) < 0)
                    return left_out(p, b, s, k);
            }
    return NO_FAULT;
}

// NULL: the stage has made its one update after all that it has computed backward.
static const Diagnosis *wrong_update(const StageOf *stage)
{
    int updates = count_calls(stage, APPLY);
    if (updates != 1)
        return updates == 0 ? &d_not_applied : &d_applied_too_often;
    for (int i = find_call(stage, APPLY, -1); i < stage->count; i++)
        if (stage->calls[i].kind == BACKWARD)
            return &d_applied_too_early;
    return NULL;
}

Fault once_fault(const void *item)
{
    const Staged *p = item;
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < p->batches[b].stages; s++) {
            const StageOf *stage = &p->batches[b].of[s];
            const Diagnosis *wrong = wrong_update(stage);
            int update = find_call(stage, APPLY, -1);
            if (wrong)
                return schedule_fault(wrong, p, b,
                                      update < 0 ? INT_MAX : stage->calls[update].begin);
        }
    return NO_FAULT;
}

// By the sum of gradients that was applied, and by what the weights have changed.
static bool is_whole_batch(const Staged *p, const StageOf *stage, int s)
{
    double changed = (stage->arena - stage->arena_after) / p->rate;
    bool same = !isfinite(stage->value) || // there is none to compare with
                fabs(stage->applied - stage->value) <= TOLERANCE * p->scale[s];
    return same &&
           fabs(changed - stage->applied) <= TOLERANCE * p->scale[s] + WEIGHTS_ROUNDING / p->rate;
}

Fault equal_fault(const void *item)
{
    const Staged *p = item;
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < p->batches[b].stages; s++) {
            const StageOf *stage = &p->batches[b].of[s];
            if (!is_whole_batch(p, stage, s))
                return fault_with(
                    &d_weights_differ,
                    "in batch %d, stage %d, as fingerprints:\nthe whole batch's gradient %.7g, "
                    "applied %.7g, changed the weights as %.7g would",
                    b + 1, s, stage->value, stage->applied,
                    (stage->arena - stage->arena_after) / p->rate);
        }
    return NO_FAULT;
}

Fault staged_in(const Runs *runs, const Run *run, ItemFault fault)
{
    Staged p = staged_batches(run);
    p.runs = runs;
    Fault found = (*fault)(&p);
    staged_batches_free(&p);
    return found;
}

const Explanation staged_explanations[] = {
    {"each would have to be sent by the other", &d_hung_circle},
    {"has returned without sending it", &d_hung_never_sent},
    {"has not called stage_receive", &d_not_received},
    {"has not called stage_forward", &d_not_computed},
    {"has not called stage_backward", &d_no_gradient_yet},
    {"of this batch already", &d_done_twice},
    {"there is no micro-batch", &d_no_such_micro_batch},
    {"has no gradients; stage_backward", &d_nothing_to_apply},
    {"is not this thread's", &d_other_stage},
    {0},
};

// What a stage waits for, where the stage that has computed it waits, too, or is done, and has not
// sent it; the caller frees it. NULL: there is none.
static char *unsent_text(const BatchOf *batch)
{
    for (int s = 0; s < batch->stages; s++) {
        const StageOf *stage = &batch->of[s];
        const Call *wait = stage->count > 0 ? &stage->calls[stage->count - 1] : NULL;
        int sender;
        if (!wait || wait->end < INT_MAX || sent_for(batch, s, wait, &sender) || sender < 0)
            continue;
        const StageOf *from = &batch->of[sender];
        bool values = wait->kind == RECEIVE_VALUES;
        if (find_call(from, values ? FORWARD : BACKWARD, wait->micro) < 0)
            continue;
        const Call *last = &from->calls[from->count - 1];
        if (last->kind == APPLY || (last->end == INT_MAX && (last->kind == RECEIVE_VALUES ||
                                                             last->kind == RECEIVE_GRADIENT)))
            return format_text(
                "stage %d waits for the %s of micro-batch %d; stage %d has computed %s, and has "
                "not called stage_send%s(stage, %d)",
                s, values ? "values" : "gradient", wait->micro, sender, values ? "them" : "it",
                wait->name + strlen("receive"), wait->micro);
    }
    return NULL;
}

Fault staged_end_fault(const void *item)
{
    const Staged *p = item;
    if (p->count == 0 || p->batches[p->count - 1].over)
        return NO_FAULT;
    char *unsent = output_says(&p->run->output, "the stages hang")
                       ? unsent_text(&p->batches[p->count - 1])
                       : NULL;
    Fault fault = schedule_fault(unsent ? &d_hung_not_sent : NULL, p, p->count - 1, INT_MAX);
    if (unsent)
        fault = fault_at(fault, "%s\n", unsent);
    free(unsent);
    return fault;
}

Fault staged_ended(const Run *run)
{
    return staged_in(NULL, run, staged_end_fault);
}
