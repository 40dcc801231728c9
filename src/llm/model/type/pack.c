#include "llm/model/type/pack.h"

#include "llm/model/type/blocks.h"

#include <math.h>

enum { SMALL = 32, SUPER = 256, SUBS_MAX = 16 };

const int8_t llm_values_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
const int8_t llm_values_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* ---- rounding ---- */

float llm_pack_half(uint8_t *p, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    wire_store16(p, wire_half_from_bits(bits));
    return llm_block_half(p);
}

float llm_pack_extreme(const float *x, size_t count)
{
    float extreme = 0;
    for (size_t i = 0; i < count; i++) {
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    }
    return extreme;
}

/* ---- scales without minima ---- */

/* What a value of a block may be: every integer from low to high, or the entries of a table in
 * ascending order. */
struct levels {
    int low, high;
    const int8_t *table;
};

static const struct levels levels_3 = {-4, 3, NULL}, levels_5 = {-16, 15, NULL},
                           levels_6 = {-32, 31, NULL}, levels_iq4 = {-127, 113, llm_values_iq4};

/* The index of the level nearest to value, from 0 for the lowest. */
static int nearest(const struct levels *levels, float value)
{
    if (!levels->table)
        return llm_pack_round(value, levels->low, levels->high) - levels->low;
    int index = 0;
    for (int i = 0; i < 15; i++)
        index += 2 * value > (float)(levels->table[i] + levels->table[i + 1]);
    return index;
}

static int level_at(const struct levels *levels, int index)
{
    return levels->table ? levels->table[index] : levels->low + index;
}

/* With values rounded by the scale `trial`, the scale that fits them best; *gain is by how much it
 * lowers the squared error of all zeros. */
static float refit(const struct levels *levels, const float *x, int count, float trial, float *gain)
{
    float inverse = llm_pack_inverse(trial), products = 0, squares = 0;
    for (int i = 0; i < count; i++) {
        float level = (float)level_at(levels, nearest(levels, x[i] * inverse));
        products += level * x[i];
        squares += level * level;
    }
    float scale = squares > 0 ? products / squares : 0;
    *gain = products * scale;
    return scale;
}

/* The scale that maps the extreme to the lowest level, or a better one near it or near that which
 * maps it to the highest. */
static float fit_scale(const struct levels *levels, const float *x, int count, int tries)
{
    const float reach = 0.25f; /* of a scale: further off the error only grows */
    float extreme = llm_pack_extreme(x, (size_t)count), best = extreme / (float)levels->low;
    float most = 0;
    for (int end = 0; end < 2 && tries; end++) {
        float base = extreme / (float)(end ? levels->high : levels->low);
        for (int t = -tries; t <= tries; t++) {
            float gain, scale = refit(levels, x, count,
                                      base * (1 + reach * (float)t / (float)tries), &gain);
            if (gain > most) {
                most = gain;
                best = scale;
            }
        }
    }
    return best;
}

/* ---- scales with minima: x = step * code - low ---- */

struct range {
    float step, low;
};

static struct range plain_range(const float *x, int count, int top, bool around_zero)
{
    float min = around_zero ? 0 : x[0], max = around_zero ? 0 : x[0];
    for (int i = 0; i < count; i++) {
        min = fminf(min, x[i]);
        max = fmaxf(max, x[i]);
    }
    return (struct range){(max - min) / (float)top, -min};
}

/* Least squares for codes that the range `trial` rounds to; around_zero: low is not negative.
 * Returns the squared error. */
static float refit_range(const float *x, int count, int top, bool around_zero, struct range *trial)
{
    float inverse = llm_pack_inverse(trial->step), n = (float)count;
    float sum = 0, codes = 0, squares = 0, products = 0, error = 0;
    int code[SMALL];
    for (int i = 0; i < count; i++) {
        code[i] = llm_pack_round((x[i] + trial->low) * inverse, 0, top);
        float c = (float)code[i];
        sum += x[i];
        codes += c;
        squares += c * c;
        products += c * x[i];
    }
    float det = n * squares - codes * codes;
    if (det > 0) {
        trial->step = (n * products - codes * sum) / det;
        trial->low = -(squares * sum - codes * products) / det;
    }
    if (around_zero && trial->low < 0) {
        trial->low = 0;
        trial->step = squares > 0 ? products / squares : 0;
    }
    for (int i = 0; i < count; i++) {
        float off = trial->step * (float)code[i] - trial->low - x[i];
        error += off * off;
    }
    return error;
}

