/* What the server does instead of the driver, or around it; see state.h. */
#include "venus/server/session/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "venus/server/memory/external.h"

static struct vns_session *session_of(struct vn_exec *x)
{
    return x->objects;
}

/* ---- devices and queues ---- */

static void create_device(struct vn_exec *x, struct vn_args_vkCreateDevice *a)
{
    struct vns_session *s = session_of(x);
    struct vns_device *device;
    a->ret = vns_device_create(&s->instance, a->physicalDevice,
                               (VkDeviceCreateInfo *)(uintptr_t)a->pCreateInfo, &s->arena, &device);
    if (a->ret < 0)
        return;
    device->id = a->ids_pDevice[0];
    while (device->gpu < s->instance.device_count &&
           s->instance.devices[device->gpu] != a->physicalDevice)
        device->gpu++;
    device->next = s->devices;
    s->devices = device;
    s->command.created = device;
    *a->pDevice = device->handle;
}

static void destroy_device(struct vn_exec *x, struct vn_args_vkDestroyDevice *a)
{
    struct vns_session *s = session_of(x);
    struct vns_device *device = a->device ? s->command.device : NULL;
    if (!device)
        return;
    struct vns_device **link = &s->devices;
    while (*link != device)
        link = &(*link)->next;
    *link = device->next;
    vns_objects_remove_device(&s->objects, device);
    vns_device_stop(device);
    vns_memories_free_device(s->memories, device);
    vns_device_destroy(device);
    s->command.device = NULL;
}

struct vns_queue *vns_session_queue(struct vns_session *s, VkQueue handle)
{
    struct vns_device *device = vns_objects_device(&s->objects, handle);
    struct vns_queue *queue = device ? device->queues : NULL;
    while (queue && queue->handle != handle)
        queue = queue->next;
    return queue;
}

/* A queue that the device does not have, or that has an id already, leaves a poisoned one. */
static VkQueue get_queue(struct vns_session *s, const VkDeviceQueueInfo2 *info, uint64_t id)
{
    VkQueue handle = vns_device_get_queue(s->command.device, info);
    struct vns_queue *queue;
    if (!handle || vns_session_queue(s, handle))
        return VK_NULL_HANDLE;
    VkResult result = vns_queue_create(s->command.device, handle, id, &s->reports, &queue);
    if (result < 0)
        hw_warn(HW_CAT_VULKAN, "no timeline semaphore for a queue (VkResult %d)", result);
    else
        queue->family = info->queueFamilyIndex;
    return result < 0 ? VK_NULL_HANDLE : handle;
}

static void get_device_queue(struct vn_exec *x, struct vn_args_vkGetDeviceQueue *a)
{
    VkDeviceQueueInfo2 info = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_INFO_2,
                               .queueFamilyIndex = a->queueFamilyIndex,
                               .queueIndex = a->queueIndex};
    *a->pQueue = get_queue(session_of(x), &info, a->ids_pQueue[0]);
}

static void get_device_queue2(struct vn_exec *x, struct vn_args_vkGetDeviceQueue2 *a)
{
    *a->pQueue = get_queue(session_of(x), a->pQueueInfo, a->ids_pQueue[0]);
}

/* ---- memory ---- */

static void allocate_memory(struct vn_exec *x, struct vn_args_vkAllocateMemory *a)
{
    struct vns_session *s = session_of(x);
    if (!vns_external_give(a->pAllocateInfo, s->fd_in)) {
        a->ret = VK_ERROR_INVALID_EXTERNAL_HANDLE;
        return;
    }
    a->ret = vns_memories_allocate(s->memories, s->command.device, a->ids_pMemory[0],
                                   a->pAllocateInfo, a->pMemory);
    if (a->ret >= 0)
        vns_facts_of_memory(s, a->ids_pMemory[0], *a->pMemory, a->pAllocateInfo);
    vns_external_given(a->pAllocateInfo, a->ret, s->fd_in);
}

