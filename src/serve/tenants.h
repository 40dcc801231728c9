/* serve/tenants.h - whose tokens a server takes, and what each of them may have.
 *
 * A file has a line for each tenant: NAME TOKEN [weight=N] [max-memory=SIZE].  Tenant 0 is not in
 * it: who comes with the server's own token, or as its own user.
 *
 * Trust: the file is the operator's, mode 0600; usage is decoded from a peer's bytes.  Threads:
 * immutable once loaded.  Lifetime: load/free. */
#ifndef HAWSER_SERVE_TENANTS_H
#define HAWSER_SERVE_TENANTS_H

#include "rpc/security/security.h"

struct tenant {
    char name[RPC_TENANT_NAME_CHARS];
    uint32_t weight;           /* of its share of a GPU's time */
    uint64_t max_memory_bytes; /* of each of its sessions; 0: the server's --max-memory */
};

struct tenants {
    size_t count; /* with tenant 0 */
    struct tenant list[1 + RPC_TENANTS_MAX];
    struct rpc_token tokens[RPC_TENANTS_MAX]; /* of tenant 1 and so on */
};

/* path: the file, or NULL: there is tenant 0 only, with this weight.  0, or a negative errno with
 * cause and remedy in why. */
int tenants_load(const char *path, uint32_t own_weight, struct tenants **out,
                 char why[RPC_WHY_CHARS]) MUST_CHECK;
void tenants_free(struct tenants *tenants); /* wipes the tokens */

/* ---- how much of the GPUs each of them uses, and its form on the wire ---- */

struct wire_enc;

enum { SERVER_USAGE_BYTES_MAX = 32 << 10 }; /* encoded: every tenant fits */

struct server_usage {
    bool measured; /* else gpu_ns says nothing: there are no time slices */
    uint32_t count;
    struct {
        char name[RPC_TENANT_NAME_CHARS];
        uint32_t sessions; /* now */
        uint64_t gpu_ns;   /* ever */
    } tenants[1 + RPC_TENANTS_MAX];
};

/* The encoder holds the error. */
void server_usage_encode(const struct server_usage *usage, struct wire_enc *enc);
/* 0, -EPROTO or -EMSGSIZE; *out is written only on 0. */
int server_usage_decode(const void *data, size_t len, struct server_usage *out) MUST_CHECK;

#endif
