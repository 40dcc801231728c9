/* endpoint.c - an endpoint from its handshake to its end, and what is known of its peer. */
#include "rpc/endpoint/ep.h"

#include "base/log.h"
#include "base/units.h"
#include "rpc/callers.h"
#include "rpc/resume/resume.h"

#include <assert.h>
#include <errno.h>
#include <openssl/rand.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PINGS_A_SILENCE = 4 }; /* three may be late before the peer counts as dead */

static const uint64_t ping_every_min_ns = RPC_HEARTBEAT_MIN_NS / PINGS_A_SILENCE;

static int config_complete(struct rpc_config *config)
{
    if (config->window_bytes == 0)
        config->window_bytes = RPC_WINDOW_DEFAULT;
    if (config->max_calls == 0)
        config->max_calls = RPC_CALLS_DEFAULT;
    if (config->heartbeat_ns == 0)
        config->heartbeat_ns = RPC_HEARTBEAT_DEFAULT_NS;
    if (config->handshake_ns == 0)
        config->handshake_ns = RPC_HANDSHAKE_DEFAULT_NS;
    if (config->window_bytes < RPC_WINDOW_MIN || config->window_bytes > RPC_WINDOW_MAX ||
        config->max_calls < RPC_CALLS_MIN || config->max_calls > RPC_CALLS_MAX ||
        (config->heartbeat_ns != HW_NEVER && (config->heartbeat_ns < RPC_HEARTBEAT_MIN_NS ||
                                              config->heartbeat_ns / HW_MS > UINT32_MAX)))
        return -EINVAL;
    return 0;
}

static uint64_t ping_interval(uint64_t heartbeat_ns)
{
    if (heartbeat_ns == HW_NEVER)
        return HW_NEVER;
    uint64_t every = heartbeat_ns / PINGS_A_SILENCE;
    return every < ping_every_min_ns ? ping_every_min_ns : every;
}

static int start_handshake(struct rpc_ep *ep)
{
    uint8_t nonce[RPC_HS_NONCE];
    if (RAND_bytes(nonce, sizeof nonce) != 1)
        return -EIO;
    ep->handshake = malloc(sizeof *ep->handshake);
    if (!ep->handshake)
        return -ENOMEM;
    return rpc_handshake_init(ep->handshake, &ep->config, nonce, ep->transport->local,
                              ep->transport->user);
}

static void register_counters(struct rpc_ep *ep)
{
    ep->counters = (struct hw_counter_set){
        .defs = rpc_stats_defs, .values = (_Atomic uint64_t *)&ep->stats, .count = RPC_STATS_COUNT};
    (void)hw_counter_set_label(&ep->counters, "transport", ep->transport->ops->name);
    (void)hw_counter_set_label(&ep->counters, "side", ep->config.accepting ? "server" : "client");
    if (hw_counter_set_register(&ep->counters))
        hw_debug(HW_CAT_NET, "%s: not in the metrics: too many connections", ep->transport->peer);
}

int rpc_ep_create(struct rpc_transport *transport, const struct rpc_config *config,
                  struct rpc_ep **out)
{
    int rc = -ENOMEM;
    struct rpc_ep *ep = calloc(1, sizeof *ep);
    if (!ep)
        goto destroy_transport;
    ep->transport = transport;
    ep->config = *config;
    ep->status = -EINPROGRESS;
    snprintf(ep->reason, sizeof ep->reason, "connecting to %s", transport->peer);
    rc = config_complete(&ep->config);
    if (rc)
        goto free_ep;
    rc = rpc_resume_init(ep);
    if (rc)
        goto free_ep;
    transport = ep->transport;
    rc = start_handshake(ep);
    if (rc)
        goto free_ep;
    rc = rpc_rx_init(&ep->rx, ep->config.window_bytes,
                     ep->config.landing.place ? &ep->config.landing : NULL);
    if (rc)
        goto free_ep;
    if (ep->config.takes_fds && transport->ops->expect_fds)
        transport->ops->expect_fds(transport);
    uint64_t now = rpc_ep_now(ep);
    rpc_calls_init(&ep->calls, RPC_CALLS_MIN, now);
    /* Every peer takes at least this much; the rest of its window comes with its hello. */
    rpc_tx_init(&ep->tx, RPC_WINDOW_MIN, RPC_WINDOW_MIN);
    ep->message_max = RPC_WINDOW_MIN - RPC_MESSAGE_COST;
    bool has_budget = ep->config.wait == RPC_WAIT_ADAPTIVE && ep->config.spin_ns;
    hw_wait_init(&ep->wait, has_budget ? ep->config.spin_ns : rpc_spin_budget(ep->config.wait));
    ep->handshake_deadline_ns = now + ep->config.handshake_ns;
    ep->last_sent_ns = ep->last_received_ns = now;
    ep->silent_ns = ep->config.heartbeat_ns;
    ep->ping_every_ns = ping_interval(ep->config.heartbeat_ns);
    hw_looks_init(&ep->looks, ep->ping_every_ns, now);
    (void)hw_env_bool("VENUS_TRACE_NET", false, &ep->trace);
    register_counters(ep);
    *out = ep;
    return 0;

free_ep:
    rpc_resume_fini(ep);
    free(ep->handshake);
    free(ep);
destroy_transport:
    rpc_transport_destroy(transport);
    return rc;
}

