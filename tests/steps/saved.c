// Looks into the folder of a run's checkpoints; saved.h says what is promised.

#include "saved.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/format.h"

char *checkpoint_folder(const Run *run)
{
    static const char flag[] = "--checkpoint-dir ";
    const char *name = strstr(run->plan.flags, flag);
    CHECK(name);
    name += strlen(flag);
    return format_text("%s/%.*s", run->work, (int)strcspn(name, " "), name);
}

const char *last_part(const char *path)
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

bool is_checkpoints_name(const char *file)
{
    return epoch_of_name(file) >= 0 || strcmp(file, "best" ENDING) == 0;
}

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

SavedFile find_file(const Run *run, const char *name)
{
    char *folder = checkpoint_folder(run), *path = format_text("%s/%s", folder, name);
    struct stat facts;
    SavedFile file = {.there = stat(path, &facts) == 0};
    if (file.there)
        file.saved = write_of(run, (double)facts.st_ino);
    if (file.there && !file.saved)
        file.saved = write_of_copied(run, folder, path);
    file.copied = file.saved && event_number(file.saved, "inode") != (double)facts.st_ino;
    free(folder);
    free(path);
    return file;
}

SavedFile find_epoch(const Run *run, int epoch)
{
    char *name = format_text("ckpt-%d" ENDING, epoch);
    SavedFile file = find_file(run, name);
    free(name);
    return file;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int list_files(const Run *run, struct dirent ***files)
{
    char *folder = checkpoint_folder(run);
    *files = NULL;
    int count = scandir(folder, files, is_visible, alphasort);
    free(folder);
    return count;
}

// "in the folder: best.safetensors (166056 bytes), ...".
static char *contents(const Run *run)
{
    char *folder = checkpoint_folder(run), *text = NULL;
    struct dirent **files = NULL;
    int count = list_files(run, &files);
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

char *with_contents(const Run *run, char *evidence)
{
    char *folder = contents(run);
    text_add(&evidence, "\n%s", folder);
    free(folder);
    return evidence;
}

int epochs_saved(const Run *run)
{
    int epochs = event_count(&run->traces.of[0], "epoch");
    return run->killed ? epochs - 1 : epochs;
}
