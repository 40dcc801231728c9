/* Messages of a hostile rank.  First the decoders alone: what they take must be in range.  Then a
 * whole daemon behind a loopback network: the input is a series of calls that a connected peer
 * makes, before and after a proper JOIN; each must be answered, and the daemon must live. */
#include "fuzz.h"
#include "kv/common/message.h"
#include "kv_rig.h"

#include <string.h>

static void try_decoders(const uint8_t *data, size_t size)
{
    struct kv_join join;
    struct kv_value_request request;
    struct kv_value_answer answer;
    if (kv_join_decode(data, size, &join) == 0) {
        uint8_t again[KV_JOIN_BYTES];
        require(join.rank < join.ranks && join.index < join.daemons);
        kv_join_encode(&join, again);
        require(size == sizeof(again) && memcmp(data, again, size) == 0);
    }
    struct kv_joined joined;
    if (kv_joined_decode(data, size, &joined) == 0) {
        uint8_t again[KV_JOINED_BYTES];
        kv_joined_encode(&joined, again);
        require(size == sizeof(again) && memcmp(data, again, size) == 0);
    }
    for (uint32_t method = 0; method < KV_OP_END + 1; method++)
        if (kv_value_request_decode(method, data, size, &request) == 0)
            require(request.value + request.value_len == data + size);
    if (kv_value_answer_decode(data, size, &answer) == 0)
        require(answer.value_len == 0 || answer.result == KV_OK);
}

/* Each call: a length, a method, and so many bytes. */
static void make_calls(struct rig_net *n, const uint8_t *data, size_t size)
{
    while (size >= 2) {
        size_t len = data[0] < size - 2 ? data[0] : size - 2;
        rig_net_call(n, data[1], data + 2, len);
        data += 2 + len;
        size -= 2 + len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig_net n = {0};
    rig_be_quiet();
    try_decoders(data, size);
    rig_net_open(&n, &(struct kv_blocks_config){0}, RPC_WINDOW_MIN);
    make_calls(&n, data, size / 2);
    rig_net_join(&n);
    make_calls(&n, data + size / 2, size - size / 2);
    rig_net_await(&n);
    require(n.answered == n.asked);
    rig_net_close(&n);
    return 0;
}
