// What dataset.h promises of images: the real ones are those that are known, statistics are right,
// and the synthetic ones can be learned. How files are read is in test_dataset.c.

#include <math.h>
#include <string.h>

#include "child.h"
#include "data/dataset.h"
#include "base/rng.h"
#include "base/memory.h"

// -- The real Fashion-MNIST -----------------------------------------------------------------------

#define FASHION_FOLDER "/usr/share/datasets/fashion-mnist"

static void assert_balanced(const Dataset *dataset)
{
    int counts[10] = {0};
    for (int i = 0; i < dataset->count; i++)
        counts[dataset->labels[i]]++;
    for (int label = 0; label < 10; label++)
        ck_assert_int_eq(counts[label], dataset->count / 10);
}

START_TEST(fashion_mnist_is_what_it_is_known_to_be)
{
    if (access(FASHION_FOLDER, F_OK) != 0) {
        printf("skipped: no " FASHION_FOLDER " (apt install dataset-fashion-mnist)\n");
        return;
    }
    Args args = {.data = DATA_FASHION_MNIST};
    Dataset train = load_data(&args, TRAIN), test = load_data(&args, TEST);
    ck_assert_int_eq(train.count, 60000);
    ck_assert_int_eq(test.count, 10000);
    assert_balanced(&train);
    assert_balanced(&test);
    Statistics statistics = image_statistics(&train);
    ck_assert_float_eq_tol(statistics.mean[0], 72.94f, 0.005f);
    ck_assert_float_eq_tol(statistics.std[0], 90.02f, 0.005f);
    dataset_free(&train);
    dataset_free(&test);
}
END_TEST

// -- Statistics -----------------------------------------------------------------------------------

START_TEST(statistics_are_those_of_each_channel)
{
    uint8_t pixels[] = {10, 0, 255, 30, 0, 255}; // two pixels of three channels
    Dataset dataset = {.images = pixels, .count = 2, .height = 1, .width = 1, .channels = 3};
    Statistics statistics = image_statistics(&dataset);
    ck_assert_float_eq(statistics.mean[0], 20);
    ck_assert_float_eq(statistics.std[0], 10); // of the population, not of a sample
    ck_assert_float_eq(statistics.mean[1], 0);
    ck_assert_float_eq(statistics.std[1], 0);
    ck_assert_float_eq(statistics.mean[2], 255);
    ck_assert_float_eq(statistics.std[2], 0);
}
END_TEST

// -- Parts of a data set --------------------------------------------------------------------------

// Eleven images of one row of two pixels in three channels; image i has label i, and bytes 16 i,
// 16 i + 1, ...
enum { PART_IMAGES = 11, PART_BYTES = 6 };

static Dataset countable_images(void)
{
    Dataset dataset = {.images = allocate(PART_IMAGES, PART_BYTES),
                       .labels = allocate(PART_IMAGES, 1),
                       .count = PART_IMAGES,
                       .height = 1,
                       .width = 2,
                       .channels = 3,
                       .classes = PART_IMAGES};
    for (int i = 0; i < PART_IMAGES; i++) {
        dataset.labels[i] = (uint8_t)i;
        for (int b = 0; b < PART_BYTES; b++)
            dataset.images[i * PART_BYTES + b] = (uint8_t)(16 * i + b);
    }
    return dataset;
}

static void assert_images(const Dataset *dataset, const int *numbers, int count)
{
    ck_assert_int_eq(dataset->count, count);
    ck_assert_int_eq(dataset->height, 1);
    ck_assert_int_eq(dataset->width, 2);
    ck_assert_int_eq(dataset->channels, 3);
    ck_assert_int_eq(dataset->classes, PART_IMAGES);
    for (int i = 0; i < count; i++) {
        ck_assert_int_eq(dataset->labels[i], numbers[i]);
        for (int b = 0; b < PART_BYTES; b++)
            ck_assert_int_eq(dataset->images[i * PART_BYTES + b], (uint8_t)(16 * numbers[i] + b));
    }
}

