/* hawser top - how gateways and servers do: requests, tokens a second, KV, queues, GPU time. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/screen.h"
#include "cli/survey.h"
#include "kv/cluster/curl.h"
#include "rpc/security/security.h"
#include "rpc/servers.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_BYTES_MAX = 1 << 20, /* 64 workers with 16 models each take 200 KiB */
    KEY_BYTES_MAX = 4096,
    PLACES_MAX = CMD_OPERANDS_MAX,
};

struct top_options {
    struct cmd_connect_options connect;
    const char *api_key_file;
    uint64_t interval_ns;
    bool once, json;
};

#define AT(field) offsetof(struct top_options, field)
static const struct cmd_option options[] = {
    {"once", 0, CMD_FLAG, AT(once), "print the state once; without rates, which need two looks"},
    {"json", 'j', CMD_FLAG, AT(json), "a JSON object a look, one a line"},
    {"interval", 0, CMD_DURATION, AT(interval_ns), "between two looks", "TIME", "1s", 100 * HW_MS,
     3600 * HW_SEC},
    {"api-key-file", 0, CMD_STRING, AT(api_key_file),
     "the first key in it is sent to http:// and https:// addresses (mode 0600)", "FILE"},
    CMD_GROUP_AT(struct top_options, connect, cmd_connect_table),
    {NULL},
};

/* One address, from look to look. */
struct place {
    const char *address;
    struct cmd_link link;      /* to a server; ep NULL: none now */
    double tokens;             /* generated so far, or rows of a worker; negative: not known */
    struct server_usage usage; /* of the last look */
    uint64_t at_ns;
    enum cmd_exit code; /* of the last look */
};

struct top {
    const struct top_options *o;
    char *key; /* NULL: none */
    struct place places[PLACES_MAX];
    size_t count;
};

/* ---- HTTP: one GET ---- */

static bool is_http(const char *address)
{
    return strncmp(address, "http://", 7) == 0 || strncmp(address, "https://", 8) == 0;
}

struct answer {
    char *body;
    size_t len;
};

static size_t take_body(char *data, size_t size, size_t count, void *user)
{
    struct answer *a = user;
    size_t len = size * count;
    if (len > ANSWER_BYTES_MAX - a->len)
        return 0;
    memcpy(a->body + a->len, data, len);
    a->len += len;
    return len;
}

/* Why there is no state in what came, or NULL. */
static const char *refusal(CURLcode code, long error, long status, const json_t *state, bool key)
{
    if (code == CURLE_OPERATION_TIMEDOUT)
        return "it did not answer in time";
    if (code == CURLE_OUT_OF_MEMORY)
        return "out of memory";
    if ((code == CURLE_COULDNT_CONNECT || code == CURLE_RECV_ERROR) && error)
        return strerror((int)error);
    if (code == CURLE_COULDNT_RESOLVE_HOST)
        return "no such host";
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        return "its certificate is not trusted, or has another name: --ca FILE";
    if (code == CURLE_OK && status == 401)
        return key ? "it does not know the first key of --api-key-file"
                   : "it asks for an API key: --api-key-file FILE";
    /* A state of ours has no "error": put_state tells by it what look() could not learn. */
    bool is_state = json_is_object(state) && !json_object_get(state, "error");
    return code || status != 200 || !is_state ? "no gateway or server with --http answers there"
                                              : NULL;
}

