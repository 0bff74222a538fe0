// Random numbers: SplitMix64 streams, each with a key. The callers choose the keys.

#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/launcher.h"

#define GOLDEN_GAMMA 0x9e3779b97f4a7c15u // 2^64 / golden ratio, odd: SplitMix64's step

// The seed of all streams of this process. Written at the program's start, before there are
// threads; only the default is drawn later, at the first use.
static RngOrigin origin;

static pthread_once_t origin_once = PTHREAD_ONCE_INIT;

static void draw_origin(void)
{
    if (getrandom(&origin.seed, sizeof origin.seed, 0) != sizeof origin.seed)
        die("the operating system gives no random numbers: %s", strerror(errno));
    origin.rank = (uint64_t)launcher_rank();
}

void set_rng_origin(RngOrigin to)
{
    // A later default must not overwrite this.
    pthread_once(&origin_once, draw_origin);
    origin = to;
}

RngOrigin rng_origin(void)
{
    pthread_once(&origin_once, draw_origin);
    return origin;
}

void set_seed(uint64_t seed)
{
    set_rng_origin((RngOrigin){seed, 0});
}

void seed_process(uint64_t seed)
{
    set_rng_origin((RngOrigin){seed, (uint64_t)launcher_rank()});
}

// SplitMix64's finalizer: one-to-one, and each bit of `x` affects every bit of the result.
static uint64_t finalize(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t absorb(uint64_t key, uint64_t value)
{
    return finalize(key + GOLDEN_GAMMA + value);
}

// Each part of the key is mixed in before the next one is added: neighbouring ranks, purposes and
// indices then start at unrelated points of the generator's cycle.
static Rng stream(uint64_t seed, uint64_t rank, RngPurpose purpose, uint64_t index)
{
    uint64_t key = absorb(0, seed);
    key = absorb(key, rank);
    key = absorb(key, (uint64_t)purpose);
    return (Rng){absorb(key, index)};
}

Rng rng_stream(RngPurpose purpose, uint64_t index)
{
    RngOrigin own = rng_origin();
    return stream(own.seed, own.rank, purpose, index);
}

Rng rng_stream_of(uint64_t seed, RngPurpose purpose, uint64_t index)
{
    return stream(seed, 0, purpose, index);
}

static void need_stream(const Rng *rng)
{
    if (!rng)
        die("random numbers of no stream (NULL); rng_stream() gives one");
}

void rng_skip(Rng *rng, uint64_t count)
{
    need_stream(rng);
    rng->state += count * GOLDEN_GAMMA;
}

uint64_t rng_next(Rng *rng)
{
    need_stream(rng);
    rng->state += GOLDEN_GAMMA;
    return finalize(rng->state);
}

float rng_uniform(Rng *rng)
{
    // 24 bits are what a float holds exactly; with more, rounding could give 1.
    return (float)(rng_next(rng) >> 40) * 0x1p-24f;
}

float rng_normal(Rng *rng)
{
    // In double precision, so that the tails reach beyond 8 standard deviations. The radius must
    // not see the logarithm of 0: it draws from (0, 1].
    const double two_pi = 6.283185307179586;
    double radius = sqrt(-2 * log((double)((rng_next(rng) >> 11) + 1) * 0x1p-53));
    double angle = two_pi * (double)(rng_next(rng) >> 11) * 0x1p-53;
    return (float)(radius * cos(angle));
}

// D. Lemire, "Fast random integer generation in an interval", ACM TOMACS 2019: scale 32 random bits
// to the interval, and draw again in the few cases that would make some numbers more likely.
uint32_t rng_below(Rng *rng, uint32_t limit)
{
    if (limit < 1)
        die("rng_below: no number is below 0");
    uint32_t unfair = (UINT32_MAX - limit + 1) % limit; // 2^32 mod limit
    uint64_t scaled;
    do
        scaled = (rng_next(rng) >> 32) * limit;
    while ((uint32_t)scaled < unfair);
    return (uint32_t)(scaled >> 32);
}

void rng_permutation(Rng *rng, uint32_t *order, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = rng_below(rng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}
