#include "llm/engine/rope.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct llm_rope {
    uint32_t pairs;
    double frequencies[];
};

int llm_rope_create(const struct llm_config *config, const float *factors, struct llm_rope **out)
{
    uint32_t pairs = config->rope_dims / 2;
    struct llm_rope *rope = calloc(1, sizeof *rope + pairs * sizeof rope->frequencies[0]);
    if (!rope)
        return -ENOMEM;
    rope->pairs = pairs;
    for (uint32_t i = 0; i < pairs; i++) {
        double exponent = -2.0 * i / config->rope_dims;
        double frequency = pow((double)config->rope_base, exponent) / (double)config->rope_scale;
        rope->frequencies[i] = factors ? frequency / (double)factors[i] : frequency;
    }
    *out = rope;
    return 0;
}

void llm_rope_destroy(struct llm_rope *rope)
{
    free(rope);
}

uint32_t llm_rope_pairs(const struct llm_rope *rope)
{
    return rope->pairs;
}

void llm_rope_angles(const struct llm_rope *rope, uint32_t position, float *out)
{
    for (uint32_t i = 0; i < rope->pairs; i++) {
        double angle = position * rope->frequencies[i];
        out[2 * i] = (float)cos(angle);
        out[2 * i + 1] = (float)sin(angle);
    }
}
