// Runs mpirun as a child of this process.
//
// The stall watch (stall.h) prints a field with the rank that failed first; this process reads the
// ranks' standard error and passes it on without the fields. mpirun's exit status tells how that
// rank ended. mpirun's own messages differ between versions, so only the one about a lost host is
// read. Standard output, which may be a terminal, remains mpirun's own.

#include "comm/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "comm/job_signal.h"
#include "run/device.h"

#define TICK        50  // milliseconds between checks of mpirun
#define LAST_TICKS  60  // for messages of ranks after mpirun's end
#define LOST        10  // seconds in which a mpirun that has lost a rank or a host must end
#define NOT_STARTED 127 // as shells have it

// The same settings as common/scripts/mpi.sh, which gives the reasons. They are here, too, because
// a program may run without that script.
static void set_environment(void)
{
    static const char *const as_root[] = {
        "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"};
    for (size_t i = 0; geteuid() == 0 && i < sizeof as_root / sizeof *as_root; i++)
        setenv(as_root[i], "1", 0);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    setenv("PRTE_MCA_rmaps_default_mapping_policy", "slot:oversubscribe", 0);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    setenv("OMPI_MCA_reachable", "weighted", 0);
    setenv("GOMP_SPINCOUNT", "10000", 0);
}

// mpirun asks no batch system for hosts, nor to start its helpers there (Open MPI 4 and 5).
static void stay_here(void)
{
    static const char systems[] = "^slurm,gridengine,tm,pbs,lsf,loadleveler,alps,flux";
    static const char *const modules[] = {"OMPI_MCA_ras", "PRTE_MCA_ras", "OMPI_MCA_plm",
                                          "PRTE_MCA_plm"};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        setenv(modules[i], systems, 1);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
}

// ---- Standard error of the job.

typedef struct {
    char text[512]; // of the line that is being read
    size_t length;
    bool held; // it may be one of fields, and has not been passed on
    JobEnd *end;
} Lines;

// The first failed rank counts: the others fail because of it.
static void look_at_line(const char *line, JobEnd *end)
{
    int rank;
    if (sscanf(line, JOB_END_RANK "%d", &rank) == 1 && end->rank < 0)
        end->rank = rank;
    if (strstr(line, "lost communication with a remote daemon") || // Open MPI 4 and 5
        strstr(line, "unable to reliably start one or more daemons"))
        end->lost = true;
}

// The held bytes are no field: the rest of the line does not come.
static void pass_held(Lines *lines)
{
    if (lines->held)
        write_whole(STDERR_FILENO, lines->text, lines->length);
    lines->held = false;
}

// Passes on the available bytes, in the pieces in which they came, except what may be the beginning
// of a field; false at the end of the file.
static bool pass_on(int from, Lines *lines)
{
    static const char field[] = JOB_END_RANK;
    char bytes[4096], passed[sizeof bytes + sizeof lines->text];
    size_t kept = 0;
    ssize_t count = read(from, bytes, sizeof bytes);
    for (ssize_t i = 0; i < count; i++) {
        bool begins = lines->length == 0, ends = bytes[i] == '\n';
        if (lines->length < sizeof lines->text - 1)
            lines->text[lines->length++] = bytes[i];
        lines->text[lines->length] = '\0';
        size_t same = lines->length < sizeof field - 1 ? lines->length : sizeof field - 1;
        bool may_be_field = strncmp(lines->text, field, same) == 0;
        if (begins || lines->held) {
            lines->held = may_be_field;
            if (!may_be_field) {
                memcpy(passed + kept, lines->text, lines->length);
                kept += lines->length;
            }
        } else
            passed[kept++] = bytes[i];
        if (ends) {
            look_at_line(lines->text, lines->end);
            lines->length = 0;
            lines->held = false;
        }
    }
    write_whole(STDERR_FILENO, passed, kept); // unless the reader has closed it
    return count > 0 || (count < 0 && errno == EINTR);
}

// ---- The job.

typedef struct {
    pid_t process; // mpirun; 0 when it has ended
    int error;     // what it writes to standard error; -1 at the end of that
    int signals;
    double lost_at; // when mpirun said that it had lost a host; 0: not yet
    JobEnd end;
    Lines lines;
} MpirunJob;

static _Noreturn void become_mpirun(char *const words[], int error, int fault, const sigset_t *mask,
                                    pid_t parent, JobPlace place)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(NOT_STARTED);
    set_environment();
    device_leave();
    if (place == JOB_HERE)
        stay_here();
    dup2(error, STDERR_FILENO);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(words[0], words);
    (void)!write(fault, &errno, sizeof errno);
    _exit(NOT_STARTED);
}

