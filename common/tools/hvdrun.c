// hvdrun: starts a job as mpirun does, and starts it again from its last checkpoint when a rank
// dies. A job that ends with status 0 is done, one with status 2 needs a change by its user:
// neither is restarted.
//
// From the second start on HVDLAB_RESUME=1 is in the environment, which a program of the kit that
// has a --checkpoint-dir takes as --resume (parse_args). Before it, nothing of the old job is left:
// orphans of a mpirun that was killed become children of this process, which ends them.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/process.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/format.h"
#include "base/launcher.h"
#include "hvd/checkpoint_folder.h"
#include "comm/launch.h"

#define PATIENCE     2000 // milliseconds in which orphans may end themselves
#define MAX_ORPHANS  1024 // killed at a time
#define MAX_RESTARTS 1000000

static const char usage[] =
    "Usage: hvdrun [--restarts R] [-np N] [--hostfile FILE] PROGRAM [WORD]...\n\n"
    "Starts N workers of PROGRAM by mpirun, and again, at most R times (3), when one of them "
    "dies:\n"
    "then with HVDLAB_RESUME=1, which programs take as --resume where they have a\n"
    "--checkpoint-dir. A job that ends with status 0 or 2 is not started again. The status is the\n"
    "last job's. mpirun reads FILE at each start, so a host that is gone may be deleted from it.\n";

typedef struct {
    long restarts;
    const char *ranks, *hostfile; // NULL: mpirun's own choice
    char **program;               // and its words, the last one NULL
} Command;

// ---- The command line.

static long need_number(const char *option, const char *text, long least, long most)
{
    long number = whole_number(text, most);
    if (number < least)
        die("%s must be a whole number from %ld to %ld, not '%s'", option, least, most, text);
    return number;
}

// Looks for the program as mpirun does: mpirun prints no clear message if it is missing.
static void check_program(const char *name)
{
    const char *path = getenv("PATH");
    bool found = strchr(name, '/') && access(name, X_OK) == 0;
    for (const char *at = path; !strchr(name, '/') && at && *at && !found;) {
        size_t length = strcspn(at, ":");
        char *file = format_text("%.*s/%s", (int)length, at, name);
        found = access(file, X_OK) == 0;
        free(file);
        at += length + (at[length] == ':');
    }
    if (!found)
        die("there is no program %s that can be run", name);
}

static Command read_command(char **argv)
{
    Command command = {.restarts = 3};
    char **at = argv + 1;
    for (; *at && **at == '-'; at += 2) {
        if (strcmp(*at, "--help") == 0) {
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        }
        bool ranks = strcmp(*at, "-np") == 0 || strcmp(*at, "-n") == 0;
        bool restarts = strcmp(*at, "--restarts") == 0, hostfile = strcmp(*at, "--hostfile") == 0;
        if (!ranks && !restarts && !hostfile)
            die("unknown option %s; --help lists them", *at);
        if (!at[1])
            die("%s lacks its value", *at);
        if (ranks && need_number(*at, at[1], 1, MAX_LAUNCHED))
            command.ranks = at[1];
        if (restarts)
            command.restarts = need_number(*at, at[1], 0, MAX_RESTARTS);
        if (hostfile)
            command.hostfile = at[1];
    }
    if (!*at)
        die("which program? --help shows how to call it");
    check_program(*at);
    command.program = at;
    return command;
}

// The words of mpirun, which the caller frees.
static char **mpirun_words(const Command *command, bool again)
{
    size_t count = 0, most = 8;
    for (char **word = command->program; *word; word++)
        most++;
    const char **words = allocate(most, sizeof *words);
    words[count++] = "mpirun";
    if (again) { // also for ranks on other machines
        words[count++] = "-x";
        words[count++] = "HVDLAB_RESUME=1";
    }
    if (command->ranks) {
        words[count++] = "-np";
        words[count++] = command->ranks;
    }
    if (command->hostfile) {
        words[count++] = "--hostfile";
        words[count++] = command->hostfile;
    }
    for (char **word = command->program; *word; word++)
        words[count++] = *word;
    return (char **)words;
}

// ---- Between two jobs.

static void kill_children(void)
{
    int children[MAX_ORPHANS], count = process_children(getpid(), children, MAX_ORPHANS);
    for (int i = 0; i < count; i++)
        kill(children[i], SIGKILL);
}

// Returns when no child is left.
static void end_orphans(void)
{
    double begin = seconds_now();
    for (pid_t ended; (ended = waitpid(-1, NULL, WNOHANG)) >= 0;) {
        if (ended > 0)
            continue;
        if (seconds_now() - begin > PATIENCE / 1000.0)
            kill_children();
        usleep(10000);
    }
}

// The program's --checkpoint-dir; NULL: none found.
static const char *checkpoint_folder(char **words)
{
    static const char flag[] = "--checkpoint-dir";
    const char *folder = NULL;
    for (; *words; words++) {
        if (strncmp(*words, flag, sizeof flag - 1) != 0)
            continue;
        if ((*words)[sizeof flag - 1] == '=')
            folder = *words + sizeof flag;
        else if (words[1])
            folder = words[1];
    }
    return folder;
}

// "rank 1 was ended by signal 9 (Killed): restart 1 of 3, from ckpts/ckpt-2"
static void say_restart(const Command *command, const JobEnd *end, long restart)
{
    char *how = job_end_text(end);
    const char *folder = checkpoint_folder(command->program);
    char *name = folder ? furthest_checkpoint(folder, 0, NULL) : NULL;
    char *place = name     ? format_text(", from %s/%s", folder, name)
                  : folder ? format_text(", from the beginning: %s holds no checkpoint", folder)
                           : format_text("%s", "");
    fprintf(stderr, "hvdrun: %s: restart %ld of %ld%s\n", how, restart, command->restarts, place);
    free(place);
    free(name);
    free(how);
}

// Whether the job is to be started again.
static bool goes_on(const Command *command, const JobEnd *end, long restart)
{
    if (end->status == EXIT_SUCCESS || (end->status == STATUS_USER_MUST && !end->lost) || end->sent)
        return false;
    if (restart < command->restarts) {
        say_restart(command, end, restart + 1);
        return true;
    }
    char *how = job_end_text(end);
    fprintf(stderr, "hvdrun: %s, after %ld restart%s\n", how, restart, restart == 1 ? "" : "s");
    free(how);
    return false;
}

int main(int argc, char **argv)
{
    (void)argc;
    Command command = read_command(argv);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    JobEnd end;
    long restart = 0;
    do {
        char **words = mpirun_words(&command, restart > 0);
        end = run_job(words, JOB_ANYWHERE);
        free(words);
        end_orphans();
    } while (goes_on(&command, &end, restart++));
    return end.status;
}
