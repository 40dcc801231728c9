/* external.c - differential programs: memory, semaphores and fences that two processes share as
 * descriptors.
 *
 * A case starts the program again, as the importer, and gives it descriptors over a socket. */
#include "vkt_image.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WORDS = 4096,
    BYTES = WORDS * 4,
    LARGE_WORDS = 1 << 20,
    STEPS = 50, /* keep the device busy long after a wait that was none */
    ROUNDS = 3,
    SIDE = 32,  /* of the image, in texels of 4 bytes */
    FDS = 2,    /* the buffer's and the image's */
    SOCKET = 3, /* of the importer */
};

/* Semaphores and fences number them alike. */
#define SYNC_FD (uint32_t) VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT
#define OPAQUE VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT

static const VkBufferUsageFlags storage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;

static void open_sharing(void)
{
    VKT_OPEN_WITH(NULL, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
}

/* ---- two processes ---- */

static pid_t start(const char *importer, int *socket)
{
    int ends[2];
    VKT_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    fflush(stdout);
    pid_t pid = fork();
    VKT_EXPECT(pid >= 0);
    if (pid == 0) {
        /* What the driver has open at this number is nothing to the importer. */
        if (dup2(ends[1], SOCKET) == SOCKET && fcntl(SOCKET, F_SETFD, 0) == 0)
            execl("/proc/self/exe", "external", importer, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *socket = ends[0];
    return pid;
}

static void finish(pid_t pid, int socket)
{
    int status;
    VKT_EXPECT(waitpid(pid, &status, 0) == pid);
    if (status)
        vkt_fail("the importer ended with status %x", (unsigned)status);
    close(socket);
}

struct message {
    uint64_t size; /* of the memory */
    uint32_t round;
    uint32_t type; /* of handle */
    uint8_t device[VK_UUID_SIZE], driver[VK_UUID_SIZE];
};

static void send_message(int socket, const struct message *message, const int *fds, int count)
{
    union {
        char buf[CMSG_SPACE(FDS * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)(uintptr_t)message, sizeof(*message)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    size_t bytes = (size_t)count * sizeof(int);
    if (count) {
        msg.msg_control = control.buf;
        msg.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(head), fds, bytes);
    }
    VKT_EXPECT(sendmsg(socket, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof(*message));
}

static struct message receive(int socket, int fds[FDS])
{
    union {
        char buf[CMSG_SPACE(FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct message message;
    struct iovec iov = {&message, sizeof(message)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.buf,
                         .msg_controllen = sizeof(control.buf)};
    VKT_EXPECT(recvmsg(socket, &msg, MSG_WAITALL) == (ssize_t)sizeof(message));
    const struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    if (head && fds)
        memcpy(fds, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
    return message;
}

/* ---- what is shared ---- */

static struct message about_device(void)
{
    VkPhysicalDeviceIDProperties ids = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &ids};
    struct message message = {0};
    vkGetPhysicalDeviceProperties2(vkt.physical, &all);
    memcpy(message.device, ids.deviceUUID, VK_UUID_SIZE);
    memcpy(message.driver, ids.driverUUID, VK_UUID_SIZE);
    return message;
}

static VkBuffer shared_buffer(VkDeviceSize size, VkMemoryRequirements *needs)
{
    VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = OPAQUE};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .pNext = &external,
                               .size = size,
                               .usage = storage | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkBuffer buffer;
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &buffer));
    VKT_KEEP(BUFFER, buffer);
    vkGetBufferMemoryRequirements(vkt.device, buffer, needs);
    return buffer;
}

/* In memory of `next`, an import or an export. */
static struct vkt_buffer bound_buffer(VkDeviceSize size, const void *next)
{
    VkMemoryRequirements needs;
    struct vkt_buffer buffer = {.handle = shared_buffer(size, &needs), .size = size};
    buffer.memory = vkt_allocate(needs, VKT_DEVICE, next);
    VKT(vkBindBufferMemory(vkt.device, buffer.handle, buffer.memory, 0));
    return buffer;
}

/* With memory of its own, imported or exported. */
static struct vkt_image bound_image(const void *next)
{
    VkExternalMemoryImageCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMAGE_CREATE_INFO, .handleTypes = OPAQUE};
    struct vkt_image image = {
        .info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                 .pNext = &external,
                 .imageType = VK_IMAGE_TYPE_2D,
                 .format = VK_FORMAT_R8G8B8A8_UNORM,
                 .extent = {SIDE, SIDE, 1},
                 .mipLevels = 1,
                 .arrayLayers = 1,
                 .samples = VK_SAMPLE_COUNT_1_BIT,
                 .usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT},
        .aspect = VK_IMAGE_ASPECT_COLOR_BIT};
    VkMemoryRequirements needs;
    VKT(vkCreateImage(vkt.device, &image.info, NULL, &image.handle));
    VKT_KEEP(IMAGE, image.handle);
    image.info.pNext = NULL;
    vkGetImageMemoryRequirements(vkt.device, image.handle, &needs);
    VkMemoryDedicatedAllocateInfo dedicated = {.sType =
                                                   VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO,
                                               .pNext = next,
                                               .image = image.handle};
    image.memory = vkt_allocate(needs, VKT_DEVICE, &dedicated);
    VKT(vkBindImageMemory(vkt.device, image.handle, image.memory, 0));
    return image;
}

static const VkExportMemoryAllocateInfo exports = {
    .sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, .handleTypes = OPAQUE};

static VkImportMemoryFdInfoKHR import_of(int fd)
{
    return (VkImportMemoryFdInfoKHR){
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, .handleType = OPAQUE, .fd = fd};
}

static int export_fd(VkDeviceMemory memory)
{
    VkMemoryGetFdInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, .memory = memory, .handleType = OPAQUE};
    int fd = -1;
    VKT(VKT_PROC(vkGetMemoryFdKHR)(vkt.device, &info, &fd));
    VKT_EXPECT(fcntl(fd, F_GETFD) >= 0);
    return fd;
}

static void fill(const struct vkt_buffer *buffer, uint32_t seed)
{
    struct vkt_buffer staging = vkt_buffer(buffer->size, 0, VKT_COHERENT);
    vkt_pattern(staging.map, staging.size, seed);
    VkCommandBuffer command = vkt_begin();
    vkt_copy(command, &staging, buffer);
    vkt_barrier(command);
    vkt_finish(command);
}

static void expect_pattern(const struct vkt_buffer *buffer, uint32_t seed)
{
    static uint32_t want[WORDS];
    struct vkt_buffer staging = vkt_buffer(buffer->size, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkt_barrier(command);
    vkt_copy(command, buffer, &staging);
    vkt_finish(command);
    vkt_pattern(want, BYTES, seed);
    if (memcmp(want, staging.map, BYTES) != 0)
        vkt_fail("the shared buffer does not hold pattern %u", seed);
}

/* ---- what there is ---- */

static void out_properties(const char *name, const VkExternalMemoryProperties *found)
{
    char line[64];
    snprintf(line, sizeof(line), "%s features", name);
    vkt_out_u64(line, found->externalMemoryFeatures);
    snprintf(line, sizeof(line), "%s compatible", name);
    vkt_out_u64(line, found->compatibleHandleTypes & OPAQUE);
    snprintf(line, sizeof(line), "%s again", name);
    vkt_out_u64(line, found->exportFromImportedHandleTypes & OPAQUE);
}

static void properties(void)
{
    open_sharing();
    VkPhysicalDeviceExternalBufferInfo about = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
        .usage = storage,
        .handleType = OPAQUE};
    VkExternalBufferProperties buffer = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    vkGetPhysicalDeviceExternalBufferProperties(vkt.physical, &about, &buffer);
    out_properties("buffer", &buffer.externalMemoryProperties);
    VkPhysicalDeviceExternalImageFormatInfo external = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_IMAGE_FORMAT_INFO,
        .handleType = OPAQUE};
    VkPhysicalDeviceImageFormatInfo2 format = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_IMAGE_FORMAT_INFO_2,
        .pNext = &external,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .type = VK_IMAGE_TYPE_2D,
        .tiling = VK_IMAGE_TILING_OPTIMAL,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT};
    for (int again = 0; again < 2; again++) {
        VkExternalImageFormatProperties image = {
            .sType = VK_STRUCTURE_TYPE_EXTERNAL_IMAGE_FORMAT_PROPERTIES};
        VkImageFormatProperties2 found = {.sType = VK_STRUCTURE_TYPE_IMAGE_FORMAT_PROPERTIES_2,
                                          .pNext = &image};
        VKT(vkGetPhysicalDeviceImageFormatProperties2(vkt.physical, &format, &found));
        out_properties("image", &image.externalMemoryProperties);
        vkt_out_u64("extent", found.imageFormatProperties.maxExtent.width);
    }
}

