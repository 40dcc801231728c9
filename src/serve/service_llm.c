#include "serve/service_llm.h"

#include "base/text/controls.h"
#include "base/text/utf8.h"
#include "base/units.h"
#include "command/connect.h"
#include "kv/redis/cluster.h"
#include "llm/engine/backend.h"
#include "page/trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#define AT(field) offsetof(struct service_llm_options, field)
const struct cmd_option service_llm_table[] = {
    {"model", 'm', CMD_LIST, AT(models),
     "also serve this model, under that name [default name: general.name if it is "
     "one word, else the file's base name]",
     "[NAME=]FILE"},
    {"backend", 0, CMD_CHOICE, AT(backend), "what computes it", NULL, "cpu",
     .choices = llm_backend_names},
    {"math", 0, CMD_CHOICE, AT(math),
     "exact: the same tokens alone, beside others and at another worker; fast: prompts on a GPU's "
     "matrix units (backend vulkan)",
     NULL, "exact", .choices = llm_math_names},
    {"threads", 0, CMD_U64, AT(threads), "of the cpu backend; 0: one for each core", "N", "0", 0,
     256},
    {"tp", 0, CMD_U64, AT(tp),
     "tensor-parallel workers: N processes compute each model together, with a share of its heads "
     "and rows each, and --threads threads [0: the cores divided by N]; with --backend vulkan each "
     "on the next GPU",
     "N", "1", 1, PAGE_RANKS_MAX},
    {"tp-peers", 0, CMD_STRING, AT(tp_peers),
     "the other workers of --tp N: N - 1 servers, each started with --tp-share and the same file, "
     "and each with its share of the weights and KV; for one model",
     "ADDR,..."},
    {"tp-share", 0, CMD_FLAG, AT(tp_share),
     "compute a share of the model for a server that names this one in --tp-peers"},
    {"layers", 0, CMD_STRING, AT(layers),
     "stages of one model's layers, each at a server: 0-15@local,16-31@HOST:PORT; that server is "
     "started with --layers 16-31 and has only those layers' weights and KV",
     "STAGES"},
    {"context", 0, CMD_U64, AT(context),
     "positions of a sequence at most; 0: as many as the model has", "N", "0", 0, LLM_CONTEXT_MAX},
    {"kv-memory", 0, CMD_SIZE, AT(kv_bytes),
     "KV cache of all sequences of all models together; what one model does not need the others "
     "use [default: 16 sequences of full context of each model, at most a quarter of the free "
     "memory for all, at least one]",
     "SIZE"},
    {"kv-min", 0, CMD_SIZE, AT(kv_min_bytes),
     "of that, set aside for each model [default: one eighth of an equal share]", "SIZE"},
    {"kv-priority", 0, CMD_LIST, AT(priorities),
     "of models that wait for KV memory, those of a higher priority get it first, down to what is "
     "set aside for the others [default: 0]",
     "NAME=N"},
    {"kv-group", 0, CMD_STRING, AT(kv_group),
     "share KV memory with the servers of this group; the first one's --kv-memory counts, and "
     "hawser kvctl limit changes it [default: a group of its own, named for the first model]",
     "NAME"},
    {"idle-weights", 0, CMD_DURATION, AT(idle_weights_ns),
     "a model without a request for so long gives back the GPU memory of its weights; the next "
     "request waits until they are back from the file, or from where the kernel still has it "
     "(backend vulkan) [default: they stay]",
     "TIME", NULL, 0, 30 * 24 * 3600 * HW_SEC},
    {"grace", 0, CMD_DURATION, AT(grace_ns),
     "how long sequences are kept for a client that vanished", "TIME", "10s", 0,
     24 * 3600 * HW_SEC},
    {"max-upload", 0, CMD_SIZE, AT(upload_bytes),
     "weights and KV caches that clients may send, together; each such model has a process of its "
     "own, and its weights stay for the next client while there is room",
     "SIZE", "16GiB", 0, INT64_MAX},
    {"allow-download", 0, CMD_FLAG, AT(downloads),
     "let clients fetch the model's file (hawser llm --download)"},
    {"share-per-client", 0, CMD_U64, AT(share),
     "of --max-upload and of the KV memory, that one connection may have at a time; a gateway is "
     "one, and divides what it has by --share-per-key",
     "PERCENT", "100", 1, 100},
    {"max-sequences", 0, CMD_U64, AT(sequences), "open sequences of one client", "N", "64", 1,
     LLM_SEQUENCES_MAX},
    {"shadow", 0, CMD_STRING, AT(shadow),
     "where KV is evicted to when memory is short: host, this process's memory; kvd:SOCKET, a KV "
     "daemon; redis://HOST:PORT,..., Redis or Valkey, a cluster or one server, or "
     "rediss:// with TLS [default: nowhere, clients are refused]",
     "WHERE"},
    {"shadow-ca", 0, CMD_STRING, AT(shadow_ca),
     "of --shadow rediss://: the CA of Redis' certificate", "FILE"},
    {"shadow-login", 0, CMD_STRING, AT(shadow_login),
     "of --shadow redis://: one line, NAME:PASSWORD or :PASSWORD; mode 0600", "FILE"},
    {"shadow-memory", 0, CMD_SIZE, AT(shadow_bytes), "limit of --shadow host", "SIZE", "1GiB", 0,
     INT64_MAX},
    {"tenant", 0, CMD_U64, AT(tenant),
     "of a shared --shadow: owner of the blocks; workers of one tenant share them", "N", "0"},
    {"evict", 0, CMD_STRING, AT(evict),
     "evict these layers after every Nth token of a sequence, for experiments: all, 0,2-4 or 25% "
     "(that share of them, the last ones)",
     "LAYERS@N"},
    {"share-prefixes", 0, CMD_FLAG, AT(share_prefixes),
     "store prompts and answers when they are computed, for others that begin so"},
    {"max-tokens", 0, CMD_U64, AT(tokens), "tokens of one request", "N", "1048576", 1,
     WIRE_TOKENS_MAX},
    {NULL},
};

