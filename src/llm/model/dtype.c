#include "llm/model/dtype.h"

#include "base/attr.h"
#include "wire/half.h"
#include "wire/le.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum {
    Q8_0_BYTES = 34,
    Q4_0_BYTES = 18,
    Q4_K_BYTES = 144,
    Q6_K_BYTES = 210,
    SMALL = 32,  /* values in a block of Q8_0 and Q4_0 */
    SUPER = 256, /* of the K types */
};

/* Where the parts of the K blocks begin. */
enum {
    Q4_K_DMIN = 2,
    Q4_K_SCALES = 4,
    Q4_K_NIBBLES = 16,
    Q6_K_HIGH = 128,
    Q6_K_SCALES = 192,
    Q6_K_D = 208,
};

static float load_half(const uint8_t *p)
{
    uint32_t bits = wire_half_to_bits(wire_load16(p));
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Returns the stored value, by which the rest of the block is scaled. */
static float store_half(uint8_t *p, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    wire_store16(p, wire_half_from_bits(bits));
    return load_half(p);
}

static int round_within(float value, int low, int high)
{
    long nearest = lrintf(value);
    return nearest < low ? low : nearest > high ? high : (int)nearest;
}

static float inverse(float scale)
{
    return scale != 0 ? 1 / scale : 0;
}

/* The value of the largest magnitude, with its sign. */
static float extreme_of(const float *x, size_t count)
{
    float extreme = 0;
    for (size_t i = 0; i < count; i++) {
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    }
    return extreme;
}

static void f32_to_f32(float *dst, const uint8_t *src, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = wire_load32(src + 4 * i);
        memcpy(dst + i, &bits, sizeof(bits));
    }
}

static void f32_from_f32(uint8_t *dst, const float *src, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof(bits));
        wire_store32(dst + 4 * i, bits);
    }
}

static void f16_to_f32(float *dst, const uint8_t *src, size_t count)
{
    wire_half_to_f32(dst, src, count);
}

static void f16_from_f32(uint8_t *dst, const float *src, size_t count)
{
    wire_half_from_f32(dst, src, count);
}

static void bf16_to_f32(float *dst, const uint8_t *src, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)wire_load16(src + 2 * i) << 16;
        memcpy(dst + i, &bits, sizeof(bits));
    }
}

/* To nearest, ties to even; a NaN stays one, quiet. */
static void bf16_from_f32(uint8_t *dst, const float *src, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof(bits));
        if (isnan(src[i]))
            bits |= 0x400000;
        else
            bits += 0x7fff + (bits >> 16 & 1);
        wire_store16(dst + 2 * i, (uint16_t)(bits >> 16));
    }
}

static void q8_0_to_f32(float *dst, const uint8_t *src, size_t count)
{
    for (size_t b = 0; b < count / SMALL; b++, src += Q8_0_BYTES, dst += SMALL) {
        float d = load_half(src);
        for (size_t i = 0; i < SMALL; i++)
            dst[i] = d * (float)(int8_t)src[2 + i];
    }
}

static void q8_0_from_f32(uint8_t *dst, const float *src, size_t count)
{
    for (size_t b = 0; b < count / SMALL; b++, dst += Q8_0_BYTES, src += SMALL) {
        float d = store_half(dst, fabsf(extreme_of(src, SMALL)) / 127);
        float inv = inverse(d);
        for (size_t i = 0; i < SMALL; i++)
            dst[2 + i] = (uint8_t)round_within(src[i] * inv, -127, 127);
    }
}

static void q4_0_to_f32(float *dst, const uint8_t *src, size_t count)
{
    for (size_t b = 0; b < count / SMALL; b++, src += Q4_0_BYTES, dst += SMALL) {
        float d = load_half(src);
        for (size_t i = 0; i < SMALL / 2; i++) {
            dst[i] = d * (float)((src[2 + i] & 15) - 8);
            dst[i + SMALL / 2] = d * (float)((src[2 + i] >> 4) - 8);
        }
    }
}

/* The extreme becomes -8, which nibbles reach; 8 they do not. */
static void q4_0_from_f32(uint8_t *dst, const float *src, size_t count)
{
    for (size_t b = 0; b < count / SMALL; b++, dst += Q4_0_BYTES, src += SMALL) {
        float inv = inverse(store_half(dst, extreme_of(src, SMALL) / -8));
        for (size_t i = 0; i < SMALL / 2; i++) {
            int low = round_within(src[i] * inv, -8, 7) + 8;
            int high = round_within(src[i + SMALL / 2] * inv, -8, 7) + 8;
            dst[2 + i] = (uint8_t)(low | high << 4);
        }
    }
}

/* Eight 6-bit scales and eight 6-bit mins in 12 bytes: the first four of each in the low bits of
 * bytes 0..3 and 4..7, the others' low nibbles in bytes 8..11 and their high pairs on top of the
 * first eight bytes. */