static struct range fit_range(const float *x, int count, int top, bool around_zero, int tries)
{
    const float reach = 0.4f; /* of a range that is cut off at its ends */
    struct range plain = plain_range(x, count, top, around_zero), best = plain;
    float least = INFINITY;
    for (int t = -tries; t <= tries && tries; t++) {
        float cut = 1 - reach * (float)(t + tries) / (float)(2 * tries) / sqrtf((float)top);
        float middle = plain.step * (float)top / 2 - plain.low;
        struct range trial = {plain.step * cut, plain.step * cut * (float)top / 2 - middle};
        (void)refit_range(x, count, top, around_zero, &trial);
        float error = refit_range(x, count, top, around_zero, &trial);
        if (error < least && trial.step > 0) {
            least = error;
            best = trial;
        }
    }
    return best;
}

/* ---- blocks of 32 ---- */

static void put_nibbles(uint8_t *dst, const uint8_t codes[SMALL])
{
    for (int i = 0; i < SMALL / 2; i++)
        dst[i] = (uint8_t)((codes[i] & 15) | codes[i + SMALL / 2] << 4);
}

static void put_fifth_bits(uint8_t dst[4], const uint8_t codes[SMALL])
{
    memset(dst, 0, 4);
    for (int i = 0; i < SMALL; i++)
        dst[i / 8] |= (uint8_t)((codes[i] >> 4) << i % 8);
}

static void pack_levels(const struct levels *levels, uint8_t *dst, const float *src, int tries,
                        uint8_t codes[SMALL])
{
    float inverse = llm_pack_inverse(llm_pack_half(dst, fit_scale(levels, src, SMALL, tries)));
    for (int i = 0; i < SMALL; i++)
        codes[i] = (uint8_t)nearest(levels, src[i] * inverse);
}

/* Here x = d * code + m, so that m is the negative of a range's low. */
static void pack_range(int top, uint8_t *dst, const float *src, int tries, uint8_t codes[SMALL])
{
    struct range range = fit_range(src, SMALL, top, false, tries);
    float d = llm_pack_half(dst, range.step), m = llm_pack_half(dst + 2, -range.low);
    for (int i = 0; i < SMALL; i++)
        codes[i] = (uint8_t)llm_pack_round((src[i] - m) * llm_pack_inverse(d), 0, top);
}

void llm_pack_q4_1(uint8_t *dst, const float *src, int tries)
{
    uint8_t codes[SMALL];
    pack_range(15, dst, src, tries, codes);
    put_nibbles(dst + 4, codes);
}

void llm_pack_q5_0(uint8_t *dst, const float *src, int tries)
{
    uint8_t codes[SMALL];
    pack_levels(&levels_5, dst, src, tries, codes);
    put_fifth_bits(dst + 2, codes);
    put_nibbles(dst + 6, codes);
}

void llm_pack_q5_1(uint8_t *dst, const float *src, int tries)
{
    uint8_t codes[SMALL];
    pack_range(31, dst, src, tries, codes);
    put_fifth_bits(dst + 4, codes);
    put_nibbles(dst + 8, codes);
}

void llm_pack_iq4_nl(uint8_t *dst, const float *src, int tries)
{
    uint8_t codes[SMALL];
    pack_levels(&levels_iq4, dst, src, tries, codes);
    put_nibbles(dst + 2, codes);
}

static uint8_t nearest_mxfp4(float value)
{
    int code = 0;
    for (int i = 0; i < 7; i++)
        code += 2 * fabsf(value) > (float)(llm_values_mxfp4[i] + llm_values_mxfp4[i + 1]);
    return (uint8_t)(code | (signbit(value) ? 8 : 0));
}

/* Returns the squared error. */
static float mxfp4_codes(const float *src, uint8_t exponent, uint8_t codes[SMALL])
{
    float scale = llm_block_e8m0_half(exponent), inverse = llm_pack_inverse(scale), error = 0;
    for (int i = 0; i < SMALL; i++) {
        codes[i] = nearest_mxfp4(src[i] * inverse);
        float off = scale * (float)llm_values_mxfp4[codes[i]] - src[i];
        error += off * off;
    }
    return error;
}

/* The extreme becomes 4 to 8 times the scale that the exponent names; 6 is the largest value.  With
 * tries, the next exponent is taken where it has the smaller error. */
void llm_pack_mxfp4(uint8_t *dst, const float *src, int tries)
{
    float extreme = fabsf(llm_pack_extreme(src, SMALL));
    int power = 0;
    (void)frexpf(extreme, &power);
    int exponent = extreme > 0 && isfinite(extreme) ? power - 1 - 2 + 127 : 0;
    uint8_t codes[SMALL], wider[SMALL];
    exponent = exponent < 0 ? 0 : exponent > 254 ? 254 : exponent;
    float error = mxfp4_codes(src, (uint8_t)exponent, codes);
    dst[0] = (uint8_t)exponent;
    if (tries && exponent < 254 && mxfp4_codes(src, (uint8_t)(exponent + 1), wider) < error) {
        memcpy(codes, wider, sizeof(codes));
        dst[0]++;
    }
    put_nibbles(dst + 1, codes);
}