/* The state, or NULL with why and the exit status. */
static json_t *get_state(const struct kv_curl *lib, const struct top *t, const char *url,
                         struct answer *a, char *why, enum cmd_exit *exit_code)
{
    const char *ca = t->o->connect.ca ? t->o->connect.ca : getenv("VENUS_TLS_CA");
    char key[KEY_BYTES_MAX + 64];
    long ms = (long)(t->o->connect.timeout_ns / HW_MS), status = 0, error = 0;
    CURL *easy = lib->easy_init();
    snprintf(key, sizeof key, "Authorization: Bearer %s", t->key ? t->key : "");
    struct curl_slist *headers = t->key ? lib->slist_append(NULL, key) : NULL;
    CURLcode code = easy && (headers || !t->key) ? CURLE_OK : CURLE_OUT_OF_MEMORY;
    if (code == CURLE_OK) {
        lib->easy_setopt(easy, CURLOPT_URL, url);
        lib->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
        if (ca && *ca)
            lib->easy_setopt(easy, CURLOPT_CAINFO, ca);
        lib->easy_setopt(easy, CURLOPT_NOPROXY, "*");
        lib->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
        lib->easy_setopt(easy, CURLOPT_TIMEOUT_MS, ms ? ms : 1L);
        lib->easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
        lib->easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
        lib->easy_setopt(easy, CURLOPT_WRITEDATA, a);
        code = lib->easy_perform(easy);
        lib->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        lib->easy_getinfo(easy, CURLINFO_OS_ERRNO, &error);
    }
    lib->slist_free_all(headers);
    lib->easy_cleanup(easy);
    json_t *state = code ? NULL : json_loadb(a->body, a->len, 0, NULL);
    const char *refused = refusal(code, error, status, state, t->key);
    if (!refused)
        return state;
    *exit_code =
        code == CURLE_PEER_FAILED_VERIFICATION || status == 401 ? CMD_REFUSED : CMD_UNREACHABLE;
    snprintf(why, CMD_WHY_CHARS, "%s", refused);
    json_decref(state);
    return NULL;
}

static json_t *ask_http(struct top *t, struct place *p, char *why)
{
    char url[512], missing[RPC_WHY_CHARS];
    size_t host = strcspn(p->address, ":") + strlen("://");
    size_t end = host + strcspn(p->address + host, "/");
    struct answer a = {.body = malloc(ANSWER_BYTES_MAX)};
    const struct kv_curl *lib = kv_curl_load(missing);
    json_t *state = NULL;
    snprintf(url, sizeof url, "%.*s/state", (int)end, p->address);
    p->code = CMD_FAILED;
    if (lib && a.body)
        state = get_state(lib, t, url, &a, why, &p->code);
    else
        snprintf(why, CMD_WHY_CHARS, "%s", lib ? "out of memory" : missing);
    free(a.body);
    return state;
}

/* ---- a worker ---- */

static json_t *worker_json(const char *address, const struct llm_served *s)
{
    json_t *models = json_array(), *aside = json_array();
    uint64_t pages = 0, used = 0;
    for (uint32_t i = 0; i < s->model_count; i++) {
        json_array_append_new(models, json_string(s->models[i].name));
        if (s->models[i].is_aside)
            json_array_append_new(aside, json_string(s->models[i].name));
        pages += s->models[i].kv_pages;
        used += s->models[i].kv_used;
    }
    json_t *worker = json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:o, s:o}", "address", address,
                               "state", llm_served_state(s), "running", (int)s->running, "waiting",
                               (int)s->waiting, "kv_pages", (json_int_t)pages, "kv_used",
                               (json_int_t)used, "models", models, "weights_aside", aside);
    return json_pack("{s:[o], s:{s:I}}", "workers", worker, "tokens", "computed",
                     (json_int_t)s->rows);
}

static bool dial(const struct top *t, struct place *p, char *why)
{
    struct rpc_security security;
    p->link = (struct cmd_link){.timeout_ns = t->o->connect.timeout_ns};
    p->code = CMD_FAILED;
    /* At each attempt: a server that starts later may make this user's token. */
    if (rpc_addr_parse(p->address, &p->link.addr, why) ||
        cmd_read_security(&t->o->connect, &security, why))
        return false;
    rpc_addr_format(&p->link.addr, p->link.address, sizeof(p->link.address));
    p->code = cmd_link_dial(&p->link, &security, why);
    rpc_security_fini(&security);
    return p->code == CMD_DONE;
}

