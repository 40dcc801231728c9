/* kv/resp/tenants.h - who may use the store through Redis' protocol, each with values of its own.
 *
 * A file has a line for each tenant, NAME TOKEN.  A tenant has a number, made of its name: the same
 * on every host and after every restart.
 *
 * Trust: the file is the operator's, mode 0600.  Threads: immutable once loaded.  Lifetime:
 * load/free. */
#ifndef HAWSER_KV_RESP_TENANTS_H
#define HAWSER_KV_RESP_TENANTS_H

#include "rpc/security/security.h"

struct resp_tenants;

/* 0, or a negative errno with cause and remedy in why. */
int resp_tenants_load(const char *path, struct resp_tenants **out,
                      char why[RPC_WHY_CHARS]) MUST_CHECK;
void resp_tenants_free(struct resp_tenants *tenants); /* wipes the tokens */

/* The number of the tenant with that token, and with that name unless name is NULL; 0: none.  As
 * long for a wrong token as for a right one. */
uint64_t resp_tenants_find(const struct resp_tenants *tenants, const char *name, size_t name_len,
                           const char *token, size_t token_len);

#endif
