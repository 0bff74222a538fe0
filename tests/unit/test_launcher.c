// What a process learns of its job from the launcher's variables and from HVD_LAYOUT.

#include <string.h>

#include "child.h"
#include "forget_launcher.h"
#include "base/format.h"
#include "base/launcher.h"
#include "base/layout.h"
#include "base/setting.h"

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
            "test_launcher: HVDLAB_DEVICES=%s is not a whole number from 1 to 1024\n", bad[i]);
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
    Suite *suite = suite_create("launcher");

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
