// The symbols of an object, and its sections, as compile-step lists them: in parts "=file" and
// "=kit" what nm -P -g says of both, "=sections" (objdump -h), "=calls" the number of its
// instructions that call the system. A name that is not one of C has been refused by then.

#include "symbols.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "word_list.h"
#include "base/format.h"

// What ordinary programs use. Names with a star stand for all that begin so; of both lists the
// longest name that fits counts. Beside these, all that the kit's headers offer.
static const char *const ordinary[] = {
    // Communication, and what describes it
    "MPI_*", "ompi_mpi_*", "ompi_request_null", "ompi_message_null", "ompi_message_no_proc",
    // stdio.h, files that are open already
    "printf", "fprintf", "vprintf", "vfprintf", "snprintf", "sprintf", "vsnprintf", "puts", "fputs",
    "putc", "fputc", "putchar", "fwrite", "fflush", "perror", "sscanf", "__isoc99_sscanf",
    "__isoc23_sscanf", "stdout", "stderr", "setbuf", "setvbuf", "setlinebuf", "_IO_putc",
    // stdlib.h, assert.h, errno.h
    "malloc", "calloc", "realloc", "reallocarray", "free", "aligned_alloc", "posix_memalign",
    "abort", "exit", "abs", "labs", "llabs", "div", "ldiv", "qsort", "qsort_r", "bsearch", "rand",
    "rand_r", "srand", "random", "srandom", "drand48", "srand48", "erand48", "nrand48", "lrand48",
    "atoi", "atol", "atoll", "atof", "strto*", "__isoc23_strto*", "getenv", "__assert_fail",
    "__errno_location", "error",
    // string.h, strings.h, ctype.h
    "str*", "mem*", "stpcpy", "stpncpy", "bzero", "bcmp", "bcopy", "index", "rindex", "ffs*",
    "toupper", "tolower", "isalpha", "isdigit", "isalnum", "isspace", "isupper", "islower",
    "ispunct", "isprint", "isxdigit", "__ctype_*", "__xpg_strerror_r",
    // time.h
    "time", "clock", "difftime", "clock_gettime", "gettimeofday", "timespec_get", "nanosleep",
    "usleep", "sleep", "sched_yield",
    // Threads
    "pthread_mutex_*", "pthread_cond_*", "pthread_barrier_*", "pthread_create", "pthread_join",
    "pthread_self", "pthread_once", "pthread_rwlock_*", "pthread_spin_*", "thrd_*", "mtx_*",
    "cnd_*", "sem_init", "sem_post", "sem_wait", "sem_destroy", "GOMP_*", "omp_*",
    // What traces have of files and of the machine; folders
    "rename", "unlink", "remove", "fsync", "sync", "mkdir", "access", "gethostname", "uname",
    "sched_setaffinity",
    // What compilers add
    "__ubsan_*", "__asan_*", "__tsan_*", "__lsan_*", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_",
    "__tls_get_addr", "__atomic_*", "__divsc3", "__muldc3", "__mulsc3", "__divdc3", "__powisf2",
    "__powidf2", "__dso_handle", "_Unwind_*", NULL};

// math.h: each of these, also with an f or l behind it.
static const char *const mathematics[] = {
    "acos",  "asin",   "atan",  "atan2",     "cos",     "sin",        "tan",       "cosh",
    "sinh",  "tanh",   "acosh", "asinh",     "atanh",   "exp",        "exp2",      "exp10",
    "expm1", "log",    "log2",  "log10",     "log1p",   "logb",       "ilogb",     "pow",
    "sqrt",  "cbrt",   "hypot", "erf",       "erfc",    "lgamma",     "tgamma",    "gamma",
    "ceil",  "floor",  "fmod",  "remainder", "remquo",  "trunc",      "round",     "lround",
    "rint",  "lrint",  "fdim",  "nearbyint", "llround", "llrint",     "copysign",  "fma",
    "fmax",  "fmin",   "fabs",  "frexp",     "ldexp",   "modf",       "scalbn",    "nextafter",
    "nan",   "sincos", "cabs",  "cexp",      "isnan",   "__isnan",    "__isinf",   "__finite",
    "isinf", "finite", "drem",  "scalb",     "j0",      "nexttoward", "__signbit", NULL};

// More than that: of others' memory, of files, of names that the checks' traces rely on.
static const char *const watched[] = {
    // Of others' memory
    "MPI_Win_*", "MPI_Put", "MPI_Get", "MPI_Accumulate", "MPI_Rput", "MPI_Rget", "MPI_Raccumulate",
    "MPI_Get_accumulate", "MPI_Fetch_*", "MPI_Compare_*", "MPI_Rget_*", "memfd_*",
    // Of files, and of other jobs
    "MPI_File_*", "MPI_Comm_spawn*", "MPI_Comm_connect", "MPI_Comm_join", "MPI_Open_port",
    "MPI_Comm_accept", "MPI_Publish_*", "MPI_Lookup_*", "MPI_Dynamic*",
    // What traces show of no call, or rely on
    "MPI_Neighbor_*", "MPI_Ineigh*", "MPI_Comm_set_name", "MPI_T_*", "MPI_Pcontrol",
    "MPI_Register_data*", "MPI_Comm_set_attr", "MPI_Attr_put", "MPI_Grequest_*", NULL};

