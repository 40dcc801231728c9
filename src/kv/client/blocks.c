/* Blocks for a local client: written into its staging area, read from the arena.
 *
 * The reader verifies the bytes that it has.  That finds a corrupt block, and also a block that was
 * replaced because the lease had ended. */
#include "kv/client/client_impl.h"

#include "kv/common/blockmsg.h"
#include "wire/le.h"

#include <assert.h>
#include <string.h>

enum {
    KEYS_A_REQUEST = 60,         /* of a list of keys: fits the default slot */
    LEASES_A_BATCH = 64,         /* asked for together: 16 KiB of stack */
    STAGED_AT_A_TIME = 512 << 10 /* of a put between two hints: smaller steps overlap more and wake
                                    the daemon more often */
};

/* The key by which all clients choose the same daemon for a block. */
static struct kv_key route_of(const struct kv_block_key *key)
{
    return kv_key_of(key->bytes, key->len);
}

struct ask {
    struct kv_key route;
    struct kv_block_request request;
    const struct kv_block_key *keys;
    void *answer;
    uint32_t answer_len; /* exactly so much, with KV_OK */
    uint64_t asked_ns;   /* set */
};

static enum kv_result ask(struct kv_client *c, struct ask *a)
{
    uint8_t payload[KV_BLOCK_REQUEST_HEAD + KEYS_A_REQUEST * (1 + KV_BLOCK_KEY_MAX)];
    uint32_t size = kv_client_value_max(c), answer_len = 0;
    if (!kv_client_block_link(c, a->route)->staged)
        return KV_REFUSED;
    int len = kv_block_request_encode(&a->request, a->keys, payload,
                                      size < sizeof(payload) ? size : sizeof(payload));
    if (len < 0)
        return KV_TOO_LARGE;
    enum kv_result result = kv_client_block_ask(c, a->route, payload, (uint32_t)len, a->answer,
                                                a->answer_len, &answer_len, &a->asked_ns);
    return result == KV_OK && answer_len != a->answer_len ? KV_REFUSED : result;
}

static enum kv_result ask_handle(struct kv_client *c, enum kv_block_op op, struct kv_key route,
                                 uint64_t handle)
{
    struct ask a = {.route = route, .request = {.op = op, .handle = handle}};
    return ask(c, &a);
}

/* ---- putting ---- */

static void put_over(struct kv_client *c, struct kv_block_put *put)
{
    kv_extents_give(kv_client_block_link(c, put->route)->staged, put->staged);
    put->data = NULL;
}

static enum kv_result abort_put(struct kv_client *c, struct kv_block_put *put)
{
    enum kv_result result = ask_handle(c, KV_BLOCK_PUT_ABORT, put->route, put->ticket);
    /* Unless the daemon has answered, it may still read there: that part is not used again. */
    if (result == KV_OK || result == KV_PUT_EXPIRED)
        put_over(c, put);
    return result;
}

/* Aborts once more what a daemon that had stalled did not answer.  KV_TIMEOUT, KV_PEER_LOST: it
 * still does not. */
static enum kv_result abort_undone(struct kv_client *c, struct kv_block_link *link)
{
    for (uint32_t i = link->undone_count; i-- > 0;) {
        enum kv_result result = abort_put(c, &link->undone[i]);
        if (result == KV_TIMEOUT || result == KV_PEER_LOST)
            return result;
        if (!link->undone[i].data)
            link->undone[i] = link->undone[--link->undone_count];
    }
    return KV_OK;
}

