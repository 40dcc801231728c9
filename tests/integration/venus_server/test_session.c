/* Sessions against a real driver: what a client asks for happens, and comes back. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

static const char *const plain[] = {NULL};
static struct server server;

static void expect_words(const struct share *share, uint32_t word, size_t from, size_t to)
{
    for (size_t at = from; at < to; at += 4) {
        uint32_t found;
        memcpy(&found, share->bytes + at, 4);
        assert_int_equal(found, word);
    }
}

static void opening_describes_the_devices(void **state)
{
    struct client c;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    client_start(&c, &server);
    assert_true(c.version >= VK_API_VERSION_1_1);
    assert_true(c.devices >= 1);
    assert_true(c.snapshot_bytes > 1000);
    client_end(&c);
    server_expect_sessions(&server, 0);
    server_stop(&server);
}

static void fill_and_compare(const char *listen)
{
    struct bench b;
    server_start(&server, listen, plain);
    bench_start(&b, &server);
    assert_int_equal(bench_fill(&b, 0x12345678), VK_SUCCESS);
    expect_words(b.share, 0x12345678, 0, BUFFER_BYTES);
    bench_end(&b);
    server_stop(&server);
}

static void a_filled_buffer_comes_back_over_unix(void **state)
{
    (void)state;
    fill_and_compare("unix:%s/s");
}

static void a_filled_buffer_comes_back_over_tcp(void **state)
{
    (void)state;
    fill_and_compare("127.0.0.1:0");
}

static void a_filled_buffer_comes_back_over_shm(void **state)
{
    (void)state;
    fill_and_compare("shm:%s/s");
}

/* The process that takes over goes on with the keys of the handshake, in both directions. */
static void a_filled_buffer_comes_back_over_tls(void **state)
{
    struct bench b;
    struct keys keys;
    (void)state;
    keys_make(&keys);
    server_start(&server, "127.0.0.1:0", keys.args);
    client_connect(&b.c, server.address, &keys.security);
    assert_int_equal(client_open(&b.c), 0);
    b.with_features = false;
    bench_make(&b);
    for (uint32_t word = 1; word < 20; word++) {
        assert_int_equal(bench_fill(&b, word), VK_SUCCESS);
        expect_words(b.share, word, 0, BUFFER_BYTES);
    }
    bench_end(&b);
    server_stop(&server);
    keys_remove(&keys);
}

/* Host writes half, the device copies it to the other half: the copy comes back. */
static void what_the_host_wrote_is_there_for_the_device(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    memset(b.share->bytes, 0x5a, BUFFER_BYTES / 2);
    client_put_delta(&b.c, b.share);
    VkBufferCopy copy = {.dstOffset = BUFFER_BYTES / 2, .size = BUFFER_BYTES / 2};
    size_t hole = bench_record(&b, b.commands);
    vn_enc_cmd_vkCmdCopyBuffer(&b.c.out, b.commands, b.buffer, b.buffer, 1, &copy);
    bench_record_end(&b, b.commands, hole);
    uint64_t number = bench_put_submit(&b, b.commands);
    client_post(&b.c);
    assert_int_equal(client_wait_done(&b.c, b.queue, number), VK_SUCCESS);
    expect_words(b.share, 0x5a5a5a5a, 0, BUFFER_BYTES);
    bench_end(&b);
    server_stop(&server);
}

/* Bytes that were on their way to the server do not come back. */
static void only_changed_bytes_travel(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    assert_int_equal(bench_fill(&b, 7), VK_SUCCESS);
    size_t deltas = b.c.deltas;
    assert_true(deltas >= 1);
    assert_int_equal(bench_fill(&b, 7), VK_SUCCESS);
    assert_int_equal(b.c.deltas, deltas);
    bench_end(&b);
    server_stop(&server);
}

