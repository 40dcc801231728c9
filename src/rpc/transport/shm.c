#include "rpc/transport/shm.h"

#include "base/wait.h"
#include "rpc/transport/sock.h"
#include "wire/dec.h"
#include "wire/enc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    OFFER_MAGIC = 0x4d485748, /* "HWHM" */
    OFFER_VERSION = 1,
    EMPTY_LOOKS = 4096, /* fruitless polls between two looks at the socket for the peer's death */
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    SPIN_CORES = 4, /* both ends, and what each of them runs beside this */
};

struct control {
    _Alignas(HW_CACHE_LINE) _Atomic uint64_t tail;
    _Alignas(HW_CACHE_LINE) _Atomic uint64_t head;
    _Alignas(HW_CACHE_LINE) _Atomic uint32_t consumer_sleeps;
    _Alignas(HW_CACHE_LINE) _Atomic uint32_t producer_sleeps;
};
_Static_assert(sizeof(struct control) == RPC_SHM_CONTROL, "shared layout");

struct shm {
    struct rpc_transport base;
    /* Sending: ours to write, except out->head and out->consumer_sleeps. */
    struct control *out;
    uint8_t *out_data;
    uint64_t tail, head_seen;
    /* Receiving. */
    struct control *in;
    uint8_t *in_data;
    uint64_t head;
    uint32_t empty_looks;
    _Atomic bool ended; /* the socket said so, to a thread that reads or one that waits for room */
    uint32_t ring_bytes;
    struct hw_wait room_wait; /* a template: each thread that waits for room copies it */
    int socket, bell, peer_bell, epoll;
    int memfd; /* for a process that takes it over; -1 at the connecting end */
    void *map;
};

static void copy_in(struct shm *s, uint64_t at, const uint8_t *from, size_t n)
{
    size_t offset = at & (s->ring_bytes - 1);
    size_t first = s->ring_bytes - offset < n ? s->ring_bytes - offset : n;
    memcpy(s->out_data + offset, from, first);
    if (UNLIKELY(first < n))
        memcpy(s->out_data, from + first, n - first);
}

static void copy_out(const struct shm *s, uint64_t at, uint8_t *to, size_t n)
{
    size_t offset = at & (s->ring_bytes - 1);
    size_t first = s->ring_bytes - offset < n ? s->ring_bytes - offset : n;
    memcpy(to, s->in_data + offset, first);
    if (UNLIKELY(first < n))
        memcpy(to + first, s->in_data, n - first);
}

/* Room in the ring, or -EPROTO when the peer's index is impossible. */
static int64_t room(struct shm *s, size_t wanted)
{
    uint64_t used = s->tail - s->head_seen;
    if (s->ring_bytes - used < wanted) {
        /* Pairs with the consumer's release of head: what it read may be overwritten. */
        uint64_t head = atomic_load_explicit(&s->out->head, memory_order_acquire);
        used = s->tail - head;
        if (used > s->ring_bytes)
            return -EPROTO; /* and not kept: a goodbye is still sent by what was known before */
        s->head_seen = head;
    }
    return (int64_t)(s->ring_bytes - used);
}

/* After the offer nothing is sent on the socket.  A byte would keep it readable and us awake for
 * ever, so a peer that sends one counts as gone. */
