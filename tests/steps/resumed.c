// Reads which checkpoint is there, and what is restored, and judges that; resumed.h says what is
// promised.

#include "resumed.h"
#include "saved.h"
#include "diagnoses/resumed.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

void report_held(const Runs *runs, Report *report, const char *property)
{
    if (runs->all)
        report_ok(report, property);
}

// ---- Checkpoints.

// Of the file "ckpt-1-6.safetensors", "ckpt-2.safetensors"; false for any other.
static bool read_place(const char *file, Reached *place)
{
    int length = 0;
    *place = (Reached){0};
    if (sscanf(file, "ckpt-%d-%d.safetensors%n", &place->epoch, &place->step, &length) == 2 &&
        length > 0)
        return file[length] == '\0';
    *place = (Reached){0};
    length = 0;
    return sscanf(file, "ckpt-%d.safetensors%n", &place->epoch, &length) == 1 && length > 0 &&
           file[length] == '\0';
}

static bool is_before(Reached a, Reached b)
{
    return a.epoch < b.epoch || (a.epoch == b.epoch && a.step < b.step);
}

char *name_of_place(Reached place)
{
    return place.step > 0 ? format_text("ckpt-%d-%d", place.epoch, place.step)
                          : format_text("ckpt-%d", place.epoch);
}

// The furthest checkpoint that a run has left; false: there is none.
static bool latest_of(const Run *run, Reached *latest)
{
    struct dirent **files;
    int count = list_files(run, &files);
    bool found = false;
    for (int i = 0; i < count; i++) {
        Reached place;
        if (read_place(files[i]->d_name, &place) && !(found && is_before(place, *latest)) &&
            find_file(run, files[i]->d_name).there) {
            *latest = place;
            found = true;
        }
        free(files[i]);
    }
    free(files);
    return found;
}

bool finds_checkpoint(const Runs *runs, const Run *run, Reached *place)
{
    return run->plan.after && latest_of(run_named(runs, run->plan.after), place);
}

// ---- What is restored.

// The rank's last restored checkpoint before fit; NULL: none.
static const cJSON *restored_by(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int fit = event_find(events, "fit", 0);
    const cJSON *restored = NULL;
    for (int at = -1; (at = event_find(events, "restored", at + 1)) >= 0 && (fit < 0 || at < fit);)
        restored = events->items[at];
    return restored;
}

RankSet ranks_that_restored(const Run *run)
{
    RankSet ranks = 0;
    for (int r = 0; r < run->ranks; r++)
        ranks |= restored_by(run, r) ? 1u << r : 0;
    return ranks;
}

const char *name_restored(const Run *run, int rank)
{
    const cJSON *restored = restored_by(run, rank);
    return restored ? last_part(event_text(restored, "path")) : "nothing";
}

bool all_restored_the_same(const Run *run)
{
    for (int r = 1; r < run->ranks; r++)
        if (strcmp(name_restored(run, r), name_restored(run, 0)) != 0)
            return false;
    return true;
}

// What the rank restored when fit had begun, or was over; NULL: nothing.
static const cJSON *restored_late_by(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int fit = event_find(events, "fit", 0), at = fit < 0 ? -1 : event_find(events, "restored", fit);
    return at < 0 ? NULL : events->items[at];
}

bool restored_late(const Run *run)
{
    for (int r = 0; r < run->ranks; r++)
        if (restored_late_by(run, r))
            return true;
    return false;
}

static char *restored_evidence(const Run *run, const char *there)
{
    char *evidence = format_text("the latest checkpoint there is %s", there ? there : "none");
    for (int r = 0; r < run->ranks; r++) {
        const cJSON *late = restored_late_by(run, r);
        text_add(&evidence, "\nrank %d restored %s", r, name_restored(run, r));
        if (late)
            text_add(&evidence, ", and %s after fit had begun",
                     last_part(event_text(late, "path")));
    }
    return evidence;
}

static const Diagnosis *wrong_restored(const Run *run)
{
    RankSet ranks = ranks_that_restored(run);
    if (!ranks)
        return &d_not_restored;
    if (ranks != all_ranks(run->ranks))
        return &d_restored_by_some;
    return all_restored_the_same(run) ? &d_older_checkpoint : &d_different_checkpoints;
}

bool judge_restored(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Reached place;
        bool there = finds_checkpoint(runs, run, &place);
        char *name = there ? name_of_place(place) : NULL;
        char *file = there ? format_text("%s.safetensors", name) : format_text("nothing");
        bool too_late = restored_late(run);
        bool right =
            !too_late && all_restored_the_same(run) && strcmp(name_restored(run, 0), file) == 0;
        if (!right)
            report_failure(report, FOUND,
                           too_late ? &d_restored_too_late
                           : there  ? wrong_restored(run)
                                    : &d_restored_unasked,
                           evidence_in(runs, run, restored_evidence(run, name)));
        free(name);
        free(file);
        if (!right)
            return false;
    }
    report_held(runs, report, FOUND);
    return true;
}
