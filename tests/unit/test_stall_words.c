// What common/observe/activity.h, span.h and stall_words.h promise: a record that a thread may read
// while it is written, and words that say nothing which time could prove wrong. How ranks tell each
// other, and what becomes of the job, is in tests/mpi/test_stall.sh.

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include "child.h"
#include "base/clock.h"
#include "observe/span.h"
#include "comm/stall_words.h"

enum { RANKS = 4 };
#define NOW 100.0

static RankView views[RANKS];
static Words words;

// Rank r is in a call since 20 seconds; `peer` -1: with all others.
static void in_call(int r, const char *call, int64_t number, int64_t count, int peer)
{
    Doing doing = {.call = {.name = call, .number = number, .count = count, .peer = peer},
                   .moves = 7};
    RankState says = rank_state(&doing);
    says.rank = r;
    says.seconds = 20;
    views[r] = (RankView){0};
    view_take(&views[r], &says, NOW);
}

static void computing(int r, const char *place, int epoch, int64_t step)
{
    Doing doing = {.call = {.peer = -1}, .location = {place, epoch, step}};
    RankState says = rank_state(&doing);
    says.rank = r;
    says.seconds = 21;
    views[r] = (RankView){0};
    view_take(&views[r], &says, NOW);
}

// Its last calls had these numbers; it left 5 seconds ago.
static void has_left(int r, Leaving how, int status, int64_t last_of_hvd, int64_t last_of_comms)
{
    Doing doing = {.call = {.peer = -1},
                   .left = how,
                   .status = status,
                   .last_of_hvd = last_of_hvd,
                   .last_of_comms = last_of_comms};
    RankState says = rank_state(&doing);
    says.rank = r;
    says.seconds = 5;
    views[r] = (RankView){0};
    view_take(&views[r], &says, NOW);
}

static void prepare(void)
{
    memset(views, 0, sizeof views);
    words.length = 0;
    words.text[0] = '\0';
    for (int r = 0; r < RANKS; r++)
        in_call(r, "hvd_allreduce", 12, 4, -1);
}

static const char *leavers(void)
{
    words.length = 0;
    return words_of_leavers(views, RANKS, NOW, &words) ? words.text : "nobody";
}

static const char *stall(void)
{
    words.length = 0;
    words_of_stall(views, RANKS, NOW, &words);
    return words.text;
}

#define LINE "test_stall_words: stall: "

START_TEST(who_left_before_a_call_is_named)
{
    has_left(1, LEFT_MAIN, 0, 11, 0);
    ck_assert_str_eq(leavers(), "rank 1 has left main (exit status 0) while ranks 0, 2 and 3 wait "
                                "in hvd_allreduce (call 12, 4 values): they would wait forever");
    has_left(2, LEFT_HVD, 0, 3, 0);
    in_call(3, "MPI_Barrier", 1, NO_VALUES, -1);
    ck_assert_str_eq(leavers(),
                     "rank 1 has left main (exit status 0), and rank 2 has called hvd_shutdown "
                     "while rank 0 waits in hvd_allreduce (call 12, 4 values), and rank 3 in "
                     "MPI_Barrier (call 1): they would wait forever");
}
END_TEST

START_TEST(who_made_the_call_is_not_accused)
{
    has_left(1, LEFT_MAIN, 0, 12, 0);
    ck_assert_str_eq(leavers(), "nobody");
    // Nor where a call's number is not known, or is one of other calls.
    has_left(1, LEFT_MAIN, 0, 0, 5);
    for (int r = 0; r < RANKS; r++)
        if (r != 1)
            in_call(r, "MPI_Allreduce", r == 0 ? 5 : 0, 4, -1);
    ck_assert_str_eq(leavers(), "nobody");
}
END_TEST

START_TEST(nobody_waits_who_computes_or_has_left)
{
    has_left(1, LEFT_MAIN, 0, 0, 0);
    computing(0, "evaluating", -1, 3);
    has_left(2, LEFT_MPI, 0, 0, 0);
    computing(3, NULL, -1, 0);
    ck_assert_str_eq(leavers(), "nobody");
    ck_assert(stall_begin(views, RANKS, 10, NOW) == 0);
}
END_TEST

START_TEST(a_message_has_time_to_arrive)
{
    computing(2, NULL, -1, 0);
    computing(3, NULL, -1, 0);
    has_left(1, LEFT_MAIN, 0, 0, 0);
    in_call(0, "MPI_Recv", 0, 1, 1);
    ck_assert_str_eq(leavers(), "rank 1 has left main (exit status 0) while rank 0 waits in "
                                "MPI_Recv for rank 1 (1 value): it would wait forever");
    views[0].since = NOW - 0.5;
    ck_assert_str_eq(leavers(), "nobody");
    views[0].since = NOW - 20;
    views[1].since = NOW - 0.5;
    ck_assert_str_eq(leavers(), "nobody");
    in_call(0, "MPI_Recv", 0, 1, 2);
    ck_assert_str_eq(leavers(), "nobody");
}
END_TEST

