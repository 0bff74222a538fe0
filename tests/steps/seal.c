// bubblewrap (which mounts in the order of its words: what comes later lies above), setpriv,
// Landlock.

#include "seal.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "environment.h"
#include "run.h"
#include "storage.h"
#include "word_list.h"
#include "workplace.h"
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#endif

#define TMP_BYTES     "268435456" // that a /tmp of its own may hold
#define MAX_PROCESSES 256         // of a user number of its own
#define STRING_(text) #text
#define STRING(name)  STRING_(name)
// User numbers that systems leave free for services that come and go.
#define FIRST_USER 61184
#define USERS      4096

static const char *const names[] = {"none", "landlock", "user", "bubblewrap"}; // of Seal

static Seal chosen;
static bool strict;

// ---- What of the kit a compiler and a program need.

static bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

// What stands between paths: in PATH, and in a script.
#define BETWEEN_FOLDERS ":"
#define BETWEEN_WORDS   " :;,'\"\n\t"

// Paths below `home` that a text names: tools that a user has installed there. Not below `kit`
// (NULL: home is the kit itself, of which no more is shown than is named).
static void add_tools(Words *words, const char *text, const char *between, const char *home,
                      const char *kit)
{
    while (text && (text = strstr(text, home))) {
        char *path = next_part(&text, between), *slash = strrchr(path, '/');
        if (kit && slash && strcmp(slash, "/bin") == 0 && slash - path > (long)strlen(home))
            *slash = '\0'; // with its lib/ and share/
        if (is_below(path, home) && strcmp(path, home) != 0 && !(kit && is_below(path, kit)) &&
            access(path, F_OK) == 0)
            ADD_WORDS(words, "--ro-bind", path, path);
        free(path);
    }
}

static void hide_home(Words *words, const char *home, const char *kit, const char *compiler)
{
    if (strlen(home) < 2 || access(home, F_OK) != 0)
        return;
    ADD_WORDS(words, "--tmpfs", home);
    add_tools(words, getenv("PATH"), BETWEEN_FOLDERS, home, kit);
    add_tools(words, getenv("LD_LIBRARY_PATH"), BETWEEN_FOLDERS, home, kit);
    add_tools(words, compiler, BETWEEN_WORDS, home, kit);
}

static char *absolute(const char *path)
{
    char *real = realpath(path, NULL);
    CHECK(real);
    return real;
}

// What compile-step says, which names libraries; the caller frees it.
static char *text_of_compiler(void)
{
    size_t size;
    char *path = format_text("%s/compile-step", build_folder()), *text = file_bytes(path, &size);
    free(path);
    return text;
}

// A folder or file that exists outside of the system's own.
static bool is_elsewhere(const char *path)
{
    static const char *const system[] = {"/usr",   "/bin", "/sbin", "/lib",
                                         "/lib64", "/dev", "/proc"};
    bool outside = *path == '/' && path[1] && access(path, F_OK) == 0;
    for (size_t i = 0; i < sizeof system / sizeof *system; i++)
        outside = outside && !is_below(path, system[i]);
    return outside;
}

// This user's; "": the system knows none.
static const char *own_home(void)
{
    const struct passwd *user = getpwuid(getuid());
    return user ? user->pw_dir : "";
}

static bool is_home(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(path, "/root") == 0 || strcmp(path, "/home") == 0 ||
           strcmp(path, own_home()) == 0 || (strncmp(path, "/home/", 6) == 0 && slash == path + 5);
}

// What compile-step names of the kit and outside of the system's folders: headers, the library, and
// libraries that were unpacked there. Not tests/, where answers are.
static void add_named(Words *paths, const char *kit)
{
    static const char *const options[] = {"-I", "-L", "-Wl,-rpath,"};
    char *compiler = text_of_compiler(), *word;
    for (const char *at = compiler; (word = next_part(&at, " \n\"'")); free(word)) {
        const char *path = word;
        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
            if (strncmp(word, options[i], strlen(options[i])) == 0)
                path = word + strlen(options[i]);
        char *real = strchr(path, '/') || strcmp(path, "common") == 0 ? realpath(path, NULL) : NULL;
        bool of_kit = real && is_below(real, kit) && strcmp(real, kit) != 0;
        if (of_kit || (real && *path == '/' && is_elsewhere(real)))
            ADD_WORDS(paths, real);
        free(real);
    }
    free(compiler);
}

// Programs that a user or a cluster has installed elsewhere, mpirun for instance, with their lib/
// and share/.
static void add_installed(Words *paths, const char *kit)
{
    const char *search = getenv("PATH");
    for (char *folder; search && (folder = next_part(&search, BETWEEN_FOLDERS)); free(folder)) {
        char *slash = strrchr(folder, '/');
        if (slash && strcmp(slash, "/bin") == 0 && slash != folder) {
            *slash = '\0';
            if (is_home(folder))
                *slash = '/'; // bin/ alone
        }
        if (is_elsewhere(folder) && !is_home(folder) && !is_below(kit, folder) &&
            !is_below(folder, kit)) {
            char *real = absolute(folder);
            ADD_WORDS(paths, real);
            free(real);
        }
    }
}

