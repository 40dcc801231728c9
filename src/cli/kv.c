/* hawser kv - values of the KV store from a shell: put, get, del, exists, keys, info, watch. */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/report/out.h"
#include "base/units.h"
#include "command/connect.h"
#include "kv/client/named.h"

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
    uint64_t expire_ns, timeout_ns, every_ns, count;
    bool only_new, json;
};

#define AT(field) offsetof(struct kv_options, field)
static const struct cmd_option options[] = {
    {"socket", 's', CMD_STRING, AT(socket), "of the KV daemon on this host", "PATH",
     "/tmp/hawser-kvd.sock"},
    {"expire", 0, CMD_DURATION, AT(expire_ns), "put: the value is gone after so long", "TIME", NULL,
     HW_MS, 3650 * 86400 * HW_SEC},
    {"only-new", 0, CMD_FLAG, AT(only_new), "put: fail if the name has a value"},
    {"timeout", 0, CMD_DURATION, AT(timeout_ns), "how long to wait for the daemon", "TIME", "5s",
     10 * HW_MS, KV_TIMEOUT_MAX_NS},
    {"every", 0, CMD_DURATION, AT(every_ns), "watch: between two lines", "TIME", "1s", 10 * HW_MS,
     3600 * HW_SEC},
    {"count", 0, CMD_U64, AT(count), "watch: so many lines; 0: until it is ended", "N", "0", 0,
     UINT32_MAX},
    {"json", 'j', CMD_FLAG, AT(json), "info: as one JSON object"},
    {NULL},
};

static const struct cmd_env environment[] = {
    {"VENUS_LOG_LEVEL", "NONE, ERROR, WARN, INFO, DEBUG or TRACE [default: WARN]"},
    {NULL},
};

