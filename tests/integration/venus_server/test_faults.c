/* What goes wrong in one session: its client is told, the log says one line, others never notice.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "harness.h"

#ifdef HAWSER_UCX
#include "rpc/transport/ucx.h"
#endif

static const char *const plain[] = {NULL};
static struct server server;

/* ---- what cannot be executed ---- */

static void expect_ended(struct client *c, const char *line)
{
    assert_true(client_wait_end(c) < 0);
    server_expect_log(&server, line, 1);
    assert_int_equal(server_log_lines(&server, "session ended: "), 1);
    client_end(c);
    server_expect_sessions(&server, 0);
}

/* What a program destroyed, or never had, costs the command that names it. */
static void an_unknown_id_costs_its_command(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    VkBuffer never_made = client_object(&b.c, VK_OBJECT_TYPE_BUFFER);
    vn_enc_cmd_vkDestroyBuffer(&b.c.out, b.device, never_made, NULL);
    client_post(&b.c);
    vn_enc_cmd_vkDestroyImage(&b.c.out, b.device, (VkImage)b.buffer, NULL);
    client_post(&b.c);
    assert_int_equal(bench_fill(&b, 3), VK_SUCCESS);
    assert_int_equal(b.share->bytes[0], 3);
    server_expect_log(&server, "vkDestroyBuffer: id 1009 is unknown, or of another type", 1);
    assert_int_equal(server_log_lines(&server, "is unknown"), 1);
    bench_end(&b);
    server_stop(&server);
}

/* A recording with one is executed as an empty one, and the next recording is as good as any. */
static void an_unknown_id_costs_its_recording(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    assert_int_equal(bench_fill(&b, 3), VK_SUCCESS);
    VkBuffer gone = client_object(&b.c, VK_OBJECT_TYPE_BUFFER);
    size_t hole = bench_record(&b, b.commands);
    vn_enc_cmd_vkCmdFillBuffer(&b.c.out, b.commands, b.buffer, 0, BUFFER_BYTES, 4);
    vn_enc_cmd_vkCmdFillBuffer(&b.c.out, b.commands, gone, 0, 64, 5);
    bench_record_end(&b, b.commands, hole);
    for (int i = 0; i < 2; i++) {
        uint64_t number = bench_put_submit(&b, b.commands);
        client_post(&b.c);
        assert_int_equal(client_wait_done(&b.c, b.queue, number), VK_SUCCESS);
    }
    assert_int_equal(b.share->bytes[0], 3);
    assert_int_equal(bench_fill(&b, 6), VK_SUCCESS);
    assert_int_equal(b.share->bytes[0], 6);
    bench_end(&b);
    server_stop(&server);
}

/* A command buffer of one device from the pool of another would outlive the queue it ran on. */
static void an_id_of_another_device_is_unknown(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue};
    VkDevice other = client_object(&b.c, VK_OBJECT_TYPE_DEVICE);
    vn_enc_cmd_vkCreateDevice(&b.c.out, b.c.physical, &info, NULL, &other);
    assert_int_equal(client_call_result(&b.c), VK_SUCCESS);
    VkCommandBufferAllocateInfo buffers = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                           .commandPool = b.pool,
                                           .commandBufferCount = 1};
    VkCommandBuffer commands = client_object(&b.c, VK_OBJECT_TYPE_COMMAND_BUFFER);
    vn_enc_cmd_vkAllocateCommandBuffers(&b.c.out, other, &buffers, &commands);
    assert_int_equal(client_call_result(&b.c), VK_ERROR_UNKNOWN);
    server_expect_log(&server, "vkAllocateCommandBuffers: id", 1);
    vn_enc_cmd_vkDestroyDevice(&b.c.out, other, NULL);
    vn_enc_cmd_vkResetCommandPool(&b.c.out, b.device, b.pool, 0);
    assert_int_equal(bench_fill(&b, 3), VK_SUCCESS);
    assert_int_equal(b.share->bytes[0], 3);
    bench_end(&b);
    server_stop(&server);
}

static void a_freed_id_is_unknown(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    vn_enc_cmd_vkDestroyBuffer(&b.c.out, b.device, b.buffer, NULL);
    vn_enc_cmd_vkDestroyBuffer(&b.c.out, b.device, b.buffer, NULL);
    client_sync(&b.c);
    server_expect_log(&server, "vkDestroyBuffer: id", 1);
    bench_end(&b);
    server_stop(&server);
}

