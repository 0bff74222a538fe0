// The files of checkpoints in their folder.

#include "hvd/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/memory.h"
#include "base/numbers.h"
#include "base/files.h"
#include "base/format.h"
#include "base/launcher.h"
#include "data/safetensors.h"

#define ENDING ".safetensors"

char *main_path(const char *folder, const char *name, const char *token)
{
    return format_text("%s/%s" ENDING "%s%s", folder, name, token ? "." : "", token ? token : "");
}

char *part_path(const char *folder, const char *name, int rank, const char *token)
{
    return format_text("%s/%s.rank-%d" ENDING "%s%s", folder, name, rank, token ? "." : "",
                       token ? token : "");
}

// ---- What a name says.

// A checkpoint's progress: complete epochs, and steps of the next.
typedef struct {
    long long epoch, step;
} Reached;

// A number without a sign or a leading zero, at least `least`.
static const char *read_number(const char *text, long long least, long long *number)
{
    uint64_t read = 0;
    const char *end = read_digits(text, LLONG_MAX, &read);
    *number = (long long)read;
    return end && *number >= least && (*text != '0' || end == text + 1) ? end : NULL;
}

// The progress of "ckpt-3.safetensors" or "ckpt-3-120.safetensors"; false for any other file.
static bool read_name(const char *file, Reached *reached)
{
    if (strncmp(file, "ckpt-", 5) != 0)
        return false;
    reached->step = 0;
    const char *rest = read_number(file + 5, 0, &reached->epoch);
    if (rest && *rest == '-')
        rest = read_number(rest + 1, 1, &reached->step);
    return rest && strcmp(rest, ENDING) == 0;
}

