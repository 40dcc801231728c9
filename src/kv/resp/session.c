#include "kv/resp/session_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    IN_KEPT = 8 << 20,                 /* between requests: fresh memory costs page faults */
    IN_FIRST = 64 << 10,               /* of the buffer; it grows with a request */
    IN_MAX = KV_NAMED_MAX + (1 << 20), /* a whole request: a value, its name, options */
    IN_MAX_UNKNOWN = 4 << 10,          /* before AUTH */
    TURN_MAX = 256 << 10,              /* a request that is served in the loop */
    PLACED_MIN = 64 << 10,             /* of a value: less is sooner copied than placed */
    BESIDE = 16 << 10,                 /* what is read behind a placed value */
    LOOK_S = 5                         /* how late a silent peer is noticed */
};

#define AUTH_NS (10 * HW_SEC) /* a person may type the password */

static size_t request_max(const struct resp_session *s)
{
    return s->allowed ? IN_MAX : IN_MAX_UNKNOWN;
}

static bool grow_in(struct resp_session *s, size_t need)
{
    if (resp_grow(&s->in, &s->in_size, need, IN_FIRST))
        return true;
    resp_error(s, "ERR no memory for the request");
    resp_flush_out(s);
    return false;
}

/* Lets the rest of a long value come straight into the store, where its request says enough.  The
 * buffer ends with what has come of the value. */
static void place_value(struct resp_session *s)
{
    const struct resp_request *r = &s->request;
    const struct resp_arg *value = &r->cut;
    if (!s->may_wait || !s->allowed || s->queue.open || !value->data || r->count < 2)
        return;
    size_t at = (size_t)(value->data - s->in), here = s->in_len - at;
    if (value->len < here + PLACED_MIN || resp_value_index(&r->args[0], r->total) != r->count ||
        !resp_local_place(s, &r->args[1], value->len))
        return;
    memcpy(s->placed.block + KV_NAMED_HEAD, value->data, here);
    s->placed.at = at - s->in_at;
    s->in_len = at;
    s->need = s->placed.at + 2;
    resp_local_placed(s, (uint32_t)here);
}

/* The value goes on in the buffer: its peer is slow, and the store has other uses for the room. */
static bool take_back(struct resp_session *s)
{
    struct resp_placed *p = &s->placed;
    size_t at = s->in_at + p->at;
    if (!grow_in(s, s->in_len + p->got))
        return false;
    memmove(s->in + at + p->got, s->in + at, s->in_len - at);
    memcpy(s->in + at, p->block + KV_NAMED_HEAD, p->got);
    s->in_len += p->got;
    s->need = p->at + p->len + 2;
    resp_local_unplace(s);
    return true;
}

static ptrdiff_t parse(struct resp_session *s, const char **why)
{
    const struct resp_placed *p = &s->placed;
    struct resp_apart apart = {.at = p->at};
    if (p->block)
        apart.arg = (struct resp_arg){(char *)p->block + KV_NAMED_HEAD, p->len};
    return resp_parse(s->in + s->in_at, s->in_len - s->in_at, request_max(s),
                      p->block ? &apart : NULL, &s->request, &s->need, why);
}

/* Serves the complete requests of the buffer.  False: the end. */
static bool serve_buffer(struct resp_session *s)
{
    ptrdiff_t n;
    const char *why = "";
    struct resp_counts *counts = s->options.counts;
    do {
        n = parse(s, &why);
        s->next_at = s->in_at + (n > 0 ? (size_t)n : 0);
        if (n > 0 && s->request.count > 0)
            resp_execute(s);
        if (s->must_wait)
            break;
        if (n > 0)
            resp_local_unplace(s); /* where the request did not use it */
        s->in_at += n > 0 ? (size_t)n : 0;
        s->commands += n > 0;
        if (resp_is_full(s))
            resp_flush_out(s);
    } while (n > 0 && !s->ends && !s->broken && !s->must_wait);
    if (n == -EMSGSIZE)
        resp_error(s, "ERR Protocol error: a request of more than %zu bytes", request_max(s));
    else if (n < 0)
        resp_error(s, "ERR Protocol error: %s", why);
    s->ends |= n < 0;
    atomic_fetch_add_explicit(&counts->commands, s->commands, memory_order_relaxed);
    s->commands = 0;
    resp_leave(s);
    if (!s->must_wait)
        resp_flush_out(s);
    if (s->must_wait)
        s->need = 1; /* the thread looks at what is there first */
    else if (n == 0 && !s->placed.block)
        place_value(s);
    return !s->broken && (!s->ends || s->must_wait);
}

/* Room for the rest of the next request. */
static bool make_room(struct resp_session *s)
{
    size_t left = s->in_len - s->in_at;
    if (left == 0 && s->in_size > IN_KEPT && s->need <= IN_KEPT) {
        free(s->in);
        s->in = NULL;
        s->in_size = 0;
    }
    if (left == 0 || s->in_size - s->in_at < s->need || s->in_size - s->in_len < IN_FIRST / 4) {
        if (left > 0)
            memmove(s->in, s->in + s->in_at, left);
        s->in_at = 0;
        s->in_len = left;
    }
    return grow_in(s, s->need);
}

