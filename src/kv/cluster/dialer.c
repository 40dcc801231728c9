#include "kv/cluster/dialer.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

enum { THREADS = 4 };

struct dial {
    STAILQ_ENTRY(dial) next;
    uint32_t index;
    struct rpc_addr addr;
    struct rpc_transport *result;
};

STAILQ_HEAD(queue, dial);

struct kv_dialer {
    struct rpc_net_options options;
    pthread_t threads[THREADS];
    uint32_t thread_count;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t asked;
    struct queue wanted, ended;
    bool stop;
    int fd;
};

/* NULL: there is none. */
static struct dial *pop(struct queue *q)
{
    struct dial *dial = STAILQ_FIRST(q);
    if (dial)
        STAILQ_REMOVE_HEAD(q, next);
    return dial;
}

static void run(const struct kv_dialer *d, struct dial *dial)
{
    char why[RPC_WHY_CHARS];
    if (rpc_dial(&dial->addr, &d->options, &dial->result, why)) {
        dial->result = NULL;
        hw_debug(HW_CAT_KV, "%s", why);
    }
}

static void *dialer_main(void *user)
{
    struct kv_dialer *d = user;
    pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        struct dial *dial = pop(&d->wanted);
        if (!dial) {
            pthread_cond_wait(&d->asked, &d->lock);
            continue;
        }
        pthread_mutex_unlock(&d->lock);
        run(d, dial);
        pthread_mutex_lock(&d->lock);
        STAILQ_INSERT_TAIL(&d->ended, dial, next);
        (void)eventfd_write(d->fd, 1); /* a full one is readable anyway */
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* At least one, or why there is none. */
static int start_threads(struct kv_dialer *d)
{
    int rc = 0;
    while (rc == 0 && d->thread_count < THREADS) {
        rc = -pthread_create(&d->threads[d->thread_count], NULL, dialer_main, d);
        d->thread_count += rc == 0;
    }
    return d->thread_count > 0 ? 0 : rc;
}

int kv_dialer_create(const struct rpc_net_options *options, struct kv_dialer **out)
{
    struct kv_dialer *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->options = *options;
    d->options.timeout_ns = KV_DIAL_NS;
    STAILQ_INIT(&d->wanted);
    STAILQ_INIT(&d->ended);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->asked, NULL);
    d->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = d->fd < 0 ? -errno : start_threads(d);
    if (rc) {
        kv_dialer_destroy(d);
        return rc;
    }
    *out = d;
    return 0;
}

static void drop_all(struct queue *q)
{
    for (struct dial *dial; (dial = pop(q));) {
        rpc_transport_destroy(dial->result);
        free(dial);
    }
}

void kv_dialer_destroy(struct kv_dialer *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_broadcast(&d->asked);
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->thread_count; i++)
        pthread_join(d->threads[i], NULL);
    drop_all(&d->wanted);
    drop_all(&d->ended);
    if (d->fd >= 0)
        close(d->fd);
    pthread_cond_destroy(&d->asked);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

int kv_dialer_ask(struct kv_dialer *d, uint32_t index, const struct rpc_addr *addr)
{
    struct dial *dial = calloc(1, sizeof(*dial));
    if (!dial)
        return -ENOMEM;
    dial->index = index;
    dial->addr = *addr;
    pthread_mutex_lock(&d->lock);
    STAILQ_INSERT_TAIL(&d->wanted, dial, next);
    pthread_cond_signal(&d->asked);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

bool kv_dialer_take(struct kv_dialer *d, uint32_t *index, struct rpc_transport **out)
{
    eventfd_t rings;
    (void)eventfd_read(d->fd, &rings);
    pthread_mutex_lock(&d->lock);
    struct dial *dial = pop(&d->ended);
    pthread_mutex_unlock(&d->lock);
    if (!dial)
        return false;
    *index = dial->index;
    *out = dial->result;
    free(dial);
    return true;
}

int kv_dialer_fd(const struct kv_dialer *d)
{
    return d->fd;
}
