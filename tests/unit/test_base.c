// Memory, text and time.

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "child.h"
#include "forget_launcher.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"

START_TEST(allocate_gives_zeroed_and_aligned_memory)
{
    for (size_t count = 0; count < 200; count++) {
        unsigned char *memory = allocate(count, 3);
        ck_assert_uint_eq((uintptr_t)memory % 64, 0);
        for (size_t i = 0; i < count * 3; i++)
            ck_assert_uint_eq(memory[i], 0);
        memset(memory, 0xff, count * 3); // so that reused memory is not zero by chance
        free(memory);
    }
}
END_TEST

// The sanitizers would otherwise end a program that asks for too much, before allocate can.
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void allocate_pair(const void *pair)
{
    const size_t *count_and_size = pair;
    free(allocate(count_and_size[0], count_and_size[1]));
}

START_TEST(allocate_refuses_what_there_cannot_be)
{
    static const size_t pairs[][2] = {
        {SIZE_MAX / 2, 3}, {SIZE_MAX, SIZE_MAX}, {SIZE_MAX, 1}, {1, SIZE_MAX - 70}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        Outcome outcome = run_in_child(allocate_pair, pairs[i]);
        ck_assert_int_eq(outcome.status, 2);
        ck_assert_ptr_nonnull(strstr(outcome.err, "out of memory"));
    }
}
END_TEST

static void enlarge_too_far(const void *unused)
{
    (void)unused;
    enlarge(NULL, SIZE_MAX / 2, 3);
}

START_TEST(enlarge_keeps_what_was_there)
{
    int *numbers = NULL;
    for (int count = 0; count < 1000; count++) {
        numbers = enlarge(numbers, (size_t)count + 1, sizeof *numbers);
        numbers[count] = count;
    }
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(numbers[i], i);
    free(numbers);
    Outcome outcome = run_in_child(enlarge_too_far, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_ptr_nonnull(strstr(outcome.err, "out of memory"));
}
END_TEST

static void need_too_much_room(const void *unused)
{
    (void)unused;
    need_room((size_t)1 << 46, "nobody");
}

START_TEST(room_is_asked_for)
{
    ck_assert(has_room(1 << 20));
    Outcome outcome = run_in_child(need_too_much_room, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_str_eq(outcome.err, "test_base: out of memory: there are no 67108864 MiB left, which "
                                  "nobody may need\n");
}
END_TEST

#ifndef __SANITIZE_ADDRESS__ // which can't do with a limit on the address space
static void fill_memory_with_json(const void *unused)
{
    (void)unused;
    setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)256 << 20, (rlim_t)256 << 20});
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; i < 10000000; i++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber(i));
}

// A tool that runs the program, valgrind, needs that memory itself.
static bool runs_in_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded && strstr(preloaded, "vgpreload");
}

START_TEST(json_without_memory_ends_the_program)
{
    if (runs_in_valgrind())
        return;
    Outcome outcome = run_in_child(fill_memory_with_json, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_ptr_nonnull(strstr(outcome.err, "out of memory: there are no "));
}
END_TEST
#endif

START_TEST(format_text_formats)
{
    char *text = format_text("%s-%d", "rank", 12);
    ck_assert_str_eq(text, "rank-12");
    free(text);
}
END_TEST

static bool is_marked(const void *marks, int rank)
{
    return ((const char *)marks)[rank] == '1';
}

// A separator at the end has no part behind it, as in PATH; one in the middle has an empty one.
START_TEST(a_text_is_taken_apart)
{
    const char *at = "a b::,c:", *const parts[] = {"a b", "", "", "c"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *part = next_part(&at, ":,");
        ck_assert_pstr_eq(part, parts[i]);
        free(part);
    }
    ck_assert_ptr_null(next_part(&at, ":,"));
    at = "a,b";
    free(next_part(&at, ","));
    char *rest = next_part(&at, "");
    ck_assert_str_eq(rest, "b");
    free(rest);
}
END_TEST

START_TEST(ranks_are_listed_by_ranges)
{
    static const struct {
        const char *marks, *text;
    } lists[] = {{"0001", "rank 3"},
                 {"101", "ranks 0 and 2"},
                 {"11", "ranks 0 and 1"},
                 {"111", "ranks 0-2"},
                 {"1011100110", "ranks 0, 2-4, 7 and 8"},
                 {"1110010111", "ranks 0-2, 5 and 7-9"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        int ranks[16], count = (int)strlen(lists[i].marks), marked = 0;
        char text[64], cut[8];
        size_t length = ranks_write(text, sizeof text, is_marked, lists[i].marks, count);
        ck_assert_str_eq(text, lists[i].text);
        ck_assert_uint_eq(length, strlen(text));
        ck_assert_uint_eq(ranks_write(cut, sizeof cut, is_marked, lists[i].marks, count), length);
        ck_assert(strncmp(cut, text, 7) == 0 && strlen(cut) < sizeof cut);
        for (int r = 0; r < count; r++)
            if (is_marked(lists[i].marks, r))
                ranks[marked++] = r;
        char *same = ranks_text(ranks, marked);
        ck_assert_str_eq(same, text);
        free(same);
    }
}
END_TEST

START_TEST(seconds_go_forward_at_the_right_pace)
{
    double begin = seconds_now();
    usleep(50000);
    double passed = seconds_now() - begin;
    ck_assert_double_ge(passed, 0.05);
    ck_assert_double_lt(passed, 2);
}
END_TEST

static void ignore(int signal)
{
    (void)signal;
}

START_TEST(sleep_lasts_whatever_signals_come)
{
    struct sigaction handler = {.sa_handler = ignore};
    struct itimerval often = {.it_interval = {.tv_usec = 10000}, .it_value = {.tv_usec = 10000}};
    sigaction(SIGALRM, &handler, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    double begin = seconds_now();
    sleep_seconds(0);
    sleep_seconds(-1);
    ck_assert_double_lt(seconds_now() - begin, 0.1);
    sleep_seconds(1.05); // seconds, and a part of one
    double passed = seconds_now() - begin;
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    ck_assert_double_ge(passed, 1.05);
    ck_assert_double_lt(passed, 2);
}
END_TEST

START_TEST(program_name_has_no_folder)
{
    ck_assert_str_eq(program_name(), "test_base");
}
END_TEST

int main(void)
{
    forget_launcher();
    Suite *suite = suite_create("base");

    TCase *basics = tcase_create("memory, text, time");
    tcase_add_test(basics, allocate_gives_zeroed_and_aligned_memory);
    tcase_add_test(basics, allocate_refuses_what_there_cannot_be);
    tcase_add_test(basics, enlarge_keeps_what_was_there);
    tcase_add_test(basics, room_is_asked_for);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_test(basics, json_without_memory_ends_the_program);
#endif
    tcase_add_test(basics, format_text_formats);
    tcase_add_test(basics, a_text_is_taken_apart);
    tcase_add_test(basics, ranks_are_listed_by_ranges);
    tcase_add_test(basics, seconds_go_forward_at_the_right_pace);
    tcase_add_test(basics, sleep_lasts_whatever_signals_come);
    tcase_add_test(basics, program_name_has_no_folder);
    suite_add_tcase(suite, basics);

    return run_suite(suite);
}