static void memory_mapped_after_work_brings_what_the_work_wrote(void **state)
{
    struct bench b;
    VkDeviceMemory memory;
    VkBuffer buffer;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    assert_int_equal(bench_allocate(&b, &memory, BUFFER_BYTES), VK_SUCCESS);
    bench_create_buffer(&b, &buffer, memory, BUFFER_BYTES);
    size_t hole = bench_record(&b, b.commands);
    vn_enc_cmd_vkCmdFillBuffer(&b.c.out, b.commands, buffer, 0, BUFFER_BYTES, 0xabcdef01);
    bench_record_end(&b, b.commands, hole);
    uint64_t number = bench_put_submit(&b, b.commands);
    client_post(&b.c);
    assert_int_equal(client_wait_done(&b.c, b.queue, number), VK_SUCCESS);
    struct share *share = client_map(&b.c, memory, BUFFER_BYTES);
    expect_words(share, 0xabcdef01, 0, BUFFER_BYTES);
    bench_end(&b);
    server_stop(&server);
}

/* A batch that names no range brings nothing; READ does. */
static void read_brings_what_no_batch_named(void **state)
{
    struct bench b;
    struct rpc_answer answer;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    size_t hole = bench_record(&b, b.commands);
    vn_enc_cmd_vkCmdFillBuffer(&b.c.out, b.commands, b.buffer, 0, BUFFER_BYTES, 9);
    bench_record_end(&b, b.commands, hole);
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .commandBufferCount = 1,
                           .pCommandBuffers = &b.commands};
    client_begin_submit(&b.c, b.queue, ++b.submitted, VK_NULL_HANDLE, 0);
    vn_enc_cmd_vkQueueSubmit(&b.c.out, b.queue, 1, &submit, VK_NULL_HANDLE);
    client_end_submit(&b.c);
    client_post(&b.c);
    assert_int_equal(client_wait_done(&b.c, b.queue, b.submitted), VK_SUCCESS);
    assert_int_equal(b.c.deltas, 0);
    hole = client_begin(&b.c, VN_OP_READ);
    wire_put_u32(&b.c.out, 1);
    wire_put_u64(&b.c.out, vn_id(b.memory));
    wire_put_u64(&b.c.out, BUFFER_BYTES / 2);
    wire_put_u64(&b.c.out, BUFFER_BYTES); /* past the end: cut */
    client_finish(&b.c, hole);
    assert_int_equal(client_call(&b.c, &answer), 0);
    assert_int_equal(answer.len, 0);
    rpc_answer_fini(&answer);
    expect_words(b.share, 0, 0, BUFFER_BYTES / 2);
    expect_words(b.share, 9, BUFFER_BYTES / 2, BUFFER_BYTES);
    bench_end(&b);
    server_stop(&server);
}

/* ---- pages that the client fetches ---- */

struct demand_paged {
    struct bench b;
    VkDeviceMemory memory;
    VkBuffer buffer;
    struct share *share;
};

static void lazy_start(struct demand_paged *l)
{
    server_start(&server, "unix:%s/s", plain);
    bench_start(&l->b, &server);
    assert_int_equal(bench_allocate(&l->b, &l->memory, BUFFER_BYTES), VK_SUCCESS);
    bench_create_buffer(&l->b, &l->buffer, l->memory, BUFFER_BYTES);
    client_put_demand_paged(&l->b.c, l->memory);
    l->share = client_map(&l->b.c, l->memory, BUFFER_BYTES);
}

/* bytes: that the batch can write, as a range has them. */
static void lazy_fill_range(struct demand_paged *l, uint32_t word, uint64_t bytes)
{
    struct bench *b = &l->b;
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .commandBufferCount = 1,
                           .pCommandBuffers = &b->commands};
    size_t hole = bench_record(b, b->commands);
    vn_enc_cmd_vkCmdFillBuffer(&b->c.out, b->commands, l->buffer, 0, BUFFER_BYTES, word);
    bench_record_end(b, b->commands, hole);
    client_begin_submit(&b->c, b->queue, ++b->submitted, l->memory, bytes);
    vn_enc_cmd_vkQueueSubmit(&b->c.out, b->queue, 1, &submit, VK_NULL_HANDLE);
    client_end_submit(&b->c);
    client_post(&b->c);
    assert_int_equal(client_wait_done(&b->c, b->queue, b->submitted), VK_SUCCESS);
}

