// Save: who writes, what the folder holds when the program has ended or was killed, and how it came
// to be there. A file is known by its number on the disk, which it keeps whatever name it gets: so
// a renamed one is told from one that was written, or copied, under its last name.

#include "end.h"
#include "judge.h"
#include "waiting.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WRITER  "the root writes the checkpoints, and no other rank"
#define WHOLE   "under a checkpoint's name there is a whole file, at every moment"
#define EACH    "each epoch is saved under its name"
#define ON_DISK "a new name is on the disk before the training goes on"
#define BEST    "\"best\" is the first epoch with the highest validation accuracy"

#define ENDING      ".safetensors"
#define MOST_EPOCHS 64

// ---- What a run leaves.

static char *folder_of(const Run *run)
{
    static const char flag[] = "--checkpoint-dir ";
    const char *name = strstr(run->plan.flags, flag);
    CHECK(name);
    name += strlen(flag);
    return format_text("%s/%.*s", run->work, (int)strcspn(name, " "), name);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Of the file "ckpt-3.safetensors" 3; of others -1.
static int epoch_of_name(const char *file)
{
    int epoch = -1, length = 0;
    if (sscanf(file, "ckpt-%d" ENDING "%n", &epoch, &length) != 1 || file[length] || length == 0)
        return -1;
    return epoch;
}

static bool is_checkpoints_name(const char *file)
{
    return epoch_of_name(file) >= 0 || strcmp(file, "best" ENDING) == 0;
}

// A file in the folder.
typedef struct {
    bool there;
    bool copied;        // from a file that is still there
    const cJSON *saved; // the event of the write that made it; NULL: none came to its end
} File;

// The last write to the file with that number.
static const cJSON *write_of(const Run *run, double inode)
{
    const cJSON *found = NULL;
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        for (int at = -1; (at = event_find(events, "saved", at + 1)) >= 0;)
            if (event_number(events->items[at], "inode") == inode &&
                !(event_number(events->items[at], "t") < event_number(found, "t")))
                found = events->items[at];
    }
    return found;
}

static bool same_bytes(const char *a, const char *b)
{
    FILE *one = fopen(a, "re"), *other = fopen(b, "re");
    bool same = one && other;
    for (int c = 0; same && c != EOF;) {
        c = getc(one);
        same = c == getc(other);
    }
    if (one)
        fclose(one);
    if (other)
        fclose(other);
    return same;
}

// The write of the epoch's checkpoint whose bytes these are; NULL: of none.
static const cJSON *write_of_copied(const Run *run, const char *folder, const char *copy)
{
    const cJSON *saved = NULL;
    for (int e = 1; !saved && e <= event_count(&run->traces.of[0], "epoch"); e++) {
        char *path = format_text("%s/ckpt-%d" ENDING, folder, e);
        struct stat facts;
        if (stat(path, &facts) == 0 && same_bytes(path, copy))
            saved = write_of(run, (double)facts.st_ino);
        free(path);
    }
    return saved;
}

static File find_file(const Run *run, const char *name)
{
    char *folder = folder_of(run), *path = format_text("%s/%s", folder, name);
    struct stat facts;
    File file = {.there = stat(path, &facts) == 0};
    if (file.there)
        file.saved = write_of(run, (double)facts.st_ino);
    if (file.there && !file.saved)
        file.saved = write_of_copied(run, folder, path);
    file.copied = file.saved && event_number(file.saved, "inode") != (double)facts.st_ino;
    free(folder);
    free(path);
    return file;
}

static File find_epoch(const Run *run, int epoch)
{
    char *name = format_text("ckpt-%d" ENDING, epoch);
    File file = find_file(run, name);
    free(name);
    return file;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

// "in the folder: best.safetensors (166056 bytes), ...".
static char *contents(const Run *run)
{
    char *folder = folder_of(run), *text = NULL;
    struct dirent **files = NULL;
    int count = scandir(folder, &files, is_visible, alphasort);
    text_add(&text, "in the folder:%s", count > 0 ? "" : " nothing");
    for (int i = 0; i < count; i++) {
        char *path = format_text("%s/%s", folder, files[i]->d_name);
        struct stat facts = {0};
        stat(path, &facts);
        if (i < 12)
            text_add(&text, "%s %s (%lld bytes)", i ? "," : "", files[i]->d_name,
                     (long long)facts.st_size);
        free(path);
        free(files[i]);
    }
    if (count > 12)
        text_add(&text, ", ...");
    free(files);
    free(folder);
    return text;
}

// Takes the text over.
static char *with_contents(const Run *run, char *evidence)
{
    char *folder = contents(run);
    text_add(&evidence, "\n%s", folder);
    free(folder);
    return evidence;
}

// Epochs whose end the root has come past: all that are done, but for the one in which it was
// killed.
static int epochs_saved(const Run *run)
{
    int epochs = event_count(&run->traces.of[0], "epoch");
    return run->killed ? epochs - 1 : epochs;
}

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
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        RankSet writers = writers_of(run);
        if (writers == 1)
            continue;
        char *evidence = format_text("written by %s", rank_names(writers).text);
        report_failure(report, WRITER, wrong_writers(run, writers),
                       evidence_in(runs, run, evidence));
        return false;
    }
    report_ok(report, WRITER);
    return true;
}

