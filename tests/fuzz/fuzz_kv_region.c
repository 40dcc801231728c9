/* A client that writes anything anywhere in its region while a daemon serves it and another client.
 * The daemon must stay in bounds and never wait; the other client's answers must be right.
 *
 * The input is a program of 8 bytes an instruction: what to do (write a word, write a whole request
 * line, let the daemon turn, sleep and be woken, leave and come back), where, and a value. */
#include "base/log.h"
#include "fuzz.h"
#include "kv/daemon/daemon.h"

#include <string.h>

enum { STEP = 8, BYTES = 8192 };

static const struct kv_region_shape shape = {.depth = 6, .value_max = 100};

static void ring(void *user)
{
    ++*(int *)user;
}

static uint64_t now(void *user)
{
    return *(uint64_t *)user += 1000;
}

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

struct pair {
    struct kv_daemon *daemon;
    struct kv_client_slot *hostile, *honest;
    struct kv_port port;
    uint64_t clock;
    int rings;
    uint32_t written; /* by the honest one */
};

static _Alignas(HW_CACHE_LINE) uint8_t hostile_map[BYTES], honest_map[BYTES];

static void attach_hostile(struct pair *p)
{
    memset(hostile_map, 0, sizeof(hostile_map));
    require(kv_daemon_attach(p->daemon, hostile_map, &shape, ring, &p->rings, &p->hostile) == 0);
}

static enum kv_result ask(struct pair *p, enum kv_op op, uint32_t *value)
{
    struct kv_port_request r = {
        .op = op, .key = {.hi = 1, .lo = 1}, .value = value, .value_len = sizeof(*value)};
    struct kv_port_answer a;
    uint32_t slot;
    require(kv_port_submit(&p->port, &r, &slot) == 0);
    if (kv_port_must_ring(&p->port))
        kv_client_slot_wake(p->daemon, p->honest);
    (void)kv_daemon_turn(p->daemon);
    require(kv_port_take(&p->port, &a) == 1 && a.slot == slot);
    if (op == KV_GET && a.result == KV_OK) {
        require(a.value_len == sizeof(*value));
        memcpy(value, a.value, sizeof(*value));
    }
    kv_port_free(&p->port, slot);
    return a.result;
}

/* A whole line, as a client would write it, but for what the input says. */
static void write_line(struct pair *p, const uint8_t *op)
{
    struct kv_region r;
    kv_region_map(&r, hostile_map, &shape);
    struct kv_request_line *line = &r.requests[op[1] & r.mask];
    line->op = op[2];
    line->slot = op[3];
    line->value_len = op[4] * 4u;
    line->key = (struct kv_key){.hi = 0, .lo = op[5]};
    memset(line->value, op[6], sizeof(line->value));
    atomic_store_explicit(&line->seq, op[7] + 1u, memory_order_release);
    kv_client_slot_wake(p->daemon, p->hostile);
}

static void step(struct pair *p, const uint8_t *op)
{
    uint32_t word;
    memcpy(&word, op + 4, sizeof(word));
    switch (op[0] % 8) {
    case 0:
    case 1:
        memcpy(hostile_map + ((op[1] | op[2] << 8) % (BYTES - 4)), &word, sizeof(word));
        break;
    case 2:
    case 3:
        write_line(p, op);
        break;
    case 4:
        kv_client_slot_wake(p->daemon, p->hostile);
        (void)kv_daemon_turn(p->daemon);
        break;
    case 5:
        if (!kv_daemon_arm(p->daemon))
            p->clock += HW_MS;
        break;
    case 6:
        kv_daemon_detach(p->daemon, p->hostile);
        attach_hostile(p);
        break;
    default:
        p->written = word;
        require(ask(p, KV_PUT, &word) == KV_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pair p = {.clock = HW_SEC};
    struct kv_daemon_config config = {.ranks = 1,
                                      .daemons = 1,
                                      .store_bytes = 1 << 16,
                                      .store_entries =
                                          400, /* more keys than the hostile one can name */
                                      .clock = {now, &p.clock},
                                      .seed = 1};
    hw_log_set_sink(swallow, NULL);
    require(kv_region_bytes(&shape) <= BYTES);
    require(kv_daemon_create(&config, &p.daemon) == 0);
    memset(honest_map, 0, sizeof(honest_map));
    require(kv_daemon_attach(p.daemon, honest_map, &shape, ring, &p.rings, &p.honest) == 0);
    kv_port_init(&p.port, honest_map, &shape);
    attach_hostile(&p);
    p.written = 7;
    require(ask(&p, KV_PUT, &p.written) == KV_OK);
    for (size_t at = 0; at + STEP <= size; at += STEP)
        step(&p, data + at);
    uint32_t got = 0;
    require(ask(&p, KV_GET, &got) == KV_OK && got == p.written);
    kv_daemon_destroy(p.daemon);
    return 0;
}
