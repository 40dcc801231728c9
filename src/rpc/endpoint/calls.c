#include "rpc/endpoint/calls.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NIL = UINT32_MAX, FIRST_ENTRIES = 64 };

static uint64_t to_ms(uint64_t ns)
{
    return ns / HW_MS;
}

/* A deadline belongs to the millisecond after it, so that nothing ends early. */
static uint32_t bucket_of(uint64_t deadline_ns)
{
    return (uint32_t)((to_ms(deadline_ns) + 1) % RPC_WHEEL_BUCKETS);
}

void rpc_calls_init(struct rpc_calls *calls, uint32_t limit, uint64_t now_ns)
{
    assert(limit > 0 && limit <= RPC_CALLS_MAX);
    *calls = (struct rpc_calls){.limit = limit, .free_head = NIL, .swept_ms = to_ms(now_ns)};
    memset(calls->wheel, 0xff, sizeof calls->wheel);
}

void rpc_calls_fini(struct rpc_calls *calls)
{
    assert(calls->in_flight == 0);
    free(calls->entries);
    *calls = (struct rpc_calls){0};
}

static int grow(struct rpc_calls *calls)
{
    uint32_t old = calls->capacity;
    uint32_t capacity = old ? old * 2 : FIRST_ENTRIES;
    if (capacity > calls->limit)
        capacity = calls->limit;
    assert(capacity > old);
    struct rpc_pending_call *entries = realloc(calls->entries, capacity * sizeof *entries);
    if (!entries)
        return -ENOMEM;
    calls->entries = entries;
    calls->capacity = capacity;
    for (uint32_t i = capacity; i-- > old;) {
        entries[i] = (struct rpc_pending_call){.next = calls->free_head, .prev = NIL};
        calls->free_head = i;
    }
    return 0;
}

static void wheel_add(struct rpc_calls *calls, uint32_t id)
{
    struct rpc_pending_call *call = &calls->entries[id];
    uint32_t bucket = bucket_of(call->deadline_ns);
    call->prev = NIL;
    call->next = calls->wheel[bucket];
    if (call->next != NIL)
        calls->entries[call->next].prev = id;
    calls->wheel[bucket] = id;
    calls->occupied[bucket / 64] |= UINT64_C(1) << (bucket % 64);
}

static void wheel_remove(struct rpc_calls *calls, uint32_t id)
{
    struct rpc_pending_call *call = &calls->entries[id];
    if (call->deadline_ns == HW_NEVER)
        return;
    uint32_t bucket = bucket_of(call->deadline_ns);
    if (call->next != NIL)
        calls->entries[call->next].prev = call->prev;
    if (call->prev != NIL)
        calls->entries[call->prev].next = call->next;
    else
        calls->wheel[bucket] = call->next;
    if (calls->wheel[bucket] == NIL)
        calls->occupied[bucket / 64] &= ~(UINT64_C(1) << (bucket % 64));
    call->deadline_ns = HW_NEVER;
}

static void entry_free(struct rpc_calls *calls, uint32_t id)
{
    calls->used--;
    calls->entries[id] = (struct rpc_pending_call){.next = calls->free_head, .prev = NIL};
    calls->free_head = id;
}

int rpc_calls_add(struct rpc_calls *calls, rpc_reply_fn *fn, void *user, uint64_t now_ns,
                  uint64_t timeout_ns, uint32_t *id_out)
{
    assert(fn);
    /* Not the capacity: the peer's hello may have lowered the limit since it was allocated. */
    if (UNLIKELY(calls->used >= calls->limit))
        return -ENOBUFS;
    if (UNLIKELY(calls->free_head == NIL)) {
        int rc = grow(calls);
        if (rc)
            return rc;
    }
    uint32_t id = calls->free_head;
    struct rpc_pending_call *call = &calls->entries[id];
    calls->free_head = call->next;
    bool bounded = timeout_ns < HW_NEVER - now_ns;
    *call = (struct rpc_pending_call){
        .fn = fn,
        .user = user,
        .sent_ns = now_ns,
        .deadline_ns = bounded ? now_ns + timeout_ns : HW_NEVER,
        .next = NIL,
        .prev = NIL,
    };
    if (bounded)
        wheel_add(calls, id);
    calls->in_flight++;
    calls->used++;
    *id_out = id;
    return 0;
}

bool rpc_calls_known(const struct rpc_calls *calls, uint32_t id)
{
    return id < calls->capacity && (calls->entries[id].fn || calls->entries[id].zombie);
}

int rpc_calls_answer(struct rpc_calls *calls, uint32_t id, struct rpc_pending_call *out)
{
    if (!rpc_calls_known(calls, id))
        return -ENOENT;
    if (!calls->entries[id].zombie) {
        wheel_remove(calls, id);
        calls->in_flight--;
    }
    *out = calls->entries[id];
    entry_free(calls, id);
    return 0;
}

int rpc_calls_end(struct rpc_calls *calls, uint32_t id, struct rpc_pending_call *out)
{
    if (id >= calls->capacity || !calls->entries[id].fn)
        return -ENOENT;
    wheel_remove(calls, id);
    *out = calls->entries[id];
    calls->entries[id] = (struct rpc_pending_call){.deadline_ns = HW_NEVER, .zombie = true};
    calls->in_flight--;
    return 0;
}

void rpc_calls_forget(struct rpc_calls *calls, uint32_t id)
{
    assert(id < calls->capacity && calls->entries[id].fn);
    wheel_remove(calls, id);
    entry_free(calls, id);
    calls->in_flight--;
}

int rpc_calls_expire(struct rpc_calls *calls, uint64_t now_ns, uint32_t *id_out,
                     struct rpc_pending_call *out)
{
    uint64_t now_ms = to_ms(now_ns);
    /* After a long pause one turn of the wheel sees every bucket. */
    if (now_ms - calls->swept_ms > RPC_WHEEL_BUCKETS)
        calls->swept_ms = now_ms - RPC_WHEEL_BUCKETS;
    for (; calls->swept_ms < now_ms; calls->swept_ms++) {
        uint32_t bucket = (uint32_t)((calls->swept_ms + 1) % RPC_WHEEL_BUCKETS);
        for (uint32_t id = calls->wheel[bucket]; id != NIL; id = calls->entries[id].next) {
            if (calls->entries[id].deadline_ns >= now_ns)
                continue; /* a later turn of the wheel */
            *id_out = id;
            return rpc_calls_end(calls, id, out);
        }
    }
    return -ENOENT;
}

int rpc_calls_drain(struct rpc_calls *calls, uint32_t *cursor, struct rpc_pending_call *out)
{
    while (*cursor < calls->capacity)
        if (rpc_calls_end(calls, (*cursor)++, out) == 0)
            return 0;
    return -ENOENT;
}

uint64_t rpc_calls_next_deadline(const struct rpc_calls *calls)
{
    if (calls->in_flight == 0)
        return HW_NEVER;
    for (unsigned ahead = 1; ahead <= RPC_WHEEL_BUCKETS;) {
        uint64_t ms = calls->swept_ms + ahead;
        uint32_t bucket = (uint32_t)(ms % RPC_WHEEL_BUCKETS);
        uint64_t rest = calls->occupied[bucket / 64] >> (bucket % 64);
        if (rest)
            return (ms + (unsigned)__builtin_ctzll(rest)) * HW_MS;
        ahead += 64 - bucket % 64;
    }
    return HW_NEVER;
}
