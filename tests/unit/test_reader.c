// What reads a submission's traces, files and output: without rights, in a process of its own, and
// nothing of it that could do harm reaches anybody.

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "scratch.h"
#include "base/files.h"
#include "base/format.h"
#include "base/memory.h"
#include "steps/end.h"
#include "steps/reader.h"
#include "steps/saved.h"

static char *folder; // each test's own; it has a file "inside", and one beside it is "outside"

static void write_file(const char *name, const char *text)
{
    char *path = format_text("%s/%s", folder, name);
    file_replace(path, text, strlen(text));
    free(path);
}

static void setup(void)
{
    make_scratch();
    folder = format_text("%s/given", scratch);
    mkdir(folder, 0755);
    write_file("inside", "what is in it");
    write_file("../outside", "what is beside it");
}

static Answer ask(Reading reading, double seconds)
{
    return reader_ask(reading, (const char *const[]){folder, NULL}, NULL, seconds);
}

// ---- A reader answers.

static int touched;

static void read_inside(const int *folders, void *argument)
{
    (void)argument;
    char text[64] = "";
    int file = openat(folders[0], "inside", O_RDONLY);
    touched = read(file, text, sizeof text - 1) > 0;
    printf("%s", text);
}

START_TEST(a_reader_reads_and_answers)
{
    Answer answer = ask(read_inside, 10);
    ck_assert_str_eq(answer.text, "what is in it");
    ck_assert_ptr_null(answer.fault);
    ck_assert(!touched); // it was in another process
    answer_free(&answer);
}
END_TEST

// ---- It has no rights.

