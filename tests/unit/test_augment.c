// What augment.h promises of one image: what augmentation does to it, and what it draws at random.
// Which images come in which order is in test_batches.c.

#include <math.h>

#include "data/augment.h"
#include "data/batches.h"
#include "child.h"
#include "base/rng.h"
#include "base/memory.h"

// With these a byte's standardised value is the byte itself, but for rounding.
static const Statistics unchanged = {.std = {1, 1, 1, 1}};

// -- One image ------------------------------------------------------------------------------------

// Shifts a 2 x 4 image, by hand; `expected` is as exact as floats are.
static void assert_shifted(float shift_y, float shift_x, bool flip, const float expected[8])
{
    static const uint8_t image[8] = {10, 20, 40, 80, 50, 60, 80, 120};
    float out[8];
    augment_image(image, 2, 4, 1, unchanged, shift_y, shift_x, flip, out);
    for (int i = 0; i < 8; i++)
        ck_assert_msg(fabsf(out[i] - expected[i]) < 1e-3f, "shift %g, %g: pixel %d is %g, not %g",
                      (double)shift_y, (double)shift_x, i, (double)out[i], (double)expected[i]);
}

START_TEST(zero_shift_is_exactly_the_standardised_image)
{
    uint8_t image[3 * 256];
    float out[3 * 256];
    Statistics statistics = {.mean = {72.94035f, 100.7f, 3}, .std = {90.02118f, 0.1f, 0}};
    for (int i = 0; i < 3 * 256; i++)
        image[i] = (uint8_t)(i / 3);
    augment_image(image, 16, 16, 3, statistics, 0, 0, false, out);
    for (int i = 0; i < 3 * 256; i++) {
        float std = statistics.std[i % 3] + 1e-6f;
        ck_assert(out[i] == ((float)(i / 3) - statistics.mean[i % 3]) / std);
    }
}
END_TEST

START_TEST(plain_batches_are_exactly_the_standardised_images)
{
    settings()->shuffle = false;
    Dataset dataset = synthetic_data(TEST, 1, 0);
    Statistics statistics = image_statistics(&dataset);
    Batches *batches = plain_batches(&dataset, statistics, 10);
    batches_begin(batches, 1);
    Batch batch = batches_next(batches);
    for (int i = 0; i < 10 * 28 * 28; i++) {
        float value = (float)dataset.images[i];
        ck_assert(batch.images[i] == (value - statistics.mean[0]) / (statistics.std[0] + 1e-6f));
    }
    batches_free(batches);
    dataset_free(&dataset);
}
END_TEST

START_TEST(whole_shift_moves_pixels_and_repeats_the_edge)
{
    assert_shifted(0, 1, false, (float[]){20, 40, 80, 80, 60, 80, 120, 120});
    assert_shifted(0, -2, false, (float[]){10, 10, 10, 20, 50, 50, 50, 60});
    assert_shifted(1, 0, false, (float[]){50, 60, 80, 120, 50, 60, 80, 120});
    assert_shifted(-1, 0, false, (float[]){10, 20, 40, 80, 10, 20, 40, 80});
}
END_TEST

START_TEST(half_a_pixel_is_the_mean_of_two)
{
    assert_shifted(0, 0.5f, false, (float[]){15, 30, 60, 80, 55, 70, 100, 120});
    assert_shifted(0, -0.5f, false, (float[]){10, 15, 30, 60, 50, 55, 70, 100});
    assert_shifted(0.5f, 0, false, (float[]){30, 40, 60, 100, 50, 60, 80, 120});
    assert_shifted(-0.5f, 0, false, (float[]){10, 20, 40, 80, 30, 40, 60, 100});
    assert_shifted(0.5f, 0.5f, false, (float[]){35, 50, 80, 100, 55, 70, 100, 120});
}
END_TEST

START_TEST(fraction_weighs_the_two_neighbours)
{
    assert_shifted(0, 1.25f, false, (float[]){25, 50, 80, 80, 65, 90, 120, 120});
    assert_shifted(0, -0.25f, false, (float[]){10, 17.5f, 35, 70, 50, 57.5f, 75, 110});
}
END_TEST

