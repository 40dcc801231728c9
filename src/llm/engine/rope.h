/* llm/engine/rope.h - the angles by which rotary positions turn queries and keys.
 *
 * Pair i of a head turns by position / scale * base^(-2i / dims) / factor i.  Angles are computed
 * in binary64, their sine and cosine rounded to binary32, once a step for all backends and layers:
 * a device's own sine may be inexact for large angles.
 *
 * Threads: any once created.  Lifetime: create/destroy. */
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

/* The pairs (cos, sin) of one position. */
void llm_rope_angles(const struct llm_rope *rope, uint32_t position, float *out);

#endif