// Found once, and kept.
static const char *const *tools_of_compiler(void)
{
    static Words paths;
    if (!paths.items) {
        char *kit = absolute(".");
        add_named(&paths, kit);
        add_installed(&paths, kit);
        CHECK(paths.items); // common/ is one
        free(kit);
    }
    return (const char *const *)paths.items;
}

// The folders above a path, which a user number of its own may pass through: bwrap would make them
// for root alone.
static void open_parents(Words *words, const char *path)
{
    for (const char *at = path + 1; strict && (at = strchr(at, '/')); at++) {
        char *parent = format_text("%.*s", (int)(at - path), path);
        ADD_WORDS(words, "--perms", "0755", "--dir", parent);
        free(parent);
    }
}

static void show_all(Words *words, const char *how, const char *const *paths)
{
    for (; *paths; paths++) {
        open_parents(words, *paths);
        ADD_WORDS(words, how, *paths, *paths);
    }
}

// ---- bubblewrap, at home: the system to be read, without homes, the kit and its builds; what is
// needed of those comes after this.

static const char *const whole_system[] = {
    "bwrap", "--die-with-parent",
    "--unshare-pid", // kill(-1) reaches the run alone
    "--unshare-net", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev",
    // Ranks meet there under names made of mpirun's process
    // number, which is the same in every such run.
    "--tmpfs", "/dev/shm", "--proc", "/proc", "--size", TMP_BYTES, "--tmpfs", "/tmp", NULL};

static void hide_files(Words *words)
{
    char *kit = absolute("."), *compiler = text_of_compiler(), *builds = absolute(build_folder());
    const char *home = own_home();
    word_list_add(words, whole_system);
    hide_home(words, "/home", kit, compiler);
    hide_home(words, "/root", kit, compiler);
    if (!is_below(home, "/home") && !is_below(home, "/root"))
        hide_home(words, home, kit, compiler);
    ADD_WORDS(words, "--tmpfs", kit);
    if (!is_below(builds, kit))
        ADD_WORDS(words, "--tmpfs", builds);
    add_tools(words, getenv("PATH"), BETWEEN_FOLDERS, kit, NULL);
    free(compiler);
    free(builds);
    free(kit);
}

// ---- For others' code: a list of what is in sight.

static const char *const system_files[] = {
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
    // Settings of programs and libraries
    "/etc/alternatives", "/etc/openmpi", "/etc/openmpi-mca-params.conf",
    "/etc/pmix-mca-params.conf", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    // What MPI and hwloc ask of the machine
    "/sys/devices", "/sys/class/net", "/sys/bus/pci", NULL};

// Without another check's, which may run at the same time.
static uid_t own_user(void)
{
    return FIRST_USER + (uid_t)getpid() % USERS;
}

#define LIMIT_PROCESSES "prlimit", "--nproc=" STRING(MAX_PROCESSES)

static void become_user(Words *words)
{
    char *number = format_text("%d", (int)own_user());
    ADD_WORDS(words, "setpriv", "--reuid", number, "--regid", number, "--clear-groups",
              "--no-new-privs", "--inh-caps=-all", LIMIT_PROCESSES);
    free(number);
}

static void show_list(Words *words)
{
    static const char *const begin[] = {
        "bwrap",         "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-net",
        "--unshare-ipc", "--unshare-uts",     "--proc",        "/proc",         NULL};
    static const char *const scratch[] = {"--size",  TMP_BYTES, "--tmpfs", "/dev/shm", "--size",
                                          TMP_BYTES, "--tmpfs", "/tmp",    NULL};
    word_list_add(words, begin);
    for (const char *const *path = system_files; *path; path++)
        if (access(*path, F_OK) == 0) {
            open_parents(words, *path);
            ADD_WORDS(words, "--ro-bind", *path, *path);
        }
    if (runs_on_gpu())
        ADD_WORDS(words, "--dev-bind", "/dev", "/dev");
    else
        ADD_WORDS(words, "--dev", "/dev");
    word_list_add(words, scratch);
    if (getuid() != 0)
        ADD_WORDS(words, "--unshare-user", "--disable-userns");
    else // to become another user, and nothing else
        ADD_WORDS(words, "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID");
}

static int own_entry(const char *path, const struct stat *entry, int kind, struct FTW *place)
{
    (void)entry;
    (void)kind;
    (void)place;
    return lchown(path, own_user(), own_user());
}

