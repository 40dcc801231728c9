#include "command/llm_client.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/report/json.h"
#include "base/text/controls.h"
#include "base/wait.h"
#include "llm/chat/chat.h"
#include "rpc/resume/resume.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- connecting ---- */

static enum cmd_exit fail(const struct llm_client *c, int rc)
{
    bool refused = rc == -ENOSPC || rc == -EMSGSIZE || rc == -EBUSY;
    bool gone = rc == -ECONNRESET || rc == -ESHUTDOWN || rc == -EHOSTDOWN || rc == -ETIMEDOUT ||
                rc == -EAGAIN;
    enum cmd_exit code = refused ? CMD_REFUSED : gone ? CMD_UNREACHABLE : CMD_FAILED;
    return cmd_fail(code, "%s: %s: %s", c->command, c->address, c->why);
}

/* llama.cpp's users write it where the address belongs. */
static bool is_model_file(const char *address)
{
    static const char end[] = ".gguf";
    size_t len = strlen(address);
    return len >= strlen(end) && strcmp(address + len - strlen(end), end) == 0;
}

/* To the address, or to the first of the environment's that answers. */
static enum cmd_exit connect_first(const char *command, const struct cmd_connect_options *connect,
                                   const char *address, const struct rpc_security *security,
                                   char canonical[LLM_CLIENT_ADDRESS_CHARS],
                                   struct llm_connection **out)
{
    char parse_why[RPC_WHY_CHARS], why[LLM_WHY_CHARS] = "VENUS_SERVERS names no server";
    char buf[RPC_SERVER_CHARS], text[RPC_SERVER_CHARS];
    const char *list = address ? "" : rpc_servers_from_env(buf);
    struct rpc_net_options net = {.security = security, .timeout_ns = connect->timeout_ns};
    struct rpc_config config = {
        .security = security, .handshake_ns = connect->timeout_ns, .owner_tells = true};
    struct rpc_addr addr;
    int rc = -EDESTADDRREQ;
    if (address && is_model_file(address))
        return cmd_fail(CMD_USAGE,
                        "%s: %s is a model's file, not an address: hawser serve --model serves it, "
                        "hawser llm --model runs it here",
                        command, address);
    while (rc && (address ? rc == -EDESTADDRREQ : rpc_servers_next(&list, text))) {
        if (rpc_addr_parse(address ? address : text, &addr, parse_why))
            return cmd_fail(CMD_USAGE, "%s: %s", command, parse_why);
        config.resumes = rpc_resume_is_wanted(&addr);
        rc = llm_connection_open(&addr, &net, &config, out, why);
        if (rc && *list)
            cmd_warn("%s: %s", command, why);
    }
    if (rc)
        return cmd_fail(cmd_exit_for(rc), "%s: %s", command, why);
    if (canonical)
        rpc_addr_format(&addr, canonical, LLM_CLIENT_ADDRESS_CHARS);
    return CMD_DONE;
}

enum cmd_exit llm_client_connect(const char *command, const struct cmd_connect_options *connect,
                                 const char *address, char canonical[LLM_CLIENT_ADDRESS_CHARS],
                                 struct llm_connection **out)
{
    struct rpc_security security;
    enum cmd_exit code = cmd_load_security(connect, &security);
    if (code != CMD_DONE)
        return code;
    code = connect_first(command, connect, address, &security, canonical, out);
    rpc_security_fini(&security);
    return code;
}

static int choose_model(struct llm_client *c, const char *model, uint64_t timeout_ns)
{
    struct llm_served served;
    int rc = llm_connection_describe(c->conn, timeout_ns, &served, c->why);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < served.model_count; i++) {
        if (!model || strcmp(served.models[i].name, model) == 0) {
            c->model = served.models[i];
            return 0;
        }
    }
    return llm_why(c->why, -ENOENT, "there is no model '%s'; the first there is '%s'",
                   model ? model : "", served.model_count ? served.models[0].name : "");
}

