/* tests/unit/kv/tap.h - transports that pass all on and know when they are destroyed, so that
 * faults hit only what lives.
 *
 * Each stands in a table of its maker's from its creation to its end.  Failures of the harness end
 * the test.  Threads: one.  Lifetime: whoever has the transport destroys it, and the one inside. */
#ifndef HAWSER_TESTS_UNIT_KV_TAP_H
#define HAWSER_TESTS_UNIT_KV_TAP_H

#include "rpc/transport/transport.h"

struct rpc_ep;

struct tap {
    struct rpc_transport base;
    struct rpc_transport *inner;
    struct rpc_ep *ep; /* the maker's: who uses it */
    struct tap **table;
    uint32_t index; /* in the table */
};

/* Takes the first free place of a table of so many. */
struct tap *tap_create(struct rpc_transport *inner, struct tap **table, uint32_t places);

#endif
