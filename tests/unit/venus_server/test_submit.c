/* Our signal in other people's submissions. */
#include "unit.h"

#include "venus/server/submit/submit.h"

#define HANDLE(type, n) ((type)(uintptr_t)(n))

static struct hw_arena arena;
static const uint64_t numbers[] = {40, 41, 42};
static const struct vns_signal ours = {.semaphore = HANDLE(VkSemaphore, 99), .values = numbers};

static int start(void **state)
{
    (void)state;
    hw_arena_init(&arena, 1 << 20);
    return 0;
}

static int end(void **state)
{
    (void)state;
    hw_arena_fini(&arena);
    return 0;
}

static const VkTimelineSemaphoreSubmitInfo *values_of(const void *chain)
{
    const VkBaseInStructure *node = chain;
    while (node && node->sType != VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO)
        node = node->pNext;
    assert_non_null(node);
    return (const VkTimelineSemaphoreSubmitInfo *)node;
}

static void no_batch_becomes_one(void **state)
{
    (void)state;
    VkSubmitInfo *infos = vns_submit_infos(&arena, NULL, 0, &ours);
    assert_int_equal(infos[0].sType, VK_STRUCTURE_TYPE_SUBMIT_INFO);
    assert_int_equal(infos[0].commandBufferCount, 0);
    assert_int_equal(infos[0].signalSemaphoreCount, 1);
    assert_ptr_equal(infos[0].pSignalSemaphores[0], ours.semaphore);
    assert_int_equal(values_of(infos[0].pNext)->pSignalSemaphoreValues[0], 40);
    VkSubmitInfo2 *infos2 = vns_submit_infos2(&arena, NULL, 0, &ours);
    assert_int_equal(infos2[0].sType, VK_STRUCTURE_TYPE_SUBMIT_INFO_2);
    assert_int_equal(infos2[0].pSignalSemaphoreInfos[0].value, 40);
    VkBindSparseInfo *sparse = vns_submit_sparse(&arena, NULL, 0, &ours);
    assert_int_equal(sparse[0].sType, VK_STRUCTURE_TYPE_BIND_SPARSE_INFO);
    assert_int_equal(values_of(sparse[0].pNext)->pSignalSemaphoreValues[0], 40);
}

static void batches_without_a_number_stay_as_they_are(void **state)
{
    static const uint64_t second[] = {0, 41};
    const struct vns_signal some = {.semaphore = ours.semaphore, .values = second};
    VkSubmitInfo submits[2] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO},
                               {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO}};
    VkSubmitInfo2 submits2[2] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2},
                                 {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2}};
    VkBindSparseInfo binds[2] = {{.sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO},
                                 {.sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO}};
    (void)state;
    VkSubmitInfo *infos = vns_submit_infos(&arena, submits, 2, &some);
    assert_int_equal(infos[0].signalSemaphoreCount, 0);
    assert_null(infos[0].pNext);
    assert_int_equal(values_of(infos[1].pNext)->pSignalSemaphoreValues[0], 41);
    VkSubmitInfo2 *infos2 = vns_submit_infos2(&arena, submits2, 2, &some);
    assert_int_equal(infos2[0].signalSemaphoreInfoCount, 0);
    assert_int_equal(infos2[1].pSignalSemaphoreInfos[0].value, 41);
    VkBindSparseInfo *sparse = vns_submit_sparse(&arena, binds, 2, &some);
    assert_int_equal(sparse[0].signalSemaphoreCount, 0);
    assert_null(sparse[0].pNext);
    assert_int_equal(values_of(sparse[1].pNext)->pSignalSemaphoreValues[0], 41);
}

/* Binary semaphores without values, and timelines with them, side by side. */
static void the_clients_semaphores_and_values_stay(void **state)
{
    VkSemaphore waits[2] = {HANDLE(VkSemaphore, 1), HANDLE(VkSemaphore, 2)};
    VkSemaphore signals[2] = {HANDLE(VkSemaphore, 3), HANDLE(VkSemaphore, 4)};
    uint64_t wait_values[2] = {11, 12}, signal_values[2] = {13, 14};
    VkProtectedSubmitInfo behind = {.sType = VK_STRUCTURE_TYPE_PROTECTED_SUBMIT_INFO};
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .pNext = &behind,
                                            .waitSemaphoreValueCount = 2,
                                            .pWaitSemaphoreValues = wait_values,
                                            .signalSemaphoreValueCount = 2,
                                            .pSignalSemaphoreValues = signal_values};
    VkSubmitInfo clients[2] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                .waitSemaphoreCount = 2,
                                .pWaitSemaphores = waits,
                                .signalSemaphoreCount = 1,
                                .pSignalSemaphores = signals},
                               {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                .pNext = &values,
                                .waitSemaphoreCount = 2,
                                .pWaitSemaphores = waits,
                                .signalSemaphoreCount = 2,
                                .pSignalSemaphores = signals}};
    (void)state;
    VkSubmitInfo *infos = vns_submit_infos(&arena, clients, 2, &ours);
    const VkTimelineSemaphoreSubmitInfo *first = values_of(infos[0].pNext);
    const VkTimelineSemaphoreSubmitInfo *second = values_of(infos[1].pNext);
    assert_int_equal(infos[0].signalSemaphoreCount, 2);
    assert_ptr_equal(infos[0].pSignalSemaphores[0], signals[0]);
    assert_ptr_equal(infos[0].pSignalSemaphores[1], ours.semaphore);
    assert_int_equal(first->waitSemaphoreValueCount, 2);
    assert_int_equal(first->signalSemaphoreValueCount, 2);
    assert_int_equal(first->pSignalSemaphoreValues[1], 40);
    assert_int_equal(infos[1].signalSemaphoreCount, 3);
    assert_ptr_equal(infos[1].pSignalSemaphores[1], signals[1]);
    assert_int_equal(second->pWaitSemaphoreValues[1], 12);
    assert_int_equal(second->signalSemaphoreValueCount, 3);
    assert_int_equal(second->pSignalSemaphoreValues[0], 13);
    assert_int_equal(second->pSignalSemaphoreValues[1], 14);
    assert_int_equal(second->pSignalSemaphoreValues[2], 41);
    assert_ptr_equal(second->pNext, &behind);
}

