// The timeline's file: whether it is asked for, the ranks' clocks, the writing. Each rank formats
// its spans in the root's time; the root writes all. By PMPI, so that the timeline does not show
// it.

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/format.h"
#include "base/setting.h"
#include "comm/agreement.h"
#include "comm/job_end.h"
#include "run/device.h"
#include "observe/timeline.h"
#include "comm/timeline_file.h"
#include "comm/world.h"

enum { TAG_CLOCK = 100, TAG_LINES }; // on the channel of the metrics, beside the table of ranks

// How far this rank's clock is ahead of the root's, and the time of that measurement by this rank's
// clock.
typedef struct {
    int64_t at, ahead;
} Reading;

static struct {
    char *path; // absolute; NULL: no timeline is asked for
    bool written;
    Reading first, last; // equal if both ranks use the same clock
} job;

static MPI_Comm comm(void)
{
    return world_comm(WORLD_METRICS);
}

// ---- Clocks.

// The fastest exchange is the most precise: the answer came near its middle (Mills, "Internet time
// synchronization", 1991).
enum { EXCHANGES = 16 };

static void measure(int rank)
{
    Reading reading = {0};
    int64_t shortest = INT64_MAX;
    for (int i = 0; i < EXCHANGES; i++) {
        int64_t there, begin = timeline_clock();
        PMPI_Send(&begin, 1, MPI_INT64_T, rank, TAG_CLOCK, comm());
        PMPI_Recv(&there, 1, MPI_INT64_T, rank, TAG_CLOCK, comm(), MPI_STATUS_IGNORE);
        int64_t took = timeline_clock() - begin;
        if (took < shortest)
            reading = (Reading){there, there - (begin + took / 2)};
        shortest = took < shortest ? took : shortest;
    }
    PMPI_Send(&reading, 2, MPI_INT64_T, rank, TAG_CLOCK, comm());
}

static Reading answer_clock(void)
{
    Reading reading;
    for (int i = 0; i < EXCHANGES; i++) {
        int64_t now;
        PMPI_Recv(&now, 1, MPI_INT64_T, 0, TAG_CLOCK, comm(), MPI_STATUS_IGNORE);
        now = timeline_clock();
        PMPI_Send(&now, 1, MPI_INT64_T, 0, TAG_CLOCK, comm());
    }
    PMPI_Recv(&reading, 2, MPI_INT64_T, 0, TAG_CLOCK, comm(), MPI_STATUS_IGNORE);
    return reading;
}

// Compares the clocks of all ranks with the root's. Collective.
static Reading compare_clocks(void)
{
    uint64_t own = clock_number(), roots = own;
    PMPI_Bcast(&roots, 1, MPI_UINT64_T, 0, comm());
    int other = world_rank() != 0 && (own == 0 || own != roots);
    int *others = allocate((size_t)world_size(), sizeof *others);
    PMPI_Gather(&other, 1, MPI_INT, others, 1, MPI_INT, 0, comm());
    Reading reading = {0};
    for (int rank = 1; world_rank() == 0 && rank < world_size(); rank++)
        if (others[rank])
            measure(rank);
    if (other)
        reading = answer_clock();
    free(others);
    return reading;
}

// Converts a time of this rank's clock to the root's. Between the two readings the drift is linear.
static int64_t roots_time(int64_t time)
{
    int64_t ahead = job.first.ahead, between = job.last.at - job.first.at;
    if (between > 0)
        ahead += (int64_t)((double)(job.last.ahead - job.first.ahead) *
                           ((double)(time - job.first.at) / (double)between));
    return time - ahead;
}

static int64_t first_begin(void)
{
    int64_t first = INT64_MAX;
    for (const Lane *lane = timeline_lanes(); lane; lane = lane->next) {
        SpanIterator at = {0};
        const Span *span = timeline_next_span(lane, &at);
        if (span && roots_time(span->begin) < first)
            first = roots_time(span->begin);
    }
    return first;
}

// ---- Lines.

// Writes lines: the root into the file, another rank to the root, many at once.
static struct {
    FILE *file;
    int fault;             // the first errno of the file, or 0
    const char *separator; // before the next line
    size_t used;
    char bytes[1 << 16];
} out;

// If the file can't be written, the other ranks must not wait for it.
static void write_lines(size_t count)
{
    if (!out.fault && fwrite(out.bytes, 1, count, out.file) != count)
        out.fault = errno;
}

