#include "bench/rpc/delay.h"

#include "base/clock.h"
#include "base/units.h"
#include "bench/serve/child.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_CORES = 4,      /* both ends, their work, and the relay */
    PACKET_BYTES = 1500, /* the least that is let out at a time */
    SHAPED_BUFFER =
        64 << 10, /* of a socket: bytes wait at the sender, which may send others first */
};

#define PACE_NS (250 * HW_US) /* of a narrow line: the bytes of so much time leave together */
#define QUEUE_NS (10 * HW_MS) /* the bytes of so much time may wait in the relay */
#define NEAR_NS (60 * HW_US)  /* a thread that sleeps may wake so late */
#define BUSY_NS (10 * HW_MS)  /* after a byte the relay expects more for so long */

/* One direction.  Bytes sit in a ring; a mark says until which byte they may leave, and when. */
struct mark {
    uint64_t due_ns;
    uint64_t upto;
};

struct direction {
    int from, to;
    struct bench_line line;
    uint64_t free_ns; /* when the line has taken all that came in */
    uint8_t *ring;
    uint64_t in, out; /* bytes ever read and written */
    struct mark marks[BENCH_DELAY_MARKS];
    uint64_t mark_in, mark_out;
    bool ended;  /* nothing more will come in */
    bool closed; /* and all has gone out */
};

int bench_delay_parse_rate(const char *text, uint64_t *bits_s)
{
    static const struct {
        const char *name;
        double bits;
    } units[] = {{"Mbit", 1e6}, {"Gbit", 1e9}};
    char number[HW_FORMAT_CHARS];
    double value, scale = 0;
    size_t len = strspn(text, "0123456789.");
    if (strcmp(text, "0") == 0) {
        *bits_s = 0;
        return 0;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(text + len, units[i].name) == 0)
            scale = units[i].bits;
    }
    if (scale == 0 || len >= sizeof number)
        return -EINVAL;
    snprintf(number, sizeof number, "%.*s", (int)len, text);
    int rc = hw_parse_double(number, (double)BENCH_DELAY_RATE_MIN / scale,
                             (double)BENCH_DELAY_RATE_MAX / scale, &value);
    if (rc == 0)
        *bits_s = (uint64_t)(value * scale + 0.5);
    return rc;
}

/* A narrow line takes no more bytes than it can carry in QUEUE_NS. */
static bool is_behind(const struct direction *l, uint64_t now)
{
    return l->line.bits_s && l->free_ns > now + QUEUE_NS;
}

static bool has_room(const struct direction *l, uint64_t now)
{
    return !l->ended && !is_behind(l, now) && l->in - l->out < BENCH_DELAY_BYTES &&
           l->mark_in - l->mark_out < BENCH_DELAY_MARKS;
}

static size_t bytes_at_a_time(const struct bench_line *line)
{
    uint64_t bytes = line->bits_s / 8 * PACE_NS / HW_SEC;
    return !line->bits_s ? BENCH_DELAY_BYTES : bytes > PACKET_BYTES ? bytes : PACKET_BYTES;
}

/* When the line will have taken so many more bytes. */
static uint64_t carried_at(const struct direction *l, uint64_t bytes, uint64_t now)
{
    if (!l->line.bits_s)
        return now;
    return (l->free_ns > now ? l->free_ns : now) + bytes * 8 * HW_SEC / l->line.bits_s;
}

static void take_in(struct direction *l)
{
    size_t at = l->in % BENCH_DELAY_BYTES, most = bytes_at_a_time(&l->line);
    size_t room = BENCH_DELAY_BYTES - (size_t)(l->in - l->out);
    size_t run = BENCH_DELAY_BYTES - at < room ? BENCH_DELAY_BYTES - at : room;
    ssize_t n = recv(l->from, l->ring + at, run < most ? run : most, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        l->ended = true;
        return;
    }
    l->in += (uint64_t)n;
    l->free_ns = carried_at(l, (uint64_t)n, hw_now_ns());
    l->marks[l->mark_in++ % BENCH_DELAY_MARKS] =
        (struct mark){.due_ns = l->free_ns + l->line.one_way_ns, .upto = l->in};
}

/* The oldest mark, or NULL when nothing is on the way. */
static const struct mark *oldest(const struct direction *l)
{
    return l->mark_out == l->mark_in ? NULL : &l->marks[l->mark_out % BENCH_DELAY_MARKS];
}

static bool is_due(const struct direction *l, uint64_t now)
{
    const struct mark *m = oldest(l);
    return m && m->due_ns <= now;
}

/* The receiver is gone.  What it sent before may still be on its way in the other direction. */
static void give_up(struct direction *l)
{
    l->out = l->in;
    l->mark_out = l->mark_in;
    l->ended = l->closed = true;
}

/* Writes what is due. */
static void let_out(struct direction *l)
{
    while (is_due(l, hw_now_ns())) {
        const struct mark *m = oldest(l);
        size_t at = l->out % BENCH_DELAY_BYTES;
        size_t run = (size_t)(m->upto - l->out);
        if (run > BENCH_DELAY_BYTES - at)
            run = BENCH_DELAY_BYTES - at;
        ssize_t n = send(l->to, l->ring + at, run, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) {
            give_up(l);
            return;
        }
        l->out += (uint64_t)n;
        if (l->out == m->upto)
            l->mark_out++;
    }
    if (l->ended && l->in == l->out && !l->closed) {
        shutdown(l->to, SHUT_WR);
        l->closed = true;
    }
}

