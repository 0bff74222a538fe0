// What batches.h promises of batches: which images come in which order, and that the order and the
// augmentation follow from seed and rank, whatever the number of threads. What augmentation does to
// one image is in test_augment.c.

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "data/batches.h"
#include "data/pipeline.h"
#include "child.h"
#include "base/rng.h"
#include "base/memory.h"
#include "base/format.h"

// With these a byte's standardised value is the byte itself, but for rounding.
static const Statistics unchanged = {.std = {1, 1, 1, 1}};

// -- Images that tell which they are --------------------------------------------------------------

// Images of one row of two pixels, which hold the image's position in the data set.
static Dataset numbered_images(int count)
{
    Dataset dataset = {.count = count, .height = 1, .width = 2, .channels = 1, .classes = 10};
    dataset.images = allocate((size_t)count, 2);
    dataset.labels = allocate((size_t)count, 1);
    for (int i = 0; i < count; i++) {
        dataset.images[2 * i] = (uint8_t)(i / 256);
        dataset.images[2 * i + 1] = (uint8_t)(i % 256);
        dataset.labels[i] = (uint8_t)(i % 10);
    }
    return dataset;
}

static int number_of(const float *image)
{
    return (int)lroundf(image[0]) * 256 + (int)lroundf(image[1]);
}

// Takes `steps` batches and writes their images' numbers to `numbers`; returns how many there were.
static int take_numbers(Batches *batches, int steps, int *numbers)
{
    int taken = 0;
    for (int step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        for (int i = 0; i < batch.count; i++) {
            int number = number_of(batch.images + 2 * (size_t)i);
            ck_assert_int_eq(batch.labels[i], number % 10);
            numbers[taken++] = number;
        }
    }
    return taken;
}

static int begin_and_take(Batches *batches, int steps, int *numbers)
{
    batches_begin(batches, steps);
    return take_numbers(batches, steps, numbers);
}

static void assert_each_once(const int *numbers, int count)
{
    bool *seen = allocate((size_t)count, sizeof *seen);
    for (int i = 0; i < count; i++) {
        ck_assert_int_ge(numbers[i], 0);
        ck_assert_int_lt(numbers[i], count);
        ck_assert_msg(!seen[numbers[i]], "image %d comes twice", numbers[i]);
        seen[numbers[i]] = true;
    }
    free(seen);
}

// -- Order ----------------------------------------------------------------------------------------

enum { COUNT = 1000 };

