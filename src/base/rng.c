#include "base/rng.h"

#include <assert.h>

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void hw_rng_seed(struct hw_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        rng->s[i] = splitmix64(&seed);
}

uint64_t hw_rng_below(struct hw_rng *rng, uint64_t n)
{
    assert(n > 0);
    /* The high word of a 64 by 64 bit product is uniform once the 2^64 mod n low words that would
     * favour some results are rejected. */
    unsigned __int128 product = (unsigned __int128)hw_rng_u64(rng) * n;
    if ((uint64_t)product < n) {
        uint64_t reject_below = -n % n;
        while ((uint64_t)product < reject_below)
            product = (unsigned __int128)hw_rng_u64(rng) * n;
    }
    return (uint64_t)(product >> 64);
}

double hw_rng_double(struct hw_rng *rng)
{
    return (double)(hw_rng_u64(rng) >> 11) * 0x1p-53;
}
