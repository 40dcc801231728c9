/* One cell of an experiment: `hawser llm` in as many processes as there are clients, and what they
 * print. */
#include "bench/llm/experiment.h"

#include "base/clock.h"
#include "base/units.h"
#include "bench/llm/store_line.h"
#include "bench/rpc/delay.h"
#include "bench/serve/child.h"
#include "llm/modes/mode.h"
#include "serve/serve.h"
#include "serve/service_llm.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ARGS_MAX = 48,
    ARG_CHARS = 32,
    SAMPLE_MS = 50, /* between looks at the GPUs */
};

/* ---- processes ---- */

struct args {
    const char *items[ARGS_MAX];
    size_t count;
    char numbers[ARGS_MAX][ARG_CHARS];
};

static void add(struct args *a, const char *name, const char *value)
{
    assert(a->count + 3 < ARGS_MAX);
    a->items[a->count++] = name;
    if (value)
        a->items[a->count++] = value;
    a->items[a->count] = NULL;
}

static void add_u64(struct args *a, const char *name, uint64_t value)
{
    snprintf(a->numbers[a->count], ARG_CHARS, "%llu", (unsigned long long)value);
    add(a, name, a->numbers[a->count]);
}

static struct bench_line store_link; /* of the process that serves */

static const struct llm_shadow_ops *over_link(const struct llm_shadow_ops *store)
{
    static struct llm_shadow_ops ops;
    ops = store_line_over(store, store_link);
    return &ops;
}

/* `hawser serve` in this process, with a link before its KV store. */
static _Noreturn void serve_over_link(const struct args *a, struct bench_line link)
{
    store_link = link;
    service_llm_wrap_store(over_link);
    enum cmd_exit code = cmd_run(&cmd_serve, (int)a->count - 1, (char **)(uintptr_t)(a->items + 1));
    fflush(stdout);
    _exit((int)code);
}

/* This program again; its standard output comes through *out.  link: see above; where there is none
 * the command is whatever the arguments say. */
static pid_t spawn(const struct args *a, struct bench_line link, int *out)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC))
        return -1;
    pid_t pid = bench_fork();
    if (pid == 0) {
        if (bench_delay_is_needed(&link) && dup2(fds[1], STDOUT_FILENO) >= 0)
            serve_over_link(a, link);
        bench_become(a->items, fds[1]);
    }
    close(fds[1]);
    if (pid < 0)
        close(fds[0]);
    else
        *out = fds[0];
    return pid;
}

