// What any schedule of stages must do: staged.h lists it. What was computed, and what the weights
// become, beside the whole batch's gradient; and how schedules end that don't come to their end.

#include "staged.h"
#include "diagnoses/staged_update.h"

#include <math.h>
#include <stdlib.h>
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

Fault cut_fault(const void *item)
{
    const Staged *p = item;
    int images = (int)run_flag(p->run, "--images "), epochs = (int)run_flag(p->run, "--epochs "),
        asked = (int)run_flag(p->run, "--micro-batches "), trained = 0;
    for (int b = 0; b < p->count; b++)
        trained += p->batches[b].images;
    if (trained != images * epochs)
        return fault_with(&d_not_every_image_trained,
                          "trained on %d images, where %d epochs of %d were asked for", trained,
                          epochs, images);
    for (int b = 0; b < p->count; b++) {
        const BatchOf *batch = &p->batches[b];
        if (batch->micros != (asked < batch->images ? asked : batch->images))
            return schedule_fault(&d_micro_batches_wrong, p, b);
        if (batch->stages != p->stages)
            return schedule_fault(&d_stages_wrong, p, b);
        if (devices_used(batch) < fmin(p->stages, p->devices))
            return schedule_fault(p->stages == 2 ? &d_on_one_device : &d_on_one_device_of_several,
                                  p, b);
    }
    return NO_FAULT;
}

Fault all_fault(const void *item)
{
    const Staged *p = item;
    for (int b = 0; b < p->count; b++)
        for (int s = 0; s < p->batches[b].stages; s++)
            for (int k = 0; k < p->batches[b].micros; k++) {
                const StageOf *stage = &p->batches[b].of[s];
                if (find_call(stage, FORWARD, k) < 0 || find_call(stage, BACKWARD, k) < 0)
                    return schedule_fault(&d_micro_batch_left_out, p, b);
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
            const Diagnosis *wrong = wrong_update(&p->batches[b].of[s]);
            if (wrong)
                return schedule_fault(wrong, p, b);
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
    (void)runs;
    Staged p = staged_batches(run);
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
