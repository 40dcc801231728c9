#include "serve/discovery.h"

#include "base/log.h"
#include "kv/cluster/view.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#define AT(field) offsetof(struct discovery_options, field)
const struct cmd_option discovery_table[] = {
    CMD_GROUP_AT(struct discovery_options, etcd, cmd_etcd_table),
    {"cluster", 0, CMD_STRING, AT(cluster),
     "with --etcd: gateways find the workers of their own cluster", "NAME", "default"},
    {"member-ttl", 0, CMD_DURATION, AT(ttl_ns),
     "with --etcd: a worker that is not heard of for so long has left", "TIME", "10s",
     KV_MEMBER_TTL_MIN, KV_MEMBER_TTL_MAX},
    {NULL},
};

enum { JOIN_LEASES = 2 }; /* that a start waits for etcd */

static const char worker_prefix[] = "worker.", gateway_prefix[] = "gateway.";

struct discovery {
    discovery_fn *changed; /* NULL: a worker's */
    void *user;
    struct cmd_etcd etcd;
    char cluster[KV_CLUSTER_NAME_CHARS];
    char name[KV_MEMBER_NAME_CHARS], address[KV_MEMBER_ADDRESS_CHARS];
    struct kv_members *members;
};

static void on_change(void *user, const struct kv_view *view)
{
    struct discovery *d = user;
    struct rpc_addr addrs[KV_MEMBERS_MAX];
    char why[RPC_WHY_CHARS];
    size_t count = 0;
    for (uint32_t i = 0; d->changed && i < view->count; i++) {
        const struct kv_member *m = &view->members[i];
        if (strncmp(m->name, worker_prefix, sizeof worker_prefix - 1) != 0)
            continue;
        if (rpc_addr_parse(m->address, &addrs[count], why))
            hw_warn(HW_CAT_NET, "etcd names a worker that is no address: %s", why);
        else
            count++;
    }
    if (d->changed)
        d->changed(d->user, addrs, count);
}

static enum cmd_exit read_options(const char *command, const struct discovery_options *o,
                                  struct discovery *d)
{
    enum cmd_exit code = cmd_etcd_check(command, &o->etcd, &d->etcd);
    if (code != CMD_DONE)
        return code;
    /* Not the same keys as the KV daemons of a cluster of this name. */
    int len = snprintf(d->cluster, sizeof d->cluster, "llm.%s", o->cluster);
    if (len >= (int)sizeof d->cluster || kv_members_check_name(d->cluster))
        return cmd_fail(CMD_USAGE,
                        "%s: --cluster: '%s' has characters other than A-Z a-z 0-9 . _ -, or more "
                        "than %d",
                        command, o->cluster, (int)sizeof d->cluster - 5);
    return CMD_DONE;
}

/* A worker is named by its address, which no other has; a gateway by chance. */
static enum cmd_exit choose_name(const char *command, const char *address, struct discovery *d)
{
    struct rpc_addr addr;
    char why[RPC_WHY_CHARS];
    uint64_t chance = hw_now_ns();
    if (!address) {
        (void)!getrandom(&chance, sizeof chance, 0);
        snprintf(d->name, sizeof d->name, "%s%016llx", gateway_prefix, (unsigned long long)chance);
        snprintf(d->address, sizeof d->address, "127.0.0.1:1"); /* nobody asks a gateway */
        return CMD_DONE;
    }
    if (rpc_addr_parse(address, &addr, why))
        return cmd_fail(CMD_USAGE, "%s: --advertise: %s", command, why);
    bool anywhere =
        addr.scheme == RPC_SCHEME_TCP &&
        (!addr.host[0] || strcmp(addr.host, "0.0.0.0") == 0 || strcmp(addr.host, "::") == 0);
    if (anywhere)
        return cmd_fail(CMD_USAGE,
                        "%s: gateways cannot reach '%s': give --advertise host:port, this worker's "
                        "address for them",
                        command, address);
    rpc_addr_format(&addr, d->address, sizeof d->address);
    /* Readable, but for the end of a long one. */
    snprintf(d->name, sizeof d->name, "%s%.36s.%016llx", worker_prefix, d->address,
             (unsigned long long)XXH3_64bits(d->address, strlen(d->address)));
    for (char *c = d->name; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            *c = '-';
    }
    return CMD_DONE;
}

static enum cmd_exit join(const char *command, const struct discovery_options *o,
                          struct discovery *d)
{
    char why[RPC_WHY_CHARS];
    struct kv_members_options options = {.etcd = &d->etcd.access,
                                         .cluster = d->cluster,
                                         .name = d->name,
                                         .address = d->address,
                                         .ttl_ns = o->ttl_ns,
                                         .changed = on_change,
                                         .user = d};
    int rc = kv_members_start(&options, &d->members, why);
    if (rc == 0)
        rc = kv_members_wait(d->members, JOIN_LEASES * o->ttl_ns, why);
    if (rc == 0)
        return CMD_DONE;
    return cmd_fail(rc == -ECANCELED ? CMD_FAILED : cmd_etcd_exit(rc), "%s: --etcd: %s", command,
                    why);
}

enum cmd_exit discovery_start(const char *command, const struct discovery_options *o,
                              const char *address, discovery_fn *changed, void *user,
                              struct discovery **out)
{
    struct discovery *d = calloc(1, sizeof *d);
    if (!d)
        return cmd_fail(CMD_FAILED, "%s: out of memory", command);
    d->changed = changed;
    d->user = user;
    enum cmd_exit code = read_options(command, o, d);
    if (code == CMD_DONE)
        code = choose_name(command, address, d);
    if (code == CMD_DONE)
        code = join(command, o, d);
    if (code != CMD_DONE) {
        discovery_stop(d);
        return code;
    }
    *out = d;
    return CMD_DONE;
}

void discovery_stop(struct discovery *d)
{
    if (!d)
        return;
    kv_members_destroy(d->members);
    cmd_etcd_fini(&d->etcd);
    free(d);
}
