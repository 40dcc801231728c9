#include "page/broadcast/link.h"

#include "base/clock.h"
#include "rpc/rpc.h"
#include "rpc/transport/net.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LINK_WINDOW = 64 << 10 }; /* a dozen of the largest answers */

struct page_link {
    struct rpc_ep *ep;
    uint32_t id; /* of the call in flight */
    bool busy;
    struct page_answer *answer; /* of a command; NULL for the other methods */
    uint32_t count;             /* ids of the command */

    /* Of the other methods. */
    int status;
    uint8_t bytes[PAGE_INFO_BYTES_MAX];
    size_t len;
};

int page_link_open(const char *path, uint64_t timeout_ns, struct page_link **out,
                   struct page_error *why)
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UNIX};
    struct rpc_net_options net = {.timeout_ns = timeout_ns};
    struct rpc_config config = {.window_bytes = LINK_WINDOW,
                                .heartbeat_ns = HW_NEVER,
                                .wait = RPC_WAIT_BLOCK,
                                .name = "page scheduler"};
    struct rpc_transport *transport;
    char text[RPC_WHY_CHARS];
    if (strlen(path) >= sizeof addr.path)
        return page_fail(why, -ENAMETOOLONG, 0, "%.100s...: too long for a socket", path);
    memcpy(addr.path, path, strlen(path) + 1);
    struct page_link *l = calloc(1, sizeof *l);
    if (!l)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    int rc = rpc_dial(&addr, &net, &transport, text);
    if (rc) {
        free(l);
        return page_fail(why, rc, 0, "cannot reach the worker at %.100s: %s", path, strerror(-rc));
    }
    rc = rpc_ep_create(transport, &config, &l->ep);
    if (rc) {
        free(l);
        return page_fail(why, rc, 0, "cannot set up the connection: %s", strerror(-rc));
    }
    *out = l;
    return 0;
}

void page_link_close(struct page_link *l)
{
    if (!l)
        return;
    rpc_ep_shutdown(l->ep, 0, NULL);
    rpc_ep_destroy(l->ep);
    free(l);
}

/* ---- commands ---- */

const char *page_link_meaning(int rc)
{
    switch (rc) {
    case -ECONNRESET:
    case -EPIPE:
        return "the worker died before it answered";
    case -ESHUTDOWN:
        return "the worker ended before it answered";
    case -ETIMEDOUT:
        return "the worker did not answer within the time limit";
    case -EPROTO:
        return "the worker's answer makes no sense";
    default:
        return strerror(-rc);
    }
}

static void fail_answer(struct page_link *l, int rc)
{
    struct page_error why;
    page_fail(&why, rc, 0, "%s", page_link_meaning(rc));
    page_answer_fail(l->answer, l->count, &why);
}

static void on_command_answer(void *user, int status, const struct rpc_msg *reply)
{
    struct page_link *l = user;
    l->busy = false;
    if (status == 0)
        status = page_answer_decode(reply->data, reply->len, l->count, l->answer) ? -EPROTO : 0;
    if (status)
        fail_answer(l, status);
}

/* The caller keeps the time; the endpoint's own deadline would be a second one. */
static int start_call(struct page_link *l, struct rpc_send *send, rpc_reply_fn *fn)
{
    assert(!l->busy);
    send->timeout_ns = HW_NEVER;
    int rc = rpc_call(l->ep, send, fn, l, &l->id);
    l->busy = rc == 0;
    if (rc == 0)
        (void)rpc_flush(l->ep);
    return rc;
}

int page_link_send(struct page_link *l, const struct page_command *c, struct page_answer *answer)
{
    uint8_t bytes[PAGE_COMMAND_BYTES_MAX];
    struct wire_enc e;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_command_encode(c, &e);
    assert(!wire_enc_error(&e));
    struct iovec iov = {bytes, wire_enc_len(&e)};
    struct rpc_send send = {.method = PAGE_METHOD_COMMAND, .iov = &iov, .iov_count = 1};
    l->answer = answer;
    l->count = c->count;
    int rc = start_call(l, &send, on_command_answer);
    if (rc)
        fail_answer(l, rc);
    return rc;
}