static void end_calls(struct rpc_ep *ep, int status)
{
    uint32_t cursor = 0;
    struct rpc_pending_call call;
    while (rpc_calls_drain(&ep->calls, &cursor, &call) == 0)
        call.fn(call.user, status, NULL);
}

static void ep_free(struct rpc_ep *ep)
{
    if (ep->status == 0 || ep->status == -EINPROGRESS)
        ep->status = -ECANCELED;
    end_calls(ep, -ECANCELED);
    rpc_calls_fini(&ep->calls);
    while (ep->inbox) {
        struct rpc_rx_msg *msg = ep->inbox;
        ep->inbox = msg->next;
        rpc_rx_release(&ep->rx, msg);
    }
    rpc_tx_fini(&ep->tx);
    rpc_rx_fini(&ep->rx);
    rpc_resume_fini(ep);
    hw_counter_set_unregister(&ep->counters);
    free(ep->handshake);
    free(ep);
}

struct rpc_transport *rpc_ep_strip(struct rpc_ep *ep)
{
    struct rpc_transport *transport = ep->transport;
    ep_free(ep);
    return transport;
}

void rpc_ep_destroy(struct rpc_ep *ep)
{
    if (ep)
        rpc_transport_destroy(rpc_ep_strip(ep));
}

void rpc_ep_abandon(struct rpc_ep *ep)
{
    rpc_transport_abandon(rpc_ep_strip(ep));
}

int rpc_ep_fail(struct rpc_ep *ep, int status, const char *fmt, ...)
{
    assert(status < 0 && status != -EINPROGRESS && status != -EAGAIN);
    if (ep->status != 0 && ep->status != -EINPROGRESS)
        return ep->status; /* the first cause stays */
    va_list args;
    va_start(args, fmt);
    vsnprintf(ep->reason, sizeof ep->reason, fmt, args);
    va_end(args);
    if (ep->status == 0 && status == -EPROTO)
        rpc_ep_goodbye(ep, status, ep->reason);
    /* A connecting caller reports rpc_ep_reason itself. */
    bool opening = ep->status == -EINPROGRESS,
         told = ep->config.owner_tells || (opening && !ep->config.accepting);
    ep->status = status;
    if (status == -ESHUTDOWN || told)
        hw_debug(HW_CAT_NET, "%s: %s", ep->transport->peer, ep->reason);
    else if (opening)
        rpc_callers_warn(ep->transport->peer, "%s", ep->reason);
    else
        hw_warn(HW_CAT_NET, "%s: %s", ep->transport->peer, ep->reason);
    end_calls(ep, status);
    return status;
}

int rpc_ep_lost(struct rpc_ep *ep, int rc)
{
    const struct rpc_transport_ops *ops = ep->transport->ops;
    const char *why = ops->reason ? ops->reason(ep->transport) : NULL;
    if (why)
        return rpc_ep_fail(ep, rc, "%s", why);
    const char *when = ep->status == -EINPROGRESS ? " in the handshake" : "";
    if (rc == -ESHUTDOWN || rc == -EPIPE)
        return rpc_ep_fail(ep, -ECONNRESET,
                           "the peer vanished%s: its end was closed without a goodbye", when);
    return rpc_ep_fail(ep, rc, "connection lost%s: %s", when, strerror(-rc));
}

