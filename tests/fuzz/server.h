/* tests/fuzz/server.h - a server in the same thread as its client, which says what it is told to.
 *
 * It speaks whenever the client reads, so nothing is left to time: a client that waits for what was
 * not said finds the connection cut.
 *
 * Threads: one.  Lifetime: server_start/server_end; the client's endpoint ends in between. */
#ifndef HAWSER_TESTS_FUZZ_SERVER_H
#define HAWSER_TESTS_FUZZ_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "rpc/client.h"

/* The client's end of a connection to it, for an endpoint to own. */
struct rpc_transport *server_start(void);
void server_end(void);

/* Calls from now on are answered with these bytes, or with the negative errno. */
void server_answer(int status, const uint8_t *data, size_t size);
/* Calls from now on are not answered. */
void server_answer_nothing(void);

/* What a target that is linked with --wrap=rpc_client_connect connects to, wherever it wants to. */
int __wrap_rpc_client_connect(const struct rpc_addr *addr, const struct rpc_net_options *net,
                              const struct rpc_client_options *options, struct rpc_client **out,
                              char why[RPC_WHY_CHARS]);

void server_push(uint32_t method, const uint8_t *data, size_t size);

#endif