static void lazy_fill(struct demand_paged *l, uint32_t word)
{
    lazy_fill_range(l, word, BUFFER_BYTES);
}

/* What the server pushed last of the memory, all of which was asked for. */
static const uint32_t *lazy_fetch(struct demand_paged *l)
{
    struct client *c = &l->b.c;
    client_put_fetch(c, l->memory, 0, BUFFER_BYTES);
    client_sync(c);
    const struct push *fill = &c->pushes[c->push_count - 1];
    assert_int_equal(fill->method, VN_PUSH_FILL);
    assert_int_equal(fill->len, 16 + BUFFER_BYTES);
    assert_int_equal(wire_load64(fill->data), vn_id(l->memory));
    assert_int_equal(wire_load64(fill->data + 8), 0);
    return (const uint32_t *)(const void *)(fill->data + 16);
}

static void what_is_not_fetched_is_told_and_not_pushed(void **state)
{
    struct demand_paged l;
    struct client *c = &l.b.c;
    (void)state;
    lazy_start(&l);
    lazy_fill(&l, 7);
    assert_int_equal(c->deltas, 0);
    const struct push *drop = client_wait_push(c, VN_PUSH_DROP);
    assert_int_equal(drop->len, 24);
    assert_int_equal(wire_load64(drop->data), vn_id(l.memory));
    assert_int_equal(wire_load64(drop->data + 8), 0);
    assert_int_equal(wire_load64(drop->data + 16), BUFFER_BYTES);
    lazy_fill(&l, 8); /* the client has none of it: nothing to tell */
    assert_int_equal(client_pushes(c, VN_PUSH_DROP), 1);
    assert_int_equal(lazy_fetch(&l)[BUFFER_BYTES / 4 - 1], 8);
    assert_int_equal(c->deltas, 0);
    lazy_fill(&l, 9); /* now it has all: what changed is pushed */
    assert_int_equal(client_pushes(c, VN_PUSH_DROP), 1);
    assert_int_not_equal(c->deltas, 0);
    assert_int_equal(lazy_fetch(&l)[0], 9);
    bench_end(&l.b);
    server_stop(&server);
}

/* Memory that was compared before; and a copy's destination, which comes without being asked for
 * whether or not the client has the pages. */
static void mapped_memory_becomes_demand_paged(void **state)
{
    struct demand_paged l;
    struct client *c = &l.b.c;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&l.b, &server);
    l.memory = l.b.memory;
    l.buffer = l.b.buffer;
    l.share = l.b.share;
    lazy_fill(&l, 6);
    assert_int_not_equal(c->deltas, 0);
    expect_words(l.share, 6, 0, BUFFER_BYTES);
    client_put_demand_paged(c, l.memory);
    size_t before = c->deltas;
    lazy_fill(&l, 7);
    assert_int_equal(client_pushes(c, VN_PUSH_DROP), 1);
    lazy_fill_range(&l, 8, BUFFER_BYTES | VN_RANGE_FILLED);
    assert_int_equal(client_pushes(c, VN_PUSH_PAGES), 1);
    lazy_fill_range(&l, 9, BUFFER_BYTES | VN_RANGE_FILLED);
    assert_int_equal(client_pushes(c, VN_PUSH_PAGES), 2);
    assert_int_equal(client_pushes(c, VN_PUSH_DROP), 1);
    assert_int_equal(c->deltas, before);
    assert_int_equal(lazy_fetch(&l)[0], 9);
    bench_end(&l.b);
    server_stop(&server);
}

