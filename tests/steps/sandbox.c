// Folders, and bubblewrap.

#include "sandbox.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/util.h"

#define MOST_WORDS 64

static void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        die("cannot make the folder %s: %s", path, strerror(errno));
}

// Runs a command to its end; its status.
static int run_command(const char *const argv[])
{
    Process process = process_start(argv);
    while (!process.ended)
        process_wait(&process, 1000);
    process_stop(&process);
    int status = process.status;
    process_free(&process);
    return status;
}

// Whether bubblewrap works here: a container may forbid it. Asked once.
static bool can_seal(void)
{
    static int answer = -1;
    if (answer < 0)
        answer = run_command((const char *const[]){
                     "bwrap", "--unshare-pid", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev",
                     "--tmpfs", "/dev/shm", "--proc", "/proc", "true", NULL}) == 0;
    return answer;
}

static char temporary[32]; // the folder that is there now; empty: none

static int remove_entry(const char *path, const struct stat *entry, int kind, struct FTW *place)
{
    (void)entry;
    (void)kind;
    (void)place;
    return remove(path);
}

// Where this program gives up in the middle of a check.
static void tidy_up_and_exit(int status)
{
    sandbox_tidy_up();
    _exit(status);
}

void sandbox_tidy_up(void)
{
    if (*temporary)
        nftw(temporary, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    temporary[0] = '\0';
}

Sandbox sandbox_make(const char *folder)
{
    make_folder(folder);
    set_job_end(tidy_up_and_exit);
    snprintf(temporary, sizeof temporary, "/tmp/hvdlab-XXXXXX");
    Sandbox sandbox = {.folder = realpath(folder, NULL), .sealed = can_seal()};
    if (!sandbox.folder || !mkdtemp(temporary))
        die("cannot make folders for a run: %s", strerror(errno));
    sandbox.temporary = format_text("%s", temporary);
    sandbox.trace = format_text("%s/trace", sandbox.folder);
    sandbox.work = format_text("%s/work", sandbox.folder);
    make_folder(sandbox.trace);
    make_folder(sandbox.work);
    return sandbox;
}

void sandbox_fill(const Sandbox *sandbox, const char *files)
{
    char *contents = format_text("%s/.", files);
    if (run_command((const char *const[]){"cp", "-a", contents, sandbox->work, NULL}) != 0)
        die("cannot copy %s to %s", files, sandbox->work);
    free(contents);
}

Process sandbox_start(const Sandbox *sandbox, const char *const argv[])
{
    const char *const sealed[] = {"bwrap", "--die-with-parent",
                                  "--unshare-pid", // kill(-1) reaches the run alone
                                  "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev",
                                  // Ranks meet there under names made of mpirun's process number,
                                  // which is the same in every such run.
                                  "--tmpfs", "/dev/shm", "--proc", "/proc", "--bind",
                                  sandbox->folder, sandbox->folder, "--bind", sandbox->temporary,
                                  sandbox->temporary, "--chdir", sandbox->work, NULL};
    const char *const open[] = {"env", "--chdir", sandbox->work, NULL};
    const char *words[MOST_WORDS];
    int count = 0;
    for (const char *const *word = sandbox->sealed ? sealed : open; *word; word++)
        words[count++] = *word;
    for (; *argv; argv++) {
        CHECK(count < MOST_WORDS - 1);
        words[count++] = *argv;
    }
    words[count] = NULL;
    setenv("HOME", sandbox->work, 1);
    setenv("TMPDIR", sandbox->temporary, 1);
    return process_start(words);
}

bool sandbox_has_children(const Sandbox *sandbox, const Process *process)
{
    return process_has_children(process, sandbox->sealed ? 3 : 1); // bwrap and its init stay above
}

void sandbox_free(Sandbox *sandbox)
{
    sandbox_tidy_up();
    free(sandbox->folder);
    free(sandbox->trace);
    free(sandbox->work);
    free(sandbox->temporary);
    *sandbox = (Sandbox){0};
}
