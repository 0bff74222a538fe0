// What the small modules of common/base/ promise: one clear line and status 2, memory, time, the
// launcher's rank.

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "child.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/setting.h"
#include "base/format.h"

// The tests may themselves have been started by a launcher.
static void forget_launcher(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_STEP_ID",
                                        "SLURM_NODEID",
                                        "SLURM_TASKS_PER_NODE",
                                        "SLURM_STEP_TASKS_PER_NODE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static void print_then_die(const void *message)
{
    printf("said before");
    die("%s", (const char *)message);
}

START_TEST(die_prints_one_line_and_exits_with_2)
{
    Outcome outcome = run_in_child(print_then_die, "data.gz: no such file");
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_str_eq(outcome.err, "test_base: data.gz: no such file\n");
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
    ck_assert_str_eq(outcome.err, "test_base: not 'a?b?c'\n");
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
    ck_assert_str_eq(outcome.err, "test_base: the loss is nan\n");
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
    ck_assert_str_eq(outcome.err, "test_base: the log is not complete\ntest_base: nor is 2\n");
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
    ck_assert_str_eq(outcome.err, "test_base: rank 3: no such file\n");
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
                     "test_base: warning: slow by 20 %\ntest_base: warning: for all\n");
}
END_TEST

START_TEST(warn_on_root_is_silent_elsewhere)
{
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    ck_assert_str_eq(run_in_child(warn_both_ways, NULL).err, "test_base: warning: slow by 20 %\n");
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
    ck_assert_ptr_nonnull(strstr(outcome.err, "test_base.c:"));
    ck_assert_ptr_nonnull(strstr(outcome.err, "1 + 1 == 3"));
}
END_TEST

START_TEST(check_lets_the_truth_pass)
{
    CHECK(1 + 1 == 2);
}
END_TEST

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

static void check_launcher(int rank, int size, int local_rank)
{
    ck_assert_int_eq(launcher_rank(), rank);
    ck_assert_int_eq(launcher_size(), size);
    ck_assert_int_eq(launcher_place().local_rank, local_rank);
}

START_TEST(without_a_launcher_a_process_is_alone)
{
    check_launcher(0, 1, 0);
}
END_TEST

static void set_slurm_task(const char *step)
{
    setenv("SLURM_PROCID", "5", 1);
    setenv("SLURM_NTASKS", "6", 1);
    setenv("SLURM_LOCALID", "1", 1);
    if (step)
        setenv("SLURM_STEP_ID", step, 1);
}

START_TEST(open_mpi_is_understood)
{
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    check_launcher(2, 8, 1);
}
END_TEST

static void set_open_mpi(const char *rank, const char *size)
{
    setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    setenv("OMPI_COMM_WORLD_SIZE", size, 1);
}

static void check_place(int rank, Place expected)
{
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    setenv("OMPI_COMM_WORLD_RANK", text, 1);
    Place place = launcher_place();
    ck_assert_int_eq(place.local_rank, expected.local_rank);
    ck_assert_int_eq(place.local_size, expected.local_size);
    ck_assert_int_eq(place.node, expected.node);
    ck_assert_int_eq(place.nodes, expected.nodes);
}

START_TEST(a_layout_names_each_ranks_node)
{
    set_open_mpi("0", "5");
    setenv("HVD_RANKS_PER_NODE", "1", 1); // the layout counts
    setenv("HVD_LAYOUT", "0,0,1,0,1", 1);
    const Place expected[] = {{0, 3, 0, 2}, {1, 3, 0, 2}, {0, 2, 1, 2}, {2, 3, 0, 2}, {1, 2, 1, 2}};
    for (int r = 0; r < 5; r++)
        check_place(r, expected[r]);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1); // what names ranks that are not there is no matter
    check_place(1, (Place){1, 2, 0, 1});
    unsetenv("HVD_LAYOUT");
    check_place(1, (Place){0, 1, 1, 2});
}
END_TEST

START_TEST(simulated_nodes_have_names_of_their_own)
{
    ck_assert_str_eq(node_name(0).text, "node-0");
    ck_assert_str_eq(node_name(99).text, "node-99");
    ck_assert_str_eq(node_name(100).text, "node-0-b");
    ck_assert_str_eq(node_name(112).text, "node-12-b");
    ck_assert_str_eq(node_name(999).text, "node-99-j");
    ck_assert_str_eq(node_name(1000).text, "node-1000");
}
END_TEST

START_TEST(ranks_are_dealt_to_nodes_in_turn)
{
    set_open_mpi("0", "5");
    setenv("HVD_RANKS_PER_NODE", "2", 1);
    const Place expected[] = {{0, 2, 0, 3}, {0, 2, 1, 3}, {0, 1, 2, 3}, {1, 2, 0, 3}, {1, 2, 1, 3}};
    for (int r = 0; r < 5; r++)
        check_place(r, expected[r]);
    setenv("HVD_RANKS_PER_NODE", "1048576", 1);
    check_place(4, (Place){4, 5, 0, 1});
}
END_TEST