static bool peer_is_gone(const struct shm *s)
{
    char byte;
    ssize_t n = recv(s->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

static ssize_t shm_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct shm *s = (struct shm *)t;
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    int64_t free_bytes = room(s, total);
    if (free_bytes < 0)
        return free_bytes;
    if (free_bytes == 0)
        return peer_is_gone(s) ? -ECONNRESET : -EAGAIN;
    uint64_t at = s->tail, end = s->tail + (uint64_t)free_bytes;
    for (int i = 0; i < count && at < end; i++) {
        size_t n = iov[i].iov_len < end - at ? iov[i].iov_len : (size_t)(end - at);
        copy_in(s, at, iov[i].iov_base, n);
        at += n;
    }
    ssize_t sent = (ssize_t)(at - s->tail);
    s->tail = at;
    /* Pairs with the acquire of tail in shm_recv. */
    atomic_store_explicit(&s->out->tail, at, memory_order_release);
    /* Pairs with the fence in arm: either we see that it sleeps, or it sees our tail. */
    atomic_thread_fence(memory_order_seq_cst);
    if (UNLIKELY(atomic_load_explicit(&s->out->consumer_sleeps, memory_order_relaxed)))
        (void)eventfd_write(s->peer_bell, 1);
    return sent;
}

/* Bytes to read, or -EPROTO. */
static int64_t available(struct shm *s)
{
    uint64_t tail = atomic_load_explicit(&s->in->tail, memory_order_acquire);
    /* The data lines travel while the tail line is looked at again. */
    const uint8_t *next = s->in_data + (s->head & (s->ring_bytes - 1));
    __builtin_prefetch(next);
    __builtin_prefetch(next + HW_CACHE_LINE);
    uint64_t n = tail - s->head;
    return n <= s->ring_bytes ? (int64_t)n : -EPROTO;
}

static ssize_t take(struct shm *s, const struct iovec *iov, int count, uint64_t n)
{
    uint64_t at = s->head, end = s->head + n;
    for (int i = 0; i < count && at < end; i++) {
        size_t part = iov[i].iov_len < end - at ? iov[i].iov_len : (size_t)(end - at);
        copy_out(s, at, iov[i].iov_base, part);
        at += part;
    }
    ssize_t taken = (ssize_t)(at - s->head);
    s->head = at;
    atomic_store_explicit(&s->in->head, at, memory_order_release);
    /* A producer sleeps only on a full ring.  Whoever makes room in a ring at least half full
     * looks for it; with less, the producer's next look at head comes before its sleep, or this
     * side's next read finds more than half. */
    if (n >= s->ring_bytes / 2) {
        atomic_thread_fence(memory_order_seq_cst); /* pairs with the one in arm */
        if (atomic_load_explicit(&s->in->producer_sleeps, memory_order_relaxed))
            (void)eventfd_write(s->peer_bell, 1);
    }
    return taken;
}

static ssize_t try_recv(struct shm *s, const struct iovec *iov, int count)
{
    int64_t n = available(s);
    if (n > 0)
        return take(s, iov, count, (uint64_t)n);
    if (n < 0)
        return n;
    if (s->ended || (++s->empty_looks >= EMPTY_LOOKS && peer_is_gone(s))) {
        s->ended = true;
        n = available(s); /* what it wrote before it went */
        return n > 0 ? take(s, iov, count, (uint64_t)n) : n < 0 ? n : -ESHUTDOWN;
    }
    if (s->empty_looks >= EMPTY_LOOKS)
        s->empty_looks = 0;
    return -EAGAIN;
}

static void disarm(struct shm *s, unsigned events)
{
    if (events & RPC_WAIT_RECV)
        atomic_store_explicit(&s->in->consumer_sleeps, 0, memory_order_relaxed);
    if (events & RPC_WAIT_SEND)
        atomic_store_explicit(&s->out->producer_sleeps, 0, memory_order_relaxed);
}

static bool has_room(const struct shm *s)
{
    /* Our tail from the shared line: another thread may be in send. */
    return atomic_load_explicit(&s->out->tail, memory_order_relaxed) -
               atomic_load_explicit(&s->out->head, memory_order_acquire) <
           s->ring_bytes;
}

/* True when another thread of ours sleeps for what is not among `events`. */
static bool other_sleeps(const struct shm *s, unsigned events)
{
    return (!(events & RPC_WAIT_RECV) &&
            atomic_load_explicit(&s->in->consumer_sleeps, memory_order_relaxed)) ||
           (!(events & RPC_WAIT_SEND) &&
            atomic_load_explicit(&s->out->producer_sleeps, memory_order_relaxed));
}

static int arm(struct shm *s, unsigned events)
{
    uint64_t rings;
    ssize_t n = read(s->bell, &rings, sizeof rings);
    if (events & RPC_WAIT_RECV)
        atomic_store_explicit(&s->in->consumer_sleeps, 1, memory_order_relaxed);
    if (events & RPC_WAIT_SEND)
        atomic_store_explicit(&s->out->producer_sleeps, 1, memory_order_relaxed);
    /* Pairs with those in shm_send and take: the peer sees that we sleep, or we see its index. */
    atomic_thread_fence(memory_order_seq_cst);
    if (n > 0 && other_sleeps(s, events))
        (void)eventfd_write(s->bell, 1); /* it may have rung for the other: not ours to silence */
    bool ready = s->ended || (events & RPC_WAIT_RECV && available(s) != 0) ||
                 (events & RPC_WAIT_SEND && has_room(s));
    if (!ready && peer_is_gone(s)) { /* else its end would keep the owner's poll awake */
        s->ended = true;
        ready = true;
    }
    if (ready)
        disarm(s, events);
    return ready;
}

/* The owner sleeps alone: an event that it no longer waits for needs no bell. */
static int shm_arm(struct rpc_transport *t, unsigned events)
{
    struct shm *s = (struct shm *)t;
    disarm(s, ~events);
    return arm(s, events);
}

/* Sleeps until the bell or the socket says something. */
static int sleep_on_bell(struct shm *s, uint64_t timeout_ns)
{
    struct pollfd p[2] = {{.fd = s->bell, .events = POLLIN}, {.fd = s->socket, .events = POLLIN}};
    struct timespec ts = hw_timespec(timeout_ns);
    int n = ppoll(p, 2, timeout_ns == HW_NEVER ? NULL : &ts, NULL);
    if (n > 0 && p[1].revents && peer_is_gone(s))
        s->ended = true;
    return n > 0 ? 0 : -ETIMEDOUT;
}

static ssize_t shm_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                        uint64_t timeout_ns)
{
    struct shm *s = (struct shm *)t;
    ssize_t n = try_recv(s, iov, count);
    if (n != -EAGAIN) {
        s->empty_looks = 0;
        return n;
    }
    if (timeout_ns == 0)
        return n;
    if (arm(s, RPC_WAIT_RECV) == 0) {
        (void)sleep_on_bell(s, timeout_ns);
        disarm(s, RPC_WAIT_RECV);
    }
    return try_recv(s, iov, count);
}

