// Small things that every layer needs; util.h says what each of them promises. Nothing here calls
// MPI: the rank is what the launcher wrote into the environment.

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include "base/process.h"
#include "base/role.h"

#define ALIGNMENT   64
#define MAX_NODE    999  // in a layout
#define MAX_MESSAGE 4096 // bytes of a line on standard error

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
// Needs no memory, for that may be what is missing.
static void say(const char *prefix, const char *format, va_list arguments)
{
    char message[MAX_MESSAGE];
    vsnprintf(message, sizeof message, format, arguments);
    keep_to_one_line(message);
    fprintf(stderr, "%s: %s%s\n", program_name(), prefix, message);
}

static void (*end_job)(int status) = _exit;

void set_job_end(void (*function)(int status))
{
    end_job = function;
}

// The last words of the process, if the job still lives to hear them.
static void say_last(const char *format, va_list arguments)
{
    // Several threads may find the same fault; the first one speaks for the process.
    static atomic_flag ending = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&ending))
        pause();

    char prefix[32] = "";
    int rank = launcher_rank();
    Role role = role_from_environment();
    if (role.kind && !launched()) { // nobody ends it because another has left
        snprintf(prefix, sizeof prefix, "%s %d: ", role_name(role.kind), role.number);
    } else if (rank != 0) {
        snprintf(prefix, sizeof prefix, "rank %d: ", rank);
        // mpirun ends the ranks a second after the root has left, by a signal that may be handled.
        sleep_seconds(1.5);
    }
    fflush(stdout);
    say(prefix, format, arguments);
}

// Not exit(): an exit handler that ends MPI would wait for ranks that know of no fault.
_Noreturn static void leave(int status)
{
    end_job(status);
    _exit(status);
}

void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_last(format, arguments);
    va_end(arguments);
    leave(STATUS_USER_MUST);
}

void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_last(format, arguments);
    va_end(arguments);
    leave(STATUS_INCOMPLETE);
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

// ---- What got lost on the way.

enum { MAX_LOSSES = 8 };
static struct {
    atomic_int count;
    char lines[MAX_LOSSES][512];
} losses;

void ends_incomplete(const char *format, ...)
{
    int number = atomic_fetch_add(&losses.count, 1);
    if (number >= MAX_LOSSES)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(losses.lines[number], sizeof losses.lines[number], format, arguments);
    va_end(arguments);
}

int losses_so_far(void)
{
    return losses.count;
}

// Whether the file that the launcher prints to can't take any more.
static bool launcher_output_is_full(void)
{
    char path[64];
    struct stat file;
    struct statvfs disk;
    snprintf(path, sizeof path, "/proc/%d/fd/1", launcher_process());
    if (stat(path, &file) != 0)
        return false;
    if (S_ISCHR(file.st_mode))
        return file.st_rdev == makedev(1, 7); // /dev/full, as Linux numbers it
    if (!S_ISREG(file.st_mode) || statvfs(path, &disk) != 0 || disk.f_blocks == 0)
        return false;
    return (geteuid() == 0 ? disk.f_bfree : disk.f_bavail) == 0;
}

void watch_output(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (launched() && launcher_rank() == 0 && launcher_output_is_full() &&
        !atomic_flag_test_and_set(&said))
        ends_incomplete("mpirun could not write all of standard output: its disk was full");
}

void process_end(int status)
{
    if (status != EXIT_SUCCESS) // and the reason has been said
        return;
    if (fflush(stdout) != 0 || ferror(stdout))
        ends_incomplete("standard output could not be written");
    watch_output();
    int count = losses.count;
    if (count == 0)
        return;
    for (int i = 0; i < count && i < MAX_LOSSES; i++)
        fprintf(stderr, "%s: %s\n", program_name(), losses.lines[i]);
    fflush(NULL);
    _exit(STATUS_INCOMPLETE);
}

