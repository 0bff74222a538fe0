// What power cuts may leave of a folder of checkpoints, made from the list that powercut.c wrote,
// and looked at.
//
//     cuts LOG OUT                  after each line of the list, in each way: a line for what is
//                                   wrong, and how many were looked at
//     cuts LOG OUT CUT WAY          makes the folder OUT as it may be after so many lines
//
// A disk has for certain what was synced: bytes of files, names of the folder. Of the calls since
// the folder was synced, which made, renamed or removed names, it has none, all, or some; of bytes
// that were not synced none, half or all. There must always be one whole checkpoint: the one that
// was the latest when the program last said that it had saved (before: none), or the next one.

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/rng.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/format.h"
#include "hvd/checkpoint_folder.h"
#include "train/checkpoint_file.h"

enum { MAX_LINES = 4096, MAX_NAMES = 64, NAME = 128, WAYS = 12, CONTENTS = 3, LATEST = 0, BEST };

typedef enum { CREATE, SYNCED, FOLDER, RENAME, UNLINK, RETURNED } Call;
static const char *const calls[] = {"create", "synced", "folder", "rename", "unlink", "returned"};

// A line of the list. A file keeps its number whatever its name is.
typedef struct {
    Call call;
    char name[NAME], other[NAME]; // the second of a rename; the data of what was synced
    int file;
} Line;

static Line lines[MAX_LINES];
static int line_count;
static const char *log_folder;

// ---- A folder: names of files.

typedef struct {
    struct {
        char name[NAME];
        int file;
    } entries[MAX_NAMES];
    int count;
} Folder;

static int find(const Folder *folder, const char *name)
{
    for (int i = 0; i < folder->count; i++)
        if (strcmp(folder->entries[i].name, name) == 0)
            return i;
    return -1;
}

static void remove_name(Folder *folder, const char *name)
{
    int i = find(folder, name);
    if (i >= 0)
        folder->entries[i] = folder->entries[--folder->count];
}

static void add_name(Folder *folder, const char *name, int file)
{
    remove_name(folder, name);
    CHECK(folder->count < MAX_NAMES);
    snprintf(folder->entries[folder->count].name, NAME, "%s", name);
    folder->entries[folder->count++].file = file;
}

// Does to the folder what a call did.
static void apply(Folder *folder, const Line *line)
{
    if (line->call == CREATE)
        add_name(folder, line->name, line->file);
    if (line->call == RENAME || line->call == UNLINK)
        remove_name(folder, line->name);
    if (line->call == RENAME)
        add_name(folder, line->other, line->file);
}

// ---- The list.

static void read_lines(void)
{
    char *path = format_text("%s/log", log_folder), text[1024], call[16];
    FILE *log = fopen(path, "r");
    Folder now = {0};
    if (!log)
        die("%s: %s", path, strerror(errno));
    while (fgets(text, sizeof text, log)) {
        CHECK(line_count < MAX_LINES);
        Line *line = &lines[line_count];
        sscanf(text, "%15s %127s %127s", call, line->name, line->other);
        while (strcmp(call, calls[line->call]) != 0)
            line->call++;
        int known = find(&now, line->name);
        if (known < 0 && (line->call == SYNCED || line->call == RENAME))
            die("%s:%d: nobody has created %s", path, line_count + 1, line->name);
        line->file = line->call == CREATE || known < 0 ? line_count : now.entries[known].file;
        apply(&now, line);
        line_count++;
    }
    fclose(log);
    free(path);
}

// What the file's bytes are after `cut` lines, for certain; or, with `later`, what they were to be.
// NULL: there never were any.
static const char *data_of(int file, int cut, bool later)
{
    const char *data = NULL;
    for (int i = 0; i < line_count && (i < cut || (later && !data)); i++)
        if (lines[i].call == SYNCED && lines[i].file == file)
            data = lines[i].other;
    return data;
}

// ---- A cut.

// Ways to lose: names, of which none, all, or some are there; and bytes.
static bool is_there(int way, Rng *rng)
{
    int names = way / CONTENTS;
    return names == 1 || (names > 1 && rng_uniform(rng) < 0.5f);
}

static Folder folder_after(int cut, int way)
{
    Folder certain = {0}, left;
    Rng rng = rng_stream_of((uint64_t)way, RNG_SYNTHETIC_DATA, (uint64_t)cut);
    int synced = 0;
    for (int i = 0; i < cut; i++)
        if (lines[i].call == FOLDER)
            synced = i;
    for (int i = 0; i < synced; i++)
        apply(&certain, &lines[i]);
    left = certain;
    for (int i = synced; i < cut; i++)
        if (is_there(way, &rng))
            apply(&left, &lines[i]);
    return left;
}

static char *read_bytes(const char *path, size_t *count)
{
    FILE *file = fopen(path, "r");
    struct stat status;
    if (!file || fstat(fileno(file), &status) != 0)
        die("%s: %s", path, strerror(errno));
    char *bytes = allocate((size_t)status.st_size + 1, 1);
    *count = fread(bytes, 1, (size_t)status.st_size, file);
    fclose(file);
    return bytes;
}

