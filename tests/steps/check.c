// Grades a student's file: compiles it, runs it as the exercise's lab.conf says, and lets the
// judges of one or several exercises look at what the runs did. What they find is printed, and kept
// under BUILD/check beside a copy of the file. On a slow machine HVDLAB_PATIENCE=N gives a run N
// times as long before it counts as hung; HVDLAB_CHECK_DEVICE=gpu grades on GPUs instead of on the
// CPU's cores. Nothing here reads the source: how a program does what it does is the student's
// business.
//
// With --sealed it grades the code of others: in the best seal that there is (seal.h), and not
// without one, unless --unsealed insists. --seed N makes the runs' random numbers, and the lengths
// and names that do not matter, a function of N. --stamp-seed N is the seed that an answer
// sheet must have; of one's own file it stands in stamp.txt, if that is there. --out FILE writes the
// verdict to FILE instead of BUILD/check. --keep FOLDER leaves the runs' folders in FOLDER:
// their traces, their files and their output.
//
// Status 0: passed; 1: failed; 2: no verdict, since something failed that is not the program's
// doing. Then no verdict is written, and that of an earlier check stays.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "run/args.h"
#include "run/device.h"
#include "arranged.h"
#include "control.h"
#include "end.h"
#include "environment.h"
#include "file_kind.h"
#include "judge.h"
#include "machine_time.h"
#include "reader.h"
#include "sandbox.h"
#include "seal.h"
#include "servers.h"
#include "submission.h"
#include "symbols.h"
#include "workplace.h"
#include "diagnoses/check.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/setting.h"
#include "base/format.h"
#include "lessons/sheet.h"

#define MAX_GRADED    32   // exercises that are graded at once
#define LIMIT         7.5  // seconds a run, for all runs of a check together
#define JUDGE_LIMIT   20.0 // seconds that the judges may take
#define COMPILE_LIMIT 20.0

#define MAX_SEED 999999999

#define STAMP "stamp.txt" // of a student's package: common/scripts/release.sh

#define GPU_PATIENCE 2 // CUDA and its libraries take seconds to start

typedef struct {
    Purpose purpose;
    uint64_t seed;     // 0: none
    const char *build; // folder
    const char *file;
    const char *out;  // where the verdict goes; NULL: BUILD/check
    const char *keep; // where the runs' folders go; NULL: they are removed
    Submission submission;
    Exercises exercises; // all that there are
    const Exercise *graded[MAX_GRADED];
    Report reports[MAX_GRADED];
    int count;
    double patience; // times the limits after which a run counts as hung
    char *folder;    // of this check: copies of the file, the program, and what it writes
    char *look_at;   // of the program, for an instructor; NULL: nothing
    Runs runs;
    const char *messages; // the compiler's, for judge_compiler, and its status
    int status;
} Check;

// ---- Arguments.

static _Noreturn void usage(const Check *check)
{
    char *names = format_text("%s", "");
    for (int i = 0; i < check->exercises.count; i++)
        text_add(&names, "%s%s", i ? ", " : "", check->exercises.items[i].name);
    die("usage: check-step [--sealed | --unsealed] [--seed N] [--stamp-seed N] [--out FILE] "
        "[--keep FOLDER] "
        "EXERCISE[,EXERCISE...] FILE: grades FILE as an answer to an exercise (%s), or by several "
        "exercises' checks",
        names);
}

static void add_exercise(Check *check, const char *name)
{
    const Exercise *exercise = exercise_named(&check->exercises, name);
    if (!exercise || check->count == MAX_GRADED)
        usage(check);
    for (int i = 0; i < check->count; i++)
        if (check->graded[i] == exercise)
            usage(check);
    if (!judge_of(exercise->file) || exercise->run_count == 0)
        die("there is no tests/steps/judge_%s.c, or lab.conf has no run for exercise %s",
            exercise->file, name);
    for (int i = 0; i < exercise->holds.count; i++)
        if (!judge_of(exercise_named(&check->exercises, exercise->holds.items[i])->file))
            die("there is no judge for exercise %s, which exercise %s holds",
                exercise->holds.items[i], name);
    check->graded[check->count++] = exercise;
}

static void read_exercises(Check *check, const char *list)
{
    if (!*list || list[strlen(list) - 1] == ',')
        usage(check);
    for (char *name; (name = next_part(&list, ",")); free(name))
        add_exercise(check, name);
}

// The value of an option that has one; NULL: it is another option.
static const char *value_of(const char *option, int argc, char **argv, int *at)
{
    if (strcmp(argv[*at], option) != 0 || *at + 1 == argc)
        return NULL;
    return argv[++*at];
}

