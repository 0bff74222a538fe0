// What tests/steps/machine_time.h promises, of processes that wait for a processor, or sleep.

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "child.h"
#include "steps/machine_time.h"

#define SECONDS 1.5
#define RIVALS  5

static pid_t start_spinning(void)
{
    pid_t child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (child == 0)
        continue;
    return child;
}

// A process that sleeps, with a child that wants a processor.
static pid_t start_parent(void)
{
    pid_t child = fork();
    if (child == 0) {
        start_spinning();
        pause();
        _exit(0);
    }
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

// What counts of SECONDS in which `child` is watched.
static double fraction_of_time(pid_t child)
{
    double begin = seconds_now(), first = machine_time(child), last = first;
    while (seconds_now() < begin + SECONDS) {
        usleep(50000);
        last = machine_time(child);
    }
    end(child);
    return (last - first) / (seconds_now() - begin);
}

START_TEST(time_in_which_others_have_the_processor_does_not_count)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    pid_t rivals[RIVALS], child = start_parent();
    for (int i = 0; i < RIVALS; i++)
        rivals[i] = start_spinning();
    sched_setaffinity(0, sizeof all, &all);
    double fraction = fraction_of_time(child);
    for (int i = 0; i < RIVALS; i++)
        end(rivals[i]);
    ck_assert_double_lt(fraction, 0.6);
    ck_assert_double_gt(fraction, 0);
}
END_TEST

START_TEST(time_in_which_nobody_waits_for_a_processor_counts)
{
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    ck_assert_double_gt(fraction_of_time(child), 0.9);
}
END_TEST

START_TEST(slowness_is_what_children_took_of_a_processor)
{
    ck_assert_double_eq(machine_slowness(), 1);
    pid_t child = fork();
    while (child == 0)
        if (clock() > 2 * CLOCKS_PER_SEC)
            _exit(0);
    waitpid(child, NULL, 0);
    ck_assert_double_gt(machine_slowness(), 1.9);
    ck_assert_double_lt(machine_slowness(), 2.5);
}
END_TEST

int main(void)
{
    if (access("/proc/thread-self/schedstat", R_OK) != 0) {
        puts("skipped: this kernel does not say how long threads wait");
        return 77;
    }
    Suite *suite = suite_create("machine time");
    TCase *tcase = tcase_create("machine time");
    tcase_add_test(tcase, time_in_which_others_have_the_processor_does_not_count);
    tcase_add_test(tcase, time_in_which_nobody_waits_for_a_processor_counts);
    tcase_add_test(tcase, slowness_is_what_children_took_of_a_processor);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