START_TEST(selected_images_are_those_in_the_list_in_its_order)
{
    const int numbers[] = {10, 0, 3, 3, 7};
    Dataset all = countable_images();
    Dataset some = dataset_select(&all, numbers, 5), none = dataset_select(&all, NULL, 0);
    dataset_free(&all); // what was selected is its own
    assert_images(&some, numbers, 5);
    assert_images(&none, NULL, 0);
    dataset_free(&some);
    dataset_free(&none);
}
END_TEST

static void assert_dies(void (*body)(const void *), const void *argument, const char *line)
{
    Outcome outcome = run_in_child(body, argument);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_msg(strstr(outcome.err, line) != NULL, "%s", outcome.err);
}

static void select_one(const void *number)
{
    Dataset all = countable_images();
    (void)dataset_select(&all, number, 1).count;
}

static void select_minus_one(const void *number)
{
    Dataset all = countable_images();
    (void)dataset_select(&all, number, -1).count;
}

START_TEST(images_that_are_not_there_cannot_be_selected)
{
    assert_dies(select_one, &(int){-1}, "there is no image -1");
    assert_dies(select_one, &(int){PART_IMAGES},
                "there is no image 11 (number 1 of 1 in the list): the data set's are 0 to 10");
    assert_dies(select_minus_one, &(int){0}, "-1 images");
}
END_TEST

// Three images from this number on.
static void take_three(const void *first)
{
    Dataset all = countable_images();
    (void)dataset_range(&all, *(const int *)first, 3).count;
}

START_TEST(a_range_is_some_images_in_a_row)
{
    Dataset all = countable_images(), range = dataset_range(&all, 8, 3);
    dataset_free(&all);
    assert_images(&range, (const int[]){8, 9, 10}, 3);
    dataset_free(&range);
    assert_dies(take_three, &(int){9}, "3 images from number 9 on: the data set has 11");
    assert_dies(take_three, &(int){-1}, "3 images from number -1 on");
}
END_TEST

START_TEST(shares_are_every_nth_image)
{
    const int of_three[3][4] = {{0, 3, 6, 9}, {1, 4, 7, 10}, {2, 5, 8}};
    Dataset all = countable_images();
    for (int index = 0; index < 3; index++) {
        Dataset share = shard_dataset(&all, index, 3);
        assert_images(&share, of_three[index], index < 2 ? 4 : 3);
        dataset_free(&share);
    }
    Dataset last = shard_dataset(&all, 11, 12); // more workers than images
    assert_images(&last, NULL, 0);
    dataset_free(&last);
    dataset_free(&all);
}
END_TEST

static void share(const void *index)
{
    Dataset all = countable_images();
    (void)shard_dataset(&all, *(const int *)index, 3).count;
}

START_TEST(shares_that_are_not_there_are_refused)
{
    assert_dies(share, &(int){3}, "there is no share 3 of 3");
    assert_dies(share, &(int){-1}, "there is no share -1 of 3");
}
END_TEST

// -- Synthetic images -----------------------------------------------------------------------------

enum { SIDE = 28, PIXELS = SIDE * SIDE };

START_TEST(images_by_class_keep_their_order_within_each)
{
    Dataset all = synthetic_data(TEST, 3, 200);
    for (int i = 0; i < all.count; i++)
        all.images[(size_t)i * 784] = (uint8_t)i; // its number
    Dataset sorted = dataset_by_class(&all);
    ck_assert_int_eq(sorted.count, 200);
    bool seen[200] = {false};
    for (int i = 0; i < 200; i++) {
        int number = sorted.images[(size_t)i * 784],
            last = i ? sorted.images[(size_t)(i - 1) * 784] : 0;
        ck_assert(!seen[number]);
        seen[number] = true;
        ck_assert_int_eq(sorted.labels[i], all.labels[number]);
        ck_assert(i == 0 || sorted.labels[i - 1] < sorted.labels[i] ||
                  (sorted.labels[i - 1] == sorted.labels[i] && last < number));
    }
    dataset_free(&sorted);
    dataset_free(&all);
}
END_TEST