static uint64_t read_seed(const char *text, int largest)
{
    uint64_t seed = 0;
    if (!read_whole_number(text, (uint64_t)largest, &seed) || seed == 0)
        die("the seed is a whole number from 1 to %d, not '%s'", largest, text);
    return seed;
}

// "seed for NAMES: N" in the stamp, the answer sheets' names; 0: it isn't there.
static uint64_t seed_of_stamp(void)
{
    FILE *file = fopen(STAMP, "re");
    char line[256];
    unsigned long seed = 0;
    while (file && seed == 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "seed for %*[^:]: %6lu", &seed) != 1)
            seed = 0;
    if (file)
        fclose(file);
    return seed;
}

// The number of words that they are, with the program's name.
static int read_options(Check *check, int argc, char **argv)
{
    int at = 1;
    for (const char *value; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--sealed") == 0)
            check->purpose = FOR_OTHERS;
        else if (strcmp(argv[at], "--unsealed") == 0)
            check->purpose = FOR_OTHERS_UNSEALED;
        else if ((value = value_of("--seed", argc, argv, &at)))
            check->seed = read_seed(value, MAX_SEED);
        else if ((value = value_of("--stamp-seed", argc, argv, &at)))
            check->runs.stamp_seed = read_seed(value, MAX_SHEET_SEED);
        else if ((value = value_of("--out", argc, argv, &at)) && *value)
            check->out = value;
        else if ((value = value_of("--keep", argc, argv, &at)) && *value)
            check->keep = value;
        else
            usage(check);
    }
    return at;
}

