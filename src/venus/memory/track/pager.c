#include "venus/memory/track/pager.h"

#include <assert.h>
#include <errno.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* all that follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* busy or stopping */
static struct vn_pager_client *clients, *busy;
static pthread_t thread;
static struct vn_kernel *kernel; /* NULL: no thread */
static int stop_fd;
static bool stopping; /* the thread is told to end, and another one waits until it has */

static struct vn_pager_client *client_at(uintptr_t addr)
{
    struct vn_pager_client *client = clients;
    while (client && (addr < client->start || addr >= client->end))
        client = client->next;
    return client;
}

static void serve(uintptr_t addr)
{
    pthread_mutex_lock(&lock);
    busy = client_at(addr);
    struct vn_pager_client *client = busy;
    pthread_mutex_unlock(&lock);
    if (client)
        client->fault(client, addr);
    pthread_mutex_lock(&lock);
    busy = NULL;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void *run(void *user)
{
    const struct vn_kernel *mine = user;
    struct pollfd fds[] = {{.fd = mine->uffd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    while (!(fds[1].revents & POLLIN)) {
        struct uffd_msg msg;
        if (read(mine->uffd, &msg, sizeof(msg)) == (ssize_t)sizeof(msg)) {
            if (msg.event == UFFD_EVENT_PAGEFAULT)
                serve((uintptr_t)msg.arg.pagefault.address);
            continue;
        }
        (void)poll(fds, 2, -1);
    }
    return NULL;
}

/* --- fork ---------------------------------------------------------------------------------- */

static void in_child(void)
{
    if (kernel)
        close(stop_fd);
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may hold it */
    changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    clients = busy = NULL;
    kernel = NULL;
    stopping = false;
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

/* --- clients ------------------------------------------------------------------------------- */

static int start(void)
{
    struct vn_kernel *made;
    int err = vn_kernel_ref(&made);
    if (err)
        return err;
    stop_fd = eventfd(0, EFD_CLOEXEC);
    err = stop_fd < 0 ? -errno : hw_thread_start(&thread, run, made);
    if (err) {
        if (stop_fd >= 0)
            close(stop_fd);
        vn_kernel_unref(made);
        return err;
    }
    kernel = made;
    return 0;
}

int vn_pager_attach(struct vn_kernel *watched, struct vn_pager_client *client)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    assert(watched->serves_kernel);
    pthread_mutex_lock(&lock);
    while (stopping)
        pthread_cond_wait(&changed, &lock);
    int err = kernel ? 0 : start();
    if (!err) {
        assert(kernel == watched);
        client->next = clients;
        clients = client;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

/* With the lock, which is not held while the thread ends. */
static void stop(void)
{
    struct vn_kernel *ended = kernel;
    stopping = true;
    (void)eventfd_write(stop_fd, 1);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&lock);
    close(stop_fd);
    kernel = NULL;
    stopping = false;
    pthread_cond_broadcast(&changed);
    vn_kernel_unref(ended);
}

void vn_pager_detach(struct vn_pager_client *client)
{
    pthread_mutex_lock(&lock);
    struct vn_pager_client **at = &clients;
    while (*at != client) {
        assert(*at);
        at = &(*at)->next;
    }
    *at = client->next;
    while (busy == client)
        pthread_cond_wait(&changed, &lock);
    if (!clients && !stopping)
        stop();
    pthread_mutex_unlock(&lock);
}
