#include "llm/engine/sampler.h"

#include "base/order.h"
#include "base/rng.h"
#include "llm/engine/arith.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Few tokens hold most of the probability: so many are put in order first, then eight times more.
 */
enum { ORDERED_FIRST = 64, ORDERED_MORE = 8 };

/* A token of the text, for the penalties. */
struct seen {
    uint32_t token;
    uint32_t sampled; /* times */
};

struct llm_sampler {
    struct llm_sampling options;
    struct hw_rng rng;
    uint32_t vocab;
    struct hw_ranked *chosen; /* in order */
    double *weights;          /* of those chosen: e^((logit - largest) / temperature) */
    struct llm_bias *biases;
    float *changed; /* logits after biases, penalties and mask; made on demand */
    /* With penalties. */
    struct seen *seen;
    uint32_t seen_count;
    uint32_t *seen_at; /* of each token: 1 + its place in seen, or 0 */
    const struct llm_mask_ops *mask;
    void *mask_user;
};

static bool is_finite_positive(float x)
{
    return x >= 0 && !isinf(x);
}

static bool options_fit(const struct llm_sampling *o, uint32_t vocab)
{
    bool fit = vocab > 0 && is_finite_positive(o->temperature) && o->top_p >= 0 && o->min_p >= 0 &&
               o->min_p <= 1 && isfinite(o->presence) && isfinite(o->frequency) &&
               is_finite_positive(o->repetition) && o->bias_count <= LLM_BIASES_MAX;
    for (uint32_t i = 0; fit && i < o->bias_count; i++)
        fit = o->biases[i].token < vocab && !isnan(o->biases[i].bias);
    return fit;
}

static bool has_repetition(const struct llm_sampler *s)
{
    return s->options.repetition != 0 && s->options.repetition != 1;
}

static bool has_penalties(const struct llm_sampler *s)
{
    return has_repetition(s) || s->options.presence != 0 || s->options.frequency != 0;
}

static int allocate(struct llm_sampler *s)
{
    s->chosen = malloc(s->vocab * sizeof *s->chosen);
    s->weights = malloc(s->vocab * sizeof *s->weights);
    bool fine = s->chosen && s->weights;
    if (fine && s->options.bias_count) {
        size_t bytes = s->options.bias_count * sizeof *s->biases;
        s->biases = malloc(bytes);
        fine = s->biases != NULL;
        if (fine)
            memcpy(s->biases, s->options.biases, bytes);
    }
    if (fine && has_penalties(s)) {
        s->seen = malloc(s->vocab * sizeof *s->seen);
        s->seen_at = calloc(s->vocab, sizeof *s->seen_at);
        fine = s->seen && s->seen_at;
    }
    if (fine && (s->biases || s->seen)) {
        s->changed = malloc(s->vocab * sizeof *s->changed);
        fine = s->changed != NULL;
    }
    s->options.biases = NULL; /* the caller's */
    return fine ? 0 : -ENOMEM;
}

