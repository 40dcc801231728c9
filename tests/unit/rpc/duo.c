#include "unit.h"

#include "base/clock.h"
#include "base/rng.h"
#include "duo.h"
#include "rpc/transport/tls.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static const uint64_t hang_ns = 240 * HW_SEC; /* only a hang reaches it, also on a busy host */

const char *const link_names[LINK_KINDS] = {
    "loopback",
    "loopback in pieces",
    "loopback with stalls",
    "loopback with jitter",
    "unix",
    "shm",
    "tcp",
    "tcp over IPv6",
    "tls",
    "ucx",
};

static const struct rpc_loopnet_options loop_options[] = {
    [LINK_LOOP] = {.seed = 1, .delay_ns = 10 * HW_US, .write_cost_ns = HW_US},
    [LINK_LOOP_PIECES] = {.seed = 2, .delay_ns = HW_US, .piece_max = 700},
    [LINK_LOOP_STALLS] = {.seed = 3,
                          .stall_percent = 30,
                          .buffer_bytes = 64 << 10,
                          .piece_max = 50000},
    [LINK_LOOP_JITTER] = {.seed = 4, .delay_ns = HW_MS, .jitter_ns = HW_MS, .write_cost_ns = HW_US},
};

static struct rpc_addr addr_of(const char *text)
{
    struct rpc_addr addr;
    char why[RPC_WHY_CHARS];
    if (rpc_addr_parse(text, &addr, why))
        fail_msg("%s", why);
    return addr;
}

static const char *listen_text(enum link_kind kind)
{
    return kind == LINK_TCP6 ? "[::1]:0" : kind == LINK_UCX ? "ucx:127.0.0.1:0" : "127.0.0.1:0";
}

bool link_exists(enum link_kind kind)
{
    if (kind < LINK_TCP4)
        return true;
    struct rpc_addr addr = addr_of(listen_text(kind));
    struct rpc_listener *l;
    char why[RPC_WHY_CHARS];
    if (rpc_listen(&addr, NULL, &l, why))
        return false;
    rpc_listener_destroy(l);
    return true;
}

/* ---- TLS for tests: a key made on the spot ---- */

struct identity {
    struct rpc_security client, server;
};

static void remove_key_files(const char *dir)
{
    static const char *const names[] = {"server.crt", "server.key", "token"};
    char path[200];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static void identity_init(struct identity *id)
{
    char dir[64] = "/tmp/hawser-duo-XXXXXX", why[RPC_WHY_CHARS] = "";
    char fingerprint[2 * RPC_FINGERPRINT_BYTES + 1], crt[128], key[128];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(rpc_keygen(dir, NULL, 0, 2, fingerprint, why), 0);
    snprintf(crt, sizeof crt, "%s/server.crt", dir);
    snprintf(key, sizeof key, "%s/server.key", dir);
    struct rpc_security_files server = {.certificate = crt, .key = key};
    struct rpc_security_files client = {.fingerprint = fingerprint};
    assert_int_equal(rpc_security_load(&id->server, &server, true, why), 0);
    assert_int_equal(rpc_security_load(&id->client, &client, false, why), 0);
    remove_key_files(dir);
}

static void identity_fini(struct identity *id)
{
    rpc_security_fini(&id->client);
    rpc_security_fini(&id->server);
}

/* ---- links ---- */

struct dialler {
    struct rpc_addr addr;
    const struct rpc_security *security;
    struct rpc_transport *transport;
    int rc;
    char why[RPC_WHY_CHARS];
    _Atomic bool done;
};

static void *dial_main(void *arg)
{
    struct dialler *d = arg;
    struct rpc_net_options options = {.security = d->security, .timeout_ns = hang_ns};
    d->rc = rpc_dial(&d->addr, &options, &d->transport, d->why);
    d->done = true;
    return NULL;
}

/* In a thread, since a UCX dial returns only when the other side accepts, and goes on: UCX may have
 * more to say on the new connection before the dialler has its answer. */
static void dial_and_accept(struct rpc_listener *l, struct dialler *d, struct rpc_transport *out[2])
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, dial_main, d), 0);
    uint64_t deadline = hw_now_ns() + hang_ns;
    int rc;
    while ((rc = l->ops->accept(l, &out[SERVER])) == -EAGAIN && hw_now_ns() < deadline)
        sched_yield();
    while (rc == 0 && !d->done)
        (void)out[SERVER]->ops->wait(out[SERVER], RPC_WAIT_RECV, HW_MS);
    pthread_join(thread, NULL);
    assert_int_equal(rc, 0);
    if (d->rc)
        fail_msg("%s", d->why);
    out[CLIENT] = d->transport;
}

static void link_listen(enum link_kind kind, struct rpc_transport *out[2])
{
    struct identity id = {0};
    if (kind == LINK_TLS)
        identity_init(&id);
    struct rpc_addr addr = addr_of(listen_text(kind));
    struct rpc_net_options options = {.security = &id.server};
    struct rpc_listener *l;
    char why[RPC_WHY_CHARS];
    if (rpc_listen(&addr, &options, &l, why))
        fail_msg("%s", why);
    struct dialler d = {.addr = addr_of(l->address), .security = &id.client};
    dial_and_accept(l, &d, out);
    rpc_listener_destroy(l);
    identity_fini(&id);
}

