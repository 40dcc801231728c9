#include "llm/vulkan/shaders.h"

#include "base/attr.h"

#include <assert.h>

/* The build writes each initialiser into its own file. */
/* clang-format off */
static const uint32_t embed_f32[] =
#include "llm_embed_f32.spv.inc"
;
static const uint32_t embed_f16[] =
#include "llm_embed_f16.spv.inc"
;
static const uint32_t embed_bf16[] =
#include "llm_embed_bf16.spv.inc"
;
static const uint32_t embed_q8_0[] =
#include "llm_embed_q8_0.spv.inc"
;
static const uint32_t embed_q4_0[] =
#include "llm_embed_q4_0.spv.inc"
;
static const uint32_t embed_q4_1[] =
#include "llm_embed_q4_1.spv.inc"
;
static const uint32_t embed_q5_0[] =
#include "llm_embed_q5_0.spv.inc"
;
static const uint32_t embed_q5_1[] =
#include "llm_embed_q5_1.spv.inc"
;
static const uint32_t embed_iq4_nl[] =
#include "llm_embed_iq4_nl.spv.inc"
;
static const uint32_t embed_mxfp4[] =
#include "llm_embed_mxfp4.spv.inc"
;
static const uint32_t embed_q2_k[] =
#include "llm_embed_q2_k.spv.inc"
;
static const uint32_t embed_q3_k[] =
#include "llm_embed_q3_k.spv.inc"
;
static const uint32_t embed_q4_k[] =
#include "llm_embed_q4_k.spv.inc"
;
static const uint32_t embed_q5_k[] =
#include "llm_embed_q5_k.spv.inc"
;
static const uint32_t embed_q6_k[] =
#include "llm_embed_q6_k.spv.inc"
;
static const uint32_t embed_iq4_xs[] =
#include "llm_embed_iq4_xs.spv.inc"
;
static const uint32_t mul_f32[] =
#include "llm_mul_f32.spv.inc"
;
static const uint32_t mul_f16[] =
#include "llm_mul_f16.spv.inc"
;
static const uint32_t mul_bf16[] =
#include "llm_mul_bf16.spv.inc"
;
static const uint32_t mul_q8_0[] =
#include "llm_mul_q8_0.spv.inc"
;
static const uint32_t mul_q8_0_dot[] =
#include "llm_mul_q8_0_dot.spv.inc"
;
static const uint32_t mul_q4_0[] =
#include "llm_mul_q4_0.spv.inc"
;
static const uint32_t mul_q4_0_dot[] =
#include "llm_mul_q4_0_dot.spv.inc"
;
static const uint32_t mul_q4_1[] =
#include "llm_mul_q4_1.spv.inc"
;
static const uint32_t mul_q4_1_dot[] =
#include "llm_mul_q4_1_dot.spv.inc"
;
static const uint32_t mul_q5_0[] =
#include "llm_mul_q5_0.spv.inc"
;
static const uint32_t mul_q5_0_dot[] =
#include "llm_mul_q5_0_dot.spv.inc"
;
static const uint32_t mul_q5_1[] =
#include "llm_mul_q5_1.spv.inc"
;
static const uint32_t mul_q5_1_dot[] =
#include "llm_mul_q5_1_dot.spv.inc"
;
static const uint32_t mul_iq4_nl[] =
#include "llm_mul_iq4_nl.spv.inc"
;
static const uint32_t mul_iq4_nl_dot[] =
#include "llm_mul_iq4_nl_dot.spv.inc"
;
static const uint32_t mul_mxfp4[] =
#include "llm_mul_mxfp4.spv.inc"
;
static const uint32_t mul_mxfp4_dot[] =
#include "llm_mul_mxfp4_dot.spv.inc"
;
static const uint32_t mul_q2_k[] =
#include "llm_mul_q2_k.spv.inc"
;
static const uint32_t mul_q2_k_dot[] =
#include "llm_mul_q2_k_dot.spv.inc"
;
static const uint32_t mul_q3_k[] =
#include "llm_mul_q3_k.spv.inc"
;
static const uint32_t mul_q3_k_dot[] =
#include "llm_mul_q3_k_dot.spv.inc"
;
static const uint32_t mul_q4_k[] =
#include "llm_mul_q4_k.spv.inc"
;
static const uint32_t mul_q4_k_dot[] =
#include "llm_mul_q4_k_dot.spv.inc"
;
static const uint32_t mul_q5_k[] =
#include "llm_mul_q5_k.spv.inc"
;
static const uint32_t mul_q5_k_dot[] =
#include "llm_mul_q5_k_dot.spv.inc"
;
static const uint32_t mul_q6_k[] =
#include "llm_mul_q6_k.spv.inc"
;
static const uint32_t mul_q6_k_dot[] =
#include "llm_mul_q6_k_dot.spv.inc"
;
static const uint32_t mul_iq4_xs[] =
#include "llm_mul_iq4_xs.spv.inc"
;
static const uint32_t mul_iq4_xs_dot[] =
#include "llm_mul_iq4_xs_dot.spv.inc"
;
static const uint32_t pick_rows[] =
#include "llm_pick.spv.inc"
;
static const uint32_t norm_rows[] =
#include "llm_norm.spv.inc"
;
static const uint32_t round_rows[] =
#include "llm_round.spv.inc"
;
static const uint32_t round_half_rows[] =
#include "llm_round_half.spv.inc"
;
static const uint32_t rope_rows[] =
#include "llm_rope.spv.inc"
;
static const uint32_t append_rows[] =
#include "llm_append.spv.inc"
;
static const uint32_t attend_rows[] =
#include "llm_attend.spv.inc"
;
static const uint32_t merge_rows[] =
#include "llm_merge.spv.inc"
;
static const uint32_t activate_rows[] =
#include "llm_activate.spv.inc"
;
static const uint32_t route_rows[] =
#include "llm_route.spv.inc"
;
static const uint32_t add_rows[] =
#include "llm_add.spv.inc"
;
static const uint32_t scale_rows[] =
#include "llm_scale.spv.inc"
;
/* clang-format on */

