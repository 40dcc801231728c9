/* hawser kvd - the daemons of one member of the key-value store. */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/log.h"
#include "command/connect.h"
#include "command/interrupt.h"
#include "command/kvmembers.h"
#include "command/kvranks.h"
#include "kv/common/cpus.h"
#include "kv/daemon/host.h"
#include "kv/resp/door.h"
#include "kv/store/extents.h"
#include "serve/metrics.h"
#include "serve/ready.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCKS_MIN = 4096, /* less is a unit that was forgotten */
    /* Of each daemon, for small values: what its clients store are blocks. */
    SMALL_BYTES = 1 << 20,
    SMALL_ENTRIES = 1 << 12
};

struct kvd_options {
    const char *socket;
    struct cmd_members_options members;
    uint64_t daemons;
    uint64_t max_clients, heartbeat_ns;
    uint64_t arena_bytes, block_entries, min_copies, tenant_bytes, lease_ns;
    int flush, wait, policy;
    bool numa, insecure, may_flush;
    const char *cert, *key, *token_file, *ca, *fingerprint;
    const char *metrics;
    struct cmd_list resp;
    const char *tenants;
    uint64_t ready_fd;
};

#define AT(field) offsetof(struct kvd_options, field)
static const struct cmd_option options[] = {
    {"socket", 's', CMD_STRING, AT(socket), "where local clients attach; only this user may",
     "PATH", "/tmp/hawser-kvd.sock"},
    {"members", 0, CMD_LIST, AT(members.list),
     "the cluster's members, this one too, which divide the blocks among themselves; each with the "
     "address of its first daemon: each further one takes the next port, or PATH.1 and so on",
     "NAME=ADDR"},
    CMD_ETCD_OPTION(struct kvd_options, members.etcd,
                    "instead of --members: register in etcd and follow who else does"),
    CMD_GROUP_AT(struct kvd_options, members.etcd, cmd_etcd_table),
    {"cluster", 0, CMD_STRING, AT(members.cluster),
     "with --etcd: daemons of one name are one cluster", "NAME", "default"},
    {"name", 0, CMD_STRING, AT(members.name),
     "this member's name; no two of a cluster may have the same.  With --members also as the rank "
     "that mpirun or srun says",
     "NAME"},
    {"listen", 0, CMD_STRING, AT(members.listen),
     "with --etcd: where this member listens and the others reach it", "ADDR"},
    {"member-ttl", 0, CMD_DURATION, AT(members.ttl_ns),
     "with --etcd: a member that is not heard of for so long has left", "TIME", "10s",
     KV_MEMBER_TTL_MIN, KV_MEMBER_TTL_MAX},
    {"daemons", 0, CMD_U64, AT(daemons), "daemon threads; the keys are divided among them", "N",
     "1", 1, KV_DAEMONS_MAX},
    {"blocks", 0, CMD_SIZE, AT(arena_bytes),
     "room for blocks of up to 64MiB, of each daemon.  Memory is taken as it is used", "SIZE",
     "1GiB", BLOCKS_MIN, KV_ARENA_MAX},
    {"block-entries", 0, CMD_U64, AT(block_entries), "blocks of each daemon; about 250 bytes each",
     "N", "65536", 1, KV_BLOCK_ENTRIES_MAX},
    {"copies", 0, CMD_U64, AT(members.copies),
     "of each block, at as many members; the same for all of them", "N", "1", 1, KV_COPIES_MAX},
    {"min-copies", 0, CMD_U64, AT(min_copies),
     "of --copies, what a client's put must reach at once; with fewer it is TOO_FEW.  The others "
     "come later",
     "N", "1", 1, KV_COPIES_MAX},
    {"block-policy", 0, CMD_CHOICE, AT(policy),
     "which block goes when room is needed; see hawser kvreplay", NULL, "s3fifo", 0, 0,
     kv_policy_names},
    {"tenant-max", 0, CMD_SIZE, AT(tenant_bytes),
     "blocks of one tenant at each daemon; 0: no limit but --blocks", "SIZE", "0", 0, KV_ARENA_MAX},
    {"lease", 0, CMD_DURATION, AT(lease_ns),
     "how long a reader keeps a block from being replaced, unless it renews", "TIME", "10s",
     10 * HW_MS, 3600 * HW_SEC},
    {"max-clients", 0, CMD_U64, AT(max_clients),
     "attached at a time, beside the connections of --resp; the next is refused", "N", "256", 1,
     KV_CLIENTS_MAX},
    {"flush", 0, CMD_CHOICE, AT(flush), "when messages to other members are written", NULL,
     "adaptive", 0, 0, cmd_flush_names},
    {"wait", 0, CMD_CHOICE, AT(wait), "how an idle daemon waits", NULL, "adaptive", 0, 0,
     cmd_wait_names},
    {"heartbeat", 0, CMD_DURATION, AT(heartbeat_ns), "a member that is silent for so long is lost",
     "TIME", "2s", 100 * HW_MS, 3600 * HW_SEC},
    {"numa-isolate", 0, CMD_FLAG, AT(numa), "pin each daemon to a core of one memory node"},
    {"cert", 0, CMD_STRING, AT(cert),
     "TLS certificate (PEM) for other members; hawser keygen makes one", "FILE"},
    {"key", 0, CMD_STRING, AT(key), "its private key (PEM, mode 0600)", "FILE"},
    {"ca", 0, CMD_STRING, AT(ca), "other members' certificates must chain to this PEM file",
     "FILE"},
    {"fingerprint", 0, CMD_STRING, AT(fingerprint), "or must have this SHA-256", "HEX"},
    {"token-file", 0, CMD_STRING, AT(token_file),
     "daemons prove to each other that they know this token (mode 0600) [default: this user's on "
     "this host, for TCP on loopback]",
     "FILE"},
    {"insecure", 0, CMD_FLAG, AT(insecure),
     "listen beyond this host without TLS or token: whoever reaches the address may read and write "
     "every key"},
    {"metrics", 0, CMD_STRING, AT(metrics),
     "serve counters over HTTP at host:port of this host: / as text, /metrics for Prometheus, "
     "/json",
     "ADDR"},
    {"resp", 0, CMD_LIST, AT(resp),
     "let Redis clients in at unix:PATH, host:port or tls:host:port; values are blocks.  On "
     "host:port they AUTH with the token of --token-file; beyond this host over TLS",
     "ADDR"},
    {"allow-flush", 0, CMD_FLAG, AT(may_flush),
     "of --resp: FLUSHDB deletes a client's values at this host's daemons"},
    {"tenants", 0, CMD_STRING, AT(tenants),
     "of --resp: lines NAME TOKEN (mode 0600).  A client that AUTHs with such a token sees the "
     "values of that tenant and no others",
     "FILE"},
    SERVE_READY_OPTION(struct kvd_options, ready_fd),
    {NULL},
};