// ---- How files come to their names.

// What became of a file under a checkpoint's name.
typedef enum { GOOD, IN_PLACE, HALF, WEIGHTS, OTHERWISE } Making;

static bool was_renamed_to(const Run *run, const char *name)
{
    const Events *events = &run->traces.of[0];
    for (int at = -1; (at = event_find(events, "renamed", at + 1)) >= 0;)
        if (strcmp(last_part(event_text(events->items[at], "to")), name) == 0)
            return true;
    return false;
}

// Whether a path, as the program gave it, is that of the checkpoint's name, in this folder.
static bool is_path_of(const Run *run, const char *path, const char *name)
{
    char *whole = *path == '/' ? format_text("%s", path) : format_text("%s/%s", run->work, path);
    *strrchr(whole, '/') = '\0';
    char *folder = folder_of(run), *there = realpath(folder, NULL), *other = realpath(whole, NULL);
    bool same = there && other && strcmp(there, other) == 0 && strcmp(last_part(path), name) == 0;
    free(whole);
    free(folder);
    free(there);
    free(other);
    return same;
}

// save_weights, which says of no epoch, has written it.
static bool has_weights_only(const Run *run, const char *name)
{
    const Events *events = &run->traces.of[0];
    for (int at = -1; (at = event_find(events, "saved", at + 1)) >= 0;)
        if (isnan(event_number(events->items[at], "epoch")) &&
            is_path_of(run, event_text(events->items[at], "path"), name))
            return true;
    return false;
}

static Making making_of(const Run *run, const char *name, const File *file)
{
    if (file->copied)
        return was_renamed_to(run, name) ? GOOD : OTHERWISE;
    if (file->saved)
        return is_path_of(run, event_text(file->saved, "path"), name) ? IN_PLACE : GOOD;
    const cJSON *half = event_last(&run->traces.of[0], "half_written");
    if (run->killed && is_path_of(run, event_text(half, "path"), name))
        return HALF;
    return has_weights_only(run, name) ? WEIGHTS : OTHERWISE;
}

static const Diagnosis *wrong_making(Making making)
{
    static const Diagnosis in_place = {
        "written-in-place",
        "the checkpoint is written under its last name. While that lasts there is a part of a file "
        "under it; whoever dies then leaves it like that, and what was there before is lost.",
        NULL};
    static const Diagnosis copied = {
        "not-renamed",
        "the file under this name is none that write_checkpoint has written to its end: often its "
        "bytes were copied there, or a file was renamed before it was whole. A rename gives a "
        "whole "
        "file another name in one step.",
        NULL};
    static const Diagnosis weights = {"weights-only",
                                      "save_weights writes the variables alone. A training is "
                                      "more: what the optimizer keeps, the "
                                      "epoch, the history. write_checkpoint writes all of it.",
                                      NULL};
    return making == OTHERWISE ? &copied : making == WEIGHTS ? &weights : &in_place;
}

static char *making_evidence(const Run *run, const char *name, Making making)
{
    if (making == HALF)
        return format_text("killed in the middle of a write, the root leaves a part of a file as "
                           "%s",
                           name);
    if (making == IN_PLACE)
        return format_text("%s was written under that name", name);
    return format_text("%s is there%s", name, run->killed ? " when the root was killed" : "");
}

