/* Recordings that are kept: their limits, when a driver's command buffer stands for one, and which
 * resets reach the driver. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "venus/common/protocol.h"
#include "venus/server/session/state.h"

enum {
    POOL = 1,
    FIRST_BUFFER = 10, /* ids */
    FIRST_SET = 1000,
    IDLE_RESETS = 64, /* of recordings.c */
    CALLS_MAX = 16,
    MEMBERS = 3,
    RELEASE = VK_COMMAND_POOL_RESET_RELEASE_RESOURCES_BIT,
};

/* ---- memory that runs out ---- */

void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static bool out_of_memory;

void *__wrap_calloc(size_t n, size_t size)
{
    return out_of_memory ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return out_of_memory ? NULL : __real_realloc(p, n);
}

/* ---- a driver that is reset ---- */

static struct {
    unsigned pools;
    VkFlags flags; /* of the last reset */
    unsigned buffers;
    const void *which[CALLS_MAX];
    VkResult results[CALLS_MAX]; /* of the resets of buffers, in order */
    VkResult pool_result;
} calls;

static VKAPI_ATTR VkResult VKAPI_CALL reset_pool(VkDevice device, VkCommandPool pool,
                                                 VkCommandPoolResetFlags flags)
{
    (void)device, (void)pool;
    calls.pools++;
    calls.flags = flags;
    return calls.pool_result;
}

static VKAPI_ATTR VkResult VKAPI_CALL reset_buffer(VkCommandBuffer buffer,
                                                   VkCommandBufferResetFlags flags)
{
    assert_true(calls.buffers < CALLS_MAX);
    calls.flags = flags;
    calls.which[calls.buffers] = buffer;
    return calls.results[calls.buffers++];
}

static void expect_calls(unsigned pools, unsigned buffers)
{
    assert_int_equal(calls.pools, pools);
    assert_int_equal(calls.buffers, buffers);
    memset(&calls, 0, sizeof(calls));
}

/* ---- a session's objects ---- */

static struct vns_objects objects;
static struct vns_device device;
static struct vns_thing *pool;
static struct vns_thing *members[MEMBERS];
static char handles[FIRST_SET + 256]; /* their addresses are handles */

static struct vns_thing *add(uint32_t type, uint64_t id, struct vns_thing *of)
{
    assert_int_equal(vns_objects_add(&objects, type, id, &handles[id], &device, of), 0);
    return vns_objects_find(&objects, id, type);
}

static struct vns_thing *add_set(uint64_t number)
{
    return add(VK_OBJECT_TYPE_DESCRIPTOR_SET, FIRST_SET + number, NULL);
}

static int start(void **state)
{
    (void)state;
    memset(&calls, 0, sizeof(calls));
    device.driver.vkResetCommandPool = reset_pool;
    device.driver.vkResetCommandBuffer = reset_buffer;
    vns_objects_init(&objects, 10000, 2);
    pool = add(VK_OBJECT_TYPE_COMMAND_POOL, POOL, NULL);
    for (uint64_t i = 0; i < MEMBERS; i++)
        members[i] = add(VK_OBJECT_TYPE_COMMAND_BUFFER, FIRST_BUFFER + i, pool);
    return 0;
}

static int end(void **state)
{
    (void)state;
    out_of_memory = false;
    vns_objects_fini(&objects);
    assert_int_equal(objects.kept_bytes, 0);
    return 0;
}

/* ---- recordings, as stream.c makes them ---- */

static void begin(struct vns_thing *buffer, bool keeps)
{
    assert_int_equal(vns_recording_begin(&objects, buffer, keeps), 0);
    buffer->recorded = buffer->begun = true;
}

static void append(struct vns_thing *buffer, const void *bytes, size_t len)
{
    assert_int_equal(vns_recording_append(&objects, buffer, bytes, len), 0);
}

static void finish(struct vns_thing *buffer)
{
    buffer->begun = false;
    vns_recording_end(buffer);
}

static void record(struct vns_thing *buffer, bool keeps)
{
    begin(buffer, keeps);
    if (keeps)
        append(buffer, "recording", 4);
    finish(buffer);
}

static bool stands(const struct vns_thing *buffer)
{
    return vns_recording_stands(&objects, buffer);
}

