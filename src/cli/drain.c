/* hawser drain - a worker gives its texts back and takes no new ones. */
#include "cli/commands.h"
#include "command/llm_client.h"

#include <stdio.h>

struct drain_options {
    struct cmd_connect_options connect;
    bool undo;
};

#define AT(field) offsetof(struct drain_options, field)
static const struct cmd_option options[] = {
    {"undo", 0, CMD_FLAG, AT(undo), "the worker takes texts again"},
    CMD_GROUP_AT(struct drain_options, connect, cmd_connect_table),
    {NULL},
};

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct drain_options *o = values;
    struct llm_connection *conn;
    char why[LLM_WHY_CHARS];
    uint32_t texts;
    enum cmd_exit code = llm_client_connect("drain", &o->connect, operands->items[0], NULL, &conn);
    if (code != CMD_DONE)
        return code;
    int rc = llm_connection_drain(conn, o->undo, &texts, why);
    if (rc)
        code = cmd_fail(CMD_FAILED, "drain: %s", why);
    else if (o->undo)
        puts("takes texts again");
    else
        printf("drains: %u text%s given back\n", texts, texts == 1 ? " is" : "s are");
    llm_connection_close(conn);
    return code;
}

const struct cmd_command cmd_drain = {
    .name = "drain",
    .summary = "take a worker out of service; its texts go on elsewhere",
    .operands = "ADDR",
    .operands_min = 1,
    .operands_max = 1,
    .description =
        "Tells the worker at ADDR (hawser serve --model) to take no new texts and to end those of "
        "gateways after the present step; a gateway continues them at other workers with the same "
        "tokens.  Other texts are completed; new ones that come through the server's own --http "
        "are answered 503.  When none runs any more the server can be stopped without loss.",
    .options = options,
    .environment = cmd_connect_env,
    .examples = "hawser drain gpu1:28100\nhawser drain gpu1:28100 --undo",
    .values_size = sizeof(struct drain_options),
    .run = run,
};
