#include "llm/engine/sampler.h"

#include "base/order.h"
#include "base/rng.h"
#include "llm/engine/arith.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* Few tokens hold most of the probability: so many are put in order first, then eight times more.
 */
enum { ORDERED_FIRST = 64, ORDERED_MORE = 8 };

struct llm_sampler {
    struct llm_sampling options;
    struct hw_rng rng;
    uint32_t vocab;
    struct hw_ranked *chosen; /* in order */
    double *weights;          /* of those chosen: e^((logit - largest) / temperature) */
};

int llm_sampler_create(const struct llm_sampling *options, uint32_t vocab, struct llm_sampler **out)
{
    if (!(options->temperature >= 0) || !(options->top_p >= 0) || isinf(options->temperature) ||
        vocab == 0)
        return -EINVAL;
    struct llm_sampler *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->options = *options;
    s->vocab = vocab;
    hw_rng_seed(&s->rng, options->seed);
    s->chosen = malloc(vocab * sizeof *s->chosen);
    s->weights = malloc(vocab * sizeof *s->weights);
    if (!s->chosen || !s->weights) {
        llm_sampler_destroy(s);
        return -ENOMEM;
    }
    *out = s;
    return 0;
}

void llm_sampler_destroy(struct llm_sampler *s)
{
    if (!s)
        return;
    free(s->chosen);
    free(s->weights);
    free(s);
}

static float number(float logit)
{
    return isnan(logit) ? -INFINITY : logit;
}

static uint32_t greedy(const float *logits, uint32_t vocab)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        best = number(logits[i]) > number(logits[best]) ? i : best;
    return best;
}

static double weight_of(const struct llm_sampler *s, float logit, float largest)
{
    return (double)llm_exp((logit - largest) / s->options.temperature);
}

/* Of all, in the order of the tokens. */
static double total_weight(const struct llm_sampler *s, const float *logits, float largest)
{
    double total = 0;
    for (uint32_t i = 0; i < s->vocab; i++)
        total += weight_of(s, number(logits[i]), largest);
    return total;
}

/* Puts the `count` largest in order, with their weights. */
static uint32_t order(struct llm_sampler *s, const float *logits, uint32_t count)
{
    (void)hw_top(logits, s->vocab, count, s->chosen);
    for (uint32_t i = 0; i < count; i++)
        s->weights[i] = weight_of(s, s->chosen[i].value, s->chosen[0].value);
    return count;
}

static double sum_of(const double *weights, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += weights[i];
    return sum;
}

static uint32_t at_most(uint32_t count, uint32_t most)
{
    return count < most ? count : most;
}

/* The top_k largest, then the front of them that reaches top_p; how many, and their sum. */
static uint32_t choose(struct llm_sampler *s, const float *logits, double *sum)
{
    uint32_t top_k = s->options.top_k, most = top_k ? at_most(top_k, s->vocab) : s->vocab;
    bool by_k = most < s->vocab, by_p = s->options.top_p < 1;
    uint32_t ordered = order(s, logits, by_k || !by_p ? most : at_most(ORDERED_FIRST, most));
    double total = by_k ? sum_of(s->weights, most) : total_weight(s, logits, s->chosen[0].value);
    double front = 0;
    uint32_t count = 0;
    for (; count < most; count++) {
        if (count > 0 && by_p && front >= (double)s->options.top_p * total)
            break;
        if (count == ordered)
            ordered = order(s, logits, at_most(ORDERED_MORE * ordered, most));
        front += s->weights[count];
    }
    *sum = front;
    return count;
}

uint32_t llm_sampler_next(struct llm_sampler *s, const float *logits)
{
    double where = hw_rng_double(&s->rng), sum;
    if (s->options.temperature == 0)
        return greedy(logits, s->vocab);
    uint32_t count = choose(s, logits, &sum), i = 0;
    double left = where * sum;
    while (i + 1 < count && left >= s->weights[i])
        left -= s->weights[i++];
    return s->chosen[i].index;
}

void llm_sampler_skip(struct llm_sampler *s, uint64_t count)
{
    for (; count > 0; count--)
        (void)hw_rng_double(&s->rng);
}