START_TEST(who_is_gone_is_named_unless_it_said_why)
{
    views[3].gone = true;
    ck_assert_str_eq(leavers(), "rank 3 is gone, without a word (_exit, or a signal) while ranks "
                                "0-2 wait in hvd_allreduce (call 12, 4 values)");
    views[3].says.explained = 1;
    ck_assert_str_eq(leavers(), "nobody");
}
END_TEST

START_TEST(a_stall_names_all_ranks)
{
    computing(1, "training", 2, 11);
    has_left(3, LEFT_MPI, 0, 12, 0);
    ck_assert(stall_begin(views, RANKS, 10, NOW) == NOW - 20);
    ck_assert(stall_begin(views, RANKS, 25, NOW) == 0);
    ck_assert_str_eq(
        stall(),
        LINE "ranks 0 and 2 have been waiting in hvd_allreduce (call 12, 4 values) for 20 s\n" LINE
             "rank 1 has been in no such call for 21 s, training, epoch 3, step 12\n" LINE
             "rank 3 has called MPI_Finalize\n");
    computing(1, "in callbacks", 1, -1);
    ck_assert(strstr(stall(), "rank 1 has been in no such call for 21 s, in callbacks, epoch 2\n"));
    views[0].stopped = true;
    views[2].heard = NOW - 4;
    ck_assert(stall_begin(views, RANKS, 10, NOW) == 0);
    views[1] = (RankView){0};
    ck_assert_str_eq(stall(), LINE "rank 0 has been stopped (by SIGSTOP, or a debugger)\n" LINE
                                   "rank 1 has not been heard of\n" LINE
                                   "rank 2 has not answered for 4 s\n" LINE
                                   "rank 3 has called MPI_Finalize\n");
}
END_TEST

START_TEST(who_is_silent_is_named_by_who_waits)
{
    words.length = 0;
    words_of_silence(&views[3], &views[0], 10, &words);
    ck_assert_str_eq(words.text,
                     "rank 3 waits in hvd_allreduce (call 12, 4 values); rank 0 has not "
                     "answered for 10 s: look at its process and its machine\n");
    views[0].stopped = true;
    views[0].says.process = 77;
    words.length = 0;
    words_of_silence(&views[3], &views[0], 10, &words);
    ck_assert_msg(strstr(words.text, "; rank 0 has been stopped (by SIGSTOP, or a debugger): "
                                     "kill -CONT 77 continues it\n"),
                  "%s", words.text);
}
END_TEST

START_TEST(all_ranks_may_wait)
{
    ck_assert_str_eq(
        stall(),
        LINE "ranks 0-3 have been waiting in hvd_allreduce (call 12, 4 values) for 20 s\n" LINE
             "all ranks have made this call, and it does not end\n");
    for (int r = 0; r < RANKS; r++)
        in_call(r, "MPI_Waitall", 0, NO_VALUES, -1);
    ck_assert_str_eq(stall(), LINE "ranks 0-3 have been waiting in MPI_Waitall for 20 s\n" LINE
                                   "all ranks wait, and none is left that could end it\n");
}
END_TEST

START_TEST(waiting_goes_on_while_nothing_moves)
{
    RankState says = views[0].says;
    says.seconds = 20.4; // told half a second later
    view_take(&views[0], &says, NOW + 0.5);
    ck_assert(views[0].since == NOW - 20);
    says.moves++;
    says.seconds = 0;
    view_take(&views[0], &says, NOW + 1);
    ck_assert(views[0].since == NOW + 1);
}
END_TEST

// ---- What the main thread does.

static void begin_call(const char *name, int64_t number, int64_t count)
{
    span_begin_call(&(SpanCall){name, number, count, -1, -1, -1});
}

START_TEST(the_outermost_call_counts)
{
    Doing before = activity_now();
    begin_call("hvd_allreduce", 12, 4);
    begin_call("MPI_Allreduce", 99, 4);
    ck_assert(activity_inside());
    Doing doing = activity_now();
    ck_assert_str_eq(doing.call.name, "hvd_allreduce");
    ck_assert(doing.call.number == 12 && doing.call.count == 4);
    ck_assert(doing.last_of_hvd == 12 && doing.last_of_comms == 0);
    ck_assert(doing.moves == before.moves + 1);
    span_end();
    ck_assert(activity_inside());
    span_end();
    ck_assert(!activity_inside());
    begin_call("MPI_Barrier", 3, NO_VALUES);
    span_end();
    doing = activity_now();
    ck_assert(!doing.call.name && doing.moves == before.moves + 4);
    ck_assert(doing.last_of_hvd == 12 && doing.last_of_comms == 3);
    activity_leave(LEFT_HVD, 0);
    activity_leave(LEFT_MAIN, 3);
    doing = activity_now();
    ck_assert(doing.left == LEFT_HVD && doing.status == 0);
}
END_TEST

