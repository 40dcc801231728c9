#include "rig.h"

#include "page/broadcast/link.h"
#include "page/limit.h"
#include "page/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HANG_MS = 240000 }; /* a wait this long has failed, on a loaded machine too */

#define HANG_NS (UINT64_C(240) * 1000 * 1000 * 1000)

/* ---- the driver that does as it is told ---- */

static struct page_backend_ops troubled;
static struct orders *orders;
static uint32_t own_rank; /* in a worker */

static bool is_in_trouble(enum trouble trouble)
{
    return atomic_load(&orders->trouble) == (int)trouble && atomic_load(&orders->rank) == own_rank;
}

static int troubled_open(const struct page_backend_config *config, struct page_backend **out,
                         struct page_error *why)
{
    own_rank = config->device;
    int rc = page_backend_host.open(config, out, why);
    if (rc == 0)
        (*out)->ops = &troubled;
    return rc;
}

static int troubled_create(struct page_backend *b, page_handle *out, struct page_error *why)
{
    if (is_in_trouble(TROUBLE_MEMORY))
        return page_fail(why, -ENOMEM, 2, "the device is full");
    return page_backend_host.create(b, out, why);
}

static void may_die(enum trouble trouble)
{
    if (is_in_trouble(trouble)) {
        atomic_store(&orders->trouble, TROUBLE_NONE);
        raise(SIGKILL);
    }
}

static int trouble_in_driver(size_t *failed, struct page_error *why)
{
    may_die(TROUBLE_KILL_INSIDE);
    if (is_in_trouble(TROUBLE_STOP_INSIDE)) {
        atomic_store(&orders->trouble, TROUBLE_NONE);
        raise(SIGSTOP);
    }
    *failed = 0;
    return is_in_trouble(TROUBLE_DRIVER) ? page_fail(why, -EIO, 77, "the driver was told to fail")
                                         : 0;
}

static int troubled_bind(struct page_backend *b, const struct page_bind *binds, size_t count,
                         size_t *failed, struct page_error *why)
{
    bool is_next = atomic_load(&orders->trouble) == TROUBLE_KILL_BACK &&
                   atomic_load(&orders->rank) + 1 == own_rank;
    int rc = is_next ? page_fail(why, -EIO, 77, "the driver was told to fail")
                     : trouble_in_driver(failed, why);
    *failed = 0;
    if (rc == 0)
        rc = page_backend_host.bind(b, binds, count, failed, why);
    may_die(TROUBLE_KILL_DONE);
    return rc;
}

static int troubled_unbind(struct page_backend *b, const struct page_bind *binds, size_t count,
                           size_t *failed, struct page_error *why)
{
    int rc = trouble_in_driver(failed, why);
    may_die(TROUBLE_KILL_BACK);
    return rc ? rc : page_backend_host.unbind(b, binds, count, failed, why);
}

static void before(void *user, const struct page_command *command)
{
    (void)user;
    (void)command;
    atomic_fetch_add(&orders->commands, 1);
    may_die(TROUBLE_KILL);
    if (is_in_trouble(TROUBLE_STOP)) {
        atomic_store(&orders->trouble, TROUBLE_NONE);
        raise(SIGSTOP);
    }
}

/* ---- life ---- */

static void make_base(struct rig *r)
{
    *r = (struct rig){.base = "/tmp/hawser-rig-XXXXXX"};
    assert_non_null(mkdtemp(r->base));
    r->orders =
        mmap(NULL, sizeof *r->orders, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r->orders != MAP_FAILED);
    orders = r->orders;
    troubled = page_backend_host;
    troubled.open = troubled_open;
    troubled.create = troubled_create;
    troubled.bind = troubled_bind;
    troubled.unbind = troubled_unbind;
}

void rig_start_workers(struct rig *r)
{
    struct page_error why;
    if (!r->orders)
        make_base(r);
    struct page_worker_config config = {
        .base = r->base,
        .group = RIG_GROUP,
        .before = before,
        .tensors = {.backend = &troubled,
                    .device = {.memory_bytes = 2 * LAYERS * PAGES * PAGE_BYTES},
                    .layers = LAYERS,
                    .page_bytes = PAGE_BYTES}};
    if (page_processes_start(&config, RANKS, &r->processes, &why))
        fail_msg("%s", why.text);
}

