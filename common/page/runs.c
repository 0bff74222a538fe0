// Which files of a folder are traces of the newest run, and whether their processes live.

#include "page/runs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/format.h"
#include "base/json.h"
#include "base/numbers.h"
#include "base/process.h"

// From its first line.
static bool read_start(const char *path, RunFile *file)
{
    char *line = NULL;
    size_t room = 0;
    FILE *stream = fopen(path, "re");
    cJSON *event = stream && getline(&line, &room, stream) > 0 ? cJSON_Parse(line) : NULL;
    bool found = event && strcmp(json_text(event, "event"), "start") == 0;
    double time = json_number(event, "time");
    if (found) {
        snprintf(file->job, sizeof file->job, "%s", json_text(event, "job"));
        snprintf(file->program, sizeof file->program, "%s", json_text(event, "program"));
        snprintf(file->locked_on, sizeof file->locked_on, "%s", json_text(event, "locked_on"));
        file->time = time > 0 ? time : 0;
        file->size = (int)json_number(event, "size");
    }
    if (stream)
        fclose(stream);
    cJSON_Delete(event);
    free(line);
    return found;
}

static int by_number(const void *a, const void *b)
{
    return ((const RunFile *)a)->number - ((const RunFile *)b)->number;
}

const Folder *read_folder(const char *path)
{
    static Folder folder;
    folder = (Folder){0};
    DIR *entries = opendir(path);
    for (const struct dirent *entry;
         entries && folder.count < MAX_FILES && (entry = readdir(entries));) {
        RunFile *file = &folder.files[folder.count];
        uint64_t number;
        const char *end = strncmp(entry->d_name, "rank-", 5) == 0
                              ? read_digits(entry->d_name + 5, MAX_FILES - 1, &number)
                              : NULL;
        if (!end || strcmp(end, ".jsonl") != 0 || (entry->d_name[5] == '0' && number > 0))
            continue;
        file->number = (int)number;
        char *name = format_text("%s/%s", path, entry->d_name);
        folder.count += read_start(name, file);
        free(name);
    }
    if (entries)
        closedir(entries);
    qsort(folder.files, (size_t)folder.count, sizeof *folder.files, by_number);
    for (int i = 0; i < folder.count; i++)
        if (!folder.newest || folder.files[i].time > folder.newest->time)
            folder.newest = &folder.files[i];
    return &folder;
}

bool is_of(const RunFile *file, const RunFile *run)
{
    return strcmp(file->job, run->job) == 0 && file->number < run->size;
}

char *other_files(const Folder *folder)
{
    char *names = NULL;
    for (int i = 0; i < folder->count; i++)
        if (!is_of(&folder->files[i], folder->newest))
            text_add(&names, "%srank-%d.jsonl", names ? ", " : "", folder->files[i].number);
    return names;
}

Life life_of(const RunFile *file, const char *path)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int descriptor = *file->locked_on ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool asked = descriptor >= 0 && fcntl(descriptor, F_GETLK, &lock) == 0;
    if (descriptor >= 0)
        close(descriptor);
    if (asked && lock.l_type != F_UNLCK)
        return RUNS;
    return asked && strcmp(file->locked_on, machine_name().text) == 0 ? GONE : NOT_KNOWN;
}
