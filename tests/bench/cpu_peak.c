// Measures a CPU's limits, on all cores of this process's device: multiply-adds in registers, of
// what the device computes with (floats, or bfloat16), and the triad a = b + s c of McCalpin's
// STREAM, over arrays that no cache holds. Of several rounds the best counts, since a limit is
// asked for.
//
// What a step leaves in a cache it reads again faster than from memory, and Winograd's algorithm
// multiplies less than is counted; so a kind of work may take less than its roofline.

#include "bench.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <math.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include "backend/backend.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "cpu/onednn.h"
#include "run/device.h"

enum { TRIALS = 7 };

// ---- Arithmetic, in the vectors that the kit's own passes and oneDNN use here, or in tiles.

// As many sums as hide the time that one multiply-add takes.
enum { SUMS = 12, TILE_SUMS = 4, TURNS = 1000 };
#define ENOUGH_FOR_SUMS 2e-3

// A function that does TURNS times SUMS multiply-adds of vectors of `width` floats. Its values stay
// near 1.
#define MULTIPLY_ADDS(name, width, target)                                                         \
    target static float name(float factor)                                                         \
    {                                                                                              \
        typedef float Vector __attribute__((vector_size(4 * (width))));                            \
        Vector sums[SUMS], factors = factor - (Vector){0}, rest = 1 - factors;                     \
        for (int i = 0; i < SUMS; i++)                                                             \
            sums[i] = factors + (float)i;                                                          \
        for (int turn = 0; turn < TURNS; turn++)                                                   \
            for (int i = 0; i < SUMS; i++)                                                         \
                sums[i] = sums[i] * factors + rest;                                                \
        for (int i = 1; i < SUMS; i++)                                                             \
            sums[0] += sums[i];                                                                    \
        return sums[0][0];                                                                         \
    }

MULTIPLY_ADDS(narrow, 4, )
#ifdef __x86_64__
MULTIPLY_ADDS(avx2, 8, __attribute__((target("avx2,fma"))))
MULTIPLY_ADDS(avx512, 16, __attribute__((target("avx512f"))))

// Pairs of bfloat16: 32 multiply-adds in each instruction.
__attribute__((target("avx512f,avx512bf16"))) static float avx512_bfloat16(float factor)
{
    __m512 sums[SUMS];
    __m512bh factors = _mm512_cvtne2ps_pbh(_mm512_set1_ps(factor), _mm512_set1_ps(factor));
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm512_set1_ps((float)i);
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < SUMS; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], factors, factors);
    for (int i = 1; i < SUMS; i++)
        sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return sums[0][0];
}

// Tiles of AMX: 16 rows of 64 bytes, 16 x 16 sums of 32 products each. That the kernel lets this
// process use them oneDNN has seen to.
enum { TILE_ROWS = 16, TILE_BYTES = 64, TILES = 8 };

__attribute__((target("amx-tile,amx-bf16"))) static float amx_bfloat16(float factor)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } __attribute__((packed)) shapes = {.palette = 1};
    float tile[TILE_ROWS * TILE_BYTES / sizeof(float)];
    for (int i = 0; i < TILES; i++) {
        shapes.bytes[i] = TILE_BYTES;
        shapes.rows[i] = TILE_ROWS;
    }
    for (size_t i = 0; i < sizeof tile / sizeof *tile; i++)
        tile[i] = factor;
    _tile_loadconfig(&shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, tile, TILE_BYTES);
    _tile_loadd(5, tile, TILE_BYTES);
    for (int turn = 0; turn < TURNS; turn++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(3, tile, TILE_BYTES);
    _tile_release();
    return tile[0];
}
#endif

typedef struct {
    float (*run)(float factor);
    double multiply_adds; // of a turn
} Loop;

static Loop widest_loop(bool bfloat16)
{
#ifdef __x86_64__
    if (bfloat16 && onednn_has_amx())
        return (Loop){amx_bfloat16, TILE_SUMS * TILE_ROWS * TILE_ROWS * 32.0};
    if (bfloat16)
        return (Loop){avx512_bfloat16, SUMS * 32.0};
    if (onednn_has_avx512())
        return (Loop){avx512, SUMS * 16.0};
    if (onednn_has_avx2() && __builtin_cpu_supports("fma"))
        return (Loop){avx2, SUMS * 8.0};
#endif
    return (Loop){narrow, SUMS * 4.0};
}

// The calling thread's own time for `count` calls: what else the machine does counts for nothing.
static double time_loop(Loop loop, int count)
{
    struct timespec begin, end;
    float sum = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (int i = 0; i < count; i++)
        sum += loop.run(0.5f + 1e-9f * (float)i);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    CHECK(sum > 0);
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

static double flops_of_thread(Loop loop)
{
    int count = 1;
    while (time_loop(loop, count) < ENOUGH_FOR_SUMS)
        count *= 2;
    double best = INFINITY;
    for (int i = 0; i < TRIALS; i++)
        best = fmin(best, time_loop(loop, count));
    return 2 * loop.multiply_adds * TURNS * count / best;
}

static double flops(void)
{
    Loop loop = widest_loop(device_current()->precision == PRECISION_BF16);
    double sum = 0;
#pragma omp parallel reduction(+ : sum)
    sum += flops_of_thread(loop);
    return sum;
}

// ---- Bytes.

#define MIN_ARRAY ((size_t)32 << 20)
#define MAX_ARRAY ((size_t)128 << 20)

// Of each array: together they are to be three times the last cache, within limits.
static size_t array_bytes(void)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = cache > 0 ? (size_t)cache : 0;
    bytes = bytes < MIN_ARRAY ? MIN_ARRAY : bytes;
    return bytes > MAX_ARRAY ? MAX_ARRAY : bytes;
}

static double time_triad(float *restrict a, const float *restrict b, const float *restrict c,
                         size_t count, float factor)
{
    double begin = seconds_now();
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        a[i] = b[i] + factor * c[i];
    return seconds_now() - begin;
}

static double bytes(void)
{
    size_t each = array_bytes();
    float *arrays[3];
    for (int i = 0; i < 3; i++)
        arrays[i] = backend_cpu.allocate(device_current(), each);
    double best = INFINITY;
    for (int i = 0; i <= TRIALS; i++) {
        double seconds = time_triad(arrays[i % 3], arrays[(i + 1) % 3], arrays[(i + 2) % 3],
                                    each / sizeof(float), 0.5f);
        if (i > 0) // in the first one memory is new
            best = fmin(best, seconds);
    }
    for (int i = 0; i < 3; i++)
        backend_cpu.release(device_current(), arrays[i]);
    return 3 * (double)each / best;
}

Peak measure_cpu_peak(void)
{
    return (Peak){flops(), bytes()};
}