static void an_id_given_twice_ends_the_session(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    VkCommandPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    vn_enc_cmd_vkCreateCommandPool(&b.c.out, b.device, &info, NULL, &b.pool);
    client_post(&b.c);
    expect_ended(&b.c, "is in use");
    server_stop(&server);
}

/* Command buffers end with their pool, descriptor sets with a reset, all with the device. */
static void a_member_of_a_destroyed_pool_is_unknown(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    vn_enc_cmd_vkDestroyCommandPool(&b.c.out, b.device, b.pool, NULL);
    size_t hole = bench_record(&b, b.commands);
    bench_record_end(&b, b.commands, hole);
    client_post(&b.c);
    expect_ended(&b.c, "RECORD: No such file or directory");
    server_stop(&server);
}

static void a_member_of_a_destroyed_device_is_unknown(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    assert_int_equal(bench_fill(&b, 1), VK_SUCCESS);
    vn_enc_cmd_vkDestroyDevice(&b.c.out, b.device, NULL);
    client_sync(&b.c);
    vn_enc_cmd_vkDestroyBuffer(&b.c.out, b.device, b.buffer, NULL);
    client_post(&b.c);
    server_expect_log(&server, "vkDestroyBuffer: id", 1);
    bench_end(&b);
    server_stop(&server);
}

/* Only what is recorded may be in a recording: the rest could free the command buffer under it. */
static void a_recording_with_other_commands_ends_the_session(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    size_t hole = bench_record(&b, b.commands);
    vn_enc_cmd_vkFreeCommandBuffers(&b.c.out, b.device, b.pool, 1, &b.commands);
    bench_record_end(&b, b.commands, hole);
    client_post(&b.c);
    expect_ended(&b.c, "vkFreeCommandBuffers: Protocol error");
    server_stop(&server);
}

static void batches_out_of_order_end_the_session(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    client_begin_submit(&b.c, b.queue, 2, VK_NULL_HANDLE, 0);
    client_end_submit(&b.c);
    client_post(&b.c);
    expect_ended(&b.c, "SUBMIT: Protocol error");
    server_stop(&server);
}

static void a_submission_outside_of_SUBMIT_ends_the_session(void **state)
{
    struct bench b;
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO};
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    vn_enc_cmd_vkQueueSubmit(&b.c.out, b.queue, 1, &submit, VK_NULL_HANDLE);
    client_post(&b.c);
    expect_ended(&b.c, "vkQueueSubmit: Protocol error");
    server_stop(&server);
}

static void a_SUBMIT_with_another_number_of_batches_ends_the_session(void **state)
{
    struct bench b;
    VkSubmitInfo submits[2] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO},
                               {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO}};
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    client_begin_submit(&b.c, b.queue, 1, VK_NULL_HANDLE, 0);
    vn_enc_cmd_vkQueueSubmit(&b.c.out, b.queue, 2, submits, VK_NULL_HANDLE);
    client_end_submit(&b.c);
    client_post(&b.c);
    expect_ended(&b.c, "vkQueueSubmit: Protocol error");
    server_stop(&server);
}