/* Where no answer is wanted, or none with a descriptor can be sent, there is nobody to give it to.
 */
static bool can_answer_with_fd(struct vn_exec *x)
{
    const struct vns_session *s = session_of(x);
    return x->reply && s->fd_out < 0 && rpc_ep_passes_fds(s->channel.ep);
}

/* The client is told whether there is one, and not its number. */
static VkResult answer_with_fd(struct vn_exec *x, VkResult result, int fd, int *told)
{
    if (result >= 0)
        session_of(x)->fd_out = fd;
    *told = fd < 0 ? -1 : 0;
    return result;
}

static void get_memory_fd(struct vn_exec *x, struct vn_args_vkGetMemoryFdKHR *a)
{
    const struct vn_driver *driver = &session_of(x)->command.device->driver;
    int fd = -1;
    a->ret = VK_ERROR_UNKNOWN;
    if (driver->vkGetMemoryFdKHR && can_answer_with_fd(x) &&
        a->pGetFdInfo->handleType == VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT)
        a->ret = driver->vkGetMemoryFdKHR(a->device, a->pGetFdInfo, &fd);
    a->ret = answer_with_fd(x, a->ret, fd, a->pFd);
}

static void create_buffer(struct vn_exec *x, struct vn_args_vkCreateBuffer *a)
{
    struct vns_session *s = session_of(x);
    a->ret = s->command.device->driver.vkCreateBuffer(a->device, a->pCreateInfo, NULL, a->pBuffer);
    if (a->ret >= 0)
        vns_facts_of_buffer(s, a->pCreateInfo);
}

static void free_memory(struct vn_exec *x, struct vn_args_vkFreeMemory *a)
{
    struct vns_session *s = session_of(x);
    if (!a->memory || !a->ids_memory)
        return;
    vns_memories_forget(s->memories, a->ids_memory[0]);
    s->command.device->driver.vkFreeMemory(a->device, a->memory, NULL);
}

/* ---- semaphores and fences that processes share ---- */

static void get_semaphore_fd(struct vn_exec *x, struct vn_args_vkGetSemaphoreFdKHR *a)
{
    const struct vn_driver *driver = &session_of(x)->command.device->driver;
    int fd = -1;
    a->ret = VK_ERROR_UNKNOWN;
    if (driver->vkGetSemaphoreFdKHR && can_answer_with_fd(x))
        a->ret = driver->vkGetSemaphoreFdKHR(a->device, a->pGetFdInfo, &fd);
    a->ret = answer_with_fd(x, a->ret, fd, a->pFd);
}

static void get_fence_fd(struct vn_exec *x, struct vn_args_vkGetFenceFdKHR *a)
{
    const struct vn_driver *driver = &session_of(x)->command.device->driver;
    int fd = -1;
    a->ret = VK_ERROR_UNKNOWN;
    if (driver->vkGetFenceFdKHR && can_answer_with_fd(x))
        a->ret = driver->vkGetFenceFdKHR(a->device, a->pGetFdInfo, &fd);
    a->ret = answer_with_fd(x, a->ret, fd, a->pFd);
}

static void import_semaphore_fd(struct vn_exec *x, struct vn_args_vkImportSemaphoreFdKHR *a)
{
    struct vns_session *s = session_of(x);
    const struct vn_driver *driver = &s->command.device->driver;
    VkImportSemaphoreFdInfoKHR info = *a->pImportSemaphoreFdInfo;
    bool sync_file = info.handleType == VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT;
    a->ret = VK_ERROR_INVALID_EXTERNAL_HANDLE;
    if (!driver->vkImportSemaphoreFdKHR || !vns_external_give_sync(sync_file, s->fd_in, &info.fd))
        return;
    a->ret = driver->vkImportSemaphoreFdKHR(a->device, &info);
    if (a->ret < 0 && info.fd >= 0)
        close(info.fd);
}