static void kill_and_reap(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- the server ---- */

int experiment_server_start(const struct experiment_setup *setup, uint64_t kv_bytes,
                            struct bench_child *out)
{
    struct args a = {.count = 0};
    struct bench_child server = {0};
    int fd;
    add(&a, "hawser", "serve");
    add(&a, "--no-devices", NULL);
    add(&a, "--listen", "127.0.0.1:0");
    add(&a, "--model", setup->model);
    add(&a, "--backend", setup->backend);
    add_u64(&a, "--threads", setup->threads);
    add_u64(&a, "--kv-memory", kv_bytes);
    if (setup->shadow)
        add(&a, "--shadow", setup->shadow);
    server.pid = spawn(&a, setup->store_link, &fd);
    if (server.pid < 0)
        return -errno;
    int rc = bench_child_hear(&server, fd, "listening on ");
    if (rc)
        bench_child_stop(&server);
    else
        *out = server;
    return rc;
}

/* ---- one client ---- */

struct client {
    pid_t pid;
    int fd; /* -1: it has said all */
    struct bench_delay delay;
    char *text; /* heap */
    size_t len, room;
    uint64_t began_ns, ended_ns;
};

static int start_client(const struct experiment_setup *s, const struct experiment_row *cell,
                        struct client *c)
{
    struct args a = {.count = 0};
    uint64_t port = s->port;
    bool remote = llm_mode_find(cell->mode)->remote;
    bool relayed = remote && (cell->point.rtt_ns || cell->point.bits_s);
    if (relayed) {
        struct bench_line line = {.one_way_ns = cell->point.rtt_ns / 2,
                                  .bits_s = cell->point.bits_s};
        int rc = bench_delay_start((uint16_t)port, line, &c->delay);
        if (rc)
            return rc;
        port = c->delay.port;
    }
    add(&a, "hawser", "llm");
    add(&a, "--mode", cell->mode);
    add(&a, "--phase", cell->phase);
    add(&a, "--model", s->model);
    if (s->tokenizer)
        add(&a, "--tokenizer", s->tokenizer);
    if (s->prompt_tokens)
        add_u64(&a, "--prompt_tokens", s->prompt_tokens);
    else if (s->prompt)
        add(&a, "--prompt", s->prompt);
    if (!remote && strcmp(cell->mode, "vulkan") != 0)
        add(&a, "--backend", s->backend);
    add_u64(&a, "--threads", s->threads);
    add_u64(&a, "--decode_steps", cell->point.steps);
    add_u64(&a, "--seed", s->seed);
    add(&a, "--gpu_host", relayed ? "127.0.0.1" : s->gpu_host);
    add_u64(&a, "--master_port", port);
    add(&a, "--return", s->returns);
    if (s->lossy && strcmp(cell->mode, "semantic") == 0)
        add(&a, "--lossy", NULL);
    add_u64(&a, "--tokens-per-request", s->tokens_per_request);
    char evict[ARG_CHARS];
    if (remote && cell->point.evicted) {
        snprintf(evict, sizeof evict, "%llu-%u@%llu",
                 (unsigned long long)(s->layers - cell->point.evicted), s->layers - 1,
                 (unsigned long long)experiment_evicts_at(&cell->point));
        add(&a, "--evict", evict);
    }
    add(&a, "--ignore-end", "--trace");
    c->began_ns = hw_now_ns();
    c->pid = spawn(&a, (struct bench_line){0}, &c->fd);
    if (c->pid < 0) {
        c->pid = 0;
        c->fd = -1;
        return -errno;
    }
    return 0;
}

static int take_text(struct client *c)
{
    if (c->room - c->len < 4096) {
        size_t room = c->room ? 2 * c->room : 16384;
        char *larger = room > EXPERIMENT_LINE_MAX ? NULL : realloc(c->text, room);
        if (!larger)
            return -ENOMEM;
        c->text = larger;
        c->room = room;
    }
    ssize_t n = read(c->fd, c->text + c->len, c->room - c->len - 1);
    if (n < 0 && errno == EINTR)
        return 0;
    if (n > 0)
        c->len += (size_t)n;
    else {
        close(c->fd);
        c->fd = -1;
        c->ended_ns = hw_now_ns();
    }
    c->text[c->len] = '\0';
    return 0;
}

/* Until every client has closed its output; looks at the GPUs meanwhile. */
static int collect(struct experiment_setup *s, struct client *clients, size_t count)
{
    struct pollfd p[EXPERIMENT_CLIENTS_MAX];
    for (;;) {
        size_t open = 0;
        for (size_t i = 0; i < count; i++) {
            p[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
            open += clients[i].fd >= 0;
        }
        if (!open)
            return 0;
        gpu_use_sample(&s->gpu);
        if (poll(p, (nfds_t)count, SAMPLE_MS) < 0 && errno != EINTR)
            return -errno;
        for (size_t i = 0; i < count; i++) {
            int rc = p[i].fd >= 0 && p[i].revents ? take_text(&clients[i]) : 0;
            if (rc)
                return rc;
        }
    }
}

static enum cmd_exit reap(struct client *c)
{
    int status = 0;
    if (c->pid <= 0)
        return CMD_FAILED;
    waitpid(c->pid, &status, 0);
    c->pid = 0;
    return WIFEXITED(status) ? (enum cmd_exit)WEXITSTATUS(status) : CMD_FAILED;
}

static void client_fini(struct client *c)
{
    if (c->pid > 0) { /* not waited for: something went wrong */
        kill_and_reap(c->pid);
        bench_delay_stop(&c->delay);
    }
    bench_delay_finish(&c->delay); /* its goodbye is still on the way */
    if (c->fd >= 0)
        close(c->fd);
    free(c->text);
}

/* ---- what it said ---- */

/* The rest of the last line that begins with "KEY:", in place; NULL when there is none.  Generated
 * text comes before the figures and may hold anything, so the last one counts. */
static char *value_of(char *text, const char *key)
{
    char *found = NULL;
    size_t len = strlen(key);
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ':')
            found = line + len + 1;
    }
    return found;
}

static int number_of(char *text, const char *key, double *out)
{
    char word[HW_FORMAT_CHARS];
    const char *value = value_of(text, key);
    if (!value)
        return -EPROTO;
    value += strspn(value, " ");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(value, " \n"), value);
    return hw_parse_double(word, 0, 1e18, out) ? -EPROTO : 0;
}

static int list_of(char *text, const char *key, struct experiment_list *out)
{
    char *value = value_of(text, key);
    if (!value)
        return -EPROTO;
    size_t len = strcspn(value, "\n");
    char end = value[len];
    value[len] = '\0';
    int rc = experiment_list_parse(value, out);
    value[len] = end;
    return rc;
}

