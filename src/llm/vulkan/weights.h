/* llm/vulkan/weights.h - private to src/llm: weights as the shaders read them.
 *
 * Rows begin at multiples of 16 bytes, so that a thread loads 16 bytes at once:
 *
 *   F32, F16, BF16   as in the file, padded with zeros
 *   Q4_K, Q5_K       as in the file: a block is 144 or 176 bytes
 *   Q3_K             as in the file, a block padded to 112 bytes
 *   others           of each block the values and what fills whole quads with them; then, for all
 *                    blocks, the rest: scales d, and what the table in weights.c says
 *
 * The values are the file's, without rounding.
 *
 * Threads and lifetime: as the device's. */
#ifndef HAWSER_LLM_VULKAN_WEIGHTS_H
#define HAWSER_LLM_VULKAN_WEIGHTS_H

#include "llm/engine/backend.h"
#include "llm/vulkan/memory.h"

#include <sys/queue.h>

struct llm_weight {
    enum llm_dtype dtype;
    uint32_t width, count;
    uint32_t stride;           /* of rows, in quads of 16 bytes */
    struct llm_vk_piece piece; /* none while the weights are put aside */
    const struct llm_tensor *tensor;
    uint64_t first; /* row of the tensor */
    TAILQ_ENTRY(llm_weight) entry;
};

/* All of a device, as they were created: about the file's order, which is read ahead. */
TAILQ_HEAD(llm_vk_weights, llm_weight);

/* As llm_backend_ops' weight_create. */
int llm_vk_weight_create(struct llm_vk_memory *m, struct llm_vk_weights *all,
                         const struct llm_tensor *tensor, uint64_t first, uint64_t rows,
                         struct llm_weight **out, char *why) MUST_CHECK;
void llm_vk_weight_destroy(struct llm_vk_memory *m, struct llm_vk_weights *all,
                           struct llm_weight *weight);

/* As llm_backend_ops' weights_leave and weights_return. */
uint64_t llm_vk_weights_leave(struct llm_vk_memory *m, struct llm_vk_weights *all);
int llm_vk_weights_return(struct llm_vk_memory *m, struct llm_vk_weights *all,
                          char *why) MUST_CHECK;

#endif
