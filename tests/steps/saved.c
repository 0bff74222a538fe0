// Looks into the folder of a run's checkpoints; saved.h says what is promised.

#include "saved.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "safe_files.h"
#include "base/files.h"
#include "base/format.h"

#define MAX_CHECKPOINT ((long long)1 << 26) // bytes
#define MAX_SHOWN      12

// Of --checkpoint-dir, below the folder in which the program begins.
static char *name_of_folder(const Run *run)
{
    static const char flag[] = "--checkpoint-dir ";
    const char *name = strstr(run->plan.flags, flag);
    CHECK(name);
    name += strlen(flag);
    return format_text("%.*s", (int)strcspn(name, " "), name);
}

char *checkpoint_folder(const Run *run)
{
    char *name = name_of_folder(run), *folder = format_text("%s/%s", run->work, name);
    free(name);
    return folder;
}

int checkpoint_files(const Run *run)
{
    char *name = name_of_folder(run);
    int folder = safe_folder(run->files, name);
    free(name);
    return folder;
}

static void close_open(int file)
{
    if (file >= 0)
        close(file);
}

static bool same_file(int a, int b)
{
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

bool is_path_of(const Run *run, const char *path, const char *name)
{
    size_t length = strlen(run->work);
    if (strncmp(path, run->work, length) == 0 && path[length] == '/')
        path += length + 1;
    if (*path == '/' || strcmp(last_part(path), name) != 0)
        return false;
    char *parent = format_text("%.*s", (int)(last_part(path) - path), path);
    int folder = checkpoint_files(run), other = safe_folder(run->files, parent);
    bool same = folder >= 0 && other >= 0 && same_file(folder, other);
    close_open(folder);
    close_open(other);
    free(parent);
    return same;
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

int open_saved(const Run *run, const char *name)
{
    int folder = checkpoint_files(run);
    int file = folder >= 0 ? safe_file(folder, name, MAX_CHECKPOINT) : -1;
    close_open(folder);
    return file;
}

// What a name stands for: a regular file's number and hash; 0: there is none.
typedef struct {
    double inode;
    FileHash hash;
} Contents;

static Contents contents_of(const Run *run, const char *name)
{
    struct stat facts;
    int file = open_saved(run, name);
    Contents contents = {0};
    if (file >= 0 && fstat(file, &facts) == 0)
        contents = (Contents){(double)facts.st_ino, file_hash(file)};
    close_open(file);
    return contents;
}

// The last write to the file with that number, if these are still its bytes.
static const cJSON *write_of(const Run *run, Contents contents)
{
    const cJSON *found = NULL;
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        EACH (at, events, "saved")
            if (event_number(events->items[at], "inode") == contents.inode &&
                !(event_number(events->items[at], "t") < event_number(found, "t")))
                found = events->items[at];
    }
    return event_has(found, "bits", contents.hash.digits) ? found : NULL;
}

// The write of the epoch's checkpoint whose bytes these are; NULL: of none.
static const cJSON *write_of_copied(const Run *run, Contents copy)
{
    const cJSON *saved = NULL;
    for (int e = 1; !saved && e <= event_count(&run->traces.of[0], "epoch"); e++) {
        char *name = format_text("ckpt-%d" ENDING, e);
        Contents contents = contents_of(run, name);
        if (contents.inode > 0 && strcmp(contents.hash.digits, copy.hash.digits) == 0)
            saved = write_of(run, contents);
        free(name);
    }
    return saved;
}

SavedFile find_file(const Run *run, const char *name)
{
    Contents contents = contents_of(run, name);
    SavedFile file = {.there = contents.inode > 0};
    if (file.there)
        file.saved = write_of(run, contents);
    if (file.there && !file.saved)
        file.saved = write_of_copied(run, contents);
    file.copied = file.saved && event_number(file.saved, "inode") != contents.inode;
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
    int folder = checkpoint_files(run);
    *files = NULL;
    int count = folder >= 0 ? scandirat(folder, ".", files, is_visible, alphasort) : 0;
    close_open(folder);
    return count;
}

static const char *kind_words(mode_t mode)
{
    return S_ISLNK(mode) ? "a link" : S_ISDIR(mode) ? "a folder" : "no file";
}

char *with_contents(const Run *run, char *evidence)
{
    struct dirent **files = NULL;
    int folder = checkpoint_files(run), count = list_files(run, &files);
    text_add(&evidence, "\nin the folder, at the end of the run:%s", count > 0 ? "" : " nothing");
    for (int i = 0; i < count; i++) {
        struct stat facts = {0};
        bool known = fstatat(folder, files[i]->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0;
        if (i < MAX_SHOWN)
            text_add(&evidence, "%s %s ", i ? "," : "", files[i]->d_name);
        if (i < MAX_SHOWN && known && S_ISREG(facts.st_mode))
            text_add(&evidence, "(%lld bytes)", (long long)facts.st_size);
        else if (i < MAX_SHOWN)
            text_add(&evidence, "(%s)", kind_words(facts.st_mode));
        free(files[i]);
    }
    if (count > MAX_SHOWN)
        text_add(&evidence, ", ...");
    free(files);
    close_open(folder);
    return evidence;
}

int epochs_saved(const Run *run)
{
    int epochs = event_count(&run->traces.of[0], "epoch");
    return run->killed ? epochs - 1 : epochs;
}

bool judge_each(const Runs *runs, const char *property,
                Fault (*fault)(const Runs *runs, const Run *run), Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (!report_fault(report, runs, run, property, fault(runs, run)))
            return false;
    return !runs->all || report_ok(report, property);
}
