#include "rpc/transport/addr.h"

#include "base/text/ascii.h"
#include "base/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int parse_path(const char *text, const char *path, struct rpc_addr *addr,
                      char why[RPC_WHY_CHARS])
{
    size_t len = strlen(path);
    if (path[0] != '/' || len < 2) {
        snprintf(why, RPC_WHY_CHARS,
                 "\"%.80s\": the path must be absolute, as in unix:/run/hawser.sock", text);
        return -EINVAL;
    }
    if (len >= sizeof addr->path) {
        snprintf(why, RPC_WHY_CHARS,
                 "\"%.80s...\": the path has %zu characters, a socket's can have %zu; use a "
                 "shorter directory",
                 text, len, sizeof addr->path - 1);
        return -ENAMETOOLONG;
    }
    memcpy(addr->path, path, len + 1);
    return 0;
}

static int parse_host_port(const char *text, const char *rest, struct rpc_addr *addr,
                           char why[RPC_WHY_CHARS])
{
    const char *host = rest, *host_end, *port = NULL;
    if (rest[0] == '[') {
        host = rest + 1;
        host_end = strchr(host, ']');
        if (!host_end || (host_end[1] != '\0' && host_end[1] != ':'))
            goto bad;
        if (!memchr(host, ':', (size_t)(host_end - host)))
            goto bad; /* brackets are for IPv6 addresses */
        if (host_end[1] == ':')
            port = host_end + 2;
    } else {
        host_end = strchr(rest, ':');
        if (host_end && strchr(host_end + 1, ':'))
            goto bad; /* an IPv6 address needs brackets */
        if (host_end)
            port = host_end + 1;
        else
            host_end = rest + strlen(rest);
    }
    size_t len = (size_t)(host_end - host);
    uint64_t number = RPC_DEFAULT_PORT;
    if (!port && strspn(host, "0123456789") == len) {
        snprintf(why, RPC_WHY_CHARS,
                 "\"%.80s\" is not an address: a port needs a host before it, as in 127.0.0.1:%.5s",
                 text, rest);
        return -EINVAL;
    }
    if (len >= sizeof addr->host || strcspn(host, " \t/") < len ||
        (port && hw_parse_u64(port, 0, 65535, &number)))
        goto bad;
    memcpy(addr->host, host, len);
    addr->host[len] = '\0';
    if (strcmp(addr->host, "*") == 0)
        addr->host[0] = '\0';
    addr->port = (uint16_t)number;
    return 0;
bad:
    snprintf(why, RPC_WHY_CHARS, "\"%.80s\" is not an address; use %s", text,
             strstr(text, "://") ? "host:port of serve's --listen, without http://"
                                 : "host:port, [ipv6]:port, unix:/path, shm:/path or "
                                   "ucx:host:port");
    return -EINVAL;
}

static const struct {
    const char *prefix;
    enum rpc_scheme scheme;
} schemes[] = {
    {"tcp:", RPC_SCHEME_TCP},
    {"unix:", RPC_SCHEME_UNIX},
    {"shm:", RPC_SCHEME_SHM},
    {"ucx:", RPC_SCHEME_UCX},
};

int rpc_addr_parse(const char *text, struct rpc_addr *out, char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_TCP};
    const char *rest = text;
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        size_t len = strlen(schemes[i].prefix);
        if (hw_ascii_same_start(text, schemes[i].prefix, len)) {
            addr.scheme = schemes[i].scheme;
            rest = text + len;
        }
    }
    bool path = addr.scheme == RPC_SCHEME_UNIX || addr.scheme == RPC_SCHEME_SHM;
    if (!*rest) {
        snprintf(why, RPC_WHY_CHARS, "\"%s\" is not an address: %s", text,
                 *text ? "nothing follows the scheme" : "it is empty");
        return -EINVAL;
    }
    int rc = path ? parse_path(text, rest, &addr, why) : parse_host_port(text, rest, &addr, why);
    if (rc == 0)
        *out = addr;
    return rc;
}

void rpc_addr_format(const struct rpc_addr *addr, char *buf, size_t size)
{
    const char *v6 = strchr(addr->host, ':');
    switch (addr->scheme) {
    case RPC_SCHEME_UNIX:
    case RPC_SCHEME_SHM:
        snprintf(buf, size, "%s:%s", addr->scheme == RPC_SCHEME_UNIX ? "unix" : "shm", addr->path);
        return;
    case RPC_SCHEME_TCP:
    case RPC_SCHEME_UCX:
        snprintf(buf, size, "%s%s%s%s:%u", addr->scheme == RPC_SCHEME_UCX ? "ucx:" : "",
                 v6 ? "[" : "", addr->host[0] ? addr->host : "*", v6 ? "]" : "", addr->port);
        return;
    }
}

bool rpc_addr_is_local(const struct rpc_addr *addr)
{
    if (addr->scheme == RPC_SCHEME_UNIX || addr->scheme == RPC_SCHEME_SHM)
        return true;
    struct in_addr v4;
    struct in6_addr v6;
    if (hw_ascii_same(addr->host, "localhost"))
        return true;
    if (inet_pton(AF_INET, addr->host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, addr->host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

const char *rpc_listen_remedy(enum rpc_scheme scheme, int rc)
{
    bool path = scheme == RPC_SCHEME_UNIX || scheme == RPC_SCHEME_SHM;
    if (rc == -EADDRINUSE)
        return path ? "; another server has it, or it is another kind of file"
                    : "; another server has it, or choose another port";
    if (rc == -ENOENT && path)
        return "; make its folder first";
    if (rc == -EADDRNOTAVAIL)
        return "; no interface of this machine has that address";
    if (rc == -EACCES && !path)
        return "; a port below 1024 needs root, or CAP_NET_BIND_SERVICE";
    return "";
}