/* Memory that is no such, and ranges that are none. */
static void fetches_that_make_no_sense_end_the_session(void **state)
{
    static const struct {
        bool demand_paged;
        uint64_t off;
        uint32_t bytes;
        const char *line;
    } bad[] = {{false, 0, 4096, "FETCH: No such file or directory"},
               {true, 1, 4096, "FETCH: Protocol error"},
               {true, 0, 0, "FETCH: Protocol error"},
               {true, 0, 2 * BUFFER_BYTES, "FETCH: Protocol error"},
               {true, UINT64_MAX - 4095, 4096, "FETCH: Protocol error"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct bench b;
        VkDeviceMemory memory;
        server_start(&server, "unix:%s/s", plain);
        bench_start(&b, &server);
        assert_int_equal(bench_allocate(&b, &memory, BUFFER_BYTES), VK_SUCCESS);
        if (bad[i].demand_paged)
            client_put_demand_paged(&b.c, memory);
        (void)client_map(&b.c, memory, BUFFER_BYTES);
        client_put_fetch(&b.c, memory, bad[i].off, bad[i].bytes);
        client_post(&b.c);
        expect_ended(&b.c, bad[i].line);
        server_stop(&server);
    }
}

static void memory_becomes_demand_paged_once(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    client_put_demand_paged(&b.c, b.memory);
    client_put_demand_paged(&b.c, b.memory);
    client_post(&b.c);
    expect_ended(&b.c, "DEMAND_PAGED: Protocol error");
    server_stop(&server);
}

static void put_renew(struct bench *b, VkDeviceMemory memory, VkDeviceMemory renewed)
{
    size_t hole = client_begin(&b->c, VN_OP_RENEW);
    wire_put_u64(&b->c.out, vn_id(memory));
    wire_put_u64(&b->c.out, vn_id(renewed));
    client_finish(&b->c, hole);
}

/* The old id is gone, the new one counts once against the limit and can be mapped and freed. */
static void memory_is_renewed_with_another_id(void **state)
{
    static const char *const args[] = {"--max-memory", "1MiB", NULL};
    struct bench b;
    VkDeviceMemory memory, more;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    bench_start(&b, &server);
    assert_int_equal(bench_allocate(&b, &memory, 600 << 10), VK_SUCCESS);
    for (int i = 0; i < 3; i++) {
        VkDeviceMemory renewed = client_object(&b.c, VK_OBJECT_TYPE_DEVICE_MEMORY);
        (void)client_map(&b.c, memory, 600 << 10);
        put_renew(&b, memory, renewed);
        memory = renewed;
    }
    assert_int_equal(bench_allocate(&b, &more, 600 << 10), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    vn_enc_cmd_vkFreeMemory(&b.c.out, b.device, memory, NULL);
    assert_int_equal(bench_allocate(&b, &more, 600 << 10), VK_SUCCESS);
    put_renew(&b, memory, more);
    client_post(&b.c);
    expect_ended(&b.c, "RENEW: No such file or directory");
    server_stop(&server);
}

static void memory_is_not_renewed_with_an_id_in_use(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    put_renew(&b, b.memory, b.memory);
    client_post(&b.c);
    expect_ended(&b.c, "RENEW: File exists");
    server_stop(&server);
}

static void noise_ends_the_session(void **state)
{
    struct hw_rng rng;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    for (unsigned i = 1; i <= 16; i++) {
        struct bench b;
        bench_start(&b, &server);
        hw_rng_seed(&rng, i);
        for (unsigned k = 0; k < 256; k++)
            wire_put_u8(&b.c.out, (uint8_t)hw_rng_u64(&rng));
        client_post(&b.c);
        assert_true(client_wait_end(&b.c) < 0);
        server_expect_log(&server, "session ended: ", i);
        bench_end(&b);
    }
    server_expect_sessions(&server, 0);
    assert_int_equal(server_log_lines(&server, "died with signal"), 0);
    server_stop(&server);
}

/* ---- recordings that are kept ---- */

static size_t record_kept(struct bench *b, VkCommandBuffer commands)
{
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    size_t hole = client_begin(&b->c, VN_OP_RECORD_KEPT);
    wire_put_u64(&b->c.out, vn_id(commands));
    vn_enc_cmd_vkBeginCommandBuffer(&b->c.out, commands, &begin);
    return hole;
}

static void put_kept_fill(struct bench *b, uint32_t word)
{
    size_t hole = record_kept(b, b->commands);
    vn_enc_cmd_vkCmdFillBuffer(&b->c.out, b->commands, b->buffer, 0, BUFFER_BYTES, word);
    bench_record_end(b, b->commands, hole);
}

static void put_again(struct bench *b, uint64_t id)
{
    size_t hole = client_begin(&b->c, VN_OP_AGAIN);
    wire_put_u64(&b->c.out, id);
    client_finish(&b->c, hole);
}

static VkResult submit_and_wait(struct bench *b)
{
    uint64_t number = bench_put_submit(b, b->commands);
    client_post(&b->c);
    return client_wait_done(&b->c, b->queue, number);
}

/* The end of a recording alone. */
static void put_kept_end(struct bench *b)
{
    size_t hole = client_begin(&b->c, VN_OP_RECORD_KEPT);
    wire_put_u64(&b->c.out, vn_id(b->commands));
    bench_record_end(b, b->commands, hole);
}

static void again_of_nothing(struct bench *b)
{
    put_again(b, vn_id(b->commands));
}

static void again_of_what_is_not_kept(struct bench *b)
{
    put_kept_fill(b, 1);
    put_again(b, vn_id(b->commands));
    bench_record_end(b, b->commands, bench_record(b, b->commands));
    put_again(b, vn_id(b->commands));
}

static void again_of_what_is_not_ended(struct bench *b)
{
    client_finish(&b->c, record_kept(b, b->commands));
    put_again(b, vn_id(b->commands));
}

static void again_of_an_unknown_id(struct bench *b)
{
    put_again(b, 9999);
}

static void again_of_another_type(struct bench *b)
{
    put_again(b, vn_id(b->buffer));
}

static void again_of_what_was_freed(struct bench *b)
{
    put_kept_fill(b, 1);
    vn_enc_cmd_vkFreeCommandBuffers(&b->c.out, b->device, b->pool, 1, &b->commands);
    put_again(b, vn_id(b->commands));
}

static void again_with_more(struct bench *b)
{
    put_kept_fill(b, 1);
    size_t hole = client_begin(&b->c, VN_OP_AGAIN);
    wire_put_u64(&b->c.out, vn_id(b->commands));
    wire_put_u8(&b->c.out, 0);
    client_finish(&b->c, hole);
}

static void again_for_a_submission(struct bench *b)
{
    put_kept_fill(b, 1);
    client_begin_submit(&b->c, b->queue, ++b->submitted, VK_NULL_HANDLE, 0);
    put_again(b, vn_id(b->commands));
    client_end_submit(&b->c);
}

static void kept_behind_what_is_not(struct bench *b)
{
    client_finish(&b->c, bench_record(b, b->commands));
    put_kept_end(b);
}

static void kept_behind_its_end(struct bench *b)
{
    put_kept_fill(b, 1);
    put_kept_end(b);
}

/* A recording of so many bytes. */
static void put_recording_of(struct bench *b, VkCommandBuffer commands, size_t bytes)
{
    enum { UPDATES = 6, UPDATE_BYTES = 43652, END_BYTES = 8 };
    static const uint8_t zeros[BUFFER_BYTES];
    struct wire_enc *out = &b->c.out;
    size_t hole = record_kept(b, commands), start = hole + 4 + 8, head = 0;
    for (int i = 1; i < UPDATES; i++) {
        head = wire_enc_len(out);
        vn_enc_cmd_vkCmdUpdateBuffer(out, commands, b->buffer, 0, UPDATE_BYTES, zeros);
        head = wire_enc_len(out) - head - UPDATE_BYTES;
    }
    size_t rest = bytes - (wire_enc_len(out) - start) - head - END_BYTES;
    assert_true(rest % 4 == 0 && rest <= sizeof(zeros));
    vn_enc_cmd_vkCmdUpdateBuffer(out, commands, b->buffer, 0, rest, zeros);
    bench_record_end(b, commands, hole);
    assert_int_equal(wire_enc_len(out) - start, bytes);
}

static void kept_and_too_long(struct bench *b)
{
    put_recording_of(b, b->commands, VN_KEPT_RECORDING_MAX);
    put_again(b, vn_id(b->commands));
    client_sync(&b->c); /* so far so good */
    put_recording_of(b, b->commands, VN_KEPT_RECORDING_MAX + 4);
}

static void kept_and_too_many(struct bench *b)
{
    enum { FULL = VN_KEPT_RECORDINGS_MAX / VN_KEPT_RECORDING_MAX };
    static struct vn_object objects[FULL];
    VkCommandBuffer buffers[FULL];
    for (uint64_t i = 0; i < FULL; i++) {
        objects[i] = (struct vn_object){.id = 20000 + i, .type = VK_OBJECT_TYPE_COMMAND_BUFFER};
        buffers[i] = (VkCommandBuffer)(void *)&objects[i];
    }
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = b->pool,
                                        .commandBufferCount = FULL};
    vn_enc_cmd_vkAllocateCommandBuffers(&b->c.out, b->device, &info, buffers);
    for (uint32_t i = 0; i < FULL; i++) {
        put_recording_of(b, buffers[i], VN_KEPT_RECORDING_MAX);
        client_post(&b->c);
    }
    client_sync(&b->c);
    put_kept_fill(b, 1);
}

/* And another client, whose recording is kept all the while, notices nothing. */
static void recordings_that_are_not_there_end_the_session(void **state)
{
    static const struct {
        void (*put)(struct bench *);
        const char *line;
    } bad[] = {
        {again_of_nothing, "AGAIN: Protocol error"},
        {again_of_what_is_not_kept, "AGAIN: Protocol error"},
        {again_of_what_is_not_ended, "AGAIN: Protocol error"},
        {again_of_an_unknown_id, "AGAIN: No such file or directory"},
        {again_of_another_type, "AGAIN: No such file or directory"},
        {again_of_what_was_freed, "AGAIN: No such file or directory"},
        {again_with_more, "AGAIN: Protocol error"},
        {again_for_a_submission, "AGAIN: Protocol error"},
        {put_kept_end, "RECORD_KEPT: Protocol error"},
        {kept_behind_what_is_not, "RECORD_KEPT: Protocol error"},
        {kept_behind_its_end, "RECORD_KEPT: Protocol error"},
        {kept_and_too_long, "RECORD_KEPT: over a limit (recordings that a server keeps)"},
        {kept_and_too_many, "RECORD_KEPT: over a limit (recordings that a server keeps)"},
    };
    struct bench other, b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&other, &server);
    put_kept_fill(&other, 5);
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        unsigned before = server_log_lines(&server, bad[i].line);
        bench_start(&b, &server);
        bad[i].put(&b);
        client_post(&b.c);
        assert_true(client_wait_end(&b.c) < 0);
        server_expect_log(&server, bad[i].line, before + 1);
        assert_int_equal(server_log_lines(&server, "session ended: "), i + 1);
        bench_end(&b);
        put_again(&other, vn_id(other.commands));
        assert_int_equal(submit_and_wait(&other), VK_SUCCESS);
    }
    bench_end(&other);
    server_stop(&server);
}

