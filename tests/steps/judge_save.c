// Save: who writes, what the folder holds when the program has ended or was killed, and what is on
// the disk by then. The folder is read by saved.c; how files came to their names is judged in
// saved_names.c, and which epoch is the best one in saved_best.c.

#include "arranged.h"
#include "end.h"
#include "saved.h"
#include "waiting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define WRITER  "the root writes the checkpoints, and no other rank"
#define EACH    "each epoch is saved under its name"
#define ON_DISK "a new name is on the disk before the training goes on"

// ---- Who writes.

static RankSet writers_of(const Run *run)
{
    return ranks_with(&run->traces, "written") | ranks_with(&run->traces, "half_written");
}

static const Diagnosis *wrong_writers(const Run *run, RankSet writers)
{
    static const Diagnosis nobody = {"nothing-saved", "no rank writes anything.", NULL};
    static const Diagnosis all = {
        "saved-by-all",
        "every rank writes, and the folder is one for all of them: they write over each other's "
        "files. One does, the root, which is there on any number of workers.",
        NULL};
    static const Diagnosis others = {
        "saved-by-others",
        "files are the root's business, rank 0's: it is there on any number of workers, and there "
        "is one of it.",
        NULL};
    if (!writers)
        return &nobody;
    return writers == all_ranks(run->ranks) ? &all : &others;
}

static bool judge_writers(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        RankSet writers = writers_of(run);
        if (writers == 1)
            continue;
        char *evidence = format_text("written by %s", rank_names(writers).text);
        return report_failure(report, WRITER, wrong_writers(run, writers),
                              evidence_in(runs, run, evidence));
    }
    return report_ok(report, WRITER);
}

// ---- Each epoch's.

// The fingerprint of the root's weights after that epoch, from 1.
static double weights_after(const Run *run, int epoch)
{
    const Events *events = &run->traces.of[0];
    double weights = NAN;
    for (int at = -1; (at = event_find(events, "step", at + 1)) >= 0;)
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
    for (int at = -1; (at = event_find(events, "saved", at + 1)) >= 0;) {
        const cJSON *saved = events->items[at];
        const char *name = last_part(event_text(saved, "path"));
        if (event_number(saved, "epoch") == epoch && find_file(run, name).saved == saved)
            return true;
    }
    return event_count(events, "renamed") == 0;
}

static const Diagnosis *wrong_files(const Run *run, int epoch, const SavedFile *file)
{
    static const Diagnosis other = {
        "other-epoch",
        "under the name of one epoch there is the training as it was after another one.", NULL};
    static const Diagnosis from_zero = {
        "counted-from-zero",
        "the first epoch is saved as ckpt-0. The name says how many epochs are done: "
        "training->epochs_done (training->epoch counts from 0).",
        NULL};
    static const Diagnosis early = {
        "saved-too-early",
        "ckpt-0 is the state before any training: a save at the beginning of an epoch has the "
        "state of the epoch before, and the last epoch is never saved.",
        NULL};
    static const Diagnosis unnamed = {
        "not-renamed",
        "the checkpoint is written, and does not get its name: rename() is not called, or is "
        "called too early, or fails (it cannot move a file to another disk; its return value "
        "tells). Is what write_checkpoint() returns taken the right way round? true: it "
        "is written.",
        NULL};
    static const Diagnosis missing = {
        "checkpoint-missing",
        "an epoch is done, and there is no checkpoint of it: often the epochs are saved under one "
        "name, or under other names, or not all of them, or older ones are removed.",
        NULL};
    SavedFile zero = find_epoch(run, 0);
    if (zero.there)
        return event_number(zero.saved, "epoch") == 0 ? &early : &from_zero;
    if (file->there)
        return &other;
    return is_unnamed(run, epoch) ? &unnamed : &missing;
}

static bool judge_epochs(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        for (int e = 1; e <= epochs_saved(run); e++) {
            SavedFile file = find_epoch(run, e);
            if (file.there && (!file.saved || holds_epoch(run, file.saved, e)))
                continue; // or what is in it is unknown, as judge_saved_names says
            char *evidence =
                file.there
                    ? format_text("ckpt-%d holds the training after %g epochs and %g steps", e,
                                  event_number(file.saved, "epoch"),
                                  event_number(file.saved, "step"))
                    : format_text("%s %d epochs there is no ckpt-%d" ENDING,
                                  run->killed ? "killed after" : "after", epochs_saved(run), e);
            return report_failure(report, EACH, wrong_files(run, e, &file),
                                  evidence_in(runs, run, with_contents(run, evidence)));
        }
    }
    return report_ok(report, EACH);
}

// ---- Names on the disk.

static bool is_of_folder(const cJSON *synced, const char *folder)
{
    const char *path = event_text(synced, "path");
    return event_is(synced, "synced") && (!*path || strcmp(path, folder) == 0);
}