/* AGAIN, of a recording that stands. */
static void use(struct vns_thing *buffer)
{
    assert_true(stands(buffer));
    buffer->recording->used = true;
}

/* ---- limits ---- */

static uint8_t large[VN_KEPT_RECORDING_MAX + 1];

static void a_recording_is_kept_as_it_came(void **state)
{
    (void)state;
    size_t at = 0;
    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (uint8_t)(i * i >> 8);
    begin(members[0], true);
    for (size_t len = 1; at + len < VN_KEPT_RECORDING_MAX; at += len, len = len * 3 / 2 + 1)
        append(members[0], large + at, len);
    append(members[0], large + at, 0);
    finish(members[0]);
    assert_int_equal(members[0]->recording->len, at);
    assert_memory_equal(members[0]->recording->bytes, large, at);
    assert_true(members[0]->recording->whole);
    assert_int_equal(objects.kept_bytes, at);
}

static void a_recording_has_a_limit(void **state)
{
    (void)state;
    begin(members[0], true);
    assert_int_equal(vns_recording_append(&objects, members[0], large, VN_KEPT_RECORDING_MAX + 1),
                     -EDQUOT);
    assert_int_equal(vns_recording_append(&objects, members[0], large, SIZE_MAX), -EDQUOT);
    append(members[0], large, VN_KEPT_RECORDING_MAX - 1);
    assert_int_equal(vns_recording_append(&objects, members[0], large, 2), -EDQUOT);
    append(members[0], large, 1);
    assert_int_equal(vns_recording_append(&objects, members[0], large, 1), -EDQUOT);
    assert_int_equal(members[0]->recording->len, VN_KEPT_RECORDING_MAX);
    assert_int_equal(objects.kept_bytes, VN_KEPT_RECORDING_MAX);
}

/* As many large recordings as a session may have, in a pool of their own; the last buffer has none.
 */
static struct vns_thing *fill_session(struct vns_thing *of, struct vns_thing **one_of_them)
{
    enum { FULL = VN_KEPT_RECORDINGS_MAX / VN_KEPT_RECORDING_MAX };
    for (uint64_t i = 0; i < FULL; i++) {
        *one_of_them = add(VK_OBJECT_TYPE_COMMAND_BUFFER, 100 + i, of);
        begin(*one_of_them, true);
        append(*one_of_them, large, VN_KEPT_RECORDING_MAX);
    }
    assert_int_equal(objects.kept_bytes, VN_KEPT_RECORDINGS_MAX);
    struct vns_thing *next = add(VK_OBJECT_TYPE_COMMAND_BUFFER, 100 + FULL, of);
    begin(next, true);
    assert_int_equal(vns_recording_append(&objects, next, large, 1), -EDQUOT);
    return next;
}

static void all_recordings_have_a_limit(void **state)
{
    (void)state;
    struct vns_thing *of = add(VK_OBJECT_TYPE_COMMAND_POOL, POOL + 1, NULL), *one;
    struct vns_thing *next = fill_session(of, &one);
    begin(one, true); /* drops what it had */
    append(next, large, VN_KEPT_RECORDING_MAX);
    assert_int_equal(vns_recording_append(&objects, one, large, 1), -EDQUOT);
    begin(next, false);
    append(one, large, VN_KEPT_RECORDING_MAX);
    begin(next, true);
    assert_int_equal(vns_recording_append(&objects, next, large, 1), -EDQUOT);
    vns_objects_remove(&objects, one->id);
    append(next, large, VN_KEPT_RECORDING_MAX);
    assert_int_equal(objects.kept_bytes, VN_KEPT_RECORDINGS_MAX);
    vns_objects_remove(&objects, of->id); /* and all of its buffers */
    assert_int_equal(objects.kept_bytes, 0);
}

/* What is not counted any more is not there any more, but for little. */
static void a_recording_that_is_dropped_leaves_no_large_memory(void **state)
{
    enum { SETS = 1000 };
    (void)state;
    struct vns_thing *set = add_set(0);
    begin(members[0], true);
    append(members[0], large, VN_KEPT_RECORDING_MAX);
    for (int i = 0; i < SETS; i++)
        vns_recording_names(members[0], set);
    finish(members[0]);
    begin(members[0], true);
    append(members[0], "recording", 4);
    vns_recording_names(members[0], set);
    finish(members[0]);
    assert_true(members[0]->recording->cap <= 4096);
    assert_true(members[0]->recording->set_cap * sizeof(struct vns_set_seen) <= 4096);
    assert_true(stands(members[0]));
}

