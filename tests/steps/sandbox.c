// Folders, and bubblewrap. (bwrap mounts in the order of its words: what comes later lies above.)

#include "sandbox.h"

#include <errno.h>
#include <ftw.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"

#define MAX_WORDS 256
#define TMP_BYTES "268435456" // that a /tmp of its own may hold

static void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        die("cannot make the folder %s: %s", path, strerror(errno));
}

// Runs a command to its end; its status.
static int run_command(const char *const argv[])
{
    Process process = process_start(argv);
    while (!process.ended)
        process_wait(&process, 1000);
    process_stop(&process);
    int status = process.status;
    process_free(&process);
    return status;
}

// Whether bubblewrap works here: a container may forbid it. Asked once.
static bool can_seal(void)
{
    static int answer = -1;
    if (answer < 0)
        answer = run_command((const char *const[]){
                     "bwrap", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--dev-bind",
                     "/dev", "/dev", "--tmpfs", "/dev/shm", "--proc", "/proc", "true", NULL}) == 0;
    return answer;
}

// ---- What bubblewrap is told.

typedef struct {
    char *items[MAX_WORDS]; // owned
    int count;
} Words;

static void add_word(Words *words, const char *word)
{
    CHECK(words->count < MAX_WORDS - 1);
    words->items[words->count++] = format_text("%s", word);
}

static void add_words(Words *words, const char *const *list)
{
    for (; *list; list++)
        add_word(words, *list);
}

static void add_mount(Words *words, const char *how, const char *from, const char *to)
{
    add_words(words, (const char *const[]){how, from, to, NULL});
}

static bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

// Paths below `home` that a text names: tools that a user has installed there. Not below `kit`
// (NULL: home is the kit itself, of which no more is shown than is named).
static void add_tools(Words *words, const char *text, const char *home, const char *kit)
{
    for (const char *at = text; at && (at = strstr(at, home));) {
        size_t length = strcspn(at, " :;,'\"\n\t");
        char *path = format_text("%.*s", (int)length, at), *slash = strrchr(path, '/');
        at += length;
        if (kit && slash && strcmp(slash, "/bin") == 0 && slash - path > (long)strlen(home))
            *slash = '\0'; // with its lib/ and share/
        if (is_below(path, home) && strcmp(path, home) != 0 && !(kit && is_below(path, kit)) &&
            access(path, F_OK) == 0)
            add_mount(words, "--ro-bind", path, path);
        free(path);
    }
}

static void hide_home(Words *words, const char *home, const char *kit, const char *compiler)
{
    if (!home || strlen(home) < 2 || access(home, F_OK) != 0)
        return;
    add_words(words, (const char *const[]){"--tmpfs", home, NULL});
    add_tools(words, getenv("PATH"), home, kit);
    add_tools(words, getenv("LD_LIBRARY_PATH"), home, kit);
    add_tools(words, compiler, home, kit);
}

// What compile-step says, which names libraries; the caller frees it.
static char *text_of_compiler(void)
{
    const char *build = getenv("BUILD");
    char *path = format_text("%s/compile-step", build && *build ? build : "build"),
         *text = allocate(1 << 14, 1);
    FILE *file = fopen(path, "re");
    if (file) {
        text[fread(text, 1, (1 << 14) - 1, file)] = '\0';
        fclose(file);
    }
    free(path);
    return text;
}

static void show_file(Words *words, const char *path)
{
    char *absolute = realpath(path, NULL);
    CHECK(absolute);
    add_mount(words, "--ro-bind", absolute, absolute);
    free(absolute);
}

// What compile-step names of the kit: headers, the library, and libraries that were unpacked there.
// Not tests/, where answers are.
static void show_tools(Words *words, const char *compiler, const char *kit)
{
    static const char *const options[] = {"-I", "-L", "-Wl,-rpath,"};
    for (const char *at = compiler; *(at += strspn(at, " \n\"'"));) {
        size_t length = strcspn(at, " \n\"'");
        char *word = format_text("%.*s", (int)length, at), *path = word;
        at += length;
        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
            if (strncmp(word, options[i], strlen(options[i])) == 0)
                path = word + strlen(options[i]);
        char *absolute = realpath(path, NULL);
        if (absolute && is_below(absolute, kit) && strcmp(absolute, kit) != 0 &&
            strcmp(path, "tests") != 0)
            show_file(words, path);
        free(absolute);
        free(word);
    }
}