static enum kv_result put_start(struct kv_client *c, const struct kv_block_key *key,
                                uint64_t tenant, uint32_t len, bool replaces, uint64_t seen,
                                struct kv_block_put *out)
{
    uint8_t ticket[KV_BLOCK_TICKET_BYTES];
    struct ask a = {.route = route_of(key),
                    .request = {.op = KV_BLOCK_PUT_START,
                                .flag = replaces,
                                .key_count = 1,
                                .len = len,
                                .tenant = tenant,
                                .handle = seen},
                    .keys = key,
                    .answer = ticket,
                    .answer_len = sizeof(ticket)};
    struct kv_block_link *link = kv_client_block_link(c, a.route);
    struct kv_block_put put = {.len = len, .route = a.route};
    if (!link->staged || len == 0)
        return KV_REFUSED;
    if (len > KV_BLOCK_MAX)
        return KV_TOO_LARGE;
    enum kv_result result = abort_undone(c, link);
    if (result != KV_OK)
        return result;
    if (kv_extents_take(link->staged, len, &put.staged, &put.at))
        return KV_FULL;
    result = ask(c, &a);
    if (result != KV_OK) {
        kv_extents_give(link->staged, put.staged);
        return result;
    }
    put.ticket = wire_load64(ticket);
    put.data = link->staging + put.at;
    *out = put;
    return KV_OK;
}

enum kv_result kv_block_put_start(struct kv_client *c, const struct kv_block_key *key,
                                  uint64_t tenant, uint32_t len, struct kv_block_put *out)
{
    return put_start(c, key, tenant, len, false, 0, out);
}

enum kv_result kv_block_replace_start(struct kv_client *c, const struct kv_block_key *key,
                                      uint64_t tenant, uint32_t len, struct kv_block_put *out)
{
    return put_start(c, key, tenant, len, true, 0, out);
}

enum kv_result kv_block_swap_start(struct kv_client *c, const struct kv_block_key *key,
                                   uint64_t tenant, uint32_t len, uint64_t seen,
                                   struct kv_block_put *out)
{
    return put_start(c, key, tenant, len, false, seen, out);
}

enum kv_result kv_block_put_abort(struct kv_client *c, struct kv_block_put *put)
{
    struct kv_block_link *link = kv_client_block_link(c, put->route);
    if (!put->data)
        return KV_PUT_EXPIRED; /* it is over, or among those that are asked for again */
    enum kv_result result = abort_put(c, put);
    if (result != KV_OK && result != KV_PUT_EXPIRED && link->undone_count < KV_UNDONE_MAX)
        link->undone[link->undone_count++] = *put;
    put->data = NULL;
    return result;
}

void kv_block_put_staged(struct kv_client *c, const struct kv_block_put *put, uint32_t len)
{
    uint8_t payload[KV_BLOCK_REQUEST_HEAD];
    struct kv_block_request r = {
        .op = KV_BLOCK_PUT_STAGED, .handle = put->ticket, .at = put->at, .len = len};
    int n = kv_block_request_encode(&r, NULL, payload, sizeof(payload));
    assert(n == sizeof(payload));
    (void)kv_client_block_tell(c, put->route, payload, (uint32_t)n);
}

enum kv_result kv_block_put_commit(struct kv_client *c, struct kv_block_put *put)
{
    uint8_t copies[KV_BLOCK_COUNT_BYTES];
    struct ask a = {.route = put->route,
                    .request = {.op = KV_BLOCK_PUT_COMMIT,
                                .handle = put->ticket,
                                .at = put->at,
                                .len = put->len},
                    .answer = copies,
                    .answer_len = sizeof(copies)};
    enum kv_result result = ask(c, &a);
    if (result == KV_OK)
        put->copies = wire_load32(copies);
    if (result == KV_TIMEOUT || result == KV_PEER_LOST)
        (void)kv_block_put_abort(c, put); /* the daemon may still copy */
    else
        put_over(c, put);
    return result;
}

enum kv_result kv_block_put(struct kv_client *c, const struct kv_block_key *key, uint64_t tenant,
                            const void *data, uint32_t len)
{
    struct kv_block_put put;
    enum kv_result result = kv_block_put_start(c, key, tenant, len, &put);
    if (result != KV_OK)
        return result;
    for (uint32_t done = 0, n; done < len; done += n) {
        if (done > 0)
            kv_block_put_staged(c, &put, done);
        n = len - done < STAGED_AT_A_TIME ? len - done : STAGED_AT_A_TIME;
        memcpy(put.data + done, (const uint8_t *)data + done, n);
    }
    return kv_block_put_commit(c, &put);
}

/* ---- reading ---- */