/* The client compares nothing there.  What the server knows of it is right afterwards. */
static void awaited_pages_come_changed_or_not(void **state)
{
    struct demand_paged l;
    struct client *c = &l.b.c;
    const uint64_t awaited = BUFFER_BYTES | VN_RANGE_FILLED | VN_RANGE_AWAITED;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&l.b, &server);
    l.memory = l.b.memory;
    l.buffer = l.b.buffer;
    l.share = l.b.share;
    for (uint32_t i = 1; i <= 3; i++) {
        lazy_fill_range(&l, 6, awaited);
        assert_int_equal(client_pushes(c, VN_PUSH_PAGES), i);
    }
    lazy_fill_range(&l, 6, BUFFER_BYTES | VN_RANGE_FILLED);
    assert_int_equal(client_pushes(c, VN_PUSH_PAGES), 3);
    assert_int_equal(c->deltas, 0);
    lazy_fill_range(&l, 7, awaited - 100); /* a part of the last page: it is compared */
    assert_int_equal(client_pushes(c, VN_PUSH_PAGES), 4);
    assert_int_equal(c->deltas, 1);
    lazy_fill(&l, 7);
    assert_int_equal(c->deltas, 1);
    bench_end(&l.b);
    server_stop(&server);
}

/* The same bytes by way of the device. */
static void what_is_fetched_may_be_copied_by_the_device(void **state)
{
    setenv("VENUS_BUS_COPY", "1", 1);
    what_is_not_fetched_is_told_and_not_pushed(state);
    unsetenv("VENUS_BUS_COPY");
}

static void writes_of_the_host_are_among_what_is_fetched(void **state)
{
    struct demand_paged l;
    (void)state;
    lazy_start(&l);
    lazy_fill(&l, 0x01010101);
    l.share->bytes[5] = 0xaa;
    memset(l.share->bytes + 4096, 0xbb, 4096);
    client_put_delta(&l.b.c, l.share);
    const uint8_t *now = (const uint8_t *)lazy_fetch(&l);
    assert_int_equal(now[4], 1);
    assert_int_equal(now[5], 0xaa);
    assert_int_equal(now[6], 1);
    assert_memory_equal(now + 4096, l.share->bytes + 4096, 4096);
    bench_end(&l.b);
    server_stop(&server);
}

/* SUBMIT of count batches, each of which may write the whole buffer; its command follows. */
static void begin_submit(struct bench *b, uint32_t count)
{
    b->c.submit = client_begin(&b->c, VN_OP_SUBMIT);
    wire_put_u64(&b->c.out, vn_id(b->queue));
    wire_put_u64(&b->c.out, b->submitted + 1);
    wire_put_u32(&b->c.out, count);
    for (uint32_t i = 0; i < count; i++) {
        wire_put_u32(&b->c.out, 1);
        wire_put_u64(&b->c.out, vn_id(b->memory));
        wire_put_u64(&b->c.out, 0);
        wire_put_u64(&b->c.out, BUFFER_BYTES);
    }
    b->submitted += count;
}

/* Every kind of submission, with several batches and with none. */
static void all_submissions_are_counted(void **state)
{
    struct bench b = {.with_features = true};
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    client_start(&b.c, &server);
    bench_make(&b);
    size_t hole = bench_record(&b, b.commands);
    vn_enc_cmd_vkCmdFillBuffer(&b.c.out, b.commands, b.buffer, 0, BUFFER_BYTES, 0x77);
    bench_record_end(&b, b.commands, hole);
    VkCommandBufferSubmitInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO,
                                          .commandBuffer = b.commands};
    VkSubmitInfo2 submits[3] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2},
                                {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                 .commandBufferInfoCount = 1,
                                 .pCommandBufferInfos = &commands},
                                {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2}};
    begin_submit(&b, 3);
    vn_enc_cmd_vkQueueSubmit2(&b.c.out, b.queue, 3, submits, VK_NULL_HANDLE);
    client_end_submit(&b.c);
    begin_submit(&b, 1);
    vn_enc_cmd_vkQueueSubmit2(&b.c.out, b.queue, 0, NULL, VK_NULL_HANDLE);
    client_end_submit(&b.c);
    begin_submit(&b, 1);
    vn_enc_cmd_vkQueueSubmit(&b.c.out, b.queue, 0, NULL, VK_NULL_HANDLE);
    client_end_submit(&b.c);
    begin_submit(&b, 1);
    vn_enc_cmd_vkQueueBindSparse(&b.c.out, b.queue, 0, NULL, VK_NULL_HANDLE);
    client_end_submit(&b.c);
    client_post(&b.c);
    assert_int_equal(client_wait_done(&b.c, b.queue, 6), VK_SUCCESS);
    expect_words(b.share, 0x77, 0, BUFFER_BYTES);
    bench_end(&b);
    server_stop(&server);
}

