/* hawser kv - values of the KV store from a shell: put, get, del, exists, keys, info, watch. */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/report/out.h"
#include "base/report/output.h"
#include "base/text/controls.h"
#include "command/connect.h"
#include "kv/redis/values.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct kv_options {
    const char *socket;
    struct cmd_connect_options remote;
    uint64_t expire_ns, every_ns, count;
    bool only_new, json;
};

#define AT(field) offsetof(struct kv_options, field)
static const struct cmd_option options[] = {
    {"socket", 's', CMD_STRING, AT(socket), "without ADDR: of the KV daemon on this host", "PATH",
     "/tmp/hawser-kvd.sock"},
    {"expire", 0, CMD_DURATION, AT(expire_ns), "put: the value is gone after so long", "TIME", NULL,
     HW_MS, 3650 * 86400 * HW_SEC},
    {"only-new", 0, CMD_FLAG, AT(only_new), "put: fail if the name has a value"},
    {"timeout", 0, CMD_DURATION, AT(remote.timeout_ns),
     "how long to wait for the daemon, and for each MiB from ADDR", "TIME", "5s", 10 * HW_MS,
     KV_TIMEOUT_MAX_NS},
    {"ca", 0, CMD_STRING, AT(remote.ca), "of tls:, its certificate must chain to this PEM file",
     "FILE"},
    {"fingerprint", 0, CMD_STRING, AT(remote.fingerprint), "or must have this SHA-256", "HEX"},
    {"token-file", 0, CMD_STRING, AT(remote.token_file),
     "of ADDR: the token, of kvd or of a tenant (mode 0600)", "FILE"},
    {"every", 0, CMD_DURATION, AT(every_ns), "watch: between two lines", "TIME", "1s", 10 * HW_MS,
     3600 * HW_SEC},
    {"count", 0, CMD_U64, AT(count), "watch: so many lines; 0: until it is ended", "N", "0", 0,
     UINT32_MAX},
    {"json", 'j', CMD_FLAG, AT(json), "info: as one JSON object"},
    {NULL},
};

static const struct cmd_env environment[] = {
    {"VENUS_TLS_CA", "as --ca"},
    {"VENUS_TLS_FINGERPRINT", "as --fingerprint"},
    {"VENUS_TOKEN_FILE", "as --token-file"},
    {NULL},
};

/* ---- the store: this host's daemon, or one elsewhere ---- */

struct store {
    struct kv_client *client; /* or */
    struct kv_values *values;
    char why[RPC_WHY_CHARS];
    const char *remark; /* for messages: " (...)", or "" */
};

/* Results of the store: 0, -ENOENT, -EEXIST; else s->why says why. */
static int result_of(struct store *s, enum kv_result result)
{
    static const char *const remedies[KV_RESULT_COUNT] = {
        [KV_FULL] = "the store is full of what cannot be evicted: give kvd more --blocks",
        [KV_TOO_LARGE] =
            "longer than the store takes: a name of 4096 bytes, a value of 64 MiB, or of what "
            "--blocks and --tenant-max allow",
        [KV_PEER_LOST] = "the member that owns it is gone: try again",
        [KV_TIMEOUT] = "no answer in time: try again, or with a longer --timeout",
        [KV_REFUSED] = "the daemon keeps no blocks",
        [KV_PUT_EXPIRED] = "the put took too long: try again",
        [KV_NOT_OWNER] = "the members are changing: try again",
        [KV_TOO_FEW] = "fewer members than kvd's --min-copies have it: try again when more are up",
    };
    if (result == KV_OK)
        return 0;
    if (result == KV_MISS || result == KV_EXISTS)
        return result == KV_MISS ? -ENOENT : -EEXIST;
    snprintf(s->why, sizeof s->why, "%s (%s)",
             remedies[result] ? remedies[result] : "the store refuses", kv_result_name(result));
    return -EIO;
}

static enum cmd_exit refuse(const struct store *s, const char *name, int rc)
{
    const char *why = rc == -ENOENT   ? "there is no such value (MISS)"
                      : rc == -EEXIST ? "the name has a value already (EXISTS)"
                      : s->values     ? kv_values_why(s->values)
                                      : s->why;
    enum cmd_exit code = rc == -EACCES || rc == -EPERM ? CMD_REFUSED
                         : rc == -ECONNRESET || rc == -ESHUTDOWN || rc == -ETIMEDOUT
                             ? CMD_UNREACHABLE
                             : CMD_FAILED;
    return cmd_fail(code, "kv: %s: %s%s", name, why, rc == -ENOENT ? s->remark : "");
}

