/* Command buffers that may be pending: what is recorded in their place, and which resets wait. */
#include "unit.h"

#include <string.h>

#include "venus/server/session/state.h"
#include "venus/server/stream/pending.h"

enum { POOL = 1, FIRST_BUFFER = 10, MEMBERS = 3, SPARES_MAX = 256, MADE_MAX = 300 };

/* ---- a driver ---- */

static char made[MADE_MAX]; /* their addresses are handles */
static unsigned made_count, pool_resets, buffer_resets, questions;
static const void *last_reset;
static bool refuses;
static uint64_t timeline;

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device,
                                               const VkCommandBufferAllocateInfo *info,
                                               VkCommandBuffer *out)
{
    (void)device;
    assert_int_equal(info->commandBufferCount, 1);
    assert_int_equal(info->level, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    assert_true(made_count < MADE_MAX);
    if (refuses)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    *out = (VkCommandBuffer)&made[made_count++];
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL reset_pool(VkDevice device, VkCommandPool pool,
                                                 VkCommandPoolResetFlags flags)
{
    (void)device, (void)pool, (void)flags;
    pool_resets++;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL reset_buffer(VkCommandBuffer buffer,
                                                   VkCommandBufferResetFlags flags)
{
    (void)flags;
    buffer_resets++;
    last_reset = buffer;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL value(VkDevice device, VkSemaphore semaphore, uint64_t *out)
{
    (void)device, (void)semaphore;
    questions++;
    *out = timeline;
    return VK_SUCCESS;
}

static void expect_resets(unsigned pools, unsigned buffers)
{
    assert_int_equal(pool_resets, pools);
    assert_int_equal(buffer_resets, buffers);
    pool_resets = buffer_resets = 0;
}

/* ---- a session's objects ---- */

static struct vns_objects objects;
static struct vns_device device;
static struct vns_queue queue;
static struct vns_thing *pool, *members[MEMBERS];
static char handles[FIRST_BUFFER + MEMBERS];

static struct vns_thing *add(uint32_t type, uint64_t id, struct vns_thing *of)
{
    assert_int_equal(vns_objects_add(&objects, type, id, &handles[id], &device, of), 0);
    return vns_objects_find(&objects, id, type);
}

static int start(void **state)
{
    (void)state;
    made_count = pool_resets = buffer_resets = questions = 0;
    refuses = false;
    timeline = 0;
    device.driver.vkAllocateCommandBuffers = allocate;
    device.driver.vkResetCommandPool = reset_pool;
    device.driver.vkResetCommandBuffer = reset_buffer;
    device.semaphore_value = value;
    queue = (struct vns_queue){.device = &device, .next_number = 1};
    vns_objects_init(&objects, 1000, 2);
    pool = add(VK_OBJECT_TYPE_COMMAND_POOL, POOL, NULL);
    for (uint64_t i = 0; i < MEMBERS; i++)
        members[i] = add(VK_OBJECT_TYPE_COMMAND_BUFFER, FIRST_BUFFER + i, pool);
    return 0;
}

static int end(void **state)
{
    (void)state;
    vns_objects_fini(&objects);
    return 0;
}

static void record(struct vns_thing *buffer)
{
    assert_int_equal(vns_recording_begin(&objects, buffer, false), 0);
    buffer->recorded = true;
    vns_recording_end(buffer);
}

static void submit(struct vns_thing *buffer)
{
    queue.next_number++;
    vns_pending_note(buffer, &queue);
}

static bool renew(struct vns_thing *buffer)
{
    return vns_pending_renew(&objects, buffer);
}

/* ---- what is pending ---- */

static void a_buffer_is_pending_until_its_batch_is_reached(void **state)
{
    (void)state;
    assert_false(vns_pending_is(members[0]));
    submit(members[0]);
    submit(members[1]);
    assert_true(vns_pending_is(members[0]) && vns_pending_is(members[1]));
    timeline = 1;
    assert_false(vns_pending_is(members[0]));
    assert_true(vns_pending_is(members[1]));
    timeline = 2;
    assert_false(vns_pending_is(members[1]));
    unsigned before = questions;
    assert_false(vns_pending_is(members[0]) || vns_pending_is(members[1]));
    assert_int_equal(questions, before); /* the device was asked once */
}

/* Whichever of them is done first. */
static void one_on_two_queues_may_be_until_it_is_recorded_again(void **state)
{
    (void)state;
    struct vns_queue other = {.device = &device, .next_number = 2, .reached = 1};
    submit(members[0]);
    vns_pending_note(members[0], &other);
    assert_true(vns_pending_is(members[0])); /* the second is done, the first is not */
    assert_false(renew(members[0]));
    assert_int_equal(made_count, 0);
    submit(members[1]);
    timeline = 2;
    vns_pending_note(members[1], &other); /* one after the other */
    assert_false(vns_pending_is(members[1]));
}

static void a_secondary_one_may_always_be(void **state)
{
    (void)state;
    members[0]->secondary = true;
    assert_true(vns_pending_is(members[0]));
    assert_false(renew(members[0]));
    assert_int_equal(made_count, 0);
}

/* ---- others in their place ---- */

static void a_pending_buffer_gets_another(void **state)
{
    (void)state;
    void *old = members[0]->handle;
    record(members[0]);
    submit(members[0]);
    assert_true(renew(members[0]));
    assert_ptr_equal(members[0]->handle, &made[0]);
    assert_ptr_equal(vns_objects_device(&objects, &made[0]), &device);
    assert_null(vns_objects_device(&objects, old));
    assert_false(vns_pending_is(members[0]) || members[0]->recorded);
    assert_true(vns_pending_has_spares(pool));
    timeline = 1;
    assert_false(vns_pending_has_spares(pool));
}

static void what_is_done_is_used_again(void **state)
{
    (void)state;
    void *old = members[0]->handle;
    submit(members[0]);
    assert_true(renew(members[0]));
    submit(members[0]);
    assert_true(renew(members[0])); /* the first is pending, too */
    assert_ptr_equal(members[0]->handle, &made[1]);
    submit(members[0]);
    timeline = 1;
    assert_true(renew(members[0]));
    assert_ptr_equal(members[0]->handle, old);
    assert_int_equal(made_count, 2);
    assert_ptr_equal(vns_objects_device(&objects, old), &device);
}

static void there_are_only_so_many(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SPARES_MAX; i++) {
        submit(members[0]);
        assert_true(renew(members[0]));
    }
    const void *last = members[0]->handle;
    submit(members[0]);
    assert_false(renew(members[0]));
    assert_ptr_equal(members[0]->handle, last);
    assert_true(vns_pending_is(members[0]));
}

static void a_driver_may_refuse(void **state)
{
    (void)state;
    void *old = members[0]->handle;
    submit(members[0]);
    refuses = true;
    assert_false(renew(members[0]));
    assert_ptr_equal(members[0]->handle, old);
    assert_ptr_equal(vns_objects_device(&objects, old), &device);
    assert_true(vns_pending_is(members[0]));
}

/* The pool's end takes spares along; so does the device's. */
static void spares_end_with_their_pool(void **state)
{
    (void)state;
    submit(members[0]);
    assert_true(renew(members[0]));
    vns_objects_remove(&objects, POOL);
    assert_null(vns_objects_device(&objects, &made[0]));
}

/* ---- resets ---- */

static void a_pools_reset_leaves_out_what_is_pending(void **state)
{
    (void)state;
    record(members[0]);
    record(members[1]);
    submit(members[0]);
    assert_int_equal(vns_recordings_reset_pool(pool, 0, true), VK_SUCCESS);
    assert_ptr_equal(last_reset, members[1]->handle);
    expect_resets(0, 1);
    assert_true(members[0]->recorded);
    timeline = 1;
    assert_int_equal(vns_recordings_reset_pool(pool, 0, true), VK_SUCCESS);
    expect_resets(1, 0);
    assert_false(members[0]->recorded);
}

static void a_pool_with_a_pending_spare_is_not_reset_as_one(void **state)
{
    (void)state;
    record(members[0]);
    submit(members[0]);
    assert_true(renew(members[0]));
    record(members[0]);
    assert_int_equal(vns_recordings_reset_pool(pool, 0, true), VK_SUCCESS);
    assert_ptr_equal(last_reset, members[0]->handle);
    expect_resets(0, 1);
    timeline = 1;
    record(members[0]);
    assert_int_equal(vns_recordings_reset_pool(pool, 0, true), VK_SUCCESS);
    expect_resets(1, 0);
}

/* A program that has really waited. */
static void nothing_is_asked_where_nothing_was_reported_early(void **state)
{
    (void)state;
    record(members[0]);
    submit(members[0]);
    assert_int_equal(vns_recordings_reset_pool(pool, 0, false), VK_SUCCESS);
    expect_resets(1, 0);
    assert_int_equal(questions, 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_buffer_is_pending_until_its_batch_is_reached),
        TEST(one_on_two_queues_may_be_until_it_is_recorded_again),
        TEST(a_secondary_one_may_always_be),
        TEST(a_pending_buffer_gets_another),
        TEST(what_is_done_is_used_again),
        TEST(there_are_only_so_many),
        TEST(a_driver_may_refuse),
        TEST(spares_end_with_their_pool),
        TEST(a_pools_reset_leaves_out_what_is_pending),
        TEST(a_pool_with_a_pending_spare_is_not_reset_as_one),
        TEST(nothing_is_asked_where_nothing_was_reported_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
