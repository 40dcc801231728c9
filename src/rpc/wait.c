#include "rpc/wait.h"

#include "base/clock.h"

#include <errno.h>

enum {
    DISTRUST_MAX = 10,   /* one try in 1,024 waits: its cost vanishes, a change is still noticed */
    LONG_SPIN_CORES = 4, /* both ends, what they wait for, and one for the others */
    SPINS_A_LOOK = 16    /* clock reads cost as much as a look at a shared-memory ring */
};

static const uint64_t short_spin_ns = 50 * HW_US; /* a few loopback round trips */
/* Past what the looks themselves take.  A long spin meets the small delays of any machine, a
 * virtual one above all; whoever wants its core takes it for a slice of the scheduler's. */
static const uint64_t interrupted_ns = 20 * HW_US, long_interrupted_ns = HW_MS;

void rpc_waiter_init(struct rpc_waiter *w, enum rpc_wait_mode mode, uint64_t patience_ns)
{
    unsigned cores = hw_cores();
    bool is_long = cores >= LONG_SPIN_CORES && patience_ns;
    uint64_t spin_ns = is_long ? patience_ns : short_spin_ns;
    *w = (struct rpc_waiter){.mode = mode,
                             .spin_ns = cores > 1 ? spin_ns : 0,
                             .interrupted_ns = is_long ? long_interrupted_ns : interrupted_ns,
                             .looks_ns = interrupted_ns};
}

static void spin_failed(struct rpc_waiter *w, unsigned weight)
{
    unsigned distrust = w->distrust + weight;
    w->distrust = (uint8_t)(distrust > DISTRUST_MAX ? DISTRUST_MAX : distrust);
    w->rest = 1u << w->distrust;
}

/* A look is a system call on a socket, and takes a microsecond and more on some machines. */
static bool is_interrupted(struct rpc_waiter *w, uint64_t took_ns)
{
    if (took_ns < w->looks_ns)
        w->looks_ns = took_ns;
    return w->mode == RPC_WAIT_ADAPTIVE && took_ns - w->looks_ns > w->interrupted_ns;
}

static ssize_t spin(struct rpc_waiter *w, struct rpc_transport *t, const struct iovec *iov,
                    int count, uint64_t limit_ns)
{
    uint64_t start = hw_now_ns(), last = start;
    for (;;) {
        for (int i = 0; i < SPINS_A_LOOK; i++) {
            ssize_t n = t->ops->recv(t, iov, count, 0);
            if (n != -EAGAIN) {
                if (w->distrust > 0)
                    w->distrust--;
                return n;
            }
            hw_cpu_relax();
        }
        uint64_t now = hw_now_ns();
        if (is_interrupted(w, now - last)) {
            spin_failed(w, 2);
            return -EAGAIN;
        }
        if (now - start >= limit_ns) {
            if (limit_ns >= w->spin_ns) /* else it might have paid in the end */
                spin_failed(w, 1);
            return -EAGAIN;
        }
        last = now;
    }
}

ssize_t rpc_waiter_recv(struct rpc_waiter *w, struct rpc_transport *t, const struct iovec *iov,
                        int count, uint64_t timeout_ns)
{
    if (w->mode == RPC_WAIT_BUSY)
        return spin(w, t, iov, count, timeout_ns);
    if (w->mode == RPC_WAIT_ADAPTIVE && w->spin_ns) {
        if (w->rest > 0) {
            w->rest--;
        } else {
            uint64_t limit = timeout_ns < w->spin_ns ? timeout_ns : w->spin_ns;
            ssize_t n = spin(w, t, iov, count, limit);
            if (n != -EAGAIN || timeout_ns <= w->spin_ns)
                return n;
            timeout_ns -= w->spin_ns;
        }
    }
    return t->ops->recv(t, iov, count, timeout_ns);
}
