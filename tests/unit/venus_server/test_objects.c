/* Ids, their types, and what ends with what. */
#include "unit.h"

#include <errno.h>

#include "venus/server/session/objects.h"

enum { BUFFER = VK_OBJECT_TYPE_BUFFER, POOL = VK_OBJECT_TYPE_COMMAND_POOL };

static struct vns_objects objects;
static int things[64]; /* their addresses are handles */
static struct vns_device *const one = (struct vns_device *)&things[60];
static struct vns_device *const other = (struct vns_device *)&things[61];

static int start(void **state)
{
    (void)state;
    vns_objects_init(&objects, 1000, 2);
    return 0;
}

static int end(void **state)
{
    (void)state;
    vns_objects_fini(&objects);
    return 0;
}

static struct vns_thing *add(uint32_t type, uint64_t id, struct vns_device *device,
                             struct vns_thing *pool)
{
    assert_int_equal(vns_objects_add(&objects, type, id, &things[id], device, pool), 0);
    return vns_objects_find(&objects, id, type);
}

static void an_id_has_one_type(void **state)
{
    (void)state;
    add(BUFFER, 5, one, NULL);
    assert_ptr_equal(vns_objects_find(&objects, 5, BUFFER)->handle, &things[5]);
    assert_ptr_equal(vns_objects_find(&objects, 5, VK_OBJECT_TYPE_UNKNOWN)->handle, &things[5]);
    assert_null(vns_objects_find(&objects, 5, VK_OBJECT_TYPE_IMAGE));
    assert_null(vns_objects_find(&objects, 6, BUFFER));
    vns_objects_remove(&objects, 5);
    assert_null(vns_objects_find(&objects, 5, BUFFER));
}

static void an_id_in_use_and_id_0_are_refused(void **state)
{
    (void)state;
    add(BUFFER, 5, one, NULL);
    assert_int_equal(vns_objects_add(&objects, POOL, 5, &things[1], one, NULL), -EEXIST);
    assert_int_equal(vns_objects_add(&objects, POOL, 0, &things[1], one, NULL), -EEXIST);
    assert_non_null(vns_objects_find(&objects, 5, BUFFER));
}

static void limits_hold_until_something_goes(void **state)
{
    (void)state;
    add(VK_OBJECT_TYPE_PIPELINE, 1, one, NULL);
    add(VK_OBJECT_TYPE_PIPELINE, 2, one, NULL);
    assert_int_equal(vns_objects_add(&objects, VK_OBJECT_TYPE_PIPELINE, 3, &things[3], one, NULL),
                     -EDQUOT);
    add(BUFFER, 4, one, NULL);
    vns_objects_remove(&objects, 1);
    add(VK_OBJECT_TYPE_PIPELINE, 3, one, NULL);
    objects.max = 3;
    assert_int_equal(vns_objects_add(&objects, BUFFER, 7, &things[7], one, NULL), -EDQUOT);
}

static void members_end_with_their_pool(void **state)
{
    (void)state;
    struct vns_thing *pool = add(POOL, 1, one, NULL);
    for (uint64_t id = 10; id < 20; id++)
        add(VK_OBJECT_TYPE_COMMAND_BUFFER, id, one, pool);
    vns_objects_remove(&objects, 14);
    assert_null(vns_objects_device(&objects, &things[14]));
    assert_ptr_equal(vns_objects_device(&objects, &things[15]), one);
    vns_objects_empty(&objects, pool);
    assert_null(vns_objects_find(&objects, 15, VK_OBJECT_TYPE_COMMAND_BUFFER));
    assert_null(vns_objects_device(&objects, &things[15]));
    assert_non_null(vns_objects_find(&objects, 1, POOL));
    add(VK_OBJECT_TYPE_COMMAND_BUFFER, 20, one, pool);
    vns_objects_remove(&objects, 1);
    assert_null(vns_objects_find(&objects, 20, VK_OBJECT_TYPE_COMMAND_BUFFER));
}

static void everything_ends_with_its_device(void **state)
{
    (void)state;
    assert_int_equal(vns_objects_add(&objects, VK_OBJECT_TYPE_DEVICE, 1, &things[1], one, NULL), 0);
    struct vns_thing *pool = add(POOL, 2, one, NULL);
    for (uint64_t id = 10; id < 40; id++)
        add(id % 3 ? BUFFER : VK_OBJECT_TYPE_COMMAND_BUFFER, id, id % 2 ? one : other,
            id % 3 == 0 && id % 2 ? pool : NULL);
    vns_objects_remove_device(&objects, one);
    for (uint64_t id = 1; id < 40; id++) {
        bool lives = id >= 10 && id % 2 == 0;
        assert_int_equal(vns_objects_find(&objects, id, VK_OBJECT_TYPE_UNKNOWN) != NULL, lives);
    }
    assert_null(vns_objects_device(&objects, &things[1]));
    assert_ptr_equal(vns_objects_device(&objects, &things[12]), other);
}

static void what_is_left_of_a_device_counts_on(void **state)
{
    (void)state;
    add(VK_OBJECT_TYPE_DEVICE, 1, one, NULL);
    add(VK_OBJECT_TYPE_QUEUE, 2, one, NULL);
    add(VK_OBJECT_TYPE_DEVICE_MEMORY, 3, one, NULL);
    struct vns_thing *pool = add(POOL, 4, one, NULL);
    add(VK_OBJECT_TYPE_COMMAND_BUFFER, 5, one, pool);
    add(VK_OBJECT_TYPE_PIPELINE, 6, one, NULL);
    add(VK_OBJECT_TYPE_PIPELINE, 7, one, NULL);
    assert_int_equal(vns_objects_add(&objects, BUFFER, 8, NULL, one, NULL), 0);
    vns_objects_remove_device(&objects, one);
    assert_int_equal(vns_objects_add(&objects, VK_OBJECT_TYPE_PIPELINE, 9, &things[9], other, NULL),
                     -EDQUOT);
    objects.max = 5; /* the pool, its member and the pipelines are four */
    add(BUFFER, 10, other, NULL);
    assert_int_equal(vns_objects_add(&objects, BUFFER, 11, &things[11], other, NULL), -EDQUOT);
}

static void a_void_id_has_no_handle(void **state)
{
    (void)state;
    assert_int_equal(vns_objects_add(&objects, BUFFER, 5, NULL, one, NULL), 0);
    assert_null(vns_objects_find(&objects, 5, BUFFER)->handle);
    assert_int_equal(vns_objects_add(&objects, BUFFER, 5, &things[1], one, NULL), -EEXIST);
    assert_null(vns_objects_device(&objects, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_id_has_one_type, start, end),
        cmocka_unit_test_setup_teardown(an_id_in_use_and_id_0_are_refused, start, end),
        cmocka_unit_test_setup_teardown(limits_hold_until_something_goes, start, end),
        cmocka_unit_test_setup_teardown(members_end_with_their_pool, start, end),
        cmocka_unit_test_setup_teardown(everything_ends_with_its_device, start, end),
        cmocka_unit_test_setup_teardown(what_is_left_of_a_device_counts_on, start, end),
        cmocka_unit_test_setup_teardown(a_void_id_has_no_handle, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