static void flush_lines(void)
{
    if (world_rank() == 0)
        write_lines(out.used);
    else
        PMPI_Send(out.bytes, (int)out.used, MPI_CHAR, 0, TAG_LINES, comm());
    out.used = 0;
}

static void PRINTF_LIKE(1, 2) add_line(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    CHECK(length >= 0 && (size_t)length < sizeof line);
    if (out.used + (size_t)length + sizeof ",\n" > sizeof out.bytes)
        flush_lines();
    out.used += (size_t)sprintf(out.bytes + out.used, "%s%s", out.separator, line);
    out.separator = ",\n";
}

// Escapes a text for a JSON string. A long name is cut; what is not UTF-8 becomes '?'.
typedef struct {
    char text[256];
} Quoted;

static Quoted quoted(const char *text)
{
    Quoted result = {{0}};
    char *to = result.text, *clean = text_clean(format_text("%s", text));
    for (text = clean; *text && to < result.text + sizeof result.text - 2; text++) {
        if (*text == '"' || *text == '\\')
            *to++ = '\\';
        *to++ = *text == '\n' ? '?' : *text;
    }
    if ((*text & 0xc0) == 0x80) // not within a character
        while (to > result.text && (*--to & 0xc0) == 0x80)
            ;
    *to = '\0';
    free(clean);
    return result;
}

#define METADATA "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":"

static void add_name(const char *what, int thread, const char *name)
{
    add_line(METADATA "{\"name\":\"%s\"}}", what, launcher_rank(), thread, quoted(name).text);
}

static void add_place(const char *what, int thread, int place)
{
    add_line(METADATA "{\"sort_index\":%d}}", what, launcher_rank(), thread, place);
}

// "rank 1 (host, cpu 1)"
static void add_process(void)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    char *device = device_is_started() ? format_text(", %s %d", device_kind(), device_index())
                                       : format_text("%s", "");
    char *name = format_text("rank %d (%s%s)", launcher_rank(), host, device);
    add_name("process_name", 0, name);
    add_place("process_sort_index", 0, launcher_rank());
    free(name);
    free(device);
}

static const struct {
    const char *category, *numbers[2];
} kinds[] = {
    [SPAN_EPOCH] = {"train", {"epoch"}},
    [SPAN_EVALUATION] = {"train", {NULL}},
    [SPAN_STEP] = {"train", {"step"}},
    [SPAN_COMPUTE] = {"compute", {"images"}},
    [SPAN_WAIT] = {"wait", {NULL}},
    [SPAN_CALL] = {"wait", {"bytes", "rank"}},
    [SPAN_CALLBACK] = {"callback", {"epoch"}},
    [SPAN_PIECE] = {"gradients", {"bytes", "offset"}},
    [SPAN_LOAD] = {"loading", {"images", "step"}},
};

// Whole numbers only: the decimal point depends on the locale.
static void add_span(const Lane *lane, const Span *span, int64_t origin)
{
    char numbers[128] = "";
    int used = 0;
    for (int i = 0; i < 2; i++)
        if (kinds[span->kind].numbers[i] && span->numbers[i] >= 0)
            used += sprintf(numbers + used, "%s\"%s\":%lld", used ? "," : "",
                            kinds[span->kind].numbers[i], (long long)span->numbers[i]);
    if (span->unfinished)
        sprintf(numbers + used, "%s\"unfinished\":true", used ? "," : "");
    int64_t begin = roots_time(span->begin) - origin,
            length = roots_time(span->end) - origin - begin;
    add_line(
        "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03d,\"dur\":%lld.%03d,\"args\":{%s}}",
        quoted(span->name).text, kinds[span->kind].category, launcher_rank(), lane->number,
        (long long)(begin / 1000), (int)(begin % 1000), (long long)(length / 1000),
        (int)(length % 1000), numbers);
}

static void add_rank(int64_t origin)
{
    add_process();
    for (const Lane *lane = timeline_lanes(); lane; lane = lane->next) {
        SpanIterator at = {0};
        add_name("thread_name", lane->number, lane->name);
        add_place("thread_sort_index", lane->number, lane->number);
        for (const Span *span; (span = timeline_next_span(lane, &at));)
            add_span(lane, span, origin);
    }
    flush_lines();
}

// ---- The file.

static char *temporary_path(void)
{
    return format_text("%s.%d.tmp", job.path, (int)getpid());
}

