/* external.c - differential programs: memory that two processes share as an opaque descriptor.
 *
 * A case starts the program again, as the importer, and gives it descriptors over a socket. */
#include "vkt_image.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static const struct vkt_case cases[] = {
    {"properties", properties, NULL},
    {"shared", shared, "the layer does not know the layout that an imported image has"},
    {"in_order", in_order, NULL},
    {"wrong", wrong, "the descriptors are none"},
};

static const struct vkt_case importers[] = {
    {"importer", import_shared, NULL},
    {"follower", follow, NULL},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < VKT_COUNT(importers); i++) {
        if (!strcmp(argv[1], importers[i].name))
            return vkt_main(argc, argv, importers, VKT_COUNT(importers));
    }
    return vkt_main(argc, argv, cases, VKT_COUNT(cases));
}