/* ---- blocks of 256 ---- */

/* How a block of 256 is divided, and the integers that scale its parts. */
struct super {
    int subs;       /* of 256 / subs values */
    int top;        /* ranges: the highest code */
    int scale_low;  /* steps: of their integers; ranges: 0 */
    int scale_high; /* of scales and minima */
};

struct parts {
    int scales[SUBS_MAX], minima[SUBS_MAX];
    uint8_t codes[SUPER];
};

static float range_error(const float *x, int count, int top, float step, float low)
{
    float inverse = llm_pack_inverse(step), error = 0;
    for (int i = 0; i < count; i++) {
        float off = step * (float)llm_pack_round((x[i] + low) * inverse, 0, top) - low - x[i];
        error += off * off;
    }
    return error;
}

/* Rounding a scale and a minimum each for itself may miss the best pair: tries their neighbours. */
static void polish(const struct super *s, const float *x, float d, float dmin, int *scale, int *min)
{
    int from_scale = *scale, from_min = *min, values = SUPER / s->subs;
    float least = INFINITY;
    for (int i = 0; i < 25; i++) {
        int sc = from_scale + i / 5 - 2, m = from_min + i % 5 - 2;
        if (sc < 0 || sc > s->scale_high || m < 0 || m > s->scale_high)
            continue;
        float error = range_error(x, values, s->top, d * (float)sc, dmin * (float)m);
        if (error < least) {
            least = error;
            *scale = sc;
            *min = m;
        }
    }
}

static void pack_ranges(const struct super *s, uint8_t *d_at, uint8_t *dmin_at, const float *src,
                        int tries, struct parts *out)
{
    struct range ranges[SUBS_MAX];
    int values = SUPER / s->subs;
    float step = 0, low = 0;
    for (int sub = 0; sub < s->subs; sub++) {
        ranges[sub] = fit_range(src + values * sub, values, s->top, true, tries);
        step = fmaxf(step, ranges[sub].step);
        low = fmaxf(low, ranges[sub].low);
    }
    float d = llm_pack_half(d_at, step / (float)s->scale_high);
    float dmin = llm_pack_half(dmin_at, low / (float)s->scale_high);
    for (int sub = 0; sub < s->subs; sub++) {
        out->scales[sub] = llm_pack_round(ranges[sub].step * llm_pack_inverse(d), 0, s->scale_high);
        out->minima[sub] =
            llm_pack_round(ranges[sub].low * llm_pack_inverse(dmin), 0, s->scale_high);
        if (tries)
            polish(s, src + values * sub, d, dmin, &out->scales[sub], &out->minima[sub]);
    }
    for (int i = 0; i < SUPER; i++) {
        int sub = i / values;
        float shifted = src[i] + dmin * (float)out->minima[sub];
        float inverse = llm_pack_inverse(d * (float)out->scales[sub]);
        out->codes[i] = (uint8_t)llm_pack_round(shifted * inverse, 0, s->top);
    }
}

/* Where scale_low is further from 0 than scale_high, the largest step becomes scale_low. */
static void pack_steps(const struct super *s, const struct levels *levels, uint8_t *d_at,
                       const float *src, int tries, struct parts *out)
{
    float steps[SUBS_MAX];
    int values = SUPER / s->subs;
    for (int sub = 0; sub < s->subs; sub++)
        steps[sub] = fit_scale(levels, src + values * sub, values, tries);
    float most = llm_pack_extreme(steps, (size_t)s->subs);
    float d =
        llm_pack_half(d_at, -s->scale_low > s->scale_high ? most / (float)s->scale_low
                                                          : fabsf(most) / (float)s->scale_high);
    for (int sub = 0; sub < s->subs; sub++)
        out->scales[sub] =
            llm_pack_round(steps[sub] * llm_pack_inverse(d), s->scale_low, s->scale_high);
    for (int i = 0; i < SUPER; i++) {
        float inverse = llm_pack_inverse(d * (float)out->scales[i / values]);
        out->codes[i] = (uint8_t)nearest(levels, src[i] * inverse);
    }
}

/* The layout of llm_scales_six_bits. */
static void put_six_bits(uint8_t *p, const int scales[8], const int minima[8])
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(scales[i] | (scales[i + 4] >> 4) << 6);
        p[i + 4] = (uint8_t)(minima[i] | (minima[i + 4] >> 4) << 6);
        p[i + 8] = (uint8_t)((scales[i + 4] & 15) | (minima[i + 4] & 15) << 4);
    }
}

