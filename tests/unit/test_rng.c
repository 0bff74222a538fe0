// What common/base/rng.h promises: which streams are alike and which are not, and how numbers are
// spread. Every test of a distribution has a fixed seed, so that it passes always or never.

#include <math.h>
#include <pthread.h>
#include <stdbool.h>

#include "child.h"
#include "base/rng.h"

static void set_rank(const char *rank)
{
    setenv("OMPI_COMM_WORLD_RANK", rank, 1);
}

static uint64_t first_of(RngPurpose purpose, uint64_t index)
{
    Rng rng = rng_stream(purpose, index);
    return rng_next(&rng);
}

START_TEST(the_generator_is_splitmix64)
{
    // The first numbers of the published generator for the states 0 and 1234567.
    Rng zero = {0}, other = {1234567};
    ck_assert_uint_eq(rng_next(&zero), 0xe220a8397b1dcdafu);
    ck_assert_uint_eq(rng_next(&zero), 0x6e789e6aa1b965f4u);
    ck_assert_uint_eq(rng_next(&zero), 0x06c45d188009454fu);
    ck_assert_uint_eq(rng_next(&other), 6457827717110365317u);
    ck_assert_uint_eq(rng_next(&other), 3203168211198807973u);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_stream)
{
    seed_process(42);
    uint64_t before = first_of(RNG_WEIGHTS, 7);
    seed_process(43);
    ck_assert_uint_ne(first_of(RNG_WEIGHTS, 7), before);
    seed_process(42);
    ck_assert_uint_eq(first_of(RNG_WEIGHTS, 7), before);
}
END_TEST

START_TEST(a_stream_does_not_depend_on_the_use_of_others)
{
    seed_process(1);
    uint64_t before = first_of(RNG_DROPOUT, 3);
    Rng other = rng_stream(RNG_DROPOUT, 2);
    for (int i = 0; i < 1000; i++)
        rng_next(&other);
    ck_assert_uint_eq(first_of(RNG_DROPOUT, 3), before);
}
END_TEST

static void *draw_in_thread(void *result)
{
    *(uint64_t *)result = first_of(RNG_AUGMENTATION, 5);
    return NULL;
}

START_TEST(a_stream_does_not_depend_on_the_thread)
{
    // This process has no seed of its own yet: the threads race for its own seed too.
    pthread_t threads[8];
    uint64_t results[8];
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, draw_in_thread, &results[i]), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(results[i], first_of(RNG_AUGMENTATION, 5));
    }
}
END_TEST

START_TEST(seeded_ranks_differ)
{
    set_rank("0");
    seed_process(42);
    uint64_t root = first_of(RNG_WEIGHTS, 0);
    set_rank("1");
    seed_process(42);
    ck_assert_uint_ne(first_of(RNG_WEIGHTS, 0), root);
}
END_TEST

START_TEST(rank_0_draws_what_a_single_process_draws)
{
    unsetenv("OMPI_COMM_WORLD_RANK");
    seed_process(42);
    uint64_t alone = first_of(RNG_PERMUTATION, 1);
    set_rank("0");
    seed_process(42);
    ck_assert_uint_eq(first_of(RNG_PERMUTATION, 1), alone);
}
END_TEST

START_TEST(set_seed_makes_ranks_alike)
{
    set_rank("0");
    set_seed(42);
    uint64_t root = first_of(RNG_WEIGHTS, 0);
    set_rank("1");
    set_seed(42);
    ck_assert_uint_eq(first_of(RNG_WEIGHTS, 0), root);
}
END_TEST

START_TEST(rng_stream_of_is_the_same_on_every_rank)
{
    set_rank("0");
    seed_process(1);
    Rng root = rng_stream_of(42, RNG_SYNTHETIC_DATA, 3);
    set_rank("1");
    seed_process(2);
    Rng other = rng_stream_of(42, RNG_SYNTHETIC_DATA, 3);
    ck_assert_uint_eq(rng_next(&root), rng_next(&other));
}
END_TEST

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

START_TEST(neighbouring_keys_give_unrelated_streams)
{
    // 8 seeds x 8 ranks x 5 purposes x 8 indices, 4 numbers each: no number comes twice.
    static uint64_t seen[8 * 8 * 5 * 8 * 4];
    size_t count = 0;
    for (uint64_t seed = 0; seed < 8; seed++)
        for (char rank = '0'; rank < '8'; rank++) {
            set_rank((char[]){rank, '\0'});
            seed_process(seed);
            for (int key = 0; key < 5 * 8; key++) {
                Rng rng = rng_stream((RngPurpose)(key / 8), (uint64_t)key % 8);
                for (int i = 0; i < 4; i++)
                    seen[count++] = rng_next(&rng);
            }
        }
    qsort(seen, count, sizeof seen[0], compare);
    for (size_t i = 1; i < count; i++)
        ck_assert_uint_ne(seen[i - 1], seen[i]);
}
END_TEST

