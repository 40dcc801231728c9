/* llm/stage/link.h - private to src/llm: a front's connections to the servers that compute some
 * layers of its model, or a share of every layer.
 *
 * A link to another host resumes after a cut.  One that ends, or that is silent for too long, takes
 * all KV of its server with it: then kv_lost of the backend is set.
 *
 * Trust: the servers are peers; what they answer is checked by length, and is believed.
 * Threads: one, and that of an attempt to reach lost servers.  Lifetime: init/fini; the names are
 * the caller's. */
#ifndef HAWSER_LLM_STAGE_LINK_H
#define HAWSER_LLM_STAGE_LINK_H

#include "llm/engine/backend.h"
#include "llm/model/why.h"
#include "llm/stage/message.h"
#include "rpc/client.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    LLM_LINK_TIMEOUT_S = 60, /* by default: a server may compute as long between two messages */
    LLM_LINK_TIMEOUT_MAX_S = 3600,
    LLM_LINK_LOOK_MS = 100, /* from a failed attempt to reach servers to the next */
    LLM_LINK_PARTS = 4,     /* that wait: a server is at most one gather ahead */
    LLM_LINK_NAME_CHARS = RPC_ADDR_HOST_CHARS + 48
};

/* Bytes that a server pushed. */
struct llm_link_part {
    uint8_t *data;
    size_t len, room;
};

struct llm_link {
    const char *name; /* "stage 3-5@HOST:PORT" */
    struct rpc_addr addr;
    struct llm_remote *remote; /* NULL: not connected */
    bool is_open;              /* it has our KV memory */
    /* Of a step that is computed together; changed under the client's lock. */
    struct llm_link_part parts[LLM_LINK_PARTS];
    uint32_t first, count;
    bool is_broken; /* it pushed what nobody asked for, or there was no memory */
    bool step_ended;
    int step_status;
    char step_text[RPC_ERROR_TEXT_MAX + 1];
};

struct llm_links {
    struct llm_backend *backend; /* the front's */
    const struct rpc_security *security;
    const char *knob; /* that set the time limit */
    uint64_t timeout_ns;
    uint64_t away_ns;  /* how long a server that was lost may stay away */
    uint64_t lost_ns;  /* when one was last lost */
    uint64_t again_ns; /* until then that is not tried, and the answer is failed */
    int failed;
    char failed_why[LLM_WHY_CHARS];
    /* An attempt to reach those that are lost, in a thread of its own: a server that is stopped
     * takes a connection and says nothing.  While it is under way the links are that thread's. */
    bool reaches;                        /* until the caller's thread knows its end */
    _Atomic bool has_ended;              /* release by that thread, acquire by the caller's */
    bool is_stale;                       /* what is to be mapped changed since it began */
    int (*reach)(void *user, char *why); /* what it runs: connects and opens all */
    void *reach_user;
    pthread_t thread;
    int reach_rc;
    char reach_why[LLM_WHY_CHARS];
    _Atomic uint8_t *mapped; /* of each slab: it is to be, at its servers; relaxed: a change while
                              * an attempt reads it makes that stale */
    uint64_t size;           /* of the model's file */
    uint64_t sent, received; /* over connections that ended */
    uint8_t hash[LLM_STAGE_HASH_BYTES];
    struct wire_enc enc; /* of the next call */
    uint32_t count;
    struct llm_link items[LLM_STAGES_MAX];
};

/* timeout_s: of the knob, which messages name; away_ns 0: ten seconds. */
void llm_links_init(struct llm_links *links, const char *knob, uint64_t timeout_s, uint64_t away_ns,
                    const struct rpc_security *security, const struct llm_file *file);
void llm_links_fini(struct llm_links *links);
/* Of these and, with those ops, of the front's own backend. */
void llm_links_traffic(const struct llm_links *links, const struct llm_backend_ops *own,
                       uint64_t *sent, uint64_t *received);

/* 0, or why it cannot be reached. */
int llm_link_connect(struct llm_links *links, struct llm_link *link, char *why) MUST_CHECK;
void llm_links_disconnect(struct llm_links *links); /* all */
/* Ends it because of that.  -EOWNERDEAD and why. */
int llm_link_lose(struct llm_links *links, struct llm_link *link, const char *cause,
                  char *why) MUST_CHECK;

/* One call with links->enc and, after it, `rest`.  0; the server's error;
 * -EOWNERDEAD: it is lost. */
int llm_link_call(struct llm_links *links, struct llm_link *link, uint32_t method,
                  const struct iovec *rest, struct wire_dec *answer, char *why) MUST_CHECK;
/* LLM_STAGE_MAP or LLM_STAGE_UNMAP. */
int llm_link_send_slabs(struct llm_links *links, struct llm_link *link, uint32_t method,
                        const uint32_t *slabs, size_t count, char *why) MUST_CHECK;
/* Maps those of slabs first to end that are noted: all that was, before a connection was lost. */
int llm_link_map_again(struct llm_links *links, struct llm_link *link, uint32_t first, uint32_t end,
                       char *why) MUST_CHECK;
/* Rows of a server's KV. */
int llm_link_read_rows(struct llm_links *links, struct llm_link *link,
                       const struct llm_kv_rows *rows, struct iovec to, char *why) MUST_CHECK;
int llm_link_write_rows(struct llm_links *links, struct llm_link *link,
                        const struct llm_kv_rows *rows, struct iovec from, char *why) MUST_CHECK;
/* The answer to LLM_STAGE_OPEN or LLM_STAGE_SHARE: its bits must be ours. */
int llm_link_check_opened(const struct llm_links *links, const struct llm_link *link,
                          struct wire_dec *answer, uint64_t *slab_bytes, char *why) MUST_CHECK;
/* Reaches servers that were lost, and never waits.  0: all are open; -EAGAIN: ask again in
 * LLM_LINK_LOOK_MS, since an attempt is under way or one that was just lost may be on its way back;
 * else what the last attempt failed with, and why. */
int llm_links_reach(struct llm_links *links, char *why) MUST_CHECK;

/* ---- the KV memory of all servers ---- */

/* 0 or -ENOMEM: so many slabs, none of them mapped. */
int llm_links_begin_kv(struct llm_links *links, uint32_t slabs) MUST_CHECK;
/* Waits for an attempt under way, and ends all connections: a server frees its KV then. */
void llm_links_end_kv(struct llm_links *links);
void llm_links_note_mapped(struct llm_links *links, const uint32_t *slabs, size_t count,
                           bool is_mapped);

/* ---- steps that are computed together ---- */

/* Begins a step with links->enc; the answer comes when the server has finished it. */
int llm_link_begin_step(struct llm_links *links, struct llm_link *link, char *why) MUST_CHECK;
/* Sends a part of a gather. */
int llm_link_send_part(struct llm_links *links, struct llm_link *link, const struct iovec *iov,
                       int count, char *why) MUST_CHECK;
/* Waits for the next part, of so many bytes.  0, or what the server says, or -EOWNERDEAD; why. */
int llm_link_take_part(struct llm_links *links, struct llm_link *link, void *to, size_t bytes,
                       char *why) MUST_CHECK;
/* Waits for the end of the step. */
int llm_link_end_step(struct llm_links *links, struct llm_link *link, char *why) MUST_CHECK;

#endif