/* Values 64 g + i in the low nibbles of byte 32 g + i, values 64 g + 32 + i in the high ones. */
static void put_nibbles_by_64(uint8_t *dst, const uint8_t codes[SUPER])
{
    for (int i = 0; i < SUPER / 2; i++) {
        const uint8_t *from = codes + i / 32 * 64 + i % 32;
        dst[i] = (uint8_t)((from[0] & 15) | (from[32] & 15) << 4);
    }
}

/* The layout of Q2_K in llm_raw32. */
static void put_pairs(uint8_t *dst, const uint8_t codes[SUPER])
{
    memset(dst, 0, SUPER / 4);
    for (int i = 0; i < SUPER; i++)
        dst[i / 128 * 32 + i % 32] |= (uint8_t)((codes[i] & 3) << i % 128 / 32 * 2);
}

void llm_pack_q2_k(uint8_t *dst, const float *src, int tries)
{
    struct parts parts;
    pack_ranges(&(struct super){.subs = 16, .top = 3, .scale_high = 15}, dst + 80, dst + 82, src,
                tries, &parts);
    for (int i = 0; i < 16; i++)
        dst[i] = (uint8_t)(parts.scales[i] | parts.minima[i] << 4);
    put_pairs(dst + 16, parts.codes);
}

void llm_pack_q3_k(uint8_t *dst, const float *src, int tries)
{
    struct parts parts;
    pack_steps(&(struct super){.subs = 16, .scale_low = -32, .scale_high = 31}, &levels_3,
               dst + 108, src, tries, &parts);
    memset(dst, 0, 32);
    for (int i = 0; i < SUPER; i++)
        dst[i % 32] |= (uint8_t)(parts.codes[i] >> 2 << i / 32);
    put_pairs(dst + 32, parts.codes);
    memset(dst + 96, 0, 12);
    for (int i = 0; i < 16; i++) {
        unsigned scale = (unsigned)(parts.scales[i] + 32);
        dst[96 + i % 8] |= (uint8_t)((scale & 15) << i / 8 * 4);
        dst[104 + i % 4] |= (uint8_t)(scale >> 4 << i / 4 * 2);
    }
}

void llm_pack_q4_k(uint8_t *dst, const float *src, int tries)
{
    struct parts parts;
    pack_ranges(&(struct super){.subs = 8, .top = 15, .scale_high = 63}, dst, dst + 2, src, tries,
                &parts);
    put_six_bits(dst + 4, parts.scales, parts.minima);
    put_nibbles_by_64(dst + 16, parts.codes);
}

void llm_pack_q5_k(uint8_t *dst, const float *src, int tries)
{
    struct parts parts;
    pack_ranges(&(struct super){.subs = 8, .top = 31, .scale_high = 63}, dst, dst + 2, src, tries,
                &parts);
    put_six_bits(dst + 4, parts.scales, parts.minima);
    memset(dst + 16, 0, 32);
    for (int i = 0; i < SUPER; i++)
        dst[16 + i % 32] |= (uint8_t)(parts.codes[i] >> 4 << i / 32);
    put_nibbles_by_64(dst + 48, parts.codes);
}

/* Halves of 128 values: 64 bytes of low nibbles, which runs 0 and 2, 1 and 3 share, and 32 bytes of
 * high pairs, which all four share. */
void llm_pack_q6_k(uint8_t *dst, const float *src, int tries)
{
    struct parts parts;
    pack_steps(&(struct super){.subs = 16, .scale_low = -127, .scale_high = 127}, &levels_6,
               dst + 208, src, tries, &parts);
    memset(dst, 0, 192);
    for (int i = 0; i < SUPER; i++) {
        int half = i / 128, run = i % 128 / 32, l = i % 32;
        dst[64 * half + 32 * (run % 2) + l] |= (uint8_t)((parts.codes[i] & 15) << run / 2 * 4);
        dst[128 + 32 * half + l] |= (uint8_t)(parts.codes[i] >> 4 << 2 * run);
    }
    for (int i = 0; i < 16; i++)
        dst[192 + i] = (uint8_t)parts.scales[i];
}

void llm_pack_iq4_xs(uint8_t *dst, const float *src, int tries)
{
    struct parts parts;
    unsigned high = 0;
    pack_steps(&(struct super){.subs = 8, .scale_low = -32, .scale_high = 31}, &levels_iq4, dst,
               src, tries, &parts);
    memset(dst + 4, 0, 4);
    for (int i = 0; i < 8; i++) {
        unsigned scale = (unsigned)(parts.scales[i] + 32);
        dst[4 + i / 2] |= (uint8_t)((scale & 15) << i % 2 * 4);
        high |= scale >> 4 << 2 * i;
        put_nibbles(dst + 8 + 16 * i, parts.codes + 32 * i);
    }
    wire_store16(dst + 2, (uint16_t)high);
}
