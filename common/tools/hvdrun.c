// hvdrun: starts a job as mpirun does, and starts it again from its last checkpoint when a rank
// dies. A job that ends with status 0 is done, one with status 2 needs a change by its user:
// neither is restarted.
//
// From the second start on HVDLAB_RESUME=1 is in the environment, which a program of the kit that
// has a --checkpoint-dir takes as --resume (parse_args). Before it, nothing of the old job is left:
// orphans of a mpirun that was killed become children of this process, which ends them.

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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

static bool can_run(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0;
}

// Looks for the program as mpirun does: mpirun prints no clear message if it is missing.
static void check_program(const char *name)
{
    const char *path = strchr(name, '/') ? NULL : getenv("PATH");
    bool found = strchr(name, '/') && can_run(name);
    for (char *folder; !found && path && (folder = next_part(&path, ":")); free(folder)) {
        char *file = format_text("%s/%s", folder, name);
        found = can_run(file);
        free(file);
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
    for (char **word = at; *word; word++)
        if (strcmp(*word, ":") == 0)
            die("hvdrun runs one program; mpirun alone takes several, with ':' between them");
    command.program = at;
    return command;
}

// The words of mpirun, which the caller frees.
static char **mpirun_words(const Command *command, bool again)
{
    size_t count = 0, most = 10;
    for (char **word = command->program; *word; word++)
        most++;
    const char **words = allocate(most, sizeof *words);
    words[count++] = "mpirun";
    if (again) // also for ranks on other machines
        launch_pass(words, &count, "HVDLAB_RESUME=1");
    launch_ask_fields(words, &count);
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

// Children that this process has had from the beginning: those of a shell that became it.
typedef struct {
    int of[MAX_ORPHANS], count;
} Children;

static Children earlier;

static Children children_now(void)
{
    Children all;
    all.count = process_children(getpid(), all.of, MAX_ORPHANS);
    return all;
}

static bool was_there(int child)
{
    for (int i = 0; i < earlier.count; i++)
        if (earlier.of[i] == child)
            return true;
    return false;
}

// Ended children go, and the others of the job are killed if `kills`; false: none was left.
static bool look_at_orphans(bool kills)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    int left = 0;
    Children all = children_now();
    for (int i = 0; i < all.count; i++)
        if (!was_there(all.of[i])) {
            left++;
            if (kills)
                kill(all.of[i], SIGKILL);
        }
    return left > 0;
}

static void end_orphans(void)
{
    double begin = seconds_now();
    while (look_at_orphans(seconds_now() - begin > PATIENCE / 1000.0))
        usleep(10000);
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

// The last checkpoint that can be read; the caller frees it, NULL: there is none. A child looks for
// it: a file that is none would end this process, and the job that resumes names it.
static char *last_checkpoint(const char *folder)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return NULL;
    pid_t child = fork();
    if (child == 0) {
        int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(nothing, STDERR_FILENO);
        char *name = furthest_checkpoint(folder, NULL);
        _exit(name && write(ends[1], name, strlen(name)) < 0);
    }
    close(ends[1]);
    char name[256] = "";
    ssize_t length = child > 0 ? read(ends[0], name, sizeof name - 1) : 0;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return length > 0 ? format_text("%s", name) : NULL;
}

// "rank 1 was ended by signal 9 (Killed): restart 1 of 3, from ckpts/ckpt-2"
static void say_restart(const Command *command, const JobEnd *end, long restart)
{
    char *how = job_end_text(end);
    const char *folder = checkpoint_folder(command->program);
    char *name = folder ? last_checkpoint(folder) : NULL;
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
    earlier = children_now();
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
