// What pipeline.h promises of each stage: which images come, in which order and batches, and what
// is read again. Who does the work, and when, is in test_prefetch.c; what augmentation does to one
// image in test_augment.c.

#include <limits.h>
#include <string.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "child.h"
#include "data/pipeline_inside.h"
#include "numbered.h"

// -- Batches and repeat ---------------------------------------------------------------------------

// Of images that are fewer than a batch: all, unless they are repeated first.
START_TEST(a_batch_has_no_more_images_than_there_are)
{
    Batches *few = batches_from(pipeline_batch(source(), 2 * COUNT, false));
    ck_assert_int_eq(batches_batch_size(few), COUNT);
    Batches *repeated = batches_from(pipeline_batch(pipeline_repeat(source()), 2 * COUNT, false));
    ck_assert_int_eq(batches_batch_size(repeated), 2 * COUNT);
    batches_free(few);
    batches_free(repeated);
}
END_TEST

START_TEST(images_come_in_the_files_order)
{
    Batches *batches = batches_from(pipeline_batch(source(), 10, false));
    ck_assert_int_eq(batches_len(batches), 11);
    ck_assert_int_eq(batches_batch_size(batches), 10);
    for (int pass = 0; pass < 2; pass++) {
        Seen seen = begin_and_take(batches, 11);
        ck_assert_int_eq(seen.images, COUNT);
        ck_assert(in_order(&seen));
        ck_assert_int_eq(seen.size[10], 3);
    }
    batches_free(batches);
}
END_TEST

START_TEST(remainder_is_dropped_where_that_is_asked_for)
{
    Batches *batches = batches_from(pipeline_repeat(pipeline_batch(source(), 10, true)));
    ck_assert_int_eq(batches_len(batches), 10);
    Seen seen = begin_and_take(batches, 25);
    ck_assert_int_eq(seen.images, 250);
    for (int i = 0; i < 250; i++)
        ck_assert_int_eq(seen.image[i], i % 100);
    batches_free(batches);
}
END_TEST

START_TEST(repeat_before_batch_goes_over_the_ends_of_passes)
{
    Batches *batches = batches_from(pipeline_batch(pipeline_repeat(source()), 10, false));
    Seen seen = begin_and_take(batches, 30);
    ck_assert_int_eq(seen.images, 300);
    ck_assert(in_order(&seen));
    batches_free(batches);
}
END_TEST

START_TEST(repeated_stream_goes_on_from_one_begin_to_the_next)
{
    Pipeline *p = pipeline_repeat(pipeline_batch(source(), 10, false));
    Batches *batches = batches_from(pipeline_prefetch(p, 3));
    Seen seen = {.images = 0};
    for (int begin = 0; begin < 6; begin++) {
        batches_begin(batches, 4);
        take(batches, begin == 2 ? 3 : 4, &seen); // one is asked for and not taken
    }
    ck_assert_int_eq(seen.images, 2 * COUNT + 10); // 23 batches: 11 and 11 and 1
    ck_assert(in_order(&seen));
    batches_free(batches);
}
END_TEST

START_TEST(without_repeat_each_begin_starts_a_pass)
{
    Batches *batches = batches_from(pipeline_prefetch(pipeline_batch(source(), 10, false), 3));
    for (int begin = 0; begin < 4; begin++) {
        Seen seen = begin_and_take(batches, 4);
        ck_assert(in_order(&seen));
    }
    batches_free(batches);
}
END_TEST

START_TEST(batch_larger_than_the_set_is_the_whole_set)
{
    Batches *batches = batches_from(pipeline_repeat(pipeline_batch(source(), 10 * COUNT, false)));
    ck_assert_int_eq(batches_len(batches), 1);
    Seen seen = begin_and_take(batches, 3);
    ck_assert_int_eq(seen.images, 3 * COUNT);
    batches_free(batches);
}
END_TEST

// -- Shuffle --------------------------------------------------------------------------------------