static void q4_k_unpack(const uint8_t *p, uint8_t scales[8], uint8_t mins[8])
{
    for (size_t i = 0; i < 4; i++) {
        scales[i] = p[i] & 63;
        mins[i] = p[i + 4] & 63;
        scales[i + 4] = (uint8_t)((p[i + 8] & 15) | (p[i] >> 6) << 4);
        mins[i + 4] = (uint8_t)(p[i + 8] >> 4 | (p[i + 4] >> 6) << 4);
    }
}

static void q4_k_pack(uint8_t *p, const uint8_t scales[8], const uint8_t mins[8])
{
    for (size_t i = 0; i < 4; i++) {
        p[i] = (uint8_t)(scales[i] | (scales[i + 4] >> 4) << 6);
        p[i + 4] = (uint8_t)(mins[i] | (mins[i + 4] >> 4) << 6);
        p[i + 8] = (uint8_t)((scales[i + 4] & 15) | (mins[i + 4] & 15) << 4);
    }
}

static void q4_k_to_f32(float *dst, const uint8_t *src, size_t count)
{
    for (size_t b = 0; b < count / SUPER; b++, src += Q4_K_BYTES, dst += SUPER) {
        uint8_t scales[8], mins[8];
        q4_k_unpack(src + Q4_K_SCALES, scales, mins);
        float d = load_half(src), dmin = load_half(src + Q4_K_DMIN);
        for (size_t i = 0; i < SUPER; i++) {
            size_t sub = i / 32;
            uint8_t byte = src[Q4_K_NIBBLES + i / 64 * 32 + i % 32];
            int q = sub % 2 ? byte >> 4 : byte & 15;
            dst[i] = d * scales[sub] * (float)q - dmin * mins[sub];
        }
    }
}

/* Of a sub-block of 32: x = step * q - low, with low never negative. */
static void q4_k_range(const float *x, float *step, float *low)
{
    float min = 0, max = 0;
    for (size_t i = 0; i < 32; i++) {
        min = fminf(min, x[i]);
        max = fmaxf(max, x[i]);
    }
    *step = (max - min) / 15;
    *low = -min;
}

static void q4_k_block_from_f32(uint8_t *dst, const float *src)
{
    float steps[8], lows[8], step_max = 0, low_max = 0;
    for (size_t sub = 0; sub < 8; sub++) {
        q4_k_range(src + 32 * sub, steps + sub, lows + sub);
        step_max = fmaxf(step_max, steps[sub]);
        low_max = fmaxf(low_max, lows[sub]);
    }
    float d = store_half(dst, step_max / 63), dmin = store_half(dst + Q4_K_DMIN, low_max / 63);
    uint8_t scales[8], mins[8];
    for (size_t sub = 0; sub < 8; sub++) {
        scales[sub] = (uint8_t)round_within(steps[sub] * inverse(d), 0, 63);
        mins[sub] = (uint8_t)round_within(lows[sub] * inverse(dmin), 0, 63);
    }
    q4_k_pack(dst + Q4_K_SCALES, scales, mins);
    memset(dst + Q4_K_NIBBLES, 0, SUPER / 2);
    for (size_t i = 0; i < SUPER; i++) {
        size_t sub = i / 32;
        float shifted = src[i] + dmin * mins[sub];
        int q = round_within(shifted * inverse(d * scales[sub]), 0, 15);
        dst[Q4_K_NIBBLES + i / 64 * 32 + i % 32] |= (uint8_t)(sub % 2 ? q << 4 : q);
    }
}

static void q4_k_from_f32(uint8_t *dst, const float *src, size_t count)
{
    for (size_t b = 0; b < count / SUPER; b++)
        q4_k_block_from_f32(dst + b * Q4_K_BYTES, src + b * SUPER);
}

/* Value i of a Q6_K block: its low nibble, its high pair and its scale.  A half of 128 values is
 * four quarters of 32; two quarters share bytes of nibbles, all four bytes of pairs. */
struct q6_k_place {
    size_t low, high, scale;
    unsigned low_shift, high_shift;
};

static struct q6_k_place q6_k_locate(size_t i)
{
    size_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
    return (struct q6_k_place){
        .low = half * 64 + quarter % 2 * 32 + l,
        .low_shift = quarter / 2 * 4,
        .high = Q6_K_HIGH + half * 32 + l,
        .high_shift = (unsigned)quarter * 2,
        .scale = Q6_K_SCALES + i / 16,
    };
}