static int store_set(struct store *s, const struct kv_named_set *set, uint32_t *copies)
{
    return s->values ? kv_values_set(s->values, set)
                     : result_of(s, kv_named_set(s->client, set, copies));
}

/* A copy, since whoever reads the output may take longer than the lease. */
static enum kv_result copy_value(struct kv_client *c, const char *name, uint8_t **data,
                                 uint32_t *len)
{
    struct kv_named v;
    enum kv_result result = kv_named_get(c, name, strlen(name), &v);
    if (result != KV_OK)
        return result;
    uint8_t *copy = malloc(v.len ? v.len : 1);
    if (copy)
        memcpy(copy, v.data, v.len);
    result = copy ? kv_block_check(c, &v.block) : KV_FULL;
    *len = v.len;
    kv_named_let_go(c, &v);
    if (result == KV_OK)
        *data = copy;
    else
        free(copy);
    return result;
}

static int store_get(struct store *s, const char *name, uint8_t **data, uint32_t *len)
{
    return s->values ? kv_values_get(s->values, name, strlen(name), data, len)
                     : result_of(s, copy_value(s->client, name, data, len));
}

static int store_length(struct store *s, const char *name, uint32_t *len)
{
    struct kv_named v;
    if (s->values)
        return kv_values_length(s->values, name, strlen(name), len);
    int rc = result_of(s, kv_named_look(s->client, name, strlen(name), &v));
    if (rc == 0)
        *len = v.len;
    return rc;
}

static int store_delete(struct store *s, const char *name)
{
    return s->values ? kv_values_delete(s->values, name, strlen(name))
                     : result_of(s, kv_named_delete(s->client, name, strlen(name)));
}

static int store_stat(struct store *s, struct kv_blocks_stat *out)
{
    return s->values ? kv_values_stat(s->values, out) : result_of(s, kv_block_stat(s->client, out));
}

/* ---- putting ---- */

/* Reads all of a file, at most KV_NAMED_MAX bytes.  *data is the caller's to free. */
static int read_all(int fd, uint8_t **data, uint32_t *len)
{
    size_t size = 1 << 16, used = 0;
    uint8_t *bytes = malloc(size);
    int rc = bytes ? 0 : -ENOMEM;
    while (rc == 0) {
        ssize_t n = read(fd, bytes + used, size - used);
        if (n < 0 && errno == EINTR)
            continue;
        rc = n < 0 ? -errno : 0;
        if (n <= 0)
            break;
        used += (size_t)n;
        if (used > KV_NAMED_MAX)
            rc = -EFBIG;
        if (rc == 0 && used == size) {
            uint8_t *larger = realloc(bytes, size *= 2);
            rc = larger ? 0 : -ENOMEM;
            bytes = larger ? larger : bytes;
        }
    }
    if (rc) {
        free(bytes);
        return rc;
    }
    *data = bytes;
    *len = (uint32_t)used;
    return 0;
}

static enum cmd_exit read_file(const struct store *s, const char *path, uint8_t **data,
                               uint32_t *len)
{
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    int rc = fd < 0 ? -errno : read_all(fd, data, len);
    if (path && fd >= 0)
        close(fd);
    if (rc == -EFBIG)
        return cmd_fail(CMD_FAILED,
                        "kv: put: %s has more than the %d bytes of a value; store it in parts",
                        path ? path : "the input", KV_NAMED_MAX);
    if (rc)
        return cmd_fail(CMD_FAILED, "kv: put: cannot read %s: %s%s", path ? path : "the input",
                        strerror(-rc), s->remark);
    return CMD_DONE;
}

static enum cmd_exit put(struct store *s, const struct kv_options *o, const char *name,
                         const char *path)
{
    struct kv_named_set set = {.name = name, .name_len = strlen(name), .only_new = o->only_new};
    uint8_t *data = NULL;
    uint32_t copies = 1;
    enum cmd_exit code = read_file(s, path, &data, &set.len);
    if (code != CMD_DONE)
        return code;
    set.value = data;
    uint64_t expire_ms = o->expire_ns / HW_MS + (o->expire_ns % HW_MS != 0);
    set.end_ms = expire_ms ? kv_named_now_ms() + expire_ms : 0;
    int rc = store_set(s, &set, &copies);
    free(data);
    if (rc)
        return refuse(s, name, rc);
    printf("%s: %u byte%s", name, set.len, set.len == 1 ? "" : "s");
    if (s->client)
        printf(", %u cop%s", copies, copies == 1 ? "y" : "ies");
    putchar('\n');
    return CMD_DONE;
}

