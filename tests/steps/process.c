// A program that is watched, and ended for certain.

#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/process.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "memory_limit.h"

#define PATIENCE           2.0 // seconds between asking a program to end and ending it
#define STATUS_INTERRUPTED 130
#define MAX_TEXT           ((size_t)1 << 20) // bytes of what a program prints that are kept
#define MAX_FILE           ((rlim_t)1 << 28) // bytes that a program may write into one

static volatile sig_atomic_t interrupted;
static void (*tidy_up)(void);
static void (*in_child)(void); // NULL: nothing

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void process_prepare(void (*function)(void))
{
    tidy_up = function;
    const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = interrupt};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
    const struct rlimit file = {MAX_FILE, MAX_FILE}, core = {0, 0};
    setrlimit(RLIMIT_FSIZE, &file);
    setrlimit(RLIMIT_CORE, &core);
    // What mpirun started becomes this process's child when mpirun is gone, and so can be found.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

#ifdef __SANITIZE_ADDRESS__ // which reserves terabytes, and touches little
static void limit_memory(const char *limit)
{
    (void)limit;
}
#else
static void limit_memory(const char *limit)
{
    // Not the address space, of which CUDA reserves more than there is memory.
    const struct rlimit data = {MAX_PROCESS_MEMORY, MAX_PROCESS_MEMORY};
    setrlimit(RLIMIT_DATA, &data);
    if (limit)
        memory_limit_join(limit);
}
#endif

// What a child does first; the signal ends it when this program is killed outright.
static void begin_child(int output, pid_t parent, int signal_number)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, signal_number);
    if (getppid() != parent)
        _exit(STATUS_INTERRUPTED);
    int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
}

// A child, in which pid is 0, whose output comes from the process's pipe.
static Process begin_process(const char *name, int signal_number)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        die("cannot make a pipe: %s", strerror(errno));
    fflush(NULL); // else the child would print what waits in this process's buffers once more
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        die("cannot start %s: %s", name, strerror(errno));
    if (pid == 0)
        begin_child(ends[1], parent, signal_number);
    else
        setpgid(pid, pid); // here too, since either may come first
    close(ends[1]);
    return (Process){.pid = pid, .pipe = ends[0]};
}

// What the child does until it is another program.
static _Noreturn void become(const char *const argv[], const char *limit)
{
    limit_memory(limit);
    if (in_child)
        in_child();
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

void process_in_child(void (*function)(void))
{
    in_child = function;
}

Process process_start(const char *const argv[])
{
    char *limit = memory_limit_begin(MAX_PROCESS_MEMORY);
    Process process = begin_process(argv[0], SIGTERM);
    if (process.pid == 0)
        become(argv, limit);
    process.limit = limit;
    return process;
}

static _Noreturn void call(void (*function)(void *), void *argument)
{
    for (int signal_number = 1; signal_number < NSIG; signal_number++)
        signal(signal_number, SIG_DFL);
    set_abort_handler(_exit);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    function(argument);
    fflush(stdout);
    _exit(ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS);
}

Process process_call(void (*function)(void *), void *argument)
{
    Process process = begin_process("a process", SIGKILL);
    if (process.pid == 0)
        call(function, argument);
    return process;
}

static void keep_text(Process *process, const char *text, size_t bytes)
{
    process->text = enlarge(process->text, process->bytes + bytes + 1, 1);
    char *end = process->text + process->bytes;
    for (size_t i = 0; i < bytes; i++)
        end[i] = text[i] ? text[i] : '?'; // a '\0' would end it for the reader
    end[bytes] = '\0';
    process->bytes += bytes;
}

static void take_text(Process *process)
{
    char buffer[16384];
    ssize_t bytes = read(process->pipe, buffer, sizeof buffer);
    if (bytes < 0 && errno == EINTR)
        return;
    if (bytes <= 0) {
        close(process->pipe);
        process->pipe = -1;
        return;
    }
    size_t room = MAX_TEXT - process->bytes, more = (size_t)bytes;
    process->flooded = process->flooded || more > room;
    keep_text(process, buffer, more < room ? more : room);
}

// Waits for text; true where there was some, or where no more can come.
static bool wait_for_text(Process *process, int milliseconds)
{
    struct pollfd wanted = {.fd = process->pipe, .events = POLLIN};
    if (poll(&wanted, 1, milliseconds) <= 0)
        return false;
    take_text(process);
    return true;
}

static void look_for_end(Process *process)
{
    int status;
    if (process->ended || waitpid(process->pid, &status, WNOHANG) != process->pid)
        return;
    process->ended = true;
    process->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void wait_for_news(Process *process, int milliseconds)
{
    wait_for_text(process, milliseconds);
    look_for_end(process);
    // What was printed last; more than that no one waits for, since what the program left behind
    // may hold the pipe open.
    while (process->ended && process->pipe >= 0 && wait_for_text(process, 0))
        continue;
}

void process_wait(Process *process, int milliseconds)
{
    wait_for_news(process, milliseconds);
    if (interrupted) {
        process_stop(process);
        tidy_up();
        _exit(STATUS_INTERRUPTED);
    }
}

// ---- Children.

#define MAX_CHILDREN 1024

static bool has_living(pid_t parent, int generations)
{
    int children[MAX_CHILDREN], count = process_children(parent, children, MAX_CHILDREN);
    bool any = false;
    for (int i = 0; i < count && !any; i++) {
        ProcessStatus status;
        any = generations > 1 ? has_living(children[i], generations - 1)
                              : process_status(children[i], &status) && status.state != 'Z';
    }
    return any;
}

bool process_has_children(const Process *process, int generations)
{
    return has_living(process->pid, generations);
}

// Whose own children are then this process's. True where there were any.
static bool end_children(void)
{
    int children[MAX_CHILDREN], count = process_children(getpid(), children, MAX_CHILDREN);
    bool any = false;
    for (int i = 0; i < count; i++) {
        kill(children[i], SIGKILL);
        any = waitpid(children[i], NULL, 0) == children[i] || any;
    }
    return any;
}

void process_kill(Process *process)
{
    if (!process->ended)
        kill(process->pid, SIGKILL);
    while (!process->ended) {
        usleep(1000);
        look_for_end(process);
    }
}

void process_stop(Process *process)
{
    const int signals[] = {SIGTERM, SIGKILL};
    for (int i = 0; i < 2 && !process->ended; i++) {
        kill(-process->pid, signals[i]);
        double end = seconds_now() + PATIENCE;
        while (!process->ended && seconds_now() < end) {
            if (process->pipe < 0)
                usleep(10000);
            wait_for_news(process, 50);
        }
    }
    while (end_children())
        continue;
    process->out_of_memory = memory_limit_end(process->limit) || process->out_of_memory;
    process->limit = NULL;
}

Process process_end_within(Process process, double seconds)
{
    double end = seconds_now() + seconds;
    while (!process.ended && seconds_now() < end)
        process_wait(&process, 1000);
    process_stop(&process);
    return process;
}

Process process_run(const char *const argv[])
{
    return process_end_within(process_start(argv), INFINITY);
}

void process_free(Process *process)
{
    if (process->pipe >= 0)
        close(process->pipe);
    free(process->text);
    *process = (Process){.pipe = -1, .ended = true};
}