START_TEST(flip_comes_after_the_shift)
{
    assert_shifted(0, 0, true, (float[]){80, 40, 20, 10, 120, 80, 60, 50});
    assert_shifted(0, 1, true, (float[]){80, 80, 40, 20, 120, 120, 80, 60});
    assert_shifted(-0.5f, 0.25f, true, (float[]){80, 50, 25, 12.5f, 100, 70, 45, 32.5f});
}
END_TEST

START_TEST(far_shift_shows_the_edge_alone)
{
    const float right[8] = {80, 80, 80, 80, 120, 120, 120, 120};
    const float left[8] = {10, 10, 10, 10, 50, 50, 50, 50};
    assert_shifted(0, 4, false, right);
    assert_shifted(0, 7.3f, false, right);
    assert_shifted(0, 1e30f, false, right);
    assert_shifted(0, -4, false, left);
    assert_shifted(0, -1e30f, false, left);
    assert_shifted(1e30f, 0, false, (float[]){50, 60, 80, 120, 50, 60, 80, 120});
}
END_TEST

START_TEST(channels_stay_apart)
{
    static const uint8_t image[6] = {0, 100, 200, 10, 120, 240}; // two pixels of three channels
    float out[6];
    augment_image(image, 1, 2, 3, unchanged, 0, 0.5f, true, out);
    const float expected[6] = {10, 120, 240, 5, 110, 220};
    for (int i = 0; i < 6; i++)
        ck_assert_float_eq_tol(out[i], expected[i], 1e-3f);
}
END_TEST

// -- What augmentation draws ----------------------------------------------------------------------

// An image whose pixels say where they are: channel 0 grows along the rows, channel 1 down the
// columns, 6 per pixel.
static Dataset probe_images(int count, int height, int width)
{
    size_t bytes = (size_t)height * (size_t)width * 2;
    Dataset dataset = {.count = count, .height = height, .width = width, .channels = 2};
    dataset.images = allocate((size_t)count, bytes);
    dataset.labels = allocate((size_t)count, 1);
    for (int i = 0; i < count; i++) {
        uint8_t *pixel = dataset.images + (size_t)i * bytes;
        for (int y = 0; y < height; y++) {
            for (int x = 0; x < width; x++) {
                *pixel++ = (uint8_t)(6 * x);
                *pixel++ = (uint8_t)(6 * y);
            }
        }
    }
    return dataset;
}

typedef struct {
    double y, x; // in pixels
    bool flip;
} Drawn;

// Reads off a probe image what was done to it, around the middle, where no edge is in sight.
static Drawn read_probe(const float *image, int height, int width)
{
    int y = height / 2, x = width / 2;
    const float *pixel = image + 2 * (y * width + x);
    Drawn drawn = {.flip = pixel[2] < pixel[0]};
    drawn.x = (double)pixel[0] / 6 - (drawn.flip ? width - 1 - x : x);
    drawn.y = (double)pixel[1] / 6 - y;
    return drawn;
}

enum { DRAWS = 20000, DRAW_HEIGHT = 20, DRAW_WIDTH = 40 };

static void draw_probes(Drawn *drawn)
{
    set_seed(1);
    Dataset dataset = probe_images(100, DRAW_HEIGHT, DRAW_WIDTH);
    Batches *batches = augmented_batches(&dataset, unchanged, 100);
    batches_begin(batches, DRAWS / 100);
    for (int step = 0; step < DRAWS / 100; step++) {
        Batch batch = batches_next(batches);
        for (size_t i = 0; i < 100; i++)
            *drawn++ = read_probe(batch.images + i * DRAW_HEIGHT * DRAW_WIDTH * 2, DRAW_HEIGHT,
                                  DRAW_WIDTH);
    }
    batches_free(batches);
    dataset_free(&dataset);
}

