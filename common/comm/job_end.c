// The launcher's process and its files, and the job's other processes; job_end.h has the contract.
//
// mpirun removes its files itself, unless it is killed by SIGKILL. Open MPI then ends the ranks
// after about a second, without a message; a rank that cleans up has to be faster.

#include "comm/job_end.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/process.h"
#include "base/last_words.h"
#include "base/launcher.h"

// ---- The launcher.

static struct {
    int process, parent; // 0: not known
    char folder[256];    // of the job, as mpirun named it; "": none
    int error;           // its stderr
} launcher = {.error = STDERR_FILENO};

static void open_stderr(void)
{
    char path[64];
    ProcessStatus status;
    if (!process_status(launcher.process, &status) || // Open MPI 5's mpirun is prterun
        (strncmp(status.name, "mpi", 3) != 0 && strcmp(status.name, "prterun") != 0))
        return; // nobody reads a daemon's
    snprintf(path, sizeof path, "/proc/%d/fd/2", launcher.process);
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file >= 0)
        launcher.error = file;
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

int known_launcher(void)
{
    return launcher.process;
}

int launcher_stderr(void)
{
    return launcher.error;
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

// A hash of the boot id and a namespace.
static uint64_t number_of_space(const char *path)
{
    char text[64];
    struct stat space = {0};
    size_t length = file_beginning("/proc/sys/kernel/random/boot_id", text, sizeof text);
    stat(path, &space);
    return length > 0 ? hash_bytes((uint64_t)space.st_ino, text, length) : 0;
}

uint64_t machine_number(void)
{
    return number_of_space("/proc/self/ns/pid");
}

uint64_t clock_number(void)
{
    return number_of_space("/proc/self/ns/time");
}

bool process_is_stopped(int process)
{
    ProcessStatus status;
    return process_status(process, &status) && (status.state == 'T' || status.state == 't');
}

// The rank in a process's environment, as Open MPI gave it; -1: none.
static int rank_in_environment(int process)
{
    static const char name[] = "\0OMPI_COMM_WORLD_RANK=";
    static char bytes[1 + (1 << 18)]; // "\0NAME=VALUE\0NAME=VALUE...", which may be long
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", process);
    size_t length = 1 + file_beginning(path, bytes + 1, sizeof bytes - 1);
    const char *at = memmem(bytes, length, name, sizeof name - 1);
    return at ? (int)strtol(at + sizeof name - 1, NULL, 10) : -1;
}

// The neighbour of that number, a new one if there is none and there is room.
static Neighbour *neighbour(Neighbours *all, int rank)
{
    for (int i = 0; i < all->count; i++)
        if (all->of[i].rank == rank)
            return &all->of[i];
    if (all->count == MAX_NEIGHBOURS)
        return NULL;
    all->of[all->count] = (Neighbour){.rank = rank};
    return &all->of[all->count++];
}

// A rank may be several processes: a shell that runs the program has its environment.
void find_neighbours(const char *thread, Neighbours *all)
{
    static int processes[MAX_PROCESSES];
    int seen = process_list(processes, MAX_PROCESSES);
    all->count = 0;
    for (int i = 0; i < seen && launcher.process; i++) {
        int process = processes[i];
        int rank = launcher_above(process) == launcher.process ? rank_in_environment(process) : -1;
        Neighbour *found = rank >= 0 ? neighbour(all, rank) : NULL;
        if (!found)
            continue;
        found->stopped = found->stopped || process_is_stopped(process);
        found->has_thread = found->has_thread || process_has_thread(process, thread);
    }
}
