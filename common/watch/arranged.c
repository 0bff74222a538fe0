// What a check arranges, from the environment (arranged.h).

#include "watch/arranged.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/launcher.h"
#include "base/layout.h"
#include "base/numbers.h"
#include "base/role.h"

struct dirent *__real_readdir(DIR *folder); // system_calls.c

static struct {
    char event[32]; // of the kill,
    int number;     // its N; 0: there is none
    int full;       // 0: it never is
    int late;       // 1 + the number of the host that sees all names; below 1: all hosts do
    bool synchronous;
} all;

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && strcmp(value, "1") == 0;
}

void arranged_read(void)
{
    static const char *const names[] = {"HVDLAB_KILL", "HVDLAB_FULL", "HVDLAB_LATE_NAMES",
                                        "HVDLAB_SYNCHRONOUS_SENDS"};
    const char *kill = getenv("HVDLAB_KILL");
    int rank;
    if (!kill || sscanf(kill, "%d:%31[a-z_]:%d", &rank, all.event, &all.number) != 3 ||
        rank != launcher_rank())
        all.number = 0;
    all.full = (int)environment_number("HVDLAB_FULL", INT_MAX);
    all.late = (int)environment_number("HVDLAB_LATE_NAMES", INT_MAX);
    all.synchronous = is_set("HVDLAB_SYNCHRONOUS_SENDS");
    bool is_rank = launched() || role_from_environment().kind != ROLE_NONE;
    for (size_t i = 0; is_rank && i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

bool is_arranged(void)
{
    return all.number > 0 || all.full > 0 || all.late > 0 || all.synchronous;
}

// ---- At an event.

static void kill_at(const char *event)
{
    static atomic_int before;
    if (all.number > 0 && strcmp(all.event, event) == 0 &&
        atomic_fetch_add(&before, 1) + 1 == all.number)
        raise(SIGKILL);
}

// The disk is full from one call of write_checkpoint to the next: the bytes do not reach it.
static atomic_bool full;

static void fill_disk_at(const char *event, const char *text)
{
    static atomic_int calls;
    if (all.full > 0 && strcmp(event, "call") == 0 && text && strcmp(text, "write_checkpoint") == 0)
        full = atomic_fetch_add(&calls, 1) + 1 == all.full;
}

void arranged_by_event(const char *event, const char *text)
{
    kill_at(event);
    fill_disk_at(event, text);
}

bool disk_is_full(int file)
{
    struct stat status;
    return full && fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}

// ---- Names.

// The progress of a checkpoint with this main file, as a name that strverscmp orders: "ckpt-3", or
// "ckpt-3-120" in the middle of an epoch. Empty: it is no such file.
typedef struct {
    char text[64];
} CheckpointName;

static CheckpointName checkpoint_name(const char *file)
{
    CheckpointName name = {""};
    char rest[32];
    if (sscanf(file, "%63[ckpt0-9-].%31s", name.text, rest) != 2 ||
        strcmp(rest, "safetensors") != 0)
        return (CheckpointName){""};
    return name;
}

// A second reading of the folder, beside the program's own reading.
static bool is_last(DIR *folder, const CheckpointName *name)
{
    DIR *again = fdopendir(openat(dirfd(folder), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    bool last = again != NULL;
    for (const struct dirent *entry; last && (entry = __real_readdir(again));)
        last = strverscmp(checkpoint_name(entry->d_name).text, name->text) <= 0;
    if (again)
        closedir(again);
    return last;
}

bool name_is_late(DIR *folder, const char *file)
{
    int host = launcher_place().node + 1 - all.late;
    if (all.late < 1 || host == 0)
        return false;
    CheckpointName name = checkpoint_name(file);
    return *name.text && (host > 1 || is_last(folder, &name));
}

// ---- Messages.

bool sends_are_synchronous(void)
{
    return all.synchronous;
}
