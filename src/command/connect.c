#include "command/connect.h"

#include "base/clock.h"
#include "command/measure.h"
#include "rpc/servers.h"
#include "rpc/transport/net.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

const struct cmd_env cmd_connect_env[] = {
    {"VENUS_SERVERS", "servers, separated by commas; the first is the default ADDR"},
    {"VENUS_SERVER_HOST", "host of the default ADDR where VENUS_SERVERS is not set"},
    {"VENUS_SERVER_PORT", "its port [default: 28100]"},
    {"VENUS_TLS_CA", "as --ca"},
    {"VENUS_TLS_FINGERPRINT", "as --fingerprint"},
    {"VENUS_TOKEN_FILE", "as --token-file"},
    {"VENUS_SOCKET_BUFFER_BYTES", "kernel buffer of a TCP socket, each way [default: 4MiB]"},
    {NULL},
};

#define AT(field) offsetof(struct cmd_connect_options, field)
const struct cmd_option cmd_connect_table[] = {
    {"ca", 0, CMD_STRING, AT(ca), "use TLS; the server's certificate must chain to this PEM file",
     "FILE"},
    {"fingerprint", 0, CMD_STRING, AT(fingerprint),
     "use TLS; the server's certificate must have this SHA-256", "HEX"},
    {"token-file", 0, CMD_STRING, AT(token_file),
     "the token to prove; a private file (mode 0600), or none [default on loopback: the one that "
     "this user's server made]",
     "FILE"},
    {"timeout", 0, CMD_DURATION, AT(timeout_ns),
     "give up connecting, or waiting for an answer, after this", "TIME", "5s", HW_MS,
     3600 * HW_SEC},
    {NULL},
};

enum cmd_exit cmd_exit_for(int error)
{
    switch (error) {
    case -EACCES:          /* token or TLS */
    case -EPERM:           /* our own rule */
    case -EPROTO:          /* plain against TLS, or not a hawser at all */
    case -EPROTONOSUPPORT: /* version */
    case -EUSERS:          /* limits */
        return CMD_REFUSED;
    default:
        return CMD_UNREACHABLE;
    }
}

/* The operand, or the default address. */
static void pick_address(const char *operand, char out[RPC_SERVER_CHARS])
{
    char buf[RPC_SERVER_CHARS];
    const char *list = operand ? NULL : rpc_servers_from_env(buf);
    if (!list || !rpc_servers_next(&list, out))
        snprintf(out, RPC_SERVER_CHARS, "%s", operand ? operand : "");
}

int cmd_read_security(const struct cmd_connect_options *options, struct rpc_security *out,
                      char why[RPC_WHY_CHARS])
{
    struct rpc_security_files files = {
        .ca = options->ca,
        .fingerprint = options->fingerprint,
        .token_file = options->token_file,
    };
    return rpc_security_from_env(out, &files, why);
}

enum cmd_exit cmd_exit_for_security(int error)
{
    return error == -EDOM ? CMD_USAGE : CMD_FAILED;
}

enum cmd_exit cmd_load_security(const struct cmd_connect_options *options, struct rpc_security *out)
{
    char why[RPC_WHY_CHARS];
    int rc = cmd_read_security(options, out, why);
    return rc ? cmd_fail(cmd_exit_for_security(rc), "%s", why) : CMD_DONE;
}

/* An HTTP server says nothing, or hangs up: it depends on the bytes of our hello. */
static enum cmd_exit handshake(struct cmd_link *link, char why[CMD_WHY_CHARS])
{
    int rc = measure_ready(link->ep, link->timeout_ns);
    if (rc == 0)
        return CMD_DONE;
    enum cmd_exit code = cmd_exit_for(rc);
    snprintf(why, CMD_WHY_CHARS, "%s %s: %s%s", link->address,
             code == CMD_REFUSED ? "refuses the connection" : "does not answer",
             rc == -ETIMEDOUT ? "no answer in time" : rpc_ep_reason(link->ep),
             rc == -ETIMEDOUT || rc == -ECONNRESET ? "; is it serve's --listen, and not its --http?"
                                                   : "");
    return code;
}

enum cmd_exit cmd_link_dial(struct cmd_link *link, const struct rpc_security *security,
                            char why[CMD_WHY_CHARS])
{
    char cause[RPC_WHY_CHARS];
    uint64_t start = hw_now_ns();
    struct rpc_net_options net = {.security = security, .timeout_ns = link->timeout_ns};
    /* No heartbeat is promised: between two measurements no thread serves the endpoint. */
    struct rpc_config config = {
        .security = security, .handshake_ns = link->timeout_ns, .heartbeat_ns = HW_NEVER};
    struct rpc_transport *transport;
    int rc = rpc_dial(&link->addr, &net, &transport, cause);
    if (rc) {
        snprintf(why, CMD_WHY_CHARS, "%s", cause);
        return cmd_exit_for(rc);
    }
    rc = rpc_ep_create(transport, &config, &link->ep);
    if (rc) {
        snprintf(why, CMD_WHY_CHARS, "cannot make an endpoint: %s", strerror(-rc));
        return CMD_FAILED;
    }
    link->tls = security->tls && link->addr.scheme == RPC_SCHEME_TCP;
    enum cmd_exit code = handshake(link, why);
    if (code == CMD_DONE)
        link->token = rpc_ep_proved(link->ep);
    if (code != CMD_DONE)
        cmd_link_close(link);
    link->connect_ns = hw_now_ns() - start;
    return code;
}

enum cmd_exit cmd_link_open(struct cmd_link *link, const struct cmd_connect_options *options,
                            const char *operand)
{
    char text[RPC_SERVER_CHARS], why[CMD_WHY_CHARS], cause[RPC_WHY_CHARS];
    struct rpc_security security;

    *link = (struct cmd_link){.timeout_ns = options->timeout_ns};
    pick_address(operand, text);
    if (rpc_addr_parse(text, &link->addr, cause))
        return cmd_fail(CMD_USAGE, "%s", cause);
    rpc_addr_format(&link->addr, link->address, sizeof(link->address));
    enum cmd_exit code = cmd_load_security(options, &security);
    if (code != CMD_DONE)
        return code;
    code = cmd_link_dial(link, &security, why);
    rpc_security_fini(&security);
    return code == CMD_DONE ? code : cmd_fail(code, "%s", why);
}

void cmd_link_close(struct cmd_link *link)
{
    if (link->ep) {
        rpc_ep_shutdown(link->ep, 0, "done");
        (void)rpc_flush(link->ep);
        rpc_ep_destroy(link->ep);
    }
    link->ep = NULL;
}

/* ---- listening ---- */

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