enum cmd_exit llm_client_open(struct llm_client *c, const char *command,
                              const struct cmd_connect_options *connect, const char *address,
                              const char *model)
{
    uint64_t size;
    *c = (struct llm_client){.command = command};
    enum cmd_exit code = llm_client_connect(command, connect, address, c->address, &c->conn);
    if (code != CMD_DONE)
        return code;
    int rc = choose_model(c, model, connect->timeout_ns);
    if (rc == 0)
        rc = llm_connection_header(c->conn, c->model.name, &c->header, &size, c->why);
    if (rc == 0)
        rc = llm_file_parse_header(c->header, size, &c->file, c->why);
    if (rc == 0)
        rc = llm_vocab_create(c->file, NULL, &c->vocab, c->why);
    return rc ? fail(c, rc) : CMD_DONE;
}

void llm_client_close(struct llm_client *c)
{
    llm_connection_close(c->conn);
    llm_vocab_destroy(c->vocab);
    llm_file_close(c->file);
    free(c->header);
    *c = (struct llm_client){0};
}

enum cmd_exit llm_client_encode(const struct llm_client *c, const char *text, size_t bytes,
                                uint32_t **tokens, uint32_t *count)
{
    int32_t bos = llm_vocab_bos(c->vocab);
    int64_t n = llm_chat_encode(c->vocab, text, bytes, NULL, 0);
    uint32_t *made = n < 0 ? NULL : malloc(((size_t)n + 1) * sizeof *made);
    if (n >= 0 && !made)
        return cmd_fail(CMD_FAILED, "%s: out of memory", c->command);
    if (made)
        n = llm_chat_encode(c->vocab, text, bytes, made, (size_t)n);
    if (n == 0 && bos >= 0)
        made[n++] = (uint32_t)bos; /* of a model that adds none: it begins by itself */
    if (n > 0) {
        *tokens = made;
        *count = (uint32_t)n;
        return CMD_DONE;
    }
    free(made);
    if (n < 0)
        return cmd_fail(CMD_FAILED, "%s: the prompt: %s", c->command, strerror((int)-n));
    return cmd_fail(CMD_USAGE, "%s: an empty prompt, and this model has no first token",
                    c->command);
}

/* ---- a text ---- */

struct output {
    const struct llm_client *client;
    const struct llm_client_text *text;
    struct llm_client_figures *figures;
    bool is_terminal, begun, thought; /* thought: reasoning was the last that was shown */
    char shown;                       /* the last byte */
    char *held;                       /* may begin a stop string */
    size_t held_len, held_room;
    uint64_t began_ns, id;
    int status;
    bool over;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

void cmd_put_generated(FILE *out, bool is_terminal, char *before, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = bytes[i];
        bool drives = c != '\n' && c != '\t' && hw_ends_control(*before, c);
        fputc(is_terminal && drives ? '?' : c, out);
        *before = c;
    }
}

static void show(struct output *o, const char *bytes, size_t len)
{
    if (o->text->out)
        cmd_put_generated(o->text->out, o->is_terminal, &o->shown, bytes, len);
}

static int put_part(void *user, bool reasoning, const char *bytes, size_t len)
{
    struct output *o = user;
    struct llm_client_figures *f = o->figures;
    if (reasoning && o->is_terminal) {
        fputs("\033[2m", o->text->out);
        show(o, bytes, len);
        fputs("\033[0m", o->text->out);
        o->thought = true;
    }
    char *larger = reasoning ? NULL : realloc(f->text, f->text_len + len + 1);
    if (larger) {
        f->text = larger;
        memcpy(f->text + f->text_len, bytes, len);
        f->text_len += len;
        f->text[f->text_len] = '\0';
    }
    if (!reasoning && o->thought)
        fputs("\n\n", o->text->out);
    o->thought = o->thought && reasoning;
    if (!reasoning)
        show(o, bytes, len);
    return 0;
}

static void put(struct output *o, const char *bytes, size_t len, bool last)
{
    if (!o->text->answer && len)
        (void)put_part(o, false, bytes, len);
    if (o->text->answer && llm_answer_feed(o->text->answer, bytes, len, last, put_part, o))
        return; /* memory is short everywhere */
}

