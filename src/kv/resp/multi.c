/* multi.c - MULTI, EXEC, DISCARD: requests are kept, and served together.  Those of other clients
 * may come between them: values lie at several members, which no lock spans.  There is no WATCH. */
#include "kv/resp/session_impl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUEUE_FIRST = 4 << 10,
    QUEUE_MAX = KV_NAMED_MAX + (1 << 20), /* as one request: a connection's memory is bounded */
    HEAD_CHARS = 24,                      /* of a request, or of an argument */
    VISIT_REQUESTS = 64                   /* then the daemon may have a turn */
};

static void append(struct resp_queue *q, const void *data, size_t len)
{
    assert(q->size - q->len >= len);
    memcpy(q->data + q->len, data, len);
    q->len += len;
}

static void append_head(struct resp_queue *q, char mark, size_t number)
{
    char head[HEAD_CHARS];
    append(q, head, (size_t)snprintf(head, sizeof(head), "%c%zu\r\n", mark, number));
}

void resp_multi_keep(struct resp_session *s)
{
    const struct resp_request *r = &s->request;
    struct resp_queue *q = &s->queue;
    size_t need = q->len + HEAD_CHARS;
    for (uint32_t i = 0; i < r->count; i++)
        need += HEAD_CHARS + r->args[i].len + 2;
    if (need > QUEUE_MAX || !resp_grow(&q->data, &q->size, need, QUEUE_FIRST)) {
        q->bad = true;
        resp_error(s, "OOM a transaction has at most %d bytes", QUEUE_MAX);
        return;
    }
    append_head(q, '*', r->count);
    for (uint32_t i = 0; i < r->count; i++) {
        append_head(q, '$', r->args[i].len);
        append(q, r->args[i].data, r->args[i].len);
        append(q, "\r\n", 2);
    }
    q->count++;
    resp_status(s, "QUEUED");
}

void resp_multi_forget(struct resp_session *s)
{
    free(s->queue.data);
    s->queue = (struct resp_queue){0};
}

void resp_multi(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    (void)args;
    (void)count;
    if (s->queue.open) {
        resp_error(s, "ERR MULTI calls can not be nested");
        return;
    }
    s->queue = (struct resp_queue){.open = true};
    resp_status(s, "OK");
}

void resp_discard(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    (void)args;
    (void)count;
    if (!s->queue.open) {
        resp_error(s, "ERR DISCARD without MULTI");
        return;
    }
    resp_multi_forget(s);
    resp_status(s, "OK");
}

static void serve(struct resp_session *s, const struct resp_queue *q)
{
    uint32_t served = 0;
    ptrdiff_t n;
    for (size_t at = 0, need; at < q->len && !s->broken; at += (size_t)n) {
        const char *why;
        n = resp_parse(q->data + at, q->len - at, q->len - at, NULL, &s->request, &need, &why);
        assert(n > 0);
        resp_execute(s);
        if (resp_is_full(s))
            resp_flush_out(s);
        if (++served % VISIT_REQUESTS == 0)
            resp_leave(s);
    }
}

void resp_exec(struct resp_session *s, const struct resp_arg *args, uint32_t count)
{
    struct resp_queue q = s->queue;
    (void)args;
    (void)count;
    s->queue = (struct resp_queue){0};
    s->next_at = s->in_len; /* gets behind EXEC are not asked for with those before it */
    if (!q.open) {
        resp_error(s, "ERR EXEC without MULTI");
    } else if (q.bad) {
        resp_error(s, "EXECABORT Transaction discarded because of previous errors.");
    } else {
        resp_array(s, q.count);
        serve(s, &q);
    }
    free(q.data);
}
