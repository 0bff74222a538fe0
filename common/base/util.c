// Small things that every layer needs; util.h says what each of them promises. Nothing here calls
// MPI: the rank is what the launcher wrote into the environment.

#include "base/util.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ALIGNMENT        64
#define MAX_NODE         999
#define STATUS_USER_MUST 2 // the exit status for what the program's user must change

const char *program_name(void)
{
    return program_invocation_short_name;
}

// A text may quote what a user typed, a line break included; one message stays one line.
static void keep_to_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == '\x7f')
            *text = '?';
}

// Prints "PROGRAM: PREFIX MESSAGE" by a single call, so that the lines of several ranks don't mix.
static void say(const char *prefix, const char *format, va_list arguments)
{
    char *message = NULL;
    if (vasprintf(&message, format, arguments) < 0) {
        fprintf(stderr, "%s: %s%s\n", program_name(), prefix, format);
        return;
    }
    keep_to_one_line(message);
    fprintf(stderr, "%s: %s%s\n", program_name(), prefix, message);
    free(message);
}

static void (*end_job)(int status) = _exit;

void set_job_end(void (*function)(int status))
{
    end_job = function;
}

void die(const char *format, ...)
{
    // Several threads may find the same fault; the first one speaks for the process.
    static atomic_flag dying = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&dying))
        pause();

    char prefix[32] = "";
    int rank = launcher_rank();
    if (rank != 0) {
        snprintf(prefix, sizeof prefix, "rank %d: ", rank);
        usleep(1500000); // mpirun ends the ranks a second after the root has left
    }
    fflush(stdout);
    va_list arguments;
    va_start(arguments, format);
    say(prefix, format, arguments);
    va_end(arguments);
    // Not exit(): an exit handler that ends MPI would wait for ranks that know of no fault.
    end_job(STATUS_USER_MUST);
    _exit(STATUS_USER_MUST);
}

void warn(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say("warning: ", format, arguments);
    va_end(arguments);
}

void warn_on_root(const char *format, ...)
{
    if (launcher_rank() != 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    say("warning: ", format, arguments);
    va_end(arguments);
}

void note_on_root(const char *format, ...)
{
    if (launcher_rank() != 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    say("note: ", format, arguments);
    va_end(arguments);
}

void check_failed(const char *condition, const char *file, int line)
{
    fflush(stdout);
    fprintf(stderr, "%s: rank %d: %s:%d: the library is wrong here: %s does not hold\n",
            program_name(), launcher_rank(), file, line, condition);
    abort();
}

void *allocate(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - ALIGNMENT)
        die("out of memory: %zu objects of %zu bytes are more than there can be", count, size);

    // aligned_alloc wants a multiple of the alignment; nothing at all is still a valid block.
    size_t rounded = bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, rounded);
    if (!memory)
        die("out of memory: there are no %zu bytes left", bytes);
    return memset(memory, 0, rounded);
}

// The leak sanitizer's own, where the program is built with it.
#pragma GCC visibility push(default)
__attribute__((weak)) void __lsan_ignore_object(const void *memory);
#pragma GCC visibility pop

void lives_until_exit(const void *memory)
{
    if (memory && __lsan_ignore_object)
        __lsan_ignore_object(memory);
}

char *format_text(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        die("out of memory: there is none for a line of text");
    return text;
}

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The value of an environment variable that holds a whole number from 0 to `limit`, else -1.
static long environment_number(const char *name, long limit)
{
    const char *text = getenv(name);
    if (!text || *text < '0' || *text > '9')
        return -1;
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && number <= limit ? number : -1;
}

// Slurm's variables describe this process only in a step that srun started. The shell of a job
// has them too, as if it were task 0 of many; it belongs to no step, or to one of those that
// Slurm numbers from the top of 32 bits.
static bool started_by_srun(void)
{
    const long first_special_step = 0xfffffff0;
    return environment_number("SLURM_STEP_ID", first_special_step - 1) >= 0;
}

// The first of the launchers' variables that is there. The order matters: mpirun may itself have
// been started by srun, and then Slurm's variables count nodes, not ranks. A name may be NULL.
static int from_launcher(const char *open_mpi, const char *pmi, const char *slurm, int otherwise)
{
    long number = environment_number(open_mpi, INT_MAX);
    if (number < 0)
        number = environment_number(pmi, INT_MAX);
    if (number < 0 && slurm && started_by_srun())
        number = environment_number(slurm, INT_MAX);
    return number < 0 ? otherwise : (int)number;
}

int launcher_rank(void)
{
    return from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", 0);
}

int launcher_size(void)
{
    return from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", 1);
}

bool launched(void)
{
    return from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", 0) > 0;
}

int environment_count(const char *name)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return 0;
    long number = environment_number(name, INT_MAX);
    if (number < 1)
        die("%s=%s is not a whole number from 1", name, text);
    return (int)number;
}