void rpc_ep_open(struct rpc_ep *ep)
{
    const struct rpc_hello *peer = &ep->handshake->peer;
    ep->status = 0;
    ep->proved = ep->handshake->token;
    ep->tenant = ep->handshake->tenant;
    snprintf(ep->reason, sizeof ep->reason, "connected");
    memcpy(ep->peer_name, peer->name, sizeof ep->peer_name);
    ep->peer_capabilities = peer->capabilities;
    ep->peer_takes_fds = peer->flags & RPC_HELLO_TAKES_FDS;
    ep->peer_resumes = peer->flags & RPC_HELLO_RESUMES;
    ep->peer_resuming = peer->flags & RPC_HELLO_RESUMING;
    size_t unparsed;
    (void)rpc_rx_peek(&ep->rx, &unparsed);
    ep->received_before = hw_counter_load(&ep->stats.bytes_received) - unparsed;
    ep->message_max = peer->window_bytes - RPC_MESSAGE_COST;
    ep->tx.credit += peer->window_bytes - RPC_WINDOW_MIN;
    uint32_t queue = ep->config.send_queue_bytes;
    if (queue == 0) /* a peer may claim any window: ours bounds what it makes us hold */
        queue = peer->window_bytes < ep->config.window_bytes ? peer->window_bytes
                                                             : ep->config.window_bytes;
    ep->tx.queue_limit = queue;
    ep->calls.limit = peer->max_calls;
    if (peer->heartbeat_ms > 0) {
        uint64_t every = ping_interval(peer->heartbeat_ms * HW_MS);
        if (every < ep->ping_every_ns)
            ep->ping_every_ns = every;
    }
    /* A peer that promises no heartbeat may be silent for as long as it likes. */
    if (peer->heartbeat_ms == 0 ||
        (ep->config.tolerates_silence && !ep->transport->ops->host_answers))
        ep->silent_ns = HW_NEVER;
    if (ep->config.mute || ep->config.resuming || ep->peer_resuming)
        rpc_ep_mute(ep);
    if (ep->resume)
        rpc_resume_opened(ep);
    free(ep->handshake);
    ep->handshake = NULL;
    hw_debug(HW_CAT_NET, "%s: connected over %s to \"%s\"", ep->transport->peer,
             ep->transport->ops->name, ep->peer_name);
}

void rpc_ep_refuse_others(struct rpc_ep *ep, const char *full)
{
    assert(ep->handshake && ep->config.accepting);
    ep->handshake->full = full;
}

bool rpc_ep_peer_resumes(const struct rpc_ep *ep)
{
    return ep->peer_resumes;
}

bool rpc_ep_peer_resuming(const struct rpc_ep *ep)
{
    return ep->peer_resuming;
}

void rpc_ep_mute(struct rpc_ep *ep)
{
    ep->mute = true;
    ep->ping_every_ns = ep->silent_ns = HW_NEVER;
}

bool rpc_ep_is_mute(const struct rpc_ep *ep)
{
    return ep->mute;
}

int rpc_ep_status(const struct rpc_ep *ep)
{
    return ep->status;
}

const char *rpc_ep_reason(const struct rpc_ep *ep)
{
    return ep->reason;
}

const char *rpc_ep_peer(const struct rpc_ep *ep)
{
    return ep->transport->peer;
}

const char *rpc_ep_peer_name(const struct rpc_ep *ep)
{
    return ep->peer_name;
}

uint32_t rpc_ep_peer_capabilities(const struct rpc_ep *ep)
{
    return ep->peer_capabilities;
}

uint32_t rpc_ep_message_max(const struct rpc_ep *ep)
{
    return ep->message_max;
}

bool rpc_ep_proved(const struct rpc_ep *ep)
{
    return ep->proved;
}

size_t rpc_ep_tenant(const struct rpc_ep *ep)
{
    return ep->tenant;
}

bool rpc_ep_is_behind(const struct rpc_ep *ep)
{
    struct rpc_transport *t = ep->transport;
    return t->ops->is_behind && t->ops->is_behind(t);
}

bool rpc_ep_passes_fds(const struct rpc_ep *ep)
{
    return ep->transport->ops->send_fds && ep->peer_takes_fds;
}

struct rpc_transport *rpc_ep_transport(struct rpc_ep *ep)
{
    return ep->transport;
}

const struct rpc_stats *rpc_ep_stats(const struct rpc_ep *ep)
{
    return &ep->stats;
}

void *rpc_ep_user(const struct rpc_ep *ep)
{
    return ep->user;
}

void rpc_ep_set_user(struct rpc_ep *ep, void *user)
{
    ep->user = user;
}
