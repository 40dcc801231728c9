#include "llm/stage/link.h"

#include "base/clock.h"
#include "base/log.h"
#include "llm/client/remote.h"
#include "llm/tp/command.h"
#include "rpc/resume/resume.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A server that was started again has read its weights within that, else texts under way fail. */
#define AWAY_NS (UINT64_C(10) * HW_SEC)

/* ---- connections ---- */

void llm_links_init(struct llm_links *links, const char *knob, uint64_t timeout_s, uint64_t away_ns,
                    const struct rpc_security *security, const struct llm_file *file)
{
    *links = (struct llm_links){.knob = knob,
                                .timeout_ns = timeout_s * HW_SEC,
                                .away_ns = away_ns ? away_ns : AWAY_NS,
                                .security = security};
    wire_enc_init(&links->enc, LLM_STAGE_HEAD_BYTES);
    llm_tp_hash(file, &links->size, links->hash);
}

void llm_links_fini(struct llm_links *links)
{
    llm_links_end_kv(links);
    for (uint32_t i = 0; i < links->count; i++) {
        for (uint32_t p = 0; p < LLM_LINK_PARTS; p++)
            free(links->items[i].parts[p].data);
    }
    wire_enc_fini(&links->enc);
}

static void add_traffic(const struct llm_remote *remote, uint64_t *sent, uint64_t *received)
{
    const struct rpc_stats *stats = llm_remote_stats(remote);
    *sent += stats->bytes_sent;
    *received += stats->bytes_received;
}

void llm_links_traffic(const struct llm_links *links, const struct llm_backend_ops *own,
                       uint64_t *sent, uint64_t *received)
{
    *sent = *received = 0;
    if (own->traffic)
        own->traffic(links->backend, sent, received);
    if (links->reaches)
        return;
    *sent += links->sent;
    *received += links->received;
    for (uint32_t i = 0; i < links->count; i++) {
        if (links->items[i].remote)
            add_traffic(links->items[i].remote, sent, received);
    }
}

static void disconnect(struct llm_links *links, struct llm_link *link)
{
    if (link->remote)
        add_traffic(link->remote, &links->sent, &links->received);
    llm_remote_close(link->remote);
    link->remote = NULL;
    link->is_open = false;
}

void llm_links_disconnect(struct llm_links *links)
{
    for (uint32_t i = 0; i < links->count; i++)
        disconnect(links, &links->items[i]);
}

/* Under the client's lock, in any thread. */
static void on_push(void *user, const struct rpc_msg *push)
{
    struct llm_link *link = user;
    struct llm_link_part *part = &link->parts[(link->first + link->count) % LLM_LINK_PARTS];
    if (push->method != LLM_STAGE_GATHER || link->count == LLM_LINK_PARTS) {
        link->is_broken = true;
        return;
    }
    if (push->len > part->room) {
        free(part->data);
        part->data = malloc(push->len);
        part->room = part->data ? push->len : 0;
        link->is_broken |= !part->data;
    }
    part->len = part->data ? push->len : 0;
    if (part->len)
        memcpy(part->data, push->data, push->len);
    link->count++;
}

int llm_link_connect(struct llm_links *links, struct llm_link *link, char *why)
{
    struct rpc_net_options net = {.security = links->security};
    struct rpc_client_options options = {
        .config = {.security = links->security,
                   .name = "hawser front",
                   .resumes = rpc_resume_is_wanted(&link->addr),
                   .resumes_ns = RPC_RESUME_TOLD_NS}, /* what needs no stage waits, too */
        .on_push = on_push,
        .push_user = link};
    char cause[LLM_WHY_CHARS] = "";
    link->first = link->count = 0;
    link->is_broken = false;
    link->step_ended = true;
    int rc = llm_remote_open(&link->addr, &net, &options, links->timeout_ns, &link->remote, cause);
    return rc ? llm_why(why, rc, "%.88s: %.160s", link->name, cause) : 0;
}

