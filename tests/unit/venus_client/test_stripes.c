/* The client's end of stripes against a server in this process that reads them raw: each byte of an
 * upload leaves once, and the end comes last; who cannot send says so.  Each case once with threads
 * that sleep between uploads and once with threads that spin. */
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "rpc/rpc.h"
#include "rpc/server.h"
#include "rpc/transport/net.h"
#include "venus/client/link/stripes.h"
#include "venus/common/protocol.h"

enum {
    PAGE = 4096,
    MEMORY_BYTES = 6 << 20,
    PAGES = MEMORY_BYTES / PAGE,
    UPLOADS_MAX = 24, /* of one case */
    CALLERS_MAX = 64,
    CHUNKS_MAX = 512,
    SOME_BYTES = 3 * VN_CHUNK_BYTES + 5 * PAGE,
    TOO_MANY_BYTES = 64 << 20, /* for the sockets of all stripes together */
};

static const uint64_t patience_ns = 240 * HW_SEC;

/* ---- cores: as many as a case needs ---- */

static unsigned cores;
unsigned __wrap_hw_cores(void);
unsigned __wrap_hw_cores(void)
{
    return cores;
}

static const unsigned core_counts[] = {2, 64};

/* ---- a server that makes stripes of its callers ---- */

struct caller {
    uint8_t key[VN_STRIPE_KEY_BYTES];
    struct rpc_transport *transport; /* NULL: refused, or taken by the test */
};

struct server {
    char folder[40];
    struct rpc_addr addr;
    struct rpc_listener *listener;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic unsigned refuse_from; /* callers that are stripes before one is refused */
    pthread_mutex_t lock;         /* guards the rest */
    struct caller callers[CALLERS_MAX];
    unsigned count;
};

static struct server server;

/* The call of the caller, or NULL when it has ended. */
static struct rpc_msg *await_call(struct rpc_ep *ep)
{
    struct rpc_msg *msg = NULL;
    while (!server.stop && (msg = rpc_recv(ep)) == NULL) {
        int status = rpc_ep_status(ep);
        if (status && status != -EINPROGRESS)
            return NULL;
        (void)rpc_flush(ep);
        (void)rpc_wait(ep, 10 * HW_MS);
        (void)rpc_poll(ep);
    }
    return msg;
}

static void add_caller(const uint8_t *key, struct rpc_transport *transport)
{
    pthread_mutex_lock(&server.lock);
    struct caller *caller = &server.callers[server.count];
    memcpy(caller->key, key, sizeof(caller->key));
    caller->transport = transport;
    server.count++;
    pthread_mutex_unlock(&server.lock);
}

static void serve_caller(struct rpc_transport *transport)
{
    struct rpc_config config = {.accepting = true};
    struct rpc_ep *ep;
    struct rpc_send nothing = {0};
    if (rpc_ep_create(transport, &config, &ep))
        return;
    struct rpc_msg *msg = await_call(ep);
    bool is_stripe = msg && msg->method == VN_METHOD_STRIPE && msg->len == VN_STRIPE_KEY_BYTES &&
                     server.count < CALLERS_MAX;
    uint8_t key[VN_STRIPE_KEY_BYTES];
    int rc = server.count >= server.refuse_from ? -ENOSYS : 0;
    if (is_stripe)
        memcpy(key, msg->data, sizeof(key));
    if (msg) {
        (void)rpc_reply(ep, msg, rc, &nothing);
        rpc_release(ep, msg);
    }
    while (rpc_ep_status(ep) == 0 && rpc_pending(ep))
        (void)rpc_flush(ep);
    if (is_stripe && rc == 0)
        add_caller(key, rpc_ep_strip(ep));
    else
        rpc_ep_destroy(ep);
}

static void *serve(void *arg)
{
    (void)arg;
    while (!server.stop) {
        struct pollfd p = {.fd = server.listener->ops->poll_fd(server.listener), .events = POLLIN};
        struct rpc_transport *transport;
        (void)poll(&p, 1, 20);
        if (server.listener->ops->accept(server.listener, &transport) == 0)
            serve_caller(transport);
    }
    return NULL;
}

