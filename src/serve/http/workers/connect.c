/* One thread for each worker: connects, asks what it serves and how it is every second, and
 * connects again when it is lost.  A worker that does not answer hangs: its connection is closed,
 * which ends its texts, and they go on elsewhere.  A worker that is this process is only slow: a
 * busy machine starves it, and nobody else would go on. */
#include "base/wait.h"
#include "rpc/patience.h"
#include "serve/http/impl.h"

#include "base/log.h"
#include "base/units.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under the lock: sleeps for so long, or until the worker is to be looked at or the front stops. */
static void pause_for(struct http_worker *w, uint64_t ns)
{
    uint64_t until = hw_after(ns);
    while (!w->front->stopping && !http_worker_is_doubted(w) &&
           hw_cond_wait(&w->wake, &w->front->lock, until))
        ;
}

/* Under the lock. */
static void set_tried(struct http_worker *w)
{
    w->tried = true;
    pthread_cond_broadcast(&w->front->tried);
}

/* Learns the models of a description.  Without the lock. */
static int take_models(struct http_worker *w, struct llm_connection *conn,
                       const struct llm_served *served, struct http_model **models, char *why)
{
    if (served->model_count == 0) {
        snprintf(why, LLM_WHY_CHARS, "it serves no model; start it with --model FILE");
        return -ENOENT;
    }
    for (uint32_t i = 0; i < served->model_count; i++) {
        models[i] = http_model_get(w->front, conn, &served->models[i], why);
        if (!models[i])
            return -EPROTO;
    }
    return 0;
}

/* Under the lock.  A process under two names would get the texts of two workers, and when it is
 * lost, so are both.  The second name is tried again, and is of use once the first one is down. */
static int refuse_double(const struct http_worker *w, uint64_t incarnation, char *why)
{
    const struct http_front *f = w->front;
    for (size_t i = 0; w->state != HTTP_WORKER_UP && i < f->worker_count; i++) {
        if (f->workers[i].state != HTTP_WORKER_UP ||
            f->workers[i].served.incarnation != incarnation)
            continue;
        snprintf(why, LLM_WHY_CHARS, "it is the same process as worker %.180s", f->workers[i].name);
        return -EEXIST;
    }
    return 0;
}

static int look(struct http_worker *w, struct llm_connection *conn, char *why)
{
    struct llm_served served;
    char limit[HW_FORMAT_CHARS];
    struct http_model *models[LLM_SERVED_MODELS_MAX] = {NULL};
    http_lock(w->front);
    uint64_t doubts = w->doubts; /* a text that is lost from now on needs another look */
    uint64_t tells = w->tells;   /* what a text's end tells from now on is newer than the answer */
    http_unlock(w->front);
    int rc = llm_connection_describe(conn, HTTP_HANG_NS, &served, why);
    if (rc == -ETIMEDOUT)
        snprintf(why, LLM_WHY_CHARS, "it did not answer for %s: it hangs",
                 hw_format_duration(limit, HTTP_HANG_NS));
    if (rc == 0 && served.step_ns > HTTP_STEP_NS) {
        snprintf(why, LLM_WHY_CHARS, "its step takes more than %s: its device hangs",
                 hw_format_duration(limit, HTTP_STEP_NS));
        rc = -ETIMEDOUT;
    }
    if (rc == 0)
        rc = take_models(w, conn, &served, models, why);
    if (rc)
        return rc;
    http_lock(w->front);
    rc = refuse_double(w, served.incarnation, why);
    if (rc) {
        http_unlock(w->front);
        return rc;
    }
    uint32_t told = served.running + served.waiting;
    w->others = told > w->texts ? told - w->texts : 0;
    if (w->tells == tells)
        w->busy_until = 0;
    else
        served.draining |= w->served.draining;
    w->served = served;
    memcpy(w->models, models, sizeof(w->models));
    w->looked = doubts;
    if (w->state != HTTP_WORKER_UP) {
        w->up_ns = hw_now_ns();
        hw_info(HW_CAT_NET, "worker %s is up", w->name);
    }
    w->state = HTTP_WORKER_UP;
    w->conn = conn;
    w->why[0] = '\0';
    set_tried(w);
    http_do_soon(w->front, &w->front->assign);
    http_unlock(w->front);
    return 0;
}