/* ---- both directions ---- */

/* What the exporter wrote arrives, also when it has freed its own; what the importer writes goes
 * back. */
static void shared(void)
{
    int socket, fds[FDS];
    open_sharing();
    pid_t pid = start("importer", &socket);
    struct vkt_buffer buffer = bound_buffer(BYTES, &exports);
    struct vkt_image image = bound_image(&exports);
    struct vkt_buffer brief = {.size = BYTES};
    struct message message = about_device();
    fill(&buffer, 1);
    vkt_image_fill(&image, 2, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
    fds[0] = export_fd(buffer.memory);
    fds[1] = export_fd(image.memory);
    int second = export_fd(buffer.memory); /* a new one each time */
    VKT_EXPECT(second != fds[0]);
    close(second);
    send_message(socket, &message, fds, FDS);
    close(fds[0]);
    close(fds[1]);
    struct message answer = receive(socket, NULL);
    VKT_EXPECT(memcmp(answer.device, message.device, VK_UUID_SIZE) == 0);
    VKT_EXPECT(memcmp(answer.driver, message.driver, VK_UUID_SIZE) == 0);
    expect_pattern(&buffer, 3); /* the importer's */
    /* The memory lives as long as a descriptor does. */
    VkMemoryRequirements needs;
    brief.handle = shared_buffer(BYTES, &needs);
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = &exports,
                                 .allocationSize = needs.size,
                                 .memoryTypeIndex =
                                     vkt_memory_type(needs.memoryTypeBits, VKT_DEVICE)};
    VKT(vkAllocateMemory(vkt.device, &info, NULL, &brief.memory));
    VKT(vkBindBufferMemory(vkt.device, brief.handle, brief.memory, 0));
    fill(&brief, 4);
    fds[0] = export_fd(brief.memory);
    vkFreeMemory(vkt.device, brief.memory, NULL);
    VKT(vkDeviceWaitIdle(vkt.device));
    send_message(socket, &message, fds, 1);
    close(fds[0]);
    finish(pid, socket);
    vkt_out_buffer("buffer", &buffer);
}

