/* Connections between two instances; see kept.h. */
#include "venus/client/device/kept.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "venus/client/link/link.h"
#include "venus/client/link/pushes.h"
#include "venus/client/locks.h"
#include "venus/client/perf.h"
#include "venus/memory/track/kernel.h"

#include <pthread.h>
#include <string.h>

static const uint64_t keep_ns = HW_SEC;

static pthread_mutex_t lock; /* guards the rest; never held while a connection is closed */
static pthread_cond_t changed;
static struct {
    struct vnc_server server;
    uint64_t until_ns;
} kept[VNC_SERVERS_MAX]; /* the one that ends first comes first */
static unsigned count;
static bool timer_runs;
static bool closing;   /* the timer closes one, without the lock */
static bool leaving;   /* the process ends: the rest say goodbye by themselves (link.c) */
static unsigned forks; /* of the process that kept them */

/* ---- under the lock ---- */

static void make(void)
{
    vnc_lock_init(&lock);
    pthread_cond_init(&changed, NULL);
    forks = vn_kernel_forks();
}

static void enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make);
    pthread_mutex_lock(&lock);
}

/* Neither the connections nor the timer are a child's. */
static bool is_parents(void)
{
    return forks != vn_kernel_forks();
}

static struct vnc_server take_at(unsigned i)
{
    struct vnc_server server = kept[i].server;
    count--;
    memmove(&kept[i], &kept[i + 1], (count - i) * sizeof(kept[0]));
    return server;
}

/* ---- the timer ---- */

static void *timer_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (count > 0 && !leaving) {
        if (hw_now_ns() < kept[0].until_ns) {
            (void)hw_cond_wait(&changed, &lock, kept[0].until_ns);
            continue;
        }
        struct vnc_server server = take_at(0);
        closing = true;
        pthread_mutex_unlock(&lock);
        vnc_server_close(&server);
        pthread_mutex_lock(&lock);
        closing = false;
        pthread_cond_broadcast(&changed);
    }
    timer_runs = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static bool start_timer(void)
{
    pthread_t thread;
    if (hw_thread_start(&thread, timer_main, NULL))
        return false;
    pthread_detach(thread);
    return true;
}

/* A connection that is half closed has a thread to be joined and a goodbye to be said, and uses
 * libraries that end after this one.  So the process waits for it, but not for a dead network. */
__attribute__((destructor)) static void leave(void)
{
    uint64_t until = hw_after(keep_ns);
    enter();
    leaving = true;
    while (closing && !is_parents() && hw_cond_wait(&changed, &lock, until))
        ;
    pthread_mutex_unlock(&lock);
}

/* ---- in and out ---- */

static bool is_as_opened(const struct vnc_server *server)
{
    return server->link && vnc_perf(VNC_PERF_KEPT_SESSIONS) && !vnc_link_is_lost(server->link) &&
           vnc_link_ids(server->link, 0) == server->ids_end;
}

static bool keep(const struct vnc_server *server)
{
    if (is_parents() || count == VNC_SERVERS_MAX)
        return false;
    timer_runs = timer_runs || start_timer();
    if (!timer_runs)
        return false;
    kept[count].server = *server;
    kept[count].until_ns = hw_after(keep_ns);
    count++;
    pthread_cond_signal(&changed);
    return true;
}

void vnc_kept_put(struct vnc_server *server)
{
    bool done = false;
    if (is_as_opened(server)) {
        vnc_pushes_set_debug(server->pushes, NULL);
        vnc_link_set_used(server->link, false);
        enter();
        done = keep(server);
        pthread_mutex_unlock(&lock);
    }
    if (done)
        *server = (struct vnc_server){0};
    else
        vnc_server_close(server);
}

static bool is_same(const struct vnc_server *a, const struct vnc_server *b)
{
    size_t len = wire_enc_len(&a->asked);
    return strcmp(a->address, b->address) == 0 && a->settings == b->settings &&
           wire_enc_len(&b->asked) == len &&
           memcmp(wire_enc_data(&a->asked), wire_enc_data(&b->asked), len) == 0;
}

static bool find(const struct vnc_server *wanted, struct vnc_server *out)
{
    bool found = false;
    enter();
    for (unsigned i = 0; i < count && !found && !is_parents(); i++) {
        found = is_same(&kept[i].server, wanted);
        if (found)
            *out = take_at(i);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool vnc_kept_take(struct vnc_server *server)
{
    struct vnc_server found;
    while (find(server, &found)) {
        vnc_link_poll(found.link); /* it may have ended meanwhile */
        if (vnc_link_is_lost(found.link)) {
            vnc_server_close(&found);
            continue;
        }
        vnc_link_set_used(found.link, true);
        found.near = server->near;
        found.upload_cache = server->upload_cache;
        wire_enc_fini(&server->asked);
        *server = found;
        return true;
    }
    return false;
}