static void ask_for_place(const void *layout)
{
    set_open_mpi("0", "3");
    setenv("HVD_LAYOUT", layout, 1);
    launcher_place();
}

START_TEST(a_layout_that_makes_no_sense_ends_the_program)
{
    static const char *const layouts[] = {"0,1",   "0,,1",     "0,1,",   "0,1,-1", "a",
                                          "0 1 2", "0,1,1000", "0,1,2x", ",0,1,2"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        Outcome outcome = run_in_child(ask_for_place, layouts[i]);
        ck_assert_int_eq(outcome.status, 2);
        ck_assert_ptr_nonnull(strstr(outcome.err, "HVD_LAYOUT="));
    }
}
END_TEST

static void count_devices(const void *value)
{
    setenv("HVDLAB_DEVICES", value, 1);
    printf("%d", setting_count(HVDLAB_DEVICES));
}

START_TEST(counts_from_the_environment_have_bounds)
{
    static const char *const good[] = {"1", "1024", "007", ""}, *const read[] = {"1", "1024", "7",
                                                                                 "0"};
    static const char *const bad[] = {"0",  "1025", "-1",  "+1",
                                      " 1", "1 ",   "1.0", "99999999999999999999"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_str_eq(run_in_child(count_devices, good[i]).out, read[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Outcome outcome = run_in_child(count_devices, bad[i]);
        char *line = format_text(
            "test_base: HVDLAB_DEVICES=%s is not a whole number from 1 to 1024\n", bad[i]);
        ck_assert_int_eq(outcome.status, 2);
        ck_assert_str_eq(outcome.err, line);
        free(line);
    }
}
END_TEST

// Environments of a launcher that contradict themselves, and the variable that is to blame.
static const struct {
    const char *rank, *size, *local_rank, *local_size, *blamed;
} mangled[] = {
    {"4", "4", "0", "1", "OMPI_COMM_WORLD_RANK=4 is not a whole number from 0 to 3,"},
    {"-1", "4", "0", "1", "OMPI_COMM_WORLD_RANK=-1 "},
    {"0", "0", "0", "1", "OMPI_COMM_WORLD_SIZE=0 is not a whole number from 1 to 1048576,"},
    {"0", "2147483647", "0", "1", "OMPI_COMM_WORLD_SIZE=2147483647 "},
    {"0", "4294967300", "0", "1", "OMPI_COMM_WORLD_SIZE=4294967300 "},
    {"0", "4", "2", "2", "OMPI_COMM_WORLD_LOCAL_RANK=2 is not a whole number from 0 to 1,"},
    {"0", "4", "0", "5", "OMPI_COMM_WORLD_LOCAL_SIZE=5 is not a whole number from 1 to 4,"},
    {"0", "4", "0", "x", "OMPI_COMM_WORLD_LOCAL_SIZE=x "},
};

static void ask_in_mangled_environment(const void *number)
{
    int i = *(const int *)number;
    setenv("OMPI_COMM_WORLD_RANK", mangled[i].rank, 1);
    setenv("OMPI_COMM_WORLD_SIZE", mangled[i].size, 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", mangled[i].local_rank, 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", mangled[i].local_size, 1);
    launcher_place();
}

START_TEST(a_launchers_environment_that_contradicts_itself_ends_the_program)
{
    static const char *const pretences[] = {"", "HVD_LAYOUT", "HVD_RANKS_PER_NODE"};
    for (int pretence = 0; pretence < 3; pretence++) {
        unsetenv("HVD_LAYOUT");
        if (pretence > 0)
            setenv(pretences[pretence], "1", 1);
        Outcome outcome = run_in_child(ask_in_mangled_environment, &_i);
        ck_assert_int_eq(outcome.status, 2);
        ck_assert_msg(strstr(outcome.err, mangled[_i].blamed), "%s", outcome.err);
    }
}
END_TEST

START_TEST(pmi_is_understood)
{
    setenv("PMI_RANK", "3", 1);
    setenv("PMI_SIZE", "4", 1);
    setenv("MPI_LOCALRANKID", "1", 1);
    check_launcher(3, 4, 1);
}
END_TEST

START_TEST(srun_is_understood)
{
    set_slurm_task("0");
    check_launcher(5, 6, 1);
}
END_TEST

static const struct {
    const char *step, *job, *node; // SLURM_STEP_TASKS_PER_NODE, SLURM_TASKS_PER_NODE, SLURM_NODEID
    int local_size;
} slurm_nodes[] = {
    {NULL, "4", "0", 4},       {NULL, "4(x2)", "1", 4},    {NULL, "2,1", "0", 2},
    {NULL, "2,1", "1", 1},     {NULL, "2(x3),1", "2", 2},  {NULL, "2(x3),1", "3", 1},
    {NULL, "3,1(x2)", "2", 1}, {"1,2", "2(x2)", "0", 1},   {"", "2,1", "1", 1},
    {NULL, NULL, "0", 1},      {NULL, "2,x", "1", 1},      {NULL, "2(x", "0", 1},
    {NULL, "1,3", "1", 3},     {NULL, "1(x2),4", "2", 4},  {NULL, "2,1(x2),5", "3", 5},
    {NULL, "2", "7", 1},       {NULL, "0,-3(x2)", "1", 1}, {NULL, "2(x3)1", "0", 1},
};

START_TEST(srun_may_deal_unevenly)
{
    set_slurm_task("0");
    setenv("SLURM_NODEID", slurm_nodes[_i].node, 1);
    if (slurm_nodes[_i].step)
        setenv("SLURM_STEP_TASKS_PER_NODE", slurm_nodes[_i].step, 1);
    if (slurm_nodes[_i].job)
        setenv("SLURM_TASKS_PER_NODE", slurm_nodes[_i].job, 1);
    ck_assert_int_eq(launcher_place().local_size, slurm_nodes[_i].local_size);
}
END_TEST

START_TEST(what_mpi_says_is_what_counts)
{
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    set_place(3, 5);
    ck_assert_int_eq(launcher_place().local_rank, 3);
    ck_assert_int_eq(launcher_place().local_size, 5);
    setenv("HVD_RANKS_PER_NODE", "2", 1); // but a pretence remains one
    ck_assert_int_eq(launcher_place().local_rank, 0);
    ck_assert_int_eq(launcher_place().local_size, 2);
}
END_TEST

START_TEST(the_shell_of_a_slurm_job_is_alone)
{
    set_slurm_task(NULL);
    check_launcher(0, 1, 0);
}
END_TEST

START_TEST(slurms_batch_and_interactive_steps_are_alone)
{
    set_slurm_task("4294967290");
    check_launcher(0, 1, 0);
    set_slurm_task("4294967291");
    check_launcher(0, 1, 0);
}
END_TEST

START_TEST(mpirun_inside_slurm_wins)
{
    set_slurm_task("0");
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0", 1);
    check_launcher(0, 2, 0);
}
END_TEST

START_TEST(a_rank_that_is_no_number_is_no_rank)
{
    static const char *const ranks[] = {"", "x", "1x", "-1", " 1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        setenv("OMPI_COMM_WORLD_RANK", ranks[i], 1);
        ck_assert_int_eq(launcher_rank(), 0);
    }
}
END_TEST

int main(void)
{
    forget_launcher();
    Suite *suite = suite_create("base");

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

    TCase *basics = tcase_create("memory, text, time");
    tcase_add_test(basics, allocate_gives_zeroed_and_aligned_memory);
    tcase_add_test(basics, allocate_refuses_what_there_cannot_be);
    tcase_add_test(basics, enlarge_keeps_what_was_there);
    tcase_add_test(basics, room_is_asked_for);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_test(basics, json_without_memory_ends_the_program);
#endif
    tcase_add_test(basics, format_text_formats);
    tcase_add_test(basics, ranks_are_listed_by_ranges);
    tcase_add_test(basics, seconds_go_forward_at_the_right_pace);
    tcase_add_test(basics, sleep_lasts_whatever_signals_come);
    tcase_add_test(basics, program_name_has_no_folder);
    suite_add_tcase(suite, basics);

    TCase *launcher = tcase_create("launcher");
    tcase_set_timeout(launcher, 30); // a rank waits before it speaks
    tcase_add_test(launcher, without_a_launcher_a_process_is_alone);
    tcase_add_test(launcher, open_mpi_is_understood);
    tcase_add_test(launcher, a_layout_names_each_ranks_node);
    tcase_add_test(launcher, simulated_nodes_have_names_of_their_own);
    tcase_add_test(launcher, ranks_are_dealt_to_nodes_in_turn);
    tcase_add_test(launcher, a_layout_that_makes_no_sense_ends_the_program);
    tcase_add_test(launcher, counts_from_the_environment_have_bounds);
    tcase_add_loop_test(launcher, a_launchers_environment_that_contradicts_itself_ends_the_program,
                        0, sizeof mangled / sizeof *mangled);
    tcase_add_test(launcher, pmi_is_understood);
    tcase_add_test(launcher, srun_is_understood);
    tcase_add_loop_test(launcher, srun_may_deal_unevenly, 0,
                        sizeof slurm_nodes / sizeof *slurm_nodes);
    tcase_add_test(launcher, what_mpi_says_is_what_counts);
    tcase_add_test(launcher, the_shell_of_a_slurm_job_is_alone);
    tcase_add_test(launcher, slurms_batch_and_interactive_steps_are_alone);
    tcase_add_test(launcher, mpirun_inside_slurm_wins);
    tcase_add_test(launcher, a_rank_that_is_no_number_is_no_rank);
    suite_add_tcase(suite, launcher);

    return run_suite(suite);
}
