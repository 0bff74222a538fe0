// Save: who writes, what the folder holds when the program has ended or was killed, and what is on
// the disk by then. The folder is read by saved.c; how files came to their names is judged in
// saved_names.c, and which epoch is the best one in saved_best.c.

#include "arranged.h"
#include "end.h"
#include "saved.h"
#include "diagnoses/judge_save.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define WRITER  "the root writes the checkpoints, and no other rank"
#define WHOLE   "under a checkpoint's name there is a whole file, at every moment"
#define BY_NAME "each epoch is saved under its name"
#define ON_DISK "a new name is on the disk before the training goes on"

// ---- Who writes.

static Fault writers_fault(const Run *run)
{
    RankSet writers =
        ranks_with(&run->traces, "written") | ranks_with(&run->traces, "half_written");
    return writers == 1 ? NO_FAULT
                        : fault_with(!writers                           ? &d_nothing_saved
                                     : writers == all_ranks(run->ranks) ? &d_saved_by_all
                                                                        : &d_saved_by_others,
                                     "written by %s", rank_names(writers).text);
}

// ---- Each epoch's.

// The fingerprint of the root's weights after that epoch, from 1.
static double weights_after(const Run *run, int epoch)
{
    const Events *events = &run->traces.of[0];
    double weights = NAN;
    EACH (at, events, "step")
        if (event_number(events->items[at], "epoch") == epoch - 1)
            weights = event_number(events->items[at], "weights");
    return weights;
}

static bool holds_epoch(const Run *run, const cJSON *saved, int epoch)
{
    return event_number(saved, "epoch") == epoch && event_number(saved, "step") == 0 &&
           event_number(saved, "weights") == weights_after(run, epoch);
}

// The epoch's checkpoint was written, and is where it was written; or no file was ever renamed.
static bool is_unnamed(const Run *run, int epoch)
{
    const Events *events = &run->traces.of[0];
    EACH (at, events, "saved") {
        const cJSON *saved = events->items[at];
        const char *name = last_part(event_text(saved, "path"));
        if (event_number(saved, "epoch") == epoch && find_file(run, name).saved == saved)
            return true;
    }
    return event_count(events, "renamed") == 0;
}

static const Diagnosis *wrong_files(const Run *run, int epoch, const SavedFile *file)
{
    SavedFile zero = find_epoch(run, 0);
    if (zero.there)
        return event_number(zero.saved, "epoch") == 0 ? &d_saved_too_early : &d_counted_from_zero;
    if (file->there)
        return &d_other_epoch;
    return is_unnamed(run, epoch) ? &d_not_renamed : &d_checkpoint_missing;
}

static Fault epochs_fault(const Run *run)
{
    for (int e = 1; e <= epochs_saved(run); e++) {
        SavedFile file = find_epoch(run, e);
        if (file.there && (!file.saved || holds_epoch(run, file.saved, e)))
            continue; // or what is in it is unknown, as saved_names_fault says
        char *evidence =
            file.there
                ? format_text("ckpt-%d holds the training after %g epochs and %g steps", e,
                              event_number(file.saved, "epoch"), event_number(file.saved, "step"))
                : format_text("%s %d epochs there is no ckpt-%d" ENDING,
                              run->killed ? "killed after" : "after", epochs_saved(run), e);
        return (Fault){wrong_files(run, e, &file), with_contents(run, evidence)};
    }
    return NO_FAULT;
}

// ---- Names on the disk.

static bool is_of_folder(const cJSON *synced, const char *folder)
{
    const char *path = event_text(synced, "path");
    return event_is(synced, "synced") && (!*path || strcmp(path, folder) == 0);
}

// What the root leaves undone at the end of an epoch, from place `at` up to its next step; NULL: nothing.
static const Diagnosis *not_on_disk(const Events *events, const char *folder, int at)
{
    bool written = false, synced = false, early = false; // synced: after all that was written
    for (; at < events->count && !event_is(events->items[at], "step"); at++) {
        const cJSON *event = events->items[at];
        if (event_is(event, "saved") || (event_is(event, "renamed") &&
                                         is_checkpoints_name(last_part(event_text(event, "to"))))) {
            early = early || synced;
            synced = false;
            written = true;
        }
        synced = synced || (written && is_of_folder(event, folder));
    }
    return !written || synced ? NULL : early ? &d_synced_too_early : &d_folder_not_synced;
}