static enum cmd_exit refuse(const char *name, enum kv_result result)
{
    static const char *const remedies[KV_RESULT_COUNT] = {
        [KV_MISS] = "there is no such value",
        [KV_FULL] = "the store is full of what cannot be evicted: give kvd more --blocks",
        [KV_TOO_LARGE] =
            "the value is longer than the store takes: 64 MiB, --blocks or --tenant-max",
        [KV_PEER_LOST] = "the member that owns it is gone: try again",
        [KV_TIMEOUT] = "no answer in time: try again, or with a longer --timeout",
        [KV_REFUSED] = "the daemon keeps no blocks: start it with --blocks",
        [KV_PUT_EXPIRED] = "the put took too long: try again",
        [KV_EXISTS] = "the name has a value already",
        [KV_NOT_OWNER] = "the members are changing: try again",
        [KV_TOO_FEW] = "fewer members than kvd's --min-copies have it: try again when more are up",
    };
    const char *remedy = remedies[result] ? remedies[result] : "the store refuses";
    return cmd_fail(CMD_FAILED, "kv: %s: %s (%s)", name, remedy, kv_result_name(result));
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

static enum cmd_exit read_file(const char *path, uint8_t **data, uint32_t *len)
{
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    int rc = fd < 0 ? -errno : read_all(fd, data, len);
    if (path && fd >= 0)
        close(fd);
    if (rc == -EFBIG)
        return cmd_fail(CMD_FAILED, "kv: put: %s has more than %d bytes", path ? path : "the input",
                        KV_NAMED_MAX);
    if (rc)
        return cmd_fail(CMD_FAILED, "kv: put: cannot read %s: %s", path ? path : "the input",
                        strerror(-rc));
    return CMD_DONE;
}

static enum cmd_exit put(struct kv_client *c, const struct kv_options *o, const char *name,
                         const char *path)
{
    struct kv_named_set set = {.name = name, .name_len = strlen(name), .only_new = o->only_new};
    uint8_t *data = NULL;
    uint32_t copies = 1;
    enum cmd_exit code = read_file(path, &data, &set.len);
    if (code != CMD_DONE)
        return code;
    set.value = data;
    set.end_ms = o->expire_ns ? kv_named_now_ms() + o->expire_ns / HW_MS : 0;
    enum kv_result result = kv_named_set(c, &set, &copies);
    free(data);
    if (result != KV_OK)
        return refuse(name, result);
    printf("%s: %u bytes, %u cop%s\n", name, set.len, copies, copies == 1 ? "y" : "ies");
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

static enum cmd_exit get(struct kv_client *c, const char *name, const char *path)
{
    uint8_t *data;
    uint32_t len;
    enum kv_result result = copy_value(c, name, &data, &len);
    if (result != KV_OK)
        return refuse(name, result);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : STDOUT_FILENO;
    int rc = fd < 0 ? -errno : write_all(fd, data, len);
    free(data);
    if (path && fd >= 0 && close(fd) && rc == 0)
        rc = -errno;
    return rc ? cmd_fail(CMD_FAILED, "kv: get: cannot write %s: %s", path ? path : "the output",
                         strerror(-rc))
              : CMD_DONE;
}

/* ---- names ---- */

/* One line a name; fails where one is missing. */
static enum cmd_exit each(struct kv_client *c, const char *const *names, size_t count, bool delete)
{
    enum cmd_exit code = CMD_DONE;
    for (size_t i = 0; i < count; i++) {
        struct kv_named v;
        size_t len = strlen(names[i]);
        enum kv_result result =
            delete ? kv_named_delete(c, names[i], len) : kv_named_get(c, names[i], len, &v);
        if (result != KV_OK && result != KV_MISS)
            return refuse(names[i], result);
        if (result == KV_OK && !delete) {
            printf("%s: %u bytes\n", names[i], v.len);
            kv_named_let_go(c, &v);
        } else {
            printf("%s: %s\n", names[i], result == KV_OK ? "deleted" : "not there");
        }
        code = result == KV_OK ? code : CMD_FAILED;
    }
    return code;
}

static void print_name(void *user, const char *name, size_t len)
{
    const char *pattern = user;
    if (pattern && !kv_named_fits(pattern, strlen(pattern), name, len))
        return;
    (void)fwrite(name, 1, len, stdout);
    putchar('\n');
}

static enum cmd_exit keys(struct kv_client *c, const char *pattern)
{
    uint64_t cursor = 0;
    enum kv_result result;
    do
        result = kv_named_list(c, &cursor, print_name, (void *)(uintptr_t)pattern);
    while (result == KV_OK && cursor);
    return result == KV_OK ? CMD_DONE : refuse("keys", result);
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
    (void)fflush(stdout);
}

static enum cmd_exit watch(struct kv_client *c, const struct kv_options *o)
{
    struct kv_blocks_stat before, now;
    struct timespec pause = {(time_t)(o->every_ns / HW_SEC), (long)(o->every_ns % HW_SEC)};
    enum kv_result result = kv_block_stat(c, &before);
    uint64_t since = hw_now_ns();
    if (result == KV_OK)
        printf("%10s %10s %9s %9s %9s %9s %9s %9s\n", "blocks", "MiB", "hits/s", "misses/s",
               "puts/s", "deletes/s", "evicted/s", "below");
    for (uint64_t i = 0; result == KV_OK && (o->count == 0 || i < o->count); i++) {
        (void)nanosleep(&pause, NULL);
        result = kv_block_stat(c, &now);
        if (result != KV_OK)
            break;
        uint64_t at = hw_now_ns();
        print_change(&now, &before, (double)(at - since) / 1e9);
        before = now;
        since = at;
    }
    return result == KV_OK ? CMD_DONE : refuse("watch", result);
}

/* ---- info ---- */

static enum cmd_exit info(struct kv_client *c, bool json)
{
    struct kv_blocks_stat b;
    enum kv_result result = kv_block_stat(c, &b);
    if (result != KV_OK)
        return refuse("info", result);
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"blocks", b.blocks},
                {"bytes", b.bytes},
                {"room", b.room},
                {"room_used", b.room_used},
                {"cached_replicas", b.cached},
                {"below_copies", b.below_copies},
                {"repaired", b.repaired},
                {"hits", b.hits},
                {"misses", b.misses},
                {"committed", b.committed},
                {"evicted", b.evicted},
                {"deleted", b.deleted},
                {"corrupt", b.corrupt},
                {"leases", b.leases},
                {"open_puts", b.open_puts},
                {"puts_expired", b.puts_expired},
                {"leases_expired", b.leases_expired}};
    struct hw_json j;
    if (json) {
        hw_json_begin(&j, stdout);
        hw_json_object_begin(&j);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (json) {
            hw_json_put_u64(&j, rows[i].name, rows[i].value);
        } else {
            printf("%-16s %llu\n", rows[i].name, (unsigned long long)rows[i].value);
        }
    }
    if (!json)
        return CMD_DONE;
    hw_json_object_end(&j);
    return hw_json_finish(&j) ? cmd_fail(CMD_FAILED, "cannot write the output") : CMD_DONE;
}

