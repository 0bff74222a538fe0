// A function of this program, run by workers that are started for it.
//
// Workers get it as an offset from the program's load address, which differs in each process.
// Argument and result are files in memory (memfd), which the workers open by /proc: nothing is left
// of them when a process dies.
//
// A worker runs the function before main (start.c) and never reaches main: no main has to know of
// this.

#include "comm/hvd_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "base/format.h"
#include "comm/comm.h"
#include "comm/job_signal.h"
#include "comm/launch.h"
#include "comm/world.h"
#include "observe/trace.h"

#define ORDER "HVDLAB_RUN" // of workers: PROCESS:ARGUMENT:RESULT:DISTANCE

enum { MAX_WORKERS = 1024 }; // processes of one machine

typedef char *Function(const char *argument);

// ---- Function offsets.

typedef struct {
    uintptr_t base;     // of the program
    uintptr_t distance; // from there
    bool is_code;       // there is code of the program
} CodePlace;

// The program itself is the first one in the list.
static int look_at_program(struct dl_phdr_info *program, size_t size, void *to)
{
    (void)size;
    CodePlace *place = to;
    place->base = program->dlpi_addr;
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &program->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0 &&
            place->distance - part->p_vaddr < part->p_memsz)
            place->is_code = true;
    }
    return 1;
}

static CodePlace place_at(uintptr_t distance)
{
    CodePlace place = {.distance = distance};
    dl_iterate_phdr(look_at_program, &place);
    return place;
}

// ---- Texts in memory: nothing for NULL, else with the zero at its end.

static int make_text(const char *text)
{
    int file = memfd_create(ORDER, MFD_CLOEXEC);
    if (file < 0 || (text && !write_whole(file, text, strlen(text) + 1)))
        die("hvd_run: no workers can be started: %s", strerror(errno));
    return file;
}

// The caller frees it.
static char *read_text(int file)
{
    struct stat status = {0};
    if (fstat(file, &status) != 0 || status.st_size == 0)
        return NULL;
    char *text = allocate((size_t)status.st_size + 1, 1);
    for (off_t at = 0, now; at < status.st_size; at += now)
        if ((now = pread(file, text + at, (size_t)(status.st_size - at), at)) <= 0)
            break;
    return text;
}

// ---- A worker.

static int open_theirs(int process, int file, int flags)
{
    char *path = format_text("/proc/%d/fd/%d", process, file);
    int mine = open(path, flags | O_CLOEXEC);
    if (mine < 0)
        die("%s: the program that started this worker is gone", ORDER);
    free(path);
    return mine;
}

static void give_result(int process, int file, const char *result)
{
    int theirs = open_theirs(process, file, O_WRONLY);
    if (!write_whole(theirs, result, strlen(result) + 1))
        give_up("the result can't be given back: %s", strerror(errno));
    close(theirs);
}

void hvd_run_work(void)
{
    const char *order = getenv(ORDER);
    int process, argument_file, result_file;
    uintptr_t distance;
    if (!order || !launched())
        return;
    if (sscanf(order, "%d:%d:%d:%" SCNxPTR, &process, &argument_file, &result_file, &distance) != 4)
        die("%s=%s makes no sense; hvd_run sets it, for workers", ORDER, order);
    CodePlace place = place_at(distance);
    if (!place.is_code)
        die("%s=%s is of another program than this one", ORDER, order);
    unsetenv(ORDER); // not for programs that it starts
    hvd_init();
    int file = open_theirs(process, argument_file, O_RDONLY);
    char *argument = read_text(file);
    close(file);
    bool root = hvd_rank() == 0; // the function may end with hvd_shutdown()
    char *result = ((Function *)(place.base + place.distance))(argument);
    if (result && root)
        give_result(process, result_file, result);
    free(result);
    free(argument);
    exit(EXIT_SUCCESS);
}

// ---- The program.

static void check_call(int np, Function *function)
{
    if (launched())
        die("hvd_run: mpirun has started this program already; start it without");
    if (world_started())
        die("hvd_run: hvd_init() makes this program the only worker of a job; leave it out, "
            "the workers' job is initialized when the function is called");
    if (np < 1 || np > MAX_WORKERS)
        die("hvd_run: %d workers; there must be at least 1, and at most %d", np, MAX_WORKERS);
    if (!function)
        die("hvd_run: there is no function (NULL)");
}

static uintptr_t distance_to(Function *function)
{
    CodePlace place = place_at((uintptr_t)function - place_at(0).base);
    if (!place.is_code)
        die("hvd_run: the function has to be one of the program itself, not of a library");
    return place.distance;
}

// The caller frees it.
static char *path_of_program(void)
{
    static const char deleted[] = " (deleted)";
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    size_t ending = sizeof deleted - 1, count = strlen(path);
    if (count > ending && strcmp(path + count - ending, deleted) == 0)
        die("hvd_run: the program's file has been removed, or built again, since it was started");
    return format_text("%s", path);
}

// The job has ended, so the program exits.
static _Noreturn void end_as(const JobEnd *end)
{
    fflush(stdout);
    if (end->sent)
        die_by_signal(end->sent);
    if (end->status != STATUS_INCOMPLETE &&
        end->status != STATUS_USER_MUST) { // these have said why
        char *how = job_end_text(end);
        fprintf(stderr, "%s: hvd_run: %s\n", program_name(), how);
        free(how);
    }
    exit(end->status);
}

char *hvd_run(int np, Function *function, const char *argument)
{
    check_call(np, function);
    uintptr_t distance = distance_to(function);
    int argument_file = make_text(argument), result_file = make_text(NULL);
    char *program = path_of_program();
    char *ranks = format_text("%d", np);
    char *order = format_text("%s=%d:%d:%d:%" PRIxPTR, ORDER, (int)getpid(), argument_file,
                              result_file, distance);
    char *host = format_text("localhost:%d", np);
    const char *words[14] = {"mpirun", "--host", host, "-np", ranks};
    size_t count = 5;
    launch_pass(words, &count, order);
    char *traced = trace_setting_for_workers();
    if (traced)
        launch_pass(words, &count, traced);
    launch_ask_fields(words, &count);
    words[count] = program;
    JobEnd end = run_job((char **)words, JOB_HERE);
    free(traced);
    if (end.status != EXIT_SUCCESS || end.sent)
        end_as(&end);
    char *result = read_text(result_file);
    close(argument_file);
    close(result_file);
    free(program);
    free(ranks);
    free(host);
    free(order);
    return result;
}
