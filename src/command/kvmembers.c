#include "command/kvmembers.h"

#include "command/kvranks.h"

#include <stdio.h>
#include <string.h>

/* So many leases etcd may take to let us in: time to start with us, and for a lease that an earlier
 * life left to lapse. */
enum { JOIN_LEASES = 2 };

/* ---- options ---- */

/* The name of a list's item, before its '='. */
static void name_of_item(const char *item, char out[KV_MEMBER_NAME_CHARS])
{
    snprintf(out, KV_MEMBER_NAME_CHARS, "%.*s", (int)strcspn(item, "="), item);
}

static enum cmd_exit check_list(const struct cmd_members_options *o, struct cmd_members *m)
{
    char why[RPC_WHY_CHARS];
    uint32_t rank;
    if (o->listen)
        return cmd_fail(CMD_USAGE, "kvd: --listen is for --etcd; with --members the list says it");
    if (kv_members_list(o->list.items, o->list.count, &m->list, why))
        return cmd_fail(CMD_USAGE, "kvd: --members: %s", why);
    if (o->copies > o->list.count)
        return cmd_fail(CMD_USAGE, "kvd: --copies %llu are more than the %zu of --members",
                        (unsigned long long)o->copies, o->list.count);
    if (o->name)
        snprintf(m->name, sizeof(m->name), "%.*s", KV_MEMBER_NAME_CHARS - 1, o->name);
    else if (cmd_launched_rank(&rank) && rank < o->list.count)
        name_of_item(o->list.items[rank], m->name);
    else
        return cmd_fail(CMD_USAGE, "kvd: --members needs --name: which of them this is");
    const struct kv_member *own = kv_view_find(&m->list, kv_member_id(m->name));
    if (!own)
        return cmd_fail(CMD_USAGE, "kvd: --name: %s is not in --members", m->name);
    snprintf(m->address, sizeof(m->address), "%s", own->address);
    return CMD_DONE;
}

static enum cmd_exit check_etcd(const struct cmd_members_options *o, struct cmd_members *m)
{
    if (!o->name || !o->listen)
        return cmd_fail(CMD_USAGE, "kvd: --etcd needs --name and --listen");
    if (kv_members_check_name(o->name) || kv_members_check_name(o->cluster))
        return cmd_fail(CMD_USAGE,
                        "kvd: --name and --cluster must be 1 to %d characters of A-Z a-z 0-9 . _ -",
                        KV_MEMBER_NAME_CHARS - 1);
    if (strlen(o->listen) >= sizeof(m->address))
        return cmd_fail(CMD_USAGE, "kvd: --listen: an address of %zu characters is too long",
                        strlen(o->listen));
    snprintf(m->name, sizeof(m->name), "%s", o->name);
    snprintf(m->address, sizeof(m->address), "%s", o->listen);
    return CMD_DONE;
}

enum cmd_exit cmd_members_check(const struct cmd_members_options *o, struct cmd_members *m)
{
    char why[RPC_WHY_CHARS];
    *m = (struct cmd_members){.options = o};
    enum cmd_exit code = cmd_etcd_check("kvd", &o->etcd, &m->etcd);
    if (code != CMD_DONE)
        return code;
    if (o->list.count && o->etcd.urls.count)
        return cmd_fail(CMD_USAGE, "kvd: --members or --etcd, not both");
    if (!o->list.count && !o->etcd.urls.count) {
        if (o->name || o->listen)
            return cmd_fail(CMD_USAGE, "kvd: --name and --listen are for --members and --etcd");
        if (o->copies > 1)
            return cmd_fail(CMD_USAGE,
                            "kvd: --copies %llu are at as many members: give --members or --etcd",
                            (unsigned long long)o->copies);
        return CMD_DONE;
    }
    code = o->etcd.urls.count ? check_etcd(o, m) : check_list(o, m);
    if (code == CMD_DONE && rpc_addr_parse(m->address, &m->listen, why))
        return cmd_fail(CMD_USAGE, "kvd: --listen: %s", why);
    return code;
}

/* ---- running ---- */

static enum cmd_exit why_not(int rc, const char *why)
{
    enum cmd_exit code = cmd_etcd_exit(rc);
    if (code == CMD_DONE)
        return code;
    return cmd_fail(code, "kvd: %s%s",
                    code == CMD_UNREACHABLE ? "no place in the cluster yet: " : "", why);
}

enum cmd_exit cmd_members_start(struct cmd_members *m, kv_members_fn *changed, void *user)
{
    const struct cmd_members_options *o = m->options;
    if (!o->etcd.urls.count) {
        changed(user, &m->list);
        return CMD_DONE;
    }
    struct kv_members_options options = {.etcd = &m->etcd.access,
                                         .cluster = o->cluster,
                                         .name = m->name,
                                         .address = m->address,
                                         .ttl_ns = o->ttl_ns,
                                         .changed = changed,
                                         .user = user};
    struct kv_members *following;
    char why[RPC_WHY_CHARS];
    int rc = kv_members_start(&options, &following, why);
    if (rc)
        return why_not(rc, why);
    m->following = following;
    if (m->stopping)
        kv_members_stop(following);
    rc = kv_members_wait(following, JOIN_LEASES * o->ttl_ns, why);
    return rc ? why_not(rc, why) : CMD_DONE;
}

void cmd_members_stop(struct cmd_members *m)
{
    m->stopping = true;
    struct kv_members *following = m->following;
    if (following)
        kv_members_stop(following);
}

void cmd_members_fini(struct cmd_members *m)
{
    kv_members_destroy(m->following);
    m->following = NULL;
    cmd_etcd_fini(&m->etcd);
}