static void import_fence_fd(struct vn_exec *x, struct vn_args_vkImportFenceFdKHR *a)
{
    struct vns_session *s = session_of(x);
    const struct vn_driver *driver = &s->command.device->driver;
    VkImportFenceFdInfoKHR info = *a->pImportFenceFdInfo;
    bool sync_file = info.handleType == VK_EXTERNAL_FENCE_HANDLE_TYPE_SYNC_FD_BIT;
    a->ret = VK_ERROR_INVALID_EXTERNAL_HANDLE;
    if (!driver->vkImportFenceFdKHR || !vns_external_give_sync(sync_file, s->fd_in, &info.fd))
        return;
    a->ret = driver->vkImportFenceFdKHR(a->device, &info);
    if (a->ret < 0 && info.fd >= 0)
        close(info.fd);
}

/* ---- submissions ---- */

/* The queue of SUBMIT, when its batches fit the command; else the session ends. */
static struct vns_queue *submitting_queue(struct vns_session *s, VkQueue handle, uint32_t infos)
{
    struct vns_queue *queue = s->command.queue;
    if (!queue || queue->handle != handle || !vns_queue_expects(queue, infos)) {
        vns_session_fault(s, -EPROTO);
        return NULL;
    }
    return queue;
}

static void queue_submit(struct vn_exec *x, struct vn_args_vkQueueSubmit *a)
{
    struct vns_session *s = session_of(x);
    struct vns_queue *queue = submitting_queue(s, a->queue, a->submitCount);
    a->ret = VK_ERROR_UNKNOWN;
    if (!queue)
        return;
    if (a->submitCount)
        vns_queue_enter(queue);
    struct vns_signal signal = vns_queue_signals(queue, &s->arena);
    VkSubmitInfo *infos =
        signal.values ? vns_submit_infos(&s->arena, a->pSubmits, a->submitCount, &signal) : NULL;
    a->ret = queue->ended ? queue->ended
             : infos ? s->command.device->driver.vkQueueSubmit(a->queue, queue->submitting.count,
                                                               infos, a->fence)
                     : VK_ERROR_OUT_OF_HOST_MEMORY;
    (a->submitCount ? vns_queue_submitted : vns_queue_submitted_nothing)(queue, a->ret);
}

static void queue_submit2(struct vn_exec *x, struct vn_args_vkQueueSubmit2 *a)
{
    struct vns_session *s = session_of(x);
    struct vns_queue *queue = submitting_queue(s, a->queue, a->submitCount);
    a->ret = VK_ERROR_UNKNOWN;
    if (!queue)
        return;
    if (!s->command.device->driver.vkQueueSubmit2) {
        vns_session_fault(s, -ENOSYS);
        return;
    }
    vns_queue_enter(queue);
    struct vns_signal signal = vns_queue_signals(queue, &s->arena);
    VkSubmitInfo2 *infos =
        signal.values ? vns_submit_infos2(&s->arena, a->pSubmits, a->submitCount, &signal) : NULL;
    a->ret = queue->ended ? queue->ended
             : infos ? s->command.device->driver.vkQueueSubmit2(a->queue, queue->submitting.count,
                                                                infos, a->fence)
                     : VK_ERROR_OUT_OF_HOST_MEMORY;
    vns_queue_submitted(queue, a->ret);
}

static void queue_bind_sparse(struct vn_exec *x, struct vn_args_vkQueueBindSparse *a)
{
    struct vns_session *s = session_of(x);
    struct vns_queue *queue = submitting_queue(s, a->queue, a->bindInfoCount);
    a->ret = VK_ERROR_UNKNOWN;
    if (!queue)
        return;
    struct vns_signal signal = vns_queue_signals(queue, &s->arena);
    VkBindSparseInfo *infos =
        signal.values ? vns_submit_sparse(&s->arena, a->pBindInfo, a->bindInfoCount, &signal)
                      : NULL;
    a->ret = queue->ended ? queue->ended
             : infos      ? s->command.device->driver.vkQueueBindSparse(
                                a->queue, queue->submitting.count, infos, a->fence)
                     : VK_ERROR_OUT_OF_HOST_MEMORY;
    vns_queue_submitted(queue, a->ret);
}