// As root, the run's folders become the user's.
static void give_folders(const char *const *folders)
{
    for (; getuid() == 0 && *folders; folders++)
        nftw(*folders, own_entry, 16, FTW_PHYS);
}

// ---- In the child, before it becomes the program.

static const View *view_of_child;

static void mount_here(const char *folder, const char *place)
{
    if (access(place, F_OK) == 0 && mount(folder, place, NULL, MS_BIND, NULL) != 0)
        _exit(126);
}

// Without bubblewrap, where the system lets this program mount: what all may write in is the run's
// own. A user number of its own may write in /tmp, too, but the kit may be there.
static void mount_scratch(void)
{
    const char *scratch = view_of_child->scratch;
    if (!scratch)
        return;
    char *tmp = format_text("%s/tmp", scratch), *shm = format_text("%s/shm", scratch);
    if (!storage_again())
        _exit(126);
    mount_here(shm, "/dev/shm");
    mount_here(tmp, "/var/tmp");
    if (chosen == SEAL_USER && !is_below(tmp, "/tmp"))
        mount_here(tmp, "/tmp");
    free(tmp);
    free(shm);
}

// ---- Landlock.

#ifdef LANDLOCK_CREATE_RULESET_VERSION
#define READING                                                                                    \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define ALL_KNOWN ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1) // of the first version

static int landlock_version(void)
{
    return (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

static void allow(int rules, const char *path, unsigned long access)
{
    struct stat file;
    int place = open(path, O_PATH | O_CLOEXEC);
    if (place < 0)
        return;
    if (fstat(place, &file) == 0 && !S_ISDIR(file.st_mode))
        access &= LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                  LANDLOCK_ACCESS_FS_WRITE_FILE;
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = place};
    if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
        _exit(126);
    close(place);
}

static void restrict_files(void)
{
    const View *view = view_of_child;
    mount_scratch();
    struct landlock_ruleset_attr all = {.handled_access_fs = ALL_KNOWN};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all.handled_access_fs, 0);
    if (rules < 0)
        _exit(126);
    for (const char *const *path = system_files; *path; path++)
        allow(rules, *path, READING);
    allow(rules, "/proc", READING);
    allow(rules, "/dev", READING | LANDLOCK_ACCESS_FS_WRITE_FILE);
    allow(rules, "/dev/shm", ALL_KNOWN);
    for (const char *const *path = tools_of_compiler(); *path; path++)
        allow(rules, *path, READING);
    for (const char *const *path = view->readable; *path; path++)
        allow(rules, *path, READING);
    for (const char *const *path = view->writable; *path; path++)
        allow(rules, *path, ALL_KNOWN);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_landlock_restrict_self, rules, 0) != 0)
        _exit(126);
    close(rules);
}
#else
static void restrict_files(void)
{
    _exit(126);
}

static int landlock_version(void)
{
    return 0;
}
#endif

// ---- Which there are.

// Runs a command to its end; true where its status is 0.
static bool succeeds(Words *words)
{
    Process process = process_run((const char *const *)words->items);
    bool succeeded = process.status == 0;
    process_free(&process);
    word_list_free(words);
    return succeeded;
}

static bool has_bubblewrap(void)
{
    Words words = {0};
    if (strict)
        show_list(&words);
    else
        word_list_add(&words, whole_system);
    if (strict && getuid() == 0)
        become_user(&words);
    ADD_WORDS(&words, "true");
    return succeeds(&words);
}

// True where a user number of its own finds the compiler and the headers, and no answers.
static bool has_user(void)
{
    if (getuid() != 0)
        return false;
    char *build = absolute(build_folder()), *kit = absolute(".");
    Words words = {0};
    become_user(&words);
    ADD_WORDS(&words, "sh", "-c",
              "test -x \"$0/compile-step\" -a -r \"$0/hvdlab.o\" || exit 1\n"
              "test -r \"$1/common/hvdlab.h\" || exit 1\n"
              "for file in .git/HEAD solutions/*.c labs/*/*.c tests/mistakes/*/*.patch\n"
              "do\n"
              "    test ! -r \"$file\" || exit 1\n"
              "done",
              build, kit);
    free(build);
    free(kit);
    return succeeds(&words);
}

static bool is_below_home(const char *path)
{
    const char *home = own_home();
    return is_below(path, "/home") || is_below(path, "/root") ||
           (strlen(home) > 1 && is_below(path, home));
}

static bool has_program(const char *folder, const char *name)
{
    char *program = format_text("%s/%s", folder, name);
    bool has = access(program, X_OK) == 0;
    free(program);
    return has;
}

// The caller frees it. NULL: none in PATH has mpirun.
static char *folder_of_mpirun(void)
{
    const char *search = getenv("PATH");
    for (char *folder; search && (folder = next_part(&search, BETWEEN_FOLDERS)); free(folder))
        if (has_program(folder, "mpirun"))
            return folder;
    return NULL;
}