/* ---- GPU time ---- */

/* Of the time since the last look; negative: not known. */
static double part_of(const struct place *p, const struct server_usage *now, uint32_t i,
                      double seconds)
{
    const struct server_usage *before = &p->usage;
    if (i >= before->count || strcmp(before->tenants[i].name, now->tenants[i].name) != 0 ||
        now->tenants[i].gpu_ns < before->tenants[i].gpu_ns || seconds <= 0)
        return -1;
    return (double)(now->tenants[i].gpu_ns - before->tenants[i].gpu_ns) / HW_SEC / seconds;
}

static json_t *usage_json(struct place *p, const struct server_usage *usage)
{
    double seconds = (double)(hw_now_ns() - p->at_ns) / HW_SEC;
    json_t *tenants = json_array();
    for (uint32_t i = 0; i < usage->count; i++) {
        double part = part_of(p, usage, i, seconds);
        json_t *time = json_real((double)usage->tenants[i].gpu_ns / HW_SEC);
        json_array_append_new(
            tenants, json_pack("{s:s, s:i, s:o, s:o}", "name", usage->tenants[i].name, "sessions",
                               (int)usage->tenants[i].sessions, "seconds",
                               usage->measured ? time : json_null(), "part",
                               usage->measured && part >= 0 ? json_real(part) : json_null()));
        if (!usage->measured)
            json_decref(time);
    }
    p->usage = *usage;
    return json_pack("{s:b, s:o}", "measured", usage->measured, "tenants", tenants);
}

static json_t *ask_server(struct top *t, struct place *p, char *why)
{
    static struct server_usage usage;
    struct llm_served served;
    if (!p->link.ep && !dial(t, p, why))
        return NULL;
    int rc = survey_models(&p->link, &served);
    int used = rc ? rc : survey_usage(&p->link, &usage);
    if (rc || (used && used != -ENOSYS)) {
        snprintf(why, CMD_WHY_CHARS, "%s", strerror(-(rc ? rc : used)));
        p->code = cmd_exit_for(rc ? rc : used);
        cmd_link_close(&p->link);
        return NULL;
    }
    json_t *state = served.model_count ? worker_json(p->address, &served) : json_object();
    if (used == 0)
        json_object_set_new(state, "gpu", usage_json(p, &usage));
    return state;
}

/* ---- one look ---- */

static double tokens_of(const json_t *state)
{
    const json_t *tokens = json_object_get(state, "tokens");
    const json_t *value = json_object_get(tokens, "generated");
    value = value ? value : json_object_get(tokens, "computed");
    return json_is_number(value) ? json_number_value(value) : -1;
}

/* Adds the address, and what needs two looks. */
static json_t *look(struct top *t, struct place *p)
{
    char why[CMD_WHY_CHARS] = "";
    bool http = is_http(p->address);
    json_t *state = http ? ask_http(t, p, why) : ask_server(t, p, why);
    uint64_t now = hw_now_ns();
    if (!state) {
        p->tokens = -1;
        p->usage.count = 0;
        return json_pack("{s:s, s:s}", "address", p->address, "error", why);
    }
    double tokens = tokens_of(state), before = p->tokens;
    double seconds = (double)(now - p->at_ns) / HW_SEC;
    bool known = before >= 0 && tokens >= before && seconds > 0;
    json_object_set_new(state, "address", json_string(p->address));
    json_object_set_new(state, "tokens_per_second",
                        known ? json_real((tokens - before) / seconds) : json_null());
    p->tokens = tokens;
    p->at_ns = now;
    return state;
}

/* ---- for people ---- */

static void put_text(const json_t *value, int width)
{
    screen_text(json_string_value(value), width);
}

static long long whole(const json_t *object, const char *name)
{
    return (long long)json_integer_value(json_object_get(object, name));
}

