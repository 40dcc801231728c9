#include "llm/tp/rank.h"

#include "base/log.h"
#include "base/process/child.h"
#include "llm/engine/graph.h"
#include "llm/tp/kv_pages.h"
#include "llm/tp/side.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct rank {
    struct llm_tp_exchange *x;
    struct llm_tp_order order;
    struct llm_tp_command *command; /* shared */
    uint32_t rank, ranks;
    struct llm_file *file;
    struct llm_tp_side side;
    struct llm_graph *graph;
    struct llm_kv_memory *kv;
    struct llm_tp_kv_create kv_command;
    struct llm_tp_pages pages;
    struct llm_batch batch;
    char why[LLM_WHY_CHARS];
};

/* ---- loading ---- */

static int open_file(struct rank *r)
{
    uint8_t hash[LLM_TP_HASH_BYTES];
    uint64_t size;
    int rc = llm_file_open(r->order.path, &r->file, r->why);
    if (rc)
        return rc;
    llm_tp_hash(r->file, &size, hash);
    if (size != r->order.size || memcmp(hash, r->order.hash, sizeof hash) != 0)
        return llm_why(r->why, -ESTALE, "%s has changed since the server was started",
                       r->order.path);
    return 0;
}

static int load(struct rank *r)
{
    struct llm_backend_config config = {.threads = r->order.threads,
                                        .device = r->order.device + r->rank,
                                        .math = (enum llm_math)r->order.math};
    struct llm_backend *backend;
    const struct llm_backend_ops *ops = llm_backend_find(r->order.backend);
    int rc = ops ? open_file(r) : llm_why(r->why, -EPROTO, "no such backend");
    if (rc == 0)
        rc = ops->open(&config, &backend, r->why);
    if (rc)
        return rc;
    llm_tp_side_init(&r->side, &llm_tp_in_memory, backend, r->rank, r->ranks);
    r->side.exchange = r->x;
    return llm_graph_create(backend, r->file, &r->graph, r->why);
}

/* ---- commands ---- */

static int meet(struct rank *r)
{
    return llm_tp_meet(r->x) ? llm_why(r->why, -EOWNERDEAD, "another worker failed") : 0;
}

static int kv_create(struct rank *r)
{
    struct llm_tp_kv_create c = r->command->kv;
    if (r->kv || c.run == 0 || c.unit == 0 || c.pages == 0 || c.pages % c.run ||
        c.group[sizeof c.group - 1])
        return llm_why(r->why, -EPROTO, "a malformed command");
    struct llm_kv_shape shape = {.row_values =
                                     llm_share_of(c.row_values, c.unit, r->rank, r->ranks).count,
                                 .pages = c.pages,
                                 .run = c.run};
    r->kv_command = c;
    int rc = r->side.ops->kv_create(r->side.backend, &shape, &r->kv, r->why);
    if (rc == 0)
        rc = llm_tp_pages_start(&r->pages, r->side.ops, r->kv, &r->kv_command, r->rank, r->why);
    if (rc == 0)
        llm_tp_exchange_place(r->x, r->rank)->slab_bytes = r->side.ops->kv_slab(r->kv);
    return rc ? rc : meet(r);
}

static int move_kv(struct rank *r)
{
    struct llm_tp_command c = *r->command;
    struct llm_tp_rows rows = {
        .rows = c.rows, .values = r->kv_command.row_values, .unit = r->kv_command.unit};
    if (!r->kv || c.rows.v > 1 || c.rows.page >= r->kv_command.pages ||
        c.rows.first > LLM_KV_POSITIONS || c.rows.count > LLM_KV_POSITIONS - c.rows.first)
        return llm_why(r->why, -EPROTO, "a malformed command");
    void *part = llm_tp_rows_part(&rows, llm_tp_exchange_room(r->x), r->rank, r->ranks);
    int rc = c.op == LLM_TP_KV_READ ? r->side.ops->kv_read(r->kv, &c.rows, part, r->why) : meet(r);
    if (rc == 0 && c.op == LLM_TP_KV_WRITE)
        rc = r->side.ops->kv_write(r->kv, &c.rows, part, r->why);
    return rc ? rc : meet(r);
}