static void what_belongs_to_a_device_goes_with_it(void **state)
{
    (void)state;
    for (int i = 0; i < MEMBERS; i++)
        record(members[i], true);
    assert_int_equal(objects.kept_bytes, MEMBERS * 4);
    vns_objects_remove_device(&objects, &device);
    assert_int_equal(objects.kept_bytes, 0);
}

static void bytes_need_a_beginning_that_is_kept(void **state)
{
    (void)state;
    assert_int_equal(vns_recording_append(&objects, members[0], "more", 4), -EPROTO);
    begin(members[0], false);
    assert_int_equal(vns_recording_append(&objects, members[0], "more", 4), -EPROTO);
    finish(members[0]);
    record(members[0], true);
    assert_int_equal(vns_recording_append(&objects, members[0], "more", 4), -EPROTO);
    record(members[0], false);
    assert_int_equal(vns_recording_append(&objects, members[0], "more", 4), -EPROTO);
    assert_int_equal(objects.kept_bytes, 0);
}

static void a_session_without_memory_keeps_nothing(void **state)
{
    (void)state;
    out_of_memory = true;
    assert_int_equal(vns_recording_begin(&objects, members[0], true), -ENOMEM);
    assert_null(members[0]->recording);
    assert_int_equal(vns_recording_begin(&objects, members[0], false), 0);
    out_of_memory = false;
    begin(members[0], true);
    append(members[0], "abcd", 4);
    out_of_memory = true;
    assert_int_equal(vns_recording_append(&objects, members[0], large, 4096), -ENOMEM);
    assert_int_equal(objects.kept_bytes, 4);
    append(members[0], "ef", 2); /* there is room */
    assert_memory_equal(members[0]->recording->bytes, "abcdef", 6);
}

/* ---- what stands ---- */

static void a_recording_stands_from_its_end_to_its_reset(void **state)
{
    (void)state;
    assert_false(stands(members[0]));
    begin(members[0], true);
    append(members[0], "recording", 4);
    assert_false(stands(members[0]));
    finish(members[0]);
    assert_true(stands(members[0]));
    begin(members[0], true);
    assert_false(stands(members[0]));
    assert_false(members[0]->recording->whole);
    finish(members[0]);
    assert_int_equal(vns_recording_reset(members[0], VK_COMMAND_BUFFER_RESET_RELEASE_RESOURCES_BIT),
                     VK_SUCCESS);
    assert_int_equal(calls.flags, VK_COMMAND_BUFFER_RESET_RELEASE_RESOURCES_BIT);
    assert_ptr_equal(calls.which[0], members[0]->handle);
    expect_calls(0, 1);
    assert_false(stands(members[0]));
    assert_false(members[0]->recorded);
    assert_true(members[0]->recording->whole); /* its bytes can be executed again */
    record(members[0], false);
    assert_false(stands(members[0]));
}

static void what_is_submitted_once_does_not_stand(void **state)
{
    (void)state;
    begin(members[0], true);
    members[0]->recording->once = true; /* as the hook notes */
    finish(members[0]);
    assert_false(stands(members[0]));
    assert_true(members[0]->recording->whole);
    vns_recording_restart(&objects, members[0]->recording);
    members[0]->recording->once = false;
    finish(members[0]);
    assert_true(stands(members[0]));
}

static VkCommandBufferUsageFlags begun_with;

static VKAPI_ATTR VkResult VKAPI_CALL begin_buffer(VkCommandBuffer buffer,
                                                   const VkCommandBufferBeginInfo *info)
{
    (void)buffer;
    begun_with = info->flags;
    return VK_SUCCESS;
}

/* vkBeginCommandBuffer of a client; what the driver was told. */
static VkCommandBufferUsageFlags begin_by_hook(struct vns_thing *buffer,
                                               VkCommandBufferUsageFlags flags)
{
    static struct vns_session session;
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = flags};
    struct vn_args_vkBeginCommandBuffer args = {.commandBuffer = buffer->handle,
                                                .pBeginInfo = &info};
    struct vn_exec exec = {.objects = &session};
    device.driver.vkBeginCommandBuffer = begin_buffer;
    session.command.device = &device;
    session.command.recording = buffer;
    vns_server_hooks.vkBeginCommandBuffer(&exec, &args);
    assert_int_equal(args.ret, VK_SUCCESS);
    return begun_with;
}