// The caller's PATH names folders of the caller's own, of which the seal would show too much. The
// check's is the system's, with the folder of mpirun where that is installed elsewhere; one below a
// home only if make deps made it: it has a program "run".
static void use_system_path(void)
{
    static const char system[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char *own = folder_of_mpirun();
    bool elsewhere = own && is_elsewhere(own) && (!is_below_home(own) || has_program(own, "run"));
    char *path = format_text("%s%s%s", system, elsewhere ? ":" : "", elsewhere ? own : "");
    setenv("PATH", path, 1);
    free(path);
    free(own);
}

static bool may_try(Seal seal)
{
    const char *best = getenv("HVDLAB_SEAL");
    for (int i = SEAL_NONE; best && *best && i < (int)seal; i++)
        if (strcmp(best, names[i]) == 0)
            return false;
    return true;
}

Seal seal_choose(Purpose purpose)
{
    strict = purpose == FOR_OTHERS;
    if (strict) {
        use_system_path();
        storage_prepare();
    }
    if (may_try(SEAL_BUBBLEWRAP) && has_bubblewrap())
        return chosen = SEAL_BUBBLEWRAP;
    if (!strict)
        return chosen = SEAL_NONE;
    if (may_try(SEAL_USER) && has_user())
        return chosen = SEAL_USER;
    if (may_try(SEAL_LANDLOCK) && getuid() != 0 && landlock_version() >= 1)
        return chosen = SEAL_LANDLOCK;
    die("unsealed: nothing here keeps a submission's program from this machine. Install "
        "bubblewrap, or, as root, make solutions, labs, tests and .git unreadable to others (chmod "
        "-R o-rwx); labs/sealed-grading.md says more. --unsealed grades all the same");
}

Seal seal_chosen(void)
{
    return chosen;
}

bool seal_is_strict(void)
{
    return strict;
}

const char *seal_name(void)
{
    return names[chosen];
}

void seal_tidy_up(void)
{
    static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm"};
    for (size_t i = 0; chosen == SEAL_USER && i < sizeof places / sizeof *places; i++) {
        DIR *entries = opendir(places[i]);
        for (struct dirent *entry; entries && (entry = readdir(entries));) {
            struct stat file;
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s/%s", places[i], entry->d_name);
            if (lstat(path, &file) == 0 && file.st_uid == own_user())
                remove_tree(path);
        }
        if (entries)
            closedir(entries);
    }
}

uid_t seal_user(void)
{
    return strict && getuid() == 0 ? own_user() : getuid();
}

int seal_depth(void)
{
    return chosen == SEAL_BUBBLEWRAP ? 2 : 0; // bwrap and its init
}

// ---- Programs in it.

static void show_scratch(Words *words, const char *scratch)
{
    char *tmp = format_text("%s/tmp", scratch), *shm = format_text("%s/shm", scratch);
    ADD_WORDS(words, "--bind", tmp, "/tmp", "--bind", shm, "/dev/shm");
    free(tmp);
    free(shm);
}

static void use_bubblewrap(Words *words, const View *view)
{
    if (strict)
        show_list(words);
    else
        hide_files(words);
    if (view->scratch)
        show_scratch(words, view->scratch);
    show_all(words, "--ro-bind", tools_of_compiler());
    show_all(words, "--ro-bind", view->readable);
    show_all(words, "--bind", view->writable);
    if (view->file)
        ADD_WORDS(words, "--ro-bind", view->file, view->as);
    if (strict) // what bwrap makes of folders between mounts, without a limit
        ADD_WORDS(words, "--remount-ro", "/dev", "--remount-ro", "/");
}

Process seal_start(const View *view, const char *const argv[])
{
    Words words = {0};
    setenv("HOME", view->temporary, 1); // Open MPI 5 takes a ; in HOME for the end of a path
    setenv("TMPDIR", view->temporary, 1);
    ADD_WORDS(&words, "env");
    for (const char *const *name = environment_of_check; *name; name++)
        ADD_WORDS(&words, "-u", *name);
    if (chosen == SEAL_BUBBLEWRAP)
        use_bubblewrap(&words, view);
    ADD_WORDS(&words, "--chdir", view->folder); // of bwrap, or of env
    if (strict && getuid() == 0) {
        give_folders(view->writable);
        become_user(&words);
    } else if (strict && storage_prepared()) { // the user's others do not count in a namespace
        ADD_WORDS(&words, LIMIT_PROCESSES);
    }
    word_list_add(&words, argv);
    tools_of_compiler(); // found before the fork
    view_of_child = view;
    process_in_child(chosen == SEAL_LANDLOCK ? restrict_files
                     : chosen == SEAL_USER   ? mount_scratch
                                             : NULL);
    Process process = process_start((const char *const *)words.items);
    process_in_child(NULL);
    word_list_free(&words);
    return process;
}