static void import_shared(void)
{
    int fds[FDS];
    open_sharing();
    receive(SOCKET, fds);
    VkImportMemoryFdInfoKHR import = import_of(dup(fds[0]));
    struct vkt_buffer buffer = bound_buffer(BYTES, &import);
    expect_pattern(&buffer, 1);
    fill(&buffer, 3);
    import = import_of(fds[0]); /* a second time, beside the first */
    struct vkt_buffer second = bound_buffer(BYTES, &import);
    expect_pattern(&second, 3);
    import = import_of(fds[1]);
    struct vkt_image image = bound_image(&import);
    vkt_out_image("image", &image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
    struct message message = about_device();
    send_message(SOCKET, &message, NULL, 0);
    receive(SOCKET, fds);
    import = import_of(fds[0]);
    struct vkt_buffer brief = bound_buffer(BYTES, &import);
    expect_pattern(&brief, 4);
}

/* ---- order ---- */

static uint32_t stepped(uint32_t word, uint32_t times)
{
    while (times-- > 0)
        word = word * 1664525u + 1013904223u;
    return word;
}

/* Work that the host sees nothing of, and another process does: a wait must be a wait. */
static void in_order(void)
{
    int socket;
    open_sharing();
    pid_t pid = start("follower", &socket);
    struct vkt_buffer large = vkt_buffer(LARGE_WORDS * 4, storage, VKT_DEVICE);
    struct vkt_buffer buffer = bound_buffer(BYTES, &exports);
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    struct message message = {0};
    vkt_kernel_bind(&kernel, 0, &large);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, large.handle, 0, VK_WHOLE_SIZE, 0);
    vkt_barrier(command);
    vkt_finish(command);
    int fd = export_fd(buffer.memory);
    for (message.round = 1; message.round <= ROUNDS; message.round++) {
        const VkBufferCopy region = {.size = BYTES};
        command = vkt_begin();
        for (uint32_t i = 0; i < STEPS; i++)
            vkt_kernel_record(command, &kernel, &(uint32_t){0}, LARGE_WORDS / 64);
        vkCmdCopyBuffer(command, large.handle, buffer.handle, 1, &region);
        vkt_finish(command);
        send_message(socket, &message, &fd, message.round == 1);
        receive(socket, NULL);
    }
    close(fd);
    finish(pid, socket);
    vkt_out_buffer("buffer", &buffer);
}

static void follow(void)
{
    int fd[FDS];
    open_sharing();
    struct vkt_buffer staging = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer buffer = {0};
    const uint32_t *words = staging.map;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        struct message message = receive(SOCKET, fd);
        VkImportMemoryFdInfoKHR import = import_of(fd[0]);
        if (round == 1)
            buffer = bound_buffer(BYTES, &import);
        VkCommandBuffer command = vkt_begin();
        vkt_barrier(command);
        vkt_copy(command, &buffer, &staging);
        vkt_finish(command);
        VKT_EXPECT(message.round == round);
        for (uint32_t i = 0; i < WORDS; i++) {
            if (words[i] != stepped(0, round * STEPS))
                vkt_fail("round %u: word %u is not what was written before the wait", round, i);
        }
        send_message(SOCKET, &message, NULL, 0);
    }
}

/* ---- what is none ---- */

static VkResult import_memory(int fd, VkDeviceSize more, struct vkt_buffer *buffer)
{
    VkMemoryRequirements needs;
    VkImportMemoryFdInfoKHR import = import_of(fd);
    buffer->handle = shared_buffer(BYTES, &needs);
    buffer->size = BYTES;
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = &import,
                                 .allocationSize = needs.size + more,
                                 .memoryTypeIndex =
                                     vkt_memory_type(needs.memoryTypeBits, VKT_DEVICE)};
    return vkAllocateMemory(vkt.device, &info, NULL, &buffer->memory);
}

