#include "serve/session/model.h"

#include "base/clock.h"
#include "base/log.h"
#include "rpc/server.h"
#include "rpc/transport/sock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

struct process {
    struct llm_worker *worker;
    struct rpc_server *rpc;
};

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct process *p = user;
    if (!llm_worker_handle(p->worker, ep, msg))
        rpc_release(ep, msg);
}

static void on_closed(void *user, struct rpc_ep *ep, int status)
{
    struct process *p = user;
    llm_worker_closed(p->worker, ep, status);
}

static void on_sleeps(void *user, bool begins)
{
    struct process *p = user;
    llm_worker_server_sleeps(p->worker, begins);
}

static const struct rpc_server_ops ops = {
    .message = on_message, .closed = on_closed, .sleeps = on_sleeps};

/* Of libraries, and of a sanitizer's runtime, which maps terabytes. */
static uint64_t mapped_so_far(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%*u %*u %*u %*u %*u %llu", &pages) != 1)
        pages = 0;
    (void)fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* 0: nobody knows. */
static uint64_t memory_of(const struct session_model *model)
{
    struct sysinfo info;
    if (model->memory_bytes)
        return model->memory_bytes;
    return sysinfo(&info) ? 0 : (uint64_t)info.totalram * info.mem_unit / 10 * 9;
}

/* What it allocates: a file that claims too much fails there.  The model itself is not its own; KV
 * and the caches that a client downloads are files of memory, with bounds of their own. */
static void limit_memory(uint64_t bytes)
{
    struct rlimit limit;
    if (!bytes || getrlimit(RLIMIT_DATA, &limit))
        return;
    bytes += mapped_so_far();
    if (bytes < limit.rlim_max)
        limit.rlim_max = bytes;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_DATA, &limit))
        hw_warn(HW_CAT_LLM, "memory is not limited: %s", strerror(errno));
}

static int start_worker(const struct session_model *model, uint64_t memory, int figures,
                        struct llm_worker **out, char *why)
{
    struct llm_worker_options options = model->options;
    size_t bytes = LLM_COUNTS * sizeof(uint64_t);
    void *counts = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, figures, 0);
    close(figures);
    options.counts = counts == MAP_FAILED ? NULL : counts;
    options.engine.backend = model->backend;
    options.engine.kv_most = memory;
    if (memory && memory < options.upload_bytes)
        options.upload_bytes = memory;
    options.shadow_ops = model->has_shadow ? &llm_shadow_memory : NULL;
    return llm_worker_create(&options, out, why);
}

int session_model_run(const struct session_model *model, const int fds[2], const char *peer)
{
    char why[LLM_WHY_CHARS] = "";
    struct process p = {0};
    struct rpc_server_options options = {
        .ops = &ops,
        .user = &p,
        .config = {.heartbeat_ns = HW_NEVER, .takes_fds = true, .owner_tells = true},
        .stalled_ns = HW_NEVER,
        .max_clients = 1,
        .until_empty = true};
    struct rpc_transport *transport;
    uint64_t memory = memory_of(model);
    limit_memory(memory);
    int rc = start_worker(model, memory, fds[0], &p.worker, why);
    if (rc == 0)
        rc = rpc_server_create(&options, &p.rpc);
    if (rc == 0)
        rc = rpc_server_watch(p.rpc, llm_worker_event_fd(p.worker), llm_worker_deliver, p.worker);
    if (rc == 0)
        rc = rpc_sock_wrap(fds[1], "unix", true, peer, &transport);
    if (rc == 0)
        rc = rpc_server_adopt(p.rpc, transport);
    if (rc) {
        hw_error(HW_CAT_LLM, "%s: no process for its model: %s", peer, *why ? why : strerror(-rc));
        return 1;
    }
    rpc_server_run(p.rpc);
    return 0;
}