static service_llm_store_fn *wrap_store;

void service_llm_wrap_store(service_llm_store_fn *wrap)
{
    wrap_store = wrap;
}

/* The given option that needs a shadow store; NULL: none. */
static const char *needs_shadow(const struct service_llm_options *o)
{
    return o->evict            ? "--evict"
           : o->share_prefixes ? "--share-prefixes"
           : o->shadow_ca      ? "--shadow-ca"
           : o->shadow_login   ? "--shadow-login"
                               : NULL;
}

/* --shadow, and what goes with it. */
static enum cmd_exit read_shadow(struct service_llm *s, const struct service_llm_options *o,
                                 struct llm_worker_options *out)
{
    static const char kvd[] = "kvd:", redis[] = "redis";
    char why[RPC_WHY_CHARS];
    const char *needs = needs_shadow(o);
    if (!o->shadow && needs)
        return cmd_fail(CMD_USAGE, "serve: %s needs a store for evicted KV: --shadow", needs);
    if (!o->shadow)
        return CMD_DONE;
    out->shadow = (struct llm_shadow_config){.bytes = o->shadow_bytes,
                                             .tenant = o->tenant,
                                             .url = o->shadow,
                                             .ca = o->shadow_ca,
                                             .login = o->shadow_login};
    if (strcmp(o->shadow, "host") == 0)
        out->shadow_ops = &llm_shadow_memory;
    else if (strncmp(o->shadow, kvd, sizeof kvd - 1) == 0 && o->shadow[sizeof kvd - 1])
        out->shadow_ops = &llm_shadow_kvd;
    else if (strncmp(o->shadow, redis, sizeof redis - 1) == 0 && strstr(o->shadow, "://"))
        out->shadow_ops = &llm_shadow_redis;
    else
        return cmd_fail(CMD_USAGE,
                        "serve: --shadow: '%s' is not host, kvd:SOCKET or redis://HOST:PORT",
                        o->shadow);
    if (out->shadow_ops == &llm_shadow_redis &&
        kv_redis_check(strstr(o->shadow, "://") + strlen("://"), why))
        return cmd_fail(CMD_USAGE, "serve: --shadow: %s", why);
    if (out->shadow_ops != &llm_shadow_redis && (o->shadow_ca || o->shadow_login))
        return cmd_fail(CMD_USAGE, "serve: %s is for --shadow redis://",
                        o->shadow_ca ? "--shadow-ca" : "--shadow-login");
    if (out->shadow_ops == &llm_shadow_kvd)
        out->shadow.socket = o->shadow + sizeof kvd - 1;
    if (wrap_store)
        out->shadow_ops = wrap_store(out->shadow_ops);
    uint32_t layers = llm_file_config(s->files[0])->layers;
    if (o->evict && llm_evict_rule_parse(o->evict, layers, &out->evict))
        return cmd_fail(
            CMD_USAGE,
            "serve: --evict: '%s' is not layers and a number of tokens, such as all@8, 0,2-4@8 or "
            "25%%@8; the model has layers 0 to %u",
            o->evict, layers - 1);
    out->share_prefixes = o->share_prefixes;
    return CMD_DONE;
}