static void server_start(void)
{
    char text[64], why[RPC_WHY_CHARS];
    server = (struct server){.folder = "/tmp/hawser-stripes-XXXXXX", .refuse_from = CALLERS_MAX};
    assert_non_null(mkdtemp(server.folder));
    snprintf(text, sizeof(text), "unix:%s/s", server.folder);
    assert_int_equal(rpc_addr_parse(text, &server.addr, why), 0);
    assert_int_equal(rpc_listen(&server.addr, NULL, &server.listener, why), 0);
    pthread_mutex_init(&server.lock, NULL);
    assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static void server_end(void)
{
    server.stop = true;
    pthread_join(server.thread, NULL);
    for (unsigned i = 0; i < server.count; i++)
        rpc_transport_destroy(server.callers[i].transport);
    rpc_listener_destroy(server.listener);
    pthread_mutex_destroy(&server.lock);
    rmdir(server.folder);
}

/* ---- both ends ---- */

struct rig {
    unsigned count;
    struct vnc_stripes *stripes;
    struct rpc_transport *ends[VN_STRIPES_MAX]; /* in the order in which they called */
    _Atomic bool over;                          /* the session */
};

static uint8_t program[MEMORY_BYTES]; /* what it uploads */

static bool is_over(void *user)
{
    struct rig *r = user;
    return r->over;
}

/* A dial has a second, in which a busy machine may not have answered. */
static int dial(struct rig *r, unsigned count)
{
    char why[RPC_WHY_CHARS];
    struct rpc_net_options net = {0};
    uint64_t start = hw_now_ns();
    int rc;
    do {
        why[0] = '\0';
        rc = vnc_stripes_dial(&server.addr, &net, count, is_over, r, &r->stripes, why);
    } while ((rc == -ETIMEDOUT || rc == -EAGAIN) && hw_now_ns() - start < patience_ns);
    if (rc)
        assert_true(strlen(why) > 0);
    return rc;
}

/* Waits until the server has them all. */
static void find_ends(struct rig *r)
{
    uint64_t start = hw_now_ns();
    for (unsigned found = 0; found < r->count;) {
        assert_true(hw_now_ns() - start < patience_ns);
        sched_yield();
        pthread_mutex_lock(&server.lock);
        for (unsigned i = 0; i < server.count; i++) {
            struct caller *caller = &server.callers[i];
            if (caller->transport &&
                memcmp(caller->key, vnc_stripes_key(r->stripes), sizeof(caller->key)) == 0) {
                r->ends[found++] = caller->transport;
                caller->transport = NULL;
            }
        }
        pthread_mutex_unlock(&server.lock);
    }
}

static void rig_dial(struct rig *r, unsigned count)
{
    *r = (struct rig){.count = count};
    server_start();
    assert_int_equal(dial(r, count), 0);
    find_ends(r);
}

static void rig_start(struct rig *r, unsigned count)
{
    rig_dial(r, count);
    assert_int_equal(vnc_stripes_open(r->stripes, count, NULL, NULL), 0);
}

static void close_ends(struct rig *r)
{
    for (unsigned i = 0; i < r->count; i++) {
        rpc_transport_destroy(r->ends[i]);
        r->ends[i] = NULL;
    }
}

static void rig_end(struct rig *r)
{
    vnc_stripes_destroy(r->stripes);
    close_ends(r);
    server_end();
}

/* ---- reading stripes raw ---- */

struct tail {
    uint8_t head[VN_CHUNK_HEAD];
    size_t have;
    uint64_t left, at; /* of the chunk under way */
};

struct reader {
    struct rig *rig;
    size_t piece_max;     /* that are read at once */
    uint32_t uploads;     /* ends to read */
    uint64_t wanted;      /* bytes to read */
    uint64_t got;         /* read so far */
    uint32_t ended;       /* ends so far */
    int rc;               /* of a stripe */
    uint8_t *image;       /* what came */
    uint8_t pages[PAGES]; /* how many chunks have brought each */
    struct tail tails[VN_STRIPES_MAX];
    struct seen {
        unsigned stripe;
        struct vn_chunk chunk;
    } seen[CHUNKS_MAX];
    size_t chunks;
    pthread_t thread;
};

static void note_head(struct reader *rd, unsigned stripe)
{
    struct tail *t = &rd->tails[stripe];
    struct vn_chunk chunk = vn_chunk_get(t->head);
    t->have = 0;
    t->left = chunk.bytes;
    t->at = chunk.offset;
    if (rd->chunks == CHUNKS_MAX || chunk.offset > MEMORY_BYTES ||
        chunk.bytes > MEMORY_BYTES - chunk.offset) {
        rd->rc = -EPROTO;
        return;
    }
    rd->seen[rd->chunks++] = (struct seen){stripe, chunk};
    rd->ended += chunk.bytes == 0;
    for (uint64_t at = 0; at < chunk.bytes; at += PAGE)
        rd->pages[(chunk.offset + at) / PAGE]++;
}

static void note_bytes(struct reader *rd, struct tail *t, size_t n)
{
    t->at += n;
    t->left -= n;
    rd->got += n;
}

/* Whether something came. */
static bool read_stripe(struct reader *rd, unsigned stripe)
{
    struct tail *t = &rd->tails[stripe];
    struct rpc_transport *end = rd->rig->ends[stripe];
    bool in_head = t->left == 0;
    size_t want = in_head ? VN_CHUNK_HEAD - t->have : t->left;
    struct iovec iov = {in_head ? t->head + t->have : rd->image + t->at,
                        want < rd->piece_max ? want : rd->piece_max};
    ssize_t n = end->ops->recv(end, &iov, 1, 0);
    if (n < 0 && n != -EAGAIN)
        rd->rc = (int)n;
    if (n <= 0)
        return false;
    if (!in_head)
        note_bytes(rd, t, (size_t)n);
    else if ((t->have += (size_t)n) == VN_CHUNK_HEAD)
        note_head(rd, stripe);
    return true;
}

static void *read_main(void *arg)
{
    struct reader *rd = arg;
    uint64_t start = hw_now_ns();
    while (rd->rc == 0 && (rd->got < rd->wanted || rd->ended < rd->uploads)) {
        bool some = false;
        for (unsigned stripe = 0; stripe < rd->rig->count && rd->rc == 0; stripe++)
            some = read_stripe(rd, stripe) || some;
        if (!some)
            sched_yield();
        if (hw_now_ns() - start > patience_ns)
            rd->rc = -ETIMEDOUT;
    }
    return NULL;
}

static struct reader *reader_start(struct rig *r, uint32_t uploads, uint64_t wanted,
                                   size_t piece_max)
{
    struct reader *rd = calloc(1, sizeof(*rd));
    assert_non_null(rd);
    rd->rig = r;
    rd->piece_max = piece_max;
    rd->uploads = uploads;
    rd->wanted = wanted;
    rd->image = calloc(1, MEMORY_BYTES);
    assert_non_null(rd->image);
    assert_int_equal(pthread_create(&rd->thread, NULL, read_main, rd), 0);
    return rd;
}

static void reader_free(struct reader *rd)
{
    free(rd->image);
    free(rd);
}

/* On each stripe uploads come in order; on the first each has one end, behind its chunks; on the
 * others none has. */
static void expect_order(const struct reader *rd, uint32_t uploads)
{
    uint32_t last[VN_STRIPES_MAX] = {0}, ended = 0;
    for (size_t i = 0; i < rd->chunks; i++) {
        unsigned stripe = rd->seen[i].stripe;
        struct vn_chunk p = rd->seen[i].chunk;
        assert_true(p.upload >= 1 && p.upload <= uploads && p.upload >= last[stripe]);
        assert_true(p.bytes <= VN_CHUNK_BYTES);
        assert_true(p.offset % PAGE == 0);
        last[stripe] = p.upload;
        if (stripe == 0)
            assert_int_equal(p.upload, ended + 1);
        else
            assert_true(p.bytes > 0);
        ended += p.bytes == 0;
    }
    assert_int_equal(ended, uploads);
}

/* ---- what is sent ---- */

static const unsigned stripe_counts[] = {1, 3, VN_STRIPES_MAX};

/* Uploads that follow each other in memory, with a gap between. */
static void send_some(unsigned stripes, const size_t *sizes, uint32_t uploads, size_t piece_max)
{
    struct rig r;
    uint64_t offs[UPLOADS_MAX], wanted = 0, at = PAGE;
    uint8_t pages[PAGES] = {0};
    for (uint32_t i = 0; i < uploads; i++) {
        offs[i] = at;
        wanted += sizes[i];
        at = (at + sizes[i] + 2 * PAGE - 1) / PAGE * PAGE;
        memset(pages + offs[i] / PAGE, 1, (sizes[i] + PAGE - 1) / PAGE);
    }
    assert_true(at <= MEMORY_BYTES);
    rig_start(&r, stripes);
    struct reader *rd = reader_start(&r, uploads, wanted, piece_max);
    for (uint32_t i = 0; i < uploads; i++)
        assert_int_equal(vnc_stripes_send(r.stripes, program + offs[i], offs[i], sizes[i]), 0);
    pthread_join(rd->thread, NULL);
    assert_int_equal(rd->rc, 0);
    assert_int_equal(rd->got, wanted);
    assert_int_equal(vnc_stripes_bytes(r.stripes), wanted);
    expect_order(rd, uploads);
    assert_memory_equal(rd->pages, pages, PAGES);
    for (uint32_t i = 0; i < uploads; i++)
        assert_int_equal(memcmp(rd->image + offs[i], program + offs[i], sizes[i]), 0);
    reader_free(rd);
    rig_end(&r);
}

static void each_byte_leaves_once_and_the_end_last(void **state)
{
    static const size_t sizes[] = {VNC_SPREAD_LEAST, 4 << 20, PAGE, VN_CHUNK_BYTES, SOME_BYTES + 9};
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(core_counts); c++) {
        cores = core_counts[c];
        for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
            for (size_t n = 0; n < ARRAY_LEN(sizes); n++)
                send_some(stripe_counts[i], &sizes[n], 1, SIZE_MAX);
        }
    }
}