START_TEST(synthetic_sets_have_the_promised_size)
{
    Dataset train = synthetic_data(TRAIN, 1, 0), test = synthetic_data(TEST, 1, 0);
    ck_assert_int_eq(train.count, 6000);
    ck_assert_int_eq(test.count, 1000);
    ck_assert_int_eq(train.height, SIDE);
    ck_assert_int_eq(train.width, SIDE);
    ck_assert_int_eq(train.channels, 1);
    assert_balanced(&train);
    assert_balanced(&test);
    dataset_free(&train);
    dataset_free(&test);
}
END_TEST

// So that --images keeps some of each class.
START_TEST(synthetic_classes_are_mixed)
{
    Dataset train = synthetic_data(TRAIN, 1, 0);
    int counts[10] = {0};
    for (int i = 0; i < 200; i++)
        counts[train.labels[i]]++;
    for (int label = 0; label < 10; label++)
        ck_assert_int_ge(counts[label], 5);
    dataset_free(&train);
}
END_TEST

static bool same_images(const Dataset *a, const Dataset *b, int count)
{
    return memcmp(a->images, b->images, (size_t)count * PIXELS) == 0;
}

START_TEST(synthetic_data_are_a_function_of_the_seed)
{
    Dataset one = synthetic_data(TRAIN, 1, 0), again = synthetic_data(TRAIN, 1, 0);
    Dataset other = synthetic_data(TRAIN, 2, 0), test = synthetic_data(TEST, 1, 0);
    ck_assert(same_images(&one, &again, 6000));
    ck_assert_mem_eq(one.labels, again.labels, 6000);
    ck_assert(!same_images(&one, &other, 1));
    ck_assert(!same_images(&one, &test, 1));
    dataset_free(&one);
    dataset_free(&again);
    dataset_free(&other);
    dataset_free(&test);
}
END_TEST

static Dataset load_synthetic(const char *rank, bool seeded, uint64_t seed)
{
    setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    settings()->seeded = seeded;
    settings()->seed = seed;
    seed_process(seed); // as parse_args does
    return load_data(&(Args){.data = DATA_SYNTHETIC, .images = 10}, TRAIN);
}

START_TEST(synthetic_data_follow_the_seed_but_not_the_rank)
{
    Dataset rank_0 = load_synthetic("0", true, 5), rank_1 = load_synthetic("1", true, 5);
    Dataset other = load_synthetic("0", true, 6), unseeded = load_synthetic("1", false, 0);
    Dataset expected = synthetic_data(TRAIN, 5, 0), unseeded_again = load_synthetic("0", false, 7);
    ck_assert_int_eq(rank_0.count, 10);
    ck_assert(same_images(&rank_0, &expected, 10));
    ck_assert(same_images(&rank_0, &rank_1, 10));
    ck_assert(!same_images(&rank_0, &other, 10));
    ck_assert(same_images(&unseeded, &unseeded_again, 10));
    dataset_free(&rank_0);
    dataset_free(&rank_1);
    dataset_free(&other);
    dataset_free(&unseeded);
    dataset_free(&expected);
    dataset_free(&unseeded_again);
}
END_TEST

// The mean training image of each class: what a learner could take for its pattern.
typedef struct {
    float pixels[10][SIDE][SIDE];
} MeanImages;

static void average_classes(const Dataset *train, MeanImages *means)
{
    memset(means, 0, sizeof *means);
    for (int i = 0; i < train->count; i++) {
        float *mean = &means->pixels[train->labels[i]][0][0];
        for (int p = 0; p < PIXELS; p++)
            mean[p] += (float)train->images[(size_t)i * PIXELS + (size_t)p];
    }
}

// Correlation of an image with a class's mean image, one shifted against the other.
static double correlation(const uint8_t *image, const float mean[SIDE][SIDE], int dy, int dx)
{
    double n = 0, a = 0, b = 0, aa = 0, bb = 0, ab = 0;
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            if (y + dy < 0 || y + dy >= SIDE || x + dx < 0 || x + dx >= SIDE)
                continue;
            double u = image[y * SIDE + x], v = mean[y + dy][x + dx];
            n++;
            a += u;
            b += v;
            aa += u * u;
            bb += v * v;
            ab += u * v;
        }
    }
    return (ab - a * b / n) / sqrt((aa - a * a / n) * (bb - b * b / n));
}