/* ---- getting ---- */

static int write_all(int fd, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* A file that is there stays until all of the value is on the disk. */
static int write_file(const char *path, const uint8_t *data, uint32_t len)
{
    struct hw_output file;
    int rc = hw_output_open(&file, path, true, len, NULL);
    return rc ? rc : hw_output_finish(&file, write_all(fileno(file.stream), data, len), NULL);
}

/* What is no plain file, such as a pipe or a link, is written where it is. */
static enum cmd_exit get(struct store *s, const char *name, const char *path)
{
    uint8_t *data;
    uint32_t len;
    struct stat st;
    int got = store_get(s, name, &data, &len);
    if (got)
        return refuse(s, name, got);
    bool whole = path && (lstat(path, &st) || S_ISREG(st.st_mode));
    int fd = whole  ? -1
             : path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
                    : STDOUT_FILENO;
    int rc = whole ? write_file(path, data, len) : fd < 0 ? -errno : write_all(fd, data, len);
    if (path && fd >= 0 && close(fd) && rc == 0)
        rc = -errno;
    free(data);
    return rc ? cmd_fail(CMD_FAILED, "kv: get: cannot write %s: %s", path ? path : "the output",
                         strerror(-rc))
              : CMD_DONE;
}

/* ---- names ---- */

/* One line a name; fails where one is missing. */
static enum cmd_exit each(struct store *s, const char *const *names, size_t count, bool delete)
{
    enum cmd_exit code = CMD_DONE;
    for (size_t i = 0; i < count; i++) {
        uint32_t len = 0;
        int rc = delete ? store_delete(s, names[i]) : store_length(s, names[i], &len);
        if (rc && rc != -ENOENT)
            return refuse(s, names[i], rc);
        if (rc == 0 && !delete)
            printf("%s: %u byte%s\n", names[i], len, len == 1 ? "" : "s");
        else
            printf("%s: %s\n", names[i], rc == 0 ? "deleted" : "not there");
        code = rc == 0 ? code : CMD_FAILED;
    }
    return code;
}

/* A terminal gets no name that drives it: anybody may have put one. */
static void print_name(void *user, const char *name, size_t len)
{
    const char *pattern = user;
    char shown[KV_NAMED_NAME_MAX];
    if (pattern && !kv_named_fits(pattern, strlen(pattern), name, len))
        return;
    if (isatty(STDOUT_FILENO)) {
        len = len < sizeof shown ? len : sizeof shown;
        name = memcpy(shown, name, len);
        hw_blank_controls(shown, len);
    }
    (void)fwrite(name, 1, len, stdout);
    putchar('\n');
}

static enum cmd_exit keys(struct store *s, const char *pattern)
{
    uint64_t cursor = 0;
    void *user = (void *)(uintptr_t)pattern;
    int rc;
    do
        rc = s->values ? kv_values_list(s->values, pattern, &cursor, print_name, user)
                       : result_of(s, kv_named_list(s->client, &cursor, print_name, user));
    while (rc == 0 && cursor);
    return rc == 0 ? CMD_DONE : refuse(s, "keys", rc);
}

/* ---- watch ---- */

/* A line of what has happened since the last one. */
static void print_change(const struct kv_blocks_stat *now, const struct kv_blocks_stat *before,
                         double seconds)
{
    const uint64_t changes[] = {now->hits - before->hits, now->misses - before->misses,
                                now->committed - before->committed, now->deleted - before->deleted,
                                now->evicted - before->evicted};
    printf("%10llu %10.1f", (unsigned long long)now->blocks, (double)now->bytes / (1 << 20));
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        printf(" %9.0f", (double)changes[i] / seconds);
    printf(" %9llu\n", (unsigned long long)now->below_copies);
}

static enum cmd_exit watch(struct store *s, const struct kv_options *o)
{
    struct kv_blocks_stat before, now;
    struct timespec pause = {(time_t)(o->every_ns / HW_SEC), (long)(o->every_ns % HW_SEC)};
    int rc = store_stat(s, &before);
    uint64_t since = hw_now_ns();
    if (rc == 0)
        printf("%10s %10s %9s %9s %9s %9s %9s %9s\n", "blocks", "MiB", "hits/s", "misses/s",
               "puts/s", "deletes/s", "evicted/s", "below");
    for (uint64_t i = 0; rc == 0 && (o->count == 0 || i < o->count); i++) {
        (void)nanosleep(&pause, NULL);
        rc = store_stat(s, &now);
        if (rc)
            break;
        uint64_t at = hw_now_ns();
        print_change(&now, &before, (double)(at - since) / 1e9);
        if (fflush(stdout))
            break; /* nobody reads any more: the caller says so */
        before = now;
        since = at;
    }
    return rc == 0 ? CMD_DONE : refuse(s, "watch", rc);
}

/* ---- info ---- */

static enum cmd_exit info(struct store *s, bool json)
{
    struct kv_blocks_stat b;
    int rc = store_stat(s, &b);
    if (rc)
        return refuse(s, "info", rc);
    struct hw_json j;
    if (json) {
        hw_json_begin(&j, stdout);
        hw_json_object_begin(&j);
    }
    for (unsigned i = 0; i < KV_BLOCKS_FIGURES; i++) {
        const char *name = kv_blocks_figures[i].name;
        uint64_t value = *kv_blocks_figure(&b, i);
        if (json)
            hw_json_put_u64(&j, name, value);
        else
            printf("%-16s %llu\n", name, (unsigned long long)value);
    }
    if (!json)
        return CMD_DONE;
    hw_json_object_end(&j);
    rc = hw_json_finish(&j);
    return rc ? cmd_output_lost(rc) : CMD_DONE;
}

/* ---- the command ---- */

/* What the user said, without ADDR. */
struct request {
    const char *verb, *addr;
    const char *const *args;
    size_t count;
    bool is_like_address; /* the first of several operands */
};

static enum cmd_exit run_verb(struct store *s, const struct kv_options *o, const struct request *r)
{
    const char *first = r->count > 0 ? r->args[0] : NULL, *file = r->count > 1 ? r->args[1] : NULL;
    if (file && strcmp(file, "-") == 0)
        file = NULL; /* del and exists look at the names themselves */
    if (strcmp(r->verb, "put") == 0)
        return put(s, o, first, file);
    if (strcmp(r->verb, "get") == 0)
        return get(s, first, file);
    if (strcmp(r->verb, "info") == 0)
        return info(s, o->json);
    if (strcmp(r->verb, "keys") == 0)
        return keys(s, first);
    if (strcmp(r->verb, "watch") == 0)
        return watch(s, o);
    return each(s, r->args, r->count, strcmp(r->verb, "del") == 0);
}

/* What an operand is: many names have the form of HOST:PORT, too, such as user:42.  Those whose
 * host is an IP address or localhost are taken for an address. */
enum operand { NAME, HOST_PORT, IP_PORT, SCHEME };

static enum operand operand_of(const char *text)
{
    struct rpc_addr addr;
    struct in6_addr ip;
    char why[RPC_WHY_CHARS];
    if (strncmp(text, "tcp:", 4) == 0 || strncmp(text, "tls:", 4) == 0 ||
        strncmp(text, "unix:", 5) == 0)
        return SCHEME;
    if (!strchr(text, ':') || rpc_addr_parse(text, &addr, why) || addr.scheme != RPC_SCHEME_TCP)
        return NAME;
    return strcmp(addr.host, "localhost") == 0 || inet_pton(AF_INET, addr.host, &ip) == 1 ||
                   inet_pton(AF_INET6, addr.host, &ip) == 1
               ? IP_PORT
               : HOST_PORT;
}

static bool read_request(const struct cmd_operands *operands, struct request *out)
{
    static const struct {
        const char *name;
        size_t min, max;
    } verbs[] = {{"put", 1, 2},  {"get", 1, 2},  {"del", 1, SIZE_MAX}, {"exists", 1, SIZE_MAX},
                 {"keys", 0, 1}, {"info", 0, 0}, {"watch", 0, 0}};
    enum operand first = operands->count > 1 ? operand_of(operands->items[1]) : NAME;
    *out = (struct request){.verb = operands->items[0],
                            .args = operands->items + 1,
                            .count = operands->count - 1,
                            .is_like_address = first != NAME && operands->count > 2};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(out->verb, verbs[i].name) != 0)
            continue;
        if (first == SCHEME || (first == IP_PORT && out->count > verbs[i].min)) {
            out->addr = *out->args++;
            out->count--;
        }
        return out->count >= verbs[i].min && out->count <= verbs[i].max;
    }
    return false;
}