static void several_uploads_leave_in_order(void **state)
{
    size_t sizes[UPLOADS_MAX];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        sizes[i] = (i % 5 + 1) * 13 * PAGE;
    for (size_t c = 0; c < ARRAY_LEN(core_counts); c++) {
        cores = core_counts[c];
        for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
            send_some(stripe_counts[i], sizes, ARRAY_LEN(sizes), SIZE_MAX);
        }
    }
}

/* Its sockets are full most of the time. */
static void a_slow_peer_gets_all(void **state)
{
    static const size_t sizes[] = {1 << 20, 1 << 20};
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(core_counts); c++) {
        cores = core_counts[c];
        for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++)
            send_some(stripe_counts[i], sizes, ARRAY_LEN(sizes), 1000);
    }
}

/* ---- what ends it ---- */

struct sending {
    struct rig *rig;
    int rc;
    _Atomic bool done;
    pthread_t thread;
};

static void *send_main(void *arg)
{
    static const uint8_t zeros[TOO_MANY_BYTES];
    struct sending *s = arg;
    s->rc = vnc_stripes_send(s->rig->stripes, zeros, 0, TOO_MANY_BYTES);
    s->done = true;
    return NULL;
}

/* Begins an upload that nobody reads, and waits until something of it is in each socket. */
static void send_in_vain(struct sending *s)
{
    uint64_t start = hw_now_ns();
    assert_int_equal(pthread_create(&s->thread, NULL, send_main, s), 0);
    for (unsigned stripe = 0; stripe < s->rig->count; stripe++) {
        struct rpc_transport *end = s->rig->ends[stripe];
        int unread = 0;
        while (unread == 0) {
            assert_int_equal(ioctl(end->ops->poll_fd(end), FIONREAD, &unread), 0);
            assert_true(hw_now_ns() - start < patience_ns);
            sched_yield();
        }
    }
    assert_false(s->done);
}