/* Else it would be recorded each time that it is named. */
static void what_is_named_is_recorded_to_be_submitted_again(void **state)
{
    const VkCommandBufferUsageFlags once = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
                                    shared = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
    (void)state;
    begin(members[0], false);
    assert_int_equal(begin_by_hook(members[0], once), once);
    begin(members[0], true);
    assert_int_equal(begin_by_hook(members[0], once | shared), once | shared);
    finish(members[0]);
    assert_false(stands(members[0]));
    members[0]->recording->repeats = true; /* as AGAIN notes */
    vns_recording_restart(&objects, members[0]->recording);
    assert_int_equal(begin_by_hook(members[0], once | shared), shared);
    finish(members[0]);
    assert_true(stands(members[0]));
}

static void what_was_not_executed_in_full_does_not_stand(void **state)
{
    (void)state;
    begin(members[0], true);
    members[0]->incomplete = true;
    finish(members[0]);
    assert_false(stands(members[0]));
    vns_recording_restart(&objects, members[0]->recording);
    members[0]->incomplete = false;
    finish(members[0]);
    assert_true(stands(members[0]));
}

static void what_executes_another_does_not_stand(void **state)
{
    (void)state;
    struct vns_thing *set = add_set(0);
    record(members[1], true);
    begin(members[0], true);
    vns_recording_names(members[0], set);
    vns_recording_names(members[0], members[1]);
    vns_recording_names(members[0], set); /* makes it no better */
    finish(members[0]);
    assert_false(stands(members[0]));
    assert_true(stands(members[1]));
    begin(members[0], true); /* the next recording has nothing to do with it */
    vns_recording_names(members[0], set);
    finish(members[0]);
    assert_true(stands(members[0]));
}

static void a_recording_stands_while_its_sets_are_what_they_were(void **state)
{
    (void)state;
    enum { SETS = 100, CHANGED = 77 };
    struct vns_thing *sets[SETS], *unused = add_set(SETS);
    begin(members[0], true);
    for (uint64_t i = 0; i < SETS; i++) {
        sets[i] = add_set(i);
        sets[i]->version = i;
        vns_recording_names(members[0], sets[i]);
    }
    finish(members[0]);
    unused->version++;
    assert_true(stands(members[0]));
    sets[CHANGED]->version++;
    assert_false(stands(members[0]));
    vns_recording_restart(&objects, members[0]->recording);
    assert_false(stands(members[0]));
    vns_recording_names(members[0], sets[CHANGED]);
    finish(members[0]);
    assert_true(stands(members[0]));
    sets[0]->version++; /* of the recording before */
    assert_true(stands(members[0]));
    vns_objects_remove(&objects, sets[CHANGED]->id);
    assert_false(stands(members[0]));
}

/* A set can hold it where no shader looks; then what binds the set is no longer valid. */
static void what_binds_sets_ends_with_what_they_can_hold(void **state)
{
    (void)state;
    struct vns_thing *set = add_set(0);
    add(VK_OBJECT_TYPE_BUFFER, 50, NULL);
    add(VK_OBJECT_TYPE_IMAGE_VIEW, 51, NULL);
    add(VK_OBJECT_TYPE_FENCE, 52, NULL);
    record(members[1], true);
    for (uint64_t id = 50; id < 52; id++) {
        vns_objects_remove(&objects, id + 2); /* of no matter */
        begin(members[0], true);
        vns_recording_names(members[0], set);
        finish(members[0]);
        assert_true(stands(members[0]));
        vns_objects_remove(&objects, id);
        assert_false(stands(members[0]));
        assert_true(stands(members[1])); /* binds none */
    }
}

static void a_set_that_changes_while_it_is_recorded_counts(void **state)
{
    (void)state;
    struct vns_thing *set = add_set(0);
    begin(members[0], true);
    vns_recording_names(members[0], set);
    set->version++;
    vns_recording_names(members[0], set);
    finish(members[0]);
    assert_false(stands(members[0]));
}

