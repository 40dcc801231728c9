/* babbler.c - stands between one client and its server, and passes on what they say, until SIGUSR1
 * makes it say something to the client that cannot be read.
 *
 *   venus-babbler ADDRESS SERVER   says "listening on ADDRESS" first; ends when it is killed */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "rpc/server.h"
#include "venus/common/protocol.h"

static struct rpc_server *server;
static struct rpc_addr upstream_addr;
static struct rpc_ep *client, *upstream;

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "babbler: %s: %d\n", what, rc);
    exit(1);
}

static struct rpc_send same(const struct rpc_msg *msg, struct iovec *iov)
{
    *iov = (struct iovec){(void *)(uintptr_t)msg->data, msg->len};
    return (struct rpc_send){.method = msg->method,
                             .stream = msg->stream,
                             .iov = iov,
                             .iov_count = 1,
                             .timeout_ns = HW_NEVER};
}

/* ---- from the server ---- */

static void on_reply(void *call, int status, const struct rpc_msg *reply)
{
    struct iovec iov;
    struct rpc_send send = {0};
    if (!client)
        return;
    if (reply)
        send = same(reply, &iov);
    must(rpc_reply(client, call, status, reply ? &send : NULL), "reply");
    rpc_release(client, call);
}

static void on_upstream(void *user)
{
    struct rpc_msg *msg;
    struct iovec iov;
    (void)user;
    (void)rpc_poll(upstream);
    while ((msg = rpc_recv(upstream)) != NULL) {
        struct rpc_send send = same(msg, &iov);
        if (client && msg->kind == RPC_PUSH)
            must(rpc_push(client, &send), "push");
        rpc_release(upstream, msg);
    }
    (void)rpc_flush(upstream);
    if (client)
        (void)rpc_flush(client);
}

static void connect_upstream(void)
{
    struct rpc_transport *transport;
    struct rpc_config config = {.heartbeat_ns = HW_NEVER};
    char why[RPC_WHY_CHARS];
    int fds[RPC_TRANSPORT_FDS];
    must(rpc_dial(&upstream_addr, &(struct rpc_net_options){0}, &transport, why), why);
    must(rpc_ep_create(transport, &config, &upstream), "endpoint");
    must(transport->ops->descriptors(transport, fds) != 1, "a socket is one descriptor");
    must(rpc_server_watch(server, fds[0], on_upstream, NULL), "watch");
    (void)rpc_flush(upstream);
}

/* ---- from the client ---- */

static int on_opened(void *user, struct rpc_ep *ep)
{
    (void)user;
    assert(!client);
    client = ep;
    connect_upstream();
    return 0;
}

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct iovec iov;
    struct rpc_send send = same(msg, &iov);
    (void)user;
    if (msg->kind == RPC_CALL) {
        must(rpc_call(upstream, &send, on_reply, msg, NULL), "call");
    } else {
        must(rpc_post(upstream, &send), "post");
        rpc_release(ep, msg);
    }
    (void)rpc_flush(upstream);
}

static void on_closed(void *user, struct rpc_ep *ep, int status)
{
    (void)user;
    (void)ep;
    (void)status;
    exit(0); /* its only client */
}

/* ---- what cannot be read ---- */

static void babble(void *signals)
{
    struct signalfd_siginfo info;
    struct iovec iov = {(void *)(uintptr_t) "?", 1};
    struct rpc_send send = {.method = VN_PUSH_DONE, .iov = &iov, .iov_count = 1};
    if (read(*(int *)signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    must(rpc_push(client, &send), "push");
    (void)rpc_flush(client);
}

int main(int argc, char **argv)
{
    static const struct rpc_server_ops ops = {
        .opened = on_opened, .message = on_message, .closed = on_closed};
    struct rpc_server_options options = {.ops = &ops};
    struct rpc_addr addr;
    const char *bound;
    char why[RPC_WHY_CHARS] = "no such address";
    sigset_t babbling;
    if (argc != 3)
        return 2;
    sigemptyset(&babbling);
    sigaddset(&babbling, SIGUSR1);
    sigprocmask(SIG_BLOCK, &babbling, NULL);
    int signals = signalfd(-1, &babbling, SFD_CLOEXEC | SFD_NONBLOCK);
    must(rpc_addr_parse(argv[1], &addr, why), why);
    must(rpc_addr_parse(argv[2], &upstream_addr, why), why);
    must(rpc_server_create(&options, &server), "server");
    must(rpc_server_watch(server, signals, babble, &signals), "watch");
    must(rpc_server_listen(server, &addr, &(struct rpc_net_options){0}, &bound, why), why);
    printf("listening on %s\n", bound);
    fflush(stdout);
    rpc_server_run(server);
    return 0;
}