// The class whose mean image fits best, when shifts of up to `reach` pixels are tried.
static int classify(const uint8_t *image, const MeanImages *means, int reach)
{
    int best = -1;
    double highest = -1;
    for (int label = 0; label < 10; label++) {
        for (int dy = -reach; dy <= reach; dy++) {
            for (int dx = -reach; dx <= reach; dx++) {
                double fit = correlation(image, means->pixels[label], dy, dx);
                if (fit > highest) {
                    highest = fit;
                    best = label;
                }
            }
        }
    }
    return best;
}

// A flip and a shift of 5 pixels with repeated edges: the most that training does to an image.
static void flip_and_shift(const uint8_t *from, uint8_t *to, int dy, int dx)
{
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            int source_y = y + dy < 0 ? 0 : y + dy >= SIDE ? SIDE - 1 : y + dy;
            int source_x = x + dx < 0 ? 0 : x + dx >= SIDE ? SIDE - 1 : x + dx;
            to[y * SIDE + SIDE - 1 - x] = from[source_y * SIDE + source_x];
        }
    }
}

// The share of the first test images that a nearest-mean classifier gets right.
static double nearest_mean_accuracy(uint64_t seed, bool augmented, int reach)
{
    const int tried = 100;
    Dataset train = synthetic_data(TRAIN, seed, 0), test = synthetic_data(TEST, seed, 0);
    MeanImages *means = allocate(1, sizeof *means);
    average_classes(&train, means);
    int right = 0;
    for (int i = 0; i < tried; i++) {
        const uint8_t *image = test.images + (size_t)i * PIXELS;
        uint8_t moved[PIXELS];
        if (augmented) {
            flip_and_shift(image, moved, i % 2 ? 5 : -5, i % 4 < 2 ? 5 : -5);
            image = moved;
        }
        right += classify(image, means, reach) == test.labels[i];
    }
    dataset_free(&train);
    dataset_free(&test);
    free(means);
    return (double)right / tried;
}

START_TEST(synthetic_classes_can_be_told_apart)
{
    ck_assert_double_ge(nearest_mean_accuracy((uint64_t)_i, false, 2), 0.9);
}
END_TEST

START_TEST(synthetic_classes_survive_the_training_augmentation)
{
    double accuracy = nearest_mean_accuracy((uint64_t)_i, true, 6);
    ck_assert_double_ge(accuracy, 0.8);
    // But it takes something that knows shifts, as a convolution does.
    ck_assert_double_le(nearest_mean_accuracy((uint64_t)_i, true, 0), accuracy - 0.1);
}
END_TEST

// -------------------------------------------------------------------------------------------------

int main(void)
{
    Suite *suite = suite_create("images");

    TCase *images = tcase_create("images");
    tcase_set_timeout(images, 60);
    tcase_add_test(images, fashion_mnist_is_what_it_is_known_to_be);
    tcase_add_test(images, statistics_are_those_of_each_channel);
    tcase_add_test(images, selected_images_are_those_in_the_list_in_its_order);
    tcase_add_test(images, images_that_are_not_there_cannot_be_selected);
    tcase_add_test(images, a_range_is_some_images_in_a_row);
    tcase_add_test(images, shares_are_every_nth_image);
    tcase_add_test(images, shares_that_are_not_there_are_refused);
    tcase_add_test(images, images_by_class_keep_their_order_within_each);
    tcase_add_test(images, synthetic_sets_have_the_promised_size);
    tcase_add_test(images, synthetic_classes_are_mixed);
    tcase_add_test(images, synthetic_data_are_a_function_of_the_seed);
    tcase_add_test(images, synthetic_data_follow_the_seed_but_not_the_rank);
    tcase_add_loop_test(images, synthetic_classes_can_be_told_apart, 0, 3);
    tcase_add_loop_test(images, synthetic_classes_survive_the_training_augmentation, 0, 3);
    suite_add_tcase(suite, images);

    return run_suite(suite);
}