static enum cmd_exit open_local(struct store *s, const struct kv_options *o)
{
    char why[RPC_WHY_CHARS];
    struct kv_client_options attach = {
        .socket = o->socket, .staging_bytes = KV_NAMED_STAGING, .timeout_ns = o->remote.timeout_ns};
    int rc = kv_client_open(&attach, &s->client, why);
    return rc ? cmd_fail(cmd_exit_for(rc), "kv: %s%s", why, s->remark) : CMD_DONE;
}

static enum cmd_exit dial(struct store *s, const struct kv_options *o, const char *addr,
                          const struct rpc_security *security)
{
    char why[RPC_WHY_CHARS];
    bool tls = strncmp(addr, "tls:", 4) == 0;
    struct kv_values_options open = {
        .security = security, .tls = tls, .timeout_ns = o->remote.timeout_ns};
    if (rpc_addr_parse(tls ? addr + 4 : addr, &open.addr, why))
        return cmd_fail(CMD_USAGE, "kv: %s", why);
    if (tls && !security->tls)
        return cmd_fail(CMD_USAGE,
                        "kv: %s: TLS needs the server's certificate: give --ca or --fingerprint",
                        addr);
    int rc = kv_values_open(&open, &s->values, why);
    return rc ? cmd_fail(cmd_exit_for(rc), "kv: %s", why) : CMD_DONE;
}

