// What the timeline promises within one process: each thread's spans, names with anything in them,
// the limit, and one line with the right status where the file can't be written. What it shows of
// a training on several ranks: tests/mpi/test_timeline.c.

#include "comm/timeline_file.h"
#include "observe/span.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "base/memory.h"
#include "base/format.h"
#include "child.h"

static char folder[] = "/tmp/test_timeline-XXXXXX";
static char *path;

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    path = format_text("%s/timeline.json", folder);
    setenv("HVD_TIMELINE", path, 1);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
    free(path);
}

// How many files are in the folder beside the timeline.
static int other_files(void)
{
    char *command = format_text("ls -A %s 2>/dev/null | grep -vcx timeline.json", folder);
    FILE *pipe = popen(command, "r");
    int count = -1;
    ck_assert(pipe && fscanf(pipe, "%d", &count) == 1);
    pclose(pipe);
    free(command);
    return count;
}

// The file's events; the caller deletes what they are a part of.
static cJSON *read_file(const cJSON **events)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    const size_t room = 64 << 20;
    char *text = allocate(room, 1);
    size_t size = fread(text, 1, room - 1, file);
    ck_assert_uint_lt(size, room - 1);
    fclose(file);
    cJSON *root = cJSON_ParseWithOpts(text, NULL, true);
    ck_assert_ptr_nonnull(root);
    free(text);
    *events = cJSON_GetObjectItem(root, "traceEvents");
    ck_assert(cJSON_IsArray(*events));
    return root;
}

static const char *text_of(const cJSON *event, const char *field)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(event, field));
}

// How many spans have that name, and on how many threads they are.
static int count(const cJSON *events, const char *name, int *threads)
{
    const cJSON *event;
    int found = 0;
    bool seen[64] = {false};
    *threads = 0;
    cJSON_ArrayForEach (event, events) {
        int thread = cJSON_GetObjectItem(event, "tid")->valueint;
        if (strcmp(text_of(event, "ph"), "X") != 0 || strcmp(text_of(event, "name"), name) != 0)
            continue;
        found++;
        *threads += !seen[thread];
        seen[thread] = true;
    }
    return found;
}

// ---- What is recorded.

enum { THREADS = 4, SPANS = 3000 };

static void *note(void *unused)
{
    (void)unused;
    timeline_name_thread("loading");
    for (int i = 0; i < SPANS; i++) {
        span_begin(SPAN_LOAD, "outer", i, -1);
        span_begin(SPAN_LOAD, "inner", -1, -1);
        span_end();
        span_end();
    }
    return NULL;
}