/* ---- the command ---- */

static enum cmd_exit run_verb(struct kv_client *c, const struct kv_options *o,
                              const struct cmd_operands *operands)
{
    const char *verb = operands->items[0];
    size_t count = operands->count - 1;
    const char *const *args = operands->items + 1;
    if (strcmp(verb, "put") == 0)
        return put(c, o, args[0], count > 1 ? args[1] : NULL);
    if (strcmp(verb, "get") == 0)
        return get(c, args[0], count > 1 ? args[1] : NULL);
    if (strcmp(verb, "info") == 0)
        return info(c, o->json);
    if (strcmp(verb, "keys") == 0)
        return keys(c, count > 0 ? args[0] : NULL);
    if (strcmp(verb, "watch") == 0)
        return watch(c, o);
    return each(c, args, count, strcmp(verb, "del") == 0);
}

static bool is_verb(const struct cmd_operands *operands)
{
    static const struct {
        const char *name;
        size_t min, max;
    } verbs[] = {{"put", 1, 2},  {"get", 1, 2},  {"del", 1, SIZE_MAX}, {"exists", 1, SIZE_MAX},
                 {"keys", 0, 1}, {"info", 0, 0}, {"watch", 0, 0}};
    size_t count = operands->count - 1;
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(operands->items[0], verbs[i].name) == 0)
            return count >= verbs[i].min && count <= verbs[i].max;
    return false;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct kv_options *o = values;
    char why[RPC_WHY_CHARS];
    struct kv_client *client;
    struct kv_client_options attach = {
        .socket = o->socket, .staging_bytes = KV_NAMED_STAGING, .timeout_ns = o->timeout_ns};
    if (!is_verb(operands))
        return cmd_fail(CMD_USAGE, "kv: use put NAME [FILE], get NAME [FILE], del NAME..., exists"
                                   " NAME..., keys [PATTERN], info or watch; see hawser kv --help");
    int rc = kv_client_open(&attach, &client, why);
    if (rc)
        return cmd_fail(cmd_exit_for(rc), "kv: %s", why);
    enum cmd_exit code = run_verb(client, o, operands);
    kv_client_close(client);
    if (fflush(stdout))
        return cmd_fail(CMD_FAILED, "cannot write the output: %s", strerror(errno));
    return code;
}

const struct cmd_command cmd_kv = {
    .name = "kv",
    .summary = "put, get and delete values of the key-value store",
    .operands = "put|get|del|exists|keys|info|watch [NAME...] [FILE]",
    .operands_min = 1,
    .operands_max = CMD_OPERANDS_MAX,
    .description =
        "put NAME [FILE]    store FILE, or what comes in, under NAME\n"
        "get NAME [FILE]    write the value to FILE, or out\n"
        "del NAME...        delete values\n"
        "exists NAME...     say which are there, and how long they are\n"
        "keys [PATTERN]     names of the values at this host's daemons; * stands for any part of "
        "a\n"
        "                   name, ? for any character\n"
        "info               figures of this host's daemons\n"
        "watch              what happens there, a line each --every\n"
        "\n"
        "Values are blocks of the daemon's cluster, the same that kvd --resp shows to Redis\n"
        "clients.  A name that is not there is a failure.",
    .options = options,
    .environment = environment,
    .examples = "hawser kv put greeting < hello.txt\n"
                "hawser kv get greeting\n"
                "hawser kv info --json",
    .values_size = sizeof(struct kv_options),
    .run = run,
};