/* ---- pools and recordings ---- */

/* With buffers that can be reset one by one: a pool's reset leaves out those that will be recorded
 * again as they are. */
static void create_command_pool(struct vn_exec *x, struct vn_args_vkCreateCommandPool *a)
{
    VkCommandPoolCreateInfo info = *a->pCreateInfo;
    info.flags |= VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    const struct vn_driver *driver = &session_of(x)->command.device->driver;
    a->ret = driver->vkCreateCommandPool(a->device, &info, NULL, a->pCommandPool);
}

static void allocate_command_buffers(struct vn_exec *x, struct vn_args_vkAllocateCommandBuffers *a)
{
    struct vns_session *s = session_of(x);
    s->command.secondary = a->pAllocateInfo->level == VK_COMMAND_BUFFER_LEVEL_SECONDARY;
    a->ret = s->command.device->driver.vkAllocateCommandBuffers(a->device, a->pAllocateInfo,
                                                                a->pCommandBuffers);
}

static void reset_command_pool(struct vn_exec *x, struct vn_args_vkResetCommandPool *a)
{
    struct vns_session *s = session_of(x);
    bool releases = a->flags & VK_COMMAND_POOL_RESET_RELEASE_RESOURCES_BIT;
    if (s->early && releases)
        vns_session_drain(s);
    a->ret = vns_recordings_reset_pool(s->command.pool, a->flags, s->early && !releases);
}

static void reset_command_buffer(struct vn_exec *x, struct vn_args_vkResetCommandBuffer *a)
{
    a->ret = vns_recording_reset(session_of(x)->command.buffer, a->flags);
}

static void begin_command_buffer(struct vn_exec *x, struct vn_args_vkBeginCommandBuffer *a)
{
    struct vns_session *s = session_of(x);
    VkCommandBufferBeginInfo info = *a->pBeginInfo;
    struct vns_recording *recording = s->command.recording ? s->command.recording->recording : NULL;
    if (recording && recording->repeats)
        info.flags &= ~(VkFlags)VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    if (recording)
        recording->once = info.flags & VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    a->ret = s->command.device->driver.vkBeginCommandBuffer(a->commandBuffer, &info);
}

static void reset_descriptor_pool(struct vn_exec *x, struct vn_args_vkResetDescriptorPool *a)
{
    struct vns_session *s = session_of(x);
    a->ret =
        s->command.device->driver.vkResetDescriptorPool(a->device, a->descriptorPool, a->flags);
    if (s->command.pool)
        vns_objects_empty(&s->objects, s->command.pool);
}

/* ---- pipelines ---- */

static void create_compute_pipelines(struct vn_exec *x, struct vn_args_vkCreateComputePipelines *a)
{
    vns_pipelines_compute(session_of(x), a);
}

static void create_graphics_pipelines(struct vn_exec *x,
                                      struct vn_args_vkCreateGraphicsPipelines *a)
{
    vns_pipelines_graphics(session_of(x), a);
}

static void create_pipeline_cache(struct vn_exec *x, struct vn_args_vkCreatePipelineCache *a)
{
    struct vns_session *s = session_of(x);
    a->ret = s->command.device->driver.vkCreatePipelineCache(a->device, a->pCreateInfo, NULL,
                                                             a->pPipelineCache);
    s->command.exclusive =
        a->pCreateInfo->flags & VK_PIPELINE_CACHE_CREATE_EXTERNALLY_SYNCHRONIZED_BIT;
}