bool page_link_turn(struct page_link *l)
{
    int rc = rpc_poll(l->ep); /* may end the call */
    if (rc >= 0 || rc == -EINPROGRESS)
        (void)rpc_flush(l->ep);
    else if (l->busy)
        page_link_give_up(l, rc);
    return !l->busy;
}

void page_link_wait(struct page_link *l, uint64_t until_ns)
{
    while (!page_link_turn(l)) {
        uint64_t now = page_host_ns();
        if (now >= until_ns)
            page_link_give_up(l, -ETIMEDOUT);
        else
            (void)rpc_wait(l->ep, until_ns - now);
    }
}

void page_link_give_up(struct page_link *l, int rc)
{
    if (!l->busy)
        return;
    (void)rpc_cancel(l->ep, l->id); /* calls back with -ECANCELED */
    assert(!l->busy);
    l->status = rc;
    if (l->answer)
        fail_answer(l, rc);
}

int page_link_fd(const struct page_link *l)
{
    struct rpc_transport *t = rpc_ep_transport(l->ep);
    return t->ops->poll_fd(t);
}

bool page_link_wants_to_send(const struct page_link *l)
{
    return rpc_send_blocked(l->ep);
}

/* ---- the other methods ---- */

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    struct page_link *l = user;
    l->busy = false;
    l->status = status;
    l->len = 0;
    if (status)
        return;
    if (reply->len > sizeof l->bytes) {
        l->status = -EPROTO;
        return;
    }
    l->len = reply->len;
    if (reply->len)
        memcpy(l->bytes, reply->data, reply->len);
}

static int call(struct page_link *l, struct rpc_send *send, uint64_t until_ns,
                struct page_error *why)
{
    l->answer = NULL;
    int rc = start_call(l, send, on_answer);
    if (rc == 0) {
        page_link_wait(l, until_ns);
        rc = l->status;
    }
    return rc ? page_fail(why, rc, 0, "%s", page_link_meaning(rc)) : 0;
}

int page_link_info(struct page_link *l, uint64_t until_ns, struct page_info *out,
                   struct page_error *why)
{
    struct rpc_send send = {.method = PAGE_METHOD_INFO};
    int rc = call(l, &send, until_ns, why);
    if (rc)
        return rc;
    rc = page_info_decode(l->bytes, l->len, out);
    return rc ? page_fail(why, rc, 0, "%s", page_link_meaning(-EPROTO)) : 0;
}

int page_link_give_board(struct page_link *l, uint64_t until_ns, int board_fd,
                         struct page_error *why)
{
    /* Descriptors are refused before the peer's hello has said that it takes them. */
    uint64_t now;
    while (rpc_ep_status(l->ep) == -EINPROGRESS && (now = page_host_ns()) < until_ns) {
        (void)rpc_flush(l->ep);
        (void)rpc_wait(l->ep, until_ns - now);
        (void)rpc_poll(l->ep);
    }
    if (rpc_ep_status(l->ep) == -EINPROGRESS)
        return page_fail(why, -ETIMEDOUT, 0, "%s", page_link_meaning(-ETIMEDOUT));
    struct rpc_send send = {.method = PAGE_METHOD_BOARD, .fds = &board_fd, .fd_count = 1};
    return call(l, &send, until_ns, why);
}

int page_link_trim(struct page_link *l, uint64_t until_ns, uint64_t *bytes_out,
                   struct page_error *why)
{
    struct rpc_send send = {.method = PAGE_METHOD_TRIM};
    struct wire_dec d;
    int rc = call(l, &send, until_ns, why);
    if (rc)
        return rc;
    wire_dec_init(&d, l->bytes, l->len);
    uint64_t bytes = wire_get_u64(&d);
    rc = wire_dec_end(&d);
    if (rc)
        return page_fail(why, rc, 0, "%s", page_link_meaning(-EPROTO));
    *bytes_out = bytes;
    return 0;
}