static void the_end_of_the_session_ends_an_upload(void **state)
{
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(core_counts); c++) {
        cores = core_counts[c];
        for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
            struct rig r;
            rig_start(&r, stripe_counts[i]);
            struct sending s = {.rig = &r};
            send_in_vain(&s);
            r.over = true;
            pthread_join(s.thread, NULL);
            assert_int_equal(s.rc, -ESHUTDOWN);
            rig_end(&r);
        }
    }
}

static void a_peer_that_closes_ends_an_upload(void **state)
{
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(core_counts); c++) {
        cores = core_counts[c];
        for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
            struct rig r;
            rig_start(&r, stripe_counts[i]);
            struct sending s = {.rig = &r};
            send_in_vain(&s);
            close_ends(&r);
            pthread_join(s.thread, NULL);
            assert_true(s.rc < 0);
            assert_true(vnc_stripes_send(r.stripes, program, 0, PAGE) < 0);
            rig_end(&r);
        }
    }
}

/* The caller's own stripe is well. */
static void another_stripe_that_closes_is_told(void **state)
{
    static uint8_t scrap[1 << 20];
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(core_counts); c++) {
        struct rig r;
        cores = core_counts[c];
        rig_start(&r, 2);
        struct sending s = {.rig = &r};
        send_in_vain(&s);
        rpc_transport_destroy(r.ends[1]);
        r.ends[1] = NULL;
        while (!s.done) {
            struct iovec iov = {scrap, sizeof(scrap)};
            (void)r.ends[0]->ops->recv(r.ends[0], &iov, 1, 10 * HW_MS);
        }
        pthread_join(s.thread, NULL);
        assert_true(s.rc < 0);
        rig_end(&r);
    }
}