// Sections whose code runs before or after main.
static const char *const before_main[] = {".init_array", ".preinit_array", ".ctors", ".fini_array",
                                          ".dtors",      ".init",          ".fini",  NULL};

// How much of the longest name in the list that fits it has; 0: none fits.
static size_t fit_length(const char *name, const char *const *list)
{
    size_t longest = 0;
    for (; *list; list++) {
        size_t length = strlen(*list);
        bool star = (*list)[length - 1] == '*';
        bool fits = strncmp(name, *list, star ? length - 1 : length + 1) == 0;
        longest = fits && length > longest ? length : longest;
    }
    return longest;
}

static bool is_mathematics(const char *name)
{
    for (const char *const *plain = mathematics; *plain; plain++) {
        size_t length = strlen(*plain);
        const char *ending = name + length;
        if (strncmp(name, *plain, length) == 0 &&
            (!*ending || strcmp(ending, "f") == 0 || strcmp(ending, "l") == 0))
            return true;
    }
    return false;
}

// "__printf_chk" is printf, with -D_FORTIFY_SOURCE.
static bool is_fortified(const char *name)
{
    char plain[64];
    size_t length = strlen(name);
    if (length < 7 || length >= sizeof plain || strncmp(name, "__", 2) != 0 ||
        strcmp(name + length - 4, "_chk") != 0)
        return false;
    snprintf(plain, sizeof plain, "%.*s", (int)length - 6, name + 2);
    return fit_length(plain, ordinary) > 0;
}

static bool is_ordinary(const char *name)
{
    size_t length = fit_length(name, ordinary);
    return (length > 0 && length > fit_length(name, watched)) || is_mathematics(name) ||
           is_fortified(name);
}

static bool runs_before_main(const char *section)
{
    for (const char *const *name = before_main; *name; name++) {
        size_t length = strlen(*name);
        if (strncmp(section, *name, length) == 0 &&
            (section[length] == '\0' || section[length] == '.'))
            return true;
    }
    return false;
}

// ---- What stands in the file.

typedef struct {
    Words used, defined;         // by the submission,
    Words kit_used, kit_defined; // and by the kit
    Words sections;              // whose code runs before or after main
    int calls;
} Symbols;

static void read_symbol(const char *line, Words *used, Words *defined)
{
    char name[1024], kind;
    if (sscanf(line, "%1023s %c", name, &kind) == 2)
        ADD_WORDS(strchr("Uvw", kind) ? used : defined, name);
}

static Symbols read_symbols(const char *path)
{
    Symbols symbols = {0};
    FILE *file = fopen(path, "re");
    char line[4096], part[16] = "", name[1024];
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "=%15s", part) == 1)
            continue;
        if (strcmp(part, "file") == 0)
            read_symbol(line, &symbols.used, &symbols.defined);
        else if (strcmp(part, "kit") == 0)
            read_symbol(line, &symbols.kit_used, &symbols.kit_defined);
        else if (strcmp(part, "calls") == 0)
            symbols.calls = atoi(line);
        else if (sscanf(line, " %*d %1023s %*x", name) == 1 && runs_before_main(name))
            ADD_WORDS(&symbols.sections, name);
    }
    if (file)
        fclose(file);
    return symbols;
}

// ---- What is said of it.

static void add_line(char **text, const char *begin, const Words *names)
{
    for (int i = 0; i < names->count; i++) {
        if (i == 0)
            text_add(text, "%s%s", *text ? "\n" : "", begin);
        text_add(text, "%s%s", i > 0 ? ", " : "", names->items[i]);
    }
}

char *symbols_to_look_at(const char *path)
{
    Symbols symbols = read_symbols(path);
    Words unusual = {0}, replaced = {0};
    char *text = NULL;
    for (int i = 0; i < symbols.used.count; i++) {
        const char *name = symbols.used.items[i];
        bool of_kit = strncmp(name, "__wrap_", 7) != 0 && strncmp(name, "MPI_", 4) != 0 &&
                      word_list_has(&symbols.kit_defined, name);
        if (!of_kit && !is_ordinary(name))
            ADD_WORDS(&unusual, name);
    }
    for (int i = 0; i < symbols.defined.count; i++) {
        const char *name = symbols.defined.items[i];
        if (word_list_has(&symbols.kit_used, name) && strcmp(name, "main") != 0)
            ADD_WORDS(&replaced, name);
    }
    add_line(&text, "it uses ", &unusual);
    add_line(&text,
             "it has functions or variables of its own that are called as the C library's, or as "
             "another library's, which the kit uses: ",
             &replaced);
    add_line(&text, "code of it runs before or after main: ", &symbols.sections);
    if (symbols.calls > 0)
        text_add(&text, "%sit calls the system past the C library", text ? "\n" : "");
    Words *const lists[] = {
        &symbols.used,     &symbols.defined, &symbols.kit_used, &symbols.kit_defined,
        &symbols.sections, &unusual,         &replaced};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        word_list_free(lists[i]);
    return text;
}
