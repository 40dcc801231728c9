/* What a client may allocate, of a driver that never refuses, and how what a device wrote goes
 * back. */
#include "unit.h"

#include "base/rng.h"
#include "duet.h"
#include "venus/common/protocol.h"
#include "venus/server/memory/memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WINDOW = 1 << 20, SMALL_HEAP = 1000, LARGE_HEAP = 100000 };

static int place;
static struct duet duet;
static struct vns_memories *memories;
static struct vns_device devices[3]; /* the first two of one GPU */

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *allocator,
                                               VkDeviceMemory *out)
{
    (void)device, (void)info, (void)allocator;
    *out = (VkDeviceMemory)(void *)&place;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice device, VkDeviceMemory memory,
                                              const VkAllocationCallbacks *allocator)
{
    (void)device, (void)memory, (void)allocator;
}

static void start_with(uint64_t max_bytes)
{
    static int gpus[2];
    duet_start(&duet, WINDOW, 0);
    assert_int_equal(vns_memories_create(&duet.channel, max_bytes, &memories), 0);
    for (int i = 0; i < 3; i++)
        devices[i] = (struct vns_device){
            .physical = (VkPhysicalDevice)(void *)&gpus[i / 2],
            .driver = {.vkAllocateMemory = allocate, .vkFreeMemory = free_memory},
            .memory = {.memoryTypeCount = 2,
                       .memoryTypes = {{.heapIndex = 0}, {.heapIndex = 1}},
                       .memoryHeapCount = 2,
                       .memoryHeaps = {{.size = SMALL_HEAP}, {.size = LARGE_HEAP}}}};
}

static int end(void **state)
{
    (void)state;
    vns_memories_destroy(memories);
    duet_end(&duet);
    return 0;
}

static VkResult take(int device, uint32_t heap, uint64_t id, uint64_t bytes)
{
    VkMemoryAllocateInfo info = {.allocationSize = bytes, .memoryTypeIndex = heap};
    VkDeviceMemory memory;
    return vns_memories_allocate(memories, &devices[device], id, &info, &memory);
}

