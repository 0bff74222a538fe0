// Makes one call of a program fail: a library for LD_PRELOAD (glibc's). It counts calls from the
// beginning of main on, those of one kind that one owner makes, and lets the one with the number
// asked for fail, as it fails when memory, disk or descriptors have run out.
//
//     FAULT_KIND=memory|open|read|write|sync|close|rename|map|thread
//                            which calls
//     FAULT_OWNER=ours|others
//                            whose
//     FAULT_NUMBER=N         which of them fails, from 1; without it none does
//     FAULT_LASTS=1          those after it fail, too
//     FAULT_REPORT=FILE      gets a line: "failed FUNCTION OWNER PLACE" for the call that failed, PLACE
//                            being where the owner called, as addr2line wants it; and at the end of
//                            the program, in order, "counted KIND OWNER N" for each
//
// A call's owner is the first one above it that is not a library which only does what it is told
// (libc, zlib, cJSON): the program itself is "ours", anything else (Open MPI, hwloc, oneDNN,
// OpenMP) "others".

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_FRAMES = 40, MAX_RANGES = 64 };

static bool counting; // main has begun
static const char *kind_wanted = "", *report;
static bool ours_wanted, lasts;
static long number_wanted;
static _Thread_local bool busy; // in here, or in what we call

// ---- Whose a place in memory is.

typedef enum { THE_PROGRAM, A_TOOL, ANOTHER } Owner;

typedef struct {
    uintptr_t begin, end;
    Owner owner;
} Range;

static Range ranges[MAX_RANGES]; // known when main begins; what is loaded later is ANOTHER
static int range_count;

static Owner owner_of_file(const char *path)
{
    static const char *const tools[] = {"libc.so",   "libc-",      "libz.so",  "libcjson",
                                        "inject.so", "libpthread", "ld-linux", "libstdc++"};
    if (!*path)
        return THE_PROGRAM;
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (strstr(path, tools[i]))
            return A_TOOL;
    return ANOTHER;
}

static int note_ranges(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size, (void)unused;
    for (int i = 0; i < object->dlpi_phnum && range_count < MAX_RANGES; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        uintptr_t begin = object->dlpi_addr + part->p_vaddr;
        Owner owner = owner_of_file(object->dlpi_name);
        if (owner != ANOTHER)
            ranges[range_count++] = (Range){begin, begin + part->p_memsz, owner};
    }
    return 0;
}

static Owner owner_of(const void *place)
{
    for (int i = 0; i < range_count; i++)
        if ((uintptr_t)place >= ranges[i].begin && (uintptr_t)place < ranges[i].end)
            return ranges[i].owner;
    return ANOTHER;
}

// The place from which the owner called, which is `caller` unless that is a tool's.
static const void *place_of_owner(const void *caller)
{
    if (owner_of(caller) != A_TOOL)
        return caller;
    void *frames[MAX_FRAMES];
    int count = backtrace(frames, MAX_FRAMES);
    for (int i = 0; i < count; i++)
        if (owner_of(frames[i]) != A_TOOL)
            return frames[i];
    return caller;
}

// ---- The report: by the system's own calls.