/* ---- models ---- */

enum {
    CONTEXTS = 16, /* of KV memory without --kv-memory */
    SHARE = 4,     /* and at most 1 / SHARE of what is free */
    MIN_SHARE = 8, /* 1 / MIN_SHARE of an equal share is set aside for each model */
    PRIORITY_MAX = 100,
    GROWTH = 4, /* kvctl may raise the limit so many times: addresses are reserved at the start */
};

/* The part before the first '=', unless it is of a path. */
static const char *split_name(const char *item, size_t *name_len)
{
    const char *equals = strchr(item, '='), *slash = strchr(item, '/');
    bool named = equals && equals > item && !(slash && slash < equals);
    *name_len = named ? (size_t)(equals - item) : 0;
    return named ? equals + 1 : item;
}

/* A name that needs no quotes in a shell or a URL. */
static bool is_plain(const char *name)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-";
    return *name && strspn(name, plain) == strlen(name);
}

/* What clients call it: as the user says, else general.name if it is plain, else the file's base
 * name.  They say it in JSON, and it may have been cut: what is no character of a text is '?'. */
static void choose_name(const char *item, size_t given, const char *path,
                        const struct llm_file *file, char name[LLM_SERVED_NAME_CHARS])
{
    static const char suffix[] = ".gguf";
    const char *own = llm_file_name(file), *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t len = strlen(base);
    if (len > sizeof suffix - 1 && strcmp(base + len - (sizeof suffix - 1), suffix) == 0)
        len -= sizeof suffix - 1;
    if (given)
        snprintf(name, LLM_SERVED_NAME_CHARS, "%.*s", (int)given, item);
    else if (is_plain(own))
        snprintf(name, LLM_SERVED_NAME_CHARS, "%s", own);
    else
        snprintf(name, LLM_SERVED_NAME_CHARS, "%.*s", (int)len, base);
    hw_utf8_mend(name);
    hw_blank_controls_of(name);
}

static enum cmd_exit open_model(struct service_llm *s, const char *item)
{
    char why[LLM_WHY_CHARS];
    size_t given;
    const char *path = split_name(item, &given);
    if (given >= LLM_SERVED_NAME_CHARS)
        return cmd_fail(CMD_USAGE,
                        "serve: --model: the name has %zu bytes, and at most %d are allowed", given,
                        LLM_SERVED_NAME_CHARS - 1);
    if (llm_file_open(path, &s->files[s->count], why))
        return cmd_fail(CMD_FAILED, "serve: %s", why);
    char *name = s->names[s->count];
    choose_name(item, given, path, s->files[s->count++], name);
    for (uint32_t i = 0; i + 1 < s->count; i++) {
        if (strcmp(s->names[i], name) == 0)
            return cmd_fail(CMD_USAGE,
                            "serve: two models are called '%s': name one with --model NAME=FILE",
                            name);
    }
    return CMD_DONE;
}

/* Memory that programs can have without swapping; 0: not known. */
static uint64_t available_bytes(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib = 0;
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu", &kib) != 1)
        kib = 0;
    if (f)
        fclose(f);
    return (uint64_t)kib << 10;
}