static const struct cmd_env environment[] = {
    CMD_ENV_OF(cmd_rank_env),
    {"VENUS_SOCKET_BUFFER_BYTES", "kernel buffer of a TCP socket, each way [default: 4MiB]"},
    {"NOTIFY_SOCKET", "set by systemd (Type=notify): told when ready"},
    {NULL},
};

struct unit {
    struct kv_host *host;
    pthread_t thread;
    bool started;
    int cpu; /* -1: any */
};

struct kvd {
    const struct kvd_options *o;
    struct rpc_security listen, dial;
    struct cmd_members members;
    struct metrics *metrics;
    struct resp_door *resp[RESP_DOORS_MAX];
    struct resp_tenants *tenants;
    struct unit units[KV_DAEMONS_MAX];
    uint32_t unit_count;
};

/* ---- checks ---- */

/* Every user of this host reaches its TCP ports, so those want a token, too. */
static enum cmd_exit ensure_token(struct kvd *k, const struct rpc_addr *listen)
{
    char why[RPC_WHY_CHARS];
    bool tcp = listen->scheme == RPC_SCHEME_TCP || listen->scheme == RPC_SCHEME_UCX;
    if (!tcp || !rpc_addr_is_local(listen) || k->o->insecure || k->listen.token_len > 0)
        return CMD_DONE;
    if (rpc_security_make_host_token(&k->listen, why) ||
        rpc_security_make_host_token(&k->dial, why))
        return cmd_fail(CMD_FAILED, "kvd: %s", why);
    return CMD_DONE;
}

static enum cmd_exit check_listen(struct kvd *k, const char *option, const struct rpc_addr *listen)
{
    char why[RPC_WHY_CHARS];
    enum cmd_exit code = cmd_listen_resolve("kvd", option, listen);
    if (code != CMD_DONE)
        return code;
    if (rpc_security_check_listen(&k->listen, listen, k->o->insecure, why))
        return cmd_fail(CMD_REFUSED, "kvd: %s", why);
    return ensure_token(k, listen);
}