static void destroy_shader_module(struct vn_exec *x, struct vn_args_vkDestroyShaderModule *a)
{
    struct vns_session *s = session_of(x);
    if (!vns_pipelines_defer(s, VK_OBJECT_TYPE_SHADER_MODULE, a->ids_shaderModule))
        s->command.device->driver.vkDestroyShaderModule(a->device, a->shaderModule, NULL);
}

static void destroy_pipeline_layout(struct vn_exec *x, struct vn_args_vkDestroyPipelineLayout *a)
{
    struct vns_session *s = session_of(x);
    if (!vns_pipelines_defer(s, VK_OBJECT_TYPE_PIPELINE_LAYOUT, a->ids_pipelineLayout))
        s->command.device->driver.vkDestroyPipelineLayout(a->device, a->pipelineLayout, NULL);
}

static void destroy_render_pass(struct vn_exec *x, struct vn_args_vkDestroyRenderPass *a)
{
    struct vns_session *s = session_of(x);
    if (!vns_pipelines_defer(s, VK_OBJECT_TYPE_RENDER_PASS, a->ids_renderPass))
        s->command.device->driver.vkDestroyRenderPass(a->device, a->renderPass, NULL);
}

static void destroy_query_pool(struct vn_exec *x, struct vn_args_vkDestroyQueryPool *a)
{
    struct vns_device *device = session_of(x)->command.device;
    for (struct vns_queue *queue = device->queues; queue; queue = queue->next)
        vns_results_forget(queue, a->queryPool);
    device->driver.vkDestroyQueryPool(a->device, a->queryPool, NULL);
}

static bool is_idle(const struct vns_device *device)
{
    struct vns_queue *queue = device->queues;
    while (queue && vns_queue_is_idle(queue))
        queue = queue->next;
    return !queue;
}

/* The client answers the program's waits as soon as work has ended.  A thread of the driver may
 * then still be about to let go of its semaphores, as Mesa's software GPU does up to 25.0 with
 * timelines that work waited for.  The driver's own wait for an idle device ends behind that. */
static void destroy_semaphore(struct vn_exec *x, struct vn_args_vkDestroySemaphore *a)
{
    struct vns_device *device = session_of(x)->command.device;
    if (device->idle_since != device->submissions && is_idle(device)) {
        (void)device->wait_idle(device->handle);
        device->idle_since = device->submissions;
    }
    device->driver.vkDestroySemaphore(a->device, a->semaphore, NULL);
}

static void destroy_pipeline_cache(struct vn_exec *x, struct vn_args_vkDestroyPipelineCache *a)
{
    struct vns_session *s = session_of(x);
    if (!vns_pipelines_defer(s, VK_OBJECT_TYPE_PIPELINE_CACHE, a->ids_pipelineCache))
        s->command.device->driver.vkDestroyPipelineCache(a->device, a->pipelineCache, NULL);
}

static void destroy_pipeline(struct vn_exec *x, struct vn_args_vkDestroyPipeline *a)
{
    struct vns_session *s = session_of(x);
    if (!vns_pipelines_defer(s, VK_OBJECT_TYPE_PIPELINE, a->ids_pipeline))
        s->command.device->driver.vkDestroyPipeline(a->device, a->pipeline, NULL);
}

/* ---- host image copies ---- */

#ifdef VK_EXT_host_image_copy

enum {
    TEXEL_BYTES_MAX = 32, /* four components of 64 bits; a block of several texels has less */
    /* Of one region: a part of 256 KiB in blocks of 12 x 12 texels needs 75 MiB.  Hardly any of it
     * is touched. */
    ROOM_MAX = 128 << 20,
};

/* At least as many bytes as a driver reads or writes for texels that are packed; 0: more than
 * anybody has.  A block covers at least one texel of the region. */