/* All that programs can ever have, with swap. */
static uint64_t memory_bytes(void)
{
    struct sysinfo info;
    return sysinfo(&info) ? UINT64_MAX : ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
}

/* KV memory is mapped when it is used, so a limit costs nothing before. */
static uint64_t default_kv_bytes(const struct llm_file *file, uint64_t context, uint32_t models)
{
    const struct llm_config *c = llm_file_config(file);
    uint64_t positions = context ? context : c->context;
    uint64_t one = (positions + LLM_KV_POSITIONS) * c->layers * c->kv_heads * c->head_dim * 2 * 2;
    uint64_t share = available_bytes() / SHARE / models, all = CONTEXTS * one;
    return share < one ? one : share < all ? share : all;
}

/* ---- KV memory ---- */

static enum cmd_exit read_priorities(const struct service_llm *s, const struct cmd_list *items,
                                     uint32_t priorities[LLM_SERVED_MODELS_MAX])
{
    for (size_t i = 0; i < items->count; i++) {
        const char *item = items->items[i], *equals = strrchr(item, '=');
        size_t length = equals ? (size_t)(equals - item) : 0;
        uint32_t k = 0;
        uint64_t n;
        if (!equals || hw_parse_u64(equals + 1, 0, PRIORITY_MAX, &n))
            return cmd_fail(CMD_USAGE,
                            "serve: --kv-priority: '%s' is not a model and a number of 0 to %d, "
                            "such as %s=1",
                            item, PRIORITY_MAX, s->names[0]);
        while (k < s->count &&
               !(strlen(s->names[k]) == length && memcmp(s->names[k], item, length) == 0))
            k++;
        if (k == s->count)
            return cmd_fail(CMD_USAGE, "serve: --kv-priority: there is no model '%.*s'",
                            (int)length, item);
        priorities[k] = (uint32_t)n;
    }
    return CMD_DONE;
}

static enum cmd_exit join_group(struct service_llm *s, const struct service_llm_options *o)
{
    uint64_t bytes = o->kv_bytes, models = s->count, most;
    const char *names[LLM_SERVED_MODELS_MAX];
    uint32_t priorities[LLM_SERVED_MODELS_MAX] = {0};
    struct page_error why;
    enum cmd_exit code = read_priorities(s, &o->priorities, priorities);
    if (code != CMD_DONE)
        return code;
    for (uint32_t i = 0; i < s->count; i++) {
        names[i] = s->names[i];
        bytes += o->kv_bytes ? 0 : default_kv_bytes(s->files[i], o->context, s->count);
    }
    uint64_t min = o->kv_min_bytes ? o->kv_min_bytes : bytes / models / MIN_SHARE;
    if (min > bytes / models)
        return cmd_fail(CMD_USAGE, "serve: --kv-min for %llu models is more than --kv-memory",
                        (unsigned long long)models);
    if (__builtin_mul_overflow(bytes, GROWTH, &most))
        most = UINT64_MAX;
    struct page_member_config config = {.group = o->kv_group,
                                        .models = names,
                                        .count = s->count,
                                        .priorities = priorities,
                                        .limit_bytes = bytes,
                                        .most_bytes = most,
                                        .min_bytes = models > 1 || o->kv_group ? min : 0};
    if (page_member_open(&s->kv_group, &config, &why))
        return cmd_fail(CMD_FAILED, "serve: KV memory: %s", why.text);
    if (!s->kv_group.is_listed)
        cmd_warn("serve: hawser kvctl will not find this server: %s", why.text);
    return CMD_DONE;
}

/* For hawser bench-ipc --trace. */
static enum cmd_exit open_trace(struct service_llm *s)
{
    const char *path = getenv("HAWSER_PAGE_TRACE");
    if (!path || !*path)
        return CMD_DONE;
    int rc = page_trace_create(path, &s->trace);
    if (rc)
        return cmd_fail(CMD_FAILED, "serve: HAWSER_PAGE_TRACE: cannot write %s: %s", path,
                        strerror(-rc));
    if (s->count > 1)
        cmd_warn("serve: HAWSER_PAGE_TRACE: %s gets the pages of %s, and of no other model", path,
                 s->names[0]);
    return CMD_DONE;
}