#define CODE(words) words, sizeof(words)

#define PLAIN(dtype, name)                                                                         \
    {LLM_VK_EMBED, dtype, false, CODE(embed_##name)},                                              \
    {                                                                                              \
        LLM_VK_MUL, dtype, false, CODE(mul_##name)                                                 \
    }
#define QUANTISED(dtype, name)                                                                     \
    PLAIN(dtype, name),                                                                            \
    {                                                                                              \
        LLM_VK_MUL, dtype, true, CODE(mul_##name##_dot)                                            \
    }

static const struct llm_vk_code codes[] = {
    PLAIN(LLM_F32, f32),
    PLAIN(LLM_F16, f16),
    PLAIN(LLM_BF16, bf16),
    QUANTISED(LLM_Q8_0, q8_0),
    QUANTISED(LLM_Q4_0, q4_0),
    QUANTISED(LLM_Q4_1, q4_1),
    QUANTISED(LLM_Q5_0, q5_0),
    QUANTISED(LLM_Q5_1, q5_1),
    QUANTISED(LLM_IQ4_NL, iq4_nl),
    QUANTISED(LLM_MXFP4, mxfp4),
    QUANTISED(LLM_Q2_K, q2_k),
    QUANTISED(LLM_Q3_K, q3_k),
    QUANTISED(LLM_Q4_K, q4_k),
    QUANTISED(LLM_Q5_K, q5_k),
    QUANTISED(LLM_Q6_K, q6_k),
    QUANTISED(LLM_IQ4_XS, iq4_xs),
    {LLM_VK_PICK, LLM_F32, false, CODE(pick_rows)},
    {LLM_VK_NORM, LLM_F32, false, CODE(norm_rows)},
    {LLM_VK_ROUND, LLM_F32, false, CODE(round_rows)},
    {LLM_VK_ROUND_HALF, LLM_F32, false, CODE(round_half_rows)},
    {LLM_VK_ROPE, LLM_F32, false, CODE(rope_rows)},
    {LLM_VK_APPEND, LLM_F32, false, CODE(append_rows)},
    {LLM_VK_ATTEND, LLM_F32, false, CODE(attend_rows)},
    {LLM_VK_MERGE, LLM_F32, false, CODE(merge_rows)},
    {LLM_VK_ACTIVATE, LLM_F32, false, CODE(activate_rows)},
    {LLM_VK_ROUTE, LLM_F32, false, CODE(route_rows)},
    {LLM_VK_ADD, LLM_F32, false, CODE(add_rows)},
    {LLM_VK_SCALE, LLM_F32, false, CODE(scale_rows)},
};

const struct llm_vk_code *llm_vk_code(enum llm_vk_shader shader, enum llm_dtype dtype, bool has_dot)
{
    const struct llm_vk_code *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        const struct llm_vk_code *c = &codes[i];
        if (c->shader == shader && c->dtype == dtype && (!c->dot || has_dot))
            found = c; /* the last match: that with dot products comes second */
    }
    assert(found);
    return found;
}
