/* kv/resp/session_impl.h - the state of a session, for session.c, local.c and the commands. */
#ifndef HAWSER_KV_RESP_SESSION_IMPL_H
#define HAWSER_KV_RESP_SESSION_IMPL_H

#include "kv/client/named.h"
#include "kv/resp/parse.h"
#include "kv/resp/session.h"

enum {
    RESP_OUT_BYTES = 16 << 10, /* replies that are written together */
    RESP_BRIEF_MAX = 128 << 10 /* longer values are served in a thread, others wait meanwhile */
};

struct resp_session {
    struct resp_session_options options;
    struct kv_client *client; /* NULL: not attached; see resp_client */
    bool allowed;             /* no password is wanted, or it was given */
    uint64_t tenant;          /* 0: none */
    bool resp3, ends, broken; /* ends: after this reply; broken: at once */
    bool may_wait;            /* it has a thread of its own */
    bool must_wait;           /* it needs one: for the request, or to send what is in `out` */
    char *out;
    size_t out_len, out_size;
    char *in;
    size_t in_at, in_len, in_size; /* bytes from in_at on are not served yet */
    size_t need;                   /* bytes from in_at on before another look */
    struct resp_request request;
    struct kv_named_hash *hash;
    struct kv_host *visited; /* NULL: none; nothing may wait meanwhile */
    uint32_t visit_bytes;    /* copied and hashed in this visit */
    struct kv_block_holder holders[KV_DAEMONS_MAX];
};

/* ---- session.c: replies ---- */

void resp_send(struct resp_session *s, const void *data, size_t len);
void resp_status(struct resp_session *s, const char *text);
void resp_error(struct resp_session *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void resp_integer(struct resp_session *s, int64_t value);
void resp_array(struct resp_session *s, size_t count);
/* Of `pairs` keys and values: a map in RESP3, else an array. */
void resp_map(struct resp_session *s, size_t pairs);
void resp_bulk(struct resp_session *s, const void *data, size_t len);
void resp_text(struct resp_session *s, const char *text);
void resp_null(struct resp_session *s);

/* ---- local.c: values at this process's daemons ---- */

struct resp_value {
    struct kv_named named;
    struct kv_host *host; /* where its lease is; NULL: the client has it */
    struct kv_block_holder *holder;
};

/* Each is false, and has done nothing, where a client must be asked instead: the key is another
 * daemon's, the block is corrupt, or it is long and the session may not wait.  Else as the function
 * of the same name in kv/client/named.h, with *result. */
bool resp_local_get(struct resp_session *s, const struct resp_arg *name, struct resp_value *out,
                    enum kv_result *result);
bool resp_local_set(struct resp_session *s, const struct kv_named_set *set, enum kv_result *result);
bool resp_local_delete(struct resp_session *s, const struct resp_arg *name, enum kv_result *result);
/* Of a value that resp_local_get gave. */
enum kv_result resp_local_renew(struct resp_session *s, struct resp_value *value);
void resp_local_let_go(struct resp_session *s, struct resp_value *value);

/* Ends the visit at a daemon, if there is one: before anything that may wait. */
void resp_leave(struct resp_session *s);
/* Ends all that the session holds at the daemons. */
void resp_local_fini(struct resp_session *s);

/* ---- commands.c ---- */

/* The client, where a request may wait for its answer. */
struct kv_client *resp_client(struct resp_session *s);
/* The error for what the store answered. */
void resp_result_error(struct resp_session *s, enum kv_result result);
/* Whether an argument is a word, in any case. */
bool resp_is(const struct resp_arg *arg, const char *word);
/* A part of a value, straight from the arena; its lease is kept while the peer takes its time. */
void resp_send_value(struct resp_session *s, struct resp_value *value, uint32_t from, uint32_t len);

/* Commands of names.c. */
void resp_keys(struct resp_session *s, const struct resp_arg *args, uint32_t count);
void resp_scan(struct resp_session *s, const struct resp_arg *args, uint32_t count);
void resp_flush(struct resp_session *s, const struct resp_arg *args, uint32_t count);

/* Executes s->request; with s->must_wait it has no effect. */
void resp_execute(struct resp_session *s);

#endif
