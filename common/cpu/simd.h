// Inside the CPU backend: what its sources that are compiled once per instruction set have in
// common. Vectors are the compilers' vector extensions: VECTOR floats, which a source defines
// before it includes this.

#ifndef HVDLAB_SIMD_H
#define HVDLAB_SIMD_H

#include <omp.h>
#include <stdint.h>

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

// What the calling thread has to do of `count` pieces: begin ... end - 1.
typedef struct {
    int begin, end;
} Share;

static inline Share my_share(int count)
{
    int threads = omp_get_num_threads(), me = omp_get_thread_num();
    return (Share){(int)((int64_t)count * me / threads),
                   (int)((int64_t)count * (me + 1) / threads)};
}

#endif