static void start(MpirunJob *job, char *const words[], const sigset_t *mask, JobPlace place)
{
    int ends[2], faults[2], fault = 0; // the second pipe closes when mpirun has begun
    pid_t self = getpid();
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) != 0 || pipe2(faults, O_CLOEXEC) != 0 || (job->process = fork()) < 0)
        die("%s can't be started: %s", words[0], strerror(errno));
    if (job->process == 0)
        become_mpirun(words, ends[1], faults[1], mask, self, place);
    close(ends[1]);
    close(faults[1]);
    while (read(faults[0], &fault, sizeof fault) < 0 && errno == EINTR)
        ;
    close(faults[0]);
    if (fault != 0)
        die("%s can't be started: %s", words[0], strerror(fault));
    job->error = ends[0];
}

// The terminal sends its signals to mpirun, too, and mpirun ends at once at a second one.
static void send_on(MpirunJob *job)
{
    struct signalfd_siginfo news;
    if (read(job->signals, &news, sizeof news) != sizeof news)
        return;
    job->end.sent = (int)news.ssi_signo;
    if (job->process && news.ssi_code != SI_KERNEL)
        kill(job->process, job->end.sent);
}

static void check_end(MpirunJob *job)
{
    int status;
    pid_t ended = job->process ? waitpid(job->process, &status, WNOHANG) : 0;
    if (ended < 0) // the program has asked the system to forget its children
        die("mpirun has ended, and nobody can say how: %s", strerror(errno));
    if (ended == 0)
        return;
    job->process = 0;
    job->end.mpirun_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    job->end.status = job->end.mpirun_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// After the loss of a host, Open MPI 4's mpirun sometimes waits forever. After the loss of a rank
// mpirun aborts the job, too.
static void kill_if_lost(MpirunJob *job)
{
    if ((!job->end.lost && job->end.rank < 0) || !job->process)
        return;
    if (job->lost_at == 0)
        job->lost_at = seconds_now();
    else if (seconds_now() - job->lost_at > LOST)
        kill(job->process, SIGKILL);
}

static void wait_for_end(MpirunJob *job)
{
    for (int last = 0; job->process || (job->error >= 0 && last < LAST_TICKS);) {
        struct pollfd news[] = {{.fd = job->error, .events = POLLIN},
                                {.fd = job->signals, .events = POLLIN}};
        if (poll(news, 2, TICK) == 0) {
            pass_held(&job->lines);
            last += !job->process;
        }
        if (news[1].revents)
            send_on(job);
        if (news[0].revents && !pass_on(job->error, &job->lines)) {
            pass_held(&job->lines);
            close(job->error);
            job->error = -1;
        }
        check_end(job);
        kill_if_lost(job);
    }
    if (job->error >= 0)
        close(job->error);
}

void launch_pass(const char **words, size_t *count, const char *variable)
{
    static const char setting[] = "OMPI_MCA_mca_base_env_list";
    const char *list = getenv(setting);
    if (!list) {
        words[(*count)++] = "-x";
        words[(*count)++] = variable;
        return;
    }
    // Drop the value for an earlier job.
    size_t name = strcspn(variable, "=") + 1;
    char *others = format_text("%s", list), *longer = format_text("%s", variable), *rest;
    for (char *item = strtok_r(others, ";", &rest); item; item = strtok_r(NULL, ";", &rest))
        if (strncmp(item, variable, name) != 0)
            text_add(&longer, ";%s", item);
    setenv(setting, longer, 1);
    free(others);
    free(longer);
}

void launch_ask_fields(const char **words, size_t *count)
{
    launch_pass(words, count, JOB_END_FIELDS "=1");
}

JobEnd run_job(char *const words[], JobPlace place)
{
    MpirunJob job = {.end = {.rank = -1}};
    sigset_t ending, before;
    job.lines.end = &job.end;
    ending_signals(&ending);
    pthread_sigmask(SIG_BLOCK, &ending, &before);
    job.signals = signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job.signals < 0)
        die("%s can't be started: %s", words[0], strerror(errno));
    start(&job, words, &before, place);
    wait_for_end(&job);
    close(job.signals);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (job.end.lost && !job.end.sent) // Open MPI 5 calls it 0, and a hanging one was killed
        job.end.status = EXIT_FAILURE;
    return job.end;
}

char *job_end_text(const JobEnd *end)
{
    if (end->lost)
        return format_text("mpirun does not reach a host");
    bool signal = end->status > 128 && end->status - 128 <= SIGRTMAX; // as shells have it
    char *who = end->mpirun_signal ? format_text("mpirun")
                : end->rank >= 0   ? format_text("rank %d", end->rank)
                                   : format_text(signal ? "a rank" : "the job");
    char *text = signal ? format_text("%s was ended by signal %d (%s)", who, end->status - 128,
                                      strsignal(end->status - 128))
                        : format_text("%s ended with status %d", who, end->status);
    free(who);
    return text;
}
