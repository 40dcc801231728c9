#include "command/llm_run.h"

#include "base/clock.h"
#include "base/report/json.h"
#include "base/report/output.h"
#include "base/rng.h"
#include "base/units.h"
#include "command/llm_client.h"
#include "rpc/resume/resume.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const llm_run_modes[] = {"local",
                                     "naive",
                                     "remote_cache",
                                     "remote_cache_compressed",
                                     "remote_cache_delta_raw",
                                     "remote_cache_delta_compressed",
                                     "remote_cache_recompute",
                                     "sys_simulated",
                                     "semantic",
                                     "vulkan",
                                     NULL};
const char *const llm_run_phases[] = {"decode", "prefill", NULL};
const char *const llm_run_backends[] = {"cpu", "reference", "vulkan", NULL};

static const struct llm_mode_kind *mode_of(const struct llm_run_options *o)
{
    return llm_mode_find(llm_run_modes[o->mode]);
}

/* ---- options that need more than the table ---- */

enum cmd_exit llm_run_sampling(const struct llm_run_options *o, struct llm_sampling *out)
{
    *out = (struct llm_sampling){.top_k = (uint32_t)o->top_k, .top_p = 1, .seed = o->seed};
    enum cmd_exit code =
        cmd_read_number("llm", "--temperature", o->temperature, 0, 100, &out->temperature);
    if (code == CMD_DONE)
        code = cmd_read_number("llm", "--top-p", o->top_p, 0, 1, &out->top_p);
    if (code == CMD_DONE)
        code = cmd_read_number("llm", "--min-p", o->min_p, 0, 1, &out->min_p);
    if (code == CMD_DONE)
        code = cmd_read_number("llm", "--presence-penalty", o->presence, -2, 2, &out->presence);
    if (code == CMD_DONE)
        code = cmd_read_number("llm", "--frequency-penalty", o->frequency, -2, 2, &out->frequency);
    if (code == CMD_DONE)
        code =
            cmd_read_number("llm", "--repetition-penalty", o->repetition, 0, 10, &out->repetition);
    return code;
}

static enum cmd_exit read_wish(const struct llm_run_options *o, struct llm_wish *out)
{
    uint64_t k;
    *out = (struct llm_wish){.kind = LLM_WISH_TOKENS, .lossy = o->lossy};
    if (strcmp(o->returns, "logits") == 0) {
        out->kind = LLM_WISH_LOGITS;
    } else if (strncmp(o->returns, "topk:", 5) == 0 &&
               hw_parse_u64(o->returns + 5, 1, LLM_TOP_K_MAX, &k) == 0) {
        out->kind = LLM_WISH_TOP_K;
        out->top_k = (uint32_t)k;
    } else if (strcmp(o->returns, "tokens") != 0) {
        return cmd_fail(CMD_USAGE,
                        "llm: --return: '%s' is not tokens, topk:K with K from 1 to %d, or logits",
                        o->returns, LLM_TOP_K_MAX);
    }
    if (o->lossy && out->kind != LLM_WISH_LOGITS)
        return cmd_fail(CMD_USAGE, "llm: --lossy goes with --return logits");
    return CMD_DONE;
}

/* ---- opening ---- */

/* A host that brings its port, "gpu1:29501" or "[::1]:29501", is an address already; more than one
 * colon without brackets is an IPv6 address, unless it is one with a scheme. */
void llm_run_address(const struct llm_run_options *o, char out[LLM_RUN_ADDRESS_CHARS])
{
    const char *host = o->gpu_host ? o->gpu_host : "127.0.0.1", *colon = strrchr(host, ':');
    char why[RPC_WHY_CHARS];
    struct rpc_addr addr;
    bool brackets = host[0] == '[', colons = colon && colon != strchr(host, ':');
    bool bare_ipv6 = !brackets && colons && rpc_addr_parse(host, &addr, why);
    bool has_port = colon && !bare_ipv6 && (!brackets || colon[-1] == ']');
    if (has_port)
        snprintf(out, LLM_RUN_ADDRESS_CHARS, "%s", host);
    else
        snprintf(out, LLM_RUN_ADDRESS_CHARS, bare_ipv6 ? "[%s]:%u" : "%s:%u", host,
                 (unsigned)(o->master_port ? o->master_port : RPC_DEFAULT_PORT));
}

