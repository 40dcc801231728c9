#include "page/worker.h"

#include "base/clock.h"
#include "page/broadcast/board.h"
#include "page/runtime.h"
#include "rpc/server.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WORKER_WINDOW =
        256 << 10, /* a dozen of the largest commands: what one client can make us hold */
    WORKER_CALLS = 64
};

/* A scheduler rolls a batch back within this time after the batch's own limit. */
static const uint64_t rollback_ns = 10 * HW_SEC;

struct board_thread {
    struct page_worker *worker;
    struct page_board *board;
    const struct rpc_ep *ep; /* the board came over it and ends with it */
    pthread_t thread;
    uint8_t command[PAGE_COMMAND_BYTES_MAX], bytes[PAGE_ANSWER_BYTES_MAX];
    struct page_answer answer;
};

struct page_worker {
    struct page_worker_config config;
    struct page_runtime runtime;
    struct page_limit *limit;
    struct rpc_server *server;

    pthread_mutex_t lock; /* one operation at a time: guards all down to the boards */
    struct page_tensors *tensors;
    struct page_command command; /* the one at hand */
    uint64_t epoch;              /* of the scheduler that is obeyed */
    uint64_t last_seq;           /* the last one executed or cancelled */
    bool last_done;              /* it was executed and can be undone */
    enum page_op last_op;
    uint64_t last_deadline;

    /* Only the server's thread. */
    struct board_thread *boards[PAGE_BOARDS_MAX];
    uint32_t board_count;
    struct page_answer answer;
};

/* ---- operations ---- */

static int reset(struct page_worker *w, struct page_outcome *out)
{
    int rc = page_tensors_clear(w->tensors, out);
    out->count = 0; /* of ids that the scheduler did not name */
    if (rc)
        return rc;
    w->epoch = w->command.epoch;
    w->last_seq = w->command.seq;
    w->last_done = false;
    return 0;
}

/* Undoes this seq if it was executed, and refuses it from now on. */
static int cancel(struct page_worker *w, struct page_outcome *out)
{
    *out = (struct page_outcome){0};
    if (w->command.seq > w->last_seq) {
        w->last_seq = w->command.seq;
        w->last_done = false;
        return 0;
    }
    if (w->command.seq < w->last_seq || !w->last_done)
        return 0;
    int rc = page_tensors_undo(w->tensors, out);
    out->count = 0;
    w->last_done = rc != 0;
    return rc;
}

static int batch(struct page_worker *w, struct page_outcome *out)
{
    const struct page_command *c = &w->command;
    if (c->seq <= w->last_seq)
        return page_fail(&out->why, -ESTALE, 0, "command %llu was cancelled or executed before",
                         (unsigned long long)c->seq);
    if (c->deadline < page_host_ns())
        return page_fail(&out->why, -ETIMEDOUT, 0, "the command came after its time limit");
    int rc = c->op == PAGE_OP_MAP ? page_tensors_map(w->tensors, c->ids, c->count, out)
                                  : page_tensors_unmap(w->tensors, c->ids, c->count, out);
    w->last_seq = c->seq;
    w->last_done = rc == 0;
    w->last_op = c->op;
    w->last_deadline = c->deadline;
    return rc;
}

static int obey(struct page_worker *w, struct page_outcome *out)
{
    const struct page_command *c = &w->command;
    if (w->config.before)
        w->config.before(w->config.before_user, c);
    if (c->op == PAGE_OP_RESET)
        return reset(w, out);
    if (c->epoch != w->epoch)
        return page_fail(&out->why, -ESTALE, 0, "another scheduler has taken over this worker");
    return c->op == PAGE_OP_CANCEL ? cancel(w, out) : batch(w, out);
}