START_TEST(length_is_the_count_over_the_batch_size_rounded_up)
{
    static const struct {
        int count, batch_size, length;
    } cases[] = {{1000, 32, 32}, {1000, 100, 10}, {1000, 1000, 1}, {1000, 999, 2},
                 {1, 1, 1},      {1000, 1, 1000}, {1000, 5000, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Dataset dataset = numbered_images(cases[i].count);
        Batches *batches = plain_batches(&dataset, unchanged, cases[i].batch_size);
        ck_assert_int_eq(batches_len(batches), cases[i].length);
        ck_assert_int_eq(batches_dataset(batches)->count, cases[i].count);
        batches_free(batches);
        dataset_free(&dataset);
    }
}
END_TEST

START_TEST(last_batch_of_a_permutation_is_the_short_one)
{
    Dataset dataset = numbered_images(COUNT);
    Batches *batches = plain_batches(&dataset, unchanged, 300);
    batches_begin(batches, 8);
    for (int step = 0; step < 8; step++)
        ck_assert_int_eq(batches_next(batches).count, step % 4 == 3 ? 100 : 300);
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

START_TEST(batch_larger_than_the_set_is_the_whole_set)
{
    Dataset dataset = numbered_images(COUNT);
    Batches *batches = plain_batches(&dataset, unchanged, 10 * COUNT);
    int numbers[3 * COUNT];
    ck_assert_int_eq(begin_and_take(batches, 3, numbers), 3 * COUNT);
    for (int pass = 0; pass < 3; pass++)
        assert_each_once(numbers + pass * COUNT, COUNT);
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

START_TEST(each_image_comes_once_per_permutation)
{
    Dataset dataset = numbered_images(COUNT);
    Batches *batches = plain_batches(&dataset, unchanged, 32);
    int numbers[COUNT];
    for (int pass = 0; pass < 3; pass++) {
        ck_assert_int_eq(begin_and_take(batches, batches_len(batches), numbers), COUNT);
        assert_each_once(numbers, COUNT);
    }
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

START_TEST(more_steps_go_on_with_another_permutation)
{
    Dataset dataset = numbered_images(COUNT);
    Batches *batches = plain_batches(&dataset, unchanged, 32);
    int numbers[3 * COUNT];
    ck_assert_int_eq(begin_and_take(batches, 3 * batches_len(batches), numbers), 3 * COUNT);
    for (int pass = 0; pass < 3; pass++)
        assert_each_once(numbers + pass * COUNT, COUNT);
    ck_assert_mem_ne(numbers, numbers + COUNT, COUNT * sizeof *numbers);
    ck_assert_mem_ne(numbers + COUNT, numbers + 2 * COUNT, COUNT * sizeof *numbers);
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

START_TEST(each_begin_starts_a_fresh_permutation)
{
    Dataset dataset = numbered_images(COUNT);
    Batches *batches = plain_batches(&dataset, unchanged, 100);
    int first[COUNT], second[COUNT];
    begin_and_take(batches, 3, first); // begun, but not finished
    begin_and_take(batches, 10, second);
    assert_each_once(second, COUNT); // so it began at its beginning
    ck_assert_mem_ne(first, second, 300 * sizeof *first);
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

START_TEST(what_was_not_taken_is_dropped)
{
    Dataset dataset = numbered_images(COUNT);
    Batches *batches = plain_batches(&dataset, unchanged, 100);
    int numbers[COUNT];
    for (int pass = 0; pass < 200; pass++) {
        batches_begin(batches, 10);
        take_numbers(batches, pass % 4, numbers);
    }
    begin_and_take(batches, 10, numbers);
    assert_each_once(numbers, COUNT);
    batches_begin(batches, 0);
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

START_TEST(batches_that_never_begin_can_be_freed)
{
    Dataset dataset = numbered_images(COUNT);
    batches_free(plain_batches(&dataset, unchanged, 100));
    batches_free(NULL);
    dataset_free(&dataset);
}
END_TEST

START_TEST(batch_stays_until_the_next_is_taken)
{
    Dataset dataset = numbered_images(COUNT);
    Batches *batches = plain_batches(&dataset, unchanged, 10);
    batches_begin(batches, 100);
    for (int step = 0; step < 20; step++) {
        Batch batch = batches_next(batches);
        int before[10], after[10];
        for (int i = 0; i < 10; i++)
            before[i] = number_of(batch.images + 2 * i);
        usleep(1000); // the threads go on as far as they can
        for (int i = 0; i < 10; i++)
            after[i] = number_of(batch.images + 2 * i);
        ck_assert_mem_eq(before, after, sizeof before);
    }
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

static void take_one_too_many(const void *unused)
{
    (void)unused;
    Dataset dataset = numbered_images(COUNT);
    Batches *batches = plain_batches(&dataset, unchanged, 10);
    int numbers[COUNT];
    begin_and_take(batches, 2, numbers);
    take_numbers(batches, 1, numbers);
}

START_TEST(taking_more_than_asked_for_is_caught)
{
    Outcome outcome = run_in_child(take_one_too_many, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_ptr_nonnull(strstr(outcome.err, "batches_begin has been asked for 2 batches"));
}
END_TEST

START_TEST(without_shuffle_images_keep_their_order)
{
    settings()->shuffle = false;
    Dataset dataset = numbered_images(COUNT);
    Batches *plain = plain_batches(&dataset, unchanged, 32);
    int numbers[2 * COUNT];
    for (int pass = 0; pass < 2; pass++) {
        begin_and_take(plain, 2 * batches_len(plain), numbers);
        for (int i = 0; i < 2 * COUNT; i++)
            ck_assert_int_eq(numbers[i], i % COUNT);
    }
    batches_free(plain);
    dataset_free(&dataset);
}
END_TEST

START_TEST(without_augment_images_are_only_standardised)
{
    settings()->augment = false;
    Dataset dataset = numbered_images(COUNT);
    Batches *batches = augmented_batches(&dataset, unchanged, 32);
    int numbers[COUNT];
    begin_and_take(batches, batches_len(batches), numbers);
    assert_each_once(numbers, COUNT);
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

// -- Randomness -----------------------------------------------------------------------------------

enum { SIDE = 28, PIXELS = SIDE * SIDE, PROBES = 150, PROBE_STEPS = 12, PROBE_BATCH = 32 };

// Everything that one process saw: two data sets' batches, in three passes.
typedef struct {
    float images[2][3][PROBE_STEPS * PROBE_BATCH * PIXELS];
    int labels[2][3][PROBE_STEPS * PROBE_BATCH];
} Seen;

typedef struct {
    const char *rank;
    bool seeded;
    uint64_t seed;
    int threads;
    bool drop;  // for see_every_other_pass
    Seen *seen; // memory that the processes share
} Process;

static void see(Batches *batches, int steps, float *images, int *labels)
{
    batches_begin(batches, steps);
    for (int step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        size_t count = (size_t)batch.count;
        memcpy(images, batch.images, count * PIXELS * sizeof *images);
        memcpy(labels, batch.labels, count * sizeof *labels);
        images += count * PIXELS;
        labels += count;
    }
}

static void see_batches(const void *argument)
{
    const Process *process = argument;
    setenv("OMPI_COMM_WORLD_RANK", process->rank, 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    if (process->seeded)
        seed_process(process->seed);
    settings()->loader_threads = process->threads;
    Dataset dataset = synthetic_data(TEST, 1, 0);
    dataset.count = PROBES;
    for (int i = 0; i < PROBES; i++)
        dataset.labels[i] = (uint8_t)i; // to tell them apart
    Statistics statistics = image_statistics(&dataset);
    Batches *batches[2] = {augmented_batches(&dataset, statistics, PROBE_BATCH),
                           augmented_batches(&dataset, statistics, PROBE_BATCH)};
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < 2; i++)
            see(batches[i], PROBE_STEPS, process->seen->images[i][pass],
                process->seen->labels[i][pass]);
    }
    for (int i = 0; i < 2; i++)
        batches_free(batches[i]);
    dataset_free(&dataset);
}

// What a process of its own sees; free it with forget.
static Seen *seen_in(void (*look)(const void *), Process *process)
{
    process->seen =
        mmap(NULL, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(process->seen, MAP_FAILED);
    Outcome outcome = run_in_child(look, process);
    ck_assert_msg(outcome.status == 0, "status %d: %s", outcome.status, outcome.err);
    return process->seen;
}

static Seen *seen_by(const char *rank, bool seeded, uint64_t seed, int threads)
{
    Process process = {.rank = rank, .seeded = seeded, .seed = seed, .threads = threads};
    return seen_in(see_batches, &process);
}

static void forget(Seen *seen)
{
    munmap(seen, sizeof *seen);
}

static void assert_same(Seen *a, Seen *b)
{
    ck_assert(memcmp(a, b, sizeof *a) == 0);
    forget(a);
    forget(b);
}

static void assert_other_order_and_other_images(Seen *a, Seen *b)
{
    ck_assert(memcmp(a->labels, b->labels, sizeof a->labels) != 0);
    ck_assert(memcmp(a->images, b->images, sizeof a->images) != 0);
    forget(a);
    forget(b);
}

START_TEST(same_seed_gives_the_same_bits_for_any_number_of_threads)
{
    assert_same(seen_by("0", true, 7, 1), seen_by("0", true, 7, 4));
    assert_same(seen_by("2", true, 7, 1), seen_by("2", true, 7, 13));
}
END_TEST

// Every other pass through a data set: those between are taken and forgotten, or begun and dropped.
static void see_every_other_pass(const void *argument)
{
    const Process *process = argument;
    seed_process(process->seed);
    settings()->loader_threads = process->threads;
    Dataset dataset = synthetic_data(TEST, 1, 0);
    dataset.count = PROBES;
    Batches *batches = augmented_batches(&dataset, unchanged, PROBES); // some 200 microseconds each
    for (int pass = 0; pass < 6; pass++) {
        float *images = process->seen->images[pass % 2][pass / 2];
        int *labels = process->seen->labels[pass % 2][pass / 2];
        if (process->drop) {
            batches_begin(batches, 2);
            usleep(50 * (useconds_t)pass); // the threads are begun, half done, almost done, ...
        } else {
            see(batches, 2, images, labels);
        }
        see(batches, 2, images, labels);
    }
    batches_free(batches);
    dataset_free(&dataset);
}

START_TEST(dropped_passes_leave_no_trace)
{
    Process taking = {.seed = 7, .threads = 4}, dropping = {.seed = 7, .threads = 4, .drop = true};
    assert_same(seen_in(see_every_other_pass, &taking), seen_in(see_every_other_pass, &dropping));
}
END_TEST

START_TEST(other_seed_gives_other_batches)
{
    assert_other_order_and_other_images(seen_by("0", true, 7, 2), seen_by("0", true, 8, 2));
}
END_TEST

START_TEST(ranks_draw_different_batches)
{
    assert_other_order_and_other_images(seen_by("0", true, 7, 2), seen_by("1", true, 7, 2));
    assert_other_order_and_other_images(seen_by("1", true, 7, 2), seen_by("2", true, 7, 2));
}
END_TEST

START_TEST(processes_without_a_seed_draw_different_batches)
{
    assert_other_order_and_other_images(seen_by("0", false, 0, 2), seen_by("0", false, 0, 2));
}
END_TEST

START_TEST(two_objects_and_two_passes_differ)
{
    Seen *seen = seen_by("0", true, 7, 2);
    const size_t labels = sizeof seen->labels[0][0], images = sizeof seen->images[0][0];
    ck_assert(memcmp(seen->labels[0][0], seen->labels[1][0], labels) != 0);
    ck_assert(memcmp(seen->labels[0][0], seen->labels[0][1], labels) != 0);
    ck_assert(memcmp(seen->labels[0][1], seen->labels[0][2], labels) != 0);
    ck_assert(memcmp(seen->images[0][0], seen->images[1][0], images) != 0);
    ck_assert(memcmp(seen->images[0][0], seen->images[0][1], images) != 0);
    forget(seen);
}
END_TEST

// Without shuffling the order is the same, and only augmentation can differ.
START_TEST(each_image_is_augmented_again_each_time)
{
    settings()->shuffle = false;
    Dataset dataset = synthetic_data(TEST, 1, 0);
    dataset.count = 8;
    Batches *batches = augmented_batches(&dataset, unchanged, 8);
    static float passes[4][8 * PIXELS];
    for (int pass = 0; pass < 4; pass++) {
        if (pass % 2 == 0)
            batches_begin(batches, 2); // each begin is good for two passes
        memcpy(passes[pass], batches_next(batches).images, sizeof passes[pass]);
    }
    for (int pass = 1; pass < 4; pass++) {
        for (size_t i = 0; i < 8; i++)
            ck_assert_mem_ne(passes[pass] + i * PIXELS, passes[pass - 1] + i * PIXELS,
                             PIXELS * sizeof(float));
    }
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

// -------------------------------------------------------------------------------------------------

static void add_order_tests(Suite *suite)
{
    TCase *order = tcase_create("order");
    tcase_set_timeout(order, 30);
    tcase_add_test(order, length_is_the_count_over_the_batch_size_rounded_up);
    tcase_add_test(order, last_batch_of_a_permutation_is_the_short_one);
    tcase_add_test(order, batch_larger_than_the_set_is_the_whole_set);
    tcase_add_test(order, each_image_comes_once_per_permutation);
    tcase_add_test(order, more_steps_go_on_with_another_permutation);
    tcase_add_test(order, each_begin_starts_a_fresh_permutation);
    tcase_add_test(order, what_was_not_taken_is_dropped);
    tcase_add_test(order, batches_that_never_begin_can_be_freed);
    tcase_add_test(order, batch_stays_until_the_next_is_taken);
    tcase_add_test(order, taking_more_than_asked_for_is_caught);
    tcase_add_test(order, without_shuffle_images_keep_their_order);
    tcase_add_test(order, without_augment_images_are_only_standardised);
    suite_add_tcase(suite, order);
}

static void add_randomness_tests(Suite *suite)
{
    TCase *randomness = tcase_create("randomness");
    tcase_set_timeout(randomness, 60);
    tcase_add_test(randomness, same_seed_gives_the_same_bits_for_any_number_of_threads);
    tcase_add_test(randomness, dropped_passes_leave_no_trace);
    tcase_add_test(randomness, other_seed_gives_other_batches);
    tcase_add_test(randomness, ranks_draw_different_batches);
    tcase_add_test(randomness, processes_without_a_seed_draw_different_batches);
    tcase_add_test(randomness, two_objects_and_two_passes_differ);
    tcase_add_test(randomness, each_image_is_augmented_again_each_time);
    suite_add_tcase(suite, randomness);
}

// -- Left and found again -------------------------------------------------------------------------

// Several kinds of batches, of 47 images in batches of 8.
static Batches *kind(int number, const Dataset *dataset)
{
    if (number < 2)
        return number ? plain_batches(dataset, unchanged, 8)
                      : augmented_batches(dataset, unchanged, 8);
    Pipeline *p = pipeline_from_dataset(dataset, unchanged);
    if (number == 2 || number == 5)
        p = pipeline_shuffle(p, 11);
    if (number == 3 || number == 5) // kept as it was drawn
        p = pipeline_cache(pipeline_augment(p));
    if (number == 4)
        p = pipeline_prefetch(p, 3);
    p = pipeline_shuffle(p, 9);
    if (number > 3)
        p = pipeline_repeat(p);
    p = pipeline_batch(pipeline_augment(p), 8, number == 3);
    return batches_from(number == 4 || number == 2 ? pipeline_prefetch(p, 2) : p);
}
enum { KINDS = 6, STEPS = 5 };

// The pixels of so many batches, from the current place; every fifth begins a stretch of five.
static void take_pixels(Batches *batches, int from, int steps, float *pixels)
{
    for (int step = from; step < from + steps; step++) {
        if (step % STEPS == 0)
            batches_begin(batches, STEPS);
        Batch batch = batches_next(batches);
        ck_assert_int_eq(batch.count, 8);
        memcpy(pixels, batch.images, 16 * sizeof *pixels);
        pixels += 16;
    }
}

START_TEST(batches_go_on_from_any_place)
{
    Dataset dataset = numbered_images(47);
    for (int number = 0; number < KINDS; number++)
        for (int left = 0; left <= 3 * STEPS; left += number % 2 ? 1 : 4) {
            float all[4 * STEPS][16], after[4 * STEPS][16];
            set_seed(7);
            Batches *first = kind(number, &dataset), *second = kind(number, &dataset);
            take_pixels(first, 0, left, all[0]);
            char *position = batches_position(first);
            take_pixels(first, left, 4 * STEPS - left, all[left]);
            ck_assert(batches_have_position(second, position));
            ck_assert(batches_go_to(second, position));
            take_pixels(second, left, 4 * STEPS - left, after[left]);
            ck_assert_msg(memcmp(all[left], after[left], (size_t)(4 * STEPS - left) * 64) == 0,
                          "kind %d, from step %d", number, left);
            free(position);
            batches_free(first);
            batches_free(second);
        }
    dataset_free(&dataset);
}
END_TEST

START_TEST(a_position_of_other_batches_is_none)
{
    Dataset dataset = numbered_images(47), fewer = numbered_images(46);
    Batches *other = kind(1, &fewer);
    char *positions[] = {batches_position(kind(1, &dataset)),
                         batches_position(kind(2, &dataset)),
                         format_text("1 0 5 6 6 46 1 1 1 1 from_dataset,batch 8,repeat,prefetch"),
                         format_text("1 0"),
                         format_text("%s", ""),
                         format_text("-1 0 0 0 0 46 ")};
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        ck_assert(!batches_have_position(other, positions[i]));
        ck_assert(!batches_go_to(other, positions[i]));
        free(positions[i]);
    }
    batches_free(other);
    dataset_free(&dataset);
    dataset_free(&fewer);
}
END_TEST

// What has been drawn does not come again: the next permutation is not the first one.
START_TEST(batches_that_begin_again_go_on_counting)
{
    Dataset dataset = numbered_images(47);
    for (int number = 0; number < KINDS; number++) {
        float pixels[STEPS][16];
        Batches *batches = kind(number, &dataset);
        batches_begin_after(batches, "6 and more");
        take_pixels(batches, 0, STEPS, pixels[0]);
        char *position = batches_position(batches);
        ck_assert_int_eq(strncmp(position, "7 ", 2), 0);
        free(position);
        batches_free(batches);
    }
    dataset_free(&dataset);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batches");
    add_order_tests(suite);
    add_randomness_tests(suite);
    TCase *places = tcase_create("places");
    tcase_add_test(places, batches_go_on_from_any_place);
    tcase_add_test(places, a_position_of_other_batches_is_none);
    tcase_add_test(places, batches_that_begin_again_go_on_counting);
    suite_add_tcase(suite, places);
    return run_suite(suite);
}