static int step(struct rank *r)
{
    const struct llm_config *config = llm_file_config(r->file);
    struct llm_tp_limits limits = {.vocab = config->vocab,
                                   .layers = config->layers,
                                   .pages = r->kv_command.pages,
                                   .context = LLM_CONTEXT_MAX};
    uint64_t kernel_ns;
    if (!r->kv || llm_tp_step_decode(r->command, LLM_TP_COMMAND_BYTES, &limits, &r->batch))
        return llm_why(r->why, -EPROTO, "a malformed step");
    r->side.batch = &r->batch;
    int rc = llm_graph_run(r->graph, r->kv, &r->batch, NULL, &kernel_ns, r->why);
    return rc ? rc : meet(r);
}

static int obey(struct rank *r)
{
    switch (r->command->op) {
    case LLM_TP_STEP:
        return step(r);
    case LLM_TP_KV_CREATE:
        return kv_create(r);
    case LLM_TP_KV_READ:
    case LLM_TP_KV_WRITE:
        return move_kv(r);
    default:
        return llm_why(r->why, -EPROTO, "an unknown command");
    }
}

static int serve(struct rank *r)
{
    int rc = 0;
    while (rc == 0) {
        rc = llm_tp_next(r->x);
        if (rc)
            return llm_why(r->why, rc, "another worker failed");
        bool has_pages = r->pages.worker != NULL;
        if (has_pages)
            pthread_mutex_lock(&r->pages.lock);
        rc = obey(r);
        if (has_pages)
            pthread_mutex_unlock(&r->pages.lock);
    }
    return rc;
}

/* ---- the process ---- */

bool llm_tp_is_rank(int argc, char **argv)
{
    return argc == 3 && strcmp(argv[1], LLM_TP_COMMAND) == 0;
}

/* Rank 0 writes nothing: its end closes with it. */
static void *await_parent(void *unused)
{
    char byte;
    ssize_t n;
    (void)unused;
    do
        n = read(HW_CHILD_SOCKET, &byte, 1);
    while (n > 0 || (n < 0 && errno == EINTR));
    _exit(0);
}

/* A terminal's ^C and a service's stop go to all processes; rank 0 ends the others. */
static int prepare_process(void)
{
    pthread_t thread;
    (void)prctl(PR_SET_NAME, "hawser-tp"); /* else a list of processes says "exe" */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    return -pthread_create(&thread, NULL, await_parent, NULL);
}

int llm_tp_rank_main(char **argv)
{
    static struct rank r;
    char *end;
    unsigned long rank = strtoul(argv[2], &end, 10);
    int rc = *end || rank == 0 || rank >= PAGE_RANKS_MAX ? -EINVAL : prepare_process();
    if (rc == 0)
        rc = llm_tp_exchange_attach(HW_CHILD_FD, (uint32_t)rank, &r.x);
    if (rc) {
        hw_error(HW_CAT_LLM, "hawser serve --tp starts this command, and a user cannot: %s",
                 strerror(-rc));
        return 1;
    }
    close(HW_CHILD_FD);
    r.rank = (uint32_t)rank;
    r.ranks = llm_tp_exchange_ranks(r.x);
    r.command = llm_tp_exchange_command(r.x);
    memcpy(&r.order, r.command, sizeof r.order);
    r.order.path[sizeof r.order.path - 1] = r.order.backend[sizeof r.order.backend - 1] = '\0';
    rc = load(&r);
    if (rc == 0)
        rc = meet(&r);
    if (rc == 0)
        rc = serve(&r);
    struct llm_tp_place *place = llm_tp_exchange_place(r.x, r.rank);
    if (rc != -EOWNERDEAD) {
        place->status = rc;
        memcpy(place->text, r.why, sizeof place->text);
        llm_tp_break(r.x);
    }
    _exit(1); /* rank 0 reads the reason; threads of a driver may be anywhere */
}