static int compare(const void *a, const void *b)
{
    const Reached *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

static char *name_of(Reached reached)
{
    return reached.step > 0 ? format_text("ckpt-%lld-%lld", reached.epoch, reached.step)
                            : format_text("ckpt-%lld", reached.epoch);
}

// A file of the checkpoint `name`.
typedef struct {
    long long rank;    // -1: the main file
    const char *token; // NULL: it has none
} PartName;

static bool is_of(const char *file, const char *name, PartName *kind)
{
    size_t length = strlen(name), ending = strlen(ENDING);
    if (strncmp(file, name, length) != 0)
        return false;
    const char *rest = file + length;
    kind->rank = -1;
    if (strncmp(rest, ".rank-", 6) == 0)
        rest = read_number(rest + 6, 0, &kind->rank);
    if (!rest || strncmp(rest, ENDING, ending) != 0)
        return false;
    rest += ending;
    kind->token = *rest == '.' ? rest + 1 : NULL;
    return *rest == '\0' || (*rest == '.' && strlen(rest + 1) == TOKEN_LENGTH &&
                             strspn(rest + 1, "0123456789abcdef") == TOKEN_LENGTH);
}

// ---- The folder.

// All checkpoints ckpt-..., in the order of their progress; the caller frees them.
static Reached *list(const char *folder, int *count)
{
    Reached *places = NULL, reached;
    DIR *names = opendir(folder);
    *count = 0;
    for (const struct dirent *entry; names && (entry = readdir(names));) {
        if (!read_name(entry->d_name, &reached))
            continue;
        places = enlarge(places, (size_t)*count + 1, sizeof *places);
        places[(*count)++] = reached;
    }
    if (names)
        closedir(names);
    if (places)
        qsort(places, (size_t)*count, sizeof *places, compare);
    return places;
}

static bool has_token(const char *path, const char *token)
{
    if (access(path, F_OK) != 0)
        return false;
    Safetensors *file = safetensors_read_header(path);
    const char *own = safetensors_metadata(file, "token");
    bool same = own && strcmp(own, token) == 0;
    safetensors_free(file);
    return same;
}

char *find_part(const char *folder, const char *name, int rank, const char *token)
{
    char *path = part_path(folder, name, rank, token);
    if (access(path, F_OK) == 0)
        return path;
    free(path);
    path = part_path(folder, name, rank, NULL);
    if (has_token(path, token))
        return path;
    free(path);
    return NULL;
}

// The path of the first missing part of the checkpoint; NULL: it is complete.
static char *first_missing_part(const char *folder, const char *name)
{
    char *path = main_path(folder, name, NULL), *missing = NULL;
    Safetensors *file = safetensors_read_header(path);
    const char *token = safetensors_metadata(file, "token");
    const char *ranks = safetensors_metadata(file, "ranks");
    uint64_t count = 0;
    if (token && *token && ranks)
        read_whole_number(ranks, MAX_LAUNCHED, &count);
    for (int r = 0; r < (int)count && !missing; r++) {
        char *part = find_part(folder, name, r, token);
        if (!part)
            missing = part_path(folder, name, r, NULL);
        free(part);
    }
    safetensors_free(file);
    free(path);
    return missing;
}

// Whether a checkpoint is complete; stores the first missing path.
static bool is_whole(const char *folder, const char *name, char **missing)
{
    char *lacking = first_missing_part(folder, name);
    if (!lacking)
        return true;
    if (*missing)
        free(lacking);
    else
        *missing = lacking;
    return false;
}

char *furthest_checkpoint(const char *folder, char **missing)
{
    int count;
    Reached *places = list(folder, &count);
    char *best = main_path(folder, "best", NULL), *name = NULL, *lacking = NULL;
    for (int i = count - 1; i >= 0 && !name; i--) {
        name = name_of(places[i]);
        if (!is_whole(folder, name, &lacking)) {
            free(name);
            name = NULL;
        }
    }
    if (!name && access(best, F_OK) == 0 && is_whole(folder, "best", &lacking))
        name = format_text("best");
    if (missing)
        *missing = lacking;
    else
        free(lacking);
    free(places);
    free(best);
    return name;
}

// Removes those files of a checkpoint for which `goes` is true.
static void remove_files(const char *folder, const char *name,
                         bool (*goes)(const PartName *kind, const char *token, int ranks),
                         const char *token, int ranks)
{
    PartName kind;
    DIR *names = opendir(folder);
    for (const struct dirent *entry; names && (entry = readdir(names));) {
        if (!is_of(entry->d_name, name, &kind) || !goes(&kind, token, ranks))
            continue;
        char *path = format_text("%s/%s", folder, entry->d_name);
        unlink(path);
        free(path);
    }
    if (names)
        closedir(names);
}

static bool is_left_over(const PartName *kind, const char *token, int ranks)
{
    return kind->rank >= ranks || (kind->token && strcmp(kind->token, token) != 0);
}

void remove_unfinished(const char *folder, const char *name, const char *token, int ranks)
{
    remove_files(folder, name, is_left_over, token, ranks);
}

static bool is_any(const PartName *kind, const char *token, int ranks)
{
    (void)kind, (void)token, (void)ranks;
    return true;
}

void remove_older(const char *folder, int keep, const char *saved)
{
    int count;
    Reached *places = list(folder, &count);
    for (int i = 0; i < count - keep; i++) {
        char *name = name_of(places[i]), *path = main_path(folder, name, NULL);
        // The main file first: without it the parts are no checkpoint; if it can't be removed, the
        // parts stay.
        if (strcmp(name, saved) != 0 && unlink(path) == 0)
            remove_files(folder, name, is_any, NULL, 0);
        free(name);
        free(path);
    }
    free(places);
}

// The checkpoint's name of a file with a token; NULL: it is no such file. The caller frees it.
static char *name_with_token(const char *file, const char **token)
{
    PartName kind;
    const char *ending = strstr(file, ENDING "."), *rank = strstr(file, ".rank-");
    if (!ending)
        return NULL;
    const char *end = rank && rank < ending ? rank : ending;
    char *name = format_text("%.*s", (int)(end - file), file);
    if (is_of(file, name, &kind) && kind.token) {
        *token = kind.token;
        return name;
    }
    free(name);
    return NULL;
}

void remove_orphans(const char *folder, bool (*names_token)(const char *path, const char *token))
{
    DIR *names = opendir(folder);
    for (const struct dirent *entry; names && (entry = readdir(names));) {
        const char *token;
        char *name = name_with_token(entry->d_name, &token);
        if (!name)
            continue;
        char *main = main_path(folder, name, NULL),
             *path = format_text("%s/%s", folder, entry->d_name);
        if (access(main, F_OK) != 0 || !names_token(main, token))
            unlink(path);
        free(path);
        free(main);
        free(name);
    }
    if (names)
        closedir(names);
}

int sync_names(const char *folder)
{
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return errno;
    int fault = sync_file(file);
    close(file);
    return fault;
}
