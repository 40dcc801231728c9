#include "llm/vulkan/shaders.h"

#include "base/attr.h"

#include <assert.h>

/* One array `spv_NAME[]` for each shader: shaders/llm/meson.build writes it. */
#include "llm_shaders.inc"

#define CODE(words) words, sizeof(words)

#define PLAIN(dtype, name)                                                                         \
    {LLM_VK_EMBED, dtype, false, CODE(spv_embed_##name)},                                          \
    {                                                                                              \
        LLM_VK_MUL, dtype, false, CODE(spv_mul_##name)                                             \
    }
#define QUANTISED(dtype, name)                                                                     \
    PLAIN(dtype, name),                                                                            \
    {                                                                                              \
        LLM_VK_MUL, dtype, true, CODE(spv_mul_##name##_dot)                                        \
    }

#ifdef LLM_VK_HAS_TILES
#define TILES(dtype, name)                                                                         \
    {                                                                                              \
        LLM_VK_MUL_TILE, dtype, false, CODE(spv_mul_tile_##name)                                   \
    }
#endif

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
#ifdef LLM_VK_HAS_TILES
    {LLM_VK_ATTEND_TILE, LLM_F32, false, CODE(spv_attend_tile)},
    TILES(LLM_F16, f16),
    TILES(LLM_Q8_0, q8_0),
    TILES(LLM_Q4_0, q4_0),
    TILES(LLM_Q4_1, q4_1),
    TILES(LLM_Q5_0, q5_0),
    TILES(LLM_Q5_1, q5_1),
    TILES(LLM_IQ4_NL, iq4_nl),
    TILES(LLM_MXFP4, mxfp4),
    TILES(LLM_Q2_K, q2_k),
    TILES(LLM_Q3_K, q3_k),
    TILES(LLM_Q4_K, q4_k),
    TILES(LLM_Q5_K, q5_k),
    TILES(LLM_Q6_K, q6_k),
    TILES(LLM_IQ4_XS, iq4_xs),
#endif
    {LLM_VK_PICK, LLM_F32, false, CODE(spv_pick)},
    {LLM_VK_NORM, LLM_F32, false, CODE(spv_norm)},
    {LLM_VK_ROUND, LLM_F32, false, CODE(spv_round)},
    {LLM_VK_ROPE, LLM_F32, false, CODE(spv_rope)},
    {LLM_VK_APPEND, LLM_F32, false, CODE(spv_append)},
    {LLM_VK_ATTEND, LLM_F32, false, CODE(spv_attend)},
    {LLM_VK_ACTIVATE, LLM_F32, false, CODE(spv_activate)},
    {LLM_VK_ROUTE, LLM_F32, false, CODE(spv_route)},
    {LLM_VK_BUNCH, LLM_F32, false, CODE(spv_bunch)},
    {LLM_VK_ADD, LLM_F32, false, CODE(spv_add)},
    {LLM_VK_SCALE, LLM_F32, false, CODE(spv_scale)},
    {LLM_VK_MOVE, LLM_F32, false, CODE(spv_move)},
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