static bool is_member(const struct kvd *k)
{
    return k->members.name[0] != '\0';
}

static enum cmd_exit check_member(struct kvd *k)
{
    enum cmd_exit code = cmd_members_check(&k->o->members, &k->members);
    if (code != CMD_DONE || !is_member(k))
        return code;
    return check_listen(k, k->o->members.listen ? "--listen" : "--members", &k->members.listen);
}

static enum cmd_exit check_all(struct kvd *k)
{
    char why[RPC_WHY_CHARS];
    const struct kvd_options *o = k->o;
    if (o->min_copies > o->members.copies)
        return cmd_fail(CMD_USAGE, "kvd: --min-copies %llu is more than --copies %llu",
                        (unsigned long long)o->min_copies, (unsigned long long)o->members.copies);
    if (!o->cert != !o->key)
        return cmd_fail(CMD_USAGE, "kvd: --cert and --key go together");
    if (k->o->resp.count > RESP_DOORS_MAX)
        return cmd_fail(CMD_USAGE, "kvd: --resp: more than %d addresses", RESP_DOORS_MAX);
    struct rpc_security_files listen = {
        .certificate = o->cert, .key = o->key, .token_file = o->token_file};
    struct rpc_security_files dial = {
        .ca = o->ca, .fingerprint = o->fingerprint, .token_file = o->token_file};
    int rc = rpc_security_load(&k->listen, &listen, true, why);
    if (rc == 0)
        rc = rpc_security_load(&k->dial, &dial, false, why);
    return rc ? cmd_fail(cmd_exit_for_security(rc), "kvd: %s", why) : check_member(k);
}

/* ---- running ---- */

static void *unit_main(void *user)
{
    struct unit *u = user;
    if (u->cpu >= 0 && kv_cpus_pin((uint32_t)u->cpu))
        cmd_warn("kvd: cannot run on core %d: %s", u->cpu, strerror(errno));
    kv_host_run(u->host);
    return NULL;
}

static enum cmd_exit create_unit(struct kvd *k, uint32_t index)
{
    const struct kvd_options *o = k->o;
    uint32_t sessions = (uint32_t)o->resp.count * RESP_SESSIONS_MAX; /* each may be a client */
    uint32_t clients = (uint32_t)o->max_clients + sessions;
    struct kv_host_options host = {
        .ranks = 1,
        .index = index,
        .daemons = (uint32_t)o->daemons,
        .socket = o->socket,
        .addrs = is_member(k) ? &k->members.listen : NULL,
        .member = is_member(k) ? k->members.name : NULL,
        .fixed_members = o->members.list.count > 0,
        .copies = (uint32_t)o->members.copies,
        .min_copies = (uint32_t)o->min_copies,
        .listen_security = &k->listen,
        .dial_security = &k->dial,
        .store_bytes = SMALL_BYTES,
        .store_entries = SMALL_ENTRIES,
        .max_clients = clients < KV_CLIENTS_MAX ? clients : KV_CLIENTS_MAX,
        .arena_bytes = o->arena_bytes,
        .blocks = {.entries = (uint32_t)o->block_entries,
                   .open_puts = KV_BLOCK_PUTS_DEFAULT + sessions,
                   .leases = KV_BLOCK_LEASES_DEFAULT + sessions * RESP_LEASES_MAX,
                   .policy = (enum kv_policy_kind)o->policy,
                   .tenant_bytes = o->tenant_bytes,
                   .lease_lasts_ns = o->lease_ns},
        .flush = (enum rpc_flush_policy)o->flush,
        .wait = (enum rpc_wait_mode)o->wait,
        .heartbeat_ns = o->heartbeat_ns,
    };
    char why[RPC_WHY_CHARS];
    if (kv_host_create(&host, &k->units[index].host, why))
        return cmd_fail(CMD_FAILED, "kvd: %s", why);
    k->unit_count++;
    return CMD_DONE;
}

static void place_units(struct kvd *k)
{
    struct kv_cpus cpus;
    struct kv_cpus_share share = {.ranks = 1, .daemons = (uint32_t)k->o->daemons};
    bool pin = k->o->numa && kv_cpus_init(&cpus) == 0;
    for (uint32_t i = 0; i < k->unit_count; i++)
        k->units[i].cpu = pin ? (int)kv_cpus_of_daemon(&cpus, &share, i) : -1;
}

