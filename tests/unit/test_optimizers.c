// Every optimizer against the formulas in optimizer.h, in double precision, over several updates:
// in an arena of segments of many lengths, with and without an L2 penalty, and gaps between them
// that no update may touch.

#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/backend.h"
#include "child.h"
#include "operation.h"
#include "rules.h"
#include "nn/optimizer.h"
#include "base/rng.h"
#include "base/memory.h"

#define UPDATES 7
#define LENGTH  2304 // floats of an arena

// In no order, and not all where a vector would like to begin.
static const Segment segments[] = {
    {.offset = 16, .length = 1},      {.offset = 32, .length = 7, .l2 = 0.02f},
    {.offset = 48, .length = 8},      {.offset = 67, .length = 9, .l2 = 0.001f},
    {.offset = 1200, .length = 1000}, {.offset = 99, .length = 1000, .l2 = 0.01f},
    {.offset = 2240, .length = 3},    {.offset = 2303, .length = 1, .l2 = 0.5f}, // the arena's last
};

// Gradients from far below the epsilons to far above, of both signs, and zeros; others each time.
static void fill_gradients(float *gradients, uint64_t update)
{
    Rng rng = rng_stream_of(1, RNG_SYNTHETIC_DATA, update);
    for (int i = 0; i < LENGTH; i++) {
        float size = powf(10, 7 * rng_uniform(&rng) - 6);
        gradients[i] = rng_below(&rng, 16) == 0 ? 0 : size * rng_normal(&rng);
    }
}

static float learning_rate(int update)
{
    return update < 4 ? 0.05f : 0.02f;
}

// Arenas in device memory, and what they begin with.
typedef struct {
    Parameters parameters;
    float weights[LENGTH];
} Arena;

static void arena_create(Arena *arena)
{
    Rng rng = rng_stream_of(2, RNG_SYNTHETIC_DATA, 0);
    for (int i = 0; i < LENGTH; i++)
        arena->weights[i] = 0.1f * rng_normal(&rng);
    arena->parameters =
        (Parameters){.device = device_current(),
                     .weights = backend()->allocate(device_current(), sizeof arena->weights),
                     .gradients = backend()->allocate(device_current(), sizeof arena->weights),
                     .length = LENGTH,
                     .segments = segments,
                     .segment_count = COUNT(segments)};
    backend()->write(device_current(), arena->parameters.weights, arena->weights,
                     sizeof arena->weights);
}

static void arena_free(Arena *arena)
{
    backend()->release(device_current(), arena->parameters.weights);
    backend()->release(device_current(), arena->parameters.gradients);
}

static void update_all(Optimizer *optimizer, const Arena *arena)
{
    float gradients[LENGTH], after[LENGTH];
    for (int update = 1; update <= UPDATES; update++) {
        fill_gradients(gradients, (uint64_t)update);
        backend()->write(device_current(), arena->parameters.gradients, gradients,
                         sizeof gradients);
        optimizer_set_learning_rate(optimizer, learning_rate(update));
        optimizer->apply(optimizer, &arena->parameters);
        backend()->read(device_current(), after, arena->parameters.gradients, sizeof after);
        ck_assert_mem_eq(after, gradients, sizeof after);
    }
    ck_assert_int_eq(optimizer->iterations, UPDATES);
}

static const Segment *segment_of(size_t i)
{
    for (size_t s = 0; s < COUNT(segments); s++)
        if (i >= segments[s].offset && i < segments[s].offset + segments[s].length)
            return &segments[s];
    return NULL;
}

static void exact_updates(Rule rule, const Arena *arena, double *weights)
{
    static Weight state[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        state[i] = (Weight){.w = (double)arena->weights[i]};
    float gradients[LENGTH];
    for (int update = 1; update <= UPDATES; update++) {
        fill_gradients(gradients, (uint64_t)update);
        for (size_t i = 0; i < LENGTH; i++) {
            const Segment *segment = segment_of(i);
            if (segment)
                rule(&state[i], (double)gradients[i] + 2 * (double)segment->l2 * state[i].w,
                     (double)learning_rate(update), update);
        }
    }
    for (int i = 0; i < LENGTH; i++)
        weights[i] = state[i].w;
}

// Each weight has moved as it should: to 1e-5 of its way, which is about as much as the epsilons
// of float lose in division and root, and to a few of its last digits.
START_TEST(an_optimizer_follows_its_formula)
{
    Arena arena;
    arena_create(&arena);
    Optimizer *optimizer = optimizer_rules[_i].create(1);
    ck_assert_float_eq(optimizer_learning_rate(optimizer), 1);
    update_all(optimizer, &arena);
    float weights[LENGTH];
    double expected[LENGTH];
    backend()->read(device_current(), weights, arena.parameters.weights, sizeof weights);
    exact_updates(optimizer_rules[_i].rule, &arena, expected);
    for (int i = 0; i < LENGTH; i++) {
        double way = fabs(expected[i] - (double)arena.weights[i]);
        double last_digits = UPDATES * (double)FLT_EPSILON * fmax(fabs(expected[i]), 0.1);
        double error = fabs((double)weights[i] - expected[i]);
        ck_assert_msg(error <= 1e-5 * way + last_digits, "%s: weight %d is %.9g instead of %.9g",
                      optimizer_rules[_i].name, i, (double)weights[i], expected[i]);
    }
    optimizer_free(optimizer);
    arena_free(&arena);
}
END_TEST

// The bits between the segments, and in the slots their zeros.
START_TEST(an_optimizer_keeps_to_its_segments)
{
    Arena arena;
    arena_create(&arena);
    Optimizer *optimizer = optimizer_rules[_i].create(1);
    update_all(optimizer, &arena);
    static const float zeros[LENGTH];
    for (int k = -1; k < optimizer->slot_count; k++) {
        const float *memory = k < 0 ? arena.parameters.weights : optimizer->slots[k];
        const float *before = k < 0 ? arena.weights : zeros;
        float after[LENGTH];
        backend()->read(device_current(), after, memory, sizeof after);
        for (size_t i = 0; i < LENGTH; i++)
            ck_assert_msg(segment_of(i) || memcmp(&after[i], &before[i], sizeof after[i]) == 0,
                          "%s: changed float %zu, which is in no segment", optimizer_rules[_i].name,
                          i);
    }
    optimizer_free(optimizer);
    arena_free(&arena);
}
END_TEST

START_TEST(an_update_does_not_depend_on_the_number_of_threads)
{
    float weights[2][LENGTH];
    for (int threads = 1; threads <= 5; threads++) {
        Arena arena;
        arena_create(&arena);
        Optimizer *optimizer = optimizer_rules[_i].create(1);
        omp_set_num_threads(threads);
        update_all(optimizer, &arena);
        backend()->read(device_current(), weights[threads > 1], arena.parameters.weights,
                        sizeof weights[0]);
        if (threads > 1)
            ck_assert_mem_eq(weights[1], weights[0], sizeof weights[0]);
        optimizer_free(optimizer);
        arena_free(&arena);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optimizers");
    TCase *updates = operation_case(suite, "updates");
    tcase_add_loop_test(updates, an_optimizer_follows_its_formula, 0, OPTIMIZER_RULES);
    tcase_add_loop_test(updates, an_optimizer_keeps_to_its_segments, 0, OPTIMIZER_RULES);
    tcase_add_loop_test(updates, an_update_does_not_depend_on_the_number_of_threads, 0,
                        OPTIMIZER_RULES);
    return run_suite(suite);
}
