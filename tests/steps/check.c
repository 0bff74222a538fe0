// Grades a student's file: compiles it, runs it, and lets the judges of one or several steps look
// at what the run did. What they find is printed, and kept under BUILD/check beside a copy of the
// file. On a slow machine HVDLAB_PATIENCE=N gives a run N times as long before it counts as hung;
// HVDLAB_CHECK_DEVICE=gpu grades on GPUs instead of on the CPU's cores.
// Nothing here reads the source: how a program does what it does is the student's business.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "sys/args.h"
#include "sys/device.h"
#include "judge.h"
#include "process.h"

#define STEPS 6
#define ENDS  "all ranks train, and come to the end of the program"
#define LIMIT 15.0 // seconds that all runs of a check may take together

#define GPU_PATIENCE 2 // CUDA and its libraries take seconds to start

typedef struct {
    const char *build; // folder
    const char *file;
    int steps[STEPS], count;
    int patience; // times the limits after which a run counts as hung
    char *folder; // of the run: the program, and what it writes
    Report reports[STEPS];
} Check;

static void (*const judges[STEPS])(const Run *run, Report *report) = {
    judge_step_1, judge_step_2, judge_step_3, judge_step_4, judge_step_5, judge_step_6};

// ---- Arguments.

static _Noreturn void usage(void)
{
    die("usage: check-step N[,M...] FILE: grades FILE as step N, 1 to %d, or by several steps' "
        "checks",
        STEPS);
}

static void read_steps(Check *check, const char *list)
{
    for (const char *at = list;; at += 2) {
        if (*at < '1' || *at > '0' + STEPS || check->count == STEPS)
            usage();
        check->steps[check->count++] = *at - '0';
        if (!at[1])
            return;
        if (at[1] != ',')
            usage();
    }
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
            "=gpu: no GPU can be used, as make info may show; unset it to check on the "
            "processor");
}

// ---- Folders and files.

static void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        die("cannot make the folder %s: %s", path, strerror(errno));
}

// Runs a command to its end; the caller frees the process.
static Process run_command(const char *const argv[])
{
    Process process = process_start(argv);
    while (!process.ended)
        process_wait(&process, 1000);
    process_stop(&process);
    return process;
}

static void run_or_die(const char *const argv[])
{
    Process process = run_command(argv);
    if (process.status != 0)
        die("%s: %s", argv[0], process.text ? process.text : "failed");
    process_free(&process);
}

static char *result_path(const Check *check, int step, const char *suffix)
{
    return format_text("%s/check/step_0%d.%s", check->build, step, suffix);
}

// Removes what an earlier check left, and makes the folder of the run.
static void prepare_folders(Check *check)
{
    char *folder = format_text("%s/check", check->build);
    make_folder(folder);
    free(folder);
    for (int i = 0; i < check->count; i++) {
        char *json = result_path(check, check->steps[i], "json");
        unlink(json);
        free(json);
    }
    check->folder = result_path(check, check->steps[0], "run");
    run_or_die((const char *const[]){"rm", "-rf", check->folder, NULL});
    make_folder(check->folder);
}

static void copy_file(const char *from, const char *to)
{
    struct stat source, target;
    if (stat(from, &source) == 0 && stat(to, &target) == 0 && source.st_ino == target.st_ino &&
        source.st_dev == target.st_dev)
        return; // it is the copy that is graded
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    if (!in || !out)
        die("cannot copy %s to %s: %s", from, to, strerror(errno));
    char buffer[4096];
    for (size_t bytes; (bytes = fread(buffer, 1, sizeof buffer, in)) > 0;)
        fwrite(buffer, 1, bytes, out);
    bool failed = ferror(in) || ferror(out);
    fclose(in);
    if (fclose(out) != 0 || failed)
        die("cannot copy %s to %s", from, to);
}

// ---- Grading.

// The program that the file makes, or NULL; the caller frees it.
static char *compile_file(Check *check)
{
    char *compiler = format_text("%s/compile-step", check->build);
    char *program = format_text("%s/step_0%d", check->folder, check->steps[0]);
    Process process = run_command((const char *const[]){compiler, check->file, program, NULL});
    bool compiled = true;
    for (int i = 0; i < check->count; i++)
        compiled = judge_compiler(process.status, process.text, &check->reports[i]);
    process_free(&process);
    free(compiler);
    if (compiled)
        return program;
    free(program);
    return NULL;
}

