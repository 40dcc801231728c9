#include "command/etcd.h"

#include "kv/cluster/etcd.h"
#include "rpc/security/security.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct cmd_etcd_options, field)
const struct cmd_option cmd_etcd_table[] = {
    {"etcd-ca", 0, CMD_STRING, AT(ca),
     "etcd's certificate must chain to this PEM file [default: to the system's authorities]",
     "FILE"},
    {"etcd-cert", 0, CMD_STRING, AT(cert), "the certificate (PEM) that etcd is shown", "FILE"},
    {"etcd-key", 0, CMD_STRING, AT(key), "its private key (PEM, mode 0600)", "FILE"},
    {"etcd-login", 0, CMD_STRING, AT(login),
     "a file (mode 0600) with NAME:PASSWORD of a user of etcd", "FILE"},
    {NULL},
};

enum { LOGIN_BYTES_MAX = 2 * KV_ETCD_LOGIN_MAX + 2, KEY_BYTES_MAX = 1 << 20 };

static enum cmd_exit load_login(const char *command, const char *path, struct cmd_etcd *e)
{
    char why[RPC_WHY_CHARS];
    size_t len;
    if (rpc_security_read("--etcd-login", path, true, LOGIN_BYTES_MAX, &e->login, &len, why))
        return cmd_fail(CMD_FAILED, "%s: %s", command, why);
    e->login[strcspn(e->login, "\r\n")] = '\0';
    char *colon = strchr(e->login, ':');
    if (!colon || colon == e->login || !colon[1])
        return cmd_fail(CMD_FAILED, "%s: --etcd-login: %s has no line NAME:PASSWORD", command,
                        path);
    *colon = '\0';
    e->access.user = e->login;
    e->access.password = colon + 1;
    return CMD_DONE;
}

/* Only checks it: libcurl reads it by name. */
static enum cmd_exit check_key(const char *command, const char *path)
{
    char why[RPC_WHY_CHARS], *data;
    size_t len;
    if (rpc_security_read("--etcd-key", path, true, KEY_BYTES_MAX, &data, &len, why))
        return cmd_fail(CMD_FAILED, "%s: %s", command, why);
    explicit_bzero(data, len);
    free(data);
    return CMD_DONE;
}

static bool is_tls(const char *url)
{
    return strncmp(url, "https://", 8) == 0;
}

static enum cmd_exit check_url(const char *command, const struct cmd_etcd_options *o,
                               const char *url)
{
    struct rpc_addr addr;
    char why[RPC_WHY_CHARS];
    if (is_tls(url))
        return CMD_DONE;
    if (o->ca || o->cert || o->key)
        return cmd_fail(CMD_USAGE,
                        "%s: --etcd: %s has no TLS: use https:// with --etcd-ca and "
                        "--etcd-cert",
                        command, url);
    if (o->login && (rpc_addr_parse(url + 7, &addr, why) || !rpc_addr_is_local(&addr)))
        return cmd_fail(CMD_REFUSED,
                        "%s: --etcd: %s would carry the password of --etcd-login for all to read: "
                        "use https://",
                        command, url);
    return CMD_DONE;
}

static enum cmd_exit check(const char *command, const struct cmd_etcd_options *o,
                           struct cmd_etcd *e)
{
    char why[RPC_WHY_CHARS];
    enum cmd_exit code = CMD_DONE;
    if (!o->urls.count) {
        if (o->ca || o->cert || o->key || o->login)
            return cmd_fail(CMD_USAGE, "%s: --etcd-... are for --etcd", command);
        return CMD_DONE;
    }
    if (!o->cert != !o->key)
        return cmd_fail(CMD_USAGE, "%s: --etcd-cert and --etcd-key go together", command);
    for (size_t i = 0; i < o->urls.count && code == CMD_DONE; i++) {
        if (kv_members_endpoint(&e->access, o->urls.items[i], why))
            return cmd_fail(CMD_USAGE, "%s: --etcd: %s", command, why);
        code = check_url(command, o, e->access.urls[i]);
    }
    if (code == CMD_DONE && o->key)
        code = check_key(command, o->key);
    if (code == CMD_DONE && o->login)
        code = load_login(command, o->login, e);
    return code;
}

enum cmd_exit cmd_etcd_check(const char *command, const struct cmd_etcd_options *o,
                             struct cmd_etcd *e)
{
    *e = (struct cmd_etcd){.access.tls = {.ca = o->ca, .cert = o->cert, .key = o->key}};
    enum cmd_exit code = check(command, o, e);
    if (code != CMD_DONE)
        cmd_etcd_fini(e);
    return code;
}

void cmd_etcd_fini(struct cmd_etcd *e)
{
    if (e->login)
        explicit_bzero(e->login, strlen(e->access.user ? e->access.user : ""));
    if (e->access.password)
        explicit_bzero((char *)(uintptr_t)e->access.password, strlen(e->access.password));
    free(e->login);
    *e = (struct cmd_etcd){.login = NULL};
}

enum cmd_exit cmd_etcd_exit(int rc)
{
    switch (rc) {
    case -ECANCELED:
        return CMD_DONE;
    case -EEXIST:
    case -EUSERS:
        return CMD_REFUSED;
    case -EINVAL:
        return CMD_USAGE;
    case -ETIMEDOUT:
        return CMD_UNREACHABLE;
    default:
        return CMD_FAILED;
    }
}