static void q6_k_to_f32(float *dst, const uint8_t *src, size_t count)
{
    for (size_t b = 0; b < count / SUPER; b++, src += Q6_K_BYTES, dst += SUPER) {
        float d = load_half(src + Q6_K_D);
        for (size_t i = 0; i < SUPER; i++) {
            struct q6_k_place at = q6_k_locate(i);
            int low = src[at.low] >> at.low_shift & 15, high = src[at.high] >> at.high_shift & 3;
            dst[i] = d * (float)(int8_t)src[at.scale] * (float)((low | high << 4) - 32);
        }
    }
}

/* As Q4_0 in each sub-block of 16: the extreme becomes -32. */
static void q6_k_block_from_f32(uint8_t *dst, const float *src)
{
    float steps[16];
    for (size_t sub = 0; sub < 16; sub++)
        steps[sub] = extreme_of(src + 16 * sub, 16) / -32;
    memset(dst, 0, Q6_K_BYTES);
    float d = store_half(dst + Q6_K_D, fabsf(extreme_of(steps, 16)) / 127);
    for (size_t sub = 0; sub < 16; sub++)
        dst[Q6_K_SCALES + sub] = (uint8_t)round_within(steps[sub] * inverse(d), -127, 127);
    for (size_t i = 0; i < SUPER; i++) {
        struct q6_k_place at = q6_k_locate(i);
        float step = d * (float)(int8_t)dst[at.scale];
        unsigned q = (unsigned)(round_within(src[i] * inverse(step), -32, 31) + 32);
        dst[at.low] |= (uint8_t)((q & 15) << at.low_shift);
        dst[at.high] |= (uint8_t)(q >> 4 << at.high_shift);
    }
}

static void q6_k_from_f32(uint8_t *dst, const float *src, size_t count)
{
    for (size_t b = 0; b < count / SUPER; b++)
        q6_k_block_from_f32(dst + b * Q6_K_BYTES, src + b * SUPER);
}

struct dtype_info {
    enum llm_dtype dtype;
    const char *name;
    uint32_t block, block_bytes;
    void (*to_f32)(float *dst, const uint8_t *src, size_t count);
    void (*from_f32)(uint8_t *dst, const float *src, size_t count);
};

static const struct dtype_info infos[] = {
    {LLM_F32, "F32", 1, 4, f32_to_f32, f32_from_f32},
    {LLM_F16, "F16", 1, 2, f16_to_f32, f16_from_f32},
    {LLM_BF16, "BF16", 1, 2, bf16_to_f32, bf16_from_f32},
    {LLM_Q8_0, "Q8_0", SMALL, Q8_0_BYTES, q8_0_to_f32, q8_0_from_f32},
    {LLM_Q4_0, "Q4_0", SMALL, Q4_0_BYTES, q4_0_to_f32, q4_0_from_f32},
    {LLM_Q4_K, "Q4_K", SUPER, Q4_K_BYTES, q4_k_to_f32, q4_k_from_f32},
    {LLM_Q6_K, "Q6_K", SUPER, Q6_K_BYTES, q6_k_to_f32, q6_k_from_f32},
};

static const struct dtype_info *find_info(uint32_t number)
{
    for (size_t i = 0; i < ARRAY_LEN(infos); i++) {
        if ((uint32_t)infos[i].dtype == number)
            return &infos[i];
    }
    return NULL;
}

static const struct dtype_info *info_of(enum llm_dtype dtype)
{
    const struct dtype_info *info = find_info((uint32_t)dtype);
    assert(info);
    return info;
}

bool llm_dtype_known(uint32_t number)
{
    return find_info(number) != NULL;
}

const char *llm_dtype_name(enum llm_dtype dtype)
{
    const struct dtype_info *info = find_info((uint32_t)dtype);
    return info ? info->name : "?";
}

bool llm_dtype_parse(const char *name, enum llm_dtype *out)
{
    for (size_t i = 0; i < ARRAY_LEN(infos); i++) {
        if (strcasecmp(infos[i].name, name) == 0) {
            *out = infos[i].dtype;
            return true;
        }
    }
    return false;
}

uint32_t llm_dtype_block(enum llm_dtype dtype)
{
    return info_of(dtype)->block;
}

uint32_t llm_dtype_block_bytes(enum llm_dtype dtype)
{
    return info_of(dtype)->block_bytes;
}

uint64_t llm_dtype_bytes(enum llm_dtype dtype, uint64_t count)
{
    const struct dtype_info *info = info_of(dtype);
    assert(count % info->block == 0);
    return count / info->block * info->block_bytes;
}

void llm_dtype_to_f32(enum llm_dtype dtype, float *dst, const void *src, size_t count)
{
    const struct dtype_info *info = info_of(dtype);
    assert(count % info->block == 0);
    info->to_f32(dst, src, count);
}

void llm_dtype_from_f32(enum llm_dtype dtype, void *dst, const float *src, size_t count)
{
    const struct dtype_info *info = info_of(dtype);
    assert(count % info->block == 0);
    info->from_f32(dst, src, count);
}
