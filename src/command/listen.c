#include "command/listen.h"

#include <netdb.h>

enum cmd_exit cmd_listen_resolve(const char *command, const char *option,
                                 const struct rpc_addr *addr)
{
    struct addrinfo *list, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    if (addr->scheme != RPC_SCHEME_TCP || !addr->host[0])
        return CMD_DONE;
    int rc = getaddrinfo(addr->host, NULL, &hints, &list);
    if (rc)
        return cmd_fail(
            CMD_USAGE,
            "%s: %s: cannot resolve \"%s\": %s; write a name or number of this machine, "
            "such as 127.0.0.1 or 0.0.0.0",
            command, option, addr->host, gai_strerror(rc));
    freeaddrinfo(list);
    return CMD_DONE;
}

enum cmd_exit cmd_listen_read(const char *command, const char *option, const char *text,
                              struct rpc_addr *out)
{
    char why[RPC_WHY_CHARS];
    if (rpc_addr_parse(text, out, why))
        return cmd_fail(CMD_USAGE, "%s: %s: %s", command, option, why);
    return cmd_listen_resolve(command, option, out);
}
