#include "kv/cluster/dialer.h"

#include "base/log.h"
#include "kv/common/kv.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct kv_dialer {
    struct rpc_net_options options;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t asked;
    uint64_t wanted, ended; /* a bit an index: KV_RANKS_MAX of them */
    struct rpc_addr addrs[KV_RANKS_MAX];
    struct rpc_transport *results[KV_RANKS_MAX];
    bool stop;
    int fd;
};
_Static_assert(KV_RANKS_MAX <= 64, "a bit a rank");

static struct rpc_transport *dial(const struct kv_dialer *d, const struct rpc_addr *addr)
{
    char why[RPC_WHY_CHARS];
    struct rpc_transport *t;
    if (rpc_dial(addr, &d->options, &t, why) == 0)
        return t;
    hw_debug(HW_CAT_KV, "%s", why);
    return NULL;
}

static void *dialer_main(void *user)
{
    struct kv_dialer *d = user;
    pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        if (!d->wanted) {
            pthread_cond_wait(&d->asked, &d->lock);
            continue;
        }
        uint32_t index = (uint32_t)__builtin_ctzll(d->wanted);
        struct rpc_addr addr = d->addrs[index];
        d->wanted &= d->wanted - 1;
        pthread_mutex_unlock(&d->lock);
        struct rpc_transport *t = dial(d, &addr);
        pthread_mutex_lock(&d->lock);
        d->results[index] = t;
        d->ended |= UINT64_C(1) << index;
        uint64_t one = 1;
        ssize_t n = write(d->fd, &one, sizeof(one)); /* a full eventfd is readable anyway */
        (void)n;
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

int kv_dialer_create(const struct rpc_net_options *options, struct kv_dialer **out)
{
    struct kv_dialer *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->options = *options;
    d->options.timeout_ns = KV_DIAL_NS;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->asked, NULL);
    d->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = d->fd < 0 ? -errno : -pthread_create(&d->thread, NULL, dialer_main, d);
    if (rc) {
        if (d->fd >= 0)
            close(d->fd);
        free(d);
        return rc;
    }
    *out = d;
    return 0;
}

void kv_dialer_destroy(struct kv_dialer *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_signal(&d->asked);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    for (uint32_t i = 0; i < KV_RANKS_MAX; i++)
        rpc_transport_destroy(d->results[i]);
    close(d->fd);
    pthread_cond_destroy(&d->asked);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

void kv_dialer_ask(struct kv_dialer *d, uint32_t index, const struct rpc_addr *addr)
{
    assert(index < KV_RANKS_MAX);
    pthread_mutex_lock(&d->lock);
    d->addrs[index] = *addr;
    d->wanted |= UINT64_C(1) << index;
    pthread_cond_signal(&d->asked);
    pthread_mutex_unlock(&d->lock);
}

bool kv_dialer_take(struct kv_dialer *d, uint32_t *index, struct rpc_transport **out)
{
    uint64_t rings;
    ssize_t n = read(d->fd, &rings, sizeof(rings));
    (void)n;
    pthread_mutex_lock(&d->lock);
    bool any = d->ended != 0;
    if (any) {
        *index = (uint32_t)__builtin_ctzll(d->ended);
        d->ended &= d->ended - 1;
        *out = d->results[*index];
        d->results[*index] = NULL;
    }
    pthread_mutex_unlock(&d->lock);
    return any;
}

int kv_dialer_fd(const struct kv_dialer *d)
{
    return d->fd;
}