static void a_client_leaves_a_part_of_each_heap(void **state)
{
    (void)state;
    start_with(0);
    assert_int_equal(take(0, 0, 1, 901), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(take(0, 0, 1, 500), VK_SUCCESS);
    assert_int_equal(take(1, 0, 2, 401), VK_ERROR_OUT_OF_DEVICE_MEMORY); /* the same GPU */
    assert_int_equal(take(1, 0, 2, 400), VK_SUCCESS);
    assert_int_equal(take(0, 1, 3, 90000), VK_SUCCESS);
    assert_int_equal(take(2, 0, 4, 900), VK_SUCCESS); /* another */
    assert_int_equal(take(0, 0, 5, 1), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    vns_memories_forget(memories, 1);
    assert_int_equal(take(0, 0, 5, 500), VK_SUCCESS);
    vns_memories_free_device(memories, &devices[1]);
    assert_int_equal(take(0, 0, 6, 400), VK_SUCCESS);
    assert_int_equal(take(0, 0, 7, UINT64_MAX), VK_ERROR_OUT_OF_DEVICE_MEMORY);
}

static void a_limit_that_was_given_is_for_all_together(void **state)
{
    (void)state;
    start_with(2000);
    assert_int_equal(take(0, 0, 1, 1000), VK_SUCCESS);
    assert_int_equal(take(2, 1, 2, 1001), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(take(2, 1, 2, 1000), VK_SUCCESS);
    assert_int_equal(take(0, 1, 3, 1), VK_ERROR_OUT_OF_DEVICE_MEMORY);
}

enum { PAGES = 32, BYTES = PAGES * VN_PAGE_BYTES, MANY_BYTES = 4 * WINDOW };

static uint8_t live[MANY_BYTES] __attribute__((aligned(4096)));

static VKAPI_ATTR VkResult VKAPI_CALL map_live(VkDevice device, VkDeviceMemory memory,
                                               VkDeviceSize offset, VkDeviceSize bytes,
                                               VkMemoryMapFlags flags, void **out)
{
    (void)device, (void)memory, (void)offset, (void)bytes, (void)flags;
    *out = live;
    return VK_SUCCESS;
}

static void map_first_of(size_t bytes)
{
    start_with(1 << 30);
    duet_share(&duet, bytes);
    memset(live, 0, bytes);
    devices[0].map_memory = map_live;
    devices[0].memory.memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                                     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
                                                     VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    assert_int_equal(take(0, 0, 1, bytes), VK_SUCCESS);
    assert_int_equal(vns_memories_map(memories, 1), VK_SUCCESS);
}

/* The last that was made: the server's. */
static uint8_t *shadow;

int __real_vn_shadow_init(struct vn_shadow *made, size_t size);
int __wrap_vn_shadow_init(struct vn_shadow *made, size_t size);

int __wrap_vn_shadow_init(struct vn_shadow *made, size_t size)
{
    int rc = __real_vn_shadow_init(made, size);
    shadow = made->bytes;
    return rc;
}

/* How many of its MANY_BYTES take memory. */
static size_t shadow_resident(void)
{
    static unsigned char pages[MANY_BYTES / VN_PAGE_BYTES];
    size_t host = (size_t)sysconf(_SC_PAGESIZE), resident = 0;
    assert_int_equal(mincore(shadow, MANY_BYTES, pages), 0);
    for (size_t i = 0; i < MANY_BYTES / host; i++)
        resident += pages[i] & 1 ? host : 0;
    return resident;
}

static void map_first(void)
{
    map_first_of(BYTES);
}

static void expect_pushes(size_t count)
{
    vns_channel_lock(&duet.channel);
    vns_channel_flush(&duet.channel);
    vns_channel_unlock(&duet.channel);
    duet_wait(&duet, count);
    assert_int_equal(duet.count, count);
}

static void read_filled(size_t first)
{
    size_t off = first * VN_PAGE_BYTES;
    struct vns_range range = {.memory = 1, .offset = off, .bytes = BYTES - off, .filled = true};
    assert_int_equal(vns_memories_read(memories, &range, 1, 0), 0);
    expect_pushes(2);
}

/* A copy filled both halves.  Of the first every fourth page got what it had, of the second all but
 * every fourth. */
static void pages_that_a_copy_filled_go_together(void **state)
{
    (void)state;
    map_first();
    for (size_t page = 0; page < PAGES; page++)
        if ((page % 4 == 0) == (page >= PAGES / 2))
            for (size_t i = 0; i < VN_PAGE_BYTES; i++) /* no runs of equal words */
                live[page * VN_PAGE_BYTES + i] = (uint8_t)(i | 1);
    read_filled(0);
    assert_int_equal(duet.pushes[0].method, VN_PUSH_PAGES);
    assert_int_equal(duet.pushes[0].len, 2 * sizeof(uint64_t) + BYTES / 2);
    assert_int_equal(duet.pushes[1].method, VN_PUSH_DELTA);
    assert_in_range(duet.pushes[1].len, 4 * VN_PAGE_BYTES, 5 * VN_PAGE_BYTES);
}

static void wherever_they_begin(void **state)
{
    (void)state;
    map_first();
    memset(live, 1, BYTES);
    read_filled(10);
    assert_int_equal(duet.pushes[0].method, VN_PUSH_DELTA); /* few are left of the first 16 */
    assert_int_equal(duet.pushes[1].method, VN_PUSH_PAGES);
    assert_int_equal(duet.pushes[1].len, 2 * sizeof(uint64_t) + BYTES / 2);
}

/* What it held before is nobody's, though work has come in between. */
static void what_memory_held_before_it_was_taken_over_is_not_sent(void **state)
{
    (void)state;
    map_first();
    for (size_t i = 0; i < BYTES; i++)
        live[i] = (uint8_t)(i % 251);
    assert_int_equal(vns_memories_renew(memories, 1, 2), 0);
    devices[0].submissions++;
    live[5 * VN_PAGE_BYTES] = 1;
    assert_int_equal(vns_memories_map(memories, 2), VK_SUCCESS);
    expect_pushes(1);
    assert_int_equal(duet.pushes[0].method, VN_PUSH_DELTA);
    assert_in_range(duet.pushes[0].len, 1, VN_PAGE_BYTES);
}

static void *read_all(void *arg)
{
    const struct vns_range all = {
        .memory = 1, .bytes = MANY_BYTES, .filled = true, .awaited = true};
    (void)arg;
    assert_int_equal(vns_memories_expose(memories, &all, 1), 1);
    assert_int_equal(vns_memories_read(memories, &all, 1, 1), 0);
    vns_memories_conceal(memories, 1);
    return NULL;
}

static void *page_on_demand(void *arg)
{
    (void)arg;
    assert_int_equal(vns_memories_set_demand_paged(memories, 1), 0);
    return NULL;
}

/* Until the client has been sent or told of the last page. */
static void take_all(void)
{
    for (uint64_t end = 0; end < MANY_BYTES;) {
        duet_wait(&duet, duet.count + 1);
        const struct duet_push *last = &duet.pushes[duet.count - 1];
        bool drops = last->method == VN_PUSH_DROP;
        end = wire_load64(last->head + 8) +
              (drops ? wire_load64(last->head + 16) : last->len - 2 * sizeof(uint64_t));
        assert_in_range(end, 1, MANY_BYTES);
    }
}

/* Awaited pages go in parts that end where no block of demand-paged memory does.  The reader waits
 * for room with the turn, and mostly so long that the other thread is the next to have it. */
static void memory_becomes_demand_paged_while_it_is_read(void **state)
{
    pthread_t reader, other;
    for (int round = 0; round < 16; round++) {
        if (round > 0)
            end(state);
        map_first_of(MANY_BYTES);
        memset(live, 1, MANY_BYTES);
        assert_int_equal(pthread_create(&reader, NULL, read_all, NULL), 0);
        duet_wait(&duet, 1);
        assert_int_equal(pthread_create(&other, NULL, page_on_demand, NULL), 0);
        take_all();
        pthread_join(reader, NULL);
        pthread_join(other, NULL);
    }
}

static void demand_page(size_t bytes)
{
    map_first_of(bytes);
    assert_int_equal(vns_memories_set_demand_paged(memories, 1), 0);
}

/* After work that can write all of it. */
static void read_work(size_t bytes)
{
    const struct vns_range all = {.memory = 1, .bytes = bytes};
    (void)vns_memories_expose(memories, &all, 1);
    assert_int_equal(vns_memories_read(memories, &all, 1, 1), 0);
    vns_memories_conceal(memories, 1);
}

static void expect_drop(const struct duet_push *push, size_t off, size_t bytes)
{
    assert_int_equal(push->method, VN_PUSH_DROP);
    assert_int_equal(wire_load64(push->head + 8), off);
    assert_int_equal(wire_load64(push->head + 16), bytes);
}

/* It keeps these pages, and needs not ask for them after each batch. */
static void what_the_client_asked_for_is_compared(void **state)
{
    (void)state;
    uint8_t page[VN_PAGE_BYTES];
    memset(page, 5, sizeof(page));
    demand_page(BYTES);
    read_work(BYTES);
    assert_int_equal(vns_memories_fetch(memories, 1, 3 * VN_PAGE_BYTES, 2 * VN_PAGE_BYTES), 0);
    expect_pushes(2);
    expect_drop(&duet.pushes[0], 0, BYTES);
    read_work(BYTES);
    assert_int_equal(vns_memories_store(memories, 1, 4 * VN_PAGE_BYTES, page, sizeof(page)), 0);
    read_work(BYTES);
    live[3 * VN_PAGE_BYTES] = 1;
    live[9 * VN_PAGE_BYTES] = 1;
    read_work(BYTES);
    const struct vns_range of_stored = {.memory = 1, .offset = sizeof(page) * 4, .bytes = 1};
    (void)vns_memories_expose(memories, &of_stored, 1);
    live[4 * VN_PAGE_BYTES] = 1;
    assert_int_equal(vns_memories_read(memories, &of_stored, 1, 1), 0);
    expect_pushes(4);
    for (size_t i = 2; i < 4; i++) {
        assert_int_equal(duet.pushes[i].method, VN_PUSH_DELTA);
        assert_in_range(duet.pushes[i].len, 1, 64); /* a byte */
    }
}

/* Work that was under way before may write it, and the client's bytes may stand in for shadow
 * copies of what it did not have. */
static void what_it_asks_for_while_work_is_under_way_is_compared(void **state)
{
    (void)state;
    const struct vns_range all = {.memory = 1, .bytes = BYTES};
    uint8_t page[VN_PAGE_BYTES] = {0};
    demand_page(BYTES);
    read_work(BYTES);
    assert_int_equal(vns_memories_store(memories, 1, VN_PAGE_BYTES, page, sizeof(page)), 0);
    (void)vns_memories_expose(memories, &all, 1);
    assert_int_equal(vns_memories_fetch(memories, 1, 0, 2 * VN_PAGE_BYTES), 0);
    live[VN_PAGE_BYTES] = 1;
    assert_int_equal(vns_memories_read(memories, &all, 1, 1), 0);
    expect_pushes(3);
    assert_int_equal(duet.pushes[2].method, VN_PUSH_DELTA);
}

static void of_what_it_asked_for_a_part_is_compared(void **state)
{
    (void)state;
    enum { PART = 256 << 10, PARTS = 9, HELD = 2 << 20 };
    demand_page(MANY_BYTES);
    read_work(MANY_BYTES);
    for (size_t i = 0; i < PARTS; i++) {
        if (i == PARTS - 1)
            read_work(MANY_BYTES); /* drops nothing */
        assert_int_equal(vns_memories_fetch(memories, 1, i * PART, PART), 0);
        expect_pushes(2 + i);
        assert_int_equal(duet.pushes[1 + i].method, VN_PUSH_FILL);
    }
    read_work(MANY_BYTES);
    expect_pushes(2 + PARTS);
    expect_drop(&duet.pushes[1 + PARTS], 0, HELD);
}

/* What a copy fills goes there as it is, also over pages that were asked for. */
static void what_a_copy_fills_is_not_held(void **state)
{
    (void)state;
    const struct vns_range copied = {.memory = 1, .bytes = BYTES / 2, .filled = true};
    demand_page(BYTES);
    read_work(BYTES);
    assert_int_equal(vns_memories_fetch(memories, 1, 0, VN_PAGE_BYTES), 0);
    live[0] = 1;
    assert_int_equal(vns_memories_read(memories, &copied, 1, 0), 0);
    expect_pushes(3);
    assert_int_equal(duet.pushes[2].method, VN_PUSH_PAGES);
    read_work(BYTES);
    expect_pushes(4);
    expect_drop(&duet.pushes[3], 0, BYTES / 2);
}

static void apply_byte_of_each_page(size_t first, size_t count)
{
    static struct vn_change change;
    struct vn_delta_codec *codec;
    struct vn_delta_out out;
    struct wire_enc e;
    assert_int_equal(vn_delta_codec_create(0, &codec), 0);
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    vn_delta_begin(&out, &e);
    change.blocks = change.mask[0] = change.bytes[0] = 1;
    for (size_t i = first; i < first + count; i++) {
        change.page = i;
        vn_delta_put(&out, &change);
    }
    assert_int_equal(vn_delta_end(&out, codec), 0);
    assert_int_equal(vns_memories_apply(memories, 1, wire_enc_data(&e), wire_enc_len(&e)), 0);
    wire_enc_fini(&e);
    vn_delta_codec_destroy(codec);
}

/* Demand-paged memory is large, and its shadow copy must not become so. */
/* Bytes of changes that come before the pages are dropped, while work writes all of them anew. */
static size_t pushed_until_dropped(size_t bytes, struct hw_rng *rng)
{
    size_t sum = 0, seen = duet.count;
    for (;;) {
        for (size_t at = 0; at < bytes; at += sizeof(uint64_t))
            wire_store64(live + at, hw_rng_u64(rng));
        read_work(bytes);
        expect_pushes(seen + 1);
        const struct duet_push *push = &duet.pushes[seen++];
        if (push->method == VN_PUSH_DROP)
            return sum;
        assert_int_equal(push->method, VN_PUSH_DELTA);
        sum += push->len;
    }
}

/* A program that does not read what it once asked for is not sent it for ever. */
static void held_pages_that_work_rewrites_are_given_up(void **state)
{
    (void)state;
    enum { PART = 64 << 10 };
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    demand_page(MANY_BYTES);
    read_work(MANY_BYTES);
    expect_pushes(1);
    for (size_t most = 1 << 20; most <= 4 << 20; most *= 2) {
        assert_int_equal(vns_memories_fetch(memories, 1, 0, PART), 0);
        expect_pushes(duet.count + 1);
        assert_in_range(pushed_until_dropped(PART, &rng), most, most + 2 * PART);
    }
}

static void only_held_pages_take_memory(void **state)
{
    (void)state;
    enum { PART = 256 << 10, PARTS = MANY_BYTES / PART, HELD = 2 << 20 };
    const struct vns_range copied = {.memory = 1, .bytes = MANY_BYTES, .filled = true};
    demand_page(MANY_BYTES);
    read_work(MANY_BYTES);
    apply_byte_of_each_page(0, MANY_BYTES / VN_PAGE_BYTES);
    assert_int_equal(live[MANY_BYTES - VN_PAGE_BYTES], 1);
    assert_int_equal(shadow_resident(), 0);
    for (size_t i = 0; i < PARTS; i++)
        assert_int_equal(vns_memories_fetch(memories, 1, i * PART, PART), 0);
    assert_in_range(shadow_resident(), PART, HELD);
    assert_int_equal(vns_memories_read(memories, &copied, 1, 0), 0);
    assert_int_equal(shadow_resident(), 0);
}

static void what_was_compared_takes_no_memory(void **state)
{
    (void)state;
    map_first_of(MANY_BYTES);
    apply_byte_of_each_page(0, MANY_BYTES / VN_PAGE_BYTES);
    assert_int_equal(shadow_resident(), MANY_BYTES);
    assert_int_equal(vns_memories_set_demand_paged(memories, 1), 0);
    assert_int_equal(shadow_resident(), 0);
}

/* Bytes that the client sends for pages that it has, or has not, are no changes of a device. */
static void what_the_client_writes_is_not_sent_back(void **state)
{
    (void)state;
    demand_page(BYTES);
    read_work(BYTES);
    assert_int_equal(vns_memories_fetch(memories, 1, 0, 4 * VN_PAGE_BYTES), 0);
    apply_byte_of_each_page(0, 8);
    read_work(BYTES);
    assert_int_equal(vns_memories_fetch(memories, 1, 4 * VN_PAGE_BYTES, 4 * VN_PAGE_BYTES), 0);
    read_work(BYTES);
    expect_pushes(3);
    expect_drop(&duet.pushes[0], 0, BYTES);
    for (size_t i = 1; i < 3; i++)
        assert_int_equal(duet.pushes[i].method, VN_PUSH_FILL);
    assert_int_equal(live[0] + live[7 * VN_PAGE_BYTES], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_client_leaves_a_part_of_each_heap, end),
        cmocka_unit_test_teardown(a_limit_that_was_given_is_for_all_together, end),
        cmocka_unit_test_teardown(pages_that_a_copy_filled_go_together, end),
        cmocka_unit_test_teardown(wherever_they_begin, end),
        cmocka_unit_test_teardown(what_memory_held_before_it_was_taken_over_is_not_sent, end),
        cmocka_unit_test_teardown(memory_becomes_demand_paged_while_it_is_read, end),
        cmocka_unit_test_teardown(what_the_client_asked_for_is_compared, end),
        cmocka_unit_test_teardown(what_it_asks_for_while_work_is_under_way_is_compared, end),
        cmocka_unit_test_teardown(of_what_it_asked_for_a_part_is_compared, end),
        cmocka_unit_test_teardown(what_a_copy_fills_is_not_held, end),
        cmocka_unit_test_teardown(held_pages_that_work_rewrites_are_given_up, end),
        cmocka_unit_test_teardown(only_held_pages_take_memory, end),
        cmocka_unit_test_teardown(what_was_compared_takes_no_memory, end),
        cmocka_unit_test_teardown(what_the_client_writes_is_not_sent_back, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