START_TEST(each_pass_is_shuffled_again)
{
    static const int sizes[] = {2, 10, COUNT - 1, COUNT, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Pipeline *p = pipeline_batch(pipeline_shuffle(source(), sizes[i]), 10, false);
        Batches *batches = batches_from(pipeline_repeat(p));
        Seen seen = begin_and_take(batches, 33);
        for (int pass = 0; pass < 3; pass++) {
            assert_each_once(seen.image + pass * COUNT);
            if (pass > 0)
                ck_assert_mem_ne(seen.image, seen.image + pass * COUNT, COUNT * sizeof(int));
        }
        batches_free(batches);
    }
}
END_TEST

// A buffer of B places can pass on an image when B - 1 after it have been read, not before.
START_TEST(no_image_comes_earlier_than_the_buffer_allows)
{
    Pipeline *p = pipeline_batch(pipeline_shuffle(source(), 10), 1, false);
    Batches *batches = batches_from(p);
    bool moved = false;
    for (int pass = 0; pass < 20; pass++) {
        Seen seen = begin_and_take(batches, COUNT);
        for (int i = 0; i < COUNT; i++) {
            ck_assert_int_lt(seen.image[i], i + 10);
            moved = moved || seen.image[i] == i + 9;
        }
    }
    ck_assert(moved);
    batches_free(batches);
}
END_TEST

START_TEST(any_image_of_the_buffer_may_be_the_first)
{
    int first[10] = {0};
    for (int trial = 0; trial < 2000; trial++) {
        Batches *batches = batches_from(pipeline_batch(pipeline_shuffle(source(), 10), 1, false));
        Seen seen = begin_and_take(batches, 1);
        first[seen.image[0]]++;
        batches_free(batches);
    }
    for (int i = 0; i < 10; i++)
        ck_assert_int_gt(first[i], 100); // 200 are expected, give or take 13
}
END_TEST

START_TEST(buffer_of_one_changes_nothing)
{
    Batches *batches = batches_from(pipeline_batch(pipeline_shuffle(source(), 1), 10, false));
    Seen seen = begin_and_take(batches, 11);
    ck_assert(in_order(&seen));
    batches_free(batches);
}
END_TEST

START_TEST(shuffle_after_batch_moves_whole_batches)
{
    Pipeline *p = pipeline_shuffle(pipeline_batch(source(), 10, false), 11);
    Batches *batches = batches_from(p);
    Seen seen = begin_and_take(batches, 11);
    assert_each_once(seen.image);
    ck_assert(!in_order(&seen));
    for (int batch = 0, at = 0; batch < 11; at += seen.size[batch++])
        for (int i = 1; i < seen.size[batch]; i++)
            ck_assert_int_eq(seen.image[at + i], seen.image[at] + i);
    batches_free(batches);
}
END_TEST

START_TEST(flags_turn_shuffle_and_augment_off)
{
    settings()->shuffle = settings()->augment = false;
    Pipeline *p = pipeline_augment(pipeline_shuffle(source(), 50));
    Batches *batches = batches_from(pipeline_batch(p, 10, false));
    Seen seen = begin_and_take(batches, 11);
    ck_assert(in_order(&seen));
    batches_free(batches);
}
END_TEST

// -- Caches ---------------------------------------------------------------------------------------

static Pipeline *cached_in_memory(Pipeline *p)
{
    return pipeline_cache(p);
}

static Pipeline *cached_in_file(Pipeline *p)
{
    return pipeline_cache_in_file(p, "build/test_pipeline");
}

static Pipeline *not_cached(Pipeline *p)
{
    return p;
}

static Pipeline *(*const caches[])(Pipeline *) = {cached_in_memory, cached_in_file};
enum { CACHES = sizeof caches / sizeof *caches };

// What is read again can be seen when the files have changed meanwhile; changed twice, they are as
// they were.
static void change_files(void)
{
    for (int i = 0; i < COUNT; i++) {
        dataset.images[2 * i] = (uint8_t)(COUNT - 1 - dataset.images[2 * i]);
        dataset.labels[i] = dataset.images[2 * i] % 10;
    }
}