// One item of a list of Slurm's, "3" or "2(x4)", the latter standing for four nodes: its number,
// and for how many nodes it stands. Returns where the next item begins, or NULL where this is none.
static const char *slurm_item(const char *text, int *number, int *nodes)
{
    int length = 0;
    *nodes = 1;
    if (sscanf(text, "%d(x%d)%n", number, nodes, &length) != 2 || length == 0)
        if (sscanf(text, "%d%n", number, &length) != 1)
            return NULL;
    text += length;
    if (*number < 1 || *nodes < 1)
        return NULL;
    return *text == ',' ? text + 1 : *text == '\0' ? text : NULL;
}

// How many tasks of the step are on this node: "2(x3),1" is two on each of three nodes and one on
// the fourth. 1 where Slurm does not tell.
static int slurm_local_size(void)
{
    const char *list = getenv("SLURM_STEP_TASKS_PER_NODE");
    if (!list || !*list)
        list = getenv("SLURM_TASKS_PER_NODE"); // of the job, where the step has none of its own
    long node = environment_number("SLURM_NODEID", INT_MAX);
    if (!started_by_srun() || !list)
        return 1;
    for (int tasks, nodes; list && *list; node -= nodes) {
        list = slurm_item(list, &tasks, &nodes);
        if (list && node < nodes)
            return tasks;
    }
    return 1;
}

// What MPI says, once it runs.
static Place place_by_mpi; // local_size 0: not yet

void set_place(int local_rank, int local_size)
{
    place_by_mpi = (Place){.local_rank = local_rank, .local_size = local_size, .nodes = 1};
}

// Where nothing is pretended.
static Place true_place(void)
{
    if (place_by_mpi.local_size > 0)
        return place_by_mpi;
    return (Place){
        .local_rank =
            from_launcher("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", 0),
        .local_size = from_launcher("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", NULL,
                                    slurm_local_size()),
        .nodes = 1,
    };
}

// The next number of a list with commas between them; moves *at behind it. -1: there is none.
static int next_node(const char **at)
{
    if (**at < '0' || **at > '9')
        return -1;
    char *end;
    errno = 0;
    long node = strtol(*at, &end, 10);
    bool separated = *end == ',' && end[1] != '\0';
    if (errno || node > MAX_NODE || (!separated && *end != '\0'))
        return -1;
    *at = end + separated;
    return (int)node;
}

static Place place_in_layout(const char *layout)
{
    int rank = launcher_rank(), size = launcher_size(), node_of_rank = -1;
    Place place = {.nodes = 1};
    for (int pass = 0; pass < 2; pass++) { // the first finds this rank's node
        const char *at = layout;
        for (int r = 0; r < size; r++) {
            int node = next_node(&at);
            if (node < 0)
                die("HVD_LAYOUT=%s does not name a node for each of %d ranks, as 0,0,1 does for "
                    "three (0 to %d)",
                    layout, size, MAX_NODE);
            if (r == rank)
                node_of_rank = node;
            place.nodes = node >= place.nodes ? node + 1 : place.nodes;
            place.local_rank += pass == 1 && node == node_of_rank && r < rank;
            place.local_size += pass == 1 && node == node_of_rank;
        }
    }
    place.node = node_of_rank;
    return place;
}

Place launcher_place(void)
{
    const char *layout = getenv("HVD_LAYOUT");
    if (layout && *layout)
        return place_in_layout(layout);
    int ranks_per_node = environment_count("HVD_RANKS_PER_NODE");
    if (!ranks_per_node)
        return true_place();
    int rank = launcher_rank(), size = launcher_size();
    int nodes = size / ranks_per_node + (size % ranks_per_node != 0);
    int node = rank % nodes;
    return (Place){
        .local_rank = rank / nodes,
        .local_size = size / nodes + (node < size % nodes),
        .node = node,
        .nodes = nodes,
    };
}

bool pretends_nodes(void)
{
    const char *layout = getenv("HVD_LAYOUT"), *ranks_per_node = getenv("HVD_RANKS_PER_NODE");
    return (layout && *layout) || (ranks_per_node && *ranks_per_node);
}

bool look_at_process(int process, char name[64], int *parent)
{
    char *path = format_text("/proc/%d/stat", process);
    FILE *file = fopen(path, "re");
    free(path);
    if (!file)
        return false;
    bool found = fscanf(file, "%*d (%63[^)]) %*c %d", name, parent) == 2;
    fclose(file);
    return found;
}

int launcher_above(int process)
{
    static const char *const launchers[] = {"mpirun", "mpiexec", "orte",      "prte",
                                            "prun",   "hydra",   "slurmstepd"};
    char name[64];
    int parent = 0;
    look_at_process(process, name, &parent);
    for (int above = parent, next; above >= 1 && look_at_process(above, name, &next); above = next)
        for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
            if (strncmp(name, launchers[i], strlen(launchers[i])) == 0)
                return above;
    return parent;
}

int launcher_process(void)
{
    return launched() ? launcher_above(getpid()) : -1;
}