static bool room_came(void *user)
{
    return has_room(user);
}

/* A peer that takes what is in the ring makes room for more before a sleeper would be awake. */
static bool room_comes(const struct shm *s)
{
    struct hw_wait wait = s->room_wait;
    uint64_t left = HW_NEVER;
    return has_room(s) || hw_wait_until(&wait, room_came, (void *)s, &left);
}

static int shm_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    struct shm *s = (struct shm *)t;
    if ((events & RPC_WAIT_SEND && room_comes(s)) || arm(s, events))
        return 0;
    int rc = sleep_on_bell(s, timeout_ns);
    disarm(s, events);
    return rc;
}

static int shm_poll_fd(struct rpc_transport *t)
{
    return ((struct shm *)t)->epoll;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static int shm_descriptors(struct rpc_transport *t, int fds[RPC_TRANSPORT_FDS])
{
    const struct shm *s = (const struct shm *)t;
    fds[0] = s->socket;
    fds[1] = s->bell;
    fds[2] = s->peer_bell;
    fds[3] = s->epoll;
    fds[4] = s->memfd;
    return s->memfd >= 0 ? 5 : 4;
}

static int shm_hand_over(struct rpc_transport *t, struct rpc_transport_state *state,
                         int fds[RPC_TRANSPORT_FDS])
{
    const struct shm *s = (const struct shm *)t;
    if (s->ended || s->memfd < 0)
        return -EBUSY;
    state->ring_bytes = s->ring_bytes;
    state->tail = s->tail;
    state->head = s->head;
    fds[0] = s->socket;
    fds[1] = s->bell;
    fds[2] = s->peer_bell;
    fds[3] = s->memfd;
    return 4;
}

static void shm_destroy(struct rpc_transport *t)
{
    struct shm *s = (struct shm *)t;
    if (s->map)
        munmap(s->map, rpc_shm_region_bytes(s->ring_bytes));
    close_fd(s->memfd);
    close_fd(s->epoll);
    close_fd(s->bell);
    close_fd(s->peer_bell);
    close_fd(s->socket);
    free(s);
}

static const struct rpc_transport_ops shm_ops = {
    .name = "shm",
    .send = shm_send,
    .recv = shm_recv,
    .wait = shm_wait,
    .poll_fd = shm_poll_fd,
    .arm = shm_arm,
    .descriptors = shm_descriptors,
    .hand_over = shm_hand_over,
    .destroy = shm_destroy,
};

static int watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Takes socket and bells, also on failure; memfd stays the caller's. */
static int shm_wrap(int socket, int memfd, uint32_t ring_bytes, int bell, int peer_bell,
                    bool accepting, struct rpc_transport **out)
{
    int rc = -ENOMEM;
    struct shm *s = calloc(1, sizeof *s);
    if (!s) {
        close_fd(socket);
        close_fd(bell);
        close_fd(peer_bell);
        return rc;
    }
    s->base.ops = &shm_ops;
    s->base.local = true;
    s->base.user = rpc_unix_peer(socket, "shm", s->base.peer);
    s->socket = socket;
    s->bell = bell;
    s->peer_bell = peer_bell;
    s->ring_bytes = ring_bytes;
    s->memfd = accepting ? fcntl(memfd, F_DUPFD_CLOEXEC, 0) : -1;
    hw_wait_init(&s->room_wait, hw_cores() >= SPIN_CORES ? HW_SPIN_NS : 0);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll < 0) {
        rc = -errno;
        goto fail;
    }
    rc = watch(s->epoll, bell);
    if (rc == 0)
        rc = watch(s->epoll, socket);
    if (rc)
        goto fail;
    void *map = mmap(NULL, rpc_shm_region_bytes(ring_bytes), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_POPULATE, memfd, 0);
    if (map == MAP_FAILED) {
        rc = -errno;
        goto fail;
    }
    s->map = map;
    struct control *controls = map;
    uint8_t *data = (uint8_t *)map + 2 * (size_t)RPC_SHM_CONTROL;
    int mine = accepting ? 1 : 0;
    s->out = &controls[mine];
    s->out_data = data + (size_t)mine * ring_bytes;
    s->in = &controls[!mine];
    s->in_data = data + (size_t)!mine * ring_bytes;
    *out = &s->base;
    return 0;
fail:
    shm_destroy(&s->base);
    return rc;
}

