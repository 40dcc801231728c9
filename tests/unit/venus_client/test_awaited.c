/* When a submission that reads back into the same pages sends what the program left there
 * (docs/design/mapped-memory.md): where it may be read, and not where it is overwritten. */
#include "rig.h"

#include <string.h>

enum { BYTES = 1 << 20, WIDTH = 512 };

struct readback {
    struct rig_copy copy; /* reads the memory */
    struct vnc_command_buffer *fills;
    uint8_t *bytes; /* of the program */
};

static void make(struct rig *rig, struct readback *r)
{
    rig_copy_make(rig, &r->copy, BYTES);
    r->bytes = vn_region_memory(r->copy.memory->region);
    assert_int_equal(vnc_pushes_add_memory(rig->pushes, r->copy.memory), 0);
    r->fills = vnc_object_create(rig->link, VK_OBJECT_TYPE_COMMAND_BUFFER, &rig->device->object);
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, r->fills);
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkBufferCopy all = {.size = BYTES};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &info), VK_SUCCESS);
    RIG_COMMAND(vkCmdCopyBuffer)
    (commands, VNC_HANDLE(VkBuffer, r->copy.to), VNC_HANDLE(VkBuffer, r->copy.from), 1, &all);
    assert_int_equal(RIG_COMMAND(vkEndCommandBuffer)(commands), VK_SUCCESS);
}

static void unmake(struct rig *rig, struct readback *r)
{
    vnc_object_destroy((struct vn_object *)r->fills);
    vnc_pushes_remove_memory(rig->pushes, r->copy.memory);
    rig_copy_free(rig, &r->copy);
}

/* The batch on the first queue has filled so much of the memory. */
static void come_back_part(struct rig *rig, struct readback *r, uint64_t number, int byte,
                           size_t bytes)
{
    static uint8_t pages[BYTES];
    memset(pages, byte, bytes);
    assert_int_equal(vn_region_store(r->copy.memory->region, 0, pages, bytes), 0);
    rig_report(rig, 0, number);
    assert_memory_equal(r->bytes, pages, bytes);
}

static void come_back(struct rig *rig, struct readback *r, uint64_t number, int byte)
{
    come_back_part(rig, r, number, byte, BYTES);
}

/* Bytes that the submission takes. */
static uint64_t submit(struct rig *rig, struct vnc_command_buffer *commands,
                       struct vnc_semaphore *wait)
{
    uint64_t before = rig_sent(rig).bytes_sent;
    rig_submit(rig, 0, commands, wait, NULL, NULL);
    return rig_sent(rig).bytes_sent - before;
}

static void the_first_sends_it(struct rig *rig, struct readback *r)
{
    assert_true(submit(rig, r->fills, NULL) > BYTES);
    come_back(rig, r, 1, 0x11);
    rig_fill(r->bytes, BYTES, 0x22); /* what it leaves there for the second */
}

static void the_second_does_not(void **state)
{
    struct rig *rig = *state;
    struct readback r;
    make(rig, &r);
    the_first_sends_it(rig, &r);
    assert_true(submit(rig, r.fills, NULL) < BYTES / 16);
    assert_true(submit(rig, r.copy.commands, NULL) <
                BYTES / 16); /* it reads what the other writes */
    come_back(rig, &r, 3, 0x33);
    unmake(rig, &r);
}

static void fill_part(struct readback *r, VkDeviceSize bytes)
{
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, r->fills);
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkBufferCopy part = {.size = bytes};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &info), VK_SUCCESS);
    RIG_COMMAND(vkCmdCopyBuffer)
    (commands, VNC_HANDLE(VkBuffer, r->copy.to), VNC_HANDLE(VkBuffer, r->copy.from), 1, &part);
    assert_int_equal(RIG_COMMAND(vkEndCommandBuffer)(commands), VK_SUCCESS);
}

/* One of another length is awaited as far as the last one came, and then all of it. */
static void nor_does_one_that_grows(void **state)
{
    struct rig *rig = *state;
    struct readback r;
    make(rig, &r);
    fill_part(&r, BYTES / 4 + 100);
    (void)submit(rig, r.fills, NULL);
    come_back_part(rig, &r, 1, 0x11, BYTES / 4);
    (void)submit(rig, r.fills, NULL);
    come_back_part(rig, &r, 2, 0x22, BYTES / 4);
    fill_part(&r, BYTES);
    rig_fill(r.bytes, BYTES, 0x33);
    uint64_t sent = submit(rig, r.fills, NULL);
    assert_true(sent > BYTES / 4 * 3 - BYTES / 16 && sent < BYTES / 4 * 3 + BYTES / 16);
    come_back(rig, &r, 3, 0x44);
    rig_fill(r.bytes, BYTES, 0x55);
    assert_true(submit(rig, r.fills, NULL) < BYTES / 16);
    come_back(rig, &r, 4, 0x66);
    fill_part(&r, BYTES / 2);
    rig_fill(r.bytes, BYTES / 2, 0x77);
    assert_true(submit(rig, r.fills, NULL) < BYTES / 16);
    come_back_part(rig, &r, 5, 0x88, BYTES / 2);
    unmake(rig, &r);
}