static void describe_models(const struct service_llm *s, const struct cmd_list *items,
                            struct llm_worker_model *models)
{
    size_t given;
    for (uint32_t i = 0; i < s->count; i++)
        models[i] = (struct llm_worker_model){.name = s->names[i],
                                              .file = s->files[i],
                                              .path = split_name(items->items[i], &given),
                                              .kv_bytes = page_limit_most(s->kv_group.limits[0]),
                                              .kv_limit = s->kv_group.limits[i],
                                              .kv_trace = i == 0 ? s->trace : NULL};
}

static void tell_models(const struct service_llm *s, const struct cmd_list *items)
{
    for (uint32_t i = 0; i < s->count; i++) {
        size_t given;
        printf("model: %s (%s) as %s\n", split_name(items->items[i], &given),
               llm_arch_name(llm_file_config(s->files[i])->arch), s->names[i]);
    }
    if (s->kv_group.is_listed) {
        char size[HW_FORMAT_CHARS];
        uint64_t limit = page_limit_get(s->kv_group.limits[0]);
        printf("KV memory: %s, group %s\n", limit ? hw_format_size(size, limit) : "no limit",
               s->kv_group.runtime.group);
    }
}

/* ---- parts of a model ---- */

/* The option that makes this server one of several for one model; NULL: it is alone. */
static const char *part_option(const struct service_llm_options *o)
{
    return o->layers ? "--layers" : o->tp_peers ? "--tp-peers" : o->tp_share ? "--tp-share" : NULL;
}

static enum cmd_exit read_layers(struct service_llm *s, const struct service_llm_options *o)
{
    char why[LLM_WHY_CHARS];
    if (o->tp > 1)
        return cmd_fail(CMD_USAGE, "serve: --layers and --tp cannot be combined");
    if (llm_pipeline_parse(o->layers, &s->pipeline, why) ||
        llm_pipeline_check(&s->pipeline, llm_file_config(s->files[0])->layers, why))
        return cmd_fail(CMD_USAGE, "serve: --layers %s: %s", o->layers, why);
    s->pipeline.security = &s->security;
    return CMD_DONE;
}

static enum cmd_exit read_peers(struct service_llm *s, const struct service_llm_options *o)
{
    char why[LLM_WHY_CHARS];
    if (llm_shares_parse(o->tp_peers, &s->shares, why))
        return cmd_fail(CMD_USAGE, "serve: --tp-peers %s: %s", o->tp_peers, why);
    if (o->tp != s->shares.count + 1)
        return cmd_fail(CMD_USAGE,
                        "serve: --tp %llu and %u of --tp-peers: this server is one worker and each "
                        "peer another: give --tp %u",
                        (unsigned long long)o->tp, s->shares.count, s->shares.count + 1);
    s->shares.security = &s->security;
    return CMD_DONE;
}

static enum cmd_exit read_part(struct service_llm *s, const struct service_llm_options *o)
{
    const char *option = part_option(o);
    if (!option)
        return CMD_DONE;
    if (s->count != 1)
        return cmd_fail(CMD_USAGE, "serve: %s is about one model, and there are %u", option,
                        s->count);
    if (!!o->layers + !!o->tp_peers + o->tp_share > 1)
        return cmd_fail(CMD_USAGE, "serve: --layers, --tp-peers and --tp-share cannot be combined");
    if (o->tp_share && o->tp > 1)
        return cmd_fail(CMD_USAGE, "serve: --tp is for the front: it tells this server its share");
    enum cmd_exit code = o->layers ? read_layers(s, o) : o->tp_peers ? read_peers(s, o) : CMD_DONE;
    bool is_front = o->tp_peers || (o->layers && !s->pipeline.is_stage);
    if (code == CMD_DONE && is_front)
        code = cmd_load_security(&(struct cmd_connect_options){0}, &s->security);
    if (code == CMD_DONE && !is_front && (o->shadow || o->kv_group))
        return cmd_fail(CMD_USAGE, "serve: %s%s%s: %s is for the front", option,
                        o->layers ? " " : "", o->layers ? o->layers : "",
                        o->shadow ? "--shadow" : "--kv-group");
    return code;
}