/* Where a stop string begins in what is held; held_len: nowhere. */
static size_t find_stop(const struct output *o)
{
    const struct cmd_list *stops = o->text->stops;
    size_t first = o->held_len;
    for (size_t i = 0; stops && i < stops->count; i++) {
        size_t len = strlen(stops->items[i]);
        const char *at = len ? memmem(o->held, o->held_len, stops->items[i], len) : NULL;
        if (at && (size_t)(at - o->held) < first)
            first = (size_t)(at - o->held);
    }
    return first;
}

/* How many bytes at the end may begin a stop string. */
static size_t count_doubtful(const struct output *o)
{
    const struct cmd_list *stops = o->text->stops;
    size_t most = 0;
    for (size_t i = 0; stops && i < stops->count; i++) {
        size_t len = strlen(stops->items[i]);
        size_t n = len > 0 ? len - 1 : 0;
        n = n < o->held_len ? n : o->held_len;
        while (n > most && memcmp(o->held + o->held_len - n, stops->items[i], n) != 0)
            n--;
        most = n > most ? n : most;
    }
    return most;
}

static void take(struct output *o, const char *bytes, size_t len)
{
    if (o->figures->stopped)
        return;
    if (!hw_grow(&o->held, &o->held_room, o->held_len + len, 1))
        return; /* a text without a piece: memory is short everywhere */
    memcpy(o->held + o->held_len, bytes, len);
    o->held_len += len;
    size_t stop = find_stop(o);
    o->figures->stopped = stop < o->held_len;
    size_t shown = o->figures->stopped ? stop : o->held_len - count_doubtful(o);
    put(o, o->held, shown, false);
    memmove(o->held, o->held + shown, o->held_len - shown);
    o->held_len -= shown;
}

static void on_tokens(void *user, const struct llm_generated *tokens, uint32_t count)
{
    struct output *o = user;
    if (!o->figures->first_ns) {
        o->figures->first_ns = hw_now_ns() - o->began_ns;
        o->figures->first_count = count;
        if (o->text->before && o->text->out)
            fputs(o->text->before, o->text->out);
    }
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes;
        const char *piece = llm_vocab_piece(o->client->vocab, tokens[i].token,
                                            o->text->begins && !o->begun, &bytes);
        if (bytes == 0 && o->text->answer)
            piece = llm_answer_piece(o->text->answer, o->client->vocab, tokens[i].token, &bytes);
        o->begun |= bytes > 0;
        take(o, piece, bytes);
    }
    bool lost = o->text->out && (fflush(o->text->out) || ferror(o->text->out));
    pthread_mutex_lock(&o->lock);
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->lock);
    if (o->figures->stopped || lost)
        llm_connection_cancel(o->client->conn, o->id);
}

