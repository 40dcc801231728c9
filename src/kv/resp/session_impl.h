/* kv/resp/session_impl.h - the state of a session, for replies.c, local.c and the commands. */
#ifndef HAWSER_KV_RESP_SESSION_IMPL_H
#define HAWSER_KV_RESP_SESSION_IMPL_H

#include "kv/client/named.h"
#include "kv/resp/parse.h"
#include "kv/resp/session.h"

enum {
    RESP_NAME_CHARS = 64,
    RESP_GATHER_BYTES = 128 << 10, /* replies that are sent together */
    RESP_PARTS_MAX = 16,           /* values among them */
    RESP_AHEAD_MAX = 8,            /* values that are asked for together */
    RESP_BRIEF_MAX = 128 << 10     /* longer values are served in a thread, others wait meanwhile */
};

_Static_assert((int)RESP_PARTS_MAX + (int)RESP_AHEAD_MAX <= (int)RESP_LEASES_MAX, "each is one");

struct resp_value {
    struct kv_named named;
    struct kv_host *host; /* where its lease is; NULL: the client has it */
    struct kv_block_holder *holder;
};

/* Bytes that are not copied: they are sent when `at` bytes of `out` are. */
struct resp_part {
    size_t at, len;
    const void *data;
    struct resp_value value; /* with data: to be let go then */
};

/* Room in the store for a value that is arriving. */
struct resp_placed {
    uint8_t *block;    /* NULL: none */
    uint32_t len, got; /* of the value */
    uint32_t hashed;   /* bytes of the block */
    uint64_t sum, ticket, expires_ns;
    size_t at; /* where the value would be, from in_at on */
    struct kv_block_key key;
    struct kv_host *host;
    struct kv_block_holder *holder;
};

/* Values of the gets that follow, asked for together: a round trip to other members for all. */
struct resp_ahead {
    uint32_t at, count; /* those before `at` are used */
    uint32_t singly;    /* so many gets are asked for one by one */
    struct kv_block_key keys[RESP_AHEAD_MAX];
    struct kv_named values[RESP_AHEAD_MAX];
    enum kv_result results[RESP_AHEAD_MAX];
};

/* Requests between MULTI and EXEC, as arrays of Redis' protocol. */
struct resp_queue {
    bool open;
    bool bad; /* one was refused: EXEC serves none */
    uint32_t count;
    char *data;
    size_t len, size;
};

struct resp_session {
    struct resp_session_options options;
    struct kv_client *client;   /* NULL: not attached; see resp_client */
    char why[RPC_WHY_CHARS];    /* it could not be, in this request */
    bool allowed;               /* no password is wanted, or it was given */
    uint64_t auth_end_ns;       /* else: until when it may be */
    uint64_t tenant;            /* 0: none */
    char name[RESP_NAME_CHARS]; /* CLIENT SETNAME */
    bool resp3, ends, broken;   /* ends: after this reply; broken: at once */
    bool may_wait;              /* it has a thread of its own */
    bool must_wait;             /* it needs one: for the request, or to send what is in `out` */
    char *out;
    size_t out_len, out_size;
    struct resp_part parts[RESP_PARTS_MAX];
    uint32_t part_count;
    size_t part_bytes;
    char *in;
    size_t in_at, in_len, in_size; /* bytes from in_at on are not served yet */
    size_t need;                   /* bytes from in_at on before another look */
    bool brief_read;               /* a placed value came last: the next may follow */
    struct resp_request request;
    uint64_t commands; /* served, and not in the counts yet */
    size_t next_at;    /* where the one after it begins */
    struct resp_ahead ahead;
    struct resp_queue queue;
    struct resp_placed placed;
    struct kv_host *visited; /* NULL: none; nothing may wait meanwhile */
    uint32_t visit_bytes;    /* copied and hashed in this visit */
    uint64_t copy_at_ns;     /* of the parts: when half of the first lease has passed */
    struct kv_block_holder holders[KV_DAEMONS_MAX];
};

/* Asks for a password, if one is wanted. */
void resp_session_ask(struct resp_session *s);

/* ---- replies.c ---- */

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
/* A part of a value, straight from the arena; lets the value go once it is sent. */
void resp_send_value(struct resp_session *s, struct resp_value *value, uint32_t from, uint32_t len);
/* Whether so much is to be sent that nothing should be added. */
bool resp_is_full(const struct resp_session *s);
/* Sends what there is.  Where the session may not wait, the rest stays, with must_wait. */
void resp_flush_out(struct resp_session *s);
/* Memory of at least `need` bytes, `first` at least; false: none. */
bool resp_grow(char **data, size_t *size, size_t need, size_t first);

/* ---- local.c: values at this process's daemons ---- */

/* Each is false, and has done nothing, where a client must be asked instead: the key is another
 * daemon's, the block is corrupt, or it is long and the session may not wait.  Else as the function
 * of the same name in kv/client/named.h, with *result. */
bool resp_local_get(struct resp_session *s, const struct resp_arg *name, struct resp_value *out,
                    enum kv_result *result);
bool resp_local_look(struct resp_session *s, const struct resp_arg *name, struct kv_named *out,
                     enum kv_result *result);
bool resp_local_set(struct resp_session *s, const struct kv_named_set *set, enum kv_result *result);
bool resp_local_delete(struct resp_session *s, const struct resp_arg *name, enum kv_result *result);
/* Of a value that resp_local_get gave. */
void resp_local_let_go(struct resp_session *s, struct resp_value *value);

/* Room in s->placed for a value of `len` bytes, which resp_local_set then takes without a copy.
 * False: it is to be read into the buffer instead. */
bool resp_local_place(struct resp_session *s, const struct resp_arg *name, size_t len);
/* `got` bytes more of the value are there. */
void resp_local_placed(struct resp_session *s, uint32_t got);
/* Gives the room back, if there is any. */
void resp_local_unplace(struct resp_session *s);

/* Ends the visit at a daemon, if there is one: before anything that may wait. */
void resp_leave(struct resp_session *s);
/* Ends all that the session holds at the daemons. */
void resp_local_fini(struct resp_session *s);

/* ---- commands.c ---- */

/* The client, where a request may wait for its answer. */
struct kv_client *resp_client(struct resp_session *s);
/* The error for what the store answered. */
void resp_result_error(struct resp_session *s, enum kv_result result);
/* The error for an argument that should be a number. */
void resp_not_a_number(struct resp_session *s);
/* Whether an argument is a word, in any case. */
bool resp_is(const struct resp_arg *arg, const char *word);
/* Ends the lease on a value, unless resp_send_value has taken it. */
void resp_let_go(struct resp_session *s, struct resp_value *value);
/* Which argument of a request of so many is the value that it sets; 0: none. */
uint32_t resp_value_index(const struct resp_arg *name, uint32_t count);

/* Commands of names.c. */
void resp_keys(struct resp_session *s, const struct resp_arg *args, uint32_t count);
void resp_scan(struct resp_session *s, const struct resp_arg *args, uint32_t count);
void resp_flush(struct resp_session *s, const struct resp_arg *args, uint32_t count);

/* ---- multi.c ---- */

void resp_multi(struct resp_session *s, const struct resp_arg *args, uint32_t count);
void resp_exec(struct resp_session *s, const struct resp_arg *args, uint32_t count);
void resp_discard(struct resp_session *s, const struct resp_arg *args, uint32_t count);
/* Keeps s->request for EXEC, and says so. */
void resp_multi_keep(struct resp_session *s);
void resp_multi_forget(struct resp_session *s);

/* Executes s->request; with s->must_wait it has no effect. */
void resp_execute(struct resp_session *s);

#endif
