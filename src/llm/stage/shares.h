/* llm/stage/shares.h - tensor-parallel workers at several servers, behind the interface of one
 * backend.
 *
 * The calling process is the front and rank 0: it has the engine and computes a share itself.  Each
 * other rank is a server (llm/stage/stage.h) that has its share of the weights and of every KV row.
 * What ranks on one host do in shared memory (llm/tp/tp.h) is messages here.  All shares go through
 * the front: the servers do not know each other.
 *
 * A server that is lost or silent ends the step, or whatever uses it, with -EOWNERDEAD.  All
 * connections end then, since the other servers are in the middle of the same step; kv_lost of the
 * backend is set.  The next use begins to reach it again, as that of a stage
 * (llm/stage/pipeline.h).
 *
 * Trust: as llm/stage/link.h.  Threads and lifetime: as llm/engine/backend.h. */
#ifndef HAWSER_LLM_STAGE_SHARES_H
#define HAWSER_LLM_STAGE_SHARES_H

#include "llm/engine/backend.h"
#include "rpc/transport/net.h"

struct llm_shares_config {
    uint32_t count; /* of other servers: one rank each */
    struct rpc_addr addrs[LLM_STAGES_MAX];
    char names[LLM_STAGES_MAX][RPC_ADDR_HOST_CHARS + 16];
    const struct rpc_security *security; /* for all servers; outlives the engine; NULL: none */
    uint64_t away_ns; /* how long a server that was lost may stay away; 0: ten seconds */
};

/* "HOST:PORT,HOST:PORT".  0, -EINVAL and why. */
int llm_shares_parse(const char *text, struct llm_shares_config *out, char *why) MUST_CHECK;

/* Opens the backend as rank 0, and connects.  0; errors of open and of llm_tp_check; when KV memory
 * is made also -ESTALE (another file there), -EXDEV (other arithmetic there), -EBUSY (it has
 * another front), -ENOSYS (it has no share); or why it cannot be reached; and why. */
int llm_shares_open(const struct llm_backend_ops *ops, const struct llm_backend_config *config,
                    const struct llm_shares_config *shares, const struct llm_file *file,
                    struct llm_backend **out, char *why) MUST_CHECK;

#endif
