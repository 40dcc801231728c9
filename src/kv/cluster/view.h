/* kv/cluster/view.h - a view: the numbered, immutable list of members, and who owns a block in it.
 *
 * Owners follow from the members' names and the key alone (rendezvous hashing): every member has a
 * score for every key, and those with the highest scores own it.  A member that joins takes an even
 * share from the others; when one leaves, only its keys move.
 *
 *   id of a member   XXH3 of its name
 *   score            XXH3 of the key's hash (8 bytes, little-endian), seeded with the id
 *
 * Both are the same in every process and on every machine; tests compare them with fixed numbers.
 *
 * A view's number is its epoch.  It grows with every change of the members and is the same at all
 * daemons that see the same members.  docs/design/cluster.md says what daemons with different
 * epochs do.
 *
 * Trust: names and addresses may be anything; a view that was made is sound.  Threads: any; nothing
 * changes after kv_view_make.  Lifetime: values. */
#ifndef HAWSER_KV_CLUSTER_VIEW_H
#define HAWSER_KV_CLUSTER_VIEW_H

#include "kv/common/blockkey.h"
#include "kv/common/kv.h"
#include "rpc/transport/addr.h"

#include <stdbool.h>

enum {
    KV_MEMBERS_MAX = 1024,     /* a key's owner is found by a score of each */
    KV_MEMBER_NAME_CHARS = 64, /* with its NUL: a host name's label */
    KV_MEMBER_ADDRESS_CHARS = RPC_ADDR_HOST_CHARS + 16, /* with scheme, port and NUL */
    KV_COPIES_MAX = 2 /* more would cost more room than they save misses */
};

/* A member as a list or etcd describes it. */
struct kv_member_info {
    const char *name;
    const char *address; /* of its first daemon, as rpc_addr_parse takes it; "" for a rank */
};

struct kv_member {
    uint64_t id;
    char name[KV_MEMBER_NAME_CHARS];
    char address[KV_MEMBER_ADDRESS_CHARS];
};

/* Members are in the order of their names.  Some 360 KiB, of which `count` members are used; copy
 * it with kv_view_copy. */
struct kv_view {
    uint64_t epoch;
    uint32_t count;
    uint64_t ids[KV_MEMBERS_MAX]; /* of the members again: owners are found in a few cache lines */
    struct kv_member members[KV_MEMBERS_MAX];
};

/* In any order; none is fine: then nobody owns anything.  0; -E2BIG; -EINVAL for a name or address
 * that is empty, unprintable or no address; -ENAMETOOLONG; -EEXIST for two of one name.  With a
 * sentence in why. */
int kv_view_make(uint64_t epoch, const struct kv_member_info *infos, uint32_t count,
                 struct kv_view *out, char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_view_copy(struct kv_view *to, const struct kv_view *from);
/* A member as a view would have it: 0, or an error of kv_view_make. */
int kv_member_make(const struct kv_member_info *info, struct kv_member *out,
                   char why[RPC_WHY_CHARS]) MUST_CHECK;
/* The view of a fixed number of ranks, "rank0" on, without addresses; its epoch is 1. */
void kv_view_of_ranks(uint32_t ranks, struct kv_view *out);
/* The name of a rank as a member. */
void kv_rank_name(uint32_t rank, char out[KV_MEMBER_NAME_CHARS]);

/* Never 0: 0 means nobody. */
uint64_t kv_member_id(const char *name);
/* NULL: no member. */
const struct kv_member *kv_view_find(const struct kv_view *view, uint64_t id);

/* What a block's owners are computed from. */
uint64_t kv_block_hash(const struct kv_block_key *key);
/* Up to `copies` (1 to KV_COPIES_MAX) places in `members`, the best first; how many. */
uint32_t kv_view_owners(const struct kv_view *view, uint64_t key_hash, uint32_t copies,
                        uint32_t owners[KV_COPIES_MAX]);

#endif