static void *unreadable;
static Doing within;
static double waited;

// The main thread stands within a change of the record, in a signal's handler.
static void look_within(int number)
{
    (void)number;
    double begin = seconds_now();
    within = activity_now();
    waited = seconds_now() - begin;
    mprotect(unreadable, 4096, PROT_READ);
}

START_TEST(a_change_that_a_signal_interrupts_keeps_no_reader)
{
    unreadable = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, look_within);
    activity_begin_call(&(SpanCall){unreadable, 1, 1, -1, -1, -1});
    signal(SIGSEGV, SIG_DFL);
    ck_assert(waited > 0 && waited < 1 && !within.call.name);
    ck_assert_ptr_eq(activity_now().call.name, unreadable);
    activity_end_call();
}
END_TEST

static void located(const char *name, int epoch, int64_t step)
{
    Location at = activity_now().location;
    ck_assert(name ? at.name && strcmp(at.name, name) == 0 : !at.name);
    ck_assert_msg(at.epoch == epoch && at.step == step, "%s: epoch %d, step %lld",
                  name ? name : "nowhere", at.epoch, (long long)at.step);
}

START_TEST(the_location_is_that_of_the_innermost_span)
{
    span_end(); // of nothing
    located(NULL, -1, -1);
    span_begin(SPAN_CALLBACK, "train_begin", 0, -1);
    located("in callbacks", -1, -1);
    span_next(SPAN_EPOCH, "epoch", 2, -1);
    located("training", 2, -1);
    span_begin(SPAN_STEP, "step", 5, -1);
    span_begin(SPAN_COMPUTE, "forward", 32, -1);
    located("training", 2, 5);
    span_next(SPAN_CALLBACK, "batch_end", 2, -1);
    located("training", 2, 5);
    span_end();
    begin_call("hvd_barrier", 1, NO_VALUES);
    located("training", 2, 5);
    span_end();
    span_end();
    located("training", 2, -1);
    span_begin(SPAN_CALLBACK, "epoch_end", 2, -1);
    located("in callbacks", 2, -1);
    span_end();
    span_begin(SPAN_EVALUATION, "validation", -1, -1);
    for (int i = 0; i < 100; i++) // deeper than is kept
        span_begin(SPAN_STEP, "validation step", 1, -1);
    located("validation", 2, 1);
    for (int i = 0; i < 101; i++)
        span_end();
    located("training", 2, -1);
    span_end();
    located(NULL, -1, -1);
}
END_TEST

static atomic_bool enough;
static atomic_int reads;

static void *other_thread(void *unused)
{
    (void)unused;
    begin_call("MPI_Send", 0, 5); // not seen
    int64_t last = 0;
    while (!enough) {
        Doing doing = activity_now();
        ck_assert(!doing.call.name || strcmp(doing.call.name, "hvd_barrier") == 0);
        ck_assert(!doing.call.name || doing.call.number == doing.call.count);
        ck_assert(doing.last_of_hvd >= last);
        ck_assert(doing.location.epoch == (doing.location.name ? doing.location.step : -1));
        last = doing.last_of_hvd;
        reads++;
    }
    span_end();
    return NULL;
}

START_TEST(another_thread_reads_whole_records)
{
    pthread_t thread;
    int i = 0;
    ck_assert(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    while (reads < 10000) {
        i++;
        activity_move(&(Location){"training", i, i});
        begin_call("hvd_barrier", i, i);
        span_end();
        if (i % 20 == 0) // a reader may never get a whole record while this goes on without a pause
            for (int seen = reads; reads == seen;)
                sched_yield();
    }
    enough = true;
    pthread_join(thread, NULL);
    ck_assert(activity_now().last_of_hvd == i);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stall");
    TCase *said = tcase_create("words");
    tcase_add_checked_fixture(said, prepare, NULL);
    tcase_add_test(said, who_left_before_a_call_is_named);
    tcase_add_test(said, who_made_the_call_is_not_accused);
    tcase_add_test(said, nobody_waits_who_computes_or_has_left);
    tcase_add_test(said, a_message_has_time_to_arrive);
    tcase_add_test(said, who_is_gone_is_named_unless_it_said_why);
    tcase_add_test(said, a_stall_names_all_ranks);
    tcase_add_test(said, who_is_silent_is_named_by_who_waits);
    tcase_add_test(said, all_ranks_may_wait);
    tcase_add_test(said, waiting_goes_on_while_nothing_moves);
    suite_add_tcase(suite, said);
    TCase *done = tcase_create("activity");
    tcase_add_test(done, the_outermost_call_counts);
    tcase_add_test(done, a_change_that_a_signal_interrupts_keeps_no_reader);
    tcase_add_test(done, the_location_is_that_of_the_innermost_span);
    tcase_add_test(done, another_thread_reads_whole_records);
    suite_add_tcase(suite, done);
    return run_suite(suite);
}
