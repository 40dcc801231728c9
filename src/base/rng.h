/* base/rng.h - small deterministic random numbers for simulation, workloads and tests.
 *
 * xoshiro256** seeded through splitmix64: the same seed gives the same numbers on every machine.
 * Trust: predictable; never for tokens, keys or anything a peer must not guess.
 * Threads: one at a time; a generator a thread.  Lifetime: the struct is the caller's. */
#ifndef HAWSER_BASE_RNG_H
#define HAWSER_BASE_RNG_H

#include <stdint.h>

struct hw_rng {
    uint64_t s[4];
};

/* Any seed, 0 included. */
void hw_rng_seed(struct hw_rng *rng, uint64_t seed);

static inline uint64_t hw_rng_u64(struct hw_rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t scrambled = s[1] * 5;
    uint64_t result = ((scrambled << 7) | (scrambled >> 57)) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}

/* Uniform in [0, n) without bias; n > 0. */
uint64_t hw_rng_below(struct hw_rng *rng, uint64_t n);
/* Uniform in [0, 1), 53 bits. */
double hw_rng_double(struct hw_rng *rng);

#endif
