/* command/connect.h - from what the user said to a connected endpoint, or an address to listen on.
 *
 * The address: the operand, else the first of VENUS_SERVERS, else VENUS_SERVER_HOST and
 * VENUS_SERVER_PORT, else 127.0.0.1:28100.  Security: options, else VENUS_TLS_CA,
 * VENUS_TLS_FINGERPRINT, VENUS_TOKEN_FILE.
 *
 * Trust: the server proves itself as the user asked (TLS, token) before a link is handed out.
 * Threads: one at a time for a link.  Lifetime: open/close; the struct is the caller's. */
#ifndef HAWSER_COMMAND_CONNECT_H
#define HAWSER_COMMAND_CONNECT_H

#include "command/command.h"
#include "rpc/rpc.h"
#include "rpc/security/security.h"
#include "rpc/servers.h"

enum { CMD_WHY_CHARS = RPC_WHY_CHARS + 256 }; /* an address and a transport's sentence */

struct cmd_connect_options {
    const char *ca, *fingerprint, *token_file;
    uint64_t timeout_ns;
};

/* The options of a struct cmd_connect_options. */
extern const struct cmd_option cmd_connect_table[];

/* The variables of a client. */
extern const struct cmd_env cmd_connect_env[];

struct cmd_link {
    struct rpc_ep *ep;
    struct rpc_addr addr;
    char address[RPC_ADDR_HOST_CHARS + 16]; /* canonical */
    bool tls, token;
    uint64_t connect_ns; /* name, connection and handshakes together */
    uint64_t timeout_ns;
};

/* From the options, else from the environment; freed with rpc_security_fini.  0, or a negative
 * errno with a sentence in why. */
int cmd_read_security(const struct cmd_connect_options *options, struct rpc_security *out,
                      char why[RPC_WHY_CHARS]) MUST_CHECK;
/* The same.  CMD_DONE, or the exit status after a message. */
enum cmd_exit cmd_load_security(const struct cmd_connect_options *options,
                                struct rpc_security *out) MUST_CHECK;

/* operand NULL: the default address.  CMD_DONE, or the exit status after a message with cause and
 * remedy. */
enum cmd_exit cmd_link_open(struct cmd_link *link, const struct cmd_connect_options *options,
                            const char *operand) MUST_CHECK;
/* The second half of it: addr, address and timeout_ns are set.  CMD_DONE, or the exit status with
 * cause and remedy in why. */
enum cmd_exit cmd_link_dial(struct cmd_link *link, const struct rpc_security *security,
                            char why[CMD_WHY_CHARS]) MUST_CHECK;
void cmd_link_close(struct cmd_link *link);

/* CMD_REFUSED for token, TLS, version and limits; CMD_UNREACHABLE for the rest. */
enum cmd_exit cmd_exit_for(int error);
/* Of rpc_security_load and rpc_security_from_env: CMD_USAGE for an option that is none, CMD_FAILED
 * for a file that cannot be used. */
enum cmd_exit cmd_exit_for_security(int error);

/* An address on which a command listens, as the user wrote it; `option` is named in the message:
 * "--listen".  CMD_DONE, or CMD_USAGE after a message where it cannot be read or nobody knows its
 * name.  Whether others may reach it is for the caller to judge. */
enum cmd_exit cmd_listen_read(const char *command, const char *option, const char *text,
                              struct rpc_addr *out) MUST_CHECK;
/* The second half, of an address that was read before. */
enum cmd_exit cmd_listen_resolve(const char *command, const char *option,
                                 const struct rpc_addr *addr) MUST_CHECK;

#endif
