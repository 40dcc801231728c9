#include "serve/session/process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process/child.h"
#include "rpc/security/security.h"
#include "rpc/transport/net.h"
#include "rpc/transport/sock.h"
#include "venus/common/protocol.h"

static const uint64_t door_ns = 10 * HW_SEC; /* twice what a dial may take */

static_assert((int)SESSION_FDS_MAX <= (int)RPC_SOCK_FDS_MAX, "an order is one message");

/* ---- in the server's process ---- */

int session_process_start(char *const *environment, const sigset_t *mask, pid_t *pid)
{
    static const char *const argv[] = {"hawser-session", SESSION_PROCESS_COMMAND, NULL};
    return hw_child_start(&(struct hw_child){argv, environment, mask, .fd = -1}, pid);
}

static int send_fds(int socket, const void *data, size_t len, const int *fds, int count)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    ssize_t n = rpc_sock_send_fds(socket, &iov, 1, fds, count);
    return n < 0 ? (int)n : n == (ssize_t)len ? 0 : -EMSGSIZE;
}

int session_process_give(int socket, const struct session_order *order, const int *fds,
                         int fd_count)
{
    int all[SESSION_FDS_MAX];
    assert(fd_count < SESSION_FDS_MAX);
    all[0] = memfd_create("hawser-order", MFD_CLOEXEC);
    if (all[0] < 0)
        return -errno;
    memcpy(all + 1, fds, (size_t)fd_count * sizeof(*fds));
    ssize_t n = write(all[0], order, sizeof(*order));
    int rc = n == (ssize_t)sizeof(*order) ? send_fds(socket, "", 1, all, fd_count + 1) : -ENOMEM;
    close(all[0]);
    return rc;
}

int session_process_resume(int socket, const struct session_resumption *resumption, const int *fds,
                           int fd_count)
{
    return send_fds(socket, resumption, sizeof(*resumption), fds, fd_count);
}

int session_process_door(int socket)
{
    int port;
    ssize_t n = recv(socket, &port, sizeof(port), MSG_DONTWAIT);
    return n == (ssize_t)sizeof(port) ? port : n < 0 ? -errno : -ESHUTDOWN;
}

/* ---- in the session's process ---- */

/* Waits for the server's next message, of `len` bytes.  How many descriptors came, or a negative
 * errno. */
static int receive_fds(void *data, size_t len, int fds[SESSION_FDS_MAX])
{
    int count = rpc_sock_recv_fds(HW_CHILD_SOCKET, 0, data, len, fds, SESSION_FDS_MAX);
    return count == 0 ? -ESHUTDOWN : count;
}