static size_t room_for(const VkImageSubresourceLayers *layers, const VkExtent3D *extent)
{
    const uint32_t factors[] = {extent->width, extent->height, extent->depth, layers->layerCount};
    uint64_t bytes = TEXEL_BYTES_MAX;
    for (size_t i = 0; i < ARRAY_LEN(factors); i++) {
        if (factors[i] == 0 || factors[i] > ROOM_MAX / bytes)
            return 0;
        bytes *= factors[i];
    }
    return (size_t)bytes;
}

/* The client packs texels, and memoryRowLength says how many bytes they are.  A driver reads what
 * the image's format needs, which a client may have got wrong: the rest is zeros. */
static void copy_memory_to_image(struct vn_exec *x, struct vn_args_vkCopyMemoryToImageEXT *a)
{
    const struct vn_driver *driver = &session_of(x)->command.device->driver;
    const VkMemoryToImageCopyEXT *regions = a->pCopyMemoryToImageInfo->pRegions;
    uint32_t count = regions ? a->pCopyMemoryToImageInfo->regionCount : 0;
    VkCopyMemoryToImageInfoEXT info = *a->pCopyMemoryToImageInfo;
    info.flags &= ~(VkFlags)VK_HOST_IMAGE_COPY_MEMCPY_EXT; /* whose size the driver chooses */
    a->ret = driver->vkCopyMemoryToImageEXT ? VK_SUCCESS : VK_ERROR_UNKNOWN;
    for (uint32_t i = 0; i < count && a->ret >= 0; i++) {
        VkMemoryToImageCopyEXT copy = regions[i];
        size_t room = room_for(&copy.imageSubresource, &copy.imageExtent);
        size_t bytes = copy.pHostPointer ? copy.memoryRowLength : 0;
        uint8_t *packed = room ? calloc(1, room) : NULL;
        if (!packed) {
            a->ret = VK_ERROR_OUT_OF_HOST_MEMORY;
            break;
        }
        if (bytes)
            memcpy(packed, copy.pHostPointer, bytes < room ? bytes : room);
        copy.pHostPointer = packed;
        copy.memoryRowLength = copy.memoryImageHeight = 0;
        info.regionCount = 1;
        info.pRegions = &copy;
        a->ret = driver->vkCopyMemoryToImageEXT(a->device, &info);
        free(packed);
    }
}

/* The bytes come before the result in the answer. */
static void copy_image_to_memory(struct vn_exec *x, struct vn_args_vkCopyImageToMemoryEXT *a)
{
    const struct vn_driver *driver = &session_of(x)->command.device->driver;
    VkCopyImageToMemoryInfoEXT info = *a->pCopyImageToMemoryInfo;
    VkImageToMemoryCopyEXT copy =
        info.regionCount == 1 && info.pRegions ? info.pRegions[0] : (VkImageToMemoryCopyEXT){0};
    info.flags &= ~(VkFlags)VK_HOST_IMAGE_COPY_MEMCPY_EXT;
    size_t room = room_for(&copy.imageSubresource, &copy.imageExtent);
    size_t bytes = copy.memoryRowLength < room ? copy.memoryRowLength : room;
    copy.pHostPointer = room && bytes <= WIRE_COUNT_MAX ? calloc(1, room) : NULL;
    a->ret = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (!copy.pHostPointer)
        return;
    copy.memoryRowLength = copy.memoryImageHeight = 0;
    info.pRegions = &copy;
    a->ret = driver->vkCopyImageToMemoryEXT ? driver->vkCopyImageToMemoryEXT(a->device, &info)
                                            : VK_ERROR_UNKNOWN;
    if (a->ret >= 0 && x->reply)
        wire_put_bytes(x->reply, copy.pHostPointer, bytes);
    free(copy.pHostPointer);
}

#endif

/* ---- what would block the executor: the client asks again ---- */