START_TEST(first_numbers_of_successive_streams_are_uniform)
{
    // One stream per image is how augmentation draws: the numbers across streams count.
    const int streams = 100000;
    double sum = 0, product = 0, last = 0;
    seed_process(5);
    for (int i = 0; i < streams; i++) {
        Rng rng = rng_stream(RNG_AUGMENTATION, (uint64_t)i);
        double centred = (double)rng_uniform(&rng) - 0.5;
        sum += centred;
        product += centred * last;
        last = centred;
    }
    ck_assert_double_lt(fabs(sum / streams), 0.004);                // 4 sigma
    ck_assert_double_lt(fabs(product / streams), 4 * 0.0833 / 316); // 4 sigma
}
END_TEST

static void print_first(const void *unused)
{
    (void)unused;
    printf("%llu", (unsigned long long)first_of(RNG_WEIGHTS, 0));
}

START_TEST(unseeded_processes_differ)
{
    Outcome first = run_in_child(print_first, NULL), second = run_in_child(print_first, NULL);
    ck_assert_str_ne(first.out, "");
    ck_assert_str_ne(first.out, second.out);
}
END_TEST

START_TEST(an_unseeded_process_repeats_its_own_streams)
{
    ck_assert_uint_eq(first_of(RNG_WEIGHTS, 0), first_of(RNG_WEIGHTS, 0));
    ck_assert_uint_ne(first_of(RNG_WEIGHTS, 0), first_of(RNG_WEIGHTS, 1));
}
END_TEST

START_TEST(uniform_lies_in_0_to_1_with_mean_one_half)
{
    const int draws = 1000000;
    Rng rng = {1};
    double sum = 0, squares = 0;
    for (int i = 0; i < draws; i++) {
        float value = rng_uniform(&rng);
        ck_assert(value >= 0 && value < 1);
        sum += (double)value;
        squares += (double)value * (double)value;
    }
    double mean = sum / draws;
    ck_assert_double_eq_tol(mean, 0.5, 0.0012); // 4 sigma
    ck_assert_double_eq_tol(squares / draws - mean * mean, 1 / 12., 0.0005);
}
END_TEST

// The state from which rng_next gives `number`: SplitMix64's finalizer backwards.
static Rng state_before(uint64_t number)
{
    number = (number ^ (number >> 31) ^ (number >> 62)) * 0x319642b2d24d8ec3u;
    number = (number ^ (number >> 27) ^ (number >> 54)) * 0x96de1b173f119089u;
    number = number ^ (number >> 30) ^ (number >> 60);
    return (Rng){number - 0x9e3779b97f4a7c15u};
}

START_TEST(extreme_bits_stay_in_range)
{
    Rng ones = state_before(UINT64_MAX), zeros = state_before(0);
    Rng copy = ones;
    ck_assert_uint_eq(rng_next(&copy), UINT64_MAX);
    ck_assert_float_lt(rng_uniform(&ones), 1);
    ck_assert_float_eq(rng_uniform(&zeros), 0);
    zeros = state_before(0);
    ck_assert_float_finite(rng_normal(&zeros)); // the logarithm of 0 lurks here
    ones = state_before(UINT64_MAX);
    ck_assert_float_finite(rng_normal(&ones));
}
END_TEST

START_TEST(normal_has_mean_0_and_variance_1_and_tails)
{
    const int draws = 1000000;
    Rng rng = {2};
    double sum = 0, squares = 0, fourths = 0;
    int beyond_2 = 0;
    for (int i = 0; i < draws; i++) {
        double value = (double)rng_normal(&rng);
        sum += value;
        squares += value * value;
        fourths += value * value * value * value;
        beyond_2 += fabs(value) > 2;
    }
    ck_assert_double_eq_tol(sum / draws, 0, 0.004);                    // 4 sigma
    ck_assert_double_eq_tol(squares / draws, 1, 0.006);                // 4 sigma
    ck_assert_double_eq_tol(fourths / draws, 3, 0.04);                 // 4 sigma
    ck_assert_double_eq_tol(beyond_2 / (double)draws, 0.0455, 0.0009); // 4 sigma
}
END_TEST

