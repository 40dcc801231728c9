/* Requests about blocks of a hostile client.  First the decoder alone: what it takes comes back as
 * the same bytes.  Then a whole daemon: the input is a series of requests in a client's region,
 * with a staging area that it fills; each must be answered once, nothing may be served that differs
 * from its checksum, and the daemon must live. */
#include "fuzz.h"
#include "kv/common/blockmsg.h"
#include "kv_rig.h"

#include <string.h>

static void try_decoders(const uint8_t *data, size_t size)
{
    static struct kv_block_key keys[KV_BLOCK_CHAIN_MAX];
    static uint8_t again[KV_BLOCK_REQUEST_MAX];
    struct kv_block_request r;
    struct kv_block_granted g;
    if (kv_block_request_decode(data, size, &r, keys) == 0) {
        int len = kv_block_request_encode(&r, keys, again, sizeof(again));
        require(len >= 0 && (size_t)len == size && memcmp(again, data, size) == 0);
    }
    if (kv_block_granted_decode(data, size, RIG_ARENA, &g) == 0)
        require(g.len > 0 && g.offset + g.len <= RIG_ARENA);
}

static uint64_t clock_ns;

static uint64_t now(void *user)
{
    (void)user;
    return clock_ns;
}

static void one_request(struct rig_client *client, const uint8_t *arena, const uint8_t *payload,
                        uint32_t len)
{
    struct kv_port *port = &client->port;
    struct kv_port_request request = {.op = KV_BLOCK, .value = payload, .value_len = len};
    struct kv_port_answer answer;
    struct kv_block_granted g;
    uint32_t slot;
    require(kv_port_submit(port, &request, &slot) == 0);
    for (int i = 0; i < 4 && !kv_port_has_answer(port); i++)
        (void)kv_daemon_turn(client->daemon);
    require(kv_port_take(port, &answer) == 1 && answer.slot == slot);
    require(answer.result != KV_PEER_LOST && answer.result != KV_TIMEOUT);
    if (answer.result == KV_OK && len > 0 && payload[0] == KV_BLOCK_GET) {
        require(kv_block_granted_decode(answer.value, answer.value_len, RIG_ARENA, &g) == 0);
        require(kv_checksum_add(0, arena + g.offset, g.len) == g.checksum);
    }
    kv_port_free(port, slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(64) uint8_t arena[RIG_ARENA];
    struct kv_daemon_config config = {.ranks = 1,
                                      .daemons = 1,
                                      .store_bytes = 4096,
                                      .store_entries = 16,
                                      .blocks = rig_blocks(arena),
                                      .clock = {.now_ns = now},
                                      .seed = 1};
    struct kv_daemon *d;
    struct rig_client client;
    rig_be_quiet();
    try_decoders(data, size);
    clock_ns = 1;
    require(kv_daemon_create(&config, &d) == 0);
    rig_client_open(&client, d);
    /* Each request: so many bytes, and how many seconds pass. */
    while (size >= 2) {
        uint32_t len = data[0] < size - 2 ? data[0] : (uint32_t)(size - 2);
        clock_ns += (data[1] & 15) * HW_SEC;
        memset(client.port.region.staging, data[1], RIG_STAGING);
        one_request(&client, arena, data + 2, len);
        data += 2 + len;
        size -= 2 + len;
    }
    rig_client_close(&client);
    kv_daemon_destroy(d);
    return 0;
}