// The first file under a checkpoint's name that was not made as it has to be, which the caller
// frees; NULL: there is none.
static char *badly_made(const Run *run, Making *making)
{
    char *folder = folder_of(run), *found = NULL;
    struct dirent **files = NULL;
    int count = scandir(folder, &files, is_visible, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = files[i]->d_name;
        if (!found && is_checkpoints_name(name)) {
            File file = find_file(run, name);
            *making = making_of(run, name, &file);
            found = *making == GOOD ? NULL : format_text("%s", name);
        }
        free(files[i]);
    }
    free(files);
    free(folder);
    return found;
}

// A checkpoint that was taken away before another got its name, so that for a while there was none.
static const cJSON *taken_away(const Run *run)
{
    const Events *events = &run->traces.of[0];
    for (int at = -1; (at = event_find(events, "removed", at + 1)) >= 0;) {
        const char *path = event_text(events->items[at], "path");
        for (int next = at; (next = event_find(events, "renamed", next + 1)) >= 0;)
            if (is_checkpoints_name(last_part(path)) &&
                strcmp(event_text(events->items[next], "to"), path) == 0)
                return events->items[at];
    }
    return NULL;
}

static bool judge_wholeness(const Runs *runs, Report *report)
{
    static const Diagnosis removed = {
        "removed-before-renamed",
        "the file that was there goes before the new one has its name: who dies between the two "
        "has neither. rename() puts the new one in its place in one step.",
        NULL};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        Making making;
        char *name = badly_made(run, &making);
        const cJSON *away = taken_away(run);
        if (!name && !away)
            continue;
        char *evidence =
            name ? making_evidence(run, name, making)
                 : format_text("the root removes %s", last_part(event_text(away, "path")));
        report_failure(report, WHOLE, name ? wrong_making(making) : &removed,
                       evidence_in(runs, run, with_contents(run, evidence)));
        free(name);
        return false;
    }
    report_ok(report, WHOLE);
    return true;
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

static const Diagnosis *wrong_files(const Run *run, int epoch, const File *file)
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
        "ckpt-0 is the training before anything was trained: what is saved where an epoch begins "
        "is the one before it, and the last epoch is never saved.",
        NULL};
    static const Diagnosis unnamed = {
        "not-renamed",
        "the checkpoint is written, and does not get its name: rename() is not called, or comes "
        "too "
        "early, or fails (it can't lead from one disk to another, and says so by what it returns).",
        NULL};
    static const Diagnosis missing = {
        "checkpoint-missing",
        "an epoch is done, and there is no checkpoint of it: often the epochs are saved under one "
        "name, or under other names, or not all of them, or older ones are removed.",
        NULL};
    File zero = find_epoch(run, 0);
    if (zero.there)
        return event_number(zero.saved, "epoch") == 0 ? &early : &from_zero;
    if (file->there)
        return &other;
    return is_unnamed(run, epoch) ? &unnamed : &missing;
}

static bool judge_epochs(const Runs *runs, Report *report)
{
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        for (int e = 1; e <= epochs_saved(run); e++) {
            File file = find_epoch(run, e);
            if (file.there && holds_epoch(run, file.saved, e))
                continue;
            char *evidence =
                file.there
                    ? format_text("ckpt-%d holds the training after %g epochs and %g steps", e,
                                  event_number(file.saved, "epoch"),
                                  event_number(file.saved, "step"))
                    : format_text("%s %d epochs there is no ckpt-%d" ENDING,
                                  run->killed ? "killed after" : "after", epochs_saved(run), e);
            report_failure(report, EACH, wrong_files(run, e, &file),
                           evidence_in(runs, run, with_contents(run, evidence)));
            return false;
        }
    }
    report_ok(report, EACH);
    return true;
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
    char *folder = folder_of(run);
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

static void judge_sync(const Runs *runs, Report *report)
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
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        EpochEnd end;
        int epoch = unsynced_epoch(run, &end);
        if (!epoch)
            continue;
        report_failure(report, ON_DISK, end.early ? &early : &never,
                       evidence_in(runs, run,
                                   format_text("after epoch %d the root goes on with the folder's "
                                               "last change not on the disk",
                                               epoch)));
        return;
    }
    report_ok(report, ON_DISK);
}

// ---- The best.

typedef struct {
    double loss, accuracy, val_loss, val_accuracy;
} Figures;

typedef struct {
    int epochs;
    Figures own[MOST_EPOCHS];  // the root's
    Figures mean[MOST_EPOCHS]; // of all ranks
    double most[MOST_EPOCHS];  // the highest validation accuracy of a rank
    double seen[MOST_EPOCHS];  // the root's validation accuracies, when all callbacks were called
} Course;