// Chi-square of `cells` counts that should all be alike.
static double chi_square(const int *counts, int cells, int draws)
{
    double expected = (double)draws / cells, sum = 0;
    for (int i = 0; i < cells; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return sum;
}

START_TEST(below_is_uniform)
{
    enum { LIMIT = 10, DRAWS = 100000 };
    int counts[LIMIT] = {0};
    Rng rng = {3};
    for (int i = 0; i < DRAWS; i++) {
        uint32_t value = rng_below(&rng, LIMIT);
        ck_assert_uint_lt(value, LIMIT);
        counts[value]++;
    }
    ck_assert_double_lt(chi_square(counts, LIMIT, DRAWS), 27.9); // p = 0.001 with 9 degrees
}
END_TEST

START_TEST(below_has_no_bias_even_for_large_limits)
{
    // Without rejection, every third number of this range would come twice as often.
    const uint32_t limit = 0xc0000000u;
    int counts[3] = {0};
    Rng rng = {4};
    for (int i = 0; i < 100000; i++) {
        uint32_t value = rng_below(&rng, limit);
        ck_assert_uint_lt(value, limit);
        counts[value % 3]++;
    }
    ck_assert_double_lt(chi_square(counts, 3, 100000), 13.8); // p = 0.001 with 2 degrees
}
END_TEST

START_TEST(below_1_is_0)
{
    Rng rng = {5};
    for (int i = 0; i < 100; i++)
        ck_assert_uint_eq(rng_below(&rng, 1), 0);
}
END_TEST

START_TEST(a_permutation_holds_every_number_once)
{
    enum { MAX_COUNT = 1000 };
    uint32_t order[MAX_COUNT];
    Rng rng = {6};
    for (uint32_t count = 0; count <= MAX_COUNT; count += 37) {
        bool seen[MAX_COUNT] = {false};
        rng_permutation(&rng, order, count);
        for (uint32_t i = 0; i < count; i++) {
            ck_assert_uint_lt(order[i], count);
            ck_assert(!seen[order[i]]);
            seen[order[i]] = true;
        }
    }
}
END_TEST

START_TEST(all_permutations_are_equally_likely)
{
    enum { DRAWS = 60000 };
    int counts[27] = {0};
    Rng rng = {7};
    for (int i = 0; i < DRAWS; i++) {
        uint32_t order[3];
        rng_permutation(&rng, order, 3);
        counts[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    int permutations[6], found = 0;
    for (int i = 0; i < 27; i++)
        if (counts[i] > 0)
            permutations[found++] = counts[i];
    ck_assert_int_eq(found, 6);
    ck_assert_double_lt(chi_square(permutations, 6, DRAWS), 20.5); // p = 0.001 with 5 degrees
}
END_TEST

int main(void)
{
    unsetenv("OMPI_COMM_WORLD_RANK");
    Suite *suite = suite_create("rng");

    TCase *streams = tcase_create("streams");
    tcase_add_test(streams, the_generator_is_splitmix64);
    tcase_add_test(streams, the_same_seed_gives_the_same_stream);
    tcase_add_test(streams, a_stream_does_not_depend_on_the_use_of_others);
    tcase_add_test(streams, a_stream_does_not_depend_on_the_thread);
    tcase_add_test(streams, seeded_ranks_differ);
    tcase_add_test(streams, rank_0_draws_what_a_single_process_draws);
    tcase_add_test(streams, set_seed_makes_ranks_alike);
    tcase_add_test(streams, rng_stream_of_is_the_same_on_every_rank);
    tcase_add_test(streams, neighbouring_keys_give_unrelated_streams);
    tcase_add_test(streams, first_numbers_of_successive_streams_are_uniform);
    tcase_add_test(streams, unseeded_processes_differ);
    tcase_add_test(streams, an_unseeded_process_repeats_its_own_streams);
    suite_add_tcase(suite, streams);

    TCase *numbers = tcase_create("numbers");
    tcase_add_test(numbers, uniform_lies_in_0_to_1_with_mean_one_half);
    tcase_add_test(numbers, extreme_bits_stay_in_range);
    tcase_add_test(numbers, normal_has_mean_0_and_variance_1_and_tails);
    tcase_add_test(numbers, below_is_uniform);
    tcase_add_test(numbers, below_has_no_bias_even_for_large_limits);
    tcase_add_test(numbers, below_1_is_0);
    tcase_add_test(numbers, a_permutation_holds_every_number_once);
    tcase_add_test(numbers, all_permutations_are_equally_likely);
    suite_add_tcase(suite, numbers);

    return run_suite(suite);
}