// What the end of an epoch leaves undone, from place `from` of the root's trace up to its next
// step.
typedef struct {
    bool written, named, synced; // something was; synced: after all of it
    bool early;                  // synced, but before it
    int next;
} EpochEnd;

static EpochEnd read_epoch_end(const Events *events, const char *folder, int from)
{
    EpochEnd end = {0};
    int at = from;
    for (; at < events->count && !event_is(events->items[at], "step"); at++) {
        const cJSON *event = events->items[at];
        bool named =
            event_is(event, "renamed") && is_checkpoints_name(last_part(event_text(event, "to")));
        if (named || event_is(event, "saved")) {
            end.early = end.early || end.synced;
            end.synced = false;
            end.written = true;
            end.named = end.named || named;
        }
        end.synced = end.synced || (end.written && is_of_folder(event, folder));
    }
    end.next = at + 1;
    return end;
}

// The first end of an epoch after which names are not on the disk, from 1; 0: there is none.
static int unsynced_epoch(const Run *run, EpochEnd *found)
{
    const Events *events = &run->traces.of[0];
    char *folder = checkpoint_folder(run);
    int at = event_find(events, "epoch", 0), epoch = 0;
    for (int e = 1; at >= 0 && e <= epochs_saved(run) && !epoch; e++) {
        *found = read_epoch_end(events, folder, at);
        if (found->written && !found->synced)
            epoch = e;
        at = event_find(events, "epoch", found->next);
    }
    free(folder);
    return epoch;
}

static bool judge_sync(const Runs *runs, Report *report)
{
    static const Diagnosis never = {
        "folder-not-synced",
        "the bytes of a file are on the disk, but not its name: that stands in the folder, which "
        "is another file. Without sync_folder a power cut may take the new name back.",
        NULL};
    static const Diagnosis early = {
        "synced-too-early",
        "the folder's names are put on the disk before the last rename, which changes them again.",
        NULL};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        EpochEnd end;
        int epoch = unsynced_epoch(run, &end);
        if (!epoch)
            continue;
        return report_failure_in(report, runs, run, ON_DISK, end.early ? &early : &never,
                                 "after epoch %d the root goes on with the folder's "
                                 "last change not on the disk",
                                 epoch);
    }
    return report_ok(report, ON_DISK);
}

// ---- A save that fails.

// Whether the epochs after the one whose save failed are saved; that all ranks trained to the end
// is judged before.
static void judge_after_failure(const Run *run, Report *report)
{
    static const Diagnosis stops = {"stops-saving",
                                    "one save has failed, and later checkpoints are not saved "
                                    "either. A disk may have room again a moment later.",
                                    NULL};
    static const char property[] = "after a save that failed the next ones are made";
    int epochs = event_count(&run->traces.of[0], "epoch");
    SavedFile last = find_epoch(run, epochs);
    if (last.there && holds_epoch(run, last.saved, epochs))
        report_ok(report, property);
    else
        report_failure(report, property, &stops,
                       evidence_of_run(run, with_contents(run, format_text("there is no "
                                                                           "whole ckpt-%d" ENDING,
                                                                           epochs))));
}

// main() or exit() ended the program where a save had failed.
static void crashed(const Run *run, Report *report)
{
    static const Diagnosis ends_it = {
        "ends-where-a-save-fails",
        "a checkpoint that can't be saved is no reason to lose the training, which may come to its "
        "end, or save the next one: say so, and go on.",
        NULL};
    if (run->plan.full && event_count(&run->traces.of[0], "fit_end") == 0)
        report_failure(report, "a save that fails does not end the training", &ends_it,
                       evidence_of_run(run, format_text("the disk was full in one of the saves; "
                                                        "after epoch %d of %.0f the root ended",
                                                        event_count(&run->traces.of[0], "epoch"),
                                                        run_flag(run, "--epochs "))));
}

// ---- All of it.

static void judge(const Runs *all, Report *report)
{
    Runs others = *all, *runs = &others; // but the one in which a save failed, which is the last
    const Run *last = all->count > 0 ? &all->items[all->count - 1] : NULL;
    bool failed = last && last->plan.full;
    others.count -= failed;
    if (nothing_trained(runs, WRITER, report) || !judge_writers(runs, report))
        return;
    bool whole = judge_saved_names(runs, report);
    if (!judge_epochs(runs, report) || !whole)
        return;
    judge_sync(runs, report);
    judge_saved_best(runs, report);
    if (failed && save_failed(last)) // else it was not as arranged
        judge_after_failure(last, report);
}

static const Explanation explanations[] = {
    {"cannot save the checkpoint",
     {"cannot-save",
      "a call of the library failed, and its warning names the path and the reason. "
      "write_checkpoint needs the path of a file in the checkpoints' folder, beside the last one; "
      "sync_folder needs the folder, not a file.",
      NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations, .crashed = crashed};

JUDGE("save", judge)
ENDS("save", &ends)