static void try_import(const char *name, int fd, VkDeviceSize more)
{
    struct vkt_buffer buffer;
    VkResult result = import_memory(fd, more, &buffer);
    if (more) /* a mistake of the program's that drivers name differently */
        vkt_out_u64(name, result < 0);
    else
        vkt_out_result(name, result);
    if (result == VK_SUCCESS)
        vkFreeMemory(vkt.device, buffer.memory, NULL);
    /* A refused descriptor is still the program's; but Mesa 25.0 closes it, so it is left. */
}

static int file_of(const char *bytes, size_t len)
{
    FILE *file = tmpfile();
    VKT_EXPECT(file && fwrite(bytes, 1, len, file) == len && fflush(file) == 0);
    int fd = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0);
    fclose(file);
    return fd;
}

/* Each is refused, and the device goes on. */
static void wrong(void)
{
    static const char zeros[2 * BYTES];
    int ends[2];
    open_sharing();
    struct vkt_buffer buffer = bound_buffer(BYTES, &exports), again;
    fill(&buffer, 1);
    VKT_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    close(ends[1]); /* else a driver that reads waits for ever */
    try_import("socket", ends[0], 0);
    VKT_EXPECT(pipe2(ends, O_CLOEXEC) == 0);
    close(ends[1]);
    try_import("pipe", ends[0], 0);
    try_import("file", file_of(zeros, sizeof(zeros)), 0);
    try_import("empty file", file_of(zeros, 0), 0);
    try_import("null", open("/dev/null", O_RDWR | O_CLOEXEC), 0);
    int memory = memfd_create("none", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    VKT_EXPECT(ftruncate(memory, sizeof(zeros)) == 0 &&
               fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    try_import("another's memory", memory, 0);
    try_import("too small", export_fd(buffer.memory), 1 << 20);
    if (import_memory(export_fd(buffer.memory), 0, &again) < 0)
        vkt_skip("the driver imports nothing after a wrong descriptor");
    VKT_KEEP(DEVICE_MEMORY, again.memory);
    VKT(vkBindBufferMemory(vkt.device, again.handle, again.memory, 0));
    expect_pattern(&again, 1);
    vkt_out_buffer("buffer", &buffer);
}

/* ---- semaphores and fences: what there is ---- */

static const uint32_t sync_types[] = {OPAQUE, SYNC_FD};

/* Memory too: what was written before a signal is looked at after the wait. */
static void open_sync(void)
{
    VKT_OPEN_WITH(NULL, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME,
                  VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME,
                  VK_KHR_EXTERNAL_FENCE_FD_EXTENSION_NAME);
}

static VkExternalSemaphoreProperties semaphore_properties(uint32_t type, bool timeline)
{
    VkSemaphoreTypeCreateInfo kind = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                      .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkPhysicalDeviceExternalSemaphoreInfo about = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO,
        .pNext = timeline ? &kind : NULL,
        .handleType = type};
    VkExternalSemaphoreProperties found = {.sType =
                                               VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES};
    vkGetPhysicalDeviceExternalSemaphoreProperties(vkt.physical, &about, &found);
    return found;
}

static VkExternalFenceProperties fence_properties(uint32_t type)
{
    VkPhysicalDeviceExternalFenceInfo about = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_FENCE_INFO, .handleType = type};
    VkExternalFenceProperties found = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_FENCE_PROPERTIES};
    vkGetPhysicalDeviceExternalFenceProperties(vkt.physical, &about, &found);
    return found;
}

static bool shares_semaphores(uint32_t type, bool timeline)
{
    const VkExternalSemaphoreFeatureFlags both =
        VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT | VK_EXTERNAL_SEMAPHORE_FEATURE_IMPORTABLE_BIT;
    return (semaphore_properties(type, timeline).externalSemaphoreFeatures & both) == both;
}

static bool shares_fences(uint32_t type)
{
    const VkExternalFenceFeatureFlags both =
        VK_EXTERNAL_FENCE_FEATURE_EXPORTABLE_BIT | VK_EXTERNAL_FENCE_FEATURE_IMPORTABLE_BIT;
    return (fence_properties(type).externalFenceFeatures & both) == both;
}

static void sync_properties(void)
{
    const uint32_t known = OPAQUE | SYNC_FD;
    open_sync();
    for (size_t i = 0; i < 2 * VKT_COUNT(sync_types); i++) {
        VkExternalSemaphoreProperties found = semaphore_properties(sync_types[i / 2], i % 2);
        vkt_out_u64("semaphore features", found.externalSemaphoreFeatures);
        vkt_out_u64("compatible", found.compatibleHandleTypes & known);
        vkt_out_u64("again", found.exportFromImportedHandleTypes & known);
    }
    for (size_t i = 0; i < VKT_COUNT(sync_types); i++) {
        VkExternalFenceProperties found = fence_properties(sync_types[i]);
        vkt_out_u64("fence features", found.externalFenceFeatures);
        vkt_out_u64("compatible", found.compatibleHandleTypes & known);
        vkt_out_u64("again", found.exportFromImportedHandleTypes & known);
    }
}