int llm_sampler_create(const struct llm_sampling *options, uint32_t vocab, struct llm_sampler **out)
{
    if (!options_fit(options, vocab))
        return -EINVAL;
    struct llm_sampler *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->options = *options;
    s->vocab = vocab;
    hw_rng_seed(&s->rng, options->seed);
    int rc = allocate(s);
    if (rc) {
        llm_sampler_destroy(s);
        return rc;
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
    free(s->biases);
    free(s->changed);
    free(s->seen);
    free(s->seen_at);
    free(s);
}

int llm_sampler_set_mask(struct llm_sampler *s, const struct llm_mask_ops *ops, void *user)
{
    if (!s->changed)
        s->changed = malloc(s->vocab * sizeof *s->changed);
    if (!s->changed)
        return -ENOMEM;
    s->mask = ops;
    s->mask_user = user;
    return 0;
}

/* ---- what changes the logits ---- */

static void see(struct llm_sampler *s, uint32_t token, bool sampled)
{
    assert(token < s->vocab);
    if (s->mask && sampled)
        s->mask->accept(s->mask_user, token);
    if (!s->seen)
        return;
    if (!s->seen_at[token]) {
        s->seen[s->seen_count++] = (struct seen){.token = token};
        s->seen_at[token] = s->seen_count;
    }
    s->seen[s->seen_at[token] - 1].sampled += sampled;
}

static void penalise(struct llm_sampler *s)
{
    for (uint32_t i = 0; i < s->seen_count; i++) {
        uint32_t times = s->seen[i].sampled;
        float *logit = &s->changed[s->seen[i].token];
        if (has_repetition(s))
            *logit = *logit > 0 ? *logit / s->options.repetition : *logit * s->options.repetition;
        *logit -= (times ? s->options.presence : 0) + s->options.frequency * (float)times;
    }
}

static bool all_forbidden(const struct llm_sampler *s)
{
    for (uint32_t i = 0; i < s->vocab; i++) {
        if (s->changed[i] > -INFINITY)
            return false;
    }
    return true;
}

static const float *change(struct llm_sampler *s, const float *logits)
{
    size_t bytes = s->vocab * sizeof *logits;
    if (!s->changed)
        return logits;
    memcpy(s->changed, logits, bytes);
    for (uint32_t i = 0; i < s->options.bias_count; i++)
        s->changed[s->biases[i].token] += s->biases[i].bias;
    penalise(s);
    if (s->mask)
        s->mask->mask(s->mask_user, s->changed, s->vocab);
    return s->mask && all_forbidden(s) ? logits : s->changed;
}

/* ---- choosing ---- */

static float number(float logit)
{
    return isnan(logit) ? -INFINITY : logit;
}

/* The largest number, in lanes, which compilers make vectors of: a place would make each comparison
 * wait for the last. */
static float largest_of(const float *logits, uint32_t vocab)
{
    enum { LANES = 16 };
    float most[LANES], largest = -INFINITY;
    uint32_t i = 0;
    for (uint32_t j = 0; j < LANES; j++)
        most[j] = -INFINITY;
    for (; i + LANES <= vocab; i += LANES)
        for (uint32_t j = 0; j < LANES; j++)
            most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
    for (; i < vocab; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    for (uint32_t j = 0; j < LANES; j++)
        largest = most[j] > largest ? most[j] : largest;
    return largest;
}

/* The first of the largest: the block that has it, then its place. */
static uint32_t greedy(const float *logits, uint32_t vocab)
{
    enum { BLOCK = 64 };
    float largest = largest_of(logits, vocab);
    uint32_t best = 0;
    for (int found = 0; best + BLOCK <= vocab; best += BLOCK) {
        for (uint32_t j = 0; j < BLOCK; j++)
            found |= logits[best + j] == largest;
        if (found)
            break;
    }
    while (best < vocab && logits[best] != largest)
        best++;
    return best < vocab ? best : 0; /* no number at all */
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

/* The top_k largest, then the front of them that reaches top_p, then of those the ones that min_p
 * leaves; how many, and their sum. */
static uint32_t choose(struct llm_sampler *s, const float *logits, double *sum)
{
    uint32_t top_k = s->options.top_k, most = top_k ? at_most(top_k, s->vocab) : s->vocab;
    bool by_k = most < s->vocab, by_p = s->options.top_p < 1;
    uint32_t ordered = order(s, logits, by_k ? most : at_most(ORDERED_FIRST, most));
    double total = by_k ? sum_of(s->weights, most) : total_weight(s, logits, s->chosen[0].value);
    double front = 0;
    uint32_t count = 0;
    for (; count < most; count++) {
        if (count > 0 && by_p && front >= (double)s->options.top_p * total)
            break;
        if (count == ordered)
            ordered = order(s, logits, at_most(ORDERED_MORE * ordered, most));
        if (count > 0 &&
            (s->weights[count] < (double)s->options.min_p || s->chosen[count].value == -INFINITY))
            break;
        front += s->weights[count];
    }
    *sum = front;
    return count;
}

/* Without a filter the tokens need only be put in order as far as the drawn one. */
static uint32_t draw_of_all(struct llm_sampler *s, const float *logits, double where)
{
    uint32_t ordered = order(s, logits, at_most(ORDERED_FIRST, s->vocab)), i = 0;
    double left = where * total_weight(s, logits, s->chosen[0].value);
    while (left >= s->weights[i] && i + 1 < s->vocab) {
        left -= s->weights[i];
        if (i + 1 == ordered)
            ordered = order(s, logits, at_most(ORDERED_MORE * ordered, s->vocab));
        if (s->chosen[i + 1].value == -INFINITY)
            break;
        i++;
    }
    return s->chosen[i].index;
}

static uint32_t draw(struct llm_sampler *s, const float *logits, double where)
{
    const struct llm_sampling *o = &s->options;
    double sum;
    if (o->temperature == 0)
        return greedy(logits, s->vocab);
    if ((o->top_k == 0 || o->top_k >= s->vocab) && o->top_p >= 1 && o->min_p == 0)
        return draw_of_all(s, logits, where);
    uint32_t count = choose(s, logits, &sum), i = 0;
    double left = where * sum;
    while (i + 1 < count && left >= s->weights[i])
        left -= s->weights[i++];
    return s->chosen[i].index;
}

uint32_t llm_sampler_next(struct llm_sampler *s, const float *logits)
{
    double where = hw_rng_double(&s->rng);
    uint32_t token = draw(s, change(s, logits), where);
    see(s, token, true);
    return token;
}

void llm_sampler_skip(struct llm_sampler *s, uint64_t count)
{
    for (; count > 0; count--)
        (void)hw_rng_double(&s->rng);
}

void llm_sampler_begin(struct llm_sampler *s, const uint32_t *tokens, uint32_t count,
                       uint32_t sampled)
{
    assert(sampled <= count);
    for (uint32_t i = 0; i < count; i++)
        see(s, tokens[i], i >= count - sampled);
    llm_sampler_skip(s, sampled);
}

/* What a model that yields no numbers gives is improbable. */
static float logprob(float logit, double base)
{
    double x = (double)number(logit) - base;
    return x >= LLM_LOGPROB_MIN ? (float)x : LLM_LOGPROB_MIN;
}

uint32_t llm_logprobs(const float *logits, uint32_t vocab, uint32_t token, float *of,
                      struct llm_logprob *top, uint32_t room)
{
    struct hw_ranked ranked[LLM_TOP_LOGPROBS_MAX];
    uint32_t count = hw_top(logits, vocab, at_most(room, LLM_TOP_LOGPROBS_MAX), ranked);
    float largest = largest_of(logits, vocab);
    double total = 0;
    for (uint32_t i = 0; i < vocab; i++)
        total += (double)llm_exp(number(logits[i]) - largest);
    double base = (double)largest + log(total);
    *of = logprob(logits[token], base);
    for (uint32_t i = 0; i < count; i++)
        top[i] = (struct llm_logprob){ranked[i].index, logprob(ranked[i].value, base)};
    return count;
}
