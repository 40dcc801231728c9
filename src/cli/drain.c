/* hawser drain - takes a worker out of service, or back into it. */
#include "cli/commands.h"
#include "command/connect.h"
#include "llm/worker/connection.h"
#include "rpc/servers.h"

#include <stdio.h>

struct drain_options {
    bool undo;
    struct cmd_connect_options connect;
};

static const struct cmd_option options[] = {
    {.name = "undo",
     .kind = CMD_FLAG,
     .offset = offsetof(struct drain_options, undo),
     .help = "take texts again"},
    CMD_CONNECT_OPTIONS(struct drain_options, connect),
    {NULL},
};

static const struct cmd_env environment[] = {
    CMD_CONNECT_ENV,
    {"VENUS_LOG_LEVEL", "NONE, ERROR, WARN, INFO, DEBUG or TRACE [default: WARN]"},
    {NULL},
};

static enum cmd_exit drain(const struct drain_options *o, const struct rpc_addr *addr,
                           const struct rpc_security *security)
{
    char why[LLM_WHY_CHARS];
    uint32_t running = 0;
    struct llm_connection *conn;
    struct rpc_net_options net = {.security = security, .timeout_ns = o->connect.timeout_ns};
    struct rpc_config config = {.security = security, .name = "hawser drain"};
    int rc = llm_connection_open(addr, &net, &config, &conn, why);
    if (rc)
        return cmd_fail(cmd_exit_for(rc), "drain: %s", why);
    rc = llm_connection_drain(conn, o->undo, &running, why);
    llm_connection_close(conn);
    if (rc)
        return cmd_fail(CMD_FAILED, "drain: %s", why);
    if (o->undo)
        printf("the worker takes texts again\n");
    else
        printf("the worker drains: %u texts go on elsewhere\n", running);
    return CMD_DONE;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct drain_options *o = values;
    char why[RPC_WHY_CHARS];
    struct rpc_addr addr;
    struct rpc_security security;
    struct rpc_security_files files = {.ca = o->connect.ca,
                                       .fingerprint = o->connect.fingerprint,
                                       .token_file = o->connect.token_file};
    if (rpc_addr_parse(operands->items[0], &addr, why))
        return cmd_fail(CMD_USAGE, "drain: %s", why);
    if (rpc_security_from_env(&security, &files, why))
        return cmd_fail(CMD_FAILED, "drain: %s", why);
    enum cmd_exit code = drain(o, &addr, &security);
    rpc_security_fini(&security);
    return code;
}

const struct cmd_command cmd_drain = {
    .name = "drain",
    .summary = "take a worker out of service, before it is stopped",
    .operands = "ADDR",
    .operands_min = 1,
    .operands_max = 1,
    .description =
        "The worker at ADDR takes no new texts and ends those that it has; a gateway goes on with\n"
        "them at other workers.  Stop the worker then, or let it take texts again with --undo.",
    .options = options,
    .environment = environment,
    .examples = "hawser drain gpu1:28100\n"
                "hawser drain --undo gpu1:28100",
    .values_size = sizeof(struct drain_options),
    .run = run,
};