static enum cmd_exit open_stage(struct service_llm *s, const struct service_llm_options *o)
{
    char why[LLM_WHY_CHARS];
    struct llm_stage_options options = {
        .file = s->files[0],
        .backend = llm_backend_names[o->backend],
        .config = {.threads = (unsigned)o->threads, .math = (enum llm_math)o->math},
        .layers = s->pipeline.stages[0].layers, /* of a share: none */
        .kv_bytes = o->kv_bytes};
    if (llm_stage_create(&options, &s->stage, why))
        return cmd_fail(CMD_FAILED, "serve: %s: %s", o->models.items[0], why);
    if (o->tp_share)
        printf("a share of %s, for a front elsewhere\n", s->names[0]);
    else
        printf("layers %s of %u of %s, for a front elsewhere\n", o->layers,
               llm_file_config(s->files[0])->layers, s->names[0]);
    return CMD_DONE;
}

/* What a failed start is to the shell: another server, or the KV store, may be out of reach. */
static enum cmd_exit exit_for(const struct service_llm_options *o, int rc)
{
    bool asks = o->layers || o->tp_peers || (o->shadow && strcmp(o->shadow, "host") != 0);
    switch (asks ? rc : -EIO) {
    case -EIO:
    case -ENOMEM:
    case -EINVAL:
    case -EOPNOTSUPP:
    case -ENODEV:
    case -ESTALE:
    case -EXDEV:
    case -EBUSY:
    case -ENOSYS:
    case -ENOSPC:
        return CMD_FAILED;
    default:
        return cmd_exit_for(rc);
    }
}

/* A process of a client has no servers beside it, no store that others use, and one client. */
static void describe_session(struct service_llm *s, const struct llm_worker_options *all)
{
    struct llm_worker_options *o = &s->session.options;
    *o = *all;
    snprintf(s->session.backend, sizeof s->session.backend, "%s", all->engine.backend);
    s->session.has_shadow = all->shadow_ops == &llm_shadow_memory;
    o->models = NULL;
    o->model_count = 0;
    o->engine.backend = NULL;
    o->engine.tp = 0;
    o->engine.pipeline = NULL;
    o->engine.shares = NULL;
    o->shadow_ops = NULL;
    o->shadow = (struct llm_shadow_config){.bytes = all->shadow.bytes};
    o->share_prefixes = false;
    o->idle_weights_ns = 0;
    o->upload_bytes = all->share ? all->upload_bytes / 100 * all->share : all->upload_bytes;
    o->share = 0;
    o->downloads = false;
    o->takes_files = true;
}

