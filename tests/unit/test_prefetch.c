// What pipeline.h promises of the work: who does it, how far ahead, and that a stream follows from
// the seed alone, whatever the number of threads.

#include <string.h>

#include "base/clock.h"
#include "child.h"
#include "data/pipeline_inside.h"
#include "numbered.h"

// -- Threads --------------------------------------------------------------------------------------

// The stream of one of several pipelines, printed.
typedef struct {
    int threads, prefetches;
    bool ready_made;
} Way;

static Batches *on_some_way(const Way *way, const Dataset *images)
{
    Statistics statistics = image_statistics(images);
    if (way->ready_made)
        return augmented_batches(images, statistics, PROBE_BATCH);
    Pipeline *p = pipeline_from_dataset(images, statistics);
    p = way->prefetches > 2 ? pipeline_prefetch(p, 3) : p;
    p = pipeline_shuffle(p, PROBES);
    p = way->prefetches > 1 ? pipeline_prefetch(p, 5) : p;
    p = pipeline_augment(pipeline_batch(p, PROBE_BATCH, false));
    p = way->prefetches > 0 ? pipeline_prefetch(p, 2) : p;
    return batches_from(p);
}

static void print_stream(const void *argument)
{
    const Way *way = argument;
    settings()->loader_threads = way->threads;
    seed_process(7);
    Dataset images = probes();
    Batches *batches = on_some_way(way, &images);
    for (int pass = 0; pass < 3; pass++) {
        batches_begin(batches, PROBE_STEPS);
        for (int step = 0; step < PROBE_STEPS; step++) {
            Batch batch = batches_next(batches);
            double sum = 0;
            for (int i = 0; i < batch.count * PIXELS; i++)
                sum += (double)batch.images[i] * (i % 101);
            printf("%d %d %.17g\n", batch.count, batch.labels[0], sum);
        }
    }
    batches_free(batches);
    dataset_free(&images);
}

START_TEST(threads_and_prefetches_change_no_bit)
{
    Outcome plain = run_in_child(print_stream, &(Way){.threads = 1});
    ck_assert_msg(plain.status == 0, "%s", plain.err);
    for (int threads = 1; threads <= 7; threads += 3)
        for (int prefetches = 0; prefetches <= 3; prefetches++) {
            Way way = {.threads = threads, .prefetches = prefetches};
            Outcome other = run_in_child(print_stream, &way);
            ck_assert_str_eq(plain.out, other.out);
        }
}
END_TEST

START_TEST(stages_make_what_augmented_batches_makes)
{
    Outcome stages = run_in_child(print_stream, &(Way){.threads = 2, .prefetches = 1});
    Outcome ready = run_in_child(print_stream, &(Way){.threads = 2, .ready_made = true});
    ck_assert_str_eq(stages.out, ready.out);
}
END_TEST

// What the trainer has not asked for is read no further than buffers have room.
START_TEST(no_more_is_read_than_buffers_hold)
{
    Pipeline *p = pipeline_repeat(pipeline_shuffle(source(), 20));
    Batches *batches = batches_from(pipeline_prefetch(pipeline_batch(p, 5, true), 3));
    batches_begin(batches, 1000);
    for (int taken = 0; taken <= 10; taken++) {
        usleep(20000);
        // 20 in the buffer, 1 on its way, 3 batches ahead, and those that the trainer has taken.
        ck_assert_int_le(atomic_load(&p->source->read), 20 + 1 + 5 * (3 + taken));
        ck_assert_int_eq(atomic_load(&p->source->buffered.images), 20);
        ck_assert_int_eq(atomic_load(&p->source->ahead.images), 15);
        batches_next(batches);
    }
    batches_free(batches);
}
END_TEST

START_TEST(nothing_is_read_before_the_first_begin)
{
    Pipeline *p = pipeline_repeat(pipeline_cache(source()));
    Batches *batches = batches_from(pipeline_prefetch(pipeline_batch(p, 5, true), 3));
    usleep(20000);
    ck_assert_int_eq(atomic_load(&p->source->read), 0);
    batches_free(batches);
}
END_TEST

START_TEST(what_was_begun_can_be_dropped_and_freed)
{
    settings()->slow_reader = 0.2f;
    for (int trial = 0; trial < 50; trial++) {
        Pipeline *p = pipeline_prefetch(pipeline_shuffle(source(), 20), 8);
        p = pipeline_prefetch(pipeline_batch(pipeline_augment(p), 5, true), 3);
        Batches *batches = batches_from(trial % 2 ? pipeline_repeat(p) : p);
        for (int begin = 0; begin < 3; begin++) {
            batches_begin(batches, 5);
            usleep(100 * (useconds_t)trial);
            for (int step = 0; step < trial % 4; step++)
                batches_next(batches);
        }
        batches_free(batches);
    }
}
END_TEST

static int64_t work_in_next(Batches *batches)
{
    batches_begin(batches, 5);
    int64_t before = own_work();
    for (int step = 0; step < 5; step++)
        batches_next(batches);
    int64_t work = own_work() - before;
    batches_free(batches);
    return work;
}

START_TEST(what_is_before_a_prefetch_is_not_the_callers_work)
{
    Pipeline *p = pipeline_batch(pipeline_augment(source()), 10, true);
    ck_assert_int_eq(work_in_next(batches_from(pipeline_prefetch(p, 2))), 0);
    p = pipeline_batch(pipeline_prefetch(pipeline_augment(source()), 2), 10, true);
    ck_assert_int_gt(work_in_next(batches_from(p)), 0);
    p = pipeline_batch(pipeline_augment(source()), 10, true);
    ck_assert_int_gt(work_in_next(batches_from(p)), 0);
}
END_TEST

// -- The slow reader ------------------------------------------------------------------------------

static double seconds_of_pass(Batches *batches, int steps)
{
    double since = seconds_now();
    begin_and_take(batches, steps);
    return seconds_now() - since;
}

START_TEST(slow_reader_takes_its_time_for_each_batch_that_is_read)
{
    settings()->slow_reader = 10;
    Batches *slow[] = {batches_from(pipeline_batch(source(), 10, true)),
                       batches_from(pipeline_prefetch(pipeline_batch(source(), 10, true), 2)),
                       plain_batches(&dataset, unchanged, 10)};
    for (int i = 0; i < 3; i++) {
        for (int pass = 0; pass < 2; pass++)
            ck_assert_double_ge(seconds_of_pass(slow[i], 10), 0.1);
        batches_free(slow[i]);
    }
}
END_TEST

START_TEST(what_a_cache_holds_takes_no_time_to_read)
{
    settings()->slow_reader = 50;
    Batches *batches = batches_from(pipeline_batch(pipeline_cache(source()), 10, false));
    ck_assert_double_ge(seconds_of_pass(batches, 11), 0.5);
    ck_assert_double_lt(seconds_of_pass(batches, 11), 0.25);
    batches_free(batches);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefetch");
    TCase *tests = tcase_create("stages");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, threads_and_prefetches_change_no_bit);
    tcase_add_test(tests, stages_make_what_augmented_batches_makes);
    tcase_add_test(tests, no_more_is_read_than_buffers_hold);
    tcase_add_test(tests, nothing_is_read_before_the_first_begin);
    tcase_add_test(tests, what_was_begun_can_be_dropped_and_freed);
    tcase_add_test(tests, what_is_before_a_prefetch_is_not_the_callers_work);
    tcase_add_test(tests, slow_reader_takes_its_time_for_each_batch_that_is_read);
    tcase_add_test(tests, what_a_cache_holds_takes_no_time_to_read);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