static Fault sync_fault(const Run *run)
{
    const Events *events = &run->traces.of[0];
    char *folder = checkpoint_folder(run);
    const Diagnosis *wrong = NULL;
    int epoch = 0;
    for (int at = -1; !wrong && epoch < epochs_saved(run); epoch++) {
        at = event_find(events, "epoch", at + 1);
        wrong = not_on_disk(events, folder, at);
    }
    free(folder);
    return !wrong ? NO_FAULT
                  : fault_with(wrong,
                               "after epoch %d the root goes on with the folder's last change not "
                               "on the disk",
                               epoch);
}

// ---- A save that fails.

// Whether the epochs after the one whose save failed are saved; that all ranks trained to the end
// is judged before.
static void judge_after_failure(const Run *run, Report *report)
{
    static const char property[] = "after a save that failed the next ones are made";
    int epochs = event_count(&run->traces.of[0], "epoch");
    SavedFile last = find_epoch(run, epochs);
    char *evidence = NULL;
    if (!last.there || !holds_epoch(run, last.saved, epochs)) {
        evidence = format_text("there is no whole ckpt-%d" ENDING, epochs);
        evidence = evidence_of_run(run, with_contents(run, evidence));
    }
    report_property(report, property, &d_stops_saving, evidence);
}

// main() or exit() ended the program where a save had failed.
static void crashed(const Run *run, Report *report)
{
    if (run->plan.full && event_count(&run->traces.of[0], "fit_end") == 0)
        report_failure(report, "a save that fails does not end the training",
                       &d_ends_where_a_save_fails,
                       evidence_of_run(run, format_text("the disk was full in one of the saves; "
                                                        "after epoch %d of %.0f the root ended",
                                                        event_count(&run->traces.of[0], "epoch"),
                                                        run_flag(run, "--epochs "))));
}

// The root's training ended, and not that of all others, after the epoch in which a save failed.
static const Diagnosis *mistake(const Traces *traces)
{
    const Events *root = &traces->of[0];
    int failed = 0; // calls since the last step whose file was not written
    for (int at = event_find_before(root, "step", root->count); at >= 0 && at < root->count; at++)
        failed += event_has(root->items[at], "function", "write_checkpoint") -
                  event_is(root->items[at], "saved");
    RankSet ended = ranks_with(traces, "fit_end");
    return failed > 0 && has_rank(ended, 0) && ended != all_ranks(traces->ranks)
               ? &d_ends_where_a_save_fails
               : NULL;
}

// What the check itself has arranged in a run that hung.
static Fault ended(const Run *run)
{
    char *text = run->hung && run->plan.full && save_failed(run)
                     ? format_text("the check simulated a full disk in a save: that save failed")
                     : NULL;
    return (Fault){NULL, text};
}

// ---- All of it.

static void judge(const Runs *all, Report *report)
{
    Runs others = *all, *runs = &others; // but the one in which a save failed, which is the last
    const Run *last = all->count > 0 ? &all->items[all->count - 1] : NULL;
    bool failed = last && last->plan.full;
    others.count -= failed;
    if (nothing_trained(runs, WRITER, report) ||
        !judge_property(runs, WRITER, writers_fault, report))
        return;
    bool whole = judge_property(runs, WHOLE, saved_names_fault, report);
    if (!judge_property(runs, BY_NAME, epochs_fault, report) || !whole)
        return;
    judge_property(runs, ON_DISK, sync_fault, report);
    judge_saved_best(runs, report);
    if (failed && save_failed(last)) // else it was not as arranged
        judge_after_failure(last, report);
}

JUDGE("save", judge)
OWN_ENDS("save", .mistake = mistake, .crashed = crashed, .ended = ended,
         EXPLAINED({"cannot save the checkpoint", &d_cannot_save}))