/* When the direction can next move without an event at a socket; HW_NEVER: not before one. */
static uint64_t due_at(const struct direction *l, uint64_t now)
{
    const struct mark *m = oldest(l);
    uint64_t due = m && m->due_ns > now ? m->due_ns : HW_NEVER;
    uint64_t open = !l->ended && is_behind(l, now) ? l->free_ns - QUEUE_NS : HW_NEVER;
    return due < open ? due : open;
}

/* How long a sleep may be.  It ends before bytes are due, since threads wake late.  With cores to
 * spare there is no sleep while bytes come. */
static uint64_t nap_ns(const struct direction directions[2], unsigned cores, uint64_t moved_ns,
                       uint64_t now)
{
    uint64_t a = due_at(&directions[0], now), b = due_at(&directions[1], now), due = a < b ? a : b;
    if (due == HW_NEVER)
        return cores >= SPIN_CORES && now - moved_ns < BUSY_NS ? 0 : HW_SEC;
    uint64_t early = cores > 1 ? NEAR_NS : 0;
    return due - now > early ? due - now - early : 0;
}

/* Sleeps until a direction can move; a direction whose receiver is full waits for the receiver. */
static void sleep_until_work(const struct direction directions[2], uint64_t now, uint64_t nap)
{
    struct pollfd p[2] = {{.fd = directions[0].from}, {.fd = directions[1].from}};
    for (int i = 0; i < 2; i++) {
        if (has_room(&directions[i], now))
            p[i].events |= POLLIN;
        if (is_due(&directions[i], now))
            p[!i].events |= POLLOUT;
    }
    struct timespec t = hw_timespec(nap);
    for (int i = 0; i < 2; i++) {
        /* A socket whose peer has closed would wake every poll, so it is left out. */
        if (p[i].events == 0)
            p[i].fd = -1;
    }
    ppoll(p, 2, &t, NULL);
}

static void relay(struct direction directions[2])
{
    unsigned cores = hw_cores();
    uint64_t moved = 0, moved_ns = hw_now_ns();
    while (!directions[0].closed || !directions[1].closed) {
        for (int i = 0; i < 2; i++) {
            if (has_room(&directions[i], hw_now_ns()))
                take_in(&directions[i]);
            let_out(&directions[i]);
        }
        uint64_t now = hw_now_ns(), total = directions[0].in + directions[1].in;
        moved_ns = total != moved ? now : moved_ns;
        moved = total;
        sleep_until_work(directions, now, nap_ns(directions, cores, moved_ns, now));
    }
}

static int prepare(int fd)
{
    int one = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
        fcntl(fd, F_SETFL, O_NONBLOCK))
        return -1;
    return fd;
}

/* Before the TCP handshake, which tells the peer the size. */
static int shape(int fd, const struct bench_line *line)
{
    int bytes = SHAPED_BUFFER;
    return line->bits_s ? setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) : 0;
}

static int dial(uint16_t port, const struct bench_line *line)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd >= 0 && shape(fd, line) == 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0
               ? fd
               : -1;
}

/* In the child; never returns. */
static void run(int listener, uint16_t target_port, struct bench_line line)
{
    prctl(PR_SET_TIMERSLACK, 1); /* or every wake-up is 50 us late */
    struct direction *directions = calloc(2, sizeof(*directions));
    int near = prepare(accept(listener, NULL, NULL));
    int far = near < 0 ? -1 : prepare(dial(target_port, &line));
    if (!directions || far < 0)
        _exit(1);
    directions[0].from = directions[1].to = near;
    directions[1].from = directions[0].to = far;
    directions[0].line = directions[1].line = line;
    directions[0].ring = malloc(BENCH_DELAY_BYTES);
    directions[1].ring = malloc(BENCH_DELAY_BYTES);
    if (!directions[0].ring || !directions[1].ring)
        _exit(1);
    relay(directions);
    _exit(0);
}

int bench_delay_start(uint16_t target_port, struct bench_line line, struct bench_delay *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return -errno;
    int rc = 0;
    if (shape(listener, &line) || bind(listener, (struct sockaddr *)&at, len) ||
        listen(listener, 1) || getsockname(listener, (struct sockaddr *)&at, &len))
        rc = -errno;
    pid_t pid = rc ? -1 : bench_fork();
    if (pid == 0)
        run(listener, target_port, line);
    if (!rc && pid < 0)
        rc = -errno;
    close(listener);
    if (rc == 0)
        *out = (struct bench_delay){.pid = pid, .port = ntohs(at.sin_port)};
    return rc;
}

void bench_delay_finish(struct bench_delay *delay)
{
    if (delay->pid > 0)
        waitpid(delay->pid, NULL, 0);
    delay->pid = 0;
}

void bench_delay_stop(struct bench_delay *delay)
{
    if (delay->pid > 0) {
        kill(delay->pid, SIGKILL);
        waitpid(delay->pid, NULL, 0);
    }
    delay->pid = 0;
}