int llm_link_lose(struct llm_links *links, struct llm_link *link, const char *cause, char *why)
{
    char text[LLM_WHY_CHARS];
    llm_why_set(text, "%.88s is lost: %.150s", link->name, cause);
    disconnect(links, link);
    if (!links->reaches) { /* else it has no KV of ours yet */
        hw_warn(HW_CAT_LLM, "%s; texts under way are computed again when it answers", text);
        links->backend->kv_lost = true;
        links->lost_ns = hw_now_ns();
    }
    return llm_why(why, -EOWNERDEAD, "%s", text);
}

static int lose_silent(struct llm_links *links, struct llm_link *link, char *why)
{
    char cause[LLM_WHY_CHARS];
    llm_why_set(cause, "no answer within %llu s (%s)",
                (unsigned long long)(links->timeout_ns / HW_SEC), links->knob);
    return llm_link_lose(links, link, cause, why);
}

/* ---- calls ---- */

int llm_link_call(struct llm_links *links, struct llm_link *link, uint32_t method,
                  const struct iovec *rest, struct wire_dec *answer, char *why)
{
    struct iovec iov[2] = {{.iov_base = (void *)(uintptr_t)wire_enc_data(&links->enc),
                            .iov_len = wire_enc_len(&links->enc)}};
    char cause[LLM_WHY_CHARS] = "";
    int rc = wire_enc_error(&links->enc);
    if (rc)
        return llm_why(why, rc, "%.88s: the step is too large for a message", link->name);
    if (rest)
        iov[1] = *rest;
    rc = llm_remote_exchange(link->remote, method, iov, rest ? 2 : 1, answer, cause);
    if (rc == 0)
        return 0;
    if (rc == -ETIMEDOUT)
        return lose_silent(links, link, why);
    if (llm_remote_status(link->remote))
        return llm_link_lose(links, link, cause, why);
    return llm_why(why, rc, "%.88s: %.160s", link->name, cause);
}

int llm_link_send_slabs(struct llm_links *links, struct llm_link *link, uint32_t method,
                        const uint32_t *slabs, size_t count, char *why)
{
    struct wire_dec answer;
    wire_enc_reset(&links->enc);
    llm_stage_slabs_put(&links->enc, slabs, count);
    return llm_link_call(links, link, method, NULL, &answer, why);
}

int llm_link_map_again(struct llm_links *links, struct llm_link *link, uint32_t first, uint32_t end,
                       char *why)
{
    uint32_t ids[PAGE_BATCH_MAX];
    int rc = 0;
    for (uint32_t slab = first; slab < end && rc == 0;) {
        size_t count = 0;
        for (; slab < end && count < PAGE_BATCH_MAX; slab++) {
            if (links->mapped[slab])
                ids[count++] = slab;
        }
        if (count)
            rc = llm_link_send_slabs(links, link, LLM_STAGE_MAP, ids, count, why);
    }
    return rc;
}

int llm_link_check_opened(const struct llm_links *links, const struct llm_link *link,
                          struct wire_dec *answer, uint64_t *slab_bytes, char *why)
{
    char there[LLM_ARITHMETIC_CHARS], here[LLM_ARITHMETIC_CHARS];
    wire_get_str_copy(answer, there, sizeof there);
    *slab_bytes = wire_get_u64(answer);
    if (wire_dec_end(answer))
        return llm_why(why, -EPROTO, "%.88s: a malformed answer", link->name);
    llm_backend_arithmetic(links->backend, here);
    if (strcmp(there, here) != 0)
        return llm_why(why, -EXDEV,
                       "%.68s computes with '%.50s', this server with '%.50s': start both with one "
                       "--backend and version",
                       link->name, there, here);
    return 0;
}

int llm_link_read_rows(struct llm_links *links, struct llm_link *link,
                       const struct llm_kv_rows *rows, struct iovec to, char *why)
{
    struct wire_dec answer;
    wire_enc_reset(&links->enc);
    llm_stage_rows_put(&links->enc, rows);
    int rc = llm_link_call(links, link, LLM_STAGE_READ, NULL, &answer, why);
    if (rc)
        return rc;
    wire_get_copy(&answer, to.iov_base, to.iov_len);
    return wire_dec_end(&answer) ? llm_link_lose(links, link, "a malformed answer", why) : 0;
}