/* ---- life ---- */

static void a_server_that_refuses_is_told(void **state)
{
    (void)state;
    cores = 2;
    for (unsigned stripes = 0; stripes < 3; stripes++) {
        struct rig r = {0};
        server_start();
        server.refuse_from = stripes;
        assert_int_equal(dial(&r, 3), -ENOSYS);
        server_end();
    }
}

/* What was dialled before one was refused is closed. */
static void a_refusal_ends_the_stripes_before_it(void **state)
{
    struct rig r = {0};
    uint8_t byte;
    struct iovec iov = {&byte, 1};
    (void)state;
    cores = 2;
    server_start();
    server.refuse_from = 1;
    assert_int_equal(dial(&r, 2), -ENOSYS);
    pthread_mutex_lock(&server.lock);
    struct rpc_transport *end = server.callers[0].transport;
    pthread_mutex_unlock(&server.lock);
    assert_non_null(end);
    uint64_t start = hw_now_ns();
    ssize_t n = -EAGAIN;
    while (n == -EAGAIN && hw_now_ns() - start < patience_ns)
        n = end->ops->recv(end, &iov, 1, HW_SEC);
    assert_true(n == -ESHUTDOWN || n == -ECONNRESET);
    server_end();
}

static void a_server_that_is_not_there_is_told(void **state)
{
    struct rig r = {0};
    (void)state;
    cores = 2;
    server_start();
    server_end();
    assert_true(dial(&r, 1) < 0);
}

static void each_dial_has_a_key_of_its_own(void **state)
{
    static const uint8_t none[VN_STRIPE_KEY_BYTES];
    struct rig r, other = {.count = 1};
    (void)state;
    cores = 2;
    rig_dial(&r, 2);
    assert_int_equal(dial(&other, 1), 0);
    find_ends(&other);
    assert_memory_not_equal(vnc_stripes_key(r.stripes), none, sizeof(none));
    assert_memory_not_equal(vnc_stripes_key(r.stripes), vnc_stripes_key(other.stripes),
                            sizeof(none));
    vnc_stripes_destroy(other.stripes);
    close_ends(&other);
    rig_end(&r);
}

static void a_server_with_another_count_has_none(void **state)
{
    (void)state;
    cores = 2;
    for (uint32_t at_server = 0; at_server <= 4; at_server++) {
        struct rig r;
        rig_dial(&r, 3);
        assert_int_equal(vnc_stripes_open(r.stripes, at_server, NULL, NULL),
                         at_server == 3 ? 0 : -ENOTCONN);
        rig_end(&r);
    }
}

static void stripes_may_end_without_use(void **state)
{
    (void)state;
    vnc_stripes_destroy(NULL);
    for (size_t c = 0; c < ARRAY_LEN(core_counts); c++) {
        cores = core_counts[c];
        for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
            struct rig r;
            rig_dial(&r, stripe_counts[i]);
            rig_end(&r);
            rig_start(&r, stripe_counts[i]);
            rig_end(&r);
            rig_start(&r, stripe_counts[i]);
            assert_int_equal(vnc_stripes_bytes(r.stripes), 0);
            rig_end(&r);
        }
    }
}

/* ---- a server whose stripes another process takes over ---- */

enum { NO_STATUS = 1 };

struct host {
    struct rpc_server *server;
    struct rpc_ep *stripe;
    bool opened;
};

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct host *h = user;
    struct rpc_send nothing = {.stream = msg->stream};
    if (msg->method == VN_METHOD_STRIPE) {
        h->stripe = ep;
    } else {
        rpc_server_detach(h->server, h->stripe);
        h->opened = true;
    }
    (void)rpc_reply(ep, msg, 0, &nothing);
    rpc_release(ep, msg);
}

static void on_reply(void *user, int status, const struct rpc_msg *reply)
{
    (void)reply;
    *(int *)user = status;
}

/* One turn of the server and of a caller. */
static void turn(struct host *h, struct rpc_ep *ep)
{
    (void)rpc_poll(ep);
    (void)rpc_flush(ep);
    (void)rpc_server_turn(h->server, 0);
}

