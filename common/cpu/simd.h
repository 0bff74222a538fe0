// Inside the CPU backend: what its sources that are compiled once per instruction set have in
// common. Vectors are the compilers' vector extensions: VECTOR floats, which a source defines
// before it includes this.
//
// Activations and their gradients are floats, or bfloat16 where a source is compiled with BFLOAT16.
// Those are widened when they are loaded, all arithmetic is that of floats, and they are rounded to
// the nearest when they are stored.

#ifndef HVDLAB_SIMD_H
#define HVDLAB_SIMD_H

#include <omp.h>
#include <stdint.h>
#ifdef BFLOAT16
#include <immintrin.h>
#include "base/bfloat16.h"
#endif

typedef float Floats __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * VECTOR)));

#define INLINE static inline __attribute__((always_inline))

INLINE Floats load(const float *from)
{
    return *(const Floats *)from;
}

INLINE void store(float *to, Floats value)
{
    *(Floats *)to = value;
}

#ifdef BFLOAT16

typedef Bfloat16 Activation;
typedef uint16_t Halves __attribute__((vector_size(2 * VECTOR), aligned(2), may_alias));

INLINE Floats load_activations(const Activation *from)
{
    return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i) * (const Halves *)from), 16);
}

INLINE void store_activations(Activation *to, Floats value)
{
    *(Halves *)to = (Halves)_mm512_cvtneps_pbh((__m512)value);
}

INLINE float widened(Activation value)
{
    return bfloat16_value(value);
}

INLINE Activation rounded(float value)
{
    return bfloat16_of(value);
}

#else

typedef float Activation;

INLINE Floats load_activations(const Activation *from)
{
    return load(from);
}

INLINE void store_activations(Activation *to, Floats value)
{
    store(to, value);
}

INLINE float widened(Activation value)
{
    return value;
}

INLINE Activation rounded(float value)
{
    return value;
}

#endif

// value where mask is set, else zero.
INLINE Floats select_if(Ints mask, Floats value)
{
    return (Floats)((Ints)value & mask);
}

// Set where ReLU lets x through. Written such that it lets NaN through too: a training that has
// diverged must show it.
INLINE Ints relu_mask(Floats x)
{
    return ~(Ints)(x <= 0);
}

// A sum of many floats keeps its digits: runs of at most RUN numbers are added up as they are, and
// the runs' sums with what rounding has taken from each (Kahan, 1965).
enum { RUN = 1024 };
typedef struct {
    Floats sum, rest;
} Total;

INLINE void total_add(Total *total, Floats run)
{
    Floats part = run - total->rest, sum = total->sum + part;
    total->rest = (sum - total->sum) - part;
    total->sum = sum;
}

INLINE int run_end(int begin, int count)
{
    return count - begin > RUN ? begin + RUN : count;
}

// What the calling thread has to do of `count` pieces: begin ... end - 1.
typedef struct {
    int begin, end;
} Interval;

static inline Interval my_share(int count)
{
    int threads = omp_get_num_threads(), me = omp_get_thread_num();
    return (Interval){(int)((int64_t)count * me / threads),
                      (int)((int64_t)count * (me + 1) / threads)};
}

#endif
