// watch: checks an exercise whenever its file is saved (make watch).
//
// It watches the folder steps/, since editors save in many ways: into the file, or into another
// that is renamed. A save counts 200 milliseconds after the last of a series, and only if the
// contents changed; it ends a check that still runs. Another exercise's file changes nothing but a
// line on the screen. On file systems that report no changes made elsewhere (9p, NFS, ...) it looks
// once a second.
//
// It begins with the exercise of last time (BUILD/watched), or, if that has passed, with the first
// that has not. Without a terminal there are plain lines and no keys.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/process.h"

#define FOLDER   "steps"
#define QUIET    0.2 // seconds after a save
#define POLL     1.0 // seconds between two looks where nothing is reported
#define PATIENCE 3.0 // seconds in which a check ends itself
#define BAR      30

static const char keys[] = "[n]ext [p]revious [r]erun [h]int [l]ist [c]heck all [x] reset [q]uit";

typedef struct {
    char *name, *file; // "3" or "ring"; "step_03" or "ring"
    char *lab;         // "02-six-steps"
    bool passed, untouched;
    struct timespec saved; // as it was seen last
    FileHash contents;
} Exercise;

static struct {
    Exercise *items;
    int count, current;
    bool terminal, clears, polls; // clears: the terminal knows how to clear its screen
    bool carries;                 // what runs writes the next exercise's file
    pid_t check;                  // the process group that runs; 0: none
    double due, look;             // when a save is to be checked, 0: none; when to look again
    struct termios before;
} w;

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    stopped = number;
}

// ---- What is watched.

static const char *build_folder(void)
{
    const char *build = getenv("BUILD");
    return build && *build ? build : "build";
}

static void read_exercises(void)
{
    FILE *table = popen("common/scripts/labs.sh table", "re");
    char name[64], file[64], lab[128];
    while (table && fscanf(table, "%63s %63s labs/%127s %*[^\n]", name, file, lab) == 3) {
        w.items = enlarge(w.items, (size_t)w.count + 1, sizeof *w.items);
        w.items[w.count++] = (Exercise){.name = format_text("%s", name),
                                        .file = format_text("%s", file),
                                        .lab = format_text("%s", lab)};
    }
    if (!table || pclose(table) != 0 || w.count == 0)
        die("there are no exercises here: call this as make watch, in the kit's folder");
}

// Its number; -1: there is none of that name.
static int number_of(const char *name)
{
    for (int i = 0; i < w.count; i++)
        if (strcmp(w.items[i].name, name) == 0)
            return i;
    return -1;
}

static void read_states(void)
{
    FILE *states = popen("common/scripts/student.sh states", "re");
    char name[64], state[64];
    while (states && fscanf(states, "%63s %63s%*[^\n]", name, state) == 2) {
        int number = number_of(name);
        if (number < 0)
            continue;
        w.items[number].passed = strcmp(state, "passed") == 0;
        w.items[number].untouched = strcmp(state, "untouched") == 0;
    }
    if (states)
        pclose(states);
}

static char *path_of(const Exercise *exercise)
{
    return format_text(FOLDER "/%s.c", exercise->file);
}

static FileHash contents_of(const Exercise *exercise)
{
    char *path = path_of(exercise);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    FileHash hash = file_hash(file); // of -1, too
    if (file >= 0)
        close(file);
    free(path);
    return hash;
}

static bool has_changed(const Exercise *exercise)
{
    return strcmp(contents_of(exercise).digits, exercise->contents.digits) != 0;
}

static char *state_path(void)
{
    return format_text("%s/watched", build_folder());
}

// The number of the exercise that make next goes to after the one of this name ('': the next one);
// `otherwise` where there is none.
static int following(const char *name, int otherwise)
{
    char *command = format_text("common/scripts/student.sh following '%s'", name), next[64];
    FILE *answer = popen(command, "re");
    int number = answer && fscanf(answer, "%63s", next) == 1 ? number_of(next) : -1;
    if (answer)
        pclose(answer);
    free(command);
    return number >= 0 ? number : otherwise;
}

// Where it was, unless that has passed; then where make progress begins.
static void choose_exercise(void)
{
    char *path = state_path(), name[64];
    file_beginning(path, name, sizeof name);
    free(path);
    name[strcspn(name, "\n")] = '\0';
    int last = number_of(name);
    w.current = last >= 0 && !w.items[last].passed ? last : following("", 0);
}

static void keep_exercise(void)
{
    char *path = state_path();
    FILE *file = fopen(path, "we");
    if (file) {
        fprintf(file, "%s\n", w.items[w.current].name);
        fclose(file);
    }
    free(path);
}

