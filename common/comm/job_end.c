// Signals, the launcher's process and its files; job_end.h has the contract.
//
// mpirun removes its files itself, unless it is killed by SIGKILL. Open MPI then ends the ranks
// after about a second, without a message; a rank that cleans up has to be faster.

#include "comm/job_end.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/layout.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/clock.h"
#include "base/last_words.h"
#include "base/launcher.h"

// ---- Signals.

static const struct {
    int number;
    const char *name;
} ending[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};
enum { ENDING = sizeof ending / sizeof *ending };

static atomic_int caught, sender, waker, owner;

// The interrupted thread does not continue: the signal would have ended the process here.
static void note_signal(int number, siginfo_t *information, void *unused)
{
    (void)unused;
    if (getpid() == owner && caught)
        return; // mpirun may send two; the first makes the program exit soon, whatever comes of it
    if (getpid() == owner) { // not a child that has just been forked
        sender = information->si_pid;
        caught = number;
        eventfd_write(waker, 1);
        sleep_seconds(HANDLER_WAIT);
    }
    signal(number, SIG_DFL);
    raise(number); // as soon as this function returns
}

void catch_signals(int wake)
{
    waker = wake;
    owner = getpid();
    for (int i = 0; i < ENDING; i++) {
        struct sigaction present;
        struct sigaction ours = {.sa_sigaction = note_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
        if (sigaction(ending[i].number, NULL, &present) == 0 && present.sa_handler == SIG_DFL)
            sigaction(ending[i].number, &ours, NULL);
    }
}

void release_signals(void)
{
    for (int i = 0; i < ENDING; i++) {
        struct sigaction present;
        if (sigaction(ending[i].number, NULL, &present) == 0 && (present.sa_flags & SA_SIGINFO) &&
            present.sa_sigaction == note_signal)
            signal(ending[i].number, SIG_DFL);
    }
}

void ending_signals(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < ENDING; i++)
        sigaddset(set, ending[i].number);
}

int job_signal(void)
{
    return caught;
}

const char *signal_name(int number)
{
    for (int i = 0; i < ENDING; i++)
        if (ending[i].number == number)
            return ending[i].name;
    return "a signal";
}

_Noreturn void die_by_signal(int number)
{
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
    _exit(128 + number);
}

// ---- The launcher.

// The beginning of a file, as text; "" where there is none.
static void read_beginning(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file < 0 ? 0 : read(file, text, size - 1);
    text[bytes > 0 ? bytes : 0] = '\0';
    if (file >= 0)
        close(file);
}

static struct {
    int process, parent; // 0: not known
    char folder[256];    // of the job, as mpirun named it; "": none
    int error;           // a file
    int last_error;      // the same once the launcher is gone
} launcher = {.error = STDERR_FILENO, .last_error = STDERR_FILENO};

// True if mpirun writes to a file at its own offset instead of appending: until it exits it
// overwrites text that others append.
static bool overwrites(int file)
{
    char path[64], text[128];
    struct stat kind;
    unsigned flags = 0;
    if (fstat(file, &kind) != 0 || !S_ISREG(kind.st_mode))
        return false;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/2", launcher.process);
    read_beginning(path, text, sizeof text);
    const char *at = strstr(text, "flags:");
    return !at || sscanf(at, "flags: %o", &flags) != 1 || (flags & O_APPEND) == 0;
}

// mpirun's own descriptor, with its file offset; -1: the system does not allow it.
static int borrow_stderr(void)
{
    int process = (int)syscall(SYS_pidfd_open, launcher.process, 0);
    int file = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, STDERR_FILENO, 0);
    if (process >= 0)
        close(process);
    return file;
}

static void open_stderr(void)
{
    char path[64];
    ProcessStatus status;
    if (!process_status(launcher.process, &status) || // Open MPI 5's mpirun is prterun
        (strncmp(status.name, "mpi", 3) != 0 && strcmp(status.name, "prterun") != 0))
        return; // a daemon has none that anybody reads
    snprintf(path, sizeof path, "/proc/%d/fd/2", launcher.process);
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0)
        return;
    launcher.last_error = file;
    launcher.error = overwrites(file) ? borrow_stderr() : file;
    if (launcher.error < 0)
        launcher.error = STDERR_FILENO;
}