void page_worker_execute(struct page_worker *w, const void *command, size_t len,
                         struct page_answer *answer)
{
    struct page_outcome *out = &answer->outcome;
    uint64_t began = page_host_ns();
    out->why = (struct page_error){0};
    out->driver_ns = 0;
    out->count = 0;
    pthread_mutex_lock(&w->lock);
    int rc = page_command_decode(command, len, &w->command);
    if (rc)
        page_fail(&out->why, rc, 0, "malformed command of %zu bytes: %s", len,
                  rc == -EMSGSIZE ? "too many page ids" : "cut short, or wrong fields");
    else
        rc = obey(w, out);
    pthread_mutex_unlock(&w->lock);
    if (rc == 0)
        out->why = (struct page_error){0};
    answer->began = began;
    answer->ended = page_host_ns();
}

/* ---- boards ---- */

static void *board_main(void *arg)
{
    struct board_thread *t = arg;
    int len;
    while ((len = page_board_next(t->board, t->command)) >= 0) {
        struct wire_enc e;
        page_worker_execute(t->worker, t->command, (size_t)len, &t->answer);
        wire_enc_init_fixed(&e, t->bytes, sizeof t->bytes);
        page_answer_encode(&t->answer, &e);
        assert(!wire_enc_error(&e));
        page_board_reply(t->board, t->bytes, (uint32_t)wire_enc_len(&e));
    }
    return NULL;
}

static void stop_board(struct page_worker *w, uint32_t at)
{
    struct board_thread *t = w->boards[at];
    page_board_stop(t->board);
    pthread_join(t->thread, NULL);
    page_board_destroy(t->board);
    free(t);
    w->boards[at] = w->boards[--w->board_count];
}

static int watch_board(struct page_worker *w, const struct rpc_ep *ep, int fd)
{
    if (w->board_count == PAGE_BOARDS_MAX)
        return -EUSERS;
    struct board_thread *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->worker = w;
    t->ep = ep;
    int rc = page_board_attach(fd, w->config.rank, &t->board);
    if (rc) {
        free(t);
        return rc;
    }
    rc = pthread_create(&t->thread, NULL, board_main, t);
    if (rc) {
        page_board_destroy(t->board);
        free(t);
        return -rc;
    }
    w->boards[w->board_count++] = t;
    return 0;
}

static void on_closed(void *user, struct rpc_ep *ep, int status)
{
    struct page_worker *w = user;
    (void)status;
    for (uint32_t i = w->board_count; i-- > 0;) {
        if (w->boards[i]->ep == ep)
            stop_board(w, i);
    }
}

/* ---- calls ---- */

static void reply_bytes(struct rpc_ep *ep, struct rpc_msg *msg, const struct wire_enc *e)
{
    assert(!wire_enc_error(e));
    struct iovec iov = {(void *)wire_enc_data(e), wire_enc_len(e)};
    (void)rpc_reply(ep, msg, 0, &(struct rpc_send){.iov = &iov, .iov_count = 1});
}

static void answer_command(struct page_worker *w, struct rpc_ep *ep, struct rpc_msg *msg)
{
    uint8_t bytes[PAGE_ANSWER_BYTES_MAX];
    struct wire_enc e;
    page_worker_execute(w, msg->data, msg->len, &w->answer);
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_answer_encode(&w->answer, &e);
    reply_bytes(ep, msg, &e);
}

static void answer_info(struct page_worker *w, struct rpc_ep *ep, struct rpc_msg *msg)
{
    uint8_t bytes[PAGE_INFO_BYTES_MAX];
    struct wire_enc e;
    struct page_info info = {.rank = w->config.rank};
    pthread_mutex_lock(&w->lock);
    info.mapped = page_tensors_mapped(w->tensors);
    pthread_mutex_unlock(&w->lock);
    info.geometry = *page_tensors_geometry(w->tensors);
    const char *name = w->config.tensors.backend->name;
    memcpy(info.backend, name, strlen(name) + 1);
    memcpy(info.device, page_tensors_facts(w->tensors)->device, sizeof info.device);
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_info_encode(&info, &e);
    reply_bytes(ep, msg, &e);
}

static void answer_board(struct page_worker *w, struct rpc_ep *ep, struct rpc_msg *msg)
{
    int fd = msg->fd_count == 1 ? rpc_msg_take_fd(msg, 0) : -1;
    int rc = fd < 0 ? -EPROTO : watch_board(w, ep, fd);
    if (fd >= 0)
        close(fd);
    (void)rpc_reply(ep, msg, rc, NULL);
}