// ---- The screen.

// "[###....] 3 of 33 passed".
static void show_progress(void)
{
    int passed = 0;
    for (int i = 0; i < w.count; i++)
        passed += w.items[i].passed;
    putchar('[');
    for (int i = 0; i < BAR; i++)
        putchar(i * w.count < passed * BAR ? '#' : '.'); // one for the first
    printf("] %d of %d passed\n", passed, w.count);
}

static void show_head(const char *doing)
{
    const Exercise *e = &w.items[w.current];
    if (w.clears)
        printf("\033[H\033[2J"); // the upper left corner; an empty screen
    printf("%s, " FOLDER "/%s.c: %s\n", e->name, e->file, doing);
    if (w.terminal)
        puts(keys);
    putchar('\n');
    fflush(stdout);
}

static void show_foot(void)
{
    putchar('\n');
    show_progress();
    if (w.terminal)
        puts(keys);
    fflush(stdout);
}

// A line for each lab, so that all fit on a screen; make progress says more.
static void show_list(void)
{
    const char *lab = "";
    show_head("list");
    for (int i = 0; i < w.count; i++) {
        const Exercise *e = &w.items[i];
        if (strcmp(e->lab, lab) != 0)
            printf("%s%-20s", i > 0 ? "\n" : "", e->lab);
        lab = e->lab;
        printf(" %c%s", i == w.current ? '>' : e->passed ? '+' : '.', e->name);
    }
    printf("\n\n+ passed   . to do   > this one\n");
    show_foot();
}

// ---- What runs.

// Starts student.sh with these words, in a process group of its own. It reads nothing.
static void start(const char *verb, const char *name)
{
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        die("cannot start %s: %s", verb, strerror(errno));
    if (child == 0) {
        setpgid(0, 0);
        signal(SIGTTOU, SIG_IGN); // stty tostop would stop what is in the background and writes
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, STDIN_FILENO);
        dup2(STDOUT_FILENO, STDERR_FILENO);
        if (getppid() == parent)
            execl("common/scripts/student.sh", "student.sh", verb, name, (char *)NULL);
        _exit(127);
    }
    setpgid(child, child);
    w.check = child;
}

// Ends what runs, with all that it started: politely, since a check ends its own runs.
static void end_check(void)
{
    if (!w.check)
        return;
    kill(-w.check, SIGTERM);
    double end = seconds_now() + PATIENCE;
    while (waitpid(w.check, NULL, WNOHANG) == 0)
        if (seconds_now() > end) {
            kill(-w.check, SIGKILL);
            waitpid(w.check, NULL, 0);
            break;
        } else {
            usleep(10000);
        }
    w.check = 0;
}

static void run_and_show(const char *doing, const char *verb)
{
    end_check();
    show_head(doing);
    start(verb, w.items[w.current].name);
}

static void check_now(void)
{
    w.items[w.current].contents = contents_of(&w.items[w.current]);
    w.due = 0;
    run_and_show("checking", "check");
}

static void take_end(void)
{
    if (!w.check || waitpid(w.check, NULL, WNOHANG) != w.check)
        return;
    kill(-w.check, SIGKILL); // what it may have left
    w.check = 0;
    if (w.carries)
        w.items[w.current].contents = contents_of(&w.items[w.current]);
    w.carries = false;
    read_states();
    show_foot();
}

// ---- What happens.

static void note_save(int number)
{
    Exercise *e = &w.items[number];
    if (number == w.current) {
        w.due = seconds_now() + QUIET;
    } else if (has_changed(e)) {
        e->contents = contents_of(e);
        printf("(" FOLDER "/%s.c was saved, too; this is about %s: n and p go to others)\n",
               e->file, w.items[w.current].name);
        fflush(stdout);
    }
}

static void take_events(int watcher)
{
    char buffer[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t bytes;
    while ((bytes = read(watcher, buffer, sizeof buffer)) > 0)
        for (char *at = buffer; at < buffer + bytes;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)at;
            for (int i = 0; event->len && i < w.count; i++) {
                size_t length = strlen(w.items[i].file);
                if (strncmp(event->name, w.items[i].file, length) == 0 &&
                    strcmp(event->name + length, ".c") == 0)
                    note_save(i);
            }
            at += sizeof *event + event->len;
        }
}