static enum cmd_exit connect_worker(struct llm_run *r)
{
    const struct llm_run_options *o = r->o;
    char text[LLM_RUN_ADDRESS_CHARS], why[RPC_WHY_CHARS];
    struct rpc_addr addr;
    llm_run_address(o, text);
    if (rpc_addr_parse(text, &addr, why))
        return cmd_fail(CMD_USAGE, "llm: %s", why);
    enum cmd_exit code = cmd_load_security(&o->connect, &r->security);
    if (code != CMD_DONE)
        return code;
    struct rpc_net_options net = {.security = &r->security, .timeout_ns = o->connect.timeout_ns};
    struct rpc_client_options client = {.config = {.security = &r->security,
                                                   .handshake_ns = o->connect.timeout_ns,
                                                   .spin_ns = LLM_REMOTE_PATIENCE_NS,
                                                   .owner_tells = true,
                                                   .resumes = rpc_resume_is_wanted(&addr)}};
    int rc = llm_remote_open(&addr, &net, &client, o->deadline_ns, &r->remote, r->why);
    return rc ? cmd_fail(cmd_exit_for(rc), "llm: %s", r->why) : CMD_DONE;
}

/* 69 when the worker is gone, 77 when one of its limits said no, else 1. */
static enum cmd_exit fail_run(const struct llm_run *r, int rc)
{
    bool gone = rc == -ECONNRESET || rc == -ESHUTDOWN || rc == -EHOSTDOWN || rc == -ETIMEDOUT;
    bool refused = rc == -ENOSPC || rc == -EMSGSIZE || rc == -EBUSY || rc == -EPERM;
    enum cmd_exit code = !r->remote ? CMD_FAILED
                         : gone     ? CMD_UNREACHABLE
                         : refused  ? CMD_REFUSED
                                    : CMD_FAILED;
    return cmd_fail(code, "llm: %s", r->why);
}

static enum cmd_exit open_mode(struct llm_run *r)
{
    r->config.file = r->file;
    r->config.remote = r->remote;
    int rc = llm_mode_open(mode_of(r->o), &r->config, &r->mode, r->why);
    return rc ? fail_run(r, rc) : CMD_DONE;
}

static enum cmd_exit make_prompt(struct llm_run *r)
{
    struct hw_rng rng;
    uint32_t count = (uint32_t)r->o->prompt_tokens;
    r->prompt = malloc(count * sizeof *r->prompt);
    if (!r->prompt)
        return cmd_fail(CMD_FAILED, "llm: out of memory");
    hw_rng_seed(&rng, r->o->seed);
    for (uint32_t i = 0; i < count; i++)
        r->prompt[i] = (uint32_t)hw_rng_below(&rng, llm_file_config(r->file)->vocab);
    r->prompt_count = count;
    return CMD_DONE;
}

static enum cmd_exit encode_prompt(struct llm_run *r)
{
    const char *text = r->o->prompt ? r->o->prompt : "";
    size_t bytes = strlen(text), first = 0;
    int32_t bos = llm_vocab_bos(r->vocab);
    int64_t count = llm_vocab_encode(r->vocab, text, bytes, NULL, 0);
    if (count >= 0) {
        r->prompt = malloc(((size_t)count + 1) * sizeof *r->prompt);
        if (!r->prompt)
            return cmd_fail(CMD_FAILED, "llm: out of memory");
        if (bos >= 0 && (llm_vocab_adds_bos(r->vocab) || !*text))
            r->prompt[first++] = (uint32_t)bos;
        count = llm_vocab_encode(r->vocab, text, bytes, r->prompt + first, (size_t)count);
    }
    if (count < 0)
        return cmd_fail(CMD_FAILED, "llm: the prompt: %s", strerror((int)-count));
    if (count + (int64_t)first == 0)
        return cmd_fail(CMD_USAGE, "llm: an empty prompt, and this model has no first token");
    r->prompt_count = (uint32_t)((size_t)count + first);
    return CMD_DONE;
}

static enum cmd_exit open_files(struct llm_run *r)
{
    const struct llm_run_options *o = r->o;
    if (llm_file_open(o->model, &r->file, r->why))
        return cmd_fail(CMD_FAILED, "llm: %s", r->why);
    if (llm_vocab_create(r->file, o->tokenizer, &r->vocab, r->why))
        return cmd_fail(CMD_FAILED, "llm: %s: %s", o->model, r->why);
    uint32_t layers = llm_file_config(r->file)->layers;
    if (o->evict && llm_evict_rule_parse(o->evict, layers, &r->evict))
        return cmd_fail(CMD_USAGE,
                        "llm: --evict: '%s' is not layers and the number of an exchange, such as "
                        "all@8, 0,2-4@8 "
                        "or 25%%@8; the model has layers 0 to %u",
                        o->evict, layers - 1);
    size_t steps = o->phase == LLM_RUN_PREFILL ? 1 : o->decode_steps;
    r->tokens = calloc(steps, sizeof *r->tokens);
    r->steps = calloc(steps, sizeof *r->steps);
    if (!r->tokens || !r->steps)
        return cmd_fail(CMD_FAILED, "llm: out of memory");
    return o->prompt_tokens ? make_prompt(r) : encode_prompt(r);
}

