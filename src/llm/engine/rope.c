#include "llm/engine/rope.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum {
    PLAIN,
    OTHER, /* of layers with a window, or that do not turn, or of queries */
    TABLES_MAX,
    NEAR = 64, /* positions */
};

struct turn {
    double cosine, sine;
};

/* A pair's turn at a position is the product of that at the multiple of NEAR before and that of the
 * rest, so that a prompt needs few sines. */
struct pair {
    double frequency;
    struct turn near[NEAR], far;
};

struct llm_rope {
    uint32_t count, tables;
    float temperature;
    bool skips, plain_other; /* the second table does not turn, or is not stretched */
    uint32_t original;
    double magnitude;
    uint32_t far_at[TABLES_MAX]; /* the multiple of NEAR that `far` of its pairs is for */
    struct pair pairs[];         /* of the tables */
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

static struct turn turn_at(double frequency, uint32_t position)
{
    double angle = position * frequency;
    return (struct turn){.cosine = cos(angle), .sine = sin(angle)};
}

int llm_rope_create(const struct llm_config *config, const float *factors, struct llm_rope **out)
{
    uint32_t pairs = config->rope_dims / 2;
    bool two = window_differs(config) || config->temperature != 0 || config->rope_skip;
    uint32_t tables = two ? 2 : 1;
    struct llm_rope *rope =
        calloc(1, sizeof *rope + (size_t)tables * pairs * sizeof rope->pairs[0]);
    if (!rope)
        return -ENOMEM;
    rope->count = pairs;
    rope->tables = tables;
    rope->temperature = config->temperature;
    rope->skips = config->rope_skip != 0;
    rope->plain_other =
        rope->skips || (window_differs(config) && config->rope_scale_window != config->rope_scale);
    rope->original = config->rope_original;
    rope->magnitude = (double)config->rope_magnitude;
    if (config->rope_is_yarn) {
        double scale = (double)config->rope_scale;
        rope->magnitude *= yarn_magnitude(scale, 1);
        if (config->yarn_log != 0)
            rope->magnitude /= yarn_magnitude(scale, (double)config->yarn_log);
    }
    for (uint32_t t = 0; t < tables; t++) {
        for (uint32_t i = 0; i < pairs; i++) {
            struct pair *pair = &rope->pairs[(size_t)t * pairs + i];
            if (t == PLAIN || !rope->skips)
                pair->frequency = frequency(config, t == OTHER && window_differs(config), i,
                                            factors ? (double)factors[i] : 1.0);
            for (uint32_t p = 0; p < NEAR; p++)
                pair->near[p] = turn_at(pair->frequency, p);
            pair->far = pair->near[0];
        }
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
    return rope->count;
}

uint32_t llm_rope_tables(const struct llm_rope *rope)
{
    return rope->tables;
}

struct llm_rope_choice llm_rope_choose(const struct llm_config *config, uint32_t layer)
{
    if (config->temperature != 0)
        return (struct llm_rope_choice){.q = OTHER, .k = PLAIN};
    bool other = config->rope_skip ? (layer + 1) % config->rope_skip == 0
                                   : window_differs(config) && llm_layer_slides(config, layer);
    uint32_t table = other ? OTHER : PLAIN;
    return (struct llm_rope_choice){.q = table, .k = table};
}

void llm_rope_angles(struct llm_rope *rope, uint32_t table, uint32_t position, float *out)
{
    assert(table < rope->tables);
    struct pair *pairs = rope->pairs + (size_t)table * rope->count;
    uint32_t rest = position % NEAR, far_at = position - rest;
    double magnitude = table == OTHER && rope->plain_other ? 1 : rope->magnitude;
    if (table == OTHER && rope->temperature != 0)
        magnitude *=
            1 + (double)rope->temperature * log(1 + floor((double)position / rope->original));
    for (uint32_t i = 0; i < rope->count && rope->far_at[table] != far_at; i++)
        pairs[i].far = turn_at(pairs[i].frequency, far_at);
    rope->far_at[table] = far_at;
    for (uint32_t i = 0; i < rope->count; i++) {
        struct turn far = pairs[i].far, near = pairs[i].near[rest];
        out[2 * i] = (float)(magnitude * (far.cosine * near.cosine - far.sine * near.sine));
        out[2 * i + 1] = (float)(magnitude * (far.sine * near.cosine + far.cosine * near.sine));
    }
}