int rpc_shm_take_over(const struct rpc_transport_state *state, const int *fds, int count,
                      struct rpc_transport **out)
{
    if (count != 4)
        return -EINVAL;
    int rc = shm_wrap(fds[0], fds[3], state->ring_bytes, fds[1], fds[2], true, out);
    close(fds[3]);
    if (rc)
        return rc;
    struct shm *s = (struct shm *)*out;
    s->tail = state->tail;
    s->head = state->head;
    s->head_seen = state->tail - state->ring_bytes; /* looks full: head is read before a write */
    return 0;
}

static int make_region(uint32_t ring_bytes)
{
    int fd = memfd_create("hawser-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)rpc_shm_region_bytes(ring_bytes)) || fcntl(fd, F_ADD_SEALS, SEALS)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

static bool ring_bytes_ok(uint32_t n)
{
    return n >= RPC_SHM_RING_MIN && n <= RPC_SHM_RING_MAX && (n & (n - 1)) == 0;
}

void rpc_shm_offer_encode(const struct rpc_shm_offer *offer, uint8_t out[RPC_SHM_OFFER_BYTES])
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, RPC_SHM_OFFER_BYTES);
    wire_put_u32(&e, OFFER_MAGIC);
    wire_put_u32(&e, OFFER_VERSION);
    wire_put_u32(&e, offer->ring_bytes);
    wire_put_u32(&e, 0);
    assert(wire_enc_error(&e) == 0);
}