static Figures figures_of(const cJSON *event)
{
    return (Figures){event_number(event, "loss"), event_number(event, "accuracy"),
                     event_number(event, "val_loss"), event_number(event, "val_accuracy")};
}

static Course read_course(const Run *run)
{
    Course course = {.epochs = epochs_saved(run)};
    course.epochs = course.epochs < MOST_EPOCHS - 1 ? course.epochs : MOST_EPOCHS - 1;
    for (int e = 0; e <= course.epochs; e++) {
        course.own[e] = figures_of(event_nth(&run->traces.of[0], "epoch", e));
        course.seen[e] = event_number(event_nth(&run->traces.of[0], "history", e), "val_accuracy");
        for (int r = 0; r < run->ranks; r++) {
            Figures f = figures_of(event_nth(&run->traces.of[r], "epoch", e));
            course.mean[e].loss += f.loss / run->ranks;
            course.mean[e].accuracy += f.accuracy / run->ranks;
            course.mean[e].val_loss += f.val_loss / run->ranks;
            course.mean[e].val_accuracy += f.val_accuracy / run->ranks;
            course.most[e] = r == 0 ? f.val_accuracy : fmax(course.most[e], f.val_accuracy);
        }
    }
    return course;
}

// By which figure, of whom, an epoch is the best.
typedef struct {
    bool own;  // the root's own, not the mean
    int place; // of the figure in Figures
    bool low;  // the lowest one
    bool last; // of several equal ones
    bool any;  // the last epoch, whatever its figures
    bool once; // the first one
    bool step; // the last one that was better than the epoch before it
    bool most; // the highest one of any rank
} Rule;

static double figure(const Course *course, const Rule *rule, int epoch)
{
    if (rule->most)
        return course->most[epoch];
    const Figures *figures = rule->own ? &course->own[epoch] : &course->mean[epoch];
    double value = ((const double *)figures)[rule->place];
    return rule->low ? -value : value;
}

// Equal, but for what rounding in an average leaves out.
#define SAME 1e-6

// The best epoch, from 1, of the first `epochs`.
static int best_by(const Course *course, const Rule *rule, int epochs)
{
    int best = 0;
    if (rule->any || rule->once)
        return rule->once ? 1 : epochs;
    for (int e = 1; e < epochs; e++) {
        double lead = figure(course, rule, e) - figure(course, rule, rule->step ? e - 1 : best);
        if (lead > SAME || (rule->last && lead > -SAME))
            best = e;
    }
    return best + 1;
}

// The first one with the highest of the root's averages, to their last bit.
static int best_seen(const Course *course, int epochs)
{
    int best = 0;
    for (int e = 1; e < epochs; e++)
        if (course->seen[e] > course->seen[best])
            best = e;
    return best + 1;
}

static bool seen_are_means(const Course *course)
{
    for (int e = 0; e < course->epochs; e++)
        if (!(fabs(course->seen[e] - course->mean[e].val_accuracy) < SAME))
            return false;
    return true;
}

enum { LOSS, ACCURACY, VAL_LOSS, VAL_ACCURACY };
static const Rule right = {.place = VAL_ACCURACY};

// Where the root was killed it may have been before it saved the best epoch, or after that.
static bool is_right(const Run *run, const Course *course, int epoch)
{
    for (int epochs = course->epochs; epochs <= course->epochs + run->killed; epochs++)
        if (epoch == best_by(course, &right, epochs) ||
            (seen_are_means(course) && epoch == best_seen(course, epochs)))
            return true;
    return false;
}

static bool explains_run(const Run *run, const Rule *rule)
{
    Course course = read_course(run);
    File file = find_file(run, "best" ENDING);
    double epoch = event_number(file.saved, "epoch");
    for (int epochs = course.epochs; epochs <= course.epochs + run->killed; epochs++)
        if (best_by(&course, rule, epochs) == epoch)
            return true;
    return false;
}

