/* llm/stage/pipeline.h - stages of a model's layers at several servers, behind the interface of one
 * backend.
 *
 * The calling process is the front: it has the engine, embeds, computes its own stage if it has
 * one, and multiplies with the output matrix.  Each other stage is a server (llm/stage/stage.h)
 * that has the weights and the KV of its layers, and no sequences: the front tells it the pages of
 * every step, and which slabs to map.
 *
 * A stage that is lost or silent ends the step, or whatever uses it, with -EOWNERDEAD.  Its part of
 * all sequences' KV is gone, so kv_lost of the backend is set.  The next use begins to reach it
 * again, in a thread of its own; until the server is back, or for some seconds, uses are refused
 * with -EAGAIN.
 *
 * Trust: the servers are peers; what they answer is checked by length, and is believed.
 * Threads and lifetime: as llm/engine/backend.h. */
#ifndef HAWSER_LLM_STAGE_PIPELINE_H
#define HAWSER_LLM_STAGE_PIPELINE_H

#include "llm/engine/backend.h"
#include "llm/engine/stages.h"
#include "rpc/transport/net.h"

enum { LLM_STAGE_NAME_CHARS = RPC_ADDR_HOST_CHARS + 40 }; /* layers@address */

struct llm_pipeline_stage {
    struct llm_stage_layers layers;
    struct rpc_addr addr; /* of one that is not local */
    char name[LLM_STAGE_NAME_CHARS];
};

struct llm_pipeline_config {
    uint32_t count;
    struct llm_pipeline_stage stages[LLM_STAGES_MAX];
    bool is_stage; /* "16-31", without a place: this server has one stage, for a front elsewhere */
    const struct rpc_security *security; /* for all servers; outlives the engine; NULL: none */
    uint64_t away_ns;    /* how long a stage that was lost may stay away; 0: ten seconds */
    uint32_t rows_bytes; /* of one message; 0: LLM_STAGE_ROWS_BYTES */
};

/* "0-15@local,16-31@HOST:PORT", or "16-31".  The stages follow each other.  0, -EINVAL and why. */
int llm_pipeline_parse(const char *text, struct llm_pipeline_config *out, char *why) MUST_CHECK;
/* Whether the stages are those of a model with so many layers.  0, -EINVAL and why. */
int llm_pipeline_check(const struct llm_pipeline_config *config, uint32_t layers,
                       char *why) MUST_CHECK;

/* Opens the backend of the front, and connects.  0; errors of open; -ESTALE (another file there),
 * -EXDEV (other arithmetic there), -EBUSY (it has another front), -ENOSYS (it has no stage), or
 * why it cannot be reached; and why. */
int llm_pipeline_open(const struct llm_backend_ops *ops, const struct llm_backend_config *config,
                      const struct llm_pipeline_config *pipeline, const struct llm_file *file,
                      struct llm_backend **out, char *why) MUST_CHECK;

#endif