/* What is kept of it is nothing, as of every recording into it. */
static void a_recording_of_a_poisoned_command_buffer_is_nothing(void **state)
{
    static const char *const none[] = {"VK_HAWSER_no_such_extension"};
    struct bench b;
    VkDeviceCreateInfo refused = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                  .enabledExtensionCount = 1,
                                  .ppEnabledExtensionNames = none};
    VkCommandPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    VkDevice device = client_object(&b.c, VK_OBJECT_TYPE_DEVICE);
    VkCommandPool pool = client_object(&b.c, VK_OBJECT_TYPE_COMMAND_POOL);
    VkCommandBuffer commands = client_object(&b.c, VK_OBJECT_TYPE_COMMAND_BUFFER);
    vn_enc_cmd_vkCreateDevice(&b.c.out, b.c.physical, &refused, NULL, &device);
    vn_enc_cmd_vkCreateCommandPool(&b.c.out, device, &info, NULL, &pool);
    VkCommandBufferAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = pool,
                                            .commandBufferCount = 1};
    vn_enc_cmd_vkAllocateCommandBuffers(&b.c.out, device, &allocate, &commands);
    put_again(&b, vn_id(commands));
    bench_record_end(&b, commands, record_kept(&b, commands));
    put_again(&b, vn_id(commands));
    vn_enc_cmd_vkResetCommandPool(&b.c.out, device, pool, 0);
    put_again(&b, vn_id(commands));
    assert_int_equal(bench_fill(&b, 3), VK_SUCCESS);
    uint64_t number = bench_put_submit(&b, commands);
    client_post(&b.c);
    assert_int_equal(client_wait_done(&b.c, b.queue, number), VK_ERROR_DEVICE_LOST);
    bench_end(&b);
    server_stop(&server);
    assert_int_equal(server_log_lines(&server, "session ended: "), 0);
}

