#include "kv/cluster/view.h"

#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

uint64_t kv_member_id(const char *name)
{
    uint64_t id = XXH3_64bits(name, strlen(name));
    return id ? id : 1;
}

uint64_t kv_block_hash(const struct kv_block_key *key)
{
    return XXH3_64bits(key->bytes, key->len);
}

/* ---- making ---- */

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

static int member_set(struct kv_member *m, const struct kv_member_info *info,
                      char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr;
    if (!info->name[0] || !is_printable(info->name)) {
        snprintf(why, RPC_WHY_CHARS, "a member's name is empty or has odd characters");
        return -EINVAL;
    }
    if (strlen(info->name) >= sizeof(m->name) || strlen(info->address) >= sizeof(m->address)) {
        snprintf(why, RPC_WHY_CHARS, "member %.32s...: its name or address is too long",
                 info->name);
        return -ENAMETOOLONG;
    }
    int rc = rpc_addr_parse(info->address, &addr, why);
    if (rc)
        return rc;
    m->id = kv_member_id(info->name);
    snprintf(m->name, sizeof(m->name), "%s", info->name);
    snprintf(m->address, sizeof(m->address), "%s", info->address);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct kv_member *)a)->name, ((const struct kv_member *)b)->name);
}

/* Two names with one id would own the same keys; about one cluster in 10^16 has such names. */
static const struct kv_member *find_twin(const struct kv_view *v)
{
    for (uint32_t i = 0; i < v->count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (v->members[i].id == v->members[k].id)
                return &v->members[i];
    return NULL;
}

int kv_view_make(uint64_t epoch, const struct kv_member_info *infos, uint32_t count,
                 struct kv_view *out, char why[RPC_WHY_CHARS])
{
    if (count > KV_MEMBERS_MAX) {
        snprintf(why, RPC_WHY_CHARS, "%u members: at most %d", count, KV_MEMBERS_MAX);
        return -E2BIG;
    }
    struct kv_view v = {.epoch = epoch, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        int rc = member_set(&v.members[i], &infos[i], why);
        if (rc)
            return rc;
    }
    qsort(v.members, v.count, sizeof(v.members[0]), by_name);
    const struct kv_member *twin = find_twin(&v);
    if (twin) {
        snprintf(why, RPC_WHY_CHARS, "two members are called %s", twin->name);
        return -EEXIST;
    }
    *out = v;
    return 0;
}

void kv_rank_name(uint32_t rank, char out[KV_MEMBER_NAME_CHARS])
{
    snprintf(out, KV_MEMBER_NAME_CHARS, "rank%u", rank);
}

void kv_view_of_ranks(uint32_t ranks, struct kv_view *out)
{
    assert(ranks <= KV_MEMBERS_MAX);
    *out = (struct kv_view){.epoch = 1, .count = ranks};
    for (uint32_t i = 0; i < ranks; i++) {
        kv_rank_name(i, out->members[i].name);
        out->members[i].id = kv_member_id(out->members[i].name);
    }
    qsort(out->members, ranks, sizeof(out->members[0]), by_name);
}

/* ---- asking ---- */

const struct kv_member *kv_view_find(const struct kv_view *v, uint64_t id)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (v->members[i].id == id)
            return &v->members[i];
    return NULL;
}

static uint64_t score_of(const struct kv_member *m, uint64_t key_hash)
{
    uint8_t bytes[8];
    wire_store64(bytes, key_hash);
    return XXH3_64bits_withSeed(bytes, sizeof(bytes), m->id);
}

uint32_t kv_owners_among(const struct kv_member *members, uint32_t count, uint64_t key_hash,
                         uint32_t copies, uint32_t owners[KV_COPIES_MAX])
{
    uint64_t best[KV_COPIES_MAX] = {0};
    uint32_t n = 0;
    assert(copies >= 1 && copies <= KV_COPIES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t score = score_of(&members[i], key_hash);
        uint32_t at = n; /* equal scores: the first by name */
        while (at > 0 && score > best[at - 1])
            at--;
        if (at == copies)
            continue;
        n = n < copies ? n + 1 : n;
        for (uint32_t k = n - 1; k > at; k--) {
            best[k] = best[k - 1];
            owners[k] = owners[k - 1];
        }
        best[at] = score;
        owners[at] = i;
    }
    return n;
}

uint32_t kv_view_owners(const struct kv_view *v, uint64_t key_hash, uint32_t copies,
                        uint32_t owners[KV_COPIES_MAX])
{
    return kv_owners_among(v->members, v->count, key_hash, copies, owners);
}
