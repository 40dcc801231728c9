#include "llm/model/dtype.h"

#include "base/attr.h"
#include "llm/model/type/blocks.h"
#include "llm/model/type/pack.h"

#include <math.h>
#include <stdio.h>
#include <strings.h>

enum {
    FIT_TRIES = 8, /* on either side; 16 lower the squared error by less than 0.5% more */
    Q8_0_BYTES = 34,
    Q4_0_BYTES = 18,
    SMALL = 32,  /* values in a block of Q8_0, Q4_0 and the like */
    SUPER = 256, /* of the K types and IQ4_XS */
};

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

static void q8_0_from_f32(uint8_t *dst, const float *src, size_t count)
{
    for (size_t b = 0; b < count / SMALL; b++, dst += Q8_0_BYTES, src += SMALL) {
        float d = llm_pack_half(dst, fabsf(llm_pack_extreme(src, SMALL)) / 127);
        float inv = llm_pack_inverse(d);
        for (size_t i = 0; i < SMALL; i++)
            dst[2 + i] = (uint8_t)llm_pack_round(src[i] * inv, -127, 127);
    }
}

/* The extreme becomes -8, which nibbles reach; 8 they do not. */
static void q4_0_from_f32(uint8_t *dst, const float *src, size_t count)
{
    for (size_t b = 0; b < count / SMALL; b++, dst += Q4_0_BYTES, src += SMALL) {
        float inv = llm_pack_inverse(llm_pack_half(dst, llm_pack_extreme(src, SMALL) / -8));
        for (size_t i = 0; i < SMALL / 2; i++) {
            int low = llm_pack_round(src[i] * inv, -8, 7) + 8;
            int high = llm_pack_round(src[i + SMALL / 2] * inv, -8, 7) + 8;
            dst[2 + i] = (uint8_t)(low | high << 4);
        }
    }
}

/* Blocks, by way of bytes. */
static void w32_to_f32(enum llm_dtype dtype, float *dst, const uint8_t *src, size_t count)
{
    uint32_t bytes = llm_dtype_block_bytes(dtype);
    for (; count; count -= SMALL, src += bytes, dst += SMALL) {
        struct llm_w32 w;
        llm_unpack32(dtype, &w, src, SMALL);
        for (size_t i = 0; i < SMALL; i++)
            dst[i] = w.scale * (float)w.values[i] + w.min;
    }
}

static void w256_to_f32(enum llm_dtype dtype, float *dst, const uint8_t *src, size_t count)
{
    uint32_t bytes = llm_dtype_block_bytes(dtype);
    for (; count; count -= SUPER, src += bytes, dst += SUPER) {
        struct llm_w256 w;
        llm_unpack256(dtype, &w, src, SUPER);
        for (size_t i = 0; i < SUPER; i++)
            dst[i] = w.scale * (float)w.inner.scales[i / 16] * (float)w.values[i] -
                     w.min * (float)w.inner.minima[i / 16];
    }
}

/* to_f32 is NULL for types in blocks; from_f32 or pack is set. */
struct dtype_info {
    enum llm_dtype dtype;
    const char *name;
    uint32_t block, block_bytes;
    void (*to_f32)(float *dst, const uint8_t *src, size_t count);
    void (*from_f32)(uint8_t *dst, const float *src, size_t count);
    llm_pack *pack;
};

static const struct dtype_info infos[] = {
    {LLM_F32, "F32", 1, 4, f32_to_f32, f32_from_f32, NULL},
    {LLM_F16, "F16", 1, 2, f16_to_f32, f16_from_f32, NULL},
    {LLM_BF16, "BF16", 1, 2, bf16_to_f32, bf16_from_f32, NULL},
    {LLM_Q8_0, "Q8_0", SMALL, Q8_0_BYTES, NULL, q8_0_from_f32, NULL},
    {LLM_Q4_0, "Q4_0", SMALL, Q4_0_BYTES, NULL, q4_0_from_f32, NULL},
    {LLM_Q4_1, "Q4_1", SMALL, 20, NULL, NULL, llm_pack_q4_1},
    {LLM_Q5_0, "Q5_0", SMALL, 22, NULL, NULL, llm_pack_q5_0},
    {LLM_Q5_1, "Q5_1", SMALL, 24, NULL, NULL, llm_pack_q5_1},
    {LLM_IQ4_NL, "IQ4_NL", SMALL, 18, NULL, NULL, llm_pack_iq4_nl},
    {LLM_MXFP4, "MXFP4", SMALL, 17, NULL, NULL, llm_pack_mxfp4},
    {LLM_Q2_K, "Q2_K", SUPER, 84, NULL, NULL, llm_pack_q2_k},
    {LLM_Q3_K, "Q3_K", SUPER, 110, NULL, NULL, llm_pack_q3_k},
    {LLM_Q4_K, "Q4_K", SUPER, 144, NULL, NULL, llm_pack_q4_k},
    {LLM_Q5_K, "Q5_K", SUPER, 176, NULL, NULL, llm_pack_q5_k},
    {LLM_Q6_K, "Q6_K", SUPER, 210, NULL, NULL, llm_pack_q6_k},
    {LLM_IQ4_XS, "IQ4_XS", SUPER, 136, NULL, NULL, llm_pack_iq4_xs},
};

_Static_assert(ARRAY_LEN(infos) == LLM_DTYPES, "every type");

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

enum llm_dtype llm_dtype_at(size_t i)
{
    assert(i < LLM_DTYPES);
    return infos[i].dtype;
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
    if (info->to_f32)
        info->to_f32(dst, src, count);
    else if (info->block == SMALL)
        w32_to_f32(dtype, dst, src, count);
    else
        w256_to_f32(dtype, dst, src, count);
}

static void from_f32(enum llm_dtype dtype, uint8_t *dst, const float *src, size_t count, int tries)
{
    const struct dtype_info *info = info_of(dtype);
    assert(count % info->block == 0);
    if (info->from_f32) {
        info->from_f32(dst, src, count);
        return;
    }
    for (; count; count -= info->block, src += info->block, dst += info->block_bytes)
        info->pack(dst, src, tries);
}

void llm_dtype_from_f32(enum llm_dtype dtype, void *dst, const float *src, size_t count)
{
    from_f32(dtype, dst, src, count, 0);
}

void llm_dtype_fit_f32(enum llm_dtype dtype, void *dst, const float *src, size_t count)
{
    from_f32(dtype, dst, src, count, FIT_TRIES);
}

const char *llm_dtype_names(char text[LLM_DTYPE_NAMES_CHARS])
{
    size_t used = 0;
    for (size_t i = 0; i < ARRAY_LEN(infos); i++)
        used += (size_t)snprintf(text + used, LLM_DTYPE_NAMES_CHARS - used, "%s%s",
                                 i == 0                     ? ""
                                 : i + 1 < ARRAY_LEN(infos) ? ", "
                                                            : " and ",
                                 infos[i].name);
    assert(used < LLM_DTYPE_NAMES_CHARS);
    return text;
}