static void make_file(const char *out, const char *name, int file, int cut, int way)
{
    const char *data = data_of(file, cut, false), *later = data_of(file, cut, true);
    size_t count = 0;
    char *bytes = NULL, *path = format_text("%s/%s", out, name);
    if (later) {
        char *from = format_text("%s/%s", log_folder, later);
        bytes = read_bytes(from, &count);
        free(from);
    }
    if (!data)
        count = count * (size_t)(way % CONTENTS) / 2;
    FILE *to = fopen(path, "w");
    if (!to || fwrite(bytes, 1, count, to) != count || fclose(to) != 0)
        die("%s: %s", path, strerror(errno));
    free(bytes);
    free(path);
}

static void remove_files(const char *folder)
{
    DIR *names = opendir(folder);
    for (const struct dirent *entry; names && (entry = readdir(names));) {
        char *path = format_text("%s/%s", folder, entry->d_name);
        unlink(path);
        free(path);
    }
    if (names)
        closedir(names);
}

static void make_folder(const char *out, int cut, int way)
{
    Folder left = folder_after(cut, way);
    make_folders(out);
    remove_files(out);
    for (int i = 0; i < left.count; i++)
        make_file(out, left.entries[i].name, left.entries[i].file, cut, way);
}

// ---- Whether it is as it has to be.

// The main file that the program had as the latest, or as the best, after so many lines: its
// number; -1: none.
static int main_file_at(int cut, int which)
{
    Folder now = {0};
    int file = -1, furthest_epoch = -1, furthest_step = -1;
    for (int i = 0; i < cut; i++)
        apply(&now, &lines[i]);
    for (int i = 0; i < now.count; i++) {
        const char *name = now.entries[i].name, *ending = strchr(name, '.');
        int epoch = 0, step = 0;
        bool is_main = ending && strcmp(ending, ".safetensors") == 0;
        bool is_best = is_main && strncmp(name, "best.", 5) == 0;
        bool is_numbered = is_main && sscanf(name, "ckpt-%d-%d", &epoch, &step) >= 1;
        bool further = epoch > furthest_epoch || (epoch == furthest_epoch && step > furthest_step);
        if (which == BEST ? is_best : is_numbered ? further : is_best && furthest_epoch < 0)
            file = now.entries[i].file;
        if (is_numbered && further) {
            furthest_epoch = epoch;
            furthest_step = step;
        }
    }
    return file;
}

static bool has_bytes_of(const char *path, int file)
{
    size_t count, other_count;
    const char *data = file < 0 ? NULL : data_of(file, line_count, false);
    if (!data)
        return false;
    char *data_path = format_text("%s/%s", log_folder, data);
    char *bytes = read_bytes(path, &count), *other = read_bytes(data_path, &other_count);
    bool same = count == other_count && memcmp(bytes, other, count) == 0;
    free(data_path);
    free(bytes);
    free(other);
    return same;
}

// Reads the main file and all of its parts, as restore_checkpoint does, which ends this process
// where one is not whole.
static void read_checkpoint(const char *out, const char *name)
{
    char *path = main_path(out, name, NULL);
    Safetensors *file = read_checkpoint_file(path);
    const char *token = safetensors_metadata(file, "token");
    for (int rank = 0; rank < atoi(safetensors_metadata(file, "ranks")); rank++) {
        char *part = part_path(out, name, rank, token);
        if (access(part, F_OK) != 0)
            part = part_path(out, name, rank, NULL);
        Safetensors *own = read_checkpoint_file(part);
        if (strcmp(safetensors_metadata(own, "token"), token) != 0)
            die("%s is another checkpoint's", part);
        safetensors_free(own);
        free(part);
    }
    safetensors_free(file);
    free(path);
}

static void check(const char *out, const char *name, int before, int after)
{
    char *path = name ? main_path(out, name, NULL) : NULL;
    bool there = path && access(path, F_OK) == 0;
    if (!there && before >= 0)
        die("there is no %s any more", name ? name : "checkpoint");
    if (!there)
        return;
    if (!has_bytes_of(path, before) && !has_bytes_of(path, after))
        die("%s is neither the last one nor the next", name);
    read_checkpoint(out, name);
    free(path);
}

// In a process of its own, since what is wrong ends it. True: nothing is.
static bool is_whole(const char *out, int cut, int way)
{
    int last = 0, next = cut;
    for (int i = 0; i < cut; i++)
        if (lines[i].call == RETURNED)
            last = i;
    while (next < line_count && lines[next].call != RETURNED)
        next++;
    fflush(stdout);
    pid_t process = fork();
    if (process == 0) {
        make_folder(out, cut, way);
        check(out, furthest_checkpoint(out, NULL), main_file_at(last, LATEST),
              main_file_at(next, LATEST));
        check(out, "best", main_file_at(last, BEST), main_file_at(next, BEST));
        _exit(0);
    }
    int status = 1;
    waitpid(process, &status, 0);
    if (status != 0)
        printf("after line %d of the list, lost in way %d\n", cut, way);
    return status == 0;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 5)
        die("usage: cuts LOG OUT [CUT WAY]");
    log_folder = argv[1];
    read_lines();
    if (argc == 5) {
        make_folder(argv[2], atoi(argv[3]), atoi(argv[4]));
        return 0;
    }
    int wrong = 0;
    for (int cut = 0; cut <= line_count; cut++)
        for (int way = 0; way < WAYS; way++)
            wrong += !is_whole(argv[2], cut, way);
    printf("%d lines, %d ways each: %d wrong\n", line_count, WAYS, wrong);
    return wrong > 0;
}
