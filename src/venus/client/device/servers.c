/* Server addresses from the environment; see servers.h. */
#include "venus/client/device/servers.h"

#include "base/log.h"
#include "rpc/servers.h"

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

uint32_t vnc_servers_from_env(struct rpc_addr *out, uint32_t max)
{
    char buf[RPC_SERVER_CHARS], text[RPC_SERVER_CHARS];
    const char *list = rpc_servers_from_env(buf);
    uint32_t count = 0;
    while (rpc_servers_next(&list, text))
        count = add(text, out, count, max);
    return count;
}