static enum cmd_exit read_options(struct llm_run *r)
{
    const struct llm_run_options *o = r->o;
    r->config.engine = (struct llm_engine_options){.backend = llm_run_backends[o->backend],
                                                   .math = (enum llm_math)o->math,
                                                   .threads = (unsigned)o->threads,
                                                   .context = (uint32_t)o->context};
    r->config.tokens_per_request = (uint32_t)o->tokens_per_request;
    if (!o->model)
        return cmd_fail(CMD_USAGE, "llm: --model FILE is needed");
    enum cmd_exit code = llm_run_sampling(o, &r->config.sampling);
    return code == CMD_DONE ? read_wish(o, &r->config.wish) : code;
}

enum cmd_exit llm_run_open(struct llm_run *r, const struct llm_run_options *options, FILE *text)
{
    *r = (struct llm_run){.o = options, .text = text};
    enum cmd_exit code = read_options(r);
    if (code == CMD_DONE)
        code = open_files(r);
    if (code == CMD_DONE && mode_of(options)->remote)
        code = connect_worker(r);
    if (code == CMD_DONE)
        code = open_mode(r);
    return code;
}

void llm_run_close(struct llm_run *r)
{
    llm_mode_close(r->mode);
    llm_remote_close(r->remote);
    rpc_security_fini(&r->security);
    llm_vocab_destroy(r->vocab);
    llm_file_close(r->file);
    free(r->prompt);
    free(r->tokens);
    free(r->steps);
}

/* ---- generating ---- */

static void show(struct llm_run *r, uint32_t token)
{
    size_t bytes;
    if (!r->text)
        return;
    const char *piece = llm_vocab_piece(r->vocab, token, !r->begun, &bytes);
    r->begun |= bytes > 0;
    cmd_put_generated(r->text, isatty(fileno(r->text)), &r->shown, piece, bytes);
    fflush(r->text);
}

/* One exchange, measured: the prompt when there are no tokens yet. */
static int step(struct llm_run *r, uint32_t want, uint32_t *got)
{
    struct llm_run_step *s = &r->steps[r->step_count];
    if (r->evict.at && r->step_count == r->evict.at) {
        int rc = llm_mode_evict(r->mode, &r->evict.layers, r->why);
        if (rc)
            return rc;
    }
    uint32_t *to = r->tokens + r->token_count;
    struct llm_mode_traffic before, after;
    llm_mode_traffic(r->mode, &before);
    uint64_t began = hw_now_ns();
    *got = 1;
    int rc = r->token_count == 0 ? llm_mode_prefill(r->mode, r->prompt, r->prompt_count, to, r->why)
                                 : llm_mode_decode(r->mode, want, to, got, r->why);
    if (rc)
        return rc;
    s->ns = hw_now_ns() - began;
    llm_mode_traffic(r->mode, &after);
    s->sent = after.sent - before.sent;
    s->received = after.received - before.received;
    r->step_count++;
    return 0;
}

/* Takes the tokens in; false at one that ends the text. */
static bool accept(struct llm_run *r, uint32_t got)
{
    for (uint32_t i = 0; i < got; i++) {
        uint32_t token = r->tokens[r->token_count];
        if (!r->o->ignore_end && llm_vocab_ends(r->vocab, token))
            return false;
        r->token_count++;
        show(r, token);
    }
    return true;
}

static void show_prompt(struct llm_run *r)
{
    for (uint32_t i = 0; i < r->prompt_count && !r->o->prompt_tokens; i++)
        show(r, r->prompt[i]);
}

enum cmd_exit llm_run_generate(struct llm_run *r)
{
    uint64_t most = r->o->phase == LLM_RUN_PREFILL ? 1 : r->o->decode_steps;
    for (uint32_t got; r->token_count < most;) {
        int rc = step(r, (uint32_t)(most - r->token_count), &got);
        if (rc == -ERANGE && r->token_count > 0)
            break; /* the context is full */
        if (rc) {
            if (r->text && r->step_count)
                fputc('\n', r->text);
            return fail_run(r, rc);
        }
        if (r->step_count == 1) /* not before: a prompt that does not fit is not echoed */
            show_prompt(r);
        if (!accept(r, got) || (r->text && ferror(r->text)))
            break; /* or nobody reads it */
    }
    if (r->text)
        fputs("\n\n", r->text);
    return CMD_DONE;
}