int llm_link_write_rows(struct llm_links *links, struct llm_link *link,
                        const struct llm_kv_rows *rows, struct iovec from, char *why)
{
    struct wire_dec answer;
    wire_enc_reset(&links->enc);
    llm_stage_rows_put(&links->enc, rows);
    return llm_link_call(links, link, LLM_STAGE_WRITE, &from, &answer, why);
}

/* ---- reaching lost servers ---- */

static void *reach_main(void *user)
{
    struct llm_links *links = user;
    links->reach_rc = links->reach(links->reach_user, links->reach_why);
    atomic_store_explicit(&links->has_ended, true, memory_order_release);
    return NULL;
}

static void end_attempt(struct llm_links *links)
{
    int rc = links->is_stale && links->reach_rc == 0 ? -EAGAIN : links->reach_rc;
    uint64_t now = hw_now_ns();
    bool may_come = rc != -ESTALE && rc != -EXDEV && rc != -ENOSYS && rc != -EACCES;
    bool waits = may_come && now - links->lost_ns < links->away_ns;
    links->failed = rc == 0 ? 0 : waits || rc == -EAGAIN ? -EAGAIN : rc == -EOWNERDEAD ? -EIO : rc;
    links->again_ns = rc ? now + LLM_LINK_LOOK_MS * HW_MS : 0;
    if (rc) {
        llm_why_set(links->failed_why, "%s", links->reach_why);
        for (uint32_t i = 0; i < links->count; i++) {
            if (links->is_stale || !links->items[i].is_open)
                disconnect(links, &links->items[i]);
        }
    }
}

/* Waits for the attempt under way. */
static void reach_end(struct llm_links *links)
{
    if (!links->reaches)
        return;
    pthread_join(links->thread, NULL);
    links->reaches = false;
    end_attempt(links);
}

int llm_links_reach(struct llm_links *links, char *why)
{
    if (links->reaches && !atomic_load_explicit(&links->has_ended, memory_order_acquire))
        return llm_why(why, -EAGAIN, "servers that were lost are asked again");
    if (links->reaches) {
        reach_end(links);
        return links->failed ? llm_why(why, links->failed, "%s", links->failed_why) : 0;
    }
    if (hw_now_ns() < links->again_ns)
        return llm_why(why, links->failed, "%s", links->failed_why);
    links->has_ended = links->is_stale = false;
    links->reaches = true;
    int rc = -pthread_create(&links->thread, NULL, reach_main, links);
    if (rc) {
        links->reaches = false;
        return llm_why(why, rc, "no thread to reach servers: %s", strerror(-rc));
    }
    return llm_why(why, -EAGAIN, "servers that were lost are asked again");
}

/* ---- the KV memory of all servers ---- */

int llm_links_begin_kv(struct llm_links *links, uint32_t slabs)
{
    assert(!links->mapped);
    links->mapped = calloc(slabs, sizeof *links->mapped);
    return links->mapped ? 0 : -ENOMEM;
}

void llm_links_end_kv(struct llm_links *links)
{
    reach_end(links);
    llm_links_disconnect(links);
    free((void *)links->mapped);
    links->mapped = NULL;
}

void llm_links_note_mapped(struct llm_links *links, const uint32_t *slabs, size_t count,
                           bool is_mapped)
{
    for (size_t i = 0; i < count; i++)
        atomic_store_explicit(&links->mapped[slabs[i]], is_mapped, memory_order_relaxed);
    links->is_stale = true;
}

/* ---- steps that are computed together ---- */

/* Under the client's lock. */
static void on_step_end(void *user, int status, const struct rpc_msg *reply)
{
    struct llm_link *link = user;
    link->step_ended = true;
    link->step_status = status;
    snprintf(link->step_text, sizeof link->step_text, "%.*s", reply && status ? (int)reply->len : 0,
             reply ? (const char *)reply->data : "");
}

