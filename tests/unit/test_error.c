// How a program ends: one clear line and status 2, which rank speaks, and warnings.

#include <signal.h>
#include <string.h>

#include "child.h"
#include "forget_launcher.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/output.h"

static void print_then_die(const void *message)
{
    printf("said before");
    die("%s", (const char *)message);
}

START_TEST(die_prints_one_line_and_exits_with_2)
{
    Outcome outcome = run_in_child(print_then_die, "data.gz: no such file");
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_str_eq(outcome.err, "test_error: data.gz: no such file\n");
}
END_TEST

START_TEST(die_keeps_what_was_printed_before)
{
    ck_assert_str_eq(run_in_child(print_then_die, "over").out, "said before");
}
END_TEST

START_TEST(die_stays_on_one_line_whatever_it_quotes)
{
    Outcome outcome = run_in_child(print_then_die, "not 'a\nb\tc'");
    ck_assert_str_eq(outcome.err, "test_error: not 'a?b?c'\n");
}
END_TEST

static void quote_a_long_text(const void *unused)
{
    (void)unused;
    char text[20000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    die("%s", text);
}

START_TEST(die_stays_on_one_line_however_long)
{
    Outcome outcome = run_in_child(quote_a_long_text, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_uint_gt(strlen(outcome.err), 4000);
}
END_TEST

static void print_then_give_up(const void *message)
{
    printf("said before");
    give_up("%s", (const char *)message);
}

START_TEST(give_up_is_die_with_status_1)
{
    Outcome outcome = run_in_child(print_then_give_up, "the loss is nan");
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_str_eq(outcome.out, "said before");
    ck_assert_str_eq(outcome.err, "test_error: the loss is nan\n");
}
END_TEST

static void lose_two_things(const void *status)
{
    ends_incomplete("the log is not %s", "complete");
    ends_incomplete("nor is %d", 2);
    printf("goes on");
    if (status)
        exit(*(const int *)status);
}

START_TEST(what_is_lost_is_said_at_the_end)
{
    Outcome outcome = run_in_child(lose_two_things, NULL);
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_str_eq(outcome.out, "goes on");
    ck_assert_str_eq(outcome.err, "test_error: the log is not complete\ntest_error: nor is 2\n");
    int status = 3; // another failure has been told already
    outcome = run_in_child(lose_two_things, &status);
    ck_assert_int_eq(outcome.status, 3);
    ck_assert_str_eq(outcome.err, "");
}
END_TEST

static void lose_many_things(const void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++)
        ends_incomplete("thing %d", i);
}

START_TEST(not_every_loss_has_a_line)
{
    Outcome outcome = run_in_child(lose_many_things, NULL);
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_ptr_nonnull(strstr(outcome.err, "thing 0\n"));
    ck_assert_ptr_null(strstr(outcome.err, "thing 8\n"));
}
END_TEST

START_TEST(die_on_another_rank_waits_a_second_and_names_it)
{
    setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    double begin = seconds_now();
    Outcome outcome = run_in_child(print_then_die, "no such file");
    ck_assert_double_ge(seconds_now() - begin, 1);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_str_eq(outcome.err, "test_error: rank 3: no such file\n");
}
END_TEST

static void leave_a_mark(void)
{
    printf("exit handler");
}

static void die_with_an_exit_handler(const void *unused)
{
    (void)unused;
    atexit(leave_a_mark);
    die("over");
}

START_TEST(die_runs_no_exit_handler)
{
    ck_assert_str_eq(run_in_child(die_with_an_exit_handler, NULL).out, "");
}
END_TEST

static void warn_both_ways(const void *unused)
{
    (void)unused;
    warn("slow by %d %%", 20);
    warn_on_root("for all");
}

START_TEST(warn_prints_a_line_and_goes_on)
{
    Outcome outcome = run_in_child(warn_both_ways, NULL);
    ck_assert_int_eq(outcome.status, 0);
    ck_assert_str_eq(outcome.err,
                     "test_error: warning: slow by 20 %\ntest_error: warning: for all\n");
}
END_TEST

START_TEST(warn_on_root_is_silent_elsewhere)
{
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    ck_assert_str_eq(run_in_child(warn_both_ways, NULL).err, "test_error: warning: slow by 20 %\n");
}
END_TEST

static void fail_a_check(const void *unused)
{
    (void)unused;
    CHECK(1 + 1 == 3);
}

START_TEST(check_aborts_with_file_and_line)
{
    Outcome outcome = run_in_child(fail_a_check, NULL);
    ck_assert_int_eq(outcome.status, 128 + SIGABRT);
    ck_assert_ptr_nonnull(strstr(outcome.err, "test_error.c:"));
    ck_assert_ptr_nonnull(strstr(outcome.err, "1 + 1 == 3"));
}
END_TEST

START_TEST(check_lets_the_truth_pass)
{
    CHECK(1 + 1 == 2);
}
END_TEST

int main(void)
{
    forget_launcher();
    Suite *suite = suite_create("error");

    TCase *ending = tcase_create("ending the program");
    tcase_add_test(ending, die_prints_one_line_and_exits_with_2);
    tcase_add_test(ending, die_keeps_what_was_printed_before);
    tcase_add_test(ending, die_stays_on_one_line_whatever_it_quotes);
    tcase_add_test(ending, die_stays_on_one_line_however_long);
    tcase_add_test(ending, give_up_is_die_with_status_1);
    tcase_add_test(ending, what_is_lost_is_said_at_the_end);
    tcase_add_test(ending, not_every_loss_has_a_line);
    tcase_add_test(ending, die_on_another_rank_waits_a_second_and_names_it);
    tcase_add_test(ending, die_runs_no_exit_handler);
    tcase_add_test(ending, warn_prints_a_line_and_goes_on);
    tcase_add_test(ending, warn_on_root_is_silent_elsewhere);
    tcase_add_test(ending, check_aborts_with_file_and_line);
    tcase_add_test(ending, check_lets_the_truth_pass);
    suite_add_tcase(suite, ending);

    return run_suite(suite);
}