/* Fills in a reference from the daemon's answer. */
static enum kv_result take_grant(struct kv_client *c, struct kv_key route, const uint8_t *answer,
                                 uint64_t asked_ns, struct kv_block_ref *out)
{
    const struct kv_arena *arena = &kv_client_block_link(c, route)->arena;
    struct kv_block_granted g;
    if (kv_block_granted_decode(answer, KV_BLOCK_GRANTED_BYTES, arena->bytes, &g))
        return KV_REFUSED;
    uint64_t lasts_ns = g.lasts_ms * HW_MS;
    lasts_ns -= lasts_ns / 8; /* the daemon's turn may have begun before we asked */
    *out = (struct kv_block_ref){.data = arena->map + g.offset,
                                 .len = g.len,
                                 .expires_ns = asked_ns + lasts_ns,
                                 .checksum = g.checksum,
                                 .handle = g.handle,
                                 .lasts_ns = lasts_ns,
                                 .route = route};
    return KV_OK;
}

enum kv_result kv_block_lease(struct kv_client *c, const struct kv_block_key *key,
                              struct kv_block_ref *out)
{
    uint8_t answer[KV_BLOCK_GRANTED_BYTES];
    struct ask a = {.route = route_of(key),
                    .request = {.op = KV_BLOCK_GET, .key_count = 1},
                    .keys = key,
                    .answer = answer,
                    .answer_len = sizeof(answer)};
    enum kv_result result = ask(c, &a);
    return result == KV_OK ? take_grant(c, a.route, answer, a.asked_ns, out) : result;
}

/* Leases that are asked for together. */
struct lease_batch {
    struct kv_ask asks[LEASES_A_BATCH];
    struct kv_answer answers[LEASES_A_BATCH];
    uint8_t bodies[LEASES_A_BATCH][KV_BLOCK_REQUEST_HEAD + 1 + KV_BLOCK_KEY_MAX];
    uint8_t granted[LEASES_A_BATCH][KV_BLOCK_GRANTED_BYTES];
};

static void lease_some(struct kv_client *c, const struct kv_block_key *keys, uint32_t count,
                       struct kv_block_ref *refs, enum kv_result *results)
{
    struct lease_batch b;
    struct kv_block_request get = {.op = KV_BLOCK_GET, .key_count = 1};
    for (uint32_t i = 0; i < count; i++) {
        int len = kv_block_request_encode(&get, &keys[i], b.bodies[i], sizeof(b.bodies[i]));
        assert(len > 0);
        b.asks[i] = (struct kv_ask){.op = KV_BLOCK,
                                    .key = route_of(&keys[i]),
                                    .value = b.bodies[i],
                                    .value_len = (uint32_t)len,
                                    .buffer = b.granted[i],
                                    .buffer_len = sizeof(b.granted[i])};
    }
    int rc = kv_client_batch(c, b.asks, b.answers, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct kv_answer *a = &b.answers[i];
        results[i] = rc ? KV_REFUSED : a->result;
        if (results[i] == KV_OK)
            results[i] = a->value_len == KV_BLOCK_GRANTED_BYTES
                             ? take_grant(c, b.asks[i].key, b.granted[i], a->asked_ns, &refs[i])
                             : KV_REFUSED;
    }
}

void kv_block_lease_many(struct kv_client *c, const struct kv_block_key *keys, uint32_t count,
                         struct kv_block_ref *refs, enum kv_result *results)
{
    for (uint32_t done = 0, n; done < count; done += n) {
        n = count - done < LEASES_A_BATCH ? count - done : LEASES_A_BATCH;
        if (kv_client_block_link(c, (struct kv_key){0})->staged)
            lease_some(c, keys + done, n, refs + done, results + done);
        else
            for (uint32_t i = 0; i < n; i++)
                results[done + i] = KV_REFUSED;
    }
}

enum kv_result kv_block_renew(struct kv_client *c, struct kv_block_ref *ref)
{
    struct ask a = {.route = ref->route, .request = {.op = KV_BLOCK_RENEW, .handle = ref->handle}};
    enum kv_result result = ask(c, &a);
    if (result == KV_OK)
        ref->expires_ns = a.asked_ns + ref->lasts_ns;
    return result;
}