/* Mapped once; an order is read and kept for the life of the process. */
static struct session_order *read_order(int fd)
{
    void *map =
        mmap(NULL, sizeof(struct session_order), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    close(fd);
    return map == MAP_FAILED ? NULL : map;
}

/* Makes the connections of the order out of their descriptors.  0 or a negative errno. */
static int take_connections(struct session_order *order, const int *fds, struct rpc_ep **ep)
{
    order->options.stripe_count = 0;
    int rc = rpc_ep_take_over(&order->own, fds, order->fd_counts[0], &order->config, ep);
    fds += order->fd_counts[0];
    for (unsigned i = 1; i < order->connections && rc == 0; i++) {
        struct rpc_transport **stripe = &order->options.stripes[order->options.stripe_count];
        rc = rpc_transport_take_over(&order->stripes[i - 1], fds, order->fd_counts[i], stripe);
        fds += order->fd_counts[i];
        order->options.stripe_count += rc == 0;
    }
    return rc;
}

/* How many descriptors it took, or a negative errno. */
static int take_shared(struct session_order *order, const int *fds)
{
    int count = 1, rc = 0;
    void *map = mmap(NULL, sizeof(struct rpc_stats), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    close(fds[0]);
    order->options.stats = map == MAP_FAILED ? NULL : map;
    order->options.uploads = NULL;
    order->options.slice = NULL;
    if (order->slice_id) {
        rc = vns_slice_create(fds[count + 1], fds[count], order->slice_id, &order->options.slice);
        count += 2;
    }
    if (rc == 0 && order->has_uploads)
        rc = vns_upload_user_create(fds[count++], order->uploads_limit, &order->options.uploads);
    return rc ? rc : count;
}

/* A session that cannot become the user it shall be does not start. */
static int become(const struct session_order *order)
{
    pid_t server = getppid();
    sandbox_offer_memory();
    int rc = order->user.given ? sandbox_become(&order->user) : 0;
    if (rc)
        hw_error(HW_CAT_VULKAN, "%s: no session: cannot become --session-user: %s",
                 order->own.transport.peer, strerror(-rc));
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user clears it */
    return rc == 0 && getppid() == server ? 0 : 1;
}

static bool next_resumption(struct vns_resumption *out)
{
    struct session_resumption got;
    int fds[SESSION_FDS_MAX];
    int count;
    do
        count = receive_fds(&got, sizeof(got), fds);
    while (count >= 0 && rpc_transport_take_over(&got.transport, fds, count, &out->connection));
    out->stripe = got.stripe;
    out->call = got.call;
    out->received = got.received;
    return count >= 0;
}

static int offer_to_resume(struct session_order *order, struct rpc_ep *ep)
{
    int rc = order->config.resumes ? rpc_ep_offer_resume(ep, &order->key, order->resume_window_ns,
                                                         order->own.received)
                                   : -EOPNOTSUPP;
    if (rc == 0)
        order->options.next_resumption = next_resumption;
    else
        close(HW_CHILD_SOCKET);
    return rc == -EOPNOTSUPP ? 0 : rc;
}

/* ---- a session with a door ---- */

/* 0, or a negative errno that was logged.  The server is told either way. */
static int open_door(const struct session_order *order, struct rpc_listener **door)
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UCX};
    char why[RPC_WHY_CHARS];
    snprintf(addr.host, sizeof(addr.host), "%s", order->door);
    int rc = rpc_listen(&addr, NULL, door, why);
    if (rc)
        hw_error(HW_CAT_VULKAN, "%s: no session: %s%s", order->own.transport.peer, why,
                 getenv("UCX_TLS") ? "; with shared memory in UCX_TLS, sessions need "
                                     "HAWSER_SANDBOX=off"
                                   : "");
    int port = rc ? rc : atoi(strrchr((*door)->address, ':') + 1);
    (void)!send(HW_CHILD_SOCKET, &port, sizeof(port), MSG_NOSIGNAL); /* its end ends us */
    close(HW_CHILD_SOCKET);
    return rc;
}

/* The first message of one who comes, or NULL when it is no OPEN, or the time has passed. */
static struct rpc_msg *first_message(struct rpc_ep *ep, uint64_t deadline)
{
    for (;;) {
        int rc = rpc_poll(ep) < 0 ? rpc_ep_status(ep) : 0;
        struct rpc_msg *msg = rpc_recv(ep);
        if (msg && msg->kind == RPC_CALL && msg->method == VN_METHOD_OPEN)
            return msg;
        if (msg)
            rpc_release(ep, msg);
        uint64_t now = hw_now_ns();
        if (msg || now >= deadline || (rc && rc != -EINPROGRESS))
            return NULL;
        (void)rpc_flush(ep); /* a failure is the endpoint's status */
        (void)rpc_wait(ep, deadline - now);
    }
}

/* One who comes through the door.  Its OPEN, or NULL: it was not the client. */
static struct rpc_msg *let_in(const struct session_order *order, struct rpc_transport *transport,
                              uint64_t deadline, struct rpc_ep **out)
{
    struct rpc_security security = {.token_len = sizeof(order->key.secret)};
    struct rpc_config config = order->config;
    memcpy(security.token, order->key.secret, sizeof(order->key.secret));
    config.accepting = true;
    config.security = &security;
    if (rpc_ep_create(transport, &config, out))
        return NULL;
    struct rpc_msg *open = first_message(*out, deadline);
    if (!open) {
        hw_warn(HW_CAT_VULKAN, "%s: not the client that this session waits for: %s",
                rpc_ep_peer(*out), rpc_ep_reason(*out));
        rpc_ep_destroy(*out);
    }
    return open;
}