static void sets_that_cannot_be_noted_are_not_trusted(void **state)
{
    (void)state;
    struct vns_thing *set = add_set(0);
    begin(members[0], true);
    out_of_memory = true;
    vns_recording_names(members[0], set);
    out_of_memory = false;
    finish(members[0]);
    assert_false(stands(members[0]));
}

static void what_is_not_kept_needs_no_notes(void **state)
{
    (void)state;
    begin(members[0], false);
    vns_recording_names(members[0], add_set(0));
    vns_recording_names(members[0], members[1]);
    finish(members[0]);
    assert_null(members[0]->recording);
    assert_false(stands(members[0]));
}

/* ---- resets of a pool ---- */

static VkResult reset(VkCommandPoolResetFlags flags)
{
    return vns_recordings_reset_pool(pool, flags, false);
}

static void a_pool_without_what_stands_is_reset_as_one(void **state)
{
    (void)state;
    record(members[0], false);
    begin(members[1], true); /* and given up */
    calls.pool_result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    assert_int_equal(reset(0), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    expect_calls(1, 0);
    for (int i = 0; i < MEMBERS; i++)
        assert_false(members[i]->recorded || members[i]->begun);
    assert_int_equal(reset(0), VK_SUCCESS);
    expect_calls(1, 0);
}

static void what_stands_is_not_reset(void **state)
{
    (void)state;
    record(members[0], true);
    record(members[1], true);
    assert_int_equal(reset(0), VK_SUCCESS);
    expect_calls(0, 0);
    assert_true(stands(members[0]) && stands(members[1]));
    use(members[1]);
    assert_int_equal(reset(0), VK_SUCCESS);
    expect_calls(0, 0);
    assert_true(stands(members[0]) && stands(members[1]));
}

static void what_does_not_stand_is_reset_beside_it(void **state)
{
    (void)state;
    record(members[0], true);
    record(members[1], false);
    begin(members[2], true); /* and given up */
    assert_int_equal(reset(0), VK_SUCCESS);
    assert_true((calls.which[0] == members[1]->handle && calls.which[1] == members[2]->handle) ||
                (calls.which[0] == members[2]->handle && calls.which[1] == members[1]->handle));
    assert_int_equal(calls.flags, 0);
    expect_calls(0, 2);
    assert_true(stands(members[0]));
    for (int i = 1; i < MEMBERS; i++)
        assert_false(members[i]->recorded || members[i]->begun);
    use(members[0]);
    assert_int_equal(reset(0), VK_SUCCESS);
    expect_calls(0, 0); /* they were reset before */
    record(members[1], false);
    assert_int_equal(reset(0), VK_SUCCESS);
    assert_ptr_equal(calls.which[0], members[1]->handle);
    expect_calls(0, 1);
}

/* One that stood, and is recorded otherwise. */
static void what_stood_before_is_reset(void **state)
{
    (void)state;
    record(members[0], true);
    record(members[1], true);
    assert_int_equal(reset(0), VK_SUCCESS);
    record(members[1], false);
    assert_int_equal(reset(0), VK_SUCCESS);
    assert_ptr_equal(calls.which[0], members[1]->handle);
    expect_calls(0, 1);
    begin(members[0], true);
    vns_recording_names(members[0], members[2]);
    finish(members[0]);
    record(members[1], true);
    assert_int_equal(reset(0), VK_SUCCESS);
    assert_ptr_equal(calls.which[0], members[0]->handle);
    expect_calls(0, 1);
    assert_true(members[0]->recording->whole && stands(members[1]));
}

static void the_first_failure_is_the_answer(void **state)
{
    (void)state;
    record(members[0], true);
    record(members[1], false);
    record(members[2], false);
    calls.results[0] = VK_ERROR_OUT_OF_HOST_MEMORY;
    calls.results[1] = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    assert_int_equal(reset(0), VK_ERROR_OUT_OF_HOST_MEMORY);
    expect_calls(0, 2);
    record(members[1], false);
    record(members[2], false);
    calls.results[1] = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    assert_int_equal(reset(0), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    expect_calls(0, 2);
}

static void a_recording_that_nobody_uses_is_given_up(void **state)
{
    (void)state;
    record(members[0], true);
    record(members[1], true);
    for (int i = 0; i < IDLE_RESETS; i++) {
        assert_int_equal(reset(0), VK_SUCCESS);
        expect_calls(0, 0);
        use(members[0]);
    }
    assert_true(stands(members[1]));
    assert_int_equal(reset(0), VK_SUCCESS);
    assert_ptr_equal(calls.which[0], members[1]->handle);
    expect_calls(0, 1);
    assert_false(stands(members[1]) || members[1]->recorded);
    assert_true(stands(members[0]) && members[1]->recording->whole);
}

/* Where nothing is in use, or it is used now and then, it stays. */
static void idle_resets_count_from_the_last_use(void **state)
{
    (void)state;
    record(members[0], true);
    record(members[1], true);
    for (int i = 0; i < 3 * IDLE_RESETS; i++) {
        assert_int_equal(reset(0), VK_SUCCESS);
        assert_int_equal(reset(0), VK_SUCCESS); /* of nothing */
        use(members[0]);
        if (i % (IDLE_RESETS - 1) == 0)
            use(members[1]);
    }
    for (int i = 0; i < 2 * IDLE_RESETS; i++)
        assert_int_equal(reset(0), VK_SUCCESS);
    expect_calls(0, 0);
    assert_true(stands(members[0]) && stands(members[1]));
}

static void a_release_of_resources_reaches_the_driver(void **state)
{
    (void)state;
    record(members[0], true);
    record(members[1], true);
    assert_int_equal(reset(RELEASE), VK_SUCCESS);
    assert_int_equal(calls.flags, RELEASE);
    expect_calls(1, 0);
    for (int i = 0; i < 2; i++) {
        assert_false(stands(members[i]) || members[i]->recorded);
        assert_true(members[i]->recording->whole);
    }
    assert_int_equal(reset(0), VK_SUCCESS); /* nothing stands */
    expect_calls(1, 0);
}

/* A set that was updated makes it invalid, not recorded otherwise: the next AGAIN finds out. */
static void a_pool_does_not_look_at_sets(void **state)
{
    (void)state;
    struct vns_thing *set = add_set(0);
    begin(members[0], true);
    vns_recording_names(members[0], set);
    finish(members[0]);
    set->version++;
    assert_int_equal(reset(0), VK_SUCCESS);
    expect_calls(0, 0);
    assert_false(stands(members[0]));
}

static void other_pools_are_left_alone(void **state)
{
    (void)state;
    struct vns_thing *of = add(VK_OBJECT_TYPE_COMMAND_POOL, POOL + 1, NULL);
    struct vns_thing *buffer = add(VK_OBJECT_TYPE_COMMAND_BUFFER, 100, of);
    record(buffer, true);
    record(members[0], false);
    assert_int_equal(reset(RELEASE), VK_SUCCESS);
    assert_true(stands(buffer) && buffer->recorded);
    assert_false(members[0]->recorded);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_recording_is_kept_as_it_came),
        TEST(a_recording_has_a_limit),
        TEST(all_recordings_have_a_limit),
        TEST(a_recording_that_is_dropped_leaves_no_large_memory),
        TEST(what_belongs_to_a_device_goes_with_it),
        TEST(bytes_need_a_beginning_that_is_kept),
        TEST(a_session_without_memory_keeps_nothing),
        TEST(a_recording_stands_from_its_end_to_its_reset),
        TEST(what_is_submitted_once_does_not_stand),
        TEST(what_is_named_is_recorded_to_be_submitted_again),
        TEST(what_was_not_executed_in_full_does_not_stand),
        TEST(what_executes_another_does_not_stand),
        TEST(a_recording_stands_while_its_sets_are_what_they_were),
        TEST(what_binds_sets_ends_with_what_they_can_hold),
        TEST(a_set_that_changes_while_it_is_recorded_counts),
        TEST(sets_that_cannot_be_noted_are_not_trusted),
        TEST(what_is_not_kept_needs_no_notes),
        TEST(a_pool_without_what_stands_is_reset_as_one),
        TEST(what_stands_is_not_reset),
        TEST(what_does_not_stand_is_reset_beside_it),
        TEST(what_stood_before_is_reset),
        TEST(the_first_failure_is_the_answer),
        TEST(a_recording_that_nobody_uses_is_given_up),
        TEST(idle_resets_count_from_the_last_use),
        TEST(a_release_of_resources_reaches_the_driver),
        TEST(a_pool_does_not_look_at_sets),
        TEST(other_pools_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