static void get_query_pool_results(struct vn_exec *x, struct vn_args_vkGetQueryPoolResults *a)
{
    const struct vn_driver *driver = &session_of(x)->command.device->driver;
    a->ret = driver->vkGetQueryPoolResults(a->device, a->queryPool, a->firstQuery, a->queryCount,
                                           a->dataSize, a->pData, a->stride,
                                           a->flags & ~(uint32_t)VK_QUERY_RESULT_WAIT_BIT);
}

static void acquire_profiling_lock(struct vn_exec *x, struct vn_args_vkAcquireProfilingLockKHR *a)
{
    VkAcquireProfilingLockInfoKHR info = *a->pInfo;
    info.timeout = 0;
    const struct vn_driver *driver = &session_of(x)->command.device->driver;
    a->ret = driver->vkAcquireProfilingLockKHR ? driver->vkAcquireProfilingLockKHR(a->device, &info)
                                               : VK_ERROR_UNKNOWN;
}

/* ---- what OPEN did ---- */

static void create_instance(struct vn_exec *x, struct vn_args_vkCreateInstance *a)
{
    (void)x;
    a->ret = VK_ERROR_INITIALIZATION_FAILED;
}

static void destroy_instance(struct vn_exec *x, struct vn_args_vkDestroyInstance *a)
{
    (void)a;
    vns_session_fault(session_of(x), -EPROTO);
}

static void enumerate_physical_devices(struct vn_exec *x,
                                       struct vn_args_vkEnumeratePhysicalDevices *a)
{
    (void)x;
    *a->pPhysicalDeviceCount = 0;
    a->ret = VK_ERROR_INITIALIZATION_FAILED;
}

const struct vn_hooks vns_server_hooks = {
    .vkAcquireProfilingLockKHR = acquire_profiling_lock,
    .vkAllocateCommandBuffers = allocate_command_buffers,
    .vkAllocateMemory = allocate_memory,
#ifdef VK_EXT_host_image_copy
    .vkCopyImageToMemoryEXT = copy_image_to_memory,
    .vkCopyMemoryToImageEXT = copy_memory_to_image,
#endif
    .vkBeginCommandBuffer = begin_command_buffer,
    .vkCreateComputePipelines = create_compute_pipelines,
    .vkCreateBuffer = create_buffer,
    .vkCreateCommandPool = create_command_pool,
    .vkCreateDevice = create_device,
    .vkCreateGraphicsPipelines = create_graphics_pipelines,
    .vkCreateInstance = create_instance,
    .vkCreatePipelineCache = create_pipeline_cache,
    .vkDestroyDevice = destroy_device,
    .vkDestroyInstance = destroy_instance,
    .vkDestroyPipeline = destroy_pipeline,
    .vkDestroyPipelineCache = destroy_pipeline_cache,
    .vkDestroyPipelineLayout = destroy_pipeline_layout,
    .vkDestroyQueryPool = destroy_query_pool,
    .vkDestroyRenderPass = destroy_render_pass,
    .vkDestroySemaphore = destroy_semaphore,
    .vkDestroyShaderModule = destroy_shader_module,
    .vkEnumeratePhysicalDevices = enumerate_physical_devices,
    .vkFreeMemory = free_memory,
    .vkGetDeviceQueue = get_device_queue,
    .vkGetDeviceQueue2 = get_device_queue2,
    .vkGetFenceFdKHR = get_fence_fd,
    .vkGetMemoryFdKHR = get_memory_fd,
    .vkGetQueryPoolResults = get_query_pool_results,
    .vkGetSemaphoreFdKHR = get_semaphore_fd,
    .vkImportFenceFdKHR = import_fence_fd,
    .vkImportSemaphoreFdKHR = import_semaphore_fd,
    .vkQueueBindSparse = queue_bind_sparse,
    .vkQueueSubmit = queue_submit,
    .vkQueueSubmit2 = queue_submit2,
    .vkResetCommandBuffer = reset_command_buffer,
    .vkResetCommandPool = reset_command_pool,
    .vkResetDescriptorPool = reset_descriptor_pool,
};