static void answer_trim(struct page_worker *w, struct rpc_ep *ep, struct rpc_msg *msg)
{
    uint8_t bytes[8];
    struct wire_enc e;
    pthread_mutex_lock(&w->lock);
    /* The memory of the last unmap is kept for a rollback.  Once it is too late for a rollback the
     * memory goes, too; a later cancel is answered with an error. */
    if (w->last_op == PAGE_OP_UNMAP && page_host_ns() > w->last_deadline + rollback_ns)
        page_tensors_commit(w->tensors);
    uint64_t freed = page_tensors_trim(w->tensors);
    pthread_mutex_unlock(&w->lock);
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    wire_put_u64(&e, freed);
    reply_bytes(ep, msg, &e);
}

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct page_worker *w = user;
    if (msg->kind == RPC_CALL) {
        switch (msg->method) {
        case PAGE_METHOD_COMMAND:
            answer_command(w, ep, msg);
            break;
        case PAGE_METHOD_INFO:
            answer_info(w, ep, msg);
            break;
        case PAGE_METHOD_BOARD:
            answer_board(w, ep, msg);
            break;
        case PAGE_METHOD_TRIM:
            answer_trim(w, ep, msg);
            break;
        default:
            (void)rpc_reply(ep, msg, -ENOSYS, NULL);
        }
    }
    rpc_release(ep, msg);
}

/* ---- life ---- */

static int listen_on_socket(struct page_worker *w, struct page_error *why)
{
    static const struct rpc_server_ops ops = {.message = on_message, .closed = on_closed};
    struct rpc_server_options options = {.ops = &ops,
                                         .user = w,
                                         .config = {.window_bytes = WORKER_WINDOW,
                                                    .max_calls = WORKER_CALLS,
                                                    .heartbeat_ns = HW_NEVER,
                                                    .takes_fds = true,
                                                    .name = "page worker"}};
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UNIX};
    char text[RPC_WHY_CHARS] = "out of memory";
    page_runtime_socket(&w->runtime, w->config.rank, addr.path);
    int rc = rpc_server_create(&options, &w->server);
    if (rc == 0)
        rc = rpc_server_listen(w->server, &addr, &(struct rpc_net_options){0}, NULL, text);
    return rc ? page_fail(why, rc, 0, "rank %u: %.170s", w->config.rank, text) : 0;
}

static int open_limit(struct page_worker *w, struct page_error *why)
{
    char path[PAGE_PATH_CHARS];
    page_runtime_limit(&w->runtime, path);
    int rc = page_limit_open(path, &w->limit, why);
    return rc ? rc : page_limit_claim(w->limit, w->config.rank, why);
}

int page_worker_create(const struct page_worker_config *config, struct page_worker **out,
                       struct page_error *why)
{
    assert(config->rank < PAGE_RANKS_MAX);
    struct page_worker *w = calloc(1, sizeof *w);
    if (!w)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    w->config = *config;
    int rc = page_runtime_join(&w->runtime, config->base, config->group, why);
    if (rc) {
        free(w);
        return rc;
    }
    pthread_mutex_init(&w->lock, NULL);
    rc = open_limit(w, why);
    w->config.tensors.limit = w->limit;
    if (rc == 0)
        rc = page_tensors_create(&w->config.tensors, &w->tensors, why);
    if (rc == 0)
        rc = listen_on_socket(w, why);
    if (rc) {
        page_worker_destroy(w);
        return rc;
    }
    *out = w;
    return 0;
}

void page_worker_run(struct page_worker *w)
{
    rpc_server_run(w->server);
}

void page_worker_stop(struct page_worker *w)
{
    rpc_server_stop(w->server);
}

void page_worker_destroy(struct page_worker *w)
{
    if (!w)
        return;
    while (w->board_count > 0)
        stop_board(w, 0);
    rpc_server_destroy(w->server);
    page_tensors_destroy(w->tensors);
    page_limit_close(w->limit);
    page_runtime_leave(&w->runtime);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