static void note_in_threads(const void *unused)
{
    (void)unused;
    pthread_t threads[THREADS];
    timeline_start();
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, note, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

START_TEST(test_threads)
{
    Outcome outcome = run_in_child(note_in_threads, NULL);
    ck_assert_msg(outcome.status == 0 && !*outcome.err, "%d: %s", outcome.status, outcome.err);
    const cJSON *events;
    int threads;
    cJSON *root = read_file(&events);
    ck_assert_int_eq(count(events, "outer", &threads), THREADS * SPANS);
    ck_assert_int_eq(threads, THREADS);
    ck_assert_int_eq(count(events, "inner", &threads), THREADS * SPANS);
    ck_assert_int_eq(other_files(), 0);
    cJSON_Delete(root);
}
END_TEST

static void note_odd_things(const void *unused)
{
    (void)unused;
    span_end(); // of nothing
    timeline_start();
    span_end();
    char name[] = "a \"quoted\\name\"\n";
    span_begin(SPAN_CALLBACK, timeline_text(name), -1, -1);
    name[0] = 'b';
    static char many[401]; // of two bytes each: a cut would come within one
    for (int i = 0; i < 200; i++)
        memcpy(many + 2 * i, "\u00e9", 2);
    span_next(SPAN_COMPUTE, many, -1, -1);
    span_next(SPAN_COMPUTE, "not UTF-8: \xe9", -1, -1);
    span_next(SPAN_COMPUTE, "next", -1, -1);
    for (int i = 0; i < 300; i++) // deeper than it keeps
        span_begin(SPAN_COMPUTE, "deep", -1, -1);
    for (int i = 0; i < 300; i++)
        span_end();
    span_end();
    span_begin(SPAN_COMPUTE, "open", -1, -1);
}

START_TEST(test_odd_things)
{
    Outcome outcome = run_in_child(note_odd_things, NULL);
    ck_assert_msg(outcome.status == 0 && !*outcome.err, "%d: %s", outcome.status, outcome.err);
    const cJSON *events, *event;
    int threads, unfinished = 0, cut = 0;
    cJSON *root = read_file(&events);
    ck_assert_int_eq(count(events, "a \"quoted\\name\"?", &threads), 1);
    ck_assert_int_eq(count(events, "next", &threads), 1);
    ck_assert_int_eq(count(events, "not UTF-8: ?", &threads), 1);
    ck_assert_int_eq(count(events, "open", &threads), 1);
    cJSON_ArrayForEach (event, events) {
        bool is_open = cJSON_HasObjectItem(cJSON_GetObjectItem(event, "args"), "unfinished");
        unfinished += is_open;
        ck_assert(!is_open || strcmp(text_of(event, "name"), "open") == 0);
        const char *name = text_of(event, "name");
        cut += strncmp(name, "\u00e9", 2) == 0 && strlen(name) < 400 && strlen(name) % 2 == 0;
    }
    ck_assert_int_eq(cut, 1);
    ck_assert_int_eq(unfinished, 1);
    cJSON_Delete(root);
}
END_TEST

static void note_too_much(const void *unused)
{
    timeline_limit = 1 << 20;
    note_in_threads(unused);
    for (int i = 0; i < 100000; i++) {
        span_begin(SPAN_COMPUTE, "some", -1, -1);
        span_end();
    }
    span_begin(SPAN_COMPUTE, "late", -1, -1);
    span_end();
}

START_TEST(test_limit)
{
    Outcome outcome = run_in_child(note_too_much, NULL);
    ck_assert_int_eq(outcome.status, 0);
    assert_one_line(&outcome, "warning: HVD_TIMELINE: 1 of 1 ranks had more");
    const cJSON *events;
    int threads;
    cJSON *root = read_file(&events);
    ck_assert_int_gt(count(events, "outer", &threads), 1000);
    ck_assert_int_lt(cJSON_GetArraySize(events), (1 << 20) / 32);
    ck_assert_int_eq(count(events, "late", &threads), 0);
    cJSON_Delete(root);
}
END_TEST

static void note_nothing_asked(const void *unused)
{
    setenv("HVD_TIMELINE", "", 1);
    note_in_threads(unused);
    ck_assert(!timeline_on());
}

START_TEST(test_off)
{
    ck_assert_int_eq(run_in_child(note_nothing_asked, NULL).status, 0);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(other_files(), 0);
}
END_TEST

// ---- A file that can't be written.

static void note_to(const void *file)
{
    setenv("HVD_TIMELINE", file, 1);
    note_in_threads(NULL);
}

START_TEST(test_refused)
{
    const char *const files[] = {"/nowhere/at/all.json", "/tmp", "/dev/null"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_refused(note_to, files[i], files[i]);
}
END_TEST

static void lose_folder(const void *unused)
{
    note_in_threads(unused);
    rmdir(folder);
}

static void fill_disk(const void *unused)
{
    note_in_threads(unused);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, 100000});
}

START_TEST(test_fault_at_the_end)
{
    void (*const faults[])(const void *) = {fill_disk, lose_folder};
    const char *const words[] = {"File too large", "No such file"};
    for (int i = 0; i < 2; i++) {
        Outcome outcome = run_in_child(faults[i], NULL);
        ck_assert_int_eq(outcome.status, 1);
        ck_assert_msg(strstr(outcome.err, words[i]) && strstr(outcome.err, path), "%s",
                      outcome.err);
        ck_assert_int_ne(access(path, F_OK), 0);
        ck_assert_int_eq(other_files(), 0);
    }
}
END_TEST

// The path is that of the beginning, wherever the program goes.
static void change_folder(const void *unused)
{
    ck_assert_int_eq(chdir(folder), 0);
    setenv("HVD_TIMELINE", "timeline.json", 1);
    note_in_threads(unused);
    ck_assert_int_eq(chdir("/"), 0);
}

START_TEST(test_relative)
{
    const cJSON *events;
    ck_assert_int_eq(run_in_child(change_folder, NULL).status, 0);
    cJSON_Delete(read_file(&events));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timeline");
    TCase *tests = tcase_create("timeline");
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, test_threads);
    tcase_add_test(tests, test_odd_things);
    tcase_add_test(tests, test_limit);
    tcase_add_test(tests, test_off);
    tcase_add_test(tests, test_refused);
    tcase_add_test(tests, test_fault_at_the_end);
    tcase_add_test(tests, test_relative);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