static void put_early(struct bench *b, uint64_t number)
{
    size_t hole = client_begin(&b->c, VN_OP_EARLY);
    wire_put_u64(&b->c.out, vn_id(b->queue));
    wire_put_u64(&b->c.out, number);
    client_finish(&b->c, hole);
}

/* More of them than there are command buffers, each told to be done at once, between fills. */
static void updates_are_in_order_with_all_else(void **state)
{
    enum { UPDATES = 40 };
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    for (uint32_t round = 1; round <= 3; round++) {
        size_t hole = bench_record(&b, b.commands);
        vn_enc_cmd_vkCmdFillBuffer(&b.c.out, b.commands, b.buffer, 0, BUFFER_BYTES, round);
        bench_record_end(&b, b.commands, hole);
        (void)bench_put_submit(&b, b.commands);
        for (uint32_t i = 0; i < UPDATES; i++) {
            uint32_t words[2] = {round << 8 | i, 7};
            client_begin_submit(&b.c, b.queue, ++b.submitted, b.memory, BUFFER_BYTES);
            client_put_update(&b.c, vn_id(b.buffer), 4 * (uint64_t)i, words, sizeof(words));
            client_end_submit(&b.c);
            put_early(&b, b.submitted);
        }
        client_post(&b.c);
        assert_int_equal(client_wait_done(&b.c, b.queue, b.submitted), VK_SUCCESS);
        const uint32_t *now = (const uint32_t *)(const void *)b.share->bytes;
        for (uint32_t i = 0; i < UPDATES; i++)
            assert_int_equal(now[i], round << 8 | i);
        assert_int_equal(now[UPDATES], 7);
        expect_words(b.share, round, 4 * (UPDATES + 1), BUFFER_BYTES);
    }
    bench_end(&b);
    server_stop(&server);
}

/* A buffer without any use is against the specification: the layer says so, in the log and to the
 * client. */
static void validation_is_told_to_log_and_client(void **state)
{
    static const char *const args[] = {"--validate", NULL};
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    client_connect(&b.c, server.address, NULL);
    int rc = client_open(&b.c);
    if (rc == -ENOTSUP) { /* no layer is installed */
        client_end(&b.c);
        server_stop(&server);
        skip();
    }
    assert_int_equal(rc, 0);
    b.with_features = true;
    bench_make(&b);
    assert_int_equal(bench_fill(&b, 1), VK_SUCCESS);
    client_sync(&b.c);
    assert_int_equal(server_log_lines(&server, "validation: "), 0);
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = 64};
    VkBuffer buffer = client_object(&b.c, VK_OBJECT_TYPE_BUFFER);
    vn_enc_cmd_vkCreateBuffer(&b.c.out, b.device, &info, NULL, &buffer);
    client_post(&b.c);
    const struct push *push = client_wait_push(&b.c, VN_PUSH_MESSAGE);
    char name[WIRE_STR_MAX], text[WIRE_STR_MAX];
    struct wire_dec d;
    wire_dec_init(&d, push->data, push->len);
    assert_int_equal(wire_get_u32(&d), VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT);
    assert_int_equal(wire_get_u32(&d), VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT);
    (void)wire_get_i32(&d);
    wire_get_str_copy(&d, name, sizeof(name));
    wire_get_str_copy(&d, text, sizeof(text));
    assert_int_equal(wire_dec_end(&d), 0);
    assert_non_null(strstr(name, "VUID-VkBufferCreateInfo-usage"));
    assert_non_null(strstr(text, "usage"));
    server_expect_log(&server, "validation: ", 1);
    bench_end(&b);
    server_stop(&server);
}