static void try_all(const int *folders, void *argument)
{
    (void)argument;
    printf("%s", openat(folders[0], "inside", O_WRONLY) < 0 ? "" : "writes ");
    printf("%s", openat(folders[0], "new", O_RDONLY | O_CREAT, 0600) < 0 ? "" : "makes ");
    printf("%s", unlinkat(folders[0], "inside", 0) < 0 ? "" : "removes ");
    printf("%s", mkdirat(folders[0], "below", 0700) < 0 ? "" : "makes-folders ");
    printf("%s", socket(AF_INET, SOCK_STREAM, 0) < 0 ? "" : "connects ");
    printf("%s", kill(getppid(), 0) < 0 ? "" : "kills ");
    printf("%s", syscall(SYS_tgkill, getppid(), getppid(), 0) < 0 ? "" : "kills-threads ");
    printf("%s", fcntl(3, F_GETFD) < 0 || folders[0] == 3 ? "" : "inherits ");
    execl("/bin/true", "true", NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    printf("%s", child < 0 ? "nothing" : "forks");
}

START_TEST(a_reader_can_do_nothing_else)
{
    Answer answer = ask(try_all, 10);
    ck_assert_str_eq(answer.text, "nothing");
    answer_free(&answer);
}
END_TEST

static void read_outside(const int *folders, void *argument)
{
    (void)argument;
    int file = openat(folders[0], "../outside", O_RDONLY);
    printf("%s", file < 0 ? "refused" : "read");
}

// (By Landlock, which some kernels and containers lack.)
START_TEST(a_reader_sees_its_folders)
{
    Answer answer = ask(read_outside, 10);
    if (syscall(444, NULL, 0, 1) >= 1)
        ck_assert_str_eq(answer.text, "refused");
    answer_free(&answer);
}
END_TEST

// ---- It ends, and nothing else does.

static void crash(const int *folders, void *argument)
{
    (void)folders, (void)argument;
    raise(SIGSEGV);
}
static void refuse(const int *folders, void *argument)
{
    (void)folders, (void)argument;
    die("this is none");
}
static void hang(const int *folders, void *argument)
{
    (void)folders, (void)argument;
    for (volatile int i = 0; i >= 0; i = 1)
        continue;
}
static void take_memory(const int *folders, void *argument)
{
    (void)folders, (void)argument;
    for (int i = 0; i < 64; i++)
        memset(allocate(1, (size_t)1 << 28), 1, (size_t)1 << 28);
}
static void print_without_end(const int *folders, void *argument)
{
    (void)folders, (void)argument;
    for (int i = 0; i < 1 << 22; i++)
        printf("line\n");
    raise(SIGKILL);
}

static const struct {
    Reading reading;
    const char *fault;
} ends[] = {
    {crash, "ended by signal"},
    {refuse, "ended with status 2: test_reader: this is none"},
    {hang, "took too long"},
#ifndef __SANITIZE_ADDRESS__
    {take_memory, "out of memory"},
#endif
    {print_without_end, "ended by signal 9"},
};

START_TEST(a_reader_that_fails_is_told_of)
{
    Answer answer = ask(ends[_i].reading, ends[_i].reading == hang ? 1 : 20);
    ck_assert_ptr_null(answer.text);
    ck_assert_msg(strstr(answer.fault, ends[_i].fault), "%s", answer.fault);
    answer_free(&answer);
}
END_TEST

// ---- Traces.

#define START "{\"event\":\"affinity\",\"t\":1}\n"

static Traces traces_of(const char *text)
{
    write_file("rank-0.jsonl", text);
    int files = open(folder, O_RDONLY | O_DIRECTORY);
    Traces traces = traces_read(files, 1, 0);
    close(files);
    return traces;
}

START_TEST(a_trace_that_makes_no_sense_is_refused_where_it_is_read)
{
    Run run = {.ranks = 1,
               .traces = traces_of(START "{\"event\":\"step\",\"t\":1,\"epoch\":-1}\n")};
    Report report = {.exercise = "1"};
    ck_assert_int_eq(run.traces.of[0].count, 1);
    ck_assert(!judge_end(&run, ends_of("step_01"), &report));
    ck_assert_str_eq(report.diagnosis, "trace-makes-no-sense");
    ck_assert_msg(strstr(report.properties[0].evidence, "line 2 of rank 0: step: epoch is -1"),
                  "%s", report.properties[0].evidence);
    traces_free(&run.traces);
    report_free(&report);
}
END_TEST

START_TEST(a_last_line_may_be_cut)
{
    Traces traces = traces_of(START "{\"event\":\"st");
    ck_assert(!traces.fault && traces.of[0].count == 1);
    traces_free(&traces);
}
END_TEST

// ---- Checkpoints.

static Run run_with_files(void)
{
    static char flags[] = "--checkpoint-dir saved";
    Run run = {.ranks = 1, .work = folder, .plan.flags = flags};
    char *saved = format_text("%s/saved", folder);
    mkdir(saved, 0755);
    free(saved);
    run.files = open(folder, O_RDONLY | O_DIRECTORY);
    return run;
}

START_TEST(what_is_no_file_is_no_checkpoint)
{
    Run run = run_with_files();
    int saved = checkpoint_files(&run);
    ck_assert_int_ge(saved, 0);
    write_file("saved/ckpt-1.safetensors", "bytes");
    mkfifoat(saved, "ckpt-2.safetensors", 0600); // to open it would wait without end
    ck_assert(symlinkat("../../outside", saved, "ckpt-3.safetensors") == 0);
    mkdirat(saved, "ckpt-4.safetensors", 0700);
    for (int e = 1; e <= 4; e++)
        ck_assert(find_epoch(&run, e).there == (e == 1));
    char *evidence = with_contents(&run, format_text("these"));
    ck_assert_str_eq(
        evidence,
        "these\nin the folder, at the end of the run: "
        "ckpt-1.safetensors (5 bytes), ckpt-2.safetensors (no file), ckpt-3.safetensors (a link), "
        "ckpt-4.safetensors (a folder)");
    free(evidence);
}
END_TEST

START_TEST(a_folder_that_is_a_link_is_none)
{
    Run run = run_with_files();
    ck_assert(unlinkat(run.files, "saved", AT_REMOVEDIR) == 0);
    ck_assert(symlinkat("..", run.files, "saved") == 0);
    write_file("../ckpt-1.safetensors", "bytes");
    ck_assert_int_lt(checkpoint_files(&run), 0);
    ck_assert(!find_epoch(&run, 1).there);
    struct dirent **files;
    ck_assert_int_le(list_files(&run, &files), 0);
}
END_TEST

START_TEST(a_checkpoint_is_what_was_written)
{
    Run run = run_with_files();
    struct stat facts;
    write_file("saved/ckpt-1.safetensors", "written");
    ck_assert(fstatat(run.files, "saved/ckpt-1.safetensors", &facts, 0) == 0);
    int file = openat(run.files, "saved/ckpt-1.safetensors", O_RDWR);
    char *trace = format_text(
        "{\"event\":\"saved\",\"t\":1,\"path\":\"x\",\"epoch\":1,\"step\":0,\"weights\":1,\"inode\":%lld,\"bits\":\"%s\"}\n",
        (long long)facts.st_ino, file_hash(file).digits);
    run.traces = traces_of(trace);
    ck_assert(find_epoch(&run, 1).saved && !find_epoch(&run, 1).copied);
    ck_assert(pwrite(file, "W", 1, 0) == 1); // the same file, with other bytes
    ck_assert(find_epoch(&run, 1).there && !find_epoch(&run, 1).saved);
    free(trace);
}
END_TEST

// ---- Reports.

START_TEST(a_report_survives_its_way)
{
    Report from = {.exercise = "ring"}, to = {.exercise = "ring"};
    report_ok(&from, "this holds");
    report_failure(&from, "this does not", &(Diagnosis){"a-name", "a mistake", NULL},
                   format_text("two\nlines, and \x1b[2J\xff"));
    report_failure(&from, "nor this", &(Diagnosis){"another", "b", "3"}, NULL);
    report_note(&from, "a note");
    char *text = report_text(&from);
    ck_assert(report_take(&to, text));
    ck_assert_int_eq(to.count, 3);
    ck_assert_str_eq(to.diagnosis, "a-name");
    ck_assert_str_eq(to.properties[1].evidence, "two\nlines, and ?[2J?");
    ck_assert_str_eq(to.properties[2].hint, "3");
    ck_assert_ptr_null(to.properties[2].evidence);
    ck_assert_str_eq(to.notes, "a note");
    free(text);
}
END_TEST

// Blanks stand only beside the words that stay English: such a line would end anywhere.
static const char chinese[] =
    "设备来自 hvd_rank()，或来自由它算出的数。每台机器的设备从 0 开始编号，"
    "与 hvd_local_rank() 给这台机器的 rank 编号一样。";

static void print_chinese(const int *folders, void *argument)
{
    (void)folders, (void)argument;
    Report report = {.exercise = "1"};
    report_failure(&report, "a property", &(Diagnosis){"a-name", chinese, NULL}, NULL);
    report_print(&report);
}

START_TEST(a_chinese_mistake_is_one_line)
{
    Answer answer = ask(print_chinese, 10);
    ck_assert_ptr_nonnull(answer.text);
    ck_assert_msg(strstr(answer.text, chinese), "%s", answer.text);
    free(answer.text);
}
END_TEST

static const char *const no_reports[] = {
    "",
    "{}",
    "[]",
    "{\"properties\":3}",
    "{\"diagnosis\":\"x\",\"properties\":[]}",
    "{\"properties\":[{\"text\":\"a\",\"ok\":false}]}",
    "{\"properties\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"diagnosis\":\"x\"}"};

START_TEST(what_is_no_report_is_refused)
{
    Report report = {.exercise = "ring"};
    ck_assert(!report_take(&report, no_reports[_i]));
    ck_assert_int_eq(report.count, 0);
}
END_TEST

int main(void)
{
    TCase *readers = tcase_create("readers");
    tcase_add_checked_fixture(readers, setup, remove_scratch);
    tcase_set_timeout(readers, 60);
    tcase_add_test(readers, a_reader_reads_and_answers);
    tcase_add_test(readers, a_reader_can_do_nothing_else);
    tcase_add_test(readers, a_reader_sees_its_folders);
    tcase_add_loop_test(readers, a_reader_that_fails_is_told_of, 0, sizeof ends / sizeof *ends);
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, setup, remove_scratch);
    tcase_add_test(files, a_trace_that_makes_no_sense_is_refused_where_it_is_read);
    tcase_add_test(files, a_last_line_may_be_cut);
    tcase_add_test(files, what_is_no_file_is_no_checkpoint);
    tcase_add_test(files, a_folder_that_is_a_link_is_none);
    tcase_add_test(files, a_checkpoint_is_what_was_written);
    TCase *reports = tcase_create("reports");
    tcase_add_checked_fixture(reports, setup, remove_scratch);
    tcase_add_test(reports, a_report_survives_its_way);
    tcase_add_test(reports, a_chinese_mistake_is_one_line);
    tcase_add_loop_test(reports, what_is_no_report_is_refused, 0,
                        sizeof no_reports / sizeof *no_reports);
    Suite *suite = suite_create("reader");
    suite_add_tcase(suite, readers);
    suite_add_tcase(suite, files);
    suite_add_tcase(suite, reports);
    return run_suite(suite);
}
