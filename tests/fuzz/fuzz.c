// Survives what ends a program. The library's die() and warn() are weak symbols in the fuzz targets
// (see the Makefile), and those here take their place; exit, and what opens and closes streams,
// come here through the linker's --wrap. The sanitizer tells of each block that is allocated and
// freed, in zlib and cJSON as well.

#include "fuzz.h"

#include <sanitizer/allocator_interface.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>
#include "base/error.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

static jmp_buf way_back;
static bool inside; // of fuzz_call's body
// Blocks that come and go are the body's. libFuzzer has threads of its own.
static _Thread_local bool watching;

void fuzz_finding(const char *file, int line, const char *what)
{
    inside = watching = false;
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    abort();
}

// ---- Blocks that were allocated inside and not freed: a hash table.

enum { SLOTS = 1 << 14 };
static const volatile void *slots[SLOTS]; // NULL: free; `gone`: it was taken once
static const char gone[1];
static size_t used[SLOTS]; // those that are not NULL
static size_t taken, alive;

static size_t slot_of(const volatile void *block)
{
    return (uintptr_t)block / 16 * 0x9e3779b97f4a7c15u >> 50;
}

static void on_malloc(const volatile void *block, size_t size)
{
    (void)size;
    if (!watching || !block)
        return;
    size_t slot = slot_of(block);
    while (slots[slot])
        slot = (slot + 1) % SLOTS;
    slots[slot] = block;
    used[taken++] = slot;
    if (taken == SLOTS)
        fuzz_finding(__FILE__, __LINE__, "more blocks than the table of the harness can hold");
    alive++;
}

static void on_free(const volatile void *block)
{
    if (!watching || !block)
        return;
    for (size_t slot = slot_of(block); slots[slot]; slot = (slot + 1) % SLOTS)
        if (slots[slot] == block) {
            slots[slot] = gone;
            alive--;
            return;
        }
}

static void free_blocks(void)
{
    for (; taken > 0; slots[used[taken]] = NULL)
        if (slots[used[--taken]] != gone)
            free((void *)(uintptr_t)slots[used[taken]]);
    alive = 0;
}

// ---- Streams that were opened inside and not closed.

enum { STREAMS = 8 };
static struct {
    FILE *file;
    gzFile gzip;
} streams[STREAMS];

static void keep_stream(FILE *file, gzFile gzip)
{
    int place = 0;
    if (!inside || (!file && !gzip))
        return;
    while (streams[place].file || streams[place].gzip)
        if (++place == STREAMS)
            fuzz_finding(__FILE__, __LINE__, "more streams than the harness can hold");
    streams[place].file = file;
    streams[place].gzip = gzip;
}

static void forget_stream(const void *stream)
{
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].file == stream || streams[i].gzip == stream) {
            streams[i].file = NULL;
            streams[i].gzip = NULL;
        }
}

#define WRAP(type, name, parameters, arguments, file, gzip)                                        \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        type stream = __real_##name arguments;                                                     \
        keep_stream(file, gzip);                                                                   \
        return stream;                                                                             \
    }
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), stream, NULL)
WRAP(FILE *, fdopen, (int file, const char *mode), (file, mode), stream, NULL)
WRAP(gzFile, gzopen, (const char *path, const char *mode), (path, mode), NULL, stream)
WRAP(gzFile, gzdopen, (int file, const char *mode), (file, mode), NULL, stream)

int __real_fclose(FILE *file);
int __wrap_fclose(FILE *file);
int __wrap_fclose(FILE *file)
{
    forget_stream(file);
    return __real_fclose(file);
}

// Large buffers would take most of the time; small ones are filled again and again.
int __real_gzbuffer(gzFile stream, unsigned size);
int __wrap_gzbuffer(gzFile stream, unsigned size);
int __wrap_gzbuffer(gzFile stream, unsigned size)
{
    return __real_gzbuffer(stream, size < 1024 ? size : 1024);
}

int __real_gzclose(gzFile stream);
int __wrap_gzclose(gzFile stream);
int __wrap_gzclose(gzFile stream)
{
    forget_stream(stream);
    return __real_gzclose(stream);
}

// And what was opened without a stream: all from `first` on.
static void close_files(int first)
{
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].file)
            __real_fclose(streams[i].file);
        if (streams[i].gzip)
            __real_gzclose(streams[i].gzip);
        streams[i].file = NULL;
        streams[i].gzip = NULL;
    }
    close_range((unsigned)first, ~0u, 0);
}

static int next_file(void)
{
    int file = dup(STDERR_FILENO);
    close(file);
    return file;
}

// ---- Ends of a program.

static void format_line(const char *format, va_list arguments)
{
    static char line[1 << 16];
    FUZZ_CHECK(vsnprintf(line, sizeof line, format, arguments) > 0);
    FUZZ_CHECK(format[strlen(format) - 1] != '\n');
}

#define END(name)                                                                                  \
    _Noreturn void name(const char *format, ...) PRINTF_LIKE(1, 2);                                \
    void name(const char *format, ...)                                                             \
    {                                                                                              \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        format_line(format, arguments);                                                            \
        va_end(arguments);                                                                         \
        if (!inside)                                                                               \
            fuzz_finding(__FILE__, __LINE__, format);                                              \
        longjmp(way_back, 1);                                                                      \
    }
END(die)
END(give_up)

#define WARNING(name)                                                                              \
    void name(const char *format, ...)                                                             \
    {                                                                                              \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        format_line(format, arguments);                                                            \
        va_end(arguments);                                                                         \
    }
WARNING(warn)
WARNING(warn_on_root)
WARNING(note_on_root)

_Noreturn void __real_exit(int status);
_Noreturn void __wrap_exit(int status);
void __wrap_exit(int status)
{
    if (!inside)
        __real_exit(status);
    FUZZ_CHECK(status == EXIT_SUCCESS); // --help
    longjmp(way_back, 1);
}

// ---- One input.

bool fuzz_call(void (*body)(void *), void *argument, FuzzMemory memory)
{
    int first_file = next_file();
    volatile bool returned = false;
    if (setjmp(way_back) == 0) {
        inside = watching = true;
        body(argument);
        returned = true;
    }
    inside = false;
    if (returned && memory == FREES_ALL && alive > 0)
        fuzz_finding(__FILE__, __LINE__, "it returned, and has not freed all its memory");
    if (returned && next_file() != first_file)
        fuzz_finding(__FILE__, __LINE__, "it returned, and has not closed all its files");
    close_files(first_file);
    watching = false;
    free_blocks();
    return returned;
}

const char *fuzz_file(int place, const void *bytes, size_t size)
{
    static int files[2] = {-1, -1};
    static char paths[2][32];
    if (files[place] < 0) {
        files[place] = memfd_create("fuzz", 0);
        FUZZ_CHECK(files[place] >= 0);
        snprintf(paths[place], sizeof paths[place], "/proc/self/fd/%d", files[place]);
    }
    FUZZ_CHECK(ftruncate(files[place], 0) == 0);
    FUZZ_CHECK(pwrite(files[place], bytes, size, 0) == (ssize_t)size);
    return paths[place];
}

// The output of --help is not needed. The stream's buffer is made before blocks are watched.
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    static char buffer[1 << 16];
    FUZZ_CHECK(freopen("/dev/null", "w", stdout) != NULL);
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    FUZZ_CHECK(__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) > 0);
    return 0;
}