void link_make(enum link_kind kind, struct rpc_transport *out[2], struct rpc_loopnet **net)
{
    *net = NULL;
    if (link_is_loop(kind)) {
        assert_int_equal(rpc_loopnet_create(&loop_options[kind], net), 0);
        assert_int_equal(rpc_loopnet_pair(*net, out), 0);
    } else if (kind == LINK_UNIX) {
        assert_int_equal(rpc_unix_pair(out), 0);
    } else if (kind == LINK_SHM) {
        assert_int_equal(rpc_shm_pair(64 << 10, out), 0);
    } else {
        link_listen(kind, out);
    }
}

/* ---- the two programs ---- */

void duo_start(struct duo *duo, enum link_kind kind, const struct rpc_config *client,
               const struct rpc_config *server)
{
    *duo = (struct duo){.kind = kind, .give_up_ns = hw_now_ns() + hang_ns};
    struct rpc_transport *t[2];
    link_make(kind, t, &duo->net);
    const struct rpc_config *given[2] = {client, server};
    for (int i = 0; i < 2; i++) {
        struct rpc_config config = given[i] ? *given[i] : (struct rpc_config){0};
        config.accepting = i == SERVER;
        if (duo->net)
            config.clock = rpc_loopnet_clock(duo->net);
        assert_int_equal(rpc_ep_create(t[i], &config, &duo->ep[i]), 0);
    }
}

static bool is_open(void *user)
{
    struct duo *duo = user;
    return rpc_ep_status(duo->ep[0]) != -EINPROGRESS && rpc_ep_status(duo->ep[1]) != -EINPROGRESS;
}

void duo_open(struct duo *duo, enum link_kind kind, const struct rpc_config *client,
              const struct rpc_config *server)
{
    duo_start(duo, kind, client, server);
    duo_until(duo, is_open, duo);
    for (int i = 0; i < 2; i++)
        if (rpc_ep_status(duo->ep[i]))
            fail_msg("%s", rpc_ep_reason(duo->ep[i]));
}

void duo_release_held(struct duo *duo, int side)
{
    for (uint32_t i = 0; i < duo->held_count; i++)
        rpc_release(duo->ep[side], duo->held[i]);
    duo->held_count = 0;
}

void duo_drop(struct duo *duo, int side)
{
    if (side == SERVER && duo->ep[SERVER])
        duo_release_held(duo, SERVER);
    rpc_ep_destroy(duo->ep[side]);
    duo->ep[side] = NULL;
}

static void *drop_client(void *duo)
{
    duo_drop(duo, CLIENT);
    return NULL;
}

void duo_close(struct duo *duo)
{
    /* Over UCX an end that goes lets its peer read what is left.  Both go at once, else each close
     * would wait for a peer that nobody drives. */
    pthread_t client;
    bool together = duo->kind == LINK_UCX && duo->ep[CLIENT] && duo->ep[SERVER];
    if (together)
        assert_int_equal(pthread_create(&client, NULL, drop_client, duo), 0);
    else
        duo_drop(duo, CLIENT);
    duo_drop(duo, SERVER);
    if (together)
        pthread_join(client, NULL);
    rpc_loopnet_destroy(duo->net);
}

void duo_serve(struct duo *duo, int side, struct rpc_msg *msg)
{
    struct rpc_ep *ep = duo->ep[side];
    struct iovec iov = {(void *)msg->data, msg->len};
    struct rpc_send echo = {.iov = &iov, .iov_count = 1};
    static const char text[] = "there is no such thing here";
    struct iovec text_iov = {(void *)text, sizeof text - 1};
    struct rpc_send why = {.iov = &text_iov, .iov_count = 1};
    if (msg->kind == RPC_PUSH)
        duo->pushed++;
    if (msg->kind != RPC_CALL) {
        duo->sunk++;
        duo->sunk_bytes += msg->len;
    } else if (msg->method == METHOD_HOLD) {
        assert_true(duo->held_count < ARRAY_LEN(duo->held));
        duo->held[duo->held_count++] = msg;
        return;
    } else if (msg->method == METHOD_FAIL) {
        (void)rpc_reply(ep, msg, -ENOENT, &why);
    } else {
        (void)rpc_reply(ep, msg, 0, &echo);
    }
    rpc_release(ep, msg);
}

/* One side's turn; true when it did something or has something left to send. */
static bool side_turn(struct duo *duo, int side)
{
    struct rpc_ep *ep = duo->ep[side];
    if (!ep || duo->absent[side])
        return false;
    bool busy = rpc_poll(ep) > 0;
    struct rpc_msg *msg;
    while ((msg = rpc_recv(ep)) != NULL) {
        (duo->on_message ? duo->on_message : duo_serve)(duo, side, msg);
        busy = true;
    }
    (void)rpc_flush(ep);
    int status = rpc_ep_status(ep);
    return busy || ((status == 0 || status == -EINPROGRESS) && rpc_pending(ep));
}

