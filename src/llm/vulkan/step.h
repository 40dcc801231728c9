/* llm/vulkan/step.h - private to src/llm: a step as one submission.
 *
 * Ops are noted; finish records them as one command buffer, submits it and waits.  A step with the
 * same ops as the last one, as in decoding, is submitted again without recording: only its inputs
 * change, which the command buffer first copies from mapped memory.  At its end it copies logits
 * and timestamps to mapped memory.
 *
 * Each op tells the address ranges that it reads and writes.  A barrier is recorded where a read
 * overlaps a write, or a write overlaps any range, since the last barrier.
 *
 * Threads and lifetime: as the device's. */
#ifndef HAWSER_LLM_VULKAN_STEP_H
#define HAWSER_LLM_VULKAN_STEP_H

#include "llm/engine/backend.h"
#include "llm/vulkan/kv_memory.h"
#include "llm/vulkan/memory.h"

enum {
    LLM_VK_USES_MAX = 4,     /* of one op */
    LLM_VK_RETIRED_MAX = 16, /* all layers need the same size; each growth doubles */
    LLM_VK_OPEN_MAX = 64,    /* ranges since the last barrier; a further one forces a barrier */
};

/* Where finish puts downloads in the output block, after the timestamps, and how much at most. */
enum { LLM_VK_FETCH_AT = 256, LLM_VK_FETCH_MAX = 64 << 20 };

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

/* Where the batch's inputs are on the device. */
struct llm_vk_inputs {
    VkDeviceAddress tokens, positions, page_first, picks, rope;
    VkDeviceAddress pages; /* addresses of the KV's pages, layer after layer */
    uint32_t page_stride;  /* from one layer's to the next */
};

/* All that a command buffer depends on. */
struct llm_vk_plan {
    struct llm_vk_dispatch *ops; /* grows */
    uint32_t count;
    size_t room;
    uint64_t input_bytes;   /* copied first */
    struct llm_place fetch; /* downloaded with the step */
    uint64_t fetch_bytes;   /* 0: nothing */
};

/* A copy of a list of the batch; grows. */
struct llm_vk_numbers {
    uint32_t *at;
    size_t room;
};

struct llm_vk_step {
    struct llm_vk_memory *memory;
    bool noting; /* between begin and finish */
    int error;   /* the first of the step, and its why */
    char why[LLM_WHY_CHARS];

    struct llm_vk_block input_stage; /* mapped; copied to input_block */
    struct llm_vk_block input_block, round_block;
    struct llm_vk_block output_block; /* mapped; the commands copy what is downloaded to it */
    struct llm_vk_inputs inputs;
    uint32_t rows, rope_pairs, pick_count;
    struct llm_vk_numbers seqs;                      /* of the rows */
    uint32_t positions_max;                          /* of a row: its own and those before */
    struct llm_vk_block part_block, arrival_block;   /* attention's chunks; grow between ops */
    struct llm_vk_block retired[LLM_VK_RETIRED_MAX]; /* earlier ops may use them */
    uint32_t retired_count;
    struct llm_vk_numbers pages; /* ids of the batch */
    uint32_t page_count, layers;
    const struct llm_kv_memory *kv; /* of the step; at most one */

    struct llm_vk_plan noted;    /* this step */
    struct llm_vk_plan recorded; /* in the command buffer; no ops: nothing */
    uint64_t recorded_ns;        /* its last time on the device; 0: not known */
    bool fetched;                /* the output block holds recorded.fetch */

    struct llm_vk_use open[LLM_VK_OPEN_MAX]; /* since the last barrier, while recording */
    uint32_t open_count;
};

void llm_vk_step_init(struct llm_vk_step *s, struct llm_vk_memory *m);
void llm_vk_step_fini(struct llm_vk_step *s); /* zero is fine */

/* round_bytes: room for rounded activations.  0, -ENOMEM, -EIO, and why. */
int llm_vk_step_begin(struct llm_vk_step *s, const struct llm_batch *batch, uint64_t round_bytes,
                      char *why) MUST_CHECK;
int llm_vk_step_finish(struct llm_vk_step *s, uint64_t *kernel_ns, char *why) MUST_CHECK;
/* Instead of finish: compiles the step's pipelines and submits nothing. */
int llm_vk_step_prepare(struct llm_vk_step *s, char *why) MUST_CHECK;

/* Fills inputs.pages with those of kv. */
void llm_vk_step_use_kv(struct llm_vk_step *s, const struct llm_kv_memory *kv);
/* The address of a layer's page table. */
VkDeviceAddress llm_vk_step_pages(const struct llm_vk_step *s, uint32_t layer);

/* Memory for attention's chunks in this step, and so many counters of those that are done, which
 * the shader leaves at zero: its address; 0 on an error, which finish tells. */
VkDeviceAddress llm_vk_step_parts(struct llm_vk_step *s, uint64_t bytes);
VkDeviceAddress llm_vk_step_arrivals(struct llm_vk_step *s, uint64_t count);

/* Notes an op. */
void llm_vk_step_note(struct llm_vk_step *s, const struct llm_vk_dispatch *op);
/* The last noted op, to change it before the next; NULL: none. */
struct llm_vk_dispatch *llm_vk_step_last(struct llm_vk_step *s);
/* Takes it back. */
void llm_vk_step_drop(struct llm_vk_step *s);

/* The bytes at a place, if finish downloaded them, until the next begin; else NULL. */
const void *llm_vk_step_fetched(const struct llm_vk_step *s, struct llm_place from, uint64_t bytes);

/* A buffer is about to be destroyed: a recording that uses it is dropped. */
void llm_vk_step_forget(struct llm_vk_step *s, const struct llm_buffer *buffer);

#endif