/* What ended a wait or a send: the server is lost, or says why it cannot go on. */
static int explain(struct llm_links *links, struct llm_link *link, int rc, char *why)
{
    struct rpc_client *client = llm_remote_client(link->remote);
    char cause[RPC_WHY_CHARS] = "a malformed answer";
    if (rc == -ETIMEDOUT)
        return lose_silent(links, link, why);
    if (rpc_client_status(client))
        rpc_client_reason(client, cause);
    else if (link->step_ended && link->step_status)
        return llm_why(why, link->step_status, "%.88s: %s", link->name,
                       *link->step_text ? link->step_text : strerror(-link->step_status));
    return llm_link_lose(links, link, cause, why);
}

int llm_link_begin_step(struct llm_links *links, struct llm_link *link, char *why)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)wire_enc_data(&links->enc),
                        .iov_len = wire_enc_len(&links->enc)};
    /* Each part has a time limit, and not the step. */
    struct rpc_send send = {
        .method = LLM_STAGE_STEP, .iov = &iov, .iov_count = 1, .timeout_ns = HW_NEVER};
    struct rpc_client *client = llm_remote_client(link->remote);
    assert(link->step_ended);
    if (link->count > 0 || link->is_broken)
        return llm_link_lose(links, link, "it pushed what nobody asked for", why);
    int rc = wire_enc_error(&links->enc);
    if (rc)
        return llm_why(why, rc, "%.88s: the step is too large for a message", link->name);
    link->step_ended = false;
    link->step_status = 0;
    rc = rpc_client_call_async(client, &send, on_step_end, link);
    if (rc == 0)
        rc = rpc_client_flush(client);
    else
        link->step_ended = true;
    return rc ? explain(links, link, rc, why) : 0;
}

int llm_link_send_part(struct llm_links *links, struct llm_link *link, const struct iovec *iov,
                       int count, char *why)
{
    struct rpc_send send = {.method = LLM_STAGE_GATHER,
                            .iov = iov,
                            .iov_count = count,
                            .timeout_ns = links->timeout_ns};
    struct rpc_client *client = llm_remote_client(link->remote);
    int rc = rpc_client_post(client, &send);
    if (rc == 0)
        rc = rpc_client_flush(client);
    return rc ? explain(links, link, rc, why) : 0;
}

struct awaited {
    struct llm_link *link;
    void *to;
    size_t bytes;
    bool has_come;
};

/* Under the client's lock: takes the part as well. */
static bool part_came(void *user)
{
    struct awaited *a = user;
    struct llm_link *link = a->link;
    const struct llm_link_part *part = &link->parts[link->first];
    if (a->has_come || link->is_broken || (link->count == 0 && link->step_ended))
        return true;
    if (link->count == 0)
        return false;
    if (part->len != a->bytes) {
        link->is_broken = true;
        return true;
    }
    if (part->len)
        memcpy(a->to, part->data, part->len);
    link->first = (link->first + 1) % LLM_LINK_PARTS;
    link->count--;
    a->has_come = true;
    return true;
}

int llm_link_take_part(struct llm_links *links, struct llm_link *link, void *to, size_t bytes,
                       char *why)
{
    struct awaited a = {.link = link, .to = to, .bytes = bytes};
    int rc = rpc_client_wait(llm_remote_client(link->remote), part_came, &a, links->timeout_ns);
    return a.has_come ? 0 : explain(links, link, rc ? rc : -EPROTO, why);
}

static bool has_ended(void *user)
{
    return ((struct llm_link *)user)->step_ended;
}

int llm_link_end_step(struct llm_links *links, struct llm_link *link, char *why)
{
    int rc = rpc_client_wait(llm_remote_client(link->remote), has_ended, link, links->timeout_ns);
    if (rc == 0)
        rc = link->step_status;
    if (rc == 0 && (link->count > 0 || link->is_broken))
        rc = -EPROTO;
    return rc ? explain(links, link, rc, why) : 0;
}
