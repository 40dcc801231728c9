/* hawser keygen - certificate, key and token for a server, in one go. */
#include "cli/commands.h"

#include "rpc/security/security.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct keygen_options {
    struct cmd_list names;
    uint64_t days;
};

#define AT(field) offsetof(struct keygen_options, field)
static const struct cmd_option options[] = {
    {"name", 'n', CMD_LIST, AT(names),
     "host name or address that clients will use for the server (without it: this host's name, "
     "localhost, 127.0.0.1 and ::1)",
     "HOST"},
    {"days", 0, CMD_U64, AT(days), "how long the certificate is valid", "N", "825", 1, 36500},
    {NULL},
};

static void print_result(const char *dir, const char *host, const char *fingerprint)
{
    printf("made %s/server.crt   certificate, public\n"
           "     %s/server.key   its key, private: stays on the server\n"
           "     %s/token        shared secret, private: server and clients\n"
           "fingerprint %s\n\n"
           "Start the server:\n"
           "  hawser serve --listen 0.0.0.0:28100 --cert %s/server.crt --key %s/server.key "
           "--token-file %s/token\n"
           "Use it from a client that has a copy of token:\n"
           "  hawser info %s:28100 --fingerprint %s --token-file token\n",
           dir, dir, dir, fingerprint, dir, dir, dir, host, fingerprint);
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct keygen_options *o = values;
    const char *dir = operands->items[0];
    char fingerprint[2 * RPC_FINGERPRINT_BYTES + 1], why[RPC_WHY_CHARS], node[256] = "localhost";
    const char *names[CMD_LIST_MAX] = {node, "localhost", "127.0.0.1", "::1"};
    size_t count = 4;

    if (gethostname(node, sizeof(node) - 1))
        snprintf(node, sizeof(node), "localhost");
    if (o->names.count > 0) {
        count = o->names.count;
        for (size_t i = 0; i < count; i++)
            names[i] = o->names.items[i];
    }
    int rc = rpc_keygen(dir, names, count, (unsigned)o->days, fingerprint, why);
    if (rc)
        return cmd_fail(rc == -EINVAL ? CMD_USAGE : CMD_FAILED, "keygen: %s", why);
    print_result(dir, names[0], fingerprint);
    return CMD_DONE;
}

const struct cmd_command cmd_keygen = {
    .name = "keygen",
    .summary = "make certificate, key and token for a server",
    .operands = "DIR",
    .operands_min = 1,
    .operands_max = 1,
    .description = "Writes server.crt (self-signed, ECDSA P-256), server.key and token into DIR, "
                   "the private ones readable by their owner only.  Refuses to overwrite.",
    .options = options,
    .examples = "hawser keygen /etc/hawser --name gpu1.example\n"
                "hawser keygen keys --name 10.0.0.7 --days 90",
    .values_size = sizeof(struct keygen_options),
    .run = run,
};