static bool reads_again(Pipeline *(*cached)(Pipeline *), bool of_batches)
{
    Pipeline *p = source();
    p = of_batches ? cached(pipeline_batch(p, 10, false)) : pipeline_batch(cached(p), 10, false);
    Batches *batches = batches_from(pipeline_repeat(p));
    begin_and_take(batches, 12); // one more than a pass: that it is over must be seen
    change_files();
    Seen seen = begin_and_take(batches, 10);
    bool again = seen.image[0] != 10;
    for (int i = 0; !again && i < seen.images; i++)
        ck_assert_int_eq(seen.image[i], 10 + i);
    long long read = atomic_load(&p->source->read);
    ck_assert_int_eq(again, read > COUNT);
    batches_free(batches);
    change_files(); // and back
    return again;
}

START_TEST(what_is_cached_is_not_read_again)
{
    for (int i = 0; i < CACHES; i++) {
        ck_assert(!reads_again(caches[i], false));
        ck_assert(!reads_again(caches[i], true));
    }
    ck_assert(reads_again(not_cached, false));
}
END_TEST

// A pass that is left is gone on with: the second one takes from the cache what it has, and reads
// on.
START_TEST(cache_goes_on_where_a_pass_was_left)
{
    for (int i = 0; i < CACHES; i++) {
        Pipeline *p = caches[i](source());
        Batches *batches = batches_from(pipeline_prefetch(pipeline_batch(p, 10, false), 2));
        for (int steps = 1; steps <= 11; steps += 5) {
            Seen seen = begin_and_take(batches, steps);
            ck_assert(in_order(&seen));
        }
        ck_assert_int_eq(atomic_load(&p->source->read), COUNT);
        batches_free(batches);
    }
}
END_TEST

START_TEST(cache_in_a_file_leaves_nothing_behind)
{
    Batches *batches = batches_from(pipeline_batch(cached_in_file(source()), 10, false));
    begin_and_take(batches, 11);
    ck_assert_int_ne(system("ls build/test_pipeline* >/dev/null 2>&1"), 0);
    batches_free(batches);
}
END_TEST

// -- Augmentation ---------------------------------------------------------------------------------

// All floats of some passes, the images in the order of their labels, which are their numbers.
typedef struct {
    float image[3][PROBES][PIXELS];
} Pictures;

static Pictures *pictures_of(Pipeline *p)
{
    Pictures *pictures = allocate(1, sizeof *pictures);
    Batches *batches = batches_from(pipeline_repeat(pipeline_batch(p, PROBE_BATCH, false)));
    for (int pass = 0; pass < 3; pass++) {
        batches_begin(batches, PROBE_STEPS);
        for (int step = 0; step < PROBE_STEPS; step++) {
            Batch batch = batches_next(batches);
            for (int i = 0; i < batch.count; i++)
                memcpy(pictures->image[pass][batch.labels[i]], batch.images + i * PIXELS,
                       sizeof pictures->image[0][0]);
        }
    }
    batches_free(batches);
    return pictures;
}

// How many of the images are the same in two passes.
static int same_images(const Pictures *a, int pass_a, const Pictures *b, int pass_b)
{
    int same = 0;
    for (int i = 0; i < PROBES; i++)
        same += memcmp(a->image[pass_a][i], b->image[pass_b][i], sizeof a->image[0][0]) == 0;
    return same;
}

// Of what the stages make, passes 0 and 1, and 0 and what was read.
static void assert_same(Pipeline *p, int as_before, int as_read)
{
    Dataset images = probes();
    Pictures *seen = pictures_of(p),
             *plain = pictures_of(pipeline_from_dataset(&images, unchanged));
    ck_assert_int_eq(same_images(seen, 0, seen, 1), as_before);
    ck_assert_int_eq(same_images(seen, 1, seen, 2), as_before);
    ck_assert_int_eq(same_images(seen, 0, plain, 0), as_read);
    free(seen);
    free(plain);
    dataset_free(&images);
}

START_TEST(what_is_augmented_after_the_cache_differs_in_each_pass)
{
    Dataset images = probes();
    for (int i = 0; i < CACHES; i++) {
        Pipeline *read = pipeline_from_dataset(&images, unchanged);
        assert_same(pipeline_augment(caches[i](read)), 0, 0);
        read = pipeline_from_dataset(&images, unchanged);
        assert_same(caches[i](pipeline_augment(read)), PROBES, 0);
        read = pipeline_from_dataset(&images, unchanged);
        assert_same(caches[i](read), PROBES, PROBES);
    }
    assert_same(pipeline_augment(pipeline_from_dataset(&images, unchanged)), 0, 0);
    dataset_free(&images);
}
END_TEST