// The system to be read, without homes, the kit and its builds; what is needed of those comes
// after this.
static void hide_files(Words *words)
{
    static const char *const system[] = {
        "bwrap", "--die-with-parent",
        "--unshare-pid", // kill(-1) reaches the run alone
        "--unshare-net", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev",
        // Ranks meet there under names made of mpirun's process
        // number, which is the same in every such run.
        "--tmpfs", "/dev/shm", "--proc", "/proc", "--size", TMP_BYTES, "--tmpfs", "/tmp", NULL};
    char *kit = realpath(".", NULL), *compiler = text_of_compiler();
    const char *build = getenv("BUILD");
    char *builds = realpath(build && *build ? build : "build", NULL);
    const struct passwd *user = getpwuid(getuid());
    CHECK(kit && builds);
    add_words(words, system);
    hide_home(words, "/home", kit, compiler);
    hide_home(words, "/root", kit, compiler);
    if (user && !is_below(user->pw_dir, "/home") && !is_below(user->pw_dir, "/root"))
        hide_home(words, user->pw_dir, kit, compiler);
    add_words(words, (const char *const[]){"--tmpfs", kit, NULL});
    if (!is_below(builds, kit))
        add_words(words, (const char *const[]){"--tmpfs", builds, NULL});
    show_tools(words, compiler, kit);
    add_tools(words, getenv("PATH"), kit, NULL);
    free(compiler);
    free(builds);
    free(kit);
}

static Process start_words(Words *words)
{
    Process process = process_start((const char *const *)words->items);
    for (int i = 0; i < words->count; i++)
        free(words->items[i]);
    return process;
}

static char temporary[32]; // the folder that is there now; empty: none

static int remove_entry(const char *path, const struct stat *entry, int kind, struct FTW *place)
{
    (void)entry;
    (void)kind;
    (void)place;
    return remove(path);
}

// Where this program gives up in the middle of a check.
static void tidy_up_and_exit(int status)
{
    sandbox_tidy_up();
    _exit(status);
}

void sandbox_tidy_up(void)
{
    if (*temporary)
        nftw(temporary, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    temporary[0] = '\0';
}

Sandbox sandbox_make(const char *folder)
{
    make_folder(folder);
    set_job_end(tidy_up_and_exit);
    snprintf(temporary, sizeof temporary, "/tmp/hvdlab-XXXXXX");
    Sandbox sandbox = {.folder = realpath(folder, NULL), .sealed = can_seal()};
    if (!sandbox.folder || !mkdtemp(temporary))
        die("cannot make folders for a run: %s", strerror(errno));
    sandbox.temporary = format_text("%s", temporary);
    sandbox.trace = format_text("%s/trace", sandbox.folder);
    sandbox.pipes = format_text("%s/pipes", sandbox.folder);
    sandbox.work = format_text("%s/work", sandbox.folder);
    make_folder(sandbox.trace);
    make_folder(sandbox.pipes);
    make_folder(sandbox.work);
    return sandbox;
}

void sandbox_fill(const Sandbox *sandbox, const char *files)
{
    char *contents = format_text("%s/.", files);
    if (run_command((const char *const[]){"cp", "-a", contents, sandbox->work, NULL}) != 0)
        die("cannot copy %s to %s", files, sandbox->work);
    free(contents);
}

Process sandbox_start(const Sandbox *sandbox, const char *const argv[], const char *const *files)
{
    Words words = {.count = 0};
    if (sandbox->sealed) {
        hide_files(&words);
        for (; *files; files++)
            show_file(&words, *files);
        add_mount(&words, "--bind", sandbox->folder, sandbox->folder);
        add_words(&words, (const char *const[]){"--tmpfs", sandbox->trace, NULL});
        add_mount(&words, "--bind", sandbox->temporary, sandbox->temporary);
        add_words(&words, (const char *const[]){"--chdir", sandbox->work, NULL});
    } else {
        add_words(&words, (const char *const[]){"env", "--chdir", sandbox->work, NULL});
    }
    add_words(&words, argv);
    setenv("HOME", sandbox->work, 1);
    setenv("TMPDIR", sandbox->temporary, 1);
    return start_words(&words);
}

Process sandbox_compile(const char *compiler, const char *file, const char *copy,
                        const char *program)
{
    if (!can_seal())
        return process_start((const char *const[]){compiler, file, program, "check", NULL});
    Words words = {.count = 0};
    char *name = realpath(file, NULL), *folder = format_text("%s", program),
         *kit = realpath(".", NULL), *own = realpath(copy, NULL);
    CHECK(name && kit && own);
    *strrchr(folder, '/') = '\0';
    hide_files(&words);
    show_file(&words, compiler);
    add_mount(&words, "--bind", folder, folder);
    add_mount(&words, "--ro-bind", own, name);
    add_words(&words,
              (const char *const[]){"--chdir", kit, compiler, file, program, "check", NULL});
    free(own);
    free(kit);
    free(folder);
    free(name);
    return start_words(&words);
}

bool sandbox_has_children(const Sandbox *sandbox, const Process *process)
{
    return process_has_children(process, sandbox->sealed ? 3 : 1); // bwrap and its init stay above
}

void sandbox_free(Sandbox *sandbox)
{
    sandbox_tidy_up();
    free(sandbox->folder);
    free(sandbox->trace);
    free(sandbox->pipes);
    free(sandbox->work);
    free(sandbox->temporary);
    *sandbox = (Sandbox){0};
}