enum cmd_exit service_llm_open(struct service_llm *s, const struct service_llm_options *o,
                               uint32_t gpus, const struct llm_worker_outside *outside)
{
    char why[LLM_WHY_CHARS], has[HW_FORMAT_CHARS];
    struct llm_worker_model models[LLM_SERVED_MODELS_MAX] = {0};
    const char *needs = o->shadow ? "--shadow" : needs_shadow(o);
    if (o->models.count == 0 && needs)
        return cmd_fail(CMD_USAGE, "serve: %s is about a model's KV cache: --model FILE", needs);
    if (o->models.count == 0 && part_option(o))
        return cmd_fail(CMD_USAGE, "serve: %s is about a model: --model FILE", part_option(o));
    if (o->models.count == 0)
        return CMD_DONE;
    if (o->idle_weights_ns && (part_option(o) || o->tp > 1))
        return cmd_fail(CMD_USAGE, "serve: --idle-weights is not for a model in several parts");
    if (strcmp(llm_backend_names[o->backend], "vulkan") != 0 && o->kv_bytes > memory_bytes())
        return cmd_fail(CMD_USAGE, "serve: --kv-memory: this machine has %s of memory and swap",
                        hw_format_size(has, memory_bytes()));
    if (o->idle_weights_ns && strcmp(llm_backend_names[o->backend], "vulkan") != 0)
        return cmd_fail(CMD_USAGE,
                        "serve: --idle-weights is for --backend vulkan: on a CPU weights are used "
                        "where the file is mapped, and the kernel takes that memory when it is "
                        "short");
    enum cmd_exit code = CMD_DONE;
    for (size_t i = 0; i < o->models.count && code == CMD_DONE; i++)
        code = open_model(s, o->models.items[i]);
    if (code == CMD_DONE)
        code = read_part(s, o);
    if (code == CMD_DONE && (s->pipeline.is_stage || o->tp_share))
        return open_stage(s, o);
    if (code != CMD_DONE)
        return code;
    code = join_group(s, o);
    if (code == CMD_DONE)
        code = open_trace(s);
    if (code != CMD_DONE)
        return code;
    describe_models(s, &o->models, models);
    for (uint32_t i = 0; i < s->count && gpus; i++)
        models[i].device = i % gpus;
    struct llm_worker_options options = {
        .models = models,
        .model_count = s->count,
        .engine = {.backend = llm_backend_names[o->backend],
                   .math = (enum llm_math)o->math,
                   .threads = (unsigned)o->threads,
                   .tp = (uint32_t)o->tp,
                   .pipeline = o->layers ? &s->pipeline : NULL,
                   .shares = o->tp_peers ? &s->shares : NULL,
                   .context = (uint32_t)o->context},
        .grace_ns = o->grace_ns,
        .idle_weights_ns = o->idle_weights_ns,
        .upload_bytes = o->upload_bytes,
        .share = o->share < 100 ? (uint32_t)o->share : 0,
        .sequences = (uint32_t)o->sequences,
        .tokens = (uint32_t)o->tokens,
        .downloads = o->downloads,
    };
    code = read_shadow(s, o, &options);
    if (code != CMD_DONE)
        return code;
    bool lends = true; /* an off switch, for comparison; a malformed value is warned about */
    (void)hw_env_bool("HAWSER_LLM_LEND", true, &lends);
    options.no_lend = !lends;
    describe_session(s, &options);
    options.outside = outside;
    int rc = llm_worker_create(&options, &s->worker, why);
    if (rc)
        return cmd_fail(exit_for(o, rc), "serve: %s: %s", o->models.items[0], why);
    tell_models(s, &o->models);
    return CMD_DONE;
}

int service_llm_attach(struct service_llm *s, struct rpc_server *server)
{
    if (s->stage)
        return rpc_server_watch(server, llm_stage_event_fd(s->stage), llm_stage_deliver, s->stage);
    if (!s->worker)
        return 0;
    int rc =
        rpc_server_watch(server, llm_worker_event_fd(s->worker), llm_worker_deliver, s->worker);
    if (rc == 0)
        rc = rpc_server_watch(server, llm_worker_links_fd(s->worker), llm_worker_links, s->worker);
    return rc;
}

void service_llm_close(struct service_llm *s)
{
    llm_worker_destroy(s->worker);
    llm_stage_destroy(s->stage);
    rpc_security_fini(&s->security);
    int rc = page_trace_destroy(s->trace);
    if (rc)
        cmd_warn("serve: HAWSER_PAGE_TRACE: the file is not complete: %s", strerror(-rc));
    page_member_close(&s->kv_group);
    for (uint32_t i = 0; i < s->count; i++)
        llm_file_close(s->files[i]);
    *s = (struct service_llm){0};
}

bool service_llm_serves(const struct service_llm *s)
{
    return s->worker != NULL;
}

bool service_llm_handle(struct service_llm *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    if (s->stage)
        return llm_stage_handle(s->stage, ep, msg);
    return s->worker && llm_worker_handle(s->worker, ep, msg);
}

void service_llm_sleeps(struct service_llm *s, bool begins)
{
    if (s->stage)
        llm_stage_server_sleeps(s->stage, begins);
    if (s->worker)
        llm_worker_server_sleeps(s->worker, begins);
}

void service_llm_swept(struct service_llm *s)
{
    if (s->worker)
        llm_worker_swept(s->worker);
}

void service_llm_closed(struct service_llm *s, struct rpc_ep *ep, int status)
{
    if (s->stage)
        llm_stage_closed(s->stage, ep);
    if (s->worker)
        llm_worker_closed(s->worker, ep, status);
}