// A cache of bytes may lie before an augmentation, one of floats, or none: the pictures are the
// same.
static void see_augmented(const void *argument)
{
    const int *variant = argument;
    seed_process(7);
    Dataset images = probes();
    Pipeline *p = pipeline_from_dataset(&images, image_statistics(&images));
    p = *variant == 1 ? pipeline_cache(p) : *variant == 2 ? pipeline_prefetch(p, 3) : p;
    p = *variant == 3 ? pipeline_cache(pipeline_prefetch(p, 3)) : p;
    Pictures *pictures = pictures_of(pipeline_augment(p));
    fwrite(pictures->image[2][PROBES - 1], sizeof(float), PIXELS, stdout);
    free(pictures);
    dataset_free(&images);
}

START_TEST(floats_are_augmented_as_bytes_are)
{
    Outcome plain = run_in_child(see_augmented, &(int){0});
    ck_assert_int_eq(plain.status, 0);
    for (int variant = 1; variant <= 3; variant++) {
        Outcome other = run_in_child(see_augmented, &variant);
        ck_assert_mem_eq(plain.out, other.out, PIXELS * sizeof(float));
    }
}
END_TEST

START_TEST(augmented_twice_is_another_picture)
{
    Dataset images = probes();
    Pipeline *p = pipeline_augment(pipeline_from_dataset(&images, unchanged));
    assert_same(pipeline_augment(p), 0, 0);
    dataset_free(&images);
}
END_TEST

// -- Wrong calls ----------------------------------------------------------------------------------

static void null_to_cache(void)
{
    (void)!pipeline_cache(NULL);
}

static void taken_twice(void)
{
    Pipeline *p = source();
    (void)!pipeline_cache(p);
    (void)!pipeline_shuffle(p, 10);
}

static void forgotten_at_the_end(void)
{
    Pipeline *p = pipeline_batch(source(), 10, false);
    (void)!pipeline_prefetch(p, 2);
    batches_from(p);
}

static void no_dataset(void)
{
    pipeline_from_dataset(NULL, unchanged);
}

static void no_places(void)
{
    (void)!pipeline_shuffle(source(), 0);
}

static void nothing_ahead(void)
{
    (void)!pipeline_prefetch(source(), 0);
}

static void too_much_ahead(void)
{
    (void)!pipeline_prefetch(source(), 1000000);
}

static void more_than_memory_ahead(void)
{
    (void)!pipeline_prefetch(pipeline_batch(pipeline_repeat(source()), INT_MAX, false), 100000);
}

static void batch_of_none(void)
{
    (void)!pipeline_batch(source(), 0, false);
}

static void batched_twice(void)
{
    (void)!pipeline_batch(pipeline_batch(source(), 10, false), 2, false);
}

static void no_whole_batch(void)
{
    (void)!pipeline_batch(source(), COUNT + 1, true);
}

static void single_images(void)
{
    batches_from(source());
}

static void nothing_to_evaluate(void)
{
    Tensor image = input(1, 2, 1);
    Model *m = compile(model(image, softmax(dense(flatten(image), 10))), CATEGORICAL_CROSSENTROPY,
                       sgd(0.1f));
    evaluate(m, batches_from(pipeline_batch(pipeline_repeat(source()), COUNT + 1, true)), 0);
}

static void no_pipeline(void)
{
    batches_from(NULL);
}

static void past_the_end(void)
{
    begin_and_take(batches_from(pipeline_batch(source(), 10, false)), 12);
}

static void past_the_end_of_a_prefetch(void)
{
    Pipeline *p = pipeline_prefetch(pipeline_batch(source(), 10, false), 4);
    begin_and_take(batches_from(p), 12);
}

static void file_in_no_folder(void)
{
    (void)!pipeline_cache_in_file(source(), "no/such/folder/cache");
}