/* ---- made, exported, imported ---- */

static VkSemaphore shared_semaphore(uint32_t types, bool timeline)
{
    VkSemaphoreTypeCreateInfo kind = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                      .semaphoreType = timeline ? VK_SEMAPHORE_TYPE_TIMELINE
                                                                : VK_SEMAPHORE_TYPE_BINARY};
    VkExportSemaphoreCreateInfo export = {.sType = VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO,
                                          .pNext = &kind,
                                          .handleTypes = types};
    VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                  .pNext = &export};
    VkSemaphore semaphore;
    VKT(vkCreateSemaphore(vkt.device, &info, NULL, &semaphore));
    VKT_KEEP(SEMAPHORE, semaphore);
    return semaphore;
}

static VkFence shared_fence(uint32_t types)
{
    VkExportFenceCreateInfo export = {.sType = VK_STRUCTURE_TYPE_EXPORT_FENCE_CREATE_INFO,
                                      .handleTypes = types};
    VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, .pNext = &export};
    VkFence fence;
    VKT(vkCreateFence(vkt.device, &info, NULL, &fence));
    VKT_KEEP(FENCE, fence);
    return fence;
}

/* -1 only of a sync file, which is signalled then. */
static int semaphore_fd(VkSemaphore semaphore, uint32_t type)
{
    VkSemaphoreGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR,
                                    .semaphore = semaphore,
                                    .handleType = type};
    int fd = -2;
    VKT(VKT_PROC(vkGetSemaphoreFdKHR)(vkt.device, &info, &fd));
    VKT_EXPECT(fcntl(fd, F_GETFD) >= 0 || (type == SYNC_FD && fd == -1));
    return fd;
}

static int fence_fd(VkFence fence, uint32_t type)
{
    VkFenceGetFdInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_FENCE_GET_FD_INFO_KHR, .fence = fence, .handleType = type};
    int fd = -2;
    VKT(VKT_PROC(vkGetFenceFdKHR)(vkt.device, &info, &fd));
    VKT_EXPECT(fcntl(fd, F_GETFD) >= 0 || (type == SYNC_FD && fd == -1));
    return fd;
}

static VkResult import_semaphore(VkSemaphore semaphore, uint32_t type, bool temporary, int fd)
{
    VkImportSemaphoreFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_IMPORT_SEMAPHORE_FD_INFO_KHR,
                                       .semaphore = semaphore,
                                       .flags = temporary ? VK_SEMAPHORE_IMPORT_TEMPORARY_BIT : 0,
                                       .handleType = type,
                                       .fd = fd};
    return VKT_PROC(vkImportSemaphoreFdKHR)(vkt.device, &info);
}

static VkResult import_fence(VkFence fence, uint32_t type, bool temporary, int fd)
{
    VkImportFenceFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_IMPORT_FENCE_FD_INFO_KHR,
                                   .fence = fence,
                                   .flags = temporary ? VK_FENCE_IMPORT_TEMPORARY_BIT : 0,
                                   .handleType = type,
                                   .fd = fd};
    return VKT_PROC(vkImportFenceFdKHR)(vkt.device, &info);
}

static void submit_with(VkCommandBuffer command, VkSemaphore wait, VkSemaphore signal,
                        VkFence fence)
{
    const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .waitSemaphoreCount = wait != VK_NULL_HANDLE,
                         .pWaitSemaphores = &wait,
                         .pWaitDstStageMask = &all,
                         .commandBufferCount = command != NULL,
                         .pCommandBuffers = &command,
                         .signalSemaphoreCount = signal != VK_NULL_HANDLE,
                         .pSignalSemaphores = &signal};
    VKT(vkQueueSubmit(vkt.queue, 1, &info, fence));
}

/* A message with a descriptor, which the sender has no use for any more, or without. */
static void send_fd(int socket, const struct message *message, int fd)
{
    send_message(socket, message, &fd, fd >= 0);
    if (fd >= 0)
        close(fd);
}

/* ---- two processes, one in step with the other ---- */

struct stepper {
    struct vkt_buffer large, buffer, staging;
    struct vkt_kernel kernel;
};

static struct stepper stepper_make(void)
{
    struct stepper s = {.large = vkt_buffer(LARGE_WORDS * 4, storage, VKT_DEVICE),
                        .buffer = bound_buffer(BYTES, &exports),
                        .kernel = vkt_kernel("step.comp", "s", 4)};
    vkt_kernel_bind(&s.kernel, 0, &s.large);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, s.large.handle, 0, VK_WHOLE_SIZE, 0);
    vkt_barrier(command);
    vkt_finish(command);
    return s;
}

