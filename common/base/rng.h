// Random numbers. Every use (weights, permutations, augmentation, dropout) has a stream of its own,
// and a stream is a function of the seed, the rank, its purpose and an index, never of how much
// another stream was used or of which thread asks. The generator is SplitMix64 (Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
//
// Without a seed every process draws one of its own from the operating system: then two ranks
// differ in everything, as two Horovod processes do.

#ifndef HVDLAB_RNG_H
#define HVDLAB_RNG_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default) // a step may call what follows

// What a stream is for. Add new purposes at the end: the number is part of the stream.
typedef enum {
    RNG_WEIGHTS,
    RNG_PERMUTATION,
    RNG_AUGMENTATION,
    RNG_DROPOUT,
    RNG_SYNTHETIC_DATA,
    RNG_FINGERPRINT,
    RNG_FLAWS,
} RngPurpose;

typedef struct {
    uint64_t state;
} Rng;

// Gives every rank that calls it the same streams from now on. This is seldom what a distributed
// program wants: ranks then draw the same batches. (--seed keeps ranks apart; see seed_process.)
void set_seed(uint64_t seed);

// What --seed does: streams become a function of `seed` and the launcher's rank. Rank 0 draws what
// a process without mpirun draws.
void seed_process(uint64_t seed);

// The stream for one purpose and index (a layer, an epoch, an image, ...).
Rng rng_stream(RngPurpose purpose, uint64_t index);

// A stream that depends on `seed`, purpose and index alone, the same on every rank.
Rng rng_stream_of(uint64_t seed, RngPurpose purpose, uint64_t index);

// Below, NULL in place of a stream makes the program exit with an error message.

// As if `count` numbers had been drawn.
void rng_skip(Rng *rng, uint64_t count);

uint64_t rng_next(Rng *rng);                  // 64 random bits
float rng_uniform(Rng *rng);                  // uniform in [0, 1), 24 bits
float rng_normal(Rng *rng);                   // standard normal (Box-Muller)
uint32_t rng_below(Rng *rng, uint32_t limit); // uniform in 0 ... limit - 1, without bias; limit > 0

// Writes a random permutation of 0 ... count - 1 (Fisher-Yates).
void rng_permutation(Rng *rng, uint32_t *order, uint32_t count);

#pragma GCC visibility pop

// Inside the library: what all streams of this process grow from, whether it was drawn or set.
typedef struct {
    uint64_t seed, rank;
} RngOrigin;
RngOrigin rng_origin(void);
void set_rng_origin(RngOrigin origin);

#endif
