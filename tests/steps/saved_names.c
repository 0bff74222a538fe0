// How files come to checkpoints' names: written to their end elsewhere, and renamed, the file that
// was there staying until then.

#include "saved.h"
#include "diagnoses/saved_names.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static Fault file_fault(const Run *run, const char *name)
{
    SavedFile file = find_file(run, name);
    if (file.saved && !file.copied)
        return is_path_of(run, event_text(file.saved, "path"), name)
                   ? fault_with(&d_written_in_place, "%s was written under that name", name)
                   : NO_FAULT;
    if (file.copied && was_renamed_to(run, name))
        return NO_FAULT;
    const cJSON *half = event_last(&run->traces.of[0], "half_written");
    if (!file.copied && run->killed && is_path_of(run, event_text(half, "path"), name))
        return fault_with(&d_written_in_place,
                          "killed in the middle of a write, the root leaves a part of a file as %s",
                          name);
    bool weights = !file.copied && has_weights_only(run, name);
    return fault_with(weights ? &d_weights_only : &d_not_renamed, "%s is there%s", name,
                      run->killed ? " when the root was killed" : "");
}

// Of the first file under a checkpoint's name that was not made as it has to be.
static Fault files_fault(const Run *run)
{
    Fault found = NO_FAULT;
    struct dirent **files = NULL;
    int count = list_files(run, &files);
    for (int i = 0; i < count; i++) {
        if (!found.diagnosis && is_checkpoints_name(files[i]->d_name))
            found = file_fault(run, files[i]->d_name);
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
    Fault fault = files_fault(run);
    const cJSON *away = fault.diagnosis ? NULL : taken_away(run);
    if (away)
        fault = fault_with(&d_removed_before_renamed, "the root removes %s",
                           last_part(event_text(away, "path")));
    if (fault.diagnosis)
        fault.evidence = with_contents(run, fault.evidence);
    return fault;
}
