/* Uploads of a session whose memory is the test's: WRITE, what follows it, and who compares the
 * pages meanwhile. */
#include "unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "duet.h"
#include "venus/common/protocol.h"
#include "venus/server/session/state.h"

enum {
    MEMORY = 7,
    PIECE = (128 << 10) + 3 * VN_PAGE_BYTES,
    PIECES = 8,
    TAIL = 100, /* the memory's last page is a short one */
    BYTES = PIECES * PIECE + TAIL,
    ROUNDS = 12,
};

static uint8_t live[BYTES + VN_PAGE_BYTES] __attribute__((aligned(VN_PAGE_BYTES)));
static uint8_t wanted[BYTES];
static struct duet duet;
static struct vns_session *session;
static struct vns_device device;
static _Atomic bool over;

/* ---- the driver ---- */

static VkResult allocate(VkDevice handle, const VkMemoryAllocateInfo *info,
                         const VkAllocationCallbacks *allocator, VkDeviceMemory *out)
{
    (void)handle, (void)info, (void)allocator;
    *out = (VkDeviceMemory)(uintptr_t)1;
    return VK_SUCCESS;
}

static VkResult map(VkDevice handle, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size,
                    VkMemoryMapFlags flags, void **out)
{
    (void)handle, (void)memory, (void)offset, (void)size, (void)flags;
    *out = live;
    return VK_SUCCESS;
}

static VkResult no_caches(VkDevice handle, uint32_t count, const VkMappedMemoryRange *ranges)
{
    (void)handle, (void)count, (void)ranges;
    return VK_SUCCESS;
}

/* ---- a session ---- */

static void add_memory(bool demand_paged)
{
    VkMemoryAllocateInfo info = {.allocationSize = BYTES};
    VkDeviceMemory memory;
    assert_int_equal(vns_memories_allocate(session->memories, &device, MEMORY, &info, &memory),
                     VK_SUCCESS);
    assert_int_equal(vns_objects_add(&session->objects, VK_OBJECT_TYPE_DEVICE_MEMORY, MEMORY,
                                     (void *)memory, &device, NULL),
                     0);
    if (demand_paged)
        assert_int_equal(vns_memories_set_demand_paged(session->memories, MEMORY), 0);
    assert_int_equal(vns_memories_map(session->memories, MEMORY), VK_SUCCESS);
}

static void start_with(VkMemoryPropertyFlags flags, bool demand_paged)
{
    session = calloc(1, sizeof(*session));
    assert_non_null(session);
    duet_start(&duet, 0, 0);
    duet_share(&duet, BYTES);
    vns_channel_fini(&duet.channel); /* the session has its own */
    assert_int_equal(vns_channel_init(&session->channel, duet.ep, NULL, NULL), 0);
    device = (struct vns_device){.driver = {.vkAllocateMemory = allocate},
                                 .map_memory = map,
                                 .flush_memory = no_caches,
                                 .invalidate_memory = no_caches,
                                 .memory = {.memoryTypeCount = 1}};
    device.memory.memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | flags;
    vns_objects_init(&session->objects, 8, 1);
    assert_int_equal(vns_stream_init(session), 0);
    assert_int_equal(vns_memories_create(&session->channel, BYTES, &session->memories), 0);
    add_memory(demand_paged);
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    for (size_t at = 0; at < BYTES; at++)
        wanted[at] = (uint8_t)hw_rng_u64(&rng);
}

static int start_cached(void **state)
{
    (void)state;
    start_with(VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, false);
    return 0;
}

static int start_uncached(void **state)
{
    (void)state;
    start_with(VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, false);
    return 0;
}

static int start_incoherent(void **state)
{
    (void)state;
    start_with(VK_MEMORY_PROPERTY_HOST_CACHED_BIT, false);
    return 0;
}

static int start_lazy(void **state)
{
    (void)state;
    start_with(VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, true);
    return 0;
}

static int end(void **state)
{
    (void)state;
    vns_memories_destroy(session->memories);
    vns_objects_fini(&session->objects);
    vn_keymap_fini(&session->classes);
    free(session->named.things);
    vns_channel_fini(&session->channel);
    assert_int_equal(vns_channel_init(&duet.channel, duet.ep, NULL, NULL), 0);
    free(session);
    duet_end(&duet);
    return 0;
}

/* ---- the client ---- */

static void post_write(uint64_t off, size_t len)
{
    uint8_t head[4 + 4 + 8 + 8];
    struct wire_enc e;
    wire_enc_init_fixed(&e, head, sizeof(head));
    wire_put_u32(&e, VN_OP_WRITE);
    wire_put_u32(&e, (uint32_t)(8 + 8 + len));
    wire_put_u64(&e, MEMORY);
    wire_put_u64(&e, off);
    struct iovec iov[] = {{head, sizeof(head)}, {wanted + off, len}};
    struct rpc_send send = {.method = VN_METHOD_STREAM, .iov = iov, .iov_count = 2};
    assert_int_equal(rpc_client_post(duet.client, &send), 0);
}

/* All of it, then its first page again with other bytes, and its short last page. */
static void *upload(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < PIECES; i++)
        post_write(i * PIECE, PIECE);
    memset(wanted, 0x5a, VN_PAGE_BYTES); /* what was posted was copied */
    post_write(0, VN_PAGE_BYTES);
    post_write(PIECES * PIECE, TAIL);
    assert_int_equal(rpc_client_flush(duet.client), 0);
    return NULL;
}

static void execute_next(void)
{
    struct rpc_msg *msg = vns_channel_receive(&session->channel);
    assert_non_null(msg);
    assert_int_equal(vns_stream_execute(session, msg->data, msg->len, NULL), 0);
    vns_channel_lock(&session->channel);
    rpc_release(duet.ep, msg);
    vns_channel_unlock(&session->channel);
}

