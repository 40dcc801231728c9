/* Server addresses from the environment; see servers.h. */
#include "venus/client/servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"

enum { ADDRESS_CHARS = RPC_ADDR_HOST_CHARS + 64 };

/* A numeric IPv6 host takes brackets in an address, but not in VENUS_SERVER_HOST. */
static void host_and_port(char *out, size_t size)
{
    const char *host = getenv("VENUS_SERVER_HOST");
    uint64_t port;
    (void)hw_env_u64("VENUS_SERVER_PORT", RPC_DEFAULT_PORT, 1, UINT16_MAX, &port);
    if (!host || !*host)
        host = "127.0.0.1";
    bool brackets = strchr(host, ':') && host[0] != '[';
    snprintf(out, size, "%s%s%s:%u", brackets ? "[" : "", host, brackets ? "]" : "",
             (unsigned)port);
}

static uint32_t add(const char *text, struct rpc_addr *out, uint32_t count, uint32_t max)
{
    char why[RPC_WHY_CHARS];
    if (count == max) {
        hw_warn(HW_CAT_VULKAN, "VENUS_SERVERS: more than %u servers; %s is left out", max, text);
        return count;
    }
    if (rpc_addr_parse(text, &out[count], why)) {
        hw_warn(HW_CAT_VULKAN, "no GPU of %s: %s", text, why);
        return count;
    }
    return count + 1;
}

uint32_t vn_servers_from_env(struct rpc_addr *out, uint32_t max)
{
    const char *list = getenv("VENUS_SERVERS");
    char text[ADDRESS_CHARS];
    uint32_t count = 0;
    if (!list || !*list) {
        host_and_port(text, sizeof(text));
        return add(text, out, 0, max);
    }
    while (*list) {
        list += strspn(list, ", ");
        size_t len = strcspn(list, ", ");
        if (len == 0)
            break;
        snprintf(text, sizeof(text), "%.*s", (int)len, list);
        count = add(text, out, count, max);
        list += len;
    }
    return count;
}