void remember_launcher(bool speaks)
{
    const char *folder = getenv("OMPI_MCA_orte_jobfam_session_dir");
    if (!getenv("OMPI_COMM_WORLD_SIZE") || launcher_process() <= 1)
        return;
    launcher.process = launcher_process();
    launcher.parent = getppid();
    if (folder && strlen(folder) < sizeof launcher.folder)
        snprintf(launcher.folder, sizeof launcher.folder, "%s", folder);
    if (speaks)
        open_stderr();
}

bool job_signal_is_launchers(void)
{
    return launcher.process && sender == launcher.process;
}

bool job_signal_is_foreign(void)
{
    return launcher.process && sender != launcher.process;
}

// A dead process stays in the list until its parent waits for it; but this process has got another
// parent by then.
bool launcher_is_gone(void)
{
    if (!launcher.process)
        return false;
    if (launcher.parent == launcher.process)
        return getppid() != launcher.parent;
    return kill(launcher.process, 0) != 0 && errno == ESRCH;
}

int launcher_stderr(void)
{
    bool own = launcher.error == STDERR_FILENO;
    return own && launcher_is_gone() ? launcher.last_error : launcher.error;
}

// ---- What it leaves behind.

static int remove_entry(const char *path, const struct stat *entry, int kind, struct FTW *place)
{
    (void)entry;
    (void)kind;
    (void)place;
    remove(path); // or another rank has
    return 0;
}

// /proc/self/maps names the memory that this process shares with the other ranks of the machine.
static void remove_segments(void)
{
    static const char *const names[] = {"/dev/shm/vader_segment.", "/dev/shm/sm_segment."};
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) {
        char *path = strchr(line, '/');
        if (!path)
            continue;
        path[strcspn(path, " \n")] = '\0';
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strncmp(path, names[i], strlen(names[i])) == 0)
                unlink(path);
    }
    if (maps)
        fclose(maps);
}

// These allocate: where the main thread has stopped inside malloc they would wait for it.
static void end_in_any_case(void)
{
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    alarm(HANDLER_WAIT);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
}

void remove_leftovers(void)
{
    end_in_any_case();
    remove_segments();
    if (!strstr(launcher.folder, "/ompi."))
        return;
    nftw(launcher.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    // Its parent folders, up to ompi.MACHINE.USER, if no other job has files in them.
    for (char *end; (end = strrchr(launcher.folder, '/')) && strstr(launcher.folder, "/ompi.");
         *end = '\0')
        rmdir(launcher.folder);
}

// ---- Processes.

uint64_t machine_number(void)
{
    char text[64];
    struct stat space = {0};
    read_beginning("/proc/sys/kernel/random/boot_id", text, sizeof text);
    stat("/proc/self/ns/pid", &space);
    return hash_bytes((uint64_t)space.st_ino, text, strlen(text));
}

bool process_is_stopped(int process)
{
    ProcessStatus status;
    return process_status(process, &status) && (status.state == 'T' || status.state == 't');
}

// The rank in a process's environment, as Open MPI gave it; -1: none.
static int rank_in_environment(int process)
{
    static const char name[] = "OMPI_COMM_WORLD_RANK=";
    char path[64], bytes[4096];
    snprintf(path, sizeof path, "/proc/%d/environ", process);
    int file = open(path, O_RDONLY | O_CLOEXEC), rank = -1;
    size_t length = sizeof name - 1, matched = 0; // of the name; length + 1: it is another
    for (ssize_t got; file >= 0 && (got = read(file, bytes, sizeof bytes)) > 0;)
        for (ssize_t i = 0; i < got; i++) {
            if (bytes[i] == '\0')
                matched = rank < 0 ? 0 : length + 1; // the first one counts
            else if (matched == length && bytes[i] >= '0' && bytes[i] <= '9' && rank < MAX_LAUNCHED)
                rank = 10 * (rank < 0 ? 0 : rank) + bytes[i] - '0';
            else
                matched = matched < length && bytes[i] == name[matched] ? matched + 1 : length + 1;
        }
    if (file >= 0)
        close(file);
    return rank;
}

int find_neighbour_ranks(Neighbour *neighbours, int max)
{
    int children[MAX_NEIGHBOURS], found = process_children(getppid(), children, MAX_NEIGHBOURS);
    int count = 0;
    for (int i = 0; i < found && count < max; i++) {
        int rank = rank_in_environment(children[i]);
        if (rank >= 0)
            neighbours[count++] = (Neighbour){rank, children[i]};
    }
    return count;
}