/* Long work, whose outcome is in the shared buffer. */
static VkCommandBuffer stepper_record(const struct stepper *s)
{
    const VkBufferCopy region = {.size = BYTES};
    VkCommandBuffer command = vkt_begin();
    for (uint32_t i = 0; i < STEPS; i++)
        vkt_kernel_record(command, &s->kernel, &(uint32_t){0}, LARGE_WORDS / 64);
    vkCmdCopyBuffer(command, s->large.handle, s->buffer.handle, 1, &region);
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    return command;
}

/* The other process' view: the buffer behind the first descriptor, and how to look at it. */
static struct stepper watcher_make(struct message *first)
{
    int fd[FDS] = {-1, -1};
    *first = receive(SOCKET, fd);
    VkImportMemoryFdInfoKHR import = import_of(fd[0]);
    return (struct stepper){.buffer = bound_buffer(BYTES, &import),
                            .staging = vkt_buffer(BYTES, 0, VKT_COHERENT)};
}

static VkCommandBuffer watcher_record(const struct stepper *s)
{
    VkCommandBuffer command = vkt_begin();
    vkt_barrier(command);
    vkt_copy(command, &s->buffer, &s->staging);
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    return command;
}

static void watcher_check(const struct stepper *s, uint32_t round)
{
    const uint32_t *words = s->staging.map;
    for (uint32_t i = 0; i < WORDS; i++) {
        if (words[i] != stepped(0, round * STEPS))
            vkt_fail("round %u: word %u is not what was written before the signal", round, i);
    }
}

/* A semaphore that one process signals and the other waits for, both on the device. */
static void lead_by_semaphore(uint32_t type)
{
    int socket;
    pid_t pid = start("semaphore-follower", &socket);
    struct stepper s = stepper_make();
    VkSemaphore semaphore = shared_semaphore(type, false);
    VkFence fence = vkt_fence(false);
    struct message message = {.type = type};
    send_fd(socket, &message, export_fd(s.buffer.memory));
    if (type == OPAQUE) /* one payload for both, before there is work */
        send_fd(socket, &message, semaphore_fd(semaphore, type));
    for (message.round = 1; message.round <= ROUNDS; message.round++) {
        submit_with(stepper_record(&s), VK_NULL_HANDLE, semaphore, fence);
        /* The sync file takes the signal along. */
        send_fd(socket, &message, type == OPAQUE ? -1 : semaphore_fd(semaphore, type));
        receive(socket, NULL);
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
    }
    finish(pid, socket);
    vkt_out_buffer("buffer", &s.buffer);
}

static void follow_semaphore(void)
{
    struct message message;
    open_sync();
    struct stepper s = watcher_make(&message);
    VkSemaphore semaphore = vkt_semaphore();
    VkFence fence = vkt_fence(false);
    int fd[FDS] = {-1, -1};
    if (message.type == OPAQUE) {
        receive(SOCKET, fd);
        VKT(import_semaphore(semaphore, message.type, false, fd[0]));
    }
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        fd[0] = -1;
        message = receive(SOCKET, fd);
        if (message.type == SYNC_FD)
            VKT(import_semaphore(semaphore, message.type, true, fd[0]));
        submit_with(watcher_record(&s), semaphore, VK_NULL_HANDLE, fence);
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
        watcher_check(&s, round);
        send_message(SOCKET, &message, NULL, 0);
    }
}

static void semaphores(void)
{
    uint32_t tried = 0;
    open_sync();
    for (size_t i = 0; i < VKT_COUNT(sync_types); i++) {
        if (shares_semaphores(sync_types[i], false)) {
            lead_by_semaphore(sync_types[i]);
            tried |= sync_types[i];
        }
    }
    vkt_out_u64("types", tried);
}

/* A fence that one process submits and the other waits for. */
static void lead_by_fence(uint32_t type)
{
    int socket;
    pid_t pid = start("fence-follower", &socket);
    struct stepper s = stepper_make();
    VkFence fence = shared_fence(type);
    struct message message = {.type = type};
    send_fd(socket, &message, export_fd(s.buffer.memory));
    for (message.round = 1; message.round <= ROUNDS; message.round++) {
        submit_with(stepper_record(&s), VK_NULL_HANDLE, VK_NULL_HANDLE, fence);
        send_fd(socket, &message, fence_fd(fence, type));
        receive(socket, NULL);
        /* The sync file took the signal along, and a reset of what is shared is one for both. */
        vkt_out_result("fence", vkGetFenceStatus(vkt.device, fence));
        VKT(vkDeviceWaitIdle(vkt.device));
        VKT(vkResetFences(vkt.device, 1, &fence));
        vkt_out_result("reset", vkGetFenceStatus(vkt.device, fence));
    }
    finish(pid, socket);
    vkt_out_buffer("buffer", &s.buffer);
}