int rpc_shm_offer_decode(const uint8_t *p, size_t n, struct rpc_shm_offer *out)
{
    struct wire_dec d;
    wire_dec_init(&d, p, n);
    uint32_t magic = wire_get_u32(&d);
    uint32_t version = wire_get_u32(&d);
    uint32_t ring_bytes = wire_get_u32(&d);
    uint32_t reserved = wire_get_u32(&d);
    if (wire_dec_end(&d) || magic != OFFER_MAGIC)
        return -EPROTO;
    if (version != OFFER_VERSION)
        return -EPROTONOSUPPORT;
    if (reserved || !ring_bytes_ok(ring_bytes))
        return -EPROTO;
    out->ring_bytes = ring_bytes;
    return 0;
}

static int send_offer(int socket, uint32_t ring_bytes, const int fds[RPC_SHM_OFFER_FDS])
{
    uint8_t body[RPC_SHM_OFFER_BYTES];
    rpc_shm_offer_encode(&(struct rpc_shm_offer){.ring_bytes = ring_bytes}, body);
    struct iovec iov = {body, sizeof body};
    ssize_t n = rpc_sock_send_fds(socket, &iov, 1, fds, RPC_SHM_OFFER_FDS);
    return n == sizeof body ? 0 : n < 0 ? (int)n : -EPROTO;
}

/* The descriptors that came with the message: all of them, or -EPROTO and none is left open. */
static int take_offer_fds(struct msghdr *msg, int fds[RPC_SHM_OFFER_FDS])
{
    memset(fds, 0xff, RPC_SHM_OFFER_FDS * sizeof fds[0]);
    if (rpc_sock_take_fds(msg, fds, 0, RPC_SHM_OFFER_FDS) == RPC_SHM_OFFER_FDS)
        return 0;
    for (int i = 0; i < RPC_SHM_OFFER_FDS; i++)
        close_fd(fds[i]);
    return -EPROTO;
}