/* Fewer values than semaphores, as a hostile client sends them: none is read that is not there. */
static void missing_values_are_zero(void **state)
{
    VkSemaphore signals[3] = {HANDLE(VkSemaphore, 1), HANDLE(VkSemaphore, 2),
                              HANDLE(VkSemaphore, 3)};
    uint64_t value = 7;
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .signalSemaphoreValueCount = 1,
                                            .pSignalSemaphoreValues = &value};
    VkSubmitInfo client = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .pNext = &values,
                           .signalSemaphoreCount = 3,
                           .pSignalSemaphores = signals};
    (void)state;
    VkSubmitInfo *infos = vns_submit_infos(&arena, &client, 1, &ours);
    const VkTimelineSemaphoreSubmitInfo *all = values_of(infos[0].pNext);
    assert_int_equal(all->signalSemaphoreValueCount, 4);
    assert_int_equal(all->pSignalSemaphoreValues[0], 7);
    assert_int_equal(all->pSignalSemaphoreValues[1], 0);
    assert_int_equal(all->pSignalSemaphoreValues[3], 40);
}

static void device_groups_get_an_index_more(void **state)
{
    VkSemaphore signal = HANDLE(VkSemaphore, 1);
    uint32_t index = 1;
    VkDeviceGroupSubmitInfo group = {.sType = VK_STRUCTURE_TYPE_DEVICE_GROUP_SUBMIT_INFO,
                                     .signalSemaphoreCount = 1,
                                     .pSignalSemaphoreDeviceIndices = &index};
    VkSubmitInfo client = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .pNext = &group,
                           .signalSemaphoreCount = 1,
                           .pSignalSemaphores = &signal};
    (void)state;
    assert_non_null(vns_submit_infos(&arena, &client, 1, &ours));
    assert_int_equal(group.signalSemaphoreCount, 2);
    assert_int_equal(group.pSignalSemaphoreDeviceIndices[0], 1);
    assert_int_equal(group.pSignalSemaphoreDeviceIndices[1], 0);
}

/* The arrays of a group have as many elements as those of the batch, whatever the client says. */
static void groups_fit_their_batch(void **state)
{
    VkCommandBuffer commands[2] = {HANDLE(VkCommandBuffer, 1), HANDLE(VkCommandBuffer, 2)};
    uint32_t masks[3] = {1, 2, 3};
    VkDeviceGroupSubmitInfo none = {.sType = VK_STRUCTURE_TYPE_DEVICE_GROUP_SUBMIT_INFO};
    VkDeviceGroupSubmitInfo many = {.sType = VK_STRUCTURE_TYPE_DEVICE_GROUP_SUBMIT_INFO,
                                    .commandBufferCount = 3,
                                    .pCommandBufferDeviceMasks = masks,
                                    .signalSemaphoreCount = 1,
                                    .pSignalSemaphoreDeviceIndices = masks};
    VkSubmitInfo clients[2] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                .pNext = &none,
                                .commandBufferCount = 2,
                                .pCommandBuffers = commands},
                               {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                .pNext = &many,
                                .waitSemaphoreCount = 1,
                                .commandBufferCount = 2,
                                .pCommandBuffers = commands}};
    (void)state;
    assert_non_null(vns_submit_infos(&arena, clients, 2, &ours));
    assert_int_equal(none.commandBufferCount, 2);
    assert_int_equal(none.pCommandBufferDeviceMasks[1], 0);
    assert_int_equal(none.waitSemaphoreCount, 0);
    assert_int_equal(none.signalSemaphoreCount, 1);
    assert_int_equal(none.pSignalSemaphoreDeviceIndices[0], 0);
    assert_int_equal(many.commandBufferCount, 2);
    assert_int_equal(many.pCommandBufferDeviceMasks[1], 2);
    assert_int_equal(many.waitSemaphoreCount, 1);
    assert_int_equal(many.pWaitSemaphoreDeviceIndices[0], 0);
    assert_int_equal(many.signalSemaphoreCount, 1);
    assert_int_equal(many.pSignalSemaphoreDeviceIndices[0], 0);
}