/* Where its KV is, while somebody looks at it.  A worker in a long step is not waited for. */
static void inspect(struct http_worker *w, struct llm_connection *conn)
{
    struct http_front *f = w->front;
    char why[LLM_WHY_CHARS];
    http_lock(f);
    bool watched = f->watched_ns && hw_now_ns() - f->watched_ns < HTTP_WATCH_NS;
    http_unlock(f);
    struct llm_inspection *new = watched ? malloc(sizeof *new) : NULL;
    if (!new || llm_connection_inspect(conn, HTTP_INSPECT_NS, new, why)) {
        free(new); /* the last one is still the newest */
        return;
    }
    /* Room for the most models is half a megabyte. */
    struct llm_inspection *small =
        realloc(new, offsetof(struct llm_inspection, maps) + new->map_count * sizeof new->maps[0]);
    new = small ? small : new;
    http_lock(f);
    struct llm_inspection *old = w->inspection;
    w->inspection = new;
    http_unlock(f);
    free(old);
}

/* Takes the connection away from everybody and closes it. */
static void lose(struct http_worker *w, struct llm_connection *conn, bool hangs, const char *why)
{
    struct http_front *f = w->front;
    http_lock(f);
    if (w->state == HTTP_WORKER_UP && !f->stopping) {
        w->losses++;
        w->cuts += !hangs;
        hw_warn(HW_CAT_NET, "worker %s is lost: %s", w->name, why);
    }
    w->state = HTTP_WORKER_DOWN;
    w->conn = NULL;
    snprintf(w->why, sizeof(w->why), "%s", why);
    while (w->users > 0)
        pthread_cond_wait(&w->unused, &f->lock);
    http_unlock(f);
    llm_connection_close(conn); /* its texts end, and go on elsewhere */
}

/* From a connection to its end.  Whether it was up. */
static bool attend(struct http_worker *w, struct llm_connection *conn, char *why)
{
    struct http_front *f = w->front;
    bool stopping = false, was_up = false;
    int rc = 0;
    while (!stopping &&
           ((rc = look(w, conn, why)) == 0 || (rc == -ETIMEDOUT && f->config.options.alone))) {
        was_up = true;
        inspect(w, conn);
        http_lock(f);
        pause_for(w, w->served.incomplete ? HTTP_RETRY_MIN_NS : HTTP_DESCRIBE_NS);
        stopping = f->stopping;
        http_unlock(f);
    }
    lose(w, conn, rc == -ETIMEDOUT, stopping ? "the gateway stops" : why);
    return was_up;
}

static void *worker_main(void *user)
{
    struct http_worker *w = user;
    struct http_front *f = w->front;
    uint64_t retry_ns = HTTP_RETRY_MIN_NS;
    struct rpc_patience patience = RPC_PATIENCE;
    struct rpc_net_options net = {.security = f->config.options.security,
                                  .timeout_ns = f->config.options.connect_ns};
    struct rpc_config config = {.security = f->config.options.security,
                                .name = "hawser http",
                                .tolerates_silence = f->config.options.alone};
    http_lock(f);
    while (!f->stopping) {
        char why[LLM_WHY_CHARS] = "";
        struct llm_connection *conn;
        if (w->left) {
            pause_for(w, HTTP_DESCRIBE_NS);
            continue;
        }
        struct rpc_addr addr = w->addr;
        config.handshake_ns = patience.units * HTTP_HANDSHAKE_NS;
        http_unlock(f);
        bool was_up =
            llm_connection_open(&addr, &net, &config, &conn, why) == 0 && attend(w, conn, why);
        http_lock(f);
        snprintf(w->why, sizeof(w->why), "%s", why);
        w->looked = w->doubts;
        if (!w->tried && !f->stopping)
            hw_warn(HW_CAT_NET, "worker %s cannot be used: %s", w->name, why);
        set_tried(w);
        retry_ns = was_up ? HTTP_RETRY_MIN_NS : 2 * retry_ns;
        if (was_up)
            patience = RPC_PATIENCE;
        else
            rpc_patience_next(&patience);
        if (retry_ns > HTTP_RETRY_MAX_NS)
            retry_ns = HTTP_RETRY_MAX_NS;
        pause_for(w, retry_ns);
    }
    http_unlock(f);
    return NULL;
}

int http_worker_start(struct http_worker *w)
{
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->unused, NULL);
    return -pthread_create(&w->thread, NULL, worker_main, w);
}

void http_worker_stop(struct http_worker *w)
{
    pthread_mutex_lock(&w->front->lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->front->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->unused);
    pthread_cond_destroy(&w->wake);
    free(w->inspection);
}
