/* stranger.c - a server of another time: it shakes hands, says that it speaks a Vulkan protocol of
 * the version given, and refuses to open an instance in any other.
 *
 *   venus-stranger ADDRESS VERSION   until it is killed; says "listening on ADDRESS" first */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc/server.h"
#include "venus/common/protocol.h"

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    (void)user;
    if (msg->kind == RPC_CALL)
        (void)rpc_reply(ep, msg, msg->method == VN_METHOD_OPEN ? -EPROTONOSUPPORT : -ENOSYS, NULL);
    rpc_release(ep, msg);
}

int main(int argc, char **argv)
{
    static const struct rpc_server_ops ops = {.message = on_message};
    struct rpc_server_options options = {.ops = &ops};
    struct rpc_server *server;
    struct rpc_addr addr;
    const char *bound;
    char why[RPC_WHY_CHARS] = "out of memory";
    if (argc != 3)
        return 2;
    options.config.capabilities = (uint32_t)strtoul(argv[2], NULL, 10);
    if (rpc_addr_parse(argv[1], &addr, why) || rpc_server_create(&options, &server) ||
        rpc_server_listen(server, &addr, &(struct rpc_net_options){0}, &bound, why)) {
        fprintf(stderr, "stranger: %s\n", why);
        return 1;
    }
    printf("listening on %s\n", bound);
    fflush(stdout);
    rpc_server_run(server);
    rpc_server_destroy(server);
    return 0;
}