static void on_end(void *user, int status, const struct llm_generate_end *end, const char *why)
{
    struct output *o = user;
    put(o, o->held, o->figures->stopped ? 0 : o->held_len, true);
    pthread_mutex_lock(&o->lock);
    o->figures->total_ns = hw_now_ns() - o->began_ns;
    o->status = status;
    if (end)
        o->figures->end = *end;
    snprintf((char *)(uintptr_t)o->client->why, LLM_WHY_CHARS, "%s", why);
    o->over = true;
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

/* A signal wakes no thread, so it is looked for some twenty times a second. */
static void wait_end(struct output *o)
{
    bool cancelled = false;
    pthread_mutex_lock(&o->lock);
    while (!o->over) {
        (void)hw_cond_wait(&o->changed, &o->lock, hw_after(50 * HW_MS));
        bool cancels = o->text->interrupted && *o->text->interrupted && !cancelled && !o->over;
        if (!cancels)
            continue;
        cancelled = o->figures->interrupted = true;
        pthread_mutex_unlock(&o->lock);
        llm_connection_cancel(o->client->conn, o->id);
        pthread_mutex_lock(&o->lock);
    }
    pthread_mutex_unlock(&o->lock);
}

enum cmd_exit llm_client_generate(struct llm_client *c, const struct llm_client_text *text,
                                  struct llm_client_figures *figures)
{
    static const struct llm_connection_ops ops = {on_tokens, on_end};
    struct llm_generate g = {.model = c->model.name,
                             .tokens = text->tokens,
                             .token_count = text->token_count,
                             .most = text->most,
                             .sampling = text->sampling,
                             .stop_at_end = !text->ignore_end,
                             .stays = true};
    struct output o = {.client = c,
                       .text = text,
                       .figures = figures,
                       .is_terminal = text->out && isatty(fileno(text->out)),
                       .began_ns = hw_now_ns(),
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .changed = PTHREAD_COND_INITIALIZER};
    struct llm_connection_traffic before, after;
    *figures = (struct llm_client_figures){0};
    llm_connection_traffic(c->conn, &before);
    int rc = llm_connection_start(c->conn, &g, &ops, &o, &o.id, c->why);
    if (rc == 0) {
        wait_end(&o);
        rc = o.status;
    }
    llm_connection_traffic(c->conn, &after);
    figures->sent = after.sent - before.sent;
    figures->received = after.received - before.received;
    free(o.held);
    if (rc && figures->text_len && text->out)
        fputc('\n', text->out);
    return rc ? fail(c, rc) : CMD_DONE;
}

void llm_client_figures_fini(struct llm_client_figures *f)
{
    free(f->text);
    f->text = NULL;
}

/* ---- figures ---- */

static const char *reason_of(const struct llm_client_figures *f)
{
    static const char *const reasons[] = {"",        "end of text", "length",    "cancelled",
                                          "drained", "embedded",    "incomplete"};
    return f->stopped ? "stop string" : f->interrupted ? "interrupted" : reasons[f->end.reason];
}

/* Messages may come some milliseconds late and then together: in less time than this a rate would
 * tell of that. */
#define RATE_NS_MIN (100 * HW_MS)

/* Of the tokens that came after the first message; NaN: none did, or in too short a time. */
static double rate(const struct llm_client_figures *f)
{
    uint64_t ns = f->total_ns - f->first_ns;
    return f->end.generated > f->first_count && ns >= RATE_NS_MIN
               ? (f->end.generated - f->first_count) * 1e9 / (double)ns
               : NAN;
}

static void print_json(const struct llm_client *c, const struct llm_client_figures *f, FILE *out)
{
    struct hw_json j;
    hw_json_begin(&j, out);
    hw_json_object_begin(&j);
    hw_json_put_string(&j, "server", c->address);
    hw_json_put_string(&j, "model", c->model.name);
    hw_json_put_u64(&j, "prompt_tokens", f->end.prompt);
    hw_json_put_u64(&j, "shared_tokens", f->end.shared);
    hw_json_put_u64(&j, "generated_tokens", f->end.generated);
    hw_json_put_string(&j, "ended_by", reason_of(f));
    hw_json_put_double(&j, "first_token_ms", (double)f->first_ns / 1e6);
    hw_json_put_double(&j, "total_ms", (double)f->total_ns / 1e6);
    hw_json_put_double(&j, "tokens_per_second", rate(f));
    hw_json_put_u64(&j, "bytes_sent", f->sent);
    hw_json_put_u64(&j, "bytes_received", f->received);
    hw_json_object_end(&j);
    if (hw_json_finish(&j))
        cmd_warn("%s: the figures cannot be written", c->command);
}

void llm_client_print_figures(const struct llm_client *c, const struct llm_client_figures *f,
                              bool json, FILE *out)
{
    if (json) {
        print_json(c, f, out);
        return;
    }
    fprintf(out, "prompt     %u tokens, %u of them shared\n", f->end.prompt, f->end.shared);
    fprintf(out, "generated  %u tokens", f->end.generated);
    if (!isnan(rate(f)))
        fprintf(out, ", %.1f a second", rate(f));
    fprintf(out, "; ended by: %s\n", reason_of(f));
    fprintf(out, "time       %.1f ms to the first token, %.1f ms in all\n",
            (double)f->first_ns / 1e6, (double)f->total_ns / 1e6);
    fprintf(out, "network    %llu bytes sent, %llu received\n", (unsigned long long)f->sent,
            (unsigned long long)f->received);
}
