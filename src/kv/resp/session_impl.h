/* kv/resp/session_impl.h - the state of a session, for session.c and its commands. */
#ifndef HAWSER_KV_RESP_SESSION_IMPL_H
#define HAWSER_KV_RESP_SESSION_IMPL_H

#include "kv/client/named.h"
#include "kv/resp/parse.h"
#include "kv/resp/session.h"

enum { RESP_OUT_BYTES = 16 << 10 }; /* replies that are written together */

struct resp_session {
    struct resp_session_options options;
    struct kv_client *client; /* NULL: not attached */
    bool allowed;             /* no password is wanted, or it was given */
    uint64_t tenant;          /* 0: none */
    bool resp3, ends, broken; /* ends: after this reply; broken: at once */
    char out[RESP_OUT_BYTES];
    size_t out_len;
    char *in;
    size_t in_len, in_size;
    struct resp_request request;
};

/* Replies. */
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
/* A part of a value, straight from the arena; its lease is kept while the peer takes its time. */
void resp_value(struct resp_session *s, struct kv_named *value, uint32_t from, uint32_t len);

/* The error for what the store answered. */
void resp_result_error(struct resp_session *s, enum kv_result result);
/* Whether an argument is a word, in any case. */
bool resp_is(const struct resp_arg *arg, const char *word);

/* Commands of names.c. */
void resp_keys(struct resp_session *s, const struct resp_arg *args, uint32_t count);
void resp_scan(struct resp_session *s, const struct resp_arg *args, uint32_t count);
void resp_flush(struct resp_session *s, const struct resp_arg *args, uint32_t count);

/* Executes s->request. */
void resp_execute(struct resp_session *s);

#endif