static void judge_first_run(Check *check, const char *program, Limits limits)
{
    // One epoch shows what steps 1 and 2 are about.
    bool short_run = true;
    for (int i = 0; i < check->count; i++)
        short_run = short_run && check->steps[i] <= 2;
    Run run = run_program(
        program, check->folder, RANKS,
        short_run ? "--epochs 1 --target-accuracy 1" : "--epochs 2 --target-accuracy 1", limits);
    for (int i = 0; i < check->count; i++) {
        Report *report = &check->reports[i];
        if (!judge_end(&run, ENDS, report))
            continue;
        judges[report->step - 1](&run, report);
        if (report->step >= 3)
            note_learning_rate(&run, report);
    }
    run_free(&run);
}

// The report on a step where it is graded and nothing has failed yet, else NULL.
static Report *hopeful_report(Check *check, int step)
{
    for (int i = 0; i < check->count; i++)
        if (check->reports[i].step == step && report_passed(&check->reports[i]))
            return &check->reports[i];
    return NULL;
}

static Run run_again(Check *check, const char *program, const char *name, int ranks,
                     const char *flags, Limits limits)
{
    char *folder = format_text("%s/%s", check->folder, name);
    make_folder(folder);
    Run run = run_program(program, folder, ranks, flags, limits);
    free(folder);
    return run;
}

// Steps 3 and 5 must hold for any number of ranks, not only for the one of the first run.
static void judge_other_size(Check *check, const char *program, Limits limits)
{
    Report *step_3 = hopeful_report(check, 3), *step_5 = hopeful_report(check, 5);
    if (!step_3 && !step_5)
        return;
    Run run =
        run_again(check, program, "two", SOME_RANKS, "--epochs 1 --target-accuracy 1", limits);
    if (step_3)
        judge_step_3_again(&run, step_3);
    if (step_5)
        judge_step_5_again(&run, step_5);
    run_free(&run);
}

// Step 6 also wants to see a training that stops early. Among 200 images there are several of each
// class, so that no network has them all wrong.
static void judge_early_stop(Check *check, const char *program, Limits limits)
{
    Report *step_6 = hopeful_report(check, 6);
    if (!step_6)
        return;
    Run run = run_again(check, program, "stop", RANKS,
                        "--epochs 3 --target-accuracy 0 --patience 1 --images 200 --batch-size 50 "
                        "--val-batch-size 100",
                        limits);
    judge_stop(&run, step_6);
    run_free(&run);
}

static void write_results(Check *check, double seconds)
{
    for (int i = 0; i < check->count; i++) {
        Report *report = &check->reports[i];
        report->seconds = seconds;
        char *json = result_path(check, report->step, "json");
        report_write_json(report, json);
        free(json);
        report_print(report);
    }
}

// True where every step passed.
static bool grade(Check *check)
{
    double begin = seconds_now();
    prepare_folders(check);
    for (int i = 0; i < check->count; i++) {
        check->reports[i] = (Report){.step = check->steps[i], .file = check->file};
        char *copy = result_path(check, check->steps[i], "c");
        copy_file(check->file, copy);
        free(copy);
    }
    char *program = compile_file(check);
    Limits limits = {.deadline = seconds_now() + LIMIT * check->patience,
                     .patience = check->patience};
    if (program) {
        judge_first_run(check, program, limits);
        judge_other_size(check, program, limits);
        judge_early_stop(check, program, limits);
    }
    write_results(check, seconds_now() - begin);
    bool passed = true;
    for (int i = 0; i < check->count; i++)
        passed = passed && report_passed(&check->reports[i]);
    free(program);
    return passed;
}

int main(int argc, char **argv)
{
    const char *build = getenv("BUILD");
    Check check = {.build = build && *build ? build : "build"};
    if (argc != 3)
        usage();
    read_steps(&check, argv[1]);
    check.file = argv[2];
    check.patience = environment_count("HVDLAB_PATIENCE");
    if (!check.patience)
        check.patience = 1;
    if (runs_on_gpu())
        check.patience *= GPU_PATIENCE;
    need_file(check.file);
    need_kit(&check);
    need_device();
    process_prepare();
    bool passed = grade(&check);
    for (int i = 0; i < check.count; i++)
        report_free(&check.reports[i]);
    free(check.folder);
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
