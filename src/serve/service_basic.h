/* serve/service_basic.h - the services behind rpc/methods.h.
 *
 * Trust: callers are peers; a malformed request is answered with -EINVAL, an unknown method with
 * -ENOSYS.
 * Threads: a service is immutable after init, so any number of endpoints on any threads share one.
 * Lifetime: init/fini; outlives the endpoints that it answers. */
#ifndef HAWSER_SERVE_SERVICE_BASIC_H
#define HAWSER_SERVE_SERVICE_BASIC_H

#include "base/attr.h"
#include "rpc/rpc.h"

#include <stddef.h>
#include <stdint.h>

struct server_info;

struct service_basic {
    uint8_t *info; /* encoded once: it does not change while the server runs */
    size_t info_len;
};

/* 0, -ENOMEM or -EMSGSIZE. */
int service_basic_init(struct service_basic *s, const struct server_info *info) MUST_CHECK;
void service_basic_fini(struct service_basic *s);

/* Answers one message; the caller releases it.  0, or the endpoint's status. */
int service_basic_handle(const struct service_basic *s, struct rpc_ep *ep, struct rpc_msg *msg);

#endif
