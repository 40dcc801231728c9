/* kv/store/claims.h - numbered claims on entries; a claim ends at its time or with its holder.
 *
 * Leases and puts in progress are claims.  A claim's handle carries the generation of its place, so
 * that a claim that has ended differs from one that was never given.  All claims of a table last
 * equally long, so they end in the order in which they were given or renewed, without a search.
 *
 * Trust: handles may be anything.  A holder reaches only its own claims.  Threads: one.  Lifetime:
 * create/destroy; a holder's list is the caller's memory and must be empty before it goes. */
#ifndef HAWSER_KV_STORE_CLAIMS_H
#define HAWSER_KV_STORE_CLAIMS_H

#include "base/attr.h"
#include "kv/common/memory.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_CLAIM_NONE = UINT32_MAX };

struct kv_claims;

/* A holder's claims in one table. */
struct kv_claim_list {
    uint32_t first, count;
    bool lasting; /* its claims have no end but with the holder, which is in this process */
};
#define KV_CLAIM_LIST_INIT                                                                         \
    {                                                                                              \
        .first = KV_CLAIM_NONE                                                                     \
    }

/* 0, -EINVAL, -ENOMEM. */
int kv_claims_create(uint32_t count, uint64_t lasts_ns, const struct kv_memory *memory,
                     struct kv_claims **out) MUST_CHECK;
void kv_claims_destroy(struct kv_claims *claims);

/* The place of a new claim, below `count`, or KV_CLAIM_NONE when all are taken. */
uint32_t kv_claims_take(struct kv_claims *claims, struct kv_claim_list *holder, uint32_t entry,
                        uint64_t now_ns);
void kv_claims_drop(struct kv_claims *claims, uint32_t place);
void kv_claims_renew(struct kv_claims *claims, uint32_t place, uint64_t now_ns);

/* The place behind a handle: 0; -ESTALE when that claim has ended; -EINVAL when the holder never
 * had it. */
int kv_claims_find(const struct kv_claims *claims, const struct kv_claim_list *holder,
                   uint64_t handle, uint32_t *place) MUST_CHECK;
uint64_t kv_claims_handle(const struct kv_claims *claims, uint32_t place);
uint32_t kv_claims_entry(const struct kv_claims *claims, uint32_t place);
/* When it ends; of a lasting one: when its holder should be done. */
uint64_t kv_claims_expires_ns(const struct kv_claims *claims, uint32_t place);

/* The claim that ends first, of those that do; KV_CLAIM_NONE: none. */
uint32_t kv_claims_next(const struct kv_claims *claims);
uint32_t kv_claims_count(const struct kv_claims *claims);

#endif