/* Imports for a while in the first round; for good in the others, where that can be. */
static void follow_fence(void)
{
    struct message message;
    open_sync();
    struct stepper s = watcher_make(&message);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        int fd[FDS] = {-1, -1};
        VkFence fence = vkt_fence(false);
        bool temporary = message.type == SYNC_FD || round == 1;
        message = receive(SOCKET, fd);
        VKT(import_fence(fence, message.type, temporary, fd[0]));
        vkt_wait(fence);
        VKT_EXPECT(vkGetFenceStatus(vkt.device, fence) == VK_SUCCESS);
        VkCommandBuffer command = watcher_record(&s);
        vkt_submit(command, VK_NULL_HANDLE);
        VKT(vkQueueWaitIdle(vkt.queue));
        watcher_check(&s, round);
        VKT(vkResetFences(vkt.device, 1, &fence)); /* its own again, if it was for a while */
        VKT_EXPECT(vkGetFenceStatus(vkt.device, fence) == VK_NOT_READY);
        if (temporary) {
            submit_with(NULL, VK_NULL_HANDLE, VK_NULL_HANDLE, fence);
            vkt_wait(fence);
        }
        send_message(SOCKET, &message, NULL, 0);
    }
}

static void fences(void)
{
    uint32_t tried = 0;
    open_sync();
    for (size_t i = 0; i < VKT_COUNT(sync_types); i++) {
        if (shares_fences(sync_types[i])) {
            lead_by_fence(sync_types[i]);
            tried |= sync_types[i];
        }
    }
    vkt_out_u64("types", tried);
}

/* ---- a timeline that two processes count on ---- */

static void submit_timeline(VkCommandBuffer command, VkSemaphore semaphore, uint64_t wait,
                            uint64_t signal)
{
    const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .waitSemaphoreValueCount = wait != 0,
                                            .pWaitSemaphoreValues = &wait,
                                            .signalSemaphoreValueCount = signal != 0,
                                            .pSignalSemaphoreValues = &signal};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .waitSemaphoreCount = wait != 0,
                         .pWaitSemaphores = &semaphore,
                         .pWaitDstStageMask = &all,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &command,
                         .signalSemaphoreCount = signal != 0,
                         .pSignalSemaphores = &semaphore};
    VKT(vkQueueSubmit(vkt.queue, 1, &info, VK_NULL_HANDLE));
}

static VkResult wait_value(VkSemaphore semaphore, uint64_t value, uint64_t timeout)
{
    VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &semaphore,
                                .pValues = &value};
    return vkWaitSemaphores(vkt.device, &info, timeout);
}

static void signal_value(VkSemaphore semaphore, uint64_t value)
{
    VkSemaphoreSignalInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = semaphore, .value = value};
    VKT(vkSignalSemaphore(vkt.device, &info));
}

static uint64_t value_of(VkSemaphore semaphore)
{
    uint64_t value = 0;
    VKT(vkGetSemaphoreCounterValue(vkt.device, semaphore, &value));
    return value;
}

/* Work here signals 3n + 1, work of the other process waits for it and signals 3n + 2, and its host
 * signals 3n + 3. */
static void timelines(void)
{
    int socket;
    open_sync();
    if (!shares_semaphores(OPAQUE, true))
        vkt_skip("no timeline can be shared");
    pid_t pid = start("timeline-follower", &socket);
    struct stepper s = stepper_make();
    VkSemaphore semaphore = shared_semaphore(OPAQUE, true);
    struct message message = {.type = OPAQUE};
    send_fd(socket, &message, export_fd(s.buffer.memory));
    send_fd(socket, &message, semaphore_fd(semaphore, OPAQUE));
    receive(socket, NULL); /* its work waits for ours to come */
    vkt_out_u64("at first", value_of(semaphore));
    vkt_out_result("too early", wait_value(semaphore, 1, 1000000));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        submit_timeline(stepper_record(&s), semaphore, 3 * round, 3 * round + 1);
        VKT(wait_value(semaphore, 3 * round + 3, VKT_WAIT_NS));
        vkt_out_u64("value", value_of(semaphore));
        send_message(socket, &message, NULL, 0);
        receive(socket, NULL);
    }
    finish(pid, socket);
    VKT(vkDeviceWaitIdle(vkt.device));
    vkt_out_buffer("buffer", &s.buffer);
}

static void follow_timeline(void)
{
    int fd[FDS] = {-1, -1};
    struct message message;
    open_sync();
    struct stepper s = watcher_make(&message);
    VkSemaphore semaphore = vkt_timeline(0);
    receive(SOCKET, fd);
    VKT(import_semaphore(semaphore, OPAQUE, false, fd[0]));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        submit_timeline(watcher_record(&s), semaphore, 3 * round + 1, 3 * round + 2);
        send_message(SOCKET, &message, NULL, 0);
        VKT(wait_value(semaphore, 3 * round + 2, VKT_WAIT_NS));
        watcher_check(&s, (uint32_t)round + 1);
        signal_value(semaphore, 3 * round + 3);
        VKT_EXPECT(value_of(semaphore) >= 3 * round + 3);
        receive(SOCKET, NULL);
    }
    send_message(SOCKET, &message, NULL, 0);
}

