/* llm/modes/remote_mode.h - what the modes with a worker share.
 *
 * Private to src/llm/modes.  Threads, lifetime: as the mode that it is part of; create/destroy. */
#ifndef HAWSER_LLM_MODES_REMOTE_MODE_H
#define HAWSER_LLM_MODES_REMOTE_MODE_H

#include "llm/modes/mode.h"

struct llm_remote_mode {
    struct llm_mode mode;
    const struct llm_file *file;
    struct llm_remote *remote;
    struct llm_sampler *sampler;
    float *logits;
    uint32_t vocab;
    uint32_t last; /* the last token, not yet computed */
    uint64_t serdes_ns;
};

/* The first member of a struct of `size` bytes whose rest is zero.  0, -ENOMEM, -EINVAL (sampling),
 * and why. */
int llm_remote_mode_create(size_t size, const struct llm_mode_config *config,
                           struct llm_remote_mode **out, char *why) MUST_CHECK;
void llm_remote_mode_destroy(struct llm_remote_mode *m); /* all of the struct */

/* Reads plain logits to the decoder's end and samples the next token from them. */
int llm_remote_mode_sample(struct llm_remote_mode *m, struct wire_dec *d, uint32_t *next,
                           char *why) MUST_CHECK;

/* Fit struct llm_mode_ops as they are. */
int llm_remote_mode_figures(struct llm_mode *mode, struct llm_mode_figures *out, char *why);
void llm_remote_mode_traffic(const struct llm_mode *mode, struct llm_mode_traffic *out);

#endif