static void need_file(const char *path)
{
    struct stat file;
    if (stat(path, &file) != 0 || access(path, R_OK) != 0)
        die("cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(file.st_mode))
        die("%s is not a file", path);
}

static void need_kit(const Check *check)
{
    char *compiler = format_text("%s/compile-step", check->build);
    if (access(compiler, X_OK) != 0 || access("common/scripts/mpi.sh", X_OK) != 0)
        die("%s or common/scripts/mpi.sh is not there: call this through make check-N, or in the "
            "kit's folder after make %s",
            compiler, compiler);
    free(compiler);
}

// That there is no GPU is not the student's doing. Another process looks, so that this one takes no
// memory of the GPU.
static void need_device(void)
{
    const char *device = getenv(CHECK_DEVICE);
    if (device && *device && strcmp(device, "cpu") != 0 && !runs_on_gpu())
        die(CHECK_DEVICE "=%s is not cpu or gpu", device);
    if (!runs_on_gpu())
        return;
    pid_t child = fork();
    if (child == 0) {
        settings()->device = DEVICE_GPU;
        CHECK(freopen("/dev/null", "w", stderr)); // it would speak of another setting
        device_current();
        _exit(EXIT_SUCCESS);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0)
        die(CHECK_DEVICE
            "=gpu: no GPU can be used, as make info may show; unset it to check on the processor");
}

// ---- Folders and files.

// Where results stay, and where they are until all of them are there.
static char *result_path(const Check *check, const Exercise *exercise, const char *suffix)
{
    return format_text("%s/check/%s.%s", check->build, exercise->file, suffix);
}

static char *new_path(const Check *check, const Exercise *exercise, const char *suffix)
{
    return format_text("%s/%s.%s", check->folder, exercise->file, suffix);
}

static void take_file(Check *check)
{
    char *copy = new_path(check, check->graded[0], "c");
    check->submission = submission_take(check->file, copy);
    for (int i = 1; i < check->count; i++) {
        char *other = new_path(check, check->graded[i], "c");
        copy_file(copy, other);
        free(other);
    }
    free(copy);
}

static void move(const char *from, const char *to)
{
    if (rename(from, to) != 0)
        die("cannot move %s to %s: %s", from, to, strerror(errno));
}

static void move_result(const Check *check, const Exercise *exercise, const char *suffix)
{
    char *from = new_path(check, exercise, suffix), *to = result_path(check, exercise, suffix);
    move(from, to);
    free(from);
    free(to);
}

// A verdict and the file that it is about take the place of others. In between there is no verdict.
static void move_results(const Check *check)
{
    WorkplaceLock lock = workplace_lock(check->build);
    for (int i = 0; i < check->count; i++) {
        char *json = result_path(check, check->graded[i], "json");
        unlink(json);
        free(json);
        move_result(check, check->graded[i], "c");
        move_result(check, check->graded[i], "json");
    }
    workplace_unlock(lock);
}

// ---- Grading.

// What the compiler says of the file; `program` is there afterwards if its status is 0. A compiler
// that fails for any file is not the student's doing.
static Process start_compiler(const Check *check, const char *compiler, const char *program)
{
    char *copy = new_path(check, check->graded[0], "c");
    Process process = process_end_within(sandbox_compile(compiler, check->file, copy, program),
                                         COMPILE_LIMIT * check->patience);
    if (access(check->file, R_OK) != 0 || !same_bytes(check->file, copy))
        die("%s was changed while it was compiled: check it again", check->file);
    if (process.status == 0 && access(program, X_OK) != 0)
        die("%s has made no program, and says nothing", compiler);
    if (process.status != 0 && !file_kind(copy)) {
        char *folder = format_text("%s/program", check->folder);
        remove_tree(folder); // it may be what fills the disk
        free(folder);
        control_program();
    }
    workplace_hide(process.text);
    free(copy);
    return process;
}

// ---- What a submission leaves is read, and judged, by readers.

static void begin_reports(Check *check)
{
    for (int i = 0; i < check->count; i++)
        check->reports[i] = (Report){.exercise = check->graded[i]->name, .file = check->file};
}

// Prints what the judges have found, a line for each report.
static void print_reports(const Check *check)
{
    for (int i = 0; i < check->count; i++) {
        char *text = report_text(&check->reports[i]);
        puts(text);
        free(text);
    }
}

// Takes over what a reader has found in these folders: `reading` ends with print_reports.
static void judge_apart(Check *check, Reading reading, const char *const *folders)
{
    Answer answer = reader_ask(reading, folders, check, JUDGE_LIMIT * check->patience);
    bool sense = answer.text != NULL;
    const char *at = answer.text;
    for (int i = 0; sense && i < check->count; i++) {
        char *line = next_part(&at, "\n");
        sense = line && report_take(&check->reports[i], line);
        free(line);
    }
    for (int i = 0; !sense && i < check->count; i++)
        report_failure(&check->reports[i], SENSE, &d_trace_makes_no_sense,
                       format_text("what reads what the program left %s",
                                   answer.fault ? answer.fault : "gives no sensible answer"));
    answer_free(&answer);
}

static bool all_passed(const Check *check)
{
    bool passed = true;
    for (int i = 0; i < check->count; i++)
        passed = passed && report_passed(&check->reports[i]);
    return passed;
}

static void read_messages(const int *folders, void *argument)
{
    Check *check = argument;
    char *file = format_text("%s.c", check->graded[0]->file);
    CHECK(fchdir(folders[0]) == 0);
    for (int i = 0; i < check->count; i++)
        judge_compiler(file, check->status, check->messages, &check->reports[i]);
    free(file);
    print_reports(check);
}

// The program that the file makes, or NULL; the caller frees it.
static char *compile_file(Check *check)
{
    char *compiler = format_text("%s/compile-step", check->build);
    char *folder = format_text("%s/program", check->folder);
    make_folders(folder);
    char *program = format_text("%s/%s", folder, check->graded[0]->file);
    free(folder);
    control_prepare(compiler, check->folder, COMPILE_LIMIT * check->patience);
    Process process = start_compiler(check, compiler, program);
    check->messages = process.text;
    check->status = process.status;
    judge_apart(check, read_messages, (const char *const[]){check->folder, NULL});
    process_free(&process);
    char *symbols = format_text("%s.symbols", program);
    check->look_at = check->purpose == FOR_OWN ? NULL : symbols_to_look_at(symbols);
    free(symbols);
    if (all_passed(check))
        return program;
    free(program);
    return NULL;
}

// The same run serves all who ask for it.
static int plan_runs(const Check *check, RunPlan plans[])
{
    int count = 0;
    for (int i = 0; i < check->count; i++)
        for (int r = 0; r < check->graded[i]->run_count; r++) {
            bool known = false;
            for (int p = 0; p < count; p++)
                known = known || same_plan(&plans[p], &check->graded[i]->runs[r]);
            if (!known && count == MAX_GRADED)
                die("these exercises have more than %d runs together", MAX_GRADED);
            if (!known)
                plans[count++] = check->graded[i]->runs[r];
        }
    return count;
}

// What the exercise is about was done by the library: says so.
static void judge_replaced(const Check *check, const Exercise *exercise, Report *report)
{
    bool any = false;
    for (int i = 0; i < exercise->replaces.count; i++) {
        const char *function = exercise->replaces.items[i];
        const Run *run = check->runs.items, *end = run + check->runs.count;
        while (run < end && !ranks_that_called(run, function))
            run++;
        if (run == end)
            continue;
        any = true;
        char *property = format_text("%s is not called: the exercise is to do without", function);
        char *mistake = format_text("%s does what the exercise asks you to write.", function);
        char *callers = run_is_one_process(&run->plan)
                            ? format_text("the program")
                            : process_names(&run->traces, ranks_that_called(run, function));
        report_failure(report, property, &(Diagnosis){"library-did-it", mistake, NULL},
                       format_text("%s called %s", callers, function));
        free(callers);
        free(property);
        free(mistake);
    }
    if (!any && exercise->replaces.count > 0)
        report_ok(report, "nothing is called that does the exercise");
}

// What earlier exercises brought must still hold; nothing is said of it where it does.
static void judge_held(const Check *check, const Exercise *exercise, Report *report)
{
    for (int i = 0; i < exercise->holds.count; i++) {
        const Exercise *held = exercise_named(&check->exercises, exercise->holds.items[i]);
        Report quiet = {.exercise = held->name, .held = true, .file = check->file};
        judge_of(held->file)(&check->runs, &quiet);
        if (!report_passed(&quiet))
            report_lost(report, &quiet);
        if (quiet.notes)
            report_note(report, "%s", quiet.notes);
        report_free(&quiet);
    }
}

static void judge_runs(Check *check)
{
    for (int i = 0; i < check->count && check->runs.count > 0; i++) {
        judge_held(check, check->graded[i], &check->reports[i]);
        judge_replaced(check, check->graded[i], &check->reports[i]);
        judge_of(check->graded[i]->file)(&check->runs, &check->reports[i]);
        judge_arranged(&check->runs, &check->reports[i]);
    }
}

// What is wrong in the runs before explains mostly why the last one doesn't come to its end, so it
// is said first.
static void read_runs(const int *folders, void *argument)
{
    Check *check = argument;
    Run *runs = check->runs.items, *last = runs + check->runs.count;
    int count = check->runs.count + !check->runs.all;
    for (int i = 0; i < count; i++)
        run_read(&runs[i], folders[2 * i], folders[2 * i + 1]);
    // (They hold what the compiler's judge has found: that is known.)
    begin_reports(check);
    for (int i = 0; check->runs.all && i < check->count; i++)
        report_ok(&check->reports[i], end_property(&runs[0].plan));
    judge_runs(check);
    for (int i = 0; !check->runs.all && i < check->count; i++)
        judge_end(last, ends_of(check->graded[i]->file), &check->reports[i]);
    print_reports(check);
}

// What decides how the check goes on.
#define AT_ONCE "failed at once"
#define TO_END  "came to its end"

typedef struct {
    Run *run;
    const Exercise *exercise;
} Look;

static void look_at_run(const int *folders, void *argument)
{
    const Look *look = argument;
    Report trial = {.exercise = look->exercise->name};
    run_read(look->run, folders[0], folders[1]);
    if (judge_end(look->run, ends_of(look->exercise->file), &trial))
        printf(TO_END);
    else if (run_failed_at_once(look->run))
        printf(AT_ONCE);
}

// Whether a run came to its end. Ends the check where mpirun does not work.
static bool came_to_end(const Check *check, Run *run, const char *folder)
{
    const char *const folders[] = {run->trace, run->work, NULL};
    Answer answer = reader_ask(look_at_run, folders, &(Look){run, check->graded[0]},
                               JUDGE_LIMIT * check->patience);
    bool ended = answer.text && strcmp(answer.text, TO_END) == 0;
    if (answer.text && strcmp(answer.text, AT_ONCE) == 0)
        run_need_mpirun(folder, &run->plan, check->patience);
    answer_free(&answer);
    return ended;
}

// Runs the program as often as the exercises ask, until a run doesn't come to its end.
static void run_plans(Check *check, const char *program, const RunPlan *plans, int count)
{
    check->patience *= machine_slowness();
    Limits limits = {.deadline = seconds_now() + LIMIT * count * check->patience,
                     .patience = check->patience};
    Runs *runs = &check->runs;
    runs->all = true;
    runs->items = allocate((size_t)count, sizeof *runs->items);
    for (int i = 0; i < count && runs->all; i++) {
        char *folder = format_text("%s/%d-%s", check->folder, i + 1, plans[i].name);
        const Run *before = plans[i].after ? run_named(runs, plans[i].after) : NULL;
        if (plans[i].after && !before)
            die("lab.conf: run %s is to come after %s, which is no earlier one", plans[i].name,
                plans[i].after);
        runs->items[i] =
            run_program(program, folder, before ? before->work : NULL, &plans[i], limits);
        double end = seconds_now();
        runs->all = came_to_end(check, &runs->items[i], folder);
        runs->count += runs->all;
        limits.deadline += seconds_now() - end; // it is no time of the program's
        free(folder);
    }
}

// Moves the folder of the run, with its output in a file and its traces.
static void keep_run(const Check *check, const Run *run)
{
    char *folder = format_text("%s", run->work);
    *strrchr(folder, '/') = '\0';
    char *to = format_text("%s%s", check->keep, strrchr(folder, '/')),
         *trace = format_text("%s/trace", to), *output = format_text("%s/output", folder);
    file_replace(output, run->text, strlen(run->text));
    move(folder, to);
    move(run->trace, trace);
    free(folder);
    free(output);
    free(to);
    free(trace);
}

static void run_and_judge(Check *check, const char *program)
{
    RunPlan plans[MAX_GRADED];
    int count = plan_runs(check, plans);
    for (int i = 0; i < count && check->seed; i++)
        vary_plan(&plans[i], check->seed);
    run_plans(check, program, plans, count);
    int ran = check->runs.count + !check->runs.all;
    const char *folders[2 * MAX_GRADED + 1] = {NULL};
    for (int i = 0; i < ran; i++) {
        folders[2 * i] = check->runs.items[i].trace;
        folders[2 * i + 1] = check->runs.items[i].work;
    }
    judge_apart(check, read_runs, folders);
    for (int i = 0; i < ran; i++) {
        if (check->keep)
            keep_run(check, &check->runs.items[i]);
        run_free(&check->runs.items[i]);
    }
    free(check->runs.items);
}

// A trace that makes no sense is a reason for an instructor to look at the program.
static void remark_nonsense(Check *check)
{
    for (int i = 0; i < check->count && check->purpose != FOR_OWN; i++)
        if (check->reports[i].diagnosis && strcmp(check->reports[i].diagnosis, NONSENSE) == 0) {
            text_add(&check->look_at, "%sits trace makes no sense", check->look_at ? "\n" : "");
            return;
        }
}

static void write_results(Check *check, double seconds)
{
    for (int i = 0; i < check->count; i++) {
        Report *report = &check->reports[i];
        report->seconds = seconds;
        report->seal = seal_name();
        report->seed = check->seed;
        report->sha256 = check->submission.sha256;
        report->untouched = submission_is_untouched(&check->submission, check->graded[i]->file);
        report->look_at = check->look_at;
        char *json = new_path(check, check->graded[i], "json");
        report_write_json(report, json);
        free(json);
    }
    if (check->out)
        report_write_json(&check->reports[0], check->out);
    else
        move_results(check);
    for (int i = 0; i < check->count; i++)
        report_print(&check->reports[i]);
}

// True where every exercise passed.
static bool grade(Check *check)
{
    double begin = seconds_now();
    check->folder = workplace_make(check->build, seal_is_strict());
    take_file(check);
    begin_reports(check);
    char *program = compile_file(check);
    if (program)
        run_and_judge(check, program);
    remark_nonsense(check);
    write_results(check, seconds_now() - begin);
    free(program);
    workplace_remove();
    return all_passed(check);
}

static void tidy_up(void)
{
    sandbox_tidy_up();
    workplace_remove();
}

int main(int argc, char **argv)
{
    Check check = {.build = build_folder(), .exercises = exercises_read()};
    environment_limit();
    int words = read_options(&check, argc, argv);
    if (argc - words != 2)
        usage(&check);
    read_exercises(&check, argv[words]);
    if (check.purpose == FOR_OWN && check.runs.stamp_seed == 0)
        check.runs.stamp_seed = seed_of_stamp();
    if (check.out && check.count > 1)
        die("--out FILE is for one exercise");
    check.file = argv[words + 1];
    if (*check.file == '-') // else it is an option to the compiler
        check.file = format_text("./%s", check.file);
    check.patience = setting_count(HVDLAB_PATIENCE);
    if (check.patience == 0)
        check.patience = 1;
    if (runs_on_gpu())
        check.patience *= GPU_PATIENCE;
    check.patience *= crowding();
    need_file(check.file);
    need_kit(&check);
    need_device();
    process_prepare(tidy_up);
    if (seal_choose(check.purpose) != SEAL_NONE && seal_is_strict())
        umask(022); // a user number of its own must find its way
    bool passed = grade(&check);
    for (int i = 0; i < check.count; i++)
        report_free(&check.reports[i]);
    exercises_free(&check.exercises);
    free(check.folder);
    free(check.look_at);
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