/* Records a copy of an image of 4 bytes a texel to what the readback fills. */
static void fill_from_image(struct readback *r, struct vnc_resource *image, uint32_t row_length)
{
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, r->fills);
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkBufferImageCopy all = {.bufferRowLength = row_length,
                             .imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                             .imageExtent = {WIDTH, BYTES / 4 / WIDTH, 1}};
    image->shape = (struct vnc_image_shape){VK_FORMAT_R8G8B8A8_UNORM, all.imageExtent, 1};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &info), VK_SUCCESS);
    RIG_COMMAND(vkCmdCopyImageToBuffer)
    (commands, VNC_HANDLE(VkImage, image), VK_IMAGE_LAYOUT_GENERAL,
     VNC_HANDLE(VkBuffer, r->copy.from), 1, &all);
    assert_int_equal(RIG_COMMAND(vkEndCommandBuffer)(commands), VK_SUCCESS);
}

static void nor_does_one_from_an_image_without_gaps(void **state)
{
    struct rig *rig = *state;
    struct readback r;
    make(rig, &r);
    struct vnc_resource *image =
        vnc_object_create(rig->link, VK_OBJECT_TYPE_IMAGE, &rig->device->object);
    fill_from_image(&r, image, 0);
    the_first_sends_it(rig, &r);
    assert_true(submit(rig, r.fills, NULL) < BYTES / 16);
    come_back(rig, &r, 2, 0x33);
    rig_fill(r.bytes, BYTES, 0x44);
    fill_from_image(&r, image, 2 * WIDTH); /* every second row is the program's */
    assert_true(submit(rig, r.fills, NULL) > BYTES);
    come_back(rig, &r, 3, 0x55);
    vnc_object_destroy((struct vn_object *)image);
    unmake(rig, &r);
}

static void nor_does_one_that_only_fills(void **state)
{
    struct rig *rig = *state;
    struct readback r;
    make(rig, &r);
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, r.fills);
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &info), VK_SUCCESS);
    RIG_COMMAND(vkCmdFillBuffer)
    (commands, VNC_HANDLE(VkBuffer, r.copy.from), 0, VK_WHOLE_SIZE, 7);
    assert_int_equal(RIG_COMMAND(vkEndCommandBuffer)(commands), VK_SUCCESS);
    the_first_sends_it(rig, &r);
    assert_true(submit(rig, r.fills, NULL) < BYTES / 16);
    come_back(rig, &r, 2, 0x33);
    unmake(rig, &r);
}

static void one_that_waits_for_the_host_sends_it(void **state)
{
    struct rig *rig = *state;
    struct readback r;
    make(rig, &r);
    the_first_sends_it(rig, &r);
    assert_true(submit(rig, r.fills, rig->timeline) > BYTES);
    come_back(rig, &r, 2, 0x33);
    unmake(rig, &r);
}

/* By a barrier it may be behind that work. */
static void one_behind_work_that_waits_for_the_host_sends_it(void **state)
{
    struct rig *rig = *state;
    struct readback r;
    make(rig, &r);
    the_first_sends_it(rig, &r);
    rig_submit(rig, 1, NULL, rig->timeline, NULL, NULL);
    assert_true(submit(rig, r.fills, NULL) > BYTES);
    come_back(rig, &r, 2, 0x33);
    rig_report(rig, 1, 1);
    rig_fill(r.bytes, BYTES, 0x44);
    assert_true(submit(rig, r.fills, NULL) < BYTES / 16);
    come_back(rig, &r, 3, 0x55);
    unmake(rig, &r);
}

static void what_the_batch_reads_first_is_sent(void **state)
{
    struct rig *rig = *state;
    struct readback r;
    make(rig, &r);
    the_first_sends_it(rig, &r);
    VkCommandBuffer both[] = {VNC_HANDLE(VkCommandBuffer, r.copy.commands),
                              VNC_HANDLE(VkCommandBuffer, r.fills)};
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 2, .pCommandBuffers = both};
    uint64_t before = rig_sent(rig).bytes_sent;
    assert_int_equal(rig->submit(VNC_HANDLE(VkQueue, rig->queues[0]), 1, &info, VK_NULL_HANDLE),
                     VK_SUCCESS);
    assert_true(rig_sent(rig).bytes_sent - before > BYTES);
    come_back(rig, &r, 2, 0x33);
    unmake(rig, &r);
}

int main(void)
{
#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_start, rig_end)
    const struct CMUnitTest tests[] = {
        WITH_RIG(the_second_does_not),
        WITH_RIG(nor_does_one_that_grows),
        WITH_RIG(nor_does_one_from_an_image_without_gaps),
        WITH_RIG(nor_does_one_that_only_fills),
        WITH_RIG(one_that_waits_for_the_host_sends_it),
        WITH_RIG(one_behind_work_that_waits_for_the_host_sends_it),
        WITH_RIG(what_the_batch_reads_first_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