/* As recvmsg. */
static ssize_t receive(struct resp_session *s, struct iovec *into, int count, int flags)
{
    struct rpc_transport *t = s->options.transport;
    struct msghdr message = {.msg_iov = into, .msg_iovlen = (size_t)count};
    ssize_t n;
    do
        n = t            ? t->ops->recv(t, into, count, LOOK_S * HW_SEC)
            : count == 1 ? recv(s->options.fd, into->iov_base, into->iov_len, flags)
                         : recvmsg(s->options.fd, &message, flags);
    while (n < 0 && !t && errno == EINTR);
    if (!t || n > 0)
        return n;
    errno = (int)-n;
    return n == -ESHUTDOWN ? 0 : -1;
}

/* One read, of the placed value first.  As recv. */
static ssize_t read_some(struct resp_session *s, int flags)
{
    struct resp_placed *p = &s->placed;
    size_t value = p->block ? p->len - p->got : 0, room = s->in_size - s->in_len;
    bool brief = value > 0 || s->brief_read;
    struct iovec into[2] = {{value ? p->block + KV_NAMED_HEAD + p->got : NULL, value},
                            {s->in + s->in_len, brief && room > BESIDE ? BESIDE : room}};
    ssize_t n = receive(s, value ? into : into + 1, value ? 2 : 1, flags);
    if (n <= 0)
        return n;
    size_t placed = (size_t)n < value ? (size_t)n : value;
    s->in_len += (size_t)n - placed;
    s->brief_read = value > 0;
    if (placed > 0)
        resp_local_placed(s, (uint32_t)placed);
    return n;
}

static bool is_short(const struct resp_session *s)
{
    return s->in_len - s->in_at < s->need || (s->placed.block && s->placed.got < s->placed.len);
}

enum resp_turn resp_session_turn(struct resp_session *s)
{
    assert(!s->may_wait && !s->must_wait);
    if (!make_room(s))
        return RESP_TURN_END;
    ssize_t n = read_some(s, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return RESP_TURN_MORE;
    if (n <= 0)
        return RESP_TURN_END;
    if (!is_short(s) && !serve_buffer(s))
        return RESP_TURN_END;
    return s->must_wait || s->need > TURN_MAX ? RESP_TURN_WAIT : RESP_TURN_MORE;
}

/* Nothing came for LOOK_S: memory that waits for the next request goes back. */
static void rest(struct resp_session *s)
{
    if (s->in_len > s->in_at || s->placed.block)
        return;
    free(s->in);
    s->in = NULL;
    s->in_size = s->in_at = s->in_len = 0;
}

/* Waits for more.  False: the end. */
static bool read_more(struct resp_session *s)
{
    ssize_t n = make_room(s) ? read_some(s, 0) : 0;
    if (n == 0 || (n < 0 && errno != EAGAIN) || hw_now_ns() > resp_session_auth_end(s))
        return false;
    if (n < 0)
        rest(s);
    bool late = s->placed.block && hw_now_ns() > s->placed.expires_ns;
    return !late || take_back(s);
}

void resp_session_run(struct resp_session *s)
{
    struct timeval look = {.tv_sec = LOOK_S};
    (void)setsockopt(s->options.fd, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof(look));
    s->may_wait = true;
    s->must_wait = false;
    s->need = 1;
    resp_flush_out(s);
    bool goes_on = true;
    while (goes_on && !s->broken && !s->ends)
        goes_on = is_short(s) ? read_more(s) : serve_buffer(s);
}

void resp_session_ask(struct resp_session *s)
{
    const struct resp_session_options *o = &s->options;
    s->allowed = o->open || (!o->password && !o->tenants);
    s->auth_end_ns = hw_now_ns() + (o->auth_ns ? o->auth_ns : AUTH_NS);
}

struct resp_session *resp_session_create(const struct resp_session_options *options)
{
    struct resp_session *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->options = *options;
    resp_session_ask(s);
    s->need = 1;
    for (uint32_t i = 0; i < KV_DAEMONS_MAX; i++)
        s->holders[i] =
            (struct kv_block_holder){.open_puts = {.first = KV_CLAIM_NONE, .lasting = true},
                                     .leases = {.first = KV_CLAIM_NONE, .lasting = true}};
    return s;
}

uint64_t resp_session_auth_end(const struct resp_session *s)
{
    return s->allowed ? HW_NEVER : s->auth_end_ns;
}

void resp_session_destroy(struct resp_session *s)
{
    if (!s)
        return;
    resp_local_fini(s);
    kv_client_close(s->client);
    free(s->queue.data);
    free(s->out);
    free(s->in);
    free(s);
}