static struct kvd *stoppable; /* for the signal handler; set before it is installed */

static void on_signal(int number)
{
    (void)number;
    cmd_members_stop(&stoppable->members);
    for (uint32_t i = 0; i < stoppable->unit_count; i++)
        kv_host_stop(stoppable->units[i].host);
}

static void catch_signals(struct kvd *k)
{
    stoppable = k;
    cmd_on_stop(on_signal);
}

static enum cmd_exit start_metrics(struct kvd *k)
{
    struct rpc_addr addr;
    enum cmd_exit code = metrics_check("kvd", k->o->metrics, k->o->insecure, &addr);
    return code == CMD_DONE && k->o->metrics ? metrics_start("kvd", &addr, &k->metrics) : code;
}

/* Beyond this host with TLS and a token; on TCP of this host a token tells its users apart. */
static enum cmd_exit check_resp(const struct kvd *k, const char *at,
                                const struct resp_door_options *o)
{
    bool token = o->password_len > 0 || o->tenants;
    if (o->addr.scheme != RPC_SCHEME_TCP && (o->tls || o->addr.scheme != RPC_SCHEME_UNIX))
        return cmd_fail(CMD_USAGE,
                        "kvd: --resp: '%s' is neither host:port nor tls:host:port nor unix:PATH",
                        at);
    if (o->open || k->o->insecure || (token && (o->tls || rpc_addr_is_local(&o->addr))))
        return CMD_DONE;
    return cmd_fail(CMD_REFUSED,
                    "kvd: --resp: %s may reach %s: use unix:PATH, or --token-file or --tenants "
                    "with an address of this host or with tls:host:port, or --insecure",
                    rpc_addr_is_local(&o->addr) ? "every user of this host" : "others", at);
}

static enum cmd_exit read_resp(const struct kvd *k, const char *at, struct resp_door_options *o)
{
    bool tls = strncmp(at, "tls:", 4) == 0;
    if (tls && !k->listen.tls)
        return cmd_fail(CMD_USAGE,
                        "kvd: --resp %s: give --cert and --key, too; hawser keygen makes "
                        "them",
                        at);
    o->tls = tls ? k->listen.tls : NULL;
    enum cmd_exit code = cmd_listen_read("kvd", "--resp", at + (tls ? 4 : 0), &o->addr);
    o->open =
        code == CMD_DONE && o->addr.scheme == RPC_SCHEME_UNIX; /* only this user may open it */
    return code == CMD_DONE ? check_resp(k, at, o) : code;
}

static enum cmd_exit open_resp(struct kvd *k, const char *at, struct resp_door_options *o,
                               struct resp_door **door)
{
    char why[RPC_WHY_CHARS], text[RPC_ADDR_HOST_CHARS + 16];
    enum cmd_exit code = read_resp(k, at, o);
    if (code != CMD_DONE)
        return code;
    if (resp_door_open(o, door, why))
        return cmd_fail(CMD_FAILED, "kvd: --resp: %s", why);
    rpc_addr_format(resp_door_addr(*door), text, sizeof(text));
    printf("Redis clients at %s%s\n", o->tls ? "tls:" : "", text);
    return CMD_DONE;
}

static enum cmd_exit open_resps(struct kvd *k)
{
    char why[RPC_WHY_CHARS];
    const struct cmd_list *resp = &k->o->resp;
    enum cmd_exit code = CMD_DONE;
    struct resp_door_options o = {.socket = k->o->socket,
                                  .password = k->listen.token,
                                  .password_len = k->listen.host_token ? 0 : k->listen.token_len};
    if (resp->count == 0 && (k->o->tenants || k->o->may_flush))
        return cmd_fail(CMD_USAGE, "kvd: --tenants and --allow-flush are for --resp");
    if (k->o->tenants && resp_tenants_load(k->o->tenants, &k->tenants, why))
        return cmd_fail(CMD_FAILED, "kvd: %s", why);
    o.tenants = k->tenants;
    o.store = (struct resp_store){.room = k->o->arena_bytes * k->o->daemons,
                                  .policy = (enum kv_policy_kind)k->o->policy};
    o.may_flush = k->o->may_flush;
    o.host_count = k->unit_count;
    for (uint32_t i = 0; i < k->unit_count; i++)
        o.hosts[i] = k->units[i].host;
    for (size_t i = 0; i < resp->count && code == CMD_DONE; i++)
        code = open_resp(k, resp->items[i], &o, &k->resp[i]);
    return code;
}