static void submit2_signals_after_all_commands(void **state)
{
    VkSemaphoreSubmitInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                    .semaphore = HANDLE(VkSemaphore, 1),
                                    .value = 5,
                                    .stageMask = VK_PIPELINE_STAGE_2_COPY_BIT};
    VkSubmitInfo2 clients[2] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2},
                                {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                 .signalSemaphoreInfoCount = 1,
                                 .pSignalSemaphoreInfos = &signal}};
    (void)state;
    VkSubmitInfo2 *infos = vns_submit_infos2(&arena, clients, 2, &ours);
    assert_int_equal(infos[1].signalSemaphoreInfoCount, 2);
    assert_int_equal(infos[1].pSignalSemaphoreInfos[0].value, 5);
    assert_ptr_equal(infos[1].pSignalSemaphoreInfos[1].semaphore, ours.semaphore);
    assert_int_equal(infos[1].pSignalSemaphoreInfos[1].value, 41);
    assert_int_equal(infos[1].pSignalSemaphoreInfos[1].stageMask,
                     VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT);
}

/* Who goes on because of the client's signal finds that ours has come. */
static void another_of_ours_comes_before_what_the_client_signals(void **state)
{
    const struct vns_signal both = {HANDLE(VkSemaphore, 98), ours.semaphore, numbers};
    VkSemaphore signal = HANDLE(VkSemaphore, 1);
    uint64_t value = 7;
    uint32_t index = 1;
    VkDeviceGroupSubmitInfo group = {.sType = VK_STRUCTURE_TYPE_DEVICE_GROUP_SUBMIT_INFO,
                                     .signalSemaphoreCount = 1,
                                     .pSignalSemaphoreDeviceIndices = &index};
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .pNext = &group,
                                            .signalSemaphoreValueCount = 1,
                                            .pSignalSemaphoreValues = &value};
    VkSubmitInfo clients[2] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                .pNext = &values,
                                .signalSemaphoreCount = 1,
                                .pSignalSemaphores = &signal},
                               {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO}};
    VkSemaphoreSubmitInfo signal2 = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                     .semaphore = signal};
    VkSubmitInfo2 client2 = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                             .signalSemaphoreInfoCount = 1,
                             .pSignalSemaphoreInfos = &signal2};
    (void)state;
    const VkSubmitInfo *infos = vns_submit_infos(&arena, clients, 2, &both);
    const VkSemaphore *semaphores = infos[0].pSignalSemaphores;
    const VkTimelineSemaphoreSubmitInfo *all = values_of(infos[0].pNext);
    assert_int_equal(infos[0].signalSemaphoreCount, 3);
    assert_ptr_equal(semaphores[0], both.before);
    assert_ptr_equal(semaphores[1], signal);
    assert_ptr_equal(semaphores[2], both.semaphore);
    assert_int_equal(all->signalSemaphoreValueCount, 3);
    assert_int_equal(all->pSignalSemaphoreValues[0], 40);
    assert_int_equal(all->pSignalSemaphoreValues[1], 7);
    assert_int_equal(all->pSignalSemaphoreValues[2], 40);
    assert_int_equal(group.signalSemaphoreCount, 3);
    assert_int_equal(group.pSignalSemaphoreDeviceIndices[1], 1);
    assert_int_equal(infos[1].signalSemaphoreCount, 1); /* with nothing of the client's */
    const VkSubmitInfo2 *infos2 = vns_submit_infos2(&arena, &client2, 1, &both);
    assert_int_equal(infos2->signalSemaphoreInfoCount, 3);
    assert_ptr_equal(infos2->pSignalSemaphoreInfos[0].semaphore, both.before);
    assert_int_equal(infos2->pSignalSemaphoreInfos[0].value, 40);
    assert_ptr_equal(infos2->pSignalSemaphoreInfos[2].semaphore, both.semaphore);
}

static void a_full_arena_is_told(void **state)
{
    struct hw_arena tiny;
    VkSubmitInfo client = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO};
    (void)state;
    hw_arena_init(&tiny, 1);
    assert_null(vns_submit_infos(&tiny, &client, 1, &ours));
    assert_null(vns_submit_infos2(&tiny, NULL, 0, &ours));
    assert_null(vns_submit_sparse(&tiny, NULL, 0, &ours));
    hw_arena_fini(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_without_a_number_stay_as_they_are, start, end),
        cmocka_unit_test_setup_teardown(no_batch_becomes_one, start, end),
        cmocka_unit_test_setup_teardown(the_clients_semaphores_and_values_stay, start, end),
        cmocka_unit_test_setup_teardown(missing_values_are_zero, start, end),
        cmocka_unit_test_setup_teardown(device_groups_get_an_index_more, start, end),
        cmocka_unit_test_setup_teardown(groups_fit_their_batch, start, end),
        cmocka_unit_test_setup_teardown(submit2_signals_after_all_commands, start, end),
        cmocka_unit_test_setup_teardown(another_of_ours_comes_before_what_the_client_signals, start,
                                        end),
        cmocka_unit_test_setup_teardown(a_full_arena_is_told, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