static int receive_offer(int socket, uint64_t timeout_ns, struct rpc_shm_offer *offer,
                         int fds[RPC_SHM_OFFER_FDS])
{
    int rc = rpc_sock_poll(socket, POLLIN, timeout_ns);
    if (rc)
        return rc;
    uint8_t body[RPC_SHM_OFFER_BYTES];
    union {
        char buf[CMSG_SPACE(RPC_SHM_OFFER_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {body, sizeof body};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.buf,
                         .msg_controllen = sizeof control.buf};
    ssize_t n = recvmsg(socket, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    rc = take_offer_fds(&msg, fds);
    if (rc)
        return rc;
    rc = rpc_shm_offer_decode(body, (size_t)n, offer);
    for (int i = 0; rc && i < RPC_SHM_OFFER_FDS; i++)
        close(fds[i]);
    return rc;
}

/* A region that could shrink would kill us with SIGBUS; a bell that is no eventfd could block
 * us or raise SIGPIPE. */
static int check_offer(const struct rpc_shm_offer *offer, const int fds[RPC_SHM_OFFER_FDS])
{
    struct stat st;
    int seals = fcntl(fds[0], F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fds[0], &st) ||
        (uint64_t)st.st_size != rpc_shm_region_bytes(offer->ring_bytes))
        return -EPROTO;
    return hw_is_eventfd(fds[1]) && hw_is_eventfd(fds[2]) ? 0 : -EPROTO;
}

int rpc_shm_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                 struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    int socket;
    int rc = rpc_unix_dial_fd(addr->path, options->timeout_ns, &socket, why);
    if (rc)
        return rc;
    struct rpc_shm_offer offer;
    int fds[RPC_SHM_OFFER_FDS];
    rc = receive_offer(socket, options->timeout_ns, &offer, fds);
    if (rc == 0) {
        rc = check_offer(&offer, fds);
        if (rc == 0) {
            rc = shm_wrap(socket, fds[0], offer.ring_bytes, fds[1], fds[2], false, out);
            close(fds[0]);
        } else {
            for (int i = 0; i < RPC_SHM_OFFER_FDS; i++)
                close(fds[i]);
            close(socket);
        }
    } else {
        close(socket);
    }
    if (rc)
        snprintf(why, RPC_WHY_CHARS,
                 "shm:%s does not offer shared memory (%s); is it a unix: address?", addr->path,
                 strerror(-rc));
    return rc;
}

/* Both ends of the pair, region and bells; what exists is closed on failure. */
struct parts {
    int memfd, bells[2];
};

static int make_parts(uint32_t ring_bytes, struct parts *p)
{
    *p = (struct parts){-1, {-1, -1}};
    int rc = make_region(ring_bytes);
    if (rc < 0)
        return rc;
    p->memfd = rc;
    for (int i = 0; i < 2; i++) {
        p->bells[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (p->bells[i] < 0) {
            rc = -errno;
            close_fd(p->bells[0]);
            close(p->memfd);
            return rc;
        }
    }
    return 0;
}

static int welcome_with_offer(int fd, struct rpc_transport **out)
{
    struct parts p;
    int rc = make_parts(RPC_SHM_RING_DEFAULT, &p);
    if (rc) {
        close(fd);
        return rc;
    }
    const int fds[RPC_SHM_OFFER_FDS] = {p.memfd, p.bells[0], p.bells[1]};
    rc = send_offer(fd, RPC_SHM_RING_DEFAULT, fds);
    if (rc == 0) {
        rc = shm_wrap(fd, p.memfd, RPC_SHM_RING_DEFAULT, p.bells[1], p.bells[0], true, out);
    } else {
        close(fd);
        close(p.bells[0]);
        close(p.bells[1]);
    }
    close(p.memfd);
    return rc;
}

int rpc_shm_listen(const struct rpc_addr *addr, const struct rpc_net_options *options,
                   struct rpc_listener **out, char why[RPC_WHY_CHARS])
{
    (void)options;
    return rpc_unix_listen_with(addr, welcome_with_offer, out, why);
}

int rpc_shm_pair(uint32_t ring_bytes, struct rpc_transport *out[2])
{
    if (ring_bytes == 0)
        ring_bytes = RPC_SHM_RING_DEFAULT;
    if (!ring_bytes_ok(ring_bytes))
        return -EINVAL;
    struct parts p;
    int rc = make_parts(ring_bytes, &p);
    if (rc)
        return rc;
    int sockets[2],
        spare[2] = {fcntl(p.bells[0], F_DUPFD_CLOEXEC, 0), fcntl(p.bells[1], F_DUPFD_CLOEXEC, 0)};
    struct rpc_transport *pair[2] = {NULL, NULL};
    if (spare[0] < 0 || spare[1] < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets)) {
        rc = -errno;
        close_fd(spare[0]);
        close_fd(spare[1]);
        close(p.bells[0]);
        close(p.bells[1]);
        close(p.memfd);
        return rc;
    }
    rc = shm_wrap(sockets[0], p.memfd, ring_bytes, p.bells[0], p.bells[1], false, &pair[0]);
    int rc2 = shm_wrap(sockets[1], p.memfd, ring_bytes, spare[1], spare[0], true, &pair[1]);
    close(p.memfd);
    if (rc || rc2) {
        rpc_transport_destroy(rc ? NULL : pair[0]);
        rpc_transport_destroy(rc2 ? NULL : pair[1]);
        return rc ? rc : rc2;
    }
    out[0] = pair[0];
    out[1] = pair[1];
    return 0;
}