static void no_path(void)
{
    (void)!pipeline_cache_in_file(source(), "");
}

static void disk_is_full(void)
{
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 500, .rlim_max = 500});
    Batches *batches = batches_from(pipeline_batch(cached_in_file(source()), 10, false));
    batches_begin(batches, 11);
    for (int step = 0; step < 11; step++)
        batches_next(batches); // nothing of Check's, which writes to a file, too
}

static const RefusedCall endings[] = {
    {null_to_cache, "pipeline_cache: there is no pipeline (NULL)"},
    {taken_twice, "pipeline_shuffle: another stage takes these images already"},
    {forgotten_at_the_end, "batches_from: a stage takes these batches already"},
    {no_dataset, "there are no images to make batches of"},
    {no_places, "pipeline_shuffle: a buffer of 0 places"},
    {nothing_ahead, "pipeline_prefetch: 0 places; there must be at least 1"},
    {too_much_ahead,
     "pipeline_prefetch: 1000000 places; there must be at least 1, and at most 100000"},
    {more_than_memory_ahead, "which pipeline_prefetch may need"},
    {batch_of_none, "a batch of 0 images cannot be trained on"},
    {batched_twice, "pipeline_batch: these are batches already"},
    {no_whole_batch, "pipeline_batch: 103 images make no batch of 104"},
    {single_images, "batches_from: the pipeline gives single images"},
    {nothing_to_evaluate, "evaluate: there are no batches: fewer images than a batch"},
    {no_pipeline, "batches_from: there is no pipeline (NULL)"},
    {past_the_end, "batches_next: the pipeline's pass is over after 11 of 12 batches"},
    {past_the_end_of_a_prefetch,
     "batches_next: the pipeline's pass is over after 11 of 12 batches"},
    {file_in_no_folder, "no/such/folder/cache: cannot make a file of that name: No such file"},
    {no_path, "pipeline_cache_in_file: there is no path"},
    {disk_is_full, "cannot write: File too large"},
};
enum { ENDINGS = sizeof endings / sizeof *endings };

START_TEST(mistakes_end_the_program_with_one_line)
{
    assert_call_refused(&endings[_i]);
}
END_TEST

// -------------------------------------------------------------------------------------------------

static void add_order_tests(TCase *tests)
{
    tcase_add_test(tests, a_batch_has_no_more_images_than_there_are);
    tcase_add_test(tests, images_come_in_the_files_order);
    tcase_add_test(tests, remainder_is_dropped_where_that_is_asked_for);
    tcase_add_test(tests, repeat_before_batch_goes_over_the_ends_of_passes);
    tcase_add_test(tests, repeated_stream_goes_on_from_one_begin_to_the_next);
    tcase_add_test(tests, without_repeat_each_begin_starts_a_pass);
    tcase_add_test(tests, batch_larger_than_the_set_is_the_whole_set);
    tcase_add_test(tests, each_pass_is_shuffled_again);
    tcase_add_test(tests, no_image_comes_earlier_than_the_buffer_allows);
    tcase_add_test(tests, any_image_of_the_buffer_may_be_the_first);
    tcase_add_test(tests, buffer_of_one_changes_nothing);
    tcase_add_test(tests, shuffle_after_batch_moves_whole_batches);
    tcase_add_test(tests, flags_turn_shuffle_and_augment_off);
}

static void add_content_tests(TCase *tests)
{
    tcase_add_test(tests, what_is_cached_is_not_read_again);
    tcase_add_test(tests, cache_goes_on_where_a_pass_was_left);
    tcase_add_test(tests, cache_in_a_file_leaves_nothing_behind);
    tcase_add_test(tests, what_is_augmented_after_the_cache_differs_in_each_pass);
    tcase_add_test(tests, floats_are_augmented_as_bytes_are);
    tcase_add_test(tests, augmented_twice_is_another_picture);
}

int main(void)
{
    Suite *suite = suite_create("pipeline");
    TCase *tests = tcase_create("stages");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    add_order_tests(tests);
    add_content_tests(tests);
    tcase_add_loop_test(tests, mistakes_end_the_program_with_one_line, 0, ENDINGS);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