// 20,000 values must look uniform in [-limit, limit]: as many in each tenth, within 5 standard
// deviations (42 of 2,000 each).
static void assert_uniform(const double *values, double limit)
{
    int tenths[10] = {0};
    double sum = 0;
    for (int i = 0; i < DRAWS; i++) {
        double share = (values[i] + limit) / (2 * limit);
        ck_assert_double_ge(share, -1e-4);
        ck_assert_double_le(share, 1 + 1e-4);
        tenths[share < 0 ? 0 : share >= 1 ? 9 : (int)(share * 10)]++;
        sum += values[i];
    }
    ck_assert_double_le(fabs(sum / (double)DRAWS), 5 * limit / sqrt(3.0 * (double)DRAWS));
    for (int i = 0; i < 10; i++)
        ck_assert_int_le(abs(tenths[i] - DRAWS / 10), 5 * 42);
}

START_TEST(shifts_are_uniform_up_to_a_fifth_of_height_and_width)
{
    static Drawn drawn[DRAWS];
    static double y[DRAWS], x[DRAWS];
    draw_probes(drawn);
    for (int i = 0; i < DRAWS; i++) {
        y[i] = drawn[i].y;
        x[i] = drawn[i].x;
    }
    assert_uniform(y, 0.2 * (double)DRAW_HEIGHT);
    assert_uniform(x, 0.2 * (double)DRAW_WIDTH);
}
END_TEST

START_TEST(half_of_the_images_are_flipped)
{
    static Drawn drawn[DRAWS];
    draw_probes(drawn);
    int flips = 0;
    for (int i = 0; i < DRAWS; i++)
        flips += drawn[i].flip;
    ck_assert_int_le(abs(flips - DRAWS / 2), 5 * 71); // 5 standard deviations
}
END_TEST

START_TEST(shift_y_shift_x_and_flip_are_independent)
{
    static Drawn drawn[DRAWS];
    draw_probes(drawn);
    double yx = 0, y_flip = 0, x_flip = 0, neighbours = 0;
    for (int i = 0; i < DRAWS; i++) {
        double y = drawn[i].y / (0.2 * (double)DRAW_HEIGHT),
               x = drawn[i].x / (0.2 * (double)DRAW_WIDTH);
        double flip = drawn[i].flip ? 1 : -1;
        yx += y * x;
        y_flip += y * flip;
        x_flip += x * flip;
        neighbours += y * drawn[(i + 1) % DRAWS].y / (0.2 * (double)DRAW_HEIGHT);
    }
    // Standard deviations of such means: 1/3 and 1/sqrt(3) over sqrt(20,000).
    ck_assert_double_le(fabs(yx / (double)DRAWS), 5 * 0.0024);
    ck_assert_double_le(fabs(neighbours / (double)DRAWS), 5 * 0.0024);
    ck_assert_double_le(fabs(y_flip / (double)DRAWS), 5 * 0.0041);
    ck_assert_double_le(fabs(x_flip / (double)DRAWS), 5 * 0.0041);
}
END_TEST

// -------------------------------------------------------------------------------------------------

int main(void)
{
    Suite *suite = suite_create("augment");

    TCase *image = tcase_create("one image");
    tcase_add_test(image, zero_shift_is_exactly_the_standardised_image);
    tcase_add_test(image, plain_batches_are_exactly_the_standardised_images);
    tcase_add_test(image, whole_shift_moves_pixels_and_repeats_the_edge);
    tcase_add_test(image, half_a_pixel_is_the_mean_of_two);
    tcase_add_test(image, fraction_weighs_the_two_neighbours);
    tcase_add_test(image, flip_comes_after_the_shift);
    tcase_add_test(image, far_shift_shows_the_edge_alone);
    tcase_add_test(image, channels_stay_apart);
    suite_add_tcase(suite, image);

    TCase *draws = tcase_create("what augmentation draws");
    tcase_set_timeout(draws, 30);
    tcase_add_test(draws, shifts_are_uniform_up_to_a_fifth_of_height_and_width);
    tcase_add_test(draws, half_of_the_images_are_flipped);
    tcase_add_test(draws, shift_y_shift_x_and_flip_are_independent);
    suite_add_tcase(suite, draws);

    return run_suite(suite);
}
