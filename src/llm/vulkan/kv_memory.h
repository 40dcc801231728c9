/* llm/vulkan/kv_memory.h - private to src/llm: KV pages on a Vulkan device.
 *
 * A slab is a block of device memory.  A page in it is 64 rows of K, then 64 of V, each padded to a
 * multiple of 8 values so that a thread loads 8 at once.  Shaders find pages by address; the CPU
 * looks the addresses up once a step.  So slabs may lie anywhere, and need no sparse binding.
 *
 * Threads and lifetime: as the device's. */
#ifndef HAWSER_LLM_VULKAN_KV_MEMORY_H
#define HAWSER_LLM_VULKAN_KV_MEMORY_H

#include "llm/engine/backend.h"
#include "llm/vulkan/memory.h"

#define LLM_VK_SLAB_BYTES (UINT64_C(32) << 20)

enum { LLM_VK_SLABS_MAX = 4096 }; /* drivers allow at least as many allocations: 128 GiB */

struct llm_kv_memory;

int llm_vk_kv_create(struct llm_vk_memory *m, const struct llm_kv_shape *shape,
                     struct llm_kv_memory **out, char *why) MUST_CHECK;
void llm_vk_kv_destroy(struct llm_kv_memory *kv);
uint64_t llm_vk_kv_slab(const struct llm_kv_memory *kv);
int llm_vk_kv_map(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count,
                  char *why) MUST_CHECK;
int llm_vk_kv_unmap(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count,
                    char *why) MUST_CHECK;
int llm_vk_kv_read(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst,
                   char *why) MUST_CHECK;
int llm_vk_kv_read_all(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, uint32_t count,
                       void *dst, char *why) MUST_CHECK;
/* Queued: see llm_vk_queue. */
int llm_vk_kv_write(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, const void *src,
                    char *why) MUST_CHECK;

VkDeviceAddress llm_vk_kv_page(const struct llm_kv_memory *kv, uint32_t id); /* mapped */
uint32_t llm_vk_kv_row_values(const struct llm_kv_memory *kv);
uint32_t llm_vk_kv_row_words(const struct llm_kv_memory *kv); /* from one row to the next */
/* From a page's begin to its K (0) or V (1), in words of 4 bytes. */
uint32_t llm_vk_kv_words(const struct llm_kv_memory *kv, unsigned v);

#endif