static void put_time(const json_t *state, const char *name, const char *label)
{
    const json_t *times = json_object_get(state, name);
    const json_t *p50 = json_object_get(times, "p50"), *p95 = json_object_get(times, "p95");
    if (json_is_number(p50) && json_is_number(p95))
        printf("  %s %g/%g ms", label, 1e3 * json_number_value(p50), 1e3 * json_number_value(p95));
}

static void put_worker(const json_t *w)
{
    long long pages = whole(w, "kv_pages"), used = whole(w, "kv_used");
    const json_t *name;
    size_t i;
    fputs("  ", stdout);
    put_text(json_object_get(w, "address"), 27);
    putchar(' ');
    put_text(json_object_get(w, "state"), 9);
    printf("%8lld%8lld%6lld%%", whole(w, "running"), whole(w, "waiting"),
           pages > 0 ? 100 * used / pages : 0);
    json_array_foreach(json_object_get(w, "models"), i, name)
    {
        fputs(i ? ", " : "  ", stdout);
        put_text(name, 0);
    }
    json_array_foreach(json_object_get(w, "weights_aside"), i, name)
    {
        fputs(i ? ", " : "; weights aside: ", stdout);
        put_text(name, 0);
    }
    putchar('\n');
    if (json_object_get(w, "why")) {
        fputs("    ", stdout);
        put_text(json_object_get(w, "why"), 0);
        putchar('\n');
    }
}

static void put_usage(const json_t *gpu)
{
    const json_t *tenant;
    size_t i;
    if (!gpu)
        return;
    printf("  %-28s%9s%12s%7s\n", "tenant", "sessions", "GPU time", "now");
    json_array_foreach(json_object_get(gpu, "tenants"), i, tenant)
    {
        const json_t *seconds = json_object_get(tenant, "seconds");
        const json_t *part = json_object_get(tenant, "part");
        fputs("  ", stdout);
        put_text(json_object_get(tenant, "name"), 27);
        printf(" %9lld", whole(tenant, "sessions"));
        if (json_is_number(seconds))
            printf("%10.1f s", json_number_value(seconds));
        else
            printf("%12s", "-");
        if (json_is_number(part))
            printf("%6.0f%%\n", 100 * json_number_value(part));
        else
            printf("%7s\n", "-");
    }
    if (!json_is_true(json_object_get(gpu, "measured")))
        puts("  GPU time: not measured without time slices (serve --tenants, --time-slice)");
}

static void put_state(const json_t *state)
{
    const json_t *error = json_object_get(state, "error"), *workers = NULL, *w;
    const json_t *rate = json_object_get(state, "tokens_per_second");
    const json_t *requests = json_object_get(state, "requests");
    size_t i;
    const json_t *address = json_object_get(state, "address");
    bool is_named = error && strstr(json_string_value(error), json_string_value(address));
    if (!is_named)
        put_text(address, 0);
    if (error) {
        fputs(is_named ? "" : ": ", stdout);
        put_text(error, 0);
        putchar('\n');
        return;
    }
    if (requests)
        printf("  %lld running, %lld answered, %lld failed, %lld moved", whole(requests, "running"),
               whole(requests, "answered"), whole(requests, "failed"), whole(requests, "moved"));
    if (json_is_number(rate))
        printf("  %.1f tok/s", json_number_value(rate));
    putchar('\n');
    if (requests && json_is_number(json_object_get(json_object_get(state, "first_token"), "p50"))) {
        fputs("  median/95%:", stdout);
        put_time(state, "first_token", "first token");
        put_time(state, "between_tokens", "between tokens");
        put_time(state, "queue", "queue");
        putchar('\n');
    }
    workers = json_object_get(state, "workers");
    if (workers)
        printf("  %-28s%-9s%8s%8s%7s  models\n", "worker", "state", "running", "waiting", "KV");
    json_array_foreach(workers, i, w) put_worker(w);
    put_usage(json_object_get(state, "gpu"));
}