/* ---- figures ---- */

static double milliseconds(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double rate(uint64_t tokens, uint64_t ns)
{
    return ns ? (double)tokens * 1e9 / (double)ns : 0;
}

static uint64_t decode_ns(const struct llm_run *r)
{
    uint64_t total = 0;
    for (uint32_t i = 1; i < r->step_count; i++)
        total += r->steps[i].ns;
    return total;
}

static uint32_t decoded(const struct llm_run *r)
{
    return r->token_count > 1 ? r->token_count - 1 : 0;
}

static void print_times(const struct llm_run *r, FILE *out)
{
    uint64_t prefill = r->step_count ? r->steps[0].ns : 0, decode = decode_ns(r);
    fprintf(out, "prefill  %u tokens  %.2f ms  %.1f tok/s\n", r->prompt_count,
            milliseconds(prefill), rate(r->prompt_count, prefill));
    if (decoded(r))
        fprintf(out, "decode   %u tokens  %.3f ms a token  %.1f tok/s\n", decoded(r),
                milliseconds(decode) / decoded(r), rate(decoded(r), decode));
}

static void print_json(const struct llm_run *r, const struct llm_mode_traffic *traffic, FILE *out)
{
    struct hw_json j;
    uint64_t prefill = r->step_count ? r->steps[0].ns : 0, decode = decode_ns(r);
    hw_json_begin(&j, out);
    hw_json_object_begin(&j);
    hw_json_put_string(&j, "mode", llm_run_modes[r->o->mode]);
    hw_json_put_string(&j, "model", r->o->model);
    hw_json_put_u64(&j, "prompt_tokens", r->prompt_count);
    hw_json_put_u64(&j, "generated_tokens", r->token_count);
    hw_json_put_double(&j, "first_token_ms", milliseconds(prefill));
    hw_json_put_double(&j, "total_ms", milliseconds(prefill + decode));
    hw_json_put_double(&j, "tokens_per_second", decoded(r) ? rate(decoded(r), decode) : NAN);
    hw_json_put_u64(&j, "bytes_sent", traffic->sent);
    hw_json_put_u64(&j, "bytes_received", traffic->received);
    hw_json_object_end(&j);
    if (hw_json_finish(&j))
        cmd_warn("llm: the figures cannot be written");
}

static void print_steps(const struct llm_run *r, FILE *out)
{
    fputs("TOKENS:", out);
    for (uint32_t i = 0; i < r->token_count; i++)
        fprintf(out, " %u", r->tokens[i]);
    fputs("\nSTEP_US:", out);
    for (uint32_t i = 0; i < r->step_count; i++)
        fprintf(out, " %.3f", (double)r->steps[i].ns / 1e3);
    fputs("\nSTEP_BYTES_UP:", out);
    for (uint32_t i = 0; i < r->step_count; i++)
        fprintf(out, " %llu", (unsigned long long)r->steps[i].sent);
    fputs("\nSTEP_BYTES_DOWN:", out);
    for (uint32_t i = 0; i < r->step_count; i++)
        fprintf(out, " %llu", (unsigned long long)r->steps[i].received);
    fputc('\n', out);
}

/* KV that the worker evicted and restored. */
static void print_recovery(const struct llm_run *r, const struct llm_mode_figures *f, FILE *out)
{
    uint64_t ns = r->evict.at && r->evict.at < r->step_count ? r->steps[r->evict.at].ns : 0;
    fprintf(out, "STORE_kv_regular: %llu\n", (unsigned long long)f->kv_regular);
    fprintf(out, "STORE_kv_delta: %llu\n", (unsigned long long)f->kv_delta);
    fprintf(out, "KV_FETCHED_BYTES: %llu\n", (unsigned long long)f->kv_fetched);
    fprintf(out, "KV_RECOVERED_BYTES: %llu\n", (unsigned long long)f->kv_plain);
    fprintf(out, "KV_RECOVERED_LAYERS: %llu\n", (unsigned long long)f->kv_layers);
    fprintf(out, "KV_COMPUTED_ROWS: %llu\n", (unsigned long long)f->kv_computed);
    fprintf(out, "KV_WAIT_MS: %.6f\n", milliseconds(f->kv_wait_ns));
    fprintf(out, "RECOVERY_STEP_MS: %.6f\n", milliseconds(ns));
}

enum cmd_exit llm_run_report(struct llm_run *r, FILE *out)
{
    struct llm_mode_figures f;
    static const struct llm_byte_account nothing;
    struct llm_mode_traffic traffic;
    /* Before the call for the figures, which is no part of the run. */
    struct llm_byte_account account = r->remote ? *llm_remote_account(r->remote) : nothing;
    llm_mode_traffic(r->mode, &traffic);
    int rc = llm_mode_figures(r->mode, &f, r->why);
    if (rc)
        return fail_run(r, rc);
    if (r->o->json) {
        print_json(r, &traffic, stderr);
        if (r->o->trace)
            print_steps(r, out);
        return CMD_DONE;
    }
    uint64_t latency = r->o->phase == LLM_RUN_PREFILL ? r->steps[0].ns : decode_ns(r);
    print_times(r, out);
    fprintf(out, "NETWORK_BYTES: %llu\n", (unsigned long long)(traffic.sent + traffic.received));
    /* A Vulkan driver that sends does not know what its bytes are for. */
    bool knows_classes = r->remote || !traffic.sent;
    for (int c = 0; c < LLM_CLASSES && knows_classes; c++)
        fprintf(out, "BYTES_%s: %llu\n", llm_class_name((enum llm_class)c),
                (unsigned long long)llm_byte_account_bytes(&account, (enum llm_class)c));
    fprintf(out, "LATENCY_S: %.9f\n", (double)latency / 1e9);
    if (f.kernel_ns)
        fprintf(out, "SERVER_GPU_KERNEL_MS: %.6f\n", milliseconds(f.kernel_ns));
    fprintf(out, "SERVER_SERDES_MS: %.6f\n", milliseconds(f.server_serdes_ns));
    fprintf(out, "CLIENT_SERDES_MS: %.6f\n", milliseconds(f.client_serdes_ns));
    fprintf(out, "RPC_TIME_MS: %.6f\n", milliseconds(f.rpc_ns));
    print_recovery(r, &f, out);
    if (r->o->trace)
        print_steps(r, out);
    return CMD_DONE;
}

enum cmd_exit llm_run_worker_metrics(const struct llm_run_options *options, FILE *out)
{
    struct llm_run r = {.o = options};
    uint64_t values[LLM_METRICS];
    enum cmd_exit code = connect_worker(&r);
    if (code == CMD_DONE) {
        int rc = llm_remote_metrics(r.remote, values, r.why);
        code = rc ? fail_run(&r, rc) : CMD_DONE;
    }
    if (code == CMD_DONE)
        fprintf(out, "SEQUENCES: %llu\nORPHANS: %llu\nMODELS: %llu\n",
                (unsigned long long)values[LLM_METRIC_SEQUENCES],
                (unsigned long long)values[LLM_METRIC_ORPHANS],
                (unsigned long long)values[LLM_METRIC_MODELS]);
    llm_run_close(&r);
    return code;
}

static int write_piece(void *user, const void *bytes, size_t size)
{
    return fwrite(bytes, 1, size, user) == size ? 0 : -errno;
}

/* What comes is a model, or the file does not appear. */
static enum cmd_exit fetch_into(struct llm_run *r, struct hw_output *to)
{
    char place[HW_OUTPUT_PLACE_CHARS];
    int rc = llm_remote_fetch_file(r->remote, write_piece, to->stream, r->why);
    if (rc == 0 && fflush(to->stream))
        rc = -errno;
    if (ferror(to->stream))
        return cmd_fail(CMD_FAILED, "llm: cannot write %s: %s", r->o->download, strerror(-rc));
    if (rc)
        return fail_run(r, rc);
    if (llm_file_open(hw_output_place(to, place), &r->file, r->why))
        return cmd_fail(CMD_FAILED, "llm: what the worker sent: %s", r->why);
    return CMD_DONE;
}

static enum cmd_exit fail_output(const struct llm_run *r, int rc)
{
    if (rc == -EEXIST)
        return cmd_fail(CMD_FAILED, "llm: %s is there already: remove it, or choose another name",
                        r->o->download);
    return cmd_fail(CMD_FAILED, "llm: %s", r->why);
}

enum cmd_exit llm_run_download(const struct llm_run_options *options, FILE *out)
{
    struct llm_run r = {.o = options};
    struct hw_output to;
    int rc = hw_output_open(&to, options->download, false, 0, r.why);
    if (rc)
        return fail_output(&r, rc);
    enum cmd_exit code = connect_worker(&r);
    if (code == CMD_DONE)
        code = fetch_into(&r, &to);
    rc = hw_output_finish(&to, code == CMD_DONE ? 0 : -ECANCELED, r.why);
    if (code == CMD_DONE && rc)
        code = fail_output(&r, rc);
    if (code == CMD_DONE)
        fprintf(out, "NETWORK_BYTES: %llu\n",
                (unsigned long long)llm_byte_account_total(llm_remote_account(r.remote)));
    llm_run_close(&r);
    return code;
}