void rig_open_group(struct rig *r, const struct page_strategy *strategy, uint64_t timeout_ns)
{
    struct page_error why;
    struct page_group_config config = {.base = r->base,
                                       .group = RIG_GROUP,
                                       .scheduler = "rig",
                                       .ranks = RANKS,
                                       .timeout_ns = timeout_ns,
                                       .map = strategy};
    int rc;
    do /* a short limit may pass while the machine stands still */
        rc = page_group_open(&config, &r->group, &why);
    while (rc == -ETIMEDOUT);
    if (rc)
        fail_msg("%s", why.text);
}

void rig_start(struct rig *r, const struct page_strategy *strategy, uint64_t timeout_ns)
{
    r->orders = NULL;
    rig_start_workers(r);
    rig_open_group(r, strategy, timeout_ns);
}

void rig_stop(struct rig *r)
{
    page_group_close(r->group);
    page_processes_stop(r->processes);
    munmap(r->orders, sizeof *r->orders);
    if (rmdir(r->base)) /* nothing may be left in it */
        fail_msg("%s: %s", r->base, strerror(errno));
    *r = (struct rig){.orders = NULL};
}

void rig_trouble(struct rig *r, enum trouble trouble, uint32_t rank)
{
    atomic_store(&r->orders->rank, rank);
    atomic_store(&r->orders->trouble, trouble);
}

/* ---- batches ---- */

void rig_map(struct rig *r, const uint32_t *ids, size_t count)
{
    struct page_verdict v;
    if (page_group_map(r->group, ids, count, &v))
        fail_msg("map: %s", v.why.text);
    assert_int_equal(v.rank, PAGE_NO_RANK);
}

void rig_unmap(struct rig *r, const uint32_t *ids, size_t count)
{
    struct page_verdict v;
    if (page_group_unmap(r->group, ids, count, &v))
        fail_msg("unmap: %s", v.why.text);
}

void rig_socket(const struct rig *r, uint32_t rank, char path[PAGE_PATH_CHARS])
{
    struct page_runtime runtime;
    struct page_error why;
    assert_int_equal(page_runtime_visit(&runtime, r->base, RIG_GROUP, &why), 0);
    page_runtime_socket(&runtime, rank, path);
    page_runtime_leave(&runtime);
}

static uint32_t mapped_at(struct rig *r, uint32_t rank)
{
    char path[PAGE_PATH_CHARS];
    struct page_link *link;
    struct page_info info;
    struct page_error why;
    rig_socket(r, rank, path);
    if (page_link_open(path, HANG_NS, &link, &why) ||
        page_link_info(link, page_host_ns() + HANG_NS, &info, &why))
        fail_msg("rank %u: %s", rank, why.text);
    page_link_close(link);
    return info.mapped;
}

void rig_expect_mapped(struct rig *r, uint32_t mapped, uint64_t but)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (!(but >> rank & 1))
            assert_int_equal(mapped_at(r, rank), mapped);
    }
}

struct page_limit *rig_limit(struct rig *r)
{
    struct page_runtime runtime;
    struct page_limit *limit;
    struct page_error why;
    char path[PAGE_PATH_CHARS];
    assert_int_equal(page_runtime_visit(&runtime, r->base, RIG_GROUP, &why), 0);
    page_runtime_limit(&runtime, path);
    assert_int_equal(page_limit_open(path, &limit, &why), 0);
    page_runtime_leave(&runtime);
    return limit;
}

static int entries(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return count;
}

void rig_wait_empty(const char *base)
{
    char events[4096];
    int fd = inotify_init1(IN_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(inotify_add_watch(fd, base, IN_DELETE) >= 0);
    while (entries(base) > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, HANG_MS) <= 0)
            fail_msg("%s is not emptied", base);
        assert_true(read(fd, events, sizeof events) > 0);
    }
    close(fd);
}