// The root receives the lines of another rank.
static void receive_lines(int rank)
{
    int count;
    do {
        MPI_Status status;
        PMPI_Recv(out.bytes, sizeof out.bytes, MPI_CHAR, rank, TAG_LINES, comm(), &status);
        PMPI_Get_count(&status, MPI_CHAR, &count);
        write_lines((size_t)count);
    } while (count > 0);
}

static void open_file(const char *path, int ranks)
{
    out.file = fopen(path, "we");
    out.fault = out.file ? 0 : errno;
    out.separator = "";
    out.used = (size_t)snprintf(
        out.bytes, sizeof out.bytes,
        "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"%s\",\"ranks\":%d},\n\"traceEvents\":[\n",
        quoted(program_name()).text, ranks);
}

// Renamed when it is complete.
static void close_file(const char *path)
{
    if (!out.fault && fprintf(out.file, "\n]}\n") < 0)
        out.fault = errno;
    if (out.file && fclose(out.file) != 0 && !out.fault)
        out.fault = errno;
    if (!out.fault && rename(path, job.path) != 0)
        out.fault = errno;
    if (!out.fault)
        return;
    ends_incomplete("HVD_TIMELINE=%s cannot be written: %s", job.path, strerror(out.fault));
    unlink(path);
}

// `full`: the number of ranks whose memory for spans was full.
static void write_file(int64_t origin, int ranks, int full)
{
    char *temporary = temporary_path();
    open_file(temporary, ranks);
    add_rank(origin);
    for (int rank = 1; rank < ranks; rank++)
        receive_lines(rank);
    close_file(temporary);
    free(temporary);
    job.written = true;
    if (full > 0)
        warn("HVD_TIMELINE: %d of %d ranks had more to note than %zu MiB; it ends early there",
             full, ranks, timeline_limit >> 20);
}

// On every rank, before MPI is ended.
static void gather(void)
{
    timeline_stop();
    job.last = compare_clocks();
    int64_t origin = first_begin();
    PMPI_Allreduce(MPI_IN_PLACE, &origin, 1, MPI_INT64_T, MPI_MIN, comm());
    int full = timeline_is_full(), all_full = 0;
    PMPI_Reduce(&full, &all_full, 1, MPI_INT, MPI_SUM, 0, comm());
    if (world_rank() == 0) {
        write_file(origin, world_size(), all_full);
        return;
    }
    out.separator = ",\n";
    add_rank(origin);
    PMPI_Send(NULL, 0, MPI_CHAR, 0, TAG_LINES, comm());
}

// ---- The beginning.

// Absolute: the program may change its folder.
static char *absolute(const char *path)
{
    char folder[PATH_MAX];
    if (*path == '/' || !getcwd(folder, sizeof folder))
        return format_text("%s", path);
    return format_text("%s/%s", folder, path);
}

// Report a bad path before hours of training, not after them.
static void check_file(void)
{
    struct stat status;
    if (stat(job.path, &status) == 0 && !S_ISREG(status.st_mode))
        die("HVD_TIMELINE=%s is there, and is no file", job.path);
    need_own_file(job.path, "{\"displayTimeUnit\"");
    char *temporary = temporary_path();
    FILE *file = fopen(temporary, "we");
    if (!file)
        die("HVD_TIMELINE=%s cannot be written: %s", job.path, strerror(errno));
    fclose(file);
    unlink(temporary);
    free(temporary);
}

void timeline_finish(void)
{
    if (!job.path)
        return;
    timeline_stop();
    if (!job.written && launcher_rank() == 0)
        write_file(first_begin(), 1, timeline_is_full());
}

void timeline_forget(void)
{
    job.path = NULL;
}

static void start(void)
{
    if (!setting_text(HVD_TIMELINE))
        return;
    job.path = absolute(setting_text(HVD_TIMELINE));
    if (launcher_rank() == 0)
        check_file();
    timeline_record();
}

void timeline_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

// All ranks must agree: the root waits for each one's spans.
static void check_setting(void)
{
    const char *path = setting_text(HVD_TIMELINE);
    int64_t hash = path ? (int64_t)(hash_text(path) >> 1) : 0;
    int64_t low_high[2] = {-hash, hash};
    PMPI_Allreduce(MPI_IN_PLACE, low_high, 2, MPI_INT64_T, MPI_MAX, comm());
    if (-low_high[0] != low_high[1])
        die("HVD_TIMELINE is not the same on all ranks; " PASS_ON(HVD_TIMELINE));
}

void timeline_join(void)
{
    check_setting();
    timeline_start();
    if (!job.path)
        return;
    job.first = compare_clocks();
    world_before_stop(gather);
}
