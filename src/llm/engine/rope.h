/* llm/engine/rope.h - the angles by which rotary positions turn queries and keys.
 *
 * Pair i of a head turns by position * base^(-2i / dims) / (scale * factor i).  Turns are computed
 * in binary64, sines and cosines rounded to binary32, once a step for all backends and layers: a
 * device's own sine may be inexact for large angles.  They depend on the position alone.
 *
 * YaRN divides by the scale only pairs that turn less than yarn_slow times within the positions
 * that the model was first made for, by nothing those that turn more than yarn_fast times, and by
 * parts those between; sines and cosines are multiplied by 1 + ln(scale) / 10, over 1 + yarn_log *
 * ln(scale) / 10 where the file has a yarn_log.  Llama 3's scaling and longrope's are the factors.
 *
 * A batch has several tables where layers with a window turn otherwise than others, or where
 * queries grow with the position (llm_config.temperature).
 *
 * Threads: one at a time.  Lifetime: create/destroy. */
#ifndef HAWSER_LLM_ENGINE_ROPE_H
#define HAWSER_LLM_ENGINE_ROPE_H

#include "base/attr.h"
#include "llm/model/shape.h"

struct llm_rope;

/* factors: dims / 2 values, or NULL.  0, -ENOMEM. */
int llm_rope_create(const struct llm_config *config, const float *factors,
                    struct llm_rope **out) MUST_CHECK;
void llm_rope_destroy(struct llm_rope *rope);

uint32_t llm_rope_pairs(const struct llm_rope *rope); /* 0 for a model with learned positions */

uint32_t llm_rope_tables(const struct llm_rope *rope); /* 1 to LLM_ROPE_TABLES_MAX */

/* Which table the queries and keys of a layer take. */
struct llm_rope_choice {
    uint32_t q, k;
};
struct llm_rope_choice llm_rope_choose(const struct llm_config *config, uint32_t layer);

/* The pairs (cos, sin) of one position in one table. */
void llm_rope_angles(struct llm_rope *rope, uint32_t table, uint32_t position, float *out);

#endif
