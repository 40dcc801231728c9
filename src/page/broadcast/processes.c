#include "page/broadcast/processes.h"

#include "page/runtime.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    READY_MS = 60000, /* a GPU driver that starts cold takes seconds, four at once more */
    STOP_MS = 5000    /* a worker on a GPU frees tens of GiB */
};

struct page_processes {
    uint32_t count;
    char base[PAGE_PATH_CHARS];
    pid_t pids[PAGE_RANKS_MAX]; /* 0: not started, or gone */
};

static bool wait_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do
        n = poll(&p, 1, ms);
    while (n < 0 && errno == EINTR);
    return n > 0;
}

/* ---- in the child ---- */

static struct page_worker *serving;
static volatile sig_atomic_t orphaned;

static void on_signal(int number)
{
    if (number == SIGHUP)
        orphaned = 1;
    page_worker_stop(serving);
}

/* Else the parent's locks and sockets would stay open in this process. */
static void close_others(int keep)
{
    if (keep > STDERR_FILENO + 1)
        (void)close_range(STDERR_FILENO + 1, (unsigned)keep - 1, 0);
    (void)close_range((unsigned)keep + 1, ~0U, 0);
}

/* SIGHUP tells of the end of the parent's thread.  Its other threads may hold file locks a moment
 * longer, and the last member to leave the group must find those locks gone. */
static void await_end_of(int parent_fd)
{
    if (parent_fd >= 0)
        (void)wait_readable(parent_fd, STOP_MS);
}

static void on_stop(void (*handler)(int))
{
    struct sigaction stop = {.sa_handler = handler};
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGHUP, &stop, NULL);
}

/* Blocks the stop signals until there is a worker to stop. */
static void prepare_signals(sigset_t *stops)
{
    sigemptyset(stops);
    sigaddset(stops, SIGTERM);
    sigaddset(stops, SIGHUP);
    sigprocmask(SIG_BLOCK, stops, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &ignore, NULL); /* a terminal's ^C goes to all; the parent ends us */
    sigaction(SIGPIPE, &ignore, NULL);
    prctl(PR_SET_PDEATHSIG, SIGHUP);
}

/* Does not return.  Says on ready_fd how the start went: a struct page_error, rc 0 for well. */
static void child_main(const struct page_worker_config *config, int ready_fd, pid_t parent)
{
    struct page_error why = {0};
    sigset_t stops;
    prepare_signals(&stops);
    close_others(ready_fd);
    int parent_fd = (int)syscall(SYS_pidfd_open, parent, 0);
    int rc = page_worker_create(config, &serving, &why);
    on_stop(rc ? SIG_DFL : on_signal);
    sigprocmask(SIG_UNBLOCK, &stops, NULL);
    bool told = write(ready_fd, &why, sizeof why) == (ssize_t)sizeof why;
    close(ready_fd);
    if (rc == 0 && told && getppid() == parent)
        page_worker_run(serving);
    on_stop(SIG_IGN); /* told twice, we still leave in order */
    if (orphaned)
        await_end_of(parent_fd);
    if (rc == 0)
        page_worker_destroy(serving);
    _exit(rc ? 1 : 0);
}

/* ---- in the parent ---- */

static int fork_worker(struct page_processes *c, const struct page_worker_config *config,
                       uint32_t rank, int *ready_fd)
{
    struct page_worker_config one = *config;
    int ready[2];
    one.rank = rank;
    one.tensors.device.device += rank;
    if (pipe2(ready, O_CLOEXEC))
        return -errno;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        child_main(&one, ready[1], parent);
    int rc = pid < 0 ? -errno : 0;
    close(ready[1]);
    if (rc) {
        close(ready[0]);
        return rc;
    }
    c->pids[rank] = pid;
    *ready_fd = ready[0];
    return 0;
}

static int await_ready(int fd, uint32_t rank, struct page_error *why)
{
    struct page_error told;
    if (!wait_readable(fd, READY_MS))
        return page_fail(why, -ETIMEDOUT, 0, "rank %u did not start within %d s", rank,
                         READY_MS / 1000);
    if (read(fd, &told, sizeof told) != (ssize_t)sizeof told)
        return page_fail(why, -ECHILD, 0, "rank %u died while it started", rank);
    told.text[sizeof told.text - 1] = '\0';
    return told.rc ? page_fail(why, told.rc, told.driver, "rank %u: %.170s", rank, told.text) : 0;
}

int page_processes_start(const struct page_worker_config *config, uint32_t ranks,
                         struct page_processes **out, struct page_error *why)
{
    assert(ranks > 0 && ranks <= PAGE_RANKS_MAX);
    int ready[PAGE_RANKS_MAX];
    uint32_t started = 0;
    struct page_processes *c = calloc(1, sizeof *c);
    if (!c)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    c->count = ranks;
    int rc = page_runtime_base(config->base, c->base, why);
    fflush(NULL); /* or the children would print what waits in our buffers */
    for (; started < ranks && rc == 0; started += rc == 0) {
        rc = fork_worker(c, config, started, &ready[started]);
        if (rc)
            page_fail(why, rc, 0, "cannot start rank %u: %s", started, strerror(-rc));
    }
    for (uint32_t r = 0; r < started; r++) {
        if (rc == 0)
            rc = await_ready(ready[r], r, why);
        close(ready[r]);
    }
    if (rc) {
        page_processes_stop(c);
        return rc;
    }
    *out = c;
    return 0;
}

/* False when the process has not ended after STOP_MS. */
static bool wait_for_end(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return waitpid(pid, NULL, 0) == pid;
    bool ended = wait_readable(fd, STOP_MS);
    close(fd);
    return ended && waitpid(pid, NULL, 0) == pid;
}

void page_processes_stop(struct page_processes *c)
{
    if (!c)
        return;
    for (uint32_t r = 0; r < c->count; r++) {
        if (c->pids[r] > 0) {
            (void)kill(c->pids[r], SIGTERM);
            (void)kill(c->pids[r], SIGCONT); /* one that is stopped would not hear of it */
        }
    }
    for (uint32_t r = 0; r < c->count; r++) {
        if (c->pids[r] > 0 && !wait_for_end(c->pids[r])) {
            (void)kill(c->pids[r], SIGKILL);
            (void)waitpid(c->pids[r], NULL, 0);
        }
    }
    page_runtime_sweep(c->base);
    free(c);
}

pid_t page_processes_pid(const struct page_processes *c, uint32_t rank)
{
    assert(rank < c->count);
    return c->pids[rank];
}