static uint64_t next_tick(const struct duo *duo)
{
    uint64_t now = rpc_loopnet_now(duo->net), next = now; /* nobody is left: time stands still */
    for (int i = 0; i < 2; i++) {
        const struct rpc_ep *ep = duo->ep[i];
        if (!ep || duo->absent[i] || (rpc_ep_status(ep) && rpc_ep_status(ep) != -EINPROGRESS))
            continue;
        uint64_t tick = rpc_next_tick(ep);
        if (tick > now + HW_SEC)
            tick = now + HW_SEC;
        if (next == now || tick < next)
            next = tick;
    }
    return next;
}

void duo_turn(struct duo *duo)
{
    if (hw_now_ns() > duo->give_up_ns)
        fail_msg("%s: no end (client: %s)", link_names[duo->kind],
                 duo->ep[CLIENT] ? rpc_ep_reason(duo->ep[CLIENT]) : "gone");
    bool busy = side_turn(duo, CLIENT);
    busy = side_turn(duo, SERVER) || busy;
    if (!duo->net && !busy)
        sched_yield();
    if (!duo->net)
        return;
    uint64_t tick = next_tick(duo), soon = rpc_loopnet_now(duo->net) + 20 * HW_US;
    uint64_t until = busy && soon < tick ? soon : tick, now = rpc_loopnet_now(duo->net);
    rpc_loopnet_step(duo->net, until);
    /* Bytes that lie unread hold time up, unless nobody will ever read them. */
    if ((duo->absent[CLIENT] || duo->absent[SERVER]) && rpc_loopnet_now(duo->net) == now)
        rpc_loopnet_spend(duo->net, until - now);
}

void duo_until(struct duo *duo, bool (*done)(void *user), void *user)
{
    while (!done(user))
        duo_turn(duo);
}

struct count_goal {
    const uint64_t *count;
    uint64_t value;
};

static bool count_reached(void *user)
{
    const struct count_goal *goal = user;
    return *goal->count >= goal->value;
}

void duo_until_count(struct duo *duo, const uint64_t *count, uint64_t value)
{
    struct count_goal goal = {count, value};
    duo_until(duo, count_reached, &goal);
    assert_int_equal(*count, value);
}

struct status_goal {
    const struct rpc_ep *ep;
};

static bool has_ended(void *user)
{
    const struct status_goal *goal = user;
    int status = rpc_ep_status(goal->ep);
    return status != 0 && status != -EINPROGRESS;
}

void duo_until_status(struct duo *duo, int side, int status)
{
    struct status_goal goal = {duo->ep[side]};
    duo_until(duo, has_ended, &goal);
    if (rpc_ep_status(duo->ep[side]) != status)
        fail_msg("%s: status %d (%s) instead of %d", link_names[duo->kind],
                 rpc_ep_status(duo->ep[side]), rpc_ep_reason(duo->ep[side]), status);
}

/* A call on every stream in order: when the last is answered, all before it has arrived. */
void duo_drain(struct duo *duo)
{
    struct outcome outcomes[RPC_STREAMS] = {0};
    for (int i = 0; i < RPC_STREAMS; i++) {
        struct rpc_send send = {.method = METHOD_ECHO, .stream = (uint8_t)i};
        assert_int_equal(rpc_call(duo->ep[CLIENT], &send, outcome_fn, &outcomes[i], NULL), 0);
    }
    for (int i = 0; i < RPC_STREAMS; i++) {
        duo_until_count(duo, &outcomes[i].ended, 1);
        assert_int_equal(outcomes[i].status, 0);
    }
}

/* ---- payloads ---- */

void outcome_fn(void *user, int status, const struct rpc_msg *reply)
{
    struct outcome *o = user;
    o->ended++;
    o->status = status;
    if (!reply)
        return;
    o->len = reply->len;
    o->hash = pattern_hash(reply->data, reply->len);
    if (status && reply->len < sizeof o->text) {
        memcpy(o->text, reply->data, reply->len);
        o->text[reply->len] = '\0';
    }
}

void pattern_fill(uint8_t *p, size_t n, uint64_t seed)
{
    struct hw_rng rng;
    hw_rng_seed(&rng, seed);
    uint64_t v;
    for (; n >= sizeof v; p += sizeof v, n -= sizeof v) { /* a copy of a fixed size is no call */
        v = hw_rng_u64(&rng);
        memcpy(p, &v, sizeof v);
    }
    v = hw_rng_u64(&rng);
    memcpy(p, &v, n);
}

uint64_t pattern_hash(const uint8_t *p, size_t n)
{
    return XXH3_64bits(p, n);
}

struct rpc_send send_of(uint32_t method, struct iovec *iov, const void *data, size_t len)
{
    *iov = (struct iovec){(void *)data, len};
    return (struct rpc_send){.method = method, .iov = iov, .iov_count = 1};
}
