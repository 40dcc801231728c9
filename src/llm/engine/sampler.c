#include "llm/engine/sampler.h"

#include "base/rng.h"
#include "llm/engine/arith.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct candidate {
    float logit;
    uint32_t token;
};

struct llm_sampler {
    struct llm_sampling options;
    struct hw_rng rng;
    uint32_t vocab;
    struct candidate *heap; /* of those not yet chosen, the first one on top */
    uint32_t heap_count;
    struct candidate *chosen; /* in order */
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
    s->heap = malloc(vocab * sizeof *s->heap);
    s->chosen = malloc(vocab * sizeof *s->chosen);
    s->weights = malloc(vocab * sizeof *s->weights);
    if (!s->heap || !s->chosen || !s->weights) {
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
    free(s->heap);
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

static bool comes_first(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void sink(struct llm_sampler *s, uint32_t at)
{
    struct candidate moved = s->heap[at];
    for (uint32_t child; (child = 2 * at + 1) < s->heap_count; at = child) {
        if (child + 1 < s->heap_count && comes_first(s->heap[child + 1], s->heap[child]))
            child++;
        if (!comes_first(s->heap[child], moved))
            break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = moved;
}

static void fill_heap(struct llm_sampler *s, const float *logits)
{
    s->heap_count = s->vocab;
    for (uint32_t i = 0; i < s->vocab; i++)
        s->heap[i] = (struct candidate){.logit = number(logits[i]), .token = i};
    for (uint32_t i = s->vocab / 2; i > 0; i--)
        sink(s, i - 1);
}

static struct candidate take_first(struct llm_sampler *s)
{
    struct candidate first = s->heap[0];
    s->heap[0] = s->heap[--s->heap_count];
    sink(s, 0);
    return first;
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

/* The top_k first ones, then the front of them that reaches top_p; how many, and their sum. */
static uint32_t choose(struct llm_sampler *s, const float *logits, double *sum)
{
    uint32_t top_k = s->options.top_k, most = top_k && top_k < s->vocab ? top_k : s->vocab;
    double top_p = (double)s->options.top_p, total = 0, front = 0;
    float largest = s->heap[0].logit;
    bool by_k = most < s->vocab;
    uint32_t count = 0;
    if (by_k) {
        for (; count < most; count++) {
            s->chosen[count] = take_first(s);
            s->weights[count] = weight_of(s, s->chosen[count].logit, largest);
            total += s->weights[count];
        }
    } else {
        total = total_weight(s, logits, largest);
    }
    for (count = 0; count < most; count++) {
        if (count > 0 && top_p < 1 && front >= top_p * total)
            break;
        if (!by_k) {
            s->chosen[count] = take_first(s);
            s->weights[count] = weight_of(s, s->chosen[count].logit, largest);
        }
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
    fill_heap(s, logits);
    uint32_t count = choose(s, logits, &sum), i = 0;
    double left = where * sum;
    while (i + 1 < count && left >= s->weights[i])
        left -= s->weights[i++];
    return s->chosen[i].token;
}

void llm_sampler_skip(struct llm_sampler *s, uint64_t count)
{
    for (; count > 0; count--)
        (void)hw_rng_double(&s->rng);
}