enum kv_result kv_block_release(struct kv_client *c, struct kv_block_ref *ref)
{
    ref->data = NULL;
    return ask_handle(c, KV_BLOCK_RELEASE, ref->route, ref->handle);
}

void kv_block_let_go(struct kv_client *c, struct kv_block_ref *ref)
{
    uint8_t payload[KV_BLOCK_REQUEST_HEAD];
    struct kv_block_request r = {.op = KV_BLOCK_RELEASE, .handle = ref->handle};
    int len = kv_block_request_encode(&r, NULL, payload, sizeof(payload));
    assert(len == sizeof(payload));
    if (!kv_client_block_tell(c, ref->route, payload, (uint32_t)len))
        (void)kv_block_release(c, ref); /* no request slot is free: wait for the answer instead */
    ref->data = NULL;
}

/* Why the bytes that we read are not those that were put. */
static enum kv_result judge_mismatch(struct kv_client *c, const struct kv_block_ref *ref)
{
    if (hw_now_ns() >= ref->expires_ns)
        return KV_EXPIRED;
    enum kv_result result = ask_handle(c, KV_BLOCK_VERIFY, ref->route, ref->handle);
    return result == KV_OK
               ? KV_MISS
               : result; /* even if the daemon finds the block intact, we have no data */
}

enum kv_result kv_block_check(struct kv_client *c, const struct kv_block_ref *ref)
{
    if (kv_checksum_add(0, ref->data, ref->len) != ref->checksum)
        return judge_mismatch(c, ref);
    return hw_now_ns() < ref->expires_ns ? KV_OK : KV_EXPIRED;
}

enum kv_result kv_block_get(struct kv_client *c, const struct kv_block_key *key, void *buffer,
                            uint32_t buffer_len, uint32_t *len)
{
    struct kv_block_ref ref;
    enum kv_result result = kv_block_lease(c, key, &ref);
    if (result != KV_OK)
        return result;
    uint32_t block_len = ref.len;
    if (block_len > buffer_len)
        result = KV_TOO_LARGE;
    else if (kv_checksum_copy(0, buffer, ref.data, block_len) != ref.checksum)
        result = judge_mismatch(c, &ref);
    kv_block_let_go(c, &ref); /* one that has ended is released already */
    if (result == KV_OK || result == KV_TOO_LARGE)
        *len = block_len;
    return result;
}

/* ---- keys ---- */

enum kv_result kv_block_delete(struct kv_client *c, const struct kv_block_key *key)
{
    struct ask a = {
        .route = route_of(key), .request = {.op = KV_BLOCK_DELETE, .key_count = 1}, .keys = key};
    return ask(c, &a);
}

enum kv_result kv_block_look(struct kv_client *c, const struct kv_block_key *key, uint64_t *end_ms,
                             uint32_t *len)
{
    uint8_t answer[KV_BLOCK_LOOK_BYTES];
    struct ask a = {.route = route_of(key),
                    .request = {.op = KV_BLOCK_LOOK, .key_count = 1},
                    .keys = key,
                    .answer = answer,
                    .answer_len = sizeof(answer)};
    enum kv_result result = ask(c, &a);
    if (result == KV_OK) {
        *end_ms = wire_load64(answer);
        *len = wire_load32(answer + 8);
    }
    return result;
}

enum kv_result kv_block_delete_seen(struct kv_client *c, const struct kv_block_key *key,
                                    uint64_t checksum)
{
    struct ask a = {
        .route = route_of(key),
        .request = {.op = KV_BLOCK_DELETE, .flag = true, .handle = checksum, .key_count = 1},
        .keys = key};
    return ask(c, &a);
}

/* Keys of one daemon that go into one request. */
struct part {
    struct kv_block_key keys[KEYS_A_REQUEST];
    uint32_t from[KEYS_A_REQUEST]; /* where each stands in the caller's list */
    uint16_t count;
};