/* From the members' thread, or before it starts. */
static void on_view(void *user, const struct kv_view *view)
{
    struct kvd *k = user;
    for (uint32_t i = 0; i < k->unit_count; i++)
        if (kv_host_set_view(k->units[i].host, view))
            hw_warn(HW_CAT_KV, "daemon %u keeps its view: epoch %llu is not newer", i,
                    (unsigned long long)view->epoch);
}

static enum cmd_exit say_ready(const struct kvd *k)
{
    printf("attach at %s, ", k->o->socket);
    if (is_member(k))
        printf("member %s, ", k->members.name);
    printf("%u daemon%s", k->unit_count, k->unit_count == 1 ? "" : "s");
    for (uint32_t i = 0; i < k->unit_count && is_member(k); i++)
        printf("%s%s", i ? ", " : ", listening on ", kv_host_address(k->units[i].host));
    printf("\n");
    return serve_say_ready("kvd", (int)k->o->ready_fd);
}

static enum cmd_exit serve(struct kvd *k)
{
    enum cmd_exit code = check_all(k);
    for (uint32_t i = 0; i < k->o->daemons && code == CMD_DONE; i++)
        code = create_unit(k, i);
    if (code == CMD_DONE)
        code = start_metrics(k);
    if (code != CMD_DONE)
        return code;
    place_units(k);
    catch_signals(k);
    for (uint32_t i = 0; i < k->unit_count; i++) {
        struct unit *u = &k->units[i];
        u->started = pthread_create(&u->thread, NULL, unit_main, u) == 0;
        if (!u->started) {
            on_signal(0);
            code = cmd_fail(CMD_FAILED, "kvd: cannot start a thread");
        }
    }
    if (code == CMD_DONE && is_member(k))
        code = cmd_members_start(&k->members, on_view, k);
    if (code == CMD_DONE && !k->members.stopping)
        code = open_resps(k);
    if (code == CMD_DONE && !k->members.stopping)
        code = say_ready(k);
    if (code != CMD_DONE)
        on_signal(0);
    for (uint32_t i = 0; i < k->unit_count; i++)
        if (k->units[i].started)
            pthread_join(k->units[i].thread, NULL);
    cmd_on_stop(SIG_DFL);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    struct kvd *k = calloc(1, sizeof(*k));
    if (!k)
        return cmd_fail(CMD_FAILED, "out of memory");
    k->o = values;
    cmd_raise_files();
    enum cmd_exit code = serve(k);
    for (size_t i = 0; i < RESP_DOORS_MAX; i++)
        resp_door_close(k->resp[i]);
    resp_tenants_free(k->tenants);
    cmd_members_fini(&k->members);
    for (uint32_t i = 0; i < k->unit_count; i++)
        kv_host_destroy(k->units[i].host);
    metrics_stop(k->metrics);
    rpc_security_fini(&k->listen);
    rpc_security_fini(&k->dial);
    free(k);
    return code;
}

const struct cmd_command cmd_kvd = {
    .name = "kvd",
    .summary = "run the key-value store, alone or as a member of a cluster",
    .operands = "",
    .description =
        "Serves local clients through shared memory and other members through copyrpc, until "
        "SIGINT, SIGTERM or SIGHUP; then removes its sockets.  With --members or --etcd blocks are "
        "shared by a cluster, whose members must be given the same --daemons and --copies; "
        "docs/design/cluster.md says how.  Prints one line, \"attach at ...\", when clients can "
        "attach.",
    .options = options,
    .environment = environment,
    .examples = "hawser kvd\n"
                "hawser kvd --blocks 64GiB --etcd http://10.0.0.9:2379 --cluster kv \\\n"
                "    --name kv0 --listen 10.0.0.1:28200 --cert server.crt --key server.key \\\n"
                "    --token-file token\n"
                "hawser kvd --members a=10.0.0.1:28200,b=10.0.0.2:28200 --name a --copies 2 \\\n"
                "    --cert server.crt --key server.key --ca server.crt --token-file token",
    .values_size = sizeof(struct kvd_options),
    .run = run,
};