static enum cmd_exit open_remote(struct store *s, const struct kv_options *o, const char *addr)
{
    struct rpc_security security;
    enum cmd_exit code = cmd_load_security(&o->remote, &security);
    if (code != CMD_DONE)
        return code;
    code = dial(s, o, addr, &security);
    rpc_security_fini(&security);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct kv_options *o = values;
    struct store s = {.remark = ""};
    struct request r;
    if (!read_request(operands, &r))
        return cmd_fail(CMD_USAGE, "kv: use put NAME [FILE], get NAME [FILE], del NAME..., exists"
                                   " NAME..., keys [PATTERN], info or watch, each with an ADDR"
                                   " before the NAME or none; see hawser kv --help");
    if (!r.addr && r.is_like_address)
        s.remark = " (before the address of a daemon's --resp write tcp: or tls:)";
    enum cmd_exit code = r.addr ? open_remote(&s, o, r.addr) : open_local(&s, o);
    if (code == CMD_DONE)
        code = run_verb(&s, o, &r);
    kv_values_close(s.values);
    kv_client_close(s.client);
    return code;
}

const struct cmd_command cmd_kv = {
    .name = "kv",
    .summary = "put, get and delete values of the key-value store",
    .operands = "put|get|del|exists|keys|info|watch [ADDR] [NAME...] [FILE]",
    .operands_min = 1,
    .operands_max = CMD_OPERANDS_MAX,
    .description =
        "put NAME [FILE]    store FILE, or what comes in, also as -, under NAME\n"
        "get NAME [FILE]    write the value to FILE, or out, also as -\n"
        "del NAME...        delete values\n"
        "exists NAME...     say which are there, and how long they are\n"
        "keys [PATTERN]     names of the values at that host's daemons; * stands for any part of a "
        "name, ? for any character\n"
        "info               figures of that host's daemons\n"
        "watch              what happens there, a line each --every\n"
        "\n"
        "ADDR, before the names, is where a daemon, here or elsewhere, lets Redis clients in with "
        "--resp: tcp:HOST:PORT, tls:HOST:PORT or unix:PATH; tcp: may be left out where HOST is an "
        "IP "
        "address or localhost.  Without it the daemon of this host is asked.  For a name that "
        "begins "
        "like an ADDR, give an ADDR before it.\n"
        "\n"
        "Values are blocks of the daemon's cluster, the same that kvd --resp shows to Redis "
        "clients.  A name that is not there is a failure.",
    .options = options,
    .environment = environment,
    .examples = "hawser kv put greeting < hello.txt\n"
                "hawser kv get greeting\n"
                "hawser kv info --json\n"
                "hawser kv get tls:kv0.example:6380 greeting --ca server.crt --token-file token",
    .values_size = sizeof(struct kv_options),
    .run = run,
};