static enum kv_result ask_part(struct kv_client *c, struct part *part, bool *there)
{
    uint8_t answer[KEYS_A_REQUEST];
    struct ask a = {.route = route_of(&part->keys[0]),
                    .request = {.op = KV_BLOCK_EXISTS, .key_count = part->count},
                    .keys = part->keys,
                    .answer = answer,
                    .answer_len = part->count};
    enum kv_result result = part->count ? ask(c, &a) : KV_OK;
    for (uint32_t i = 0; i < part->count && result == KV_OK; i++)
        there[part->from[i]] = answer[i] != 0;
    part->count = 0;
    return result;
}

static uint32_t keys_a_request(const struct kv_client *c)
{
    uint32_t size = kv_client_value_max(c);
    if (size < KV_BLOCK_REQUEST_HEAD + 1 + KV_BLOCK_KEY_MAX)
        return 1;
    uint32_t fit = (size - KV_BLOCK_REQUEST_HEAD) / (1 + KV_BLOCK_KEY_MAX);
    return fit < KEYS_A_REQUEST ? fit : KEYS_A_REQUEST;
}

enum kv_result kv_block_exists(struct kv_client *c, const struct kv_block_key *keys, uint32_t count,
                               bool *there)
{
    struct part part = {.count = 0};
    uint32_t daemons = kv_client_daemons(c), fit = keys_a_request(c);
    enum kv_result result = KV_OK;
    for (uint32_t daemon = 0; daemon < daemons; daemon++) {
        for (uint32_t i = 0; i < count && result == KV_OK; i++) {
            struct kv_place place = kv_place_of(route_of(&keys[i]), kv_client_ranks(c), daemons);
            if (place.daemon != daemon)
                continue;
            part.keys[part.count] = keys[i];
            part.from[part.count++] = i;
            if (part.count == fit)
                result = ask_part(c, &part, there);
        }
        if (result == KV_OK)
            result = ask_part(c, &part, there);
    }
    return result;
}

/* A key whose daemon is `index`. */
static struct kv_key key_at(const struct kv_client *c, uint32_t index)
{
    uint64_t i = 0;
    while (kv_place_of(kv_key_u64(i), kv_client_ranks(c), kv_client_daemons(c)).daemon != index)
        i++;
    return kv_key_u64(i);
}

enum kv_result kv_block_list(struct kv_client *c, const struct kv_block_key *prefix,
                             uint64_t *cursor, struct kv_block_key *keys, uint32_t *count)
{
    uint32_t daemon = (uint32_t)(*cursor >> 32), next;
    uint8_t answer[KV_BLOCK_LIST_BYTES];
    if (daemon >= kv_client_daemons(c))
        return KV_REFUSED;
    struct ask a = {
        .route = key_at(c, daemon),
        .request = {.op = KV_BLOCK_LIST, .handle = *cursor & UINT32_MAX, .key_count = 1},
        .keys = prefix,
        .answer = answer,
        .answer_len = sizeof(answer)};
    enum kv_result result = ask(c, &a);
    if (result != KV_OK)
        return result;
    if (kv_block_list_decode(answer, &next, keys, count))
        return KV_REFUSED;
    daemon += next == 0;
    *cursor = daemon < kv_client_daemons(c) ? (uint64_t)daemon << 32 | next : 0;
    return KV_OK;
}

enum kv_result kv_block_stat(struct kv_client *c, struct kv_blocks_stat *out)
{
    uint64_t sum[KV_BLOCK_STAT_FIELDS] = {0};
    for (uint32_t daemon = 0; daemon < kv_client_daemons(c); daemon++) {
        uint8_t answer[8 * KV_BLOCK_STAT_FIELDS];
        struct ask a = {.route = key_at(c, daemon),
                        .request = {.op = KV_BLOCK_STAT, .tenant = kv_client_tenant(c)},
                        .answer = answer,
                        .answer_len = sizeof(answer)};
        enum kv_result result = ask(c, &a);
        if (result != KV_OK)
            return result;
        for (uint32_t i = 0; i < KV_BLOCK_STAT_FIELDS; i++)
            sum[i] += wire_load64(answer + 8 * i);
    }
    memcpy(out, sum, sizeof(*out));
    return KV_OK;
}