static void uploads_are_stored_in_order(void **state)
{
    pthread_t client;
    (void)state;
    assert_int_equal(pthread_create(&client, NULL, upload, NULL), 0);
    for (int i = 0; i < PIECES + 2; i++)
        execute_next();
    pthread_join(client, NULL);
    assert_memory_equal(live, wanted, BYTES);
}

/* Messages so far. */
static uint64_t sent(void)
{
    vns_channel_lock(&session->channel);
    vns_channel_flush(&session->channel);
    vns_channel_unlock(&session->channel);
    return hw_counter_load(&rpc_ep_stats(duet.ep)->msgs_sent);
}

static void compare(void)
{
    struct vns_range all = {.memory = MEMORY, .bytes = BYTES};
    assert_int_equal(vns_memories_read(session->memories, &all, 1, 0), 0);
}

static void *compare_for_long(void *arg)
{
    (void)arg;
    while (!atomic_load(&over))
        compare();
    return NULL;
}

/* Otherwise the client would get its own bytes back, or a mixture of them. */
static void who_compares_meanwhile_finds_nothing(void **state)
{
    pthread_t other;
    (void)state;
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&other, NULL, compare_for_long, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        memset(wanted, i + 1, BYTES);
        assert_int_equal(vns_memories_store(session->memories, MEMORY, 0, wanted, BYTES), 0);
    }
    atomic_store(&over, true);
    pthread_join(other, NULL);
    compare();
    assert_memory_equal(live, wanted, BYTES);
    assert_int_equal(hw_counter_load(&rpc_ep_stats(duet.ep)->msgs_sent), 0);
}

static void what_a_device_wrote_afterwards_is_found(void **state)
{
    struct vns_range last = {.memory = MEMORY, .offset = BYTES - 1, .bytes = 1};
    (void)state;
    assert_int_equal(vns_memories_store(session->memories, MEMORY, 0, wanted, BYTES), 0);
    (void)vns_memories_expose(session->memories, &last, 1);
    live[BYTES - 1] ^= 1;
    compare();
    assert_int_equal(sent(), 1);
    duet_wait(&duet, 1);
    assert_int_equal(duet.pushes[0].method, VN_PUSH_DELTA);
    assert_int_equal(duet.bytes[BYTES - 1], live[BYTES - 1]);
    assert_int_equal(duet.bytes[BYTES - 2], 0); /* only that byte came */
}

/* ---- readbacks ---- */

enum { FILLED_PAGES = 32, FILLED_MESSAGES = 2 };
static const struct vns_range filled = {
    .memory = MEMORY, .bytes = FILLED_PAGES * VN_PAGE_BYTES, .filled = true};

/* A copy of the device's fills the pages, and what it wrote is read. */
static void fill_and_read(uint64_t exposed)
{
    static uint8_t salt;
    assert_int_equal(vns_memories_expose(session->memories, &filled, 1), exposed);
    salt ^= 0x77;
    for (size_t at = 0; at < filled.bytes; at++)
        live[at] = wanted[at] ^ salt;
    uint64_t before = sent();
    assert_int_equal(vns_memories_read(session->memories, &filled, 1, 1), 0);
    assert_int_equal(sent(), before + FILLED_MESSAGES);
    vns_memories_conceal(session->memories, 1);
}

/* A change that nobody announced, which no device makes, shows what is compared. */
static bool is_compared(void)
{
    uint64_t before = sent();
    live[5] ^= 1;
    compare();
    return sent() > before;
}

static void expect_shadow_copies(bool stands)
{
    fill_and_read(1);
    assert_int_equal(is_compared(), !stands);
    fill_and_read(1); /* the shadow copy was made when the device could write it */
    fill_and_read(1);
    (void)vns_memories_expose(session->memories, &filled, 1);
    assert_true(is_compared());
    fill_and_read(2); /* other work is under way */
    assert_true(is_compared());
    vns_memories_conceal(session->memories, 1);
}

static void what_is_read_back_stands_for_its_shadow_copy(void **state)
{
    (void)state;
    expect_shadow_copies(true);
}

static void what_is_read_back_has_a_shadow_copy(void **state)
{
    (void)state;
    expect_shadow_copies(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(uploads_are_stored_in_order, start_cached, end),
        cmocka_unit_test_setup_teardown(uploads_are_stored_in_order, start_uncached, end),
        cmocka_unit_test_setup_teardown(uploads_are_stored_in_order, start_incoherent, end),
        cmocka_unit_test_setup_teardown(uploads_are_stored_in_order, start_lazy, end),
        cmocka_unit_test_setup_teardown(who_compares_meanwhile_finds_nothing, start_cached, end),
        cmocka_unit_test_setup_teardown(who_compares_meanwhile_finds_nothing, start_uncached, end),
        cmocka_unit_test_setup_teardown(who_compares_meanwhile_finds_nothing, start_incoherent,
                                        end),
        cmocka_unit_test_setup_teardown(what_a_device_wrote_afterwards_is_found, start_cached, end),
        cmocka_unit_test_setup_teardown(what_a_device_wrote_afterwards_is_found, start_uncached,
                                        end),
        cmocka_unit_test_setup_teardown(what_is_read_back_stands_for_its_shadow_copy, start_cached,
                                        end),
        cmocka_unit_test_setup_teardown(what_is_read_back_has_a_shadow_copy, start_uncached, end),
        cmocka_unit_test_setup_teardown(what_is_read_back_has_a_shadow_copy, start_incoherent, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