static void put_json(json_t *states)
{
    json_t *all = json_pack("{s:O}", "places", states);
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    puts(text ? text : "{}");
    free(text);
    json_decref(all);
}

/* ---- running ---- */

static enum cmd_exit read_key(struct top *t)
{
    char why[RPC_WHY_CHARS];
    size_t len;
    if (!t->o->api_key_file)
        return CMD_DONE;
    if (rpc_security_read("--api-key-file", t->o->api_key_file, true, KEY_BYTES_MAX, &t->key, &len,
                          why))
        return cmd_fail(CMD_FAILED, "top: %s", why);
    t->key[strcspn(t->key, "\r\n")] = '\0';
    return CMD_DONE;
}

/* One that cannot be read would be told at every look. */
static enum cmd_exit check_addresses(const struct top *t)
{
    char why[RPC_WHY_CHARS];
    struct rpc_addr addr;
    for (size_t i = 0; i < t->count; i++)
        if (!is_http(t->places[i].address) && rpc_addr_parse(t->places[i].address, &addr, why))
            return cmd_fail(CMD_USAGE, "top: %s", why);
    return CMD_DONE;
}

static size_t show(struct top *t)
{
    json_t *states = json_array(), *state;
    size_t i, fine = 0;
    for (i = 0; i < t->count; i++)
        json_array_append_new(states, look(t, &t->places[i]));
    json_array_foreach(states, i, state) fine += !json_object_get(state, "error");
    if (t->o->json) {
        put_json(states);
    } else {
        screen_begin(!t->o->once);
        json_array_foreach(states, i, state) put_state(state);
    }
    fflush(stdout);
    json_decref(states);
    return fine;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    struct top t = {.o = values};
    char buf[RPC_SERVER_CHARS], only[RPC_SERVER_CHARS];
    const char *list = rpc_servers_from_env(buf);
    size_t fine;
    for (; t.count < operands->count; t.count++)
        t.places[t.count] = (struct place){.address = operands->items[t.count], .tokens = -1};
    if (t.count == 0 && rpc_servers_next(&list, only))
        t.places[t.count++] = (struct place){.address = only, .tokens = -1};
    struct rpc_security security;
    enum cmd_exit code = check_addresses(&t);
    if (code == CMD_DONE)
        code = cmd_load_security(&t.o->connect, &security); /* what cannot be read is said once */
    if (code == CMD_DONE)
        rpc_security_fini(&security);
    if (code == CMD_DONE)
        code = read_key(&t);
    if (code != CMD_DONE)
        return code;
    if (!t.o->once && !t.o->json)
        screen_open();
    do {
        fine = show(&t);
    } while (!t.o->once && !ferror(stdout) && !screen_wait(t.o->interval_ns));
    screen_close();
    for (size_t i = 0; i < t.count; i++)
        cmd_link_close(&t.places[i].link);
    free(t.key);
    return fine ? CMD_DONE : t.places[0].code;
}

const struct cmd_command cmd_top = {
    .name = "top",
    .summary = "watch gateways and servers: requests, tokens, KV memory, GPU time",
    .operands = "[ADDR ...]",
    .operands_max = PLACES_MAX,
    .description = "An address is that of a server (hawser serve), as any other command takes it, "
                   "or http://host:port, or https://, of a gateway or of serve --http, which also "
                   "tells requests and times. tok/s counts tokens that were generated; of a worker "
                   "also those of "
                   "prompts.  GPU time is that of Vulkan sessions, by tenant, in all and as a part "
                   "of the time between two looks; a server measures it where it has time slices "
                   "(--tenants, --time-slice).  On a terminal q or Ctrl-C quits.",
    .options = options,
    .environment = cmd_connect_env,
    .examples = "hawser top http://127.0.0.1:8000\nhawser top gpu1:28100 gpu2:28100 --once --json",
    .values_size = sizeof(struct top_options),
    .run = run,
};
