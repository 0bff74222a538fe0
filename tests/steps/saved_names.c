// How files come to checkpoints' names: written to their end elsewhere, and renamed, the file that
// was there staying until then.

#include "saved.h"
#include "diagnoses/saved_names.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

// What became of a file under a checkpoint's name.
typedef enum { GOOD, IN_PLACE, HALF, WEIGHTS, OTHERWISE } Making;

static bool was_renamed_to(const Run *run, const char *name)
{
    const Events *events = &run->traces.of[0];
    EACH (at, events, "renamed")
        if (strcmp(last_part(event_text(events->items[at], "to")), name) == 0)
            return true;
    return false;
}

// save_weights, which says of no epoch, has written it.
static bool has_weights_only(const Run *run, const char *name)
{
    const Events *events = &run->traces.of[0];
    EACH (at, events, "saved")
        if (isnan(event_number(events->items[at], "epoch")) &&
            is_path_of(run, event_text(events->items[at], "path"), name))
            return true;
    return false;
}

static Making making_of(const Run *run, const char *name, const SavedFile *file)
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
    return making == OTHERWISE ? &d_not_renamed
           : making == WEIGHTS ? &d_weights_only
                               : &d_written_in_place;
}

static char *making_evidence(const Run *run, const char *name, Making making)
{
    if (making == HALF)
        return format_text("killed in the middle of a write, the root leaves a part of a file "
                           "as %s",
                           name);
    if (making == IN_PLACE)
        return format_text("%s was written under that name", name);
    return format_text("%s is there%s", name, run->killed ? " when the root was killed" : "");
}

// The first file under a checkpoint's name that was not made as it has to be, which the caller
// frees; NULL: there is none.
static char *badly_made(const Run *run, Making *making)
{
    char *found = NULL;
    struct dirent **files = NULL;
    int count = list_files(run, &files);
    for (int i = 0; i < count; i++) {
        const char *name = files[i]->d_name;
        if (!found && is_checkpoints_name(name)) {
            SavedFile file = find_file(run, name);
            *making = making_of(run, name, &file);
            found = *making == GOOD ? NULL : format_text("%s", name);
        }
        free(files[i]);
    }
    free(files);
    return found;
}

// A checkpoint that was taken away before another got its name, by rename() or otherwise, so that
// for a while there was none.
static const cJSON *taken_away(const Run *run)
{
    const Events *events = &run->traces.of[0];
    EACH (at, events, "removed") {
        const char *path = event_text(events->items[at], "path");
        if (is_checkpoints_name(last_part(path)) && find_file(run, last_part(path)).there)
            return events->items[at];
        for (int next = at; (next = event_find(events, "renamed", next + 1)) >= 0;)
            if (is_checkpoints_name(last_part(path)) && event_has(events->items[next], "to", path))
                return events->items[at];
    }
    return NULL;
}

Fault saved_names_fault(const Run *run)
{
    Making making;
    char *name = badly_made(run, &making);
    const cJSON *away = taken_away(run);
    if (!name && !away)
        return NO_FAULT;
    char *evidence = name ? making_evidence(run, name, making)
                          : format_text("the root removes %s", last_part(event_text(away, "path")));
    const Diagnosis *diagnosis = name ? wrong_making(making) : &d_removed_before_renamed;
    free(name);
    return (Fault){diagnosis, with_contents(run, evidence)};
}
