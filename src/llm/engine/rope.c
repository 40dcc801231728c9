#include "llm/engine/rope.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { PLAIN, OTHER, TABLES_MAX }; /* OTHER: of layers with a window, or of queries */

struct llm_rope {
    uint32_t pairs, tables;
    float temperature;
    uint32_t original;
    double magnitude;
    double frequencies[]; /* of the tables */
};

static bool window_differs(const struct llm_config *c)
{
    return c->window &&
           (c->rope_base_window != c->rope_base || c->rope_scale_window != c->rope_scale);
}

/* The pair that turns so many times within the original positions. */
static double pair_of_turns(const struct llm_config *c, double turns)
{
    const double two_pi = 6.283185307179586;
    return c->rope_dims * log(c->rope_original / (turns * two_pi)) /
           (2 * log((double)c->rope_base));
}

/* How far a pair is stretched, from 0 to 1. */
static double yarn_share(const struct llm_config *c, uint32_t pair)
{
    double first = floor(pair_of_turns(c, (double)c->yarn_fast));
    double last = ceil(pair_of_turns(c, (double)c->yarn_slow));
    first = fmax(first, 0);
    last = fmin(last, c->rope_dims - 1.0);
    return fmin(fmax((pair - first) / fmax(last - first, 0.001), 0), 1);
}

static double yarn_magnitude(double scale, double multiplier)
{
    return scale <= 1 ? 1 : 1 + 0.1 * multiplier * log(scale);
}

static double frequency(const struct llm_config *c, bool window, uint32_t pair, double factor)
{
    double base = (double)(window ? c->rope_base_window : c->rope_base);
    double scale = (double)(window ? c->rope_scale_window : c->rope_scale);
    double whole = pow(base, -2.0 * pair / c->rope_dims) / factor;
    if (!c->rope_is_yarn)
        return whole / scale;
    double share = yarn_share(c, pair);
    return whole * (1 - share) + whole / scale * share;
}

int llm_rope_create(const struct llm_config *config, const float *factors, struct llm_rope **out)
{
    uint32_t pairs = config->rope_dims / 2;
    uint32_t tables = window_differs(config) || config->temperature != 0 ? 2 : 1;
    struct llm_rope *rope =
        calloc(1, sizeof *rope + (size_t)tables * pairs * sizeof rope->frequencies[0]);
    if (!rope)
        return -ENOMEM;
    rope->pairs = pairs;
    rope->tables = tables;
    rope->temperature = config->temperature;
    rope->original = config->rope_original;
    rope->magnitude = (double)config->rope_magnitude;
    if (config->rope_is_yarn) {
        double scale = (double)config->rope_scale;
        rope->magnitude *= yarn_magnitude(scale, 1);
        if (config->yarn_log != 0)
            rope->magnitude /= yarn_magnitude(scale, (double)config->yarn_log);
    }
    for (uint32_t t = 0; t < tables; t++) {
        for (uint32_t i = 0; i < pairs; i++)
            rope->frequencies[t * pairs + i] =
                frequency(config, t == OTHER && window_differs(config), i,
                          factors ? (double)factors[i] : 1.0);
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

uint32_t llm_rope_tables(const struct llm_rope *rope)
{
    return rope->tables;
}

struct llm_rope_choice llm_rope_choose(const struct llm_config *config, uint32_t layer)
{
    if (config->temperature != 0)
        return (struct llm_rope_choice){.q = OTHER, .k = PLAIN};
    uint32_t table = window_differs(config) && llm_layer_slides(config, layer) ? OTHER : PLAIN;
    return (struct llm_rope_choice){.q = table, .k = table};
}

void llm_rope_angles(const struct llm_rope *rope, uint32_t table, uint32_t position, float *out)
{
    const double *frequencies = rope->frequencies + (size_t)table * rope->pairs;
    double magnitude = rope->magnitude;
    assert(table < rope->tables);
    if (table == OTHER && rope->temperature != 0)
        magnitude *=
            1 + (double)rope->temperature * log(1 + floor((double)position / rope->original));
    for (uint32_t i = 0; i < rope->pairs; i++) {
        double angle = position * frequencies[i];
        out[2 * i] = (float)(magnitude * cos(angle));
        out[2 * i + 1] = (float)(magnitude * sin(angle));
    }
}
