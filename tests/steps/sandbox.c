// The folders of a run, and what a program in the seal may see of them.

#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "run.h"
#include "safe_files.h"
#include "seal.h"
#include "storage.h"
#include "workplace.h"

static void make_below(const char *folder, const char *name, mode_t mode)
{
    char *path = format_text("%s/%s", folder, name);
    make_folders(path);
    if (chmod(path, mode) != 0)
        die("cannot make the folder %s: %s", path, strerror(errno));
    free(path);
}

// What a program finds as /tmp and /dev/shm.
static void make_scratch(const char *folder)
{
    make_folders(folder);
    make_below(folder, "shm", 01777);
    make_below(folder, "tmp", 01777);
}

// mpirun's files have their short name in /tmp, and count.
static void limit_temporary(Sandbox *sandbox)
{
    char *place = format_text("%s/%s", sandbox->scratch, sandbox->temporary + 1);
    make_folders(place);
    if (!storage_bind(place, sandbox->temporary))
        die("cannot limit the folder %s: %s", sandbox->temporary, strerror(errno));
    free(place);
}

static char temporary[32]; // the folder that is there now; empty: none

void sandbox_tidy_up(void)
{
    if (*temporary) {
        storage_release(temporary);
        remove_tree(temporary);
    }
    temporary[0] = '\0';
}

Sandbox sandbox_make(const char *folder)
{
    make_folders(folder);
    char name[] = TEMPORARY_BEGIN "XXXXXX";
    Sandbox sandbox = {.folder = realpath(folder, NULL)};
    if (!sandbox.folder || !mkdtemp(name))
        die("cannot make folders for a run, %s or one below /tmp: %s", folder, strerror(errno));
    memcpy(temporary, name, sizeof name);
    sandbox.temporary = format_text("%s", temporary);
    char *link = format_text("%s/" TEMPORARY_LINK, sandbox.folder);
    if (symlink(temporary, link) != 0 && errno != EPERM) // FAT has no links
        die("cannot make %s: %s", link, strerror(errno));
    free(link);
    sandbox.trace = format_text("%s-trace", sandbox.folder);
    sandbox.scratch = format_text("%s/scratch", sandbox.folder);
    sandbox.limited = seal_is_strict() && storage_limit(sandbox.folder);
    make_scratch(sandbox.scratch);
    if (sandbox.limited)
        limit_temporary(&sandbox);
    sandbox.pipes = format_text("%s/pipes", sandbox.folder);
    sandbox.work = format_text("%s/work", sandbox.folder);
    sandbox.logs = format_text("%s/logs", sandbox.temporary);
    make_folders(sandbox.trace);
    make_folders(sandbox.pipes);
    make_folders(sandbox.work);
    make_folders(sandbox.logs);
    return sandbox;
}

// A copy that failed where there is room: a program's files have paths that are too long, or rights
// that nobody has.
static bool has_room(const char *folder)
{
    struct statvfs disk;
    return statvfs(folder, &disk) == 0 && disk.f_bavail * disk.f_frsize > 16 << 20;
}

void sandbox_fill(const Sandbox *sandbox, const char *files)
{
    char *contents = format_text("%s/.", files);
    Process copy = process_run((const char *const[]){"cp", "-a", contents, sandbox->work, NULL});
    if (copy.status != 0 && !has_room(sandbox->work))
        die("cannot copy %s to %s", files, sandbox->work);
    process_free(&copy);
    free(contents);
}

void sandbox_lose(const Sandbox *sandbox, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *parent = format_text("%.*s", (int)(name - path), path);
    int work = open(sandbox->work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int folder = safe_folder(work, parent);
    if (folder >= 0) {
        unlinkat(folder, name, 0);
        close(folder);
    }
    close(work);
    free(parent);
}

Process sandbox_start(const Sandbox *sandbox, const char *const argv[], const char *const *files)
{
    return seal_start(&(View){.readable = files,
                              .writable = (const char *const[]){sandbox->work, sandbox->pipes,
                                                                sandbox->temporary, NULL},
                              .folder = sandbox->work,
                              .temporary = sandbox->temporary,
                              .scratch = sandbox->limited ? sandbox->scratch : NULL},
                      argv);
}

Process sandbox_compile(const char *compiler, const char *file, const char *copy,
                        const char *program)
{
    char *name = realpath(file, NULL), *kit = realpath(".", NULL), *own = realpath(copy, NULL),
         *tool = realpath(compiler, NULL), *folder = format_text("%s", program);
    if (!name || !kit || !own || !tool)
        die("cannot find %s, or %s, to compile it: %s", file, compiler, strerror(errno));
    *strrchr(folder, '/') = '\0';
    // Headers beside the file, and its name in messages, are for its author; others' code is
    // compiled alone.
    bool alone = seal_is_strict() || seal_chosen() != SEAL_BUBBLEWRAP;
    bool limited = seal_is_strict() && storage_limit(folder);
    char *scratch = limited ? format_text("%s/scratch", folder) : NULL;
    if (limited)
        make_scratch(scratch);
    Process process = seal_start(
        &(View){.readable = (const char *const[]){tool, seal_is_strict() ? own : tool, NULL},
                .writable = (const char *const[]){folder, NULL},
                .file = alone ? NULL : own,
                .as = name,
                .folder = kit,
                .temporary = folder,
                .scratch = scratch},
        (const char *const[]){tool, seal_is_strict() ? own : file, program,
                              runs_on_gpu() ? "check-gpu" : "check", NULL});
    free(name);
    free(kit);
    free(own);
    free(tool);
    free(folder);
    free(scratch);
    return process;
}

bool sandbox_has_children(const Process *process)
{
    return process_has_children(process, 1 + seal_depth());
}

void sandbox_free(Sandbox *sandbox)
{
    sandbox_tidy_up();
    seal_tidy_up();
    free(sandbox->folder);
    free(sandbox->trace);
    free(sandbox->pipes);
    free(sandbox->work);
    free(sandbox->logs);
    free(sandbox->temporary);
    free(sandbox->scratch);
    *sandbox = (Sandbox){0};
}
