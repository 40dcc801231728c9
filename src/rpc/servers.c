#include "rpc/servers.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char separators[] = ", ";

/* A numeric IPv6 host takes brackets in an address, but not in VENUS_SERVER_HOST. */
static void put_host_and_port(char out[RPC_SERVER_CHARS])
{
    const char *host = getenv("VENUS_SERVER_HOST");
    uint64_t port;
    (void)hw_env_u64("VENUS_SERVER_PORT", RPC_DEFAULT_PORT, 1, UINT16_MAX, &port);
    if (!host || !*host)
        host = "127.0.0.1";
    bool brackets = strchr(host, ':') && host[0] != '[';
    snprintf(out, RPC_SERVER_CHARS, "%s%s%s:%u", brackets ? "[" : "", host, brackets ? "]" : "",
             (unsigned)port);
}

const char *rpc_servers_from_env(char buf[RPC_SERVER_CHARS])
{
    const char *list = getenv("VENUS_SERVERS");
    if (list && *list)
        return list;
    put_host_and_port(buf);
    return buf;
}

bool rpc_servers_named(void)
{
    static const char *const names[] = {"VENUS_SERVERS", "VENUS_SERVER_HOST", "VENUS_SERVER_PORT"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return true;
    }
    return false;
}

bool rpc_servers_next(const char **list, char out[RPC_SERVER_CHARS])
{
    *list += strspn(*list, separators);
    size_t len = strcspn(*list, separators);
    snprintf(out, RPC_SERVER_CHARS, "%.*s", (int)len, *list);
    *list += len;
    return len > 0;
}