/* ---- in one process ---- */

/* An import for a while ends with the wait, and the semaphore is what it was. */
static void temporary(void)
{
    uint32_t tried = 0;
    open_sync();
    for (size_t i = 0; i < VKT_COUNT(sync_types); i++) {
        uint32_t type = sync_types[i];
        if (!shares_semaphores(type, false))
            continue;
        VkSemaphore from = shared_semaphore(type, false), to = vkt_semaphore();
        VkFence fence = vkt_fence(false);
        for (int round = 0; round < ROUNDS; round++) {
            submit_with(NULL, VK_NULL_HANDLE, from, VK_NULL_HANDLE);
            VKT(import_semaphore(to, type, true, semaphore_fd(from, type)));
            submit_with(NULL, to, VK_NULL_HANDLE, VK_NULL_HANDLE);
            submit_with(NULL, VK_NULL_HANDLE, to, VK_NULL_HANDLE); /* its own */
            submit_with(NULL, to, from, VK_NULL_HANDLE);           /* and `from` is free again */
            submit_with(NULL, from, VK_NULL_HANDLE, fence);
            vkt_wait(fence);
            VKT(vkResetFences(vkt.device, 1, &fence));
        }
        tried |= type;
    }
    vkt_out_u64("types", tried);
}

/* What is signalled already needs no file. */
static void signalled_file(void)
{
    open_sync();
    if (shares_semaphores(SYNC_FD, false)) {
        VkSemaphore semaphore = vkt_semaphore();
        VkFence fence = vkt_fence(false);
        VKT(import_semaphore(semaphore, SYNC_FD, true, -1));
        submit_with(NULL, semaphore, VK_NULL_HANDLE, fence);
        vkt_wait(fence);
    }
    if (shares_fences(SYNC_FD)) {
        VkFence fence = vkt_fence(false);
        VKT(import_fence(fence, SYNC_FD, true, -1));
        vkt_out_result("signalled", vkGetFenceStatus(vkt.device, fence));
        VKT(vkResetFences(vkt.device, 1, &fence));
        vkt_out_result("reset", vkGetFenceStatus(vkt.device, fence));
    }
}

/* A driver may notice now, or never where nothing waits for it. */
static void try_sync(int fd)
{
    for (size_t i = 0; i < 2 * VKT_COUNT(sync_types); i++) {
        uint32_t type = sync_types[i / 2];
        if (i % 2 ? !shares_fences(type) : !shares_semaphores(type, false))
            continue;
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        VkResult result = i % 2 ? import_fence(vkt_fence(false), type, true, copy)
                                : import_semaphore(vkt_semaphore(), type, true, copy);
        if (result < 0)
            VKT_EXPECT(close(copy) == 0); /* still the program's */
    }
    close(fd);
}

/* Whatever comes of it, the device goes on. */
static void wrong_sync(void)
{
    int ends[2];
    open_sync();
    VKT_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    close(ends[1]);
    try_sync(ends[0]);
    VKT_EXPECT(pipe2(ends, O_CLOEXEC) == 0);
    close(ends[1]);
    try_sync(ends[0]);
    try_sync(file_of("words", 5));
    try_sync(eventfd(0, EFD_CLOEXEC));
    VkFence fence = vkt_fence(false);
    submit_with(NULL, VK_NULL_HANDLE, VK_NULL_HANDLE, fence);
    vkt_wait(fence);
}

static const struct vkt_case cases[] = {
    {"properties", properties, NULL},
    {"shared", shared, "the layer does not know the layout that an imported image has"},
    {"in_order", in_order, NULL},
    {"wrong", wrong, "the descriptors are none"},
    {"sync_properties", sync_properties, NULL},
    {"semaphores", semaphores, "the layer does not know what other processes signal"},
    {"fences", fences, "the layer does not know what other processes reset"},
    {"timelines", timelines, "the layer does not know what other processes signal"},
    {"temporary", temporary, NULL},
    {"signalled_file", signalled_file, NULL},
    {"wrong_sync", wrong_sync, "the descriptors are none"},
};

static const struct vkt_case importers[] = {
    {"importer", import_shared, NULL},
    {"follower", follow, NULL},
    {"semaphore-follower", follow_semaphore, NULL},
    {"fence-follower", follow_fence, NULL},
    {"timeline-follower", follow_timeline, NULL},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < VKT_COUNT(importers); i++) {
        if (!strcmp(argv[1], importers[i].name))
            return vkt_main(argc, argv, importers, VKT_COUNT(importers));
    }
    return vkt_main(argc, argv, cases, VKT_COUNT(cases));
}
