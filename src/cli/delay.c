#include "cli/delay.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One direction.  Bytes sit in a ring; a mark says until which byte they may leave, and when. */
struct mark {
    uint64_t due_ns;
    uint64_t upto;
};

struct lane {
    int from, to;
    uint8_t *ring;
    uint64_t in, out; /* bytes ever read and written */
    struct mark marks[CLI_DELAY_MARKS];
    uint64_t mark_in, mark_out;
    bool ended;  /* nothing more will come in */
    bool closed; /* and all has gone out */
};

static bool has_room(const struct lane *l)
{
    return !l->ended && l->in - l->out < CLI_DELAY_BYTES &&
           l->mark_in - l->mark_out < CLI_DELAY_MARKS;
}

static void take_in(struct lane *l, uint64_t delay_ns)
{
    size_t at = l->in % CLI_DELAY_BYTES;
    size_t room = CLI_DELAY_BYTES - (size_t)(l->in - l->out);
    size_t run = CLI_DELAY_BYTES - at < room ? CLI_DELAY_BYTES - at : room;
    ssize_t n = recv(l->from, l->ring + at, run, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        l->ended = true;
        return;
    }
    l->in += (uint64_t)n;
    l->marks[l->mark_in++ % CLI_DELAY_MARKS] =
        (struct mark){.due_ns = hw_now_ns() + delay_ns, .upto = l->in};
}

/* The oldest mark, or NULL when nothing is on the way. */
static const struct mark *oldest(const struct lane *l)
{
    return l->mark_out == l->mark_in ? NULL : &l->marks[l->mark_out % CLI_DELAY_MARKS];
}

static bool is_due(const struct lane *l, uint64_t now)
{
    const struct mark *m = oldest(l);
    return m && m->due_ns <= now;
}

/* Writes what is due; false when the receiver is gone. */
static bool let_out(struct lane *l)
{
    while (is_due(l, hw_now_ns())) {
        const struct mark *m = oldest(l);
        size_t at = l->out % CLI_DELAY_BYTES;
        size_t run = (size_t)(m->upto - l->out);
        if (run > CLI_DELAY_BYTES - at)
            run = CLI_DELAY_BYTES - at;
        ssize_t n = send(l->to, l->ring + at, run, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        l->out += (uint64_t)n;
        if (l->out == m->upto)
            l->mark_out++;
    }
    if (l->ended && l->in == l->out && !l->closed) {
        shutdown(l->to, SHUT_WR);
        l->closed = true;
    }
    return true;
}

/* Sleeps until a lane can move; a lane whose receiver is full waits for the receiver. */
static void sleep_until_work(const struct lane lanes[2])
{
    struct pollfd p[2] = {{.fd = lanes[0].from}, {.fd = lanes[1].from}};
    uint64_t now = hw_now_ns(), wake = HW_NEVER;
    for (int i = 0; i < 2; i++) {
        if (has_room(&lanes[i]))
            p[i].events |= POLLIN;
        const struct mark *m = oldest(&lanes[i]);
        if (m && m->due_ns <= now)
            p[!i].events |= POLLOUT;
        else if (m && m->due_ns < wake)
            wake = m->due_ns;
    }
    uint64_t left = wake == HW_NEVER ? HW_SEC : wake - now;
    struct timespec t = {.tv_sec = (time_t)(left / HW_SEC), .tv_nsec = (long)(left % HW_SEC)};
    for (int i = 0; i < 2; i++) {
        /* An ended side polls as hung up for ever; its turn comes by time. */
        if (p[i].events == 0)
            p[i].fd = -1;
    }
    ppoll(p, 2, &t, NULL);
}

static void relay(struct lane lanes[2], uint64_t delay_ns)
{
    while (!lanes[0].closed || !lanes[1].closed) {
        for (int i = 0; i < 2; i++) {
            if (has_room(&lanes[i]))
                take_in(&lanes[i], delay_ns);
            if (!let_out(&lanes[i]))
                return;
        }
        sleep_until_work(lanes);
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

static int dial(uint16_t port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 ? fd : -1;
}

/* In the child; never returns. */
static void run(int listener, uint16_t target_port, uint64_t delay_ns, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1); /* or every wake-up is 50 us late */
    if (getppid() != parent)
        _exit(1);
    struct lane *lanes = calloc(2, sizeof(*lanes));
    int near = prepare(accept(listener, NULL, NULL));
    int far = near < 0 ? -1 : prepare(dial(target_port));
    if (!lanes || far < 0)
        _exit(1);
    lanes[0].from = lanes[1].to = near;
    lanes[1].from = lanes[0].to = far;
    lanes[0].ring = malloc(CLI_DELAY_BYTES);
    lanes[1].ring = malloc(CLI_DELAY_BYTES);
    if (!lanes[0].ring || !lanes[1].ring)
        _exit(1);
    relay(lanes, delay_ns);
    _exit(0);
}

int cli_delay_start(uint16_t target_port, uint64_t one_way_ns, struct cli_delay *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return -errno;
    int rc = 0;
    if (bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &len))
        rc = -errno;
    pid_t parent = getpid();
    pid_t pid = rc ? -1 : fork();
    if (pid == 0)
        run(listener, target_port, one_way_ns, parent);
    if (!rc && pid < 0)
        rc = -errno;
    close(listener);
    if (rc == 0)
        *out = (struct cli_delay){.pid = pid, .port = ntohs(at.sin_port)};
    return rc;
}

void cli_delay_finish(struct cli_delay *delay)
{
    if (delay->pid > 0)
        waitpid(delay->pid, NULL, 0);
    delay->pid = 0;
}

void cli_delay_stop(struct cli_delay *delay)
{
    if (delay->pid > 0) {
        kill(delay->pid, SIGKILL);
        waitpid(delay->pid, NULL, 0);
    }
    delay->pid = 0;
}