static void write_report(const char *text)
{
    int file = report ? open(report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (file < 0)
        return;
    ssize_t written = write(file, text, strlen(text));
    (void)written;
    close(file);
}

static void report_failure(const char *function, const void *place)
{
    char line[512];
    Dl_info info = {0};
    const char *name = dladdr(place, &info) && info.dli_fname ? info.dli_fname : "?";
    const char *slash = strrchr(name, '/');
    size_t offset = (size_t)((const char *)place - (const char *)info.dli_fbase);
    snprintf(line, sizeof line, "failed %s %s %s+0x%zx\n", function,
             owner_of(place) == THE_PROGRAM ? "ours" : "others", slash ? slash + 1 : name,
             offset - 1);
    write_report(line);
}

// ---- The choice.

static const char *const kinds[] = {"memory", "open",   "read", "write", "sync",
                                    "close",  "rename", "map",  "thread"};
enum { KINDS = sizeof kinds / sizeof *kinds };
static atomic_long counted[KINDS][2]; // calls of others, and ours

static size_t kind_number(const char *kind)
{
    size_t number = 0;
    while (number + 1 < KINDS && strcmp(kinds[number], kind) != 0)
        number++;
    return number;
}

static bool fails(const char *kind, const char *function, const void *caller)
{
    if (!counting || busy)
        return false;
    busy = true;
    const void *place = place_of_owner(caller);
    bool ours = owner_of(place) == THE_PROGRAM;
    long number = atomic_fetch_add(&counted[kind_number(kind)][ours], 1) + 1;
    bool asked_for = ours == ours_wanted && strcmp(kind, kind_wanted) == 0;
    if (asked_for && number == number_wanted)
        report_failure(function, place);
    busy = false;
    return asked_for && (number == number_wanted || (lasts && number > number_wanted));
}

#define CALLER __builtin_return_address(0)

// The next function of that name.
#define REAL(name) ((__typeof__(&name))(uintptr_t)real_function(#name, &(static_##name)))
static void *real_function(const char *name, void **kept)
{
    if (!*kept) {
        bool was_busy = busy;
        busy = true;
        *kept = dlsym(RTLD_NEXT, name);
        busy = was_busy;
    }
    return *kept;
}

// A function that stands before the system's: fails with an errno and a result, or does its work.
// What it does inside counts for nothing.
#define STAND_BEFORE(kind, type, name, parameters, arguments, error, result)                       \
    static void *static_##name;                                                                    \
    type name parameters                                                                           \
    {                                                                                              \
        if (fails(kind, #name, CALLER)) {                                                          \
            errno = error;                                                                         \
            return result;                                                                         \
        }                                                                                          \
        return REAL(name) arguments;                                                               \
    }

// ---- Memory: glibc's own names, since dlsym itself may want some.

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

#define ALLOCATE(function, work)                                                                   \
    do {                                                                                           \
        if (fails("memory", function, CALLER)) {                                                   \
            errno = ENOMEM;                                                                        \
            return NULL;                                                                           \
        }                                                                                          \
        return work;                                                                               \
    } while (0)

void *malloc(size_t size)
{
    ALLOCATE("malloc", __libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    ALLOCATE("calloc", __libc_calloc(count, size));
}

void *realloc(void *memory, size_t size)
{
    ALLOCATE("realloc", __libc_realloc(memory, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    ALLOCATE("aligned_alloc", __libc_memalign(alignment, size));
}

void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size)
{
    ALLOCATE("memalign", __libc_memalign(alignment, size));
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    if (fails("memory", "posix_memalign", CALLER))
        return ENOMEM;
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

STAND_BEFORE("map", void *, mmap,
             (void *at, size_t size, int protection, int flags, int file, off_t offset),
             (at, size, protection, flags, file, offset), ENOMEM, MAP_FAILED)
STAND_BEFORE("thread", int, pthread_create,
             (pthread_t * thread, const pthread_attr_t *attributes, void *(*function)(void *),
              void *argument),
             (thread, attributes, function, argument), EAGAIN, EAGAIN)

// ---- Files.

#define OPEN(name)                                                                                 \
    static void *static_##name;                                                                    \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;               \
        va_end(arguments);                                                                         \
        if (fails("open", #name, CALLER)) {                                                        \
            errno = flags & O_CREAT ? ENOSPC : EMFILE;                                             \
            return -1;                                                                             \
        }                                                                                          \
        return REAL(name)(path, flags, mode);                                                      \
    }
OPEN(open)
OPEN(open64)

STAND_BEFORE("open", FILE *, fopen, (const char *path, const char *mode), (path, mode), EMFILE,
             NULL)
STAND_BEFORE("open", FILE *, fopen64, (const char *path, const char *mode), (path, mode), EMFILE,
             NULL)
STAND_BEFORE("open", FILE *, fdopen, (int file, const char *mode), (file, mode), ENOMEM, NULL)
STAND_BEFORE("open", int, memfd_create, (const char *name, unsigned flags), (name, flags), EMFILE,
             -1)
int mkdir(const char *path, mode_t mode);
STAND_BEFORE("open", int, mkdir, (const char *path, mode_t mode), (path, mode), ENOSPC, -1)

STAND_BEFORE("read", ssize_t, read, (int file, void *to, size_t bytes), (file, to, bytes), EIO, -1)
STAND_BEFORE("read", ssize_t, pread, (int file, void *to, size_t bytes, off_t offset),
             (file, to, bytes, offset), EIO, -1)

STAND_BEFORE("sync", int, fsync, (int file), (file), EIO, -1)
STAND_BEFORE("sync", int, ftruncate, (int file, off_t length), (file, length), EIO, -1)
STAND_BEFORE("rename", int, rename, (const char *from, const char *to), (from, to), ENOSPC, -1)
STAND_BEFORE("rename", int, unlink, (const char *path), (path), EIO, -1)

// A file is closed, even where that says that its last bytes are lost.
#define CLOSE(type, name)                                                                          \
    static void *static_##name;                                                                    \
    int name(type file)                                                                            \
    {                                                                                              \
        bool failing = fails("close", #name, CALLER);                                              \
        int result = REAL(name)(file);                                                             \
        if (failing) {                                                                             \
            errno = ENOSPC;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
        return result;                                                                             \
    }
CLOSE(int, close)
CLOSE(FILE *, fclose)

// A stream's own reads and writes don't come by here: it fails as it would if they did, with its
// mark set, and what was to be written is lost. Standard error is left alone, for the line that
// must come.
static bool stream_fails(const char *kind, const char *function, FILE *stream, const void *caller)
{
    if (stream == stderr || !fails(kind, function, caller))
        return false;
    stream->_flags |= 0x20; // glibc's: ferror() is true
    errno = *kind == 'r' ? EIO : ENOSPC;
    return true;
}

#define STREAM(kind, type, name, parameters, arguments, stream, result)                            \
    static void *static_##name;                                                                    \
    type name parameters                                                                           \
    {                                                                                              \
        if (stream_fails(kind, #name, stream, CALLER))                                             \
            return result;                                                                         \
        return REAL(name) arguments;                                                               \
    }
STREAM("read", size_t, fread, (void *to, size_t size, size_t count, FILE *stream),
       (to, size, count, stream), stream, 0)
STREAM("read", char *, fgets, (char *to, int size, FILE *stream), (to, size, stream), stream, NULL)
STREAM("read", ssize_t, getline, (char **line, size_t *size, FILE *stream), (line, size, stream),
       stream, -1)
STREAM("write", size_t, fwrite, (const void *from, size_t size, size_t count, FILE *stream),
       (from, size, count, stream), stream, 0)
STREAM("write", int, fputs, (const char *text, FILE *stream), (text, stream), stream, EOF)
STREAM("write", int, fputc, (int byte, FILE *stream), (byte, stream), stream, EOF)
STREAM("write", int, puts, (const char *text), (text), stdout, EOF)
STREAM("write", int, putchar, (int byte), (byte), stdout, EOF)
STREAM("write", int, fflush, (FILE * stream), (stream), (stream ? stream : stderr), EOF)
STREAM("write", int, vfprintf, (FILE * stream, const char *format, va_list arguments),
       (stream, format, arguments), stream, -1)

#define PRINT(name, stream, ...)                                                                   \
    int name(__VA_ARGS__, ...)                                                                     \
    {                                                                                              \
        if (stream_fails("write", #name, stream, CALLER))                                          \
            return -1;                                                                             \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        int result = REAL(vfprintf)(stream, format, arguments);                                    \
        va_end(arguments);                                                                         \
        return result;                                                                             \
    }
PRINT(printf, stdout, const char *format)
PRINT(fprintf, stream, FILE *stream, const char *format)

static void *static_write;
ssize_t write(int file, const void *from, size_t bytes)
{
    if (file != STDERR_FILENO && fails("write", "write", CALLER)) {
        errno = ENOSPC;
        return -1;
    }
    return REAL(write)(file, from, bytes);
}

int dprintf(int file, const char *format, ...)
{
    if (file != STDERR_FILENO && fails("write", "dprintf", CALLER)) {
        errno = ENOSPC;
        return -1;
    }
    va_list arguments;
    va_start(arguments, format);
    int result = vdprintf(file, format, arguments);
    va_end(arguments);
    return result;
}

// ---- Main.

static int (*program_main)(int, char **, char **);

static void report_counts(void)
{
    char line[64];
    counting = false;
    for (size_t kind = 0; kind < KINDS; kind++)
        for (int ours = 0; ours < 2; ours++) {
            snprintf(line, sizeof line, "counted %s %s %ld\n", kinds[kind],
                     ours ? "ours" : "others", atomic_load(&counted[kind][ours]));
            write_report(line);
        }
}

static int counted_main(int argc, char **argv, char **environment)
{
    void *frames[2];
    backtrace(frames, 2); // loads what it needs
    const char *kind = getenv("FAULT_KIND"), *owner = getenv("FAULT_OWNER"),
               *number = getenv("FAULT_NUMBER");
    kind_wanted = kind ? kind : "";
    ours_wanted = owner && strcmp(owner, "ours") == 0;
    number_wanted = number ? atol(number) : LONG_MAX;
    lasts = getenv("FAULT_LASTS") != NULL;
    report = getenv("FAULT_REPORT");
    // What the program starts is left alone.
    unsetenv("LD_PRELOAD");
    dl_iterate_phdr(note_ranges, NULL);
    atexit(report_counts);
    counting = true;
    return program_main(argc, argv, environment);
}

int __libc_start_main(int (*function)(int, char **, char **), int argc, char **argv,
                      void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                      void *stack_end);
int __libc_start_main(int (*function)(int, char **, char **), int argc, char **argv,
                      void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                      void *stack_end)
{
    program_main = function;
    static void *kept;
    int (*real)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                void (*)(void), void *) =
        (__typeof__(&__libc_start_main))(uintptr_t)real_function("__libc_start_main", &kept);
    return real(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