/* ---- what a driver refuses ---- */

/* A buffer on memory that was not given, work on it: skipped, and told; the session goes on. */
static void what_uses_a_poisoned_id_is_skipped(void **state)
{
    static const char *const args[] = {"--max-memory", "1MiB", NULL};
    struct bench b;
    VkDeviceMemory memory;
    VkBuffer buffer;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    bench_start(&b, &server);
    assert_int_equal(bench_allocate(&b, &memory, 2 << 20), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    bench_create_buffer(&b, &buffer, memory, BUFFER_BYTES);
    size_t hole = client_begin(&b.c, VN_OP_MAP);
    wire_put_u64(&b.c.out, vn_id(memory));
    client_finish(&b.c, hole);
    assert_int_equal(client_call_result(&b.c), VK_ERROR_MEMORY_MAP_FAILED);
    vn_enc_cmd_vkFreeMemory(&b.c.out, b.device, memory, NULL);
    assert_int_equal(bench_fill(&b, 3), VK_SUCCESS);
    bench_end(&b);
    server_stop(&server);
}

/* A command buffer that could not be recorded in full is not executed. */
static void a_batch_with_an_incomplete_command_buffer_is_lost(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    /* A queue that the device does not have is void. */
    VkQueue none = client_object(&b.c, VK_OBJECT_TYPE_QUEUE);
    vn_enc_cmd_vkGetDeviceQueue(&b.c.out, b.device, 0, 77, &none);
    client_sync(&b.c);
    /* A command buffer that fills a poisoned buffer is poisoned. */
    VkBuffer buffer = client_object(&b.c, VK_OBJECT_TYPE_BUFFER);
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = UINT64_MAX,
                               .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    vn_enc_cmd_vkCreateBuffer(&b.c.out, b.device, &info, NULL, &buffer);
    size_t hole = bench_record(&b, b.commands);
    vn_enc_cmd_vkCmdFillBuffer(&b.c.out, b.commands, buffer, 0, 64, 1);
    bench_record_end(&b, b.commands, hole);
    uint64_t number = bench_put_submit(&b, b.commands);
    client_post(&b.c);
    assert_int_equal(client_wait_done(&b.c, b.queue, number), VK_ERROR_DEVICE_LOST);
    const struct push *failed = client_wait_push(&b.c, VN_PUSH_FAILED);
    assert_int_equal(failed->len, 16);
    assert_int_equal(wire_load64(failed->data + 8), vn_id(b.device));
    assert_int_equal(wire_load32(failed->data), VN_CMD_vkCreateBuffer);
    bench_end(&b);
    server_stop(&server);
}

/* ---- limits ---- */

static void memory_over_the_limit_is_refused(void **state)
{
    static const char *const args[] = {"--max-memory", "1MiB", NULL};
    struct bench b;
    VkDeviceMemory half, more;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    bench_start(&b, &server);
    assert_int_equal(bench_allocate(&b, &half, 600 << 10), VK_SUCCESS);
    assert_int_equal(bench_allocate(&b, &more, 600 << 10), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(bench_allocate(&b, &more, 600 << 10), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    vn_enc_cmd_vkFreeMemory(&b.c.out, b.device, half, NULL);
    assert_int_equal(bench_allocate(&b, &more, 600 << 10), VK_SUCCESS);
    server_expect_log(&server, "(--max-memory)", 1);
    assert_int_equal(bench_fill(&b, 5), VK_SUCCESS);
    bench_end(&b);
    server_stop(&server);
    assert_int_equal(server_log_lines(&server, "(--max-memory)"), 1);
}

static void objects_over_the_limit_end_the_session(void **state)
{
    static const char *const args[] = {"--max-objects", "16", NULL};
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    bench_start(&b, &server);
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = 64,
                               .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    for (int i = 0; i < 20; i++) {
        VkBuffer buffer = client_object(&b.c, VK_OBJECT_TYPE_BUFFER);
        vn_enc_cmd_vkCreateBuffer(&b.c.out, b.device, &info, NULL, &buffer);
        vn_enc_cmd_vkDestroyImage(&b.c.out, b.device, (VkImage)buffer, NULL); /* destroys nothing */
    }
    client_post(&b.c);
    expect_ended(&b.c, "over a limit (--max-objects");
    server_stop(&server);
}

/* Puts a batch that waits for a semaphore which nobody signals: it stays pending. */
static void put_endless(struct bench *b, VkSemaphore semaphore)
{
    uint64_t value = 1;
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .waitSemaphoreValueCount = 1,
                                            .pWaitSemaphoreValues = &value};
    VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .pNext = &values,
                           .waitSemaphoreCount = 1,
                           .pWaitSemaphores = &semaphore,
                           .pWaitDstStageMask = &stage};
    client_begin_submit(&b->c, b->queue, ++b->submitted, VK_NULL_HANDLE, 0);
    vn_enc_cmd_vkQueueSubmit(&b->c.out, b->queue, 1, &submit, VK_NULL_HANDLE);
    client_end_submit(&b->c);
}

static VkSemaphore put_timeline(struct bench *b)
{
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                      .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkSemaphore semaphore = client_object(&b->c, VK_OBJECT_TYPE_SEMAPHORE);
    vn_enc_cmd_vkCreateSemaphore(&b->c.out, b->device, &info, NULL, &semaphore);
    return semaphore;
}

static void pending_batches_over_the_limit_end_the_session(void **state)
{
    static const char *const args[] = {"--max-pending", "4", NULL};
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    bench_start(&b, &server);
    VkSemaphore semaphore = put_timeline(&b);
    for (uint64_t i = 1; i <= 6; i++)
        put_endless(&b, semaphore);
    client_post(&b.c);
    expect_ended(&b.c, "SUBMIT: over a limit");
    server_stop(&server);
}

static void put_early(struct bench *b, uint64_t number)
{
    size_t hole = client_begin(&b->c, VN_OP_EARLY);
    wire_put_u64(&b->c.out, vn_object_of(b->queue)->id);
    wire_put_u64(&b->c.out, number);
    client_finish(&b->c, hole);
}

/* Also on the same queue; were it not so, these would be over the limit.  And the wait, which such
 * a client makes endless, does not outlive the client. */
static void submissions_wait_for_what_was_reported_early(void **state)
{
    static const char *const args[] = {"--max-pending", "10", NULL};
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    bench_start(&b, &server);
    VkSemaphore semaphore = put_timeline(&b);
    for (uint64_t i = 1; i <= 20; i++) {
        put_endless(&b, semaphore);
        put_early(&b, i);
    }
    client_post(&b.c);
    client_end(&b.c);
    server_expect_sessions(&server, 0);
    server_expect_log(&server, "gone while the driver was busy", 1);
    assert_int_equal(server_log_lines(&server, "over a limit"), 0);
    server_stop(&server);
}

static void an_early_report_of_no_batch_ends_the_session(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    assert_int_equal(bench_fill(&b, 1), VK_SUCCESS);
    put_early(&b, b.submitted);
    put_early(&b, b.submitted + 1);
    client_post(&b.c);
    expect_ended(&b.c, "EARLY: Protocol error");
    server_stop(&server);
}

/* UPDATE and COPY, of a server of their own. */
static void try_update(bool in_submit, void (*put)(struct bench *b, const void *what),
                       const void *what, const char *line)
{
    struct bench b;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    if (in_submit)
        client_begin_submit(&b.c, b.queue, ++b.submitted, b.memory, BUFFER_BYTES);
    put(&b, what);
    if (in_submit)
        client_end_submit(&b.c);
    client_post(&b.c);
    expect_ended(&b.c, line);
    server_stop(&server);
}

/* A buffer 0 is the right one. */
struct bad_update {
    uint64_t buffer, offset;
    uint32_t size;
    bool in_submit;
    const char *line;
};

static void put_bad_update(struct bench *b, const void *what)
{
    static const uint8_t bytes[VN_UPDATE_BYTES + 4];
    const struct bad_update *bad = what;
    client_put_update(&b->c, bad->buffer ? bad->buffer : vn_id(b->buffer), bad->offset, bytes,
                      bad->size);
}

static void updates_that_make_no_sense_end_the_session(void **state)
{
    static const struct bad_update bad[] = {
        {0, 0, 4, false, "UPDATE: Protocol error"},
        {0, 2, 4, true, "UPDATE: Protocol error"},
        {0, 0, 6, true, "UPDATE: Protocol error"},
        {0, 0, VN_UPDATE_BYTES + 4, true, "UPDATE: Protocol error"},
        {9999, 0, 4, true, "UPDATE: "},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        try_update(bad[i].in_submit, put_bad_update, &bad[i], bad[i].line);
}

/* A session counts as a client, before and after it left. */
static void sessions_count_as_clients(void **state)
{
    static const char *const args[] = {"--max-clients", "1", NULL};
    struct client c;
    struct rpc_addr addr;
    struct rpc_client *refused = NULL;
    char why[RPC_WHY_CHARS] = "";
    (void)state;
    server_start(&server, "unix:%s/s", args);
    client_start(&c, &server);
    assert_int_equal(rpc_addr_parse(server.address, &addr, why), 0);
    struct rpc_client_options options = {0};
    struct rpc_net_options net = {0};
    assert_int_equal(rpc_client_connect(&addr, &net, &options, &refused, why), -EUSERS);
    client_end(&c);
    server_expect_log(&server, "its session ended", 1);
    client_start(&c, &server);
    client_end(&c);
    server_stop(&server);
}

/* ---- deaths ---- */

static void fill_and_wait(int ready)
{
    struct bench b;
    bench_start(&b, &server);
    if (bench_fill(&b, 1) == VK_SUCCESS && write(ready, "r", 1) == 1)
        pause();
}

static void a_killed_client_frees_its_session(void **state)
{
    (void)state;
    server_start(&server, "127.0.0.1:0", plain);
    server_outlives_client(&server, fill_and_wait);
    server_expect_log(&server, "its session ended", 1);
    server_stop(&server);
}

/* A driver that crashes is a session that dies: the other goes on. */
static void a_session_that_dies_takes_no_other_with_it(void **state)
{
    struct bench one, other;
    pid_t pids[2];
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&one, &server);
    assert_int_equal(server_sessions(&server, pids, 2), 1);
    pid_t first = pids[0];
    bench_start(&other, &server);
    assert_int_equal(bench_fill(&other, 1), VK_SUCCESS);
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_true(client_wait_end(&one.c) < 0);
    server_expect_log(&server, "its session died with signal 9", 1);
    assert_int_equal(bench_fill(&other, 2), VK_SUCCESS);
    bench_end(&one);
    bench_start(&one, &server);
    assert_int_equal(bench_fill(&one, 3), VK_SUCCESS);
    bench_end(&one);
    bench_end(&other);
    server_stop(&server);
}

static void stopping_the_server_ends_its_sessions(void **state)
{
    struct bench b;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    bench_start(&b, &server);
    server_stop(&server);
    assert_true(client_wait_end(&b.c) < 0);
    bench_end(&b);
}

#ifdef HAWSER_UCX
/* UCX keeps its state in the process that connected. */
static void a_connection_that_cannot_be_handed_over_is_refused(void **state)
{
    struct client c;
    (void)state;
    rpc_ucx_register();
    server_start(&server, "ucx:127.0.0.1:0", plain);
    client_connect(&c, server.address, NULL);
    assert_int_equal(client_open(&c), -EOPNOTSUPP);
    server_expect_log(&server, "cannot be handed over", 1);
    client_end(&c);
    server_stop(&server);
}
#endif

/* A session that is over before OPEN was answered. */
static void a_wrong_version_is_refused(void **state)
{
    struct client c;
    struct rpc_answer answer;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    client_connect(&c, server.address, NULL);
    struct wire_enc e;
    uint8_t body[20];
    wire_enc_init_fixed(&e, body, sizeof(body));
    wire_put_u32(&e, VN_PROTOCOL + 1);
    wire_put_u64(&e, 1);
    wire_put_u64(&e, 2);
    struct iovec iov = {body, wire_enc_len(&e)};
    struct rpc_send send = {.method = VN_METHOD_OPEN, .iov = &iov, .iov_count = 1};
    assert_int_equal(rpc_client_call(c.rpc, &send, &answer), -EPROTONOSUPPORT);
    char line[80];
    snprintf(line, sizeof(line), "no session: the client speaks version %d of", VN_PROTOCOL + 1);
    server_expect_log(&server, line, 1);
    client_end(&c);
    server_expect_sessions(&server, 0);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_id_costs_its_command),
        cmocka_unit_test(an_unknown_id_costs_its_recording),
        cmocka_unit_test(an_id_of_another_device_is_unknown),
        cmocka_unit_test(a_freed_id_is_unknown),
        cmocka_unit_test(an_id_given_twice_ends_the_session),
        cmocka_unit_test(a_member_of_a_destroyed_pool_is_unknown),
        cmocka_unit_test(a_member_of_a_destroyed_device_is_unknown),
        cmocka_unit_test(a_recording_with_other_commands_ends_the_session),
        cmocka_unit_test(batches_out_of_order_end_the_session),
        cmocka_unit_test(a_submission_outside_of_SUBMIT_ends_the_session),
        cmocka_unit_test(a_SUBMIT_with_another_number_of_batches_ends_the_session),
        cmocka_unit_test(fetches_that_make_no_sense_end_the_session),
        cmocka_unit_test(memory_becomes_demand_paged_once),
        cmocka_unit_test(memory_is_renewed_with_another_id),
        cmocka_unit_test(memory_is_not_renewed_with_an_id_in_use),
        cmocka_unit_test(noise_ends_the_session),
        cmocka_unit_test(recordings_that_are_not_there_end_the_session),
        cmocka_unit_test(a_recording_of_a_poisoned_command_buffer_is_nothing),
        cmocka_unit_test(what_uses_a_poisoned_id_is_skipped),
        cmocka_unit_test(a_batch_with_an_incomplete_command_buffer_is_lost),
        cmocka_unit_test(memory_over_the_limit_is_refused),
        cmocka_unit_test(objects_over_the_limit_end_the_session),
        cmocka_unit_test(pending_batches_over_the_limit_end_the_session),
        cmocka_unit_test(submissions_wait_for_what_was_reported_early),
        cmocka_unit_test(an_early_report_of_no_batch_ends_the_session),
        cmocka_unit_test(updates_that_make_no_sense_end_the_session),
        cmocka_unit_test(sessions_count_as_clients),
        cmocka_unit_test(a_killed_client_frees_its_session),
        cmocka_unit_test(a_session_that_dies_takes_no_other_with_it),
        cmocka_unit_test(stopping_the_server_ends_its_sessions),
        cmocka_unit_test(a_wrong_version_is_refused),
#ifdef HAWSER_UCX
        cmocka_unit_test(a_connection_that_cannot_be_handed_over_is_refused),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