// A standard stream that is closed would be taken by the first file that is opened, and what is
// printed then goes into that file. So its place is taken, by something that can't be written.
void process_begin(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
        if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

void check_failed(const char *condition, const char *file, int line)
{
    fflush(stdout);
    fprintf(stderr, "%s: rank %d: %s:%d: internal error: assertion failed: %s\n", program_name(),
            launcher_rank(), file, line, condition);
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

void *enlarge(void *memory, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        die("out of memory: %zu objects of %zu bytes are more than there can be", count, size);
    void *larger = realloc(memory, bytes > 0 ? bytes : 1);
    if (!larger)
        die("out of memory: there are no %zu bytes left", bytes);
    return larger;
}

bool has_room(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return false;
    munmap(room, bytes);
    return true;
}

void need_room(size_t bytes, const char *what)
{
    if (!has_room(bytes))
        die("out of memory: there are no %zu MiB left, which %s may need", bytes >> 20, what);
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

FloatText float_text(float number)
{
    FloatText result;
    int digits = 6;
    do
        snprintf(result.text, sizeof result.text, "%.*g", digits++, (double)number);
    while (digits <= 9 && strtof(result.text, NULL) != number);
    return result;
}

char *ranks_text(const int *ranks, int count)
{
    char *text = format_text(count == 1 ? "rank " : "ranks ");
    for (int first = 0, last; first < count; first = last + 1) {
        for (last = first; last + 1 < count && ranks[last + 1] == ranks[last] + 1;)
            last++;
        if (last == first + 1) // two are no range
            last = first;
        const char *separator = first == 0 ? "" : last == count - 1 ? " and " : ", ";
        char *longer = first == last
                           ? format_text("%s%s%d", text, separator, ranks[first])
                           : format_text("%s%s%d-%d", text, separator, ranks[first], ranks[last]);
        free(text);
        text = longer;
    }
    return text;
}

char *numbers_text(const int *numbers, int count)
{
    char *text = allocate((size_t)count + 1, sizeof "-2147483648,"), *end = text;
    for (int i = 0; i < count; i++)
        end += sprintf(end, "%s%d", i ? "," : "", numbers[i]);
    return text;
}

static void make_folder(const char *path)
{
    struct stat status;
    if (mkdir(path, 0777) == 0)
        return;
    int reason = errno; // stat would overwrite it
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        die("cannot create the folder %s: %s", path, strerror(reason));
}

void make_folders(const char *path)
{
    char *part = format_text("%s", path);
    for (char *slash = part; (slash = strchr(slash, '/')); slash++) {
        if (slash == part)
            continue; // the root folder
        *slash = '\0';
        make_folder(part);
        *slash = '/';
    }
    make_folder(part);
    free(part);
}

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void sleep_seconds(double seconds)
{
    if (!(seconds > 0))
        return;
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

bool read_whole_number(const char *text, uint64_t largest, uint64_t *number)
{
    if (*text == '\0' || text[strspn(text, "0123456789")] != '\0')
        return false;
    errno = 0;
    *number = strtoull(text, NULL, 10);
    return errno == 0 && *number <= largest;
}

// The value of an environment variable that holds a whole number from 0 to `limit`, else -1.
static long environment_number(const char *name, long limit)
{
    const char *text = secure_getenv(name);
    uint64_t number;
    return text && read_whole_number(text, (uint64_t)limit, &number) ? (long)number : -1;
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
    return from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
                         launched() ? 0 : role_rank());
}

int launcher_size(void)
{
    return from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", role_size());
}

bool launched(void)
{
    return from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", 0) > 0;
}

int environment_count(const char *name, int most)
{
    const char *text = secure_getenv(name);
    if (!text || !*text)
        return 0;
    long number = environment_number(name, most);
    if (number < 1)
        die("%s=%.40s is not a whole number from 1 to %d", name, text, most);
    return (int)number;
}

// The variables of one kind of launcher; NULL: it has none for this.
typedef struct {
    const char *rank, *size, *local_rank, *local_size;
} LauncherNames;

// One of them: a whole number from `least` to `most`, or `otherwise` where it is not set.
static int check_variable(const char *name, int least, int most, int otherwise)
{
    const char *text = name ? secure_getenv(name) : NULL;
    if (!text || !*text)
        return otherwise;
    long number = environment_number(name, most);
    if (number < least)
        die("%s=%.40s is not a whole number from %d to %d, as a launcher says it of a rank; start "
            "the program by mpirun, or without its variables",
            name, text, least, most);
    return (int)number;
}

static void check_names(const LauncherNames *names)
{
    int size = check_variable(names->size, 1, MAX_LAUNCHED, MAX_LAUNCHED);
    check_variable(names->rank, 0, size - 1, 0);
    int local_size = check_variable(names->local_size, 1, size, size);
    check_variable(names->local_rank, 0, local_size - 1, 0);
}

// Who takes a launcher's numbers for true counts with them, and allocates by them.
void launcher_check(void)
{
    static const LauncherNames open_mpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE"};
    static const LauncherNames pmi = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
    static const LauncherNames slurm = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL};
    check_names(&open_mpi);
    check_names(&pmi);
    if (started_by_srun())
        check_names(&slurm);
    if (launcher_rank() >= launcher_size())
        die("the launcher's variables say rank %d of %d; start the program by mpirun, or without "
            "them",
            launcher_rank(), launcher_size());
}

// One item of a list of Slurm's, "3" or "2(x4)", the latter standing for four nodes: its number,
// and for how many nodes it stands. Returns where the next item begins, or NULL where this is none.
static const char *slurm_item(const char *text, int *number, int *nodes)
{
    int length = 0;
    *nodes = 1;
    // Seven digits at most: more would not fit, and no node has so many tasks.
    if (sscanf(text, "%7d(x%7d)%n", number, nodes, &length) != 2 || length == 0)
        if (sscanf(text, "%7d%n", number, &length) != 1)
            return NULL;
    text += length;
    if (*number < 1 || *nodes < 1 || *number > MAX_LAUNCHED)
        return NULL;
    return *text == ',' ? text + 1 : *text == '\0' ? text : NULL;
}

// How many tasks of the step are on this node: "2(x3),1" is two on each of three nodes and one on
// the fourth. 1 where Slurm does not tell.
static int slurm_local_size(void)
{
    const char *list = secure_getenv("SLURM_STEP_TASKS_PER_NODE");
    if (!list || !*list)
        list = secure_getenv("SLURM_TASKS_PER_NODE"); // of the job: the step has none of its own
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

// Where nothing is simulated.
static Place true_place(void)
{
    if (place_by_mpi.local_size > 0)
        return place_by_mpi;
    launcher_check(); // the program may have changed what stood there before main
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
    launcher_check();
    int rank = launcher_rank(), size = launcher_size(), node_of_rank = -1;
    Place place = {.nodes = 1};
    for (int pass = 0; pass < 2; pass++) { // the first finds this rank's node
        const char *at = layout;
        for (int r = 0; r < size; r++) {
            int node = next_node(&at);
            if (node < 0)
                die("HVD_LAYOUT=%.200s does not name a node for each of %d ranks, as 0,0,1 does "
                    "for three (0 to %d)",
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
    const char *layout = secure_getenv("HVD_LAYOUT");
    if (layout && *layout)
        return place_in_layout(layout);
    int ranks_per_node = environment_count("HVD_RANKS_PER_NODE", MAX_LAUNCHED);
    if (!ranks_per_node)
        return true_place();
    launcher_check();
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

NodeName node_name(int node)
{
    NodeName name;
    if (node < 100 || node > MAX_NODE)
        snprintf(name.text, sizeof name.text, "node-%d", node);
    else
        snprintf(name.text, sizeof name.text, "node-%d-%c", node % 100, 'a' + node / 100);
    return name;
}

bool simulates_nodes(void)
{
    const char *layout = secure_getenv("HVD_LAYOUT");
    const char *ranks_per_node = secure_getenv("HVD_RANKS_PER_NODE");
    return (layout && *layout) || (ranks_per_node && *ranks_per_node);
}

int launcher_above(int process)
{
    static const char *const launchers[] = {"mpirun", "mpiexec", "orte",      "prte",
                                            "prun",   "hydra",   "slurmstepd"};
    ProcessStatus status = {0};
    process_status(process, &status);
    const int parent = status.parent;
    for (int above = parent; above >= 1 && process_status(above, &status); above = status.parent)
        for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
            if (strncmp(status.name, launchers[i], strlen(launchers[i])) == 0)
                return above;
    return parent;
}

int launcher_process(void)
{
    return launched() ? launcher_above(getpid()) : -1;
}