/* What the driver would say of a buffer of that size. */
static VkMemoryRequirements ask_requirements(struct bench *b, VkBufferUsageFlags usage,
                                             VkDeviceSize size)
{
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = size, .usage = usage};
    VkBuffer buffer = client_object(&b->c, VK_OBJECT_TYPE_BUFFER);
    VkMemoryRequirements answered = {0};
    struct rpc_answer answer;
    struct vn_decoder d;
    vn_enc_cmd_vkCreateBuffer(&b->c.out, b->device, &info, NULL, &buffer);
    vn_enc_cmd_vkGetBufferMemoryRequirements(&b->c.out, b->device, buffer, &answered);
    assert_int_equal(client_call(&b->c, &answer), 0);
    vn_decoder_init(&d, &b->c.arena, NULL, NULL);
    vn_decoder_feed(&d, answer.data, answer.len);
    vn_dec_reply_vkGetBufferMemoryRequirements(&d, b->device, buffer, &answered);
    assert_int_equal(vn_decoder_end(&d), 0);
    rpc_answer_fini(&answer);
    return answered;
}

static void what_buffers_need_is_told_before_it_is_asked(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    const struct push *push = client_wait_push(&b.c, VN_PUSH_REGULAR);
    struct wire_dec d;
    wire_dec_init(&d, push->data, push->len);
    assert_int_equal(wire_get_u64(&d), vn_id(b.device));
    uint32_t usage = wire_get_u32(&d), types = wire_get_u32(&d);
    uint64_t alignment = wire_get_u64(&d), grain = wire_get_u64(&d), largest = wire_get_u64(&d);
    assert_int_equal(wire_dec_end(&d), 0);
    assert_true(largest > 1 << 20); /* of every driver that we know */
    assert_int_equal(usage, VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT);
    for (uint64_t size = 1; size <= largest; size = size * 3 + 7) {
        VkMemoryRequirements asked = ask_requirements(&b, usage, size);
        assert_int_equal(asked.alignment, alignment);
        assert_int_equal(asked.memoryTypeBits, types);
        assert_int_equal(asked.size, (size + grain - 1) & ~(grain - 1));
    }
    bench_end(&b);
    server_stop(&server);
}

/* What a session counts is on the main process's page, and stays there when it has ended. */
static void sessions_are_in_the_metrics(void **state)
{
    static const char *const args[] = {"--metrics", "127.0.0.1:0", NULL};
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    bench_start(&b, &server);
    assert_int_equal(server_counter(&server, "hawser_server_clients"), 1);
    for (uint32_t word = 1; word <= 50; word++)
        assert_int_equal(bench_fill(&b, word), VK_SUCCESS);
    bench_end(&b);
    server_expect_log(&server, "its session ended", 1);
    assert_true(server_counter(&server, "hawser_rpc_messages_received_total") >= 50);
    assert_true(server_counter(&server, "hawser_rpc_messages_received_total") < 200);
    assert_int_equal(server_counter(&server, "hawser_server_clients"), 0);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_describes_the_devices),
        cmocka_unit_test(a_filled_buffer_comes_back_over_unix),
        cmocka_unit_test(a_filled_buffer_comes_back_over_tcp),
        cmocka_unit_test(a_filled_buffer_comes_back_over_shm),
        cmocka_unit_test(a_filled_buffer_comes_back_over_tls),
        cmocka_unit_test(what_the_host_wrote_is_there_for_the_device),
        cmocka_unit_test(only_changed_bytes_travel),
        cmocka_unit_test(memory_mapped_after_work_brings_what_the_work_wrote),
        cmocka_unit_test(read_brings_what_no_batch_named),
        cmocka_unit_test(what_is_not_fetched_is_told_and_not_pushed),
        cmocka_unit_test(mapped_memory_becomes_demand_paged),
        cmocka_unit_test(awaited_pages_come_changed_or_not),
        cmocka_unit_test(what_is_fetched_may_be_copied_by_the_device),
        cmocka_unit_test(writes_of_the_host_are_among_what_is_fetched),
        cmocka_unit_test(all_submissions_are_counted),
        cmocka_unit_test(updates_are_in_order_with_all_else),
        cmocka_unit_test(validation_is_told_to_log_and_client),
        cmocka_unit_test(what_buffers_need_is_told_before_it_is_asked),
        cmocka_unit_test(sessions_are_in_the_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