static int read_figures(char *text, struct experiment_row *row)
{
    const struct {
        const char *key;
        double *to;
    } figures[] = {{"NETWORK_BYTES", &row->net_bytes},
                   {"LATENCY_S", &row->latency_s},
                   {"SERVER_SERDES_MS", &row->server_serdes_ms},
                   {"CLIENT_SERDES_MS", &row->client_serdes_ms},
                   {"RPC_TIME_MS", &row->rpc_ms},
                   {"KV_FETCHED_BYTES", &row->kv_fetched},
                   {"KV_RECOVERED_BYTES", &row->kv_recovered},
                   {"KV_COMPUTED_ROWS", &row->kv_computed},
                   {"STORE_kv_regular", &row->store_regular},
                   {"STORE_kv_delta", &row->store_delta}};
    int rc = 0;
    for (size_t i = 0; i < sizeof figures / sizeof *figures && rc == 0; i++)
        rc = number_of(text, figures[i].key, figures[i].to);
    for (int c = 0; c < LLM_CLASSES && rc == 0; c++) {
        char key[32];
        snprintf(key, sizeof key, "BYTES_%s", llm_class_name((enum llm_class)c));
        row->bytes[c] = NAN;
        if (value_of(text, key))
            rc = number_of(text, key, &row->bytes[c]);
    }
    return rc;
}

static int read_client(struct client *c, const struct experiment_row *cell,
                       struct experiment_row *row)
{
    *row = *cell;
    row->wall_s = (double)(c->ended_ns - c->began_ns) / 1e9;
    row->kernel_ms = NAN;
    int rc = c->text ? read_figures(c->text, row) : -EPROTO;
    if (rc == 0 && value_of(c->text, "SERVER_GPU_KERNEL_MS"))
        rc = number_of(c->text, "SERVER_GPU_KERNEL_MS", &row->kernel_ms);
    if (rc == 0)
        rc = list_of(c->text, "TOKENS", &row->tokens);
    if (rc == 0)
        rc = list_of(c->text, "STEP_US", &row->step_us);
    if (rc == 0)
        rc = list_of(c->text, "STEP_BYTES_UP", &row->step_up);
    if (rc == 0)
        rc = list_of(c->text, "STEP_BYTES_DOWN", &row->step_down);
    if (rc)
        experiment_row_fini(row);
    return rc;
}

/* ---- a trial ---- */

/* The GPUs of this machine tell nothing about a worker elsewhere. */
static bool is_computed_here(const struct experiment_setup *s, const struct experiment_row *cell)
{
    return s->own_server || !llm_mode_find(cell->mode)->remote;
}

static enum cmd_exit read_clients(struct client *clients, const struct experiment_setup *setup,
                                  const struct experiment_row *cell, struct experiment_row rows[])
{
    enum cmd_exit code = CMD_DONE;
    for (uint64_t i = 0; i < cell->point.clients && code == CMD_DONE; i++)
        code = reap(&clients[i]);
    if (code != CMD_DONE)
        return cmd_fail(code, "experiment: mode %s, phase %s, trial %llu failed", cell->mode,
                        cell->phase, (unsigned long long)cell->trial);
    for (uint64_t i = 0; i < cell->point.clients; i++) {
        int rc = read_client(&clients[i], cell, &rows[i]);
        if (rc) {
            while (i > 0)
                experiment_row_fini(&rows[--i]);
            return cmd_fail(CMD_FAILED, "experiment: mode %s: its figures cannot be read: %s",
                            cell->mode, strerror(-rc));
        }
        rows[i].client = i;
        rows[i].avg_sm = is_computed_here(setup, cell) ? gpu_use_mean(&setup->gpu) : NAN;
    }
    return CMD_DONE;
}

enum cmd_exit experiment_trial(struct experiment_setup *setup, const struct experiment_row *cell,
                               struct experiment_row rows[])
{
    uint64_t count = cell->point.clients;
    assert(count > 0 && count <= EXPERIMENT_CLIENTS_MAX);
    struct client *clients = calloc(count, sizeof *clients);
    if (!clients)
        return cmd_fail(CMD_FAILED, "experiment: out of memory");
    int rc = 0;
    for (uint64_t i = 0; i < count; i++)
        clients[i].fd = -1;
    gpu_use_reset(&setup->gpu);
    for (uint64_t i = 0; i < count && rc == 0; i++)
        rc = start_client(setup, cell, &clients[i]);
    if (rc == 0)
        rc = collect(setup, clients, count);
    enum cmd_exit code =
        rc ? cmd_fail(CMD_FAILED, "experiment: a run cannot be started: %s", strerror(-rc))
           : read_clients(clients, setup, cell, rows);
    for (uint64_t i = 0; i < count; i++)
        client_fini(&clients[i]);
    free(clients);
    return code;
}
