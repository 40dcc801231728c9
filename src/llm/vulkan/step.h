/* llm/vulkan/step.h - private to src/llm: a step as one submission.
 *
 * Ops are noted as they come; finish records them as one command buffer, submits it and waits.  A
 * step whose ops are those of the last one, as when tokens are generated, is not recorded again:
 * only what it is about changes, which lies in mapped memory and is copied to the device first.  At
 * the end the logits and the device's clock are copied to mapped memory.
 *
 * What an op reads and writes is told as ranges of addresses; a barrier is recorded where a range
 * meets one that was written, or a written one meets any, since the last barrier.
 *
 * Threads and lifetime: as the device's. */
#ifndef HAWSER_LLM_VULKAN_STEP_H
#define HAWSER_LLM_VULKAN_STEP_H

#include "llm/engine/backend.h"
#include "llm/vulkan/kv_memory.h"
#include "llm/vulkan/memory.h"
#include "llm/vulkan/pipelines.h"

enum {
    LLM_VK_USES_MAX = 4,    /* of one op */
    LLM_VK_RETIRED_MAX = 8, /* a model's layers all need the same; each growth doubles */
    LLM_VK_OPEN_MAX = 64,   /* ranges since the last barrier; past that one is recorded */
};

/* Where in the readback block finish puts what it fetches; the clock is before it. */
enum { LLM_VK_FETCH_AT = 256 };

struct llm_buffer {
    struct llm_vk_block block;
};

struct llm_vk_use {
    VkDeviceAddress from;
    uint64_t bytes;
    bool writes;
};

/* One op.  groups: workgroups in x, y, z. */
struct llm_vk_dispatch {
    struct llm_vk_variant variant;
    uint32_t groups[3];
    uint32_t push_bytes;
    uint8_t push[LLM_VK_PUSH_BYTES];
    struct llm_vk_use uses[LLM_VK_USES_MAX];
    uint32_t use_count;
};

/* Where the batch's numbers are on the device. */
struct llm_vk_inputs {
    VkDeviceAddress tokens, positions, page_first, picks, rope;
    VkDeviceAddress pages; /* addresses of the KV's pages, layer after layer */
    uint32_t page_stride;  /* from one layer's to the next */
};

/* All that a command buffer depends on. */
struct llm_vk_plan {
    struct llm_vk_dispatch *ops; /* grows */
    uint32_t count, room;
    uint64_t input_bytes;   /* that are copied first */
    struct llm_place fetch; /* what is brought along */
    uint64_t fetch_bytes;   /* 0: nothing */
};

struct llm_vk_step {
    struct llm_vk_memory *memory;
    struct llm_vk_pipelines *pipelines;
    bool noting; /* between begin and finish */
    int error;   /* the first of the step, and its words */
    char why[LLM_WHY_CHARS];

    struct llm_vk_block input_stage; /* mapped; what input_block is copied from */
    struct llm_vk_block input_block, round_block;
    struct llm_vk_inputs inputs;
    uint32_t rows, rope_pairs, pick_count;
    uint32_t positions_max;                          /* of a row: its own and those before */
    struct llm_vk_block part_block;                  /* attention's chunks; grows between ops */
    struct llm_vk_block retired[LLM_VK_RETIRED_MAX]; /* which ops noted before may name */
    uint32_t retired_count;
    uint32_t *pages; /* ids of the batch; grows */
    uint32_t page_count, layers;
    size_t page_room;
    const struct llm_kv_memory *kv; /* of the step: one at most */

    struct llm_vk_plan noted;    /* this step */
    struct llm_vk_plan recorded; /* what the command buffer holds; no ops: nothing */
    uint64_t recorded_ns;        /* how long the device took for it the last time; 0: not known */
    bool fetched;                /* what recorded.fetch names, while there is no other download */
    uint64_t fetched_after;      /* downloads */

    struct llm_vk_use open[LLM_VK_OPEN_MAX]; /* since the last barrier, while recording */
    uint32_t open_count;
};

void llm_vk_step_init(struct llm_vk_step *s, struct llm_vk_memory *m, struct llm_vk_pipelines *p);
void llm_vk_step_fini(struct llm_vk_step *s); /* zero is fine */

/* round_bytes: room for rounded activations.  0, -ENOMEM, -EIO, and why. */
int llm_vk_step_begin(struct llm_vk_step *s, const struct llm_batch *batch, uint64_t round_bytes,
                      char *why) MUST_CHECK;
int llm_vk_step_finish(struct llm_vk_step *s, uint64_t *kernel_ns, char *why) MUST_CHECK;
/* Instead of finish: compiles what the step needs and submits nothing. */
int llm_vk_step_prepare(struct llm_vk_step *s, char *why) MUST_CHECK;

/* Fills inputs.pages with those of kv. */
void llm_vk_step_use_kv(struct llm_vk_step *s, const struct llm_kv_memory *kv);
/* Where the table of a layer begins. */
VkDeviceAddress llm_vk_step_pages(const struct llm_vk_step *s, uint32_t layer);

/* Room for attention's chunks, for this step's ops: its address, or 0, which finish tells. */
VkDeviceAddress llm_vk_step_parts(struct llm_vk_step *s, uint64_t bytes);

/* Notes an op. */
void llm_vk_step_note(struct llm_vk_step *s, const struct llm_vk_dispatch *op);
/* The op that was noted last, to be changed before the next; NULL: none. */
struct llm_vk_dispatch *llm_vk_step_last(struct llm_vk_step *s);

/* The bytes from a place on, where finish brought them along and they are still so; else NULL. */
const void *llm_vk_step_fetched(const struct llm_vk_step *s, struct llm_place from, uint64_t bytes);

/* A buffer goes: what was recorded with it is not to be submitted again. */
void llm_vk_step_forget(struct llm_vk_step *s, const struct llm_buffer *buffer);

#endif