// Where nothing is reported.
static void look(void)
{
    if (seconds_now() < w.look)
        return;
    w.look = seconds_now() + POLL;
    for (int i = 0; i < w.count; i++) {
        char *path = path_of(&w.items[i]);
        struct stat file;
        if (stat(path, &file) == 0 &&
            memcmp(&file.st_mtim, &w.items[i].saved, sizeof file.st_mtim) != 0) {
            if (w.items[i].saved.tv_sec)
                note_save(i);
            w.items[i].saved = file.st_mtim;
        }
        free(path);
    }
}

static void go_to(int number)
{
    if (number < 0 || number >= w.count)
        return;
    w.current = number;
    keep_exercise();
    check_now();
}

// As make next, where this exercise has passed and the next one is untouched: a step's answer is
// carried on into the next file, which is not checked before it is saved.
static void go_on(void)
{
    read_states(); // a reset may have ended just now
    int to = w.current + 1;
    if (w.items[w.current].passed)
        to = following(w.items[w.current].name, to);
    if (to >= w.count || !w.items[w.current].passed || !w.items[to].untouched) {
        go_to(to);
        return;
    }
    run_and_show("next", "next");
    w.carries = true;
    w.current = to;
    keep_exercise();
}

static void reset(void)
{
    end_check();
    printf("Throw away what you wrote in " FOLDER "/%s.c (a backup is kept)? [y/N] ",
           w.items[w.current].file);
    fflush(stdout);
    char answer = 0;
    if (read(STDIN_FILENO, &answer, 1) == 1 && (answer == 'y' || answer == 'Y')) {
        setenv("YES", "1", 1); // it is asked here
        run_and_show("reset", "reset");
        unsetenv("YES");
        return;
    }
    printf("\nnothing was changed\n");
    show_foot();
}

// False: the end.
static bool take_key(void)
{
    char key;
    if (read(STDIN_FILENO, &key, 1) != 1)
        return false;
    switch (key) {
    case 'n':
        go_on();
        break;
    case 'p':
        go_to(w.current - 1);
        break;
    case 'r':
        check_now();
        break;
    case 'h':
        run_and_show("hint", "hint");
        break;
    case 'l':
        end_check();
        show_list();
        break;
    case 'c':
        run_and_show("checking all", "check-all");
        break;
    case 'x':
        reset();
        break;
    case 'q':
    case 4: // Control-D
        return false;
    }
    return true;
}

static void watch(int watcher)
{
    while (!stopped) {
        struct pollfd wanted[2] = {{.fd = w.polls ? -1 : watcher, .events = POLLIN},
                                   {.fd = w.terminal ? STDIN_FILENO : -1, .events = POLLIN}};
        poll(wanted, 2, w.check || w.due > 0 ? 20 : 250);
        if (w.polls)
            look();
        else if (wanted[0].revents)
            take_events(watcher);
        if (wanted[1].revents && !take_key())
            return;
        if (w.due > 0 && seconds_now() > w.due) {
            w.due = 0;
            if (has_changed(&w.items[w.current]))
                check_now();
        }
        take_end();
    }
}

// ---- The beginning and the end.

// Of file systems whose changes may be made elsewhere.
static bool reports_nothing(void)
{
    static const long kinds[] = {0x01021997, 0x6969,     0xff534d42, 0xfe534d42,
                                 0x65735546, 0x786f4256, 0x517b};
    struct statfs system;
    if (getenv("HVDLAB_WATCH_POLL"))
        return true;
    if (statfs(FOLDER, &system) != 0)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((long)(unsigned)system.f_type == kinds[i])
            return true;
    return false;
}

static void take_terminal(void)
{
    w.terminal =
        isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && tcgetattr(STDIN_FILENO, &w.before) == 0;
    if (!w.terminal)
        return;
    const char *kind = getenv("TERM");
    w.clears = kind && *kind && strcmp(kind, "dumb") != 0;
    struct termios raw = w.before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

int main(void)
{
    const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction end = {.sa_handler = stop};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &end, NULL);
    read_exercises();
    read_states();
    choose_exercise();
    for (int i = 0; i < w.count; i++)
        w.items[i].contents = contents_of(&w.items[i]);
    int watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    w.polls = reports_nothing() || watcher < 0 ||
              inotify_add_watch(watcher, FOLDER, IN_CLOSE_WRITE | IN_MOVED_TO) < 0;
    take_terminal();
    keep_exercise();
    check_now();
    if (w.polls)
        printf("(" FOLDER "/ reports no changes here: it is looked at once a second)\n");
    watch(watcher);
    end_check();
    if (w.terminal)
        tcsetattr(STDIN_FILENO, TCSANOW, &w.before);
    return stopped ? 128 + stopped : EXIT_SUCCESS;
}