static const struct {
    Rule rule;
    Diagnosis diagnosis;
} known[] = {
    {{.place = VAL_ACCURACY, .own = true},
     {"best-by-own-figures",
      "the best epoch is the best one on the root's own validation images. The callback has to "
      "stand behind hvd_metric_average in the list, and to go by training->logs: before it, and in "
      "the history's last entry, it sees the worker's own figures.",
      NULL}},
    {{.place = VAL_ACCURACY, .last = true},
     {"best-is-the-last-of-equals",
      "an epoch that is as good as the best one takes its place. It is better where its accuracy "
      "is higher (>, not >=).",
      NULL}},
    {{.any = true},
     {"best-is-the-last",
      "\"best\" is always the last epoch: often the highest accuracy so far is never remembered.",
      NULL}},
    {{.place = VAL_ACCURACY, .step = true},
     {"best-of-two",
      "an epoch that is better than the one before it becomes the best, though there was a better "
      "one earlier: the highest accuracy so far changes only where a higher one comes.",
      NULL}},
    {{.most = true},
     {"best-on-any-worker",
      "the best epoch is the one that some worker has found best on its own validation images. "
      "What counts is the average over all workers, which training->logs has behind "
      "hvd_metric_average.",
      NULL}},
    {{.once = true},
     {"best-stays-the-first", "\"best\" is the first epoch, and no later one takes its place.",
      NULL}},
    {{.place = VAL_ACCURACY, .low = true},
     {"best-is-the-worst", "\"best\" is the epoch with the lowest validation accuracy.", NULL}},
    {{.place = ACCURACY},
     {"best-by-training-figures",
      "the best epoch is the best one on the training images. logs.val_accuracy is that of images "
      "that the model has not learned from.",
      NULL}},
    {{.place = VAL_LOSS, .low = true},
     {"best-by-loss", "the best epoch is that with the lowest loss, not the highest accuracy.",
      NULL}},
    {{.place = LOSS, .low = true},
     {"best-by-training-figures",
      "the best epoch is the best one on the training images. logs.val_accuracy is that of images "
      "that the model has not learned from.",
      NULL}},
};

static const Diagnosis *wrong_best(const Runs *runs)
{
    static const Diagnosis wrong = {
        "best-wrong",
        "no single mistake that this check knows explains which epochs are kept as the best. Is "
        "the accuracy the validation's, and the average? Is the highest one so far remembered?",
        NULL};
    const Diagnosis *found = NULL;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        bool all = true;
        for (int i = 0; i < runs->count; i++)
            all = all && explains_run(&runs->items[i], &known[k].rule);
        if (all && found && strcmp(found->name, known[k].diagnosis.name) != 0)
            return &wrong; // which one it is can't be told
        found = all ? &known[k].diagnosis : found;
    }
    return found ? found : &wrong;
}

static char *best_evidence(const Run *run, const Course *course, const File *file)
{
    char *evidence =
        file->there ? format_text("best is epoch %g, where epoch %d is right",
                                  event_number(file->saved, "epoch"),
                                  best_by(course, &right, course->epochs))
                    : format_text("there is no best" ENDING " after %d epochs", course->epochs);
    text_add(&evidence, "\nmean validation accuracies:");
    for (int e = 0; e < course->epochs; e++)
        text_add(&evidence, " %.4f", course->mean[e].val_accuracy);
    if (run->ranks > 1) {
        text_add(&evidence, "\nthe root's own:            ");
        for (int e = 0; e < course->epochs; e++)
            text_add(&evidence, " %.4f", course->own[e].val_accuracy);
    }
    return evidence;
}

static void judge_best(const Runs *runs, Report *report)
{
    static const Diagnosis missing = {
        "best-missing",
        "an epoch is done, and nothing is there under the name \"best\". The first one is better "
        "than none.",
        NULL};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        Course course = read_course(run);
        File file = find_file(run, "best" ENDING);
        if (course.epochs < 1 || is_right(run, &course, (int)event_number(file.saved, "epoch")))
            continue;
        report_failure(report, BEST, file.there ? wrong_best(runs) : &missing,
                       evidence_in(runs, run, best_evidence(run, &course, &file)));
        return;
    }
    report_ok(report, BEST);
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, WRITER, report) || !judge_writers(runs, report))
        return;
    bool whole = judge_wholeness(runs, report);
    if (!judge_epochs(runs, report) || !whole)
        return;
    judge_sync(runs, report);
    judge_best(runs, report);
}

static const Explanation explanations[] = {
    {"cannot save the checkpoint",
     {"cannot-save",
      "the library could not do what it was told to, and its warning says with which path, and "
      "why. "
      "write_checkpoint wants the path of a file in the checkpoints' folder, beside the last one; "
      "sync_folder wants the folder, and no file.",
      NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations};

JUDGE("save", judge)
ENDS("save", &ends)
