// Split: the schedule of micro-batches over the two halves of a model. The calls are read by
// staged.c, and what can happen at the same time is judged in split_overlap.c; here it is what was
// computed, and what the weights become, beside the whole batch's gradient.

#include "end.h"
#include "staged.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"
#include "base/format.h"

#define CUT   "every batch is cut into the micro-batches asked for, and goes over two devices"
#define ALL   "both devices compute every micro-batch, forward and backward"
#define ONCE  "both devices update their weights once in a batch, from all of its micro-batches"
#define EQUAL "the weights become those of one device with the whole batch"

// Of the largest gradient of a run, in fp32, as the runs ask for: in TF32 some units of a ReLU
// would be on for the whole batch and off for a part. A change of weights has fewer digits.
#define TOLERANCE        1e-4
#define WEIGHTS_ROUNDING 3e-6

static bool judge_cut(const Runs *runs, const AllStaged *all, Report *report)
{
    static const Diagnosis images_wrong = {
        "not-every-image-trained",
        "an epoch trains on each image once: the page calls train_in_stages() for each batch that "
        "it takes.",
        NULL};
    static const Diagnosis micros = {
        "micro-batches-wrong",
        "a batch is cut into as many micro-batches as --micro-batches asks for, or, where it has "
        "fewer images, into as many as these are: the page hands args.micro_batches "
        "to train_in_stages().",
        NULL};
    static const Diagnosis device = {
        "on-one-device", "both halves are on the same device: the page asks for devices 0 and 1.",
        NULL};
    for (int i = 0; i < all->count; i++) {
        const Staged *p = &all->items[i];
        int images = (int)run_flag(p->run, "--images "), asked, trained = 0;
        for (int b = 0; b < p->count; b++)
            trained += p->batches[b].images;
        if (trained != images * (int)run_flag(p->run, "--epochs ")) {
            return report_failure_in(report, runs, p->run, CUT, &images_wrong,
                                     "trained on %d images, where %d epochs of %d "
                                     "were asked for",
                                     trained, (int)run_flag(p->run, "--epochs "), images);
        }
        asked = (int)run_flag(p->run, "--micro-batches ");
        for (int b = 0; b < p->count; b++) {
            const BatchOf *batch = &p->batches[b];
            bool cut = batch->micros == (asked < batch->images ? asked : batch->images);
            if (cut && (batch->of[0].device != batch->of[1].device || p->devices < 2))
                continue;
            report_schedule(runs, p, b, CUT, cut ? &device : &micros, report);
            return false;
        }
    }
    return report_ok(report, CUT);
}

static bool judge_all(const Runs *runs, const AllStaged *all, Report *report)
{
    static const Diagnosis left_out = {
        "micro-batch-left-out",
        "a micro-batch of the batch is not computed, or not backward, on one of the devices: its "
        "images have no part in the update. A batch has `micro_batches` of them, from 0.",
        NULL};
    for (int i = 0; i < all->count; i++) {
        const Staged *p = &all->items[i];
        for (int b = 0; b < p->count; b++)
            for (int s = 0; s < STAGES; s++)
                for (int k = 0; k < p->batches[b].micros; k++) {
                    const StageOf *stage = &p->batches[b].of[s];
                    if (find_call(stage, FORWARD, k) >= 0 && find_call(stage, BACKWARD, k) >= 0)
                        continue;
                    report_schedule(runs, p, b, ALL, &left_out, report);
                    return false;
                }
    }
    return report_ok(report, ALL);
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
        "a device updates its weights several times in a batch: the micro-batches after an update "
        "are computed with other weights than those before it. Call stage_apply() once, after "
        "the loop.",
        NULL};
    static const Diagnosis early = {
        "applied-too-early",
        "a device updates its weights before it has the gradients of all micro-batches; those that "
        "come later are lost.",
        NULL};
    int updates = count_calls(stage, APPLY);
    if (updates != 1)
        return updates == 0 ? &never : &often;
    for (int i = find_call(stage, APPLY, -1); i < stage->count; i++)
        if (stage->calls[i].kind == BACKWARD)
            return &early;
    return NULL;
}

static bool judge_once(const Runs *runs, const AllStaged *all, Report *report)
{
    for (int i = 0; i < all->count; i++)
        for (int b = 0; b < all->items[i].count; b++)
            for (int s = 0; s < STAGES; s++) {
                const Diagnosis *wrong = wrong_update(&all->items[i].batches[b].of[s]);
                if (!wrong)
                    continue;
                report_schedule(runs, &all->items[i], b, ONCE, wrong, report);
                return false;
            }
    return report_ok(report, ONCE);
}

// By the sum of gradients that was applied, and by what the weights have changed.
static bool is_whole_batch(const Staged *p, const StageOf *stage, int s)
{
    double changed = (stage->arena - stage->arena_after) / p->rate;
    return fabs(stage->applied - stage->value) <= TOLERANCE * p->scale[s] &&
           fabs(changed - stage->applied) <= TOLERANCE * p->scale[s] + WEIGHTS_ROUNDING / p->rate;
}

static bool judge_equal(const Runs *runs, const AllStaged *all, Report *report)
{
    static const Diagnosis wrong = {
        "weights-differ",
        "every micro-batch is computed and there is one update, and yet it is not that of the "
        "whole batch. The page's model, learning rate and optimizer are to stay as they are; "
        "nothing else that this check knows explains it.",
        NULL};
    for (int i = 0; i < all->count; i++) {
        const Staged *p = &all->items[i];
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
                return report_failure(report, EQUAL, &wrong, evidence_in(runs, p->run, evidence));
            }
    }
    return report_ok(report, EQUAL);
}

static void judge(const Runs *runs, Report *report)
{
    AllStaged all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = staged_batches(&runs->items[i]);
    if (judge_cut(runs, &all, report) && judge_all(runs, &all, report) &&
        judge_once(runs, &all, report) && judge_equal(runs, &all, report))
        judge_split_overlaps(runs, &all, report);
    for (int i = 0; i < runs->count; i++)
        staged_batches_free(&all.items[i]);
    free(all.items);
}

static const Explanation explanations[] = {
    {"each would have to be sent by the other",
     {"hung",
      "each device waits for something that the other one has not sent, and will never send, since "
      "it waits itself. What a device waits for the other has to send before it waits in turn.",
      NULL}},
    {"has returned without sending it",
     {"hung",
      "a device waits for a micro-batch that the other one never sends: both must go through the "
      "same micro-batches, and each that is received must have been sent.",
      NULL}},
    {"has not called stage_receive",
     {"not-received",
      "the data of the other device are there when stage_receive() has returned, and not before.",
      NULL}},
    {"has not called stage_forward",
     {"not-computed",
      "a micro-batch must be computed forward before it is sent, or computed backward.", NULL}},
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
      "stage_apply() found no gradients: since the last one no stage_backward() computed any. With "
      "one micro-batch, too, each stage calls stage_backward() before it.",
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