static struct rpc_msg *await_client(const struct session_order *order, struct rpc_listener *door,
                                    struct rpc_ep **ep)
{
    uint64_t deadline = hw_now_ns() + door_ns;
    struct rpc_msg *open = NULL;
    for (uint64_t now; !open && (now = hw_now_ns()) < deadline;) {
        struct rpc_transport *transport;
        struct pollfd p = {.fd = door->ops->poll_fd(door), .events = POLLIN};
        int rc = door->ops->accept(door, &transport);
        if (rc == 0)
            open = let_in(order, transport, deadline, ep);
        else
            (void)poll(&p, 1, (int)((deadline - now) / HW_MS) + 1);
    }
    if (!open)
        hw_error(HW_CAT_VULKAN, "%s: no session: the client did not come to %s within %u s",
                 order->own.transport.peer, door->address, (unsigned)(door_ns / HW_SEC));
    return open;
}

static struct rpc_msg *open_through_door(const struct session_order *order, struct rpc_ep **ep)
{
    struct rpc_listener *door;
    if (open_door(order, &door))
        return NULL;
    struct rpc_msg *open = await_client(order, door, ep);
    rpc_listener_destroy(door);
    return open;
}

/* The client's OPEN, over the connection of the order. */
static struct rpc_msg *take_open(struct session_order *order, const int *fds, struct rpc_ep **ep)
{
    struct rpc_msg *open = NULL;
    int rc = take_connections(order, fds, ep);
    if (rc == 0)
        rc = offer_to_resume(order, *ep);
    if (rc == 0)
        rc = rpc_poll(*ep) < 0 ? rpc_ep_status(*ep) : 0;
    if (rc == 0)
        open = rpc_recv(*ep);
    if (!open)
        hw_error(HW_CAT_VULKAN, "%s: no session: its connection could not be taken over: %s",
                 order->own.transport.peer, strerror(rc < 0 ? -rc : EPROTO));
    return open;
}

static int run(struct session_order *order, const int *fds)
{
    bool has_door = order->door[0] != '\0';
    struct rpc_msg *open = NULL;
    struct rpc_ep *ep;
    if (become(order))
        return 1;
    sandbox_enter(sandbox_mode_from_environment(order->sandbox), has_door);
    if (order->is_model) {
        close(HW_CHILD_SOCKET);
        return session_model_run(&order->model, fds, order->own.transport.peer);
    }
    int rc = take_shared(order, fds);
    if (rc < 0)
        hw_error(HW_CAT_VULKAN, "%s: no session: %s", order->own.transport.peer, strerror(-rc));
    else if (has_door)
        open = open_through_door(order, &ep);
    else
        open = take_open(order, fds + rc, &ep);
    return open ? vns_session_run(ep, open, &order->options) : 1;
}

/*
 * Mesa's software driver takes and frees aligned blocks of some MiB for each workgroup.  The C
 * library maps and unmaps such a block until its own thresholds have grown past it, and aligned
 * blocks alone never make them grow.  These are the values to which they may grow.
 */
static void keep_large_blocks(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

/* A terminal's descriptors are often open for reading, too: what is typed is not a session's. */
static void only_write_messages(void)
{
    int fd = isatty(STDERR_FILENO) ? open("/proc/self/fd/2", O_WRONLY | O_NOCTTY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    (void)!dup2(fd, STDERR_FILENO);
    (void)!dup2(fd, STDOUT_FILENO);
    close(fd);
}

int session_process_main(void)
{
    int fds[SESSION_FDS_MAX];
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a server that is killed takes its sessions along */
    prctl(PR_SET_NAME, "hawser-spare");
    only_write_messages();
    int count = receive_fds(&byte, 1, fds);
    if (count < 2)
        return count == -ESHUTDOWN ? 0 : 1; /* the server has ended */
    prctl(PR_SET_NAME, "hawser-session");
    keep_large_blocks();
    struct session_order *order = read_order(fds[0]);
    /* Not a return: the driver's threads still run. */
    _exit(order ? run(order, fds + 1) : 1);
}