static void await_reply(struct host *h, struct rpc_ep *ep, const int *status)
{
    uint64_t start = hw_now_ns();
    while (*status == NO_STATUS) {
        turn(h, ep);
        assert_true(hw_now_ns() - start < patience_ns);
    }
    assert_int_equal(*status, 0);
}

/* *at_server is the server's end, which stays open here. */
static struct rpc_ep *adopt_caller(struct host *h, int *at_server)
{
    struct rpc_transport *ends[2];
    struct rpc_config config = {.heartbeat_ns = HW_NEVER};
    struct rpc_ep *ep;
    assert_int_equal(rpc_unix_pair(ends), 0);
    *at_server = dup(ends[1]->ops->poll_fd(ends[1]));
    assert_true(*at_server >= 0);
    assert_int_equal(rpc_server_adopt(h->server, ends[1]), 0);
    assert_int_equal(rpc_ep_create(ends[0], &config, &ep), 0);
    for (uint64_t start = hw_now_ns(); rpc_ep_status(ep) == -EINPROGRESS;) {
        turn(h, ep);
        assert_true(hw_now_ns() - start < patience_ns);
    }
    assert_int_equal(rpc_ep_status(ep), 0);
    return ep;
}

/* Chunks may wait on a stripe while the server still clears its own end of it away: they are the
 * session's. */
static void what_waits_on_a_stripe_is_left_to_its_session(void **state)
{
    static const struct rpc_server_ops ops = {.message = on_message};
    struct host h = {0};
    struct rpc_server_options options = {
        .ops = &ops, .user = &h, .config = {.heartbeat_ns = HW_NEVER}};
    uint8_t chunk[100] = {1};
    struct iovec iov = {chunk, sizeof(chunk)};
    int stripe_fd, other_fd, unread = 0, status = NO_STATUS;
    (void)state;
    assert_int_equal(rpc_server_create(&options, &h.server), 0);
    struct rpc_ep *session = adopt_caller(&h, &other_fd); /* first, as the server goes by age */
    struct rpc_ep *ep = adopt_caller(&h, &stripe_fd);
    struct rpc_send stripe = {.method = VN_METHOD_STRIPE}, open = {.method = VN_METHOD_OPEN};
    assert_int_equal(rpc_call(ep, &stripe, on_reply, &status, NULL), 0);
    await_reply(&h, ep, &status);
    struct rpc_transport *t = rpc_ep_strip(ep);
    status = NO_STATUS;
    assert_int_equal(rpc_call(session, &open, on_reply, &status, NULL), 0);
    (void)rpc_flush(session);
    assert_int_equal(t->ops->send(t, &iov, 1), sizeof(chunk));
    await_reply(&h, session, &status);
    assert_true(h.opened);
    for (int i = 0; i < 10; i++)
        turn(&h, session);
    assert_int_equal(ioctl(stripe_fd, FIONREAD, &unread), 0);
    assert_int_equal(unread, sizeof(chunk));
    assert_int_equal(t->ops->recv(t, &iov, 1, 0), -EAGAIN);
    assert_int_equal(rpc_server_clients(h.server), 2);
    rpc_server_returned(h.server);
    assert_int_equal(rpc_server_clients(h.server), 1);
    rpc_transport_destroy(t);
    rpc_ep_destroy(session);
    rpc_server_destroy(h.server);
    close(stripe_fd);
    close(other_fd);
}

int main(void)
{
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    for (size_t i = 0; i < MEMORY_BYTES; i += sizeof(uint64_t)) {
        uint64_t word = hw_rng_u64(&rng);
        memcpy(program + i, &word, sizeof(word));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_leaves_once_and_the_end_last),
        cmocka_unit_test(several_uploads_leave_in_order),
        cmocka_unit_test(a_slow_peer_gets_all),
        cmocka_unit_test(the_end_of_the_session_ends_an_upload),
        cmocka_unit_test(a_peer_that_closes_ends_an_upload),
        cmocka_unit_test(another_stripe_that_closes_is_told),
        cmocka_unit_test(a_server_that_refuses_is_told),
        cmocka_unit_test(a_refusal_ends_the_stripes_before_it),
        cmocka_unit_test(a_server_that_is_not_there_is_told),
        cmocka_unit_test(each_dial_has_a_key_of_its_own),
        cmocka_unit_test(a_server_with_another_count_has_none),
        cmocka_unit_test(stripes_may_end_without_use),
        cmocka_unit_test(what_waits_on_a_stripe_is_left_to_its_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
