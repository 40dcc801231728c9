/* hosts.c - programs that do what programs do beside Vulkan: fork, catch signals, have the kernel
 * write into mapped memory. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit.h"

enum {
    FORKS = 24,           /* in the middle of another thread's work: some hit a lock that is held */
    CHILD_SECONDS = 240,  /* a child that hangs is killed, and the test fails */
    ROUNDS = 16,          /* each finds pages protected again */
    DATA_WORDS = 16384,   /* 16 pages of 4 KiB, one of 64 KiB */
    ODD_BYTES = 4096 + 7, /* of one read: pages are not its edges */
};

static VkInstance instance;

static void open_first(struct gpu *gpu)
{
    instance = kit_open_first(gpu);
    kit_must_work(gpu, 1);
}

static void close_all(struct gpu *gpu)
{
    kit_close_all(gpu, instance);
}

/* ---- fork ---- */

/* Runs in a child that must end well. */
static void in_child(void (*run)(struct gpu *gpu), struct gpu *gpu)
{
    int status;
    pid_t pid = fork();
    VKT_EXPECT(pid >= 0);
    if (pid == 0) {
        alarm(CHILD_SECONDS);
        run(gpu);
        _exit(0);
    }
    VKT_EXPECT(waitpid(pid, &status, 0) == pid);
    if (status != 0)
        vkt_fail("a child ended with status %x", (unsigned)status);
}

/* Nothing of the parent's works here, and nothing hangs. */
static void use_parents_device(struct gpu *gpu)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = 64,
                               .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkBuffer buffer;
    VKT_EXPECT(kit_submit(gpu, gpu->commands, VK_NULL_HANDLE) == VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(vkQueueWaitIdle(gpu->queue) == VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(vkDeviceWaitIdle(gpu->device) == VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(vkGetFenceStatus(gpu->device, gpu->fence) == VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(vkWaitForFences(gpu->device, 1, &gpu->fence, VK_TRUE, UINT64_MAX) ==
               VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(vkCreateBuffer(gpu->device, &info, NULL, &buffer) < 0);
    VKT_EXPECT(kit_work(gpu, 7) < 0);
}

/* A child may end with its parent's objects there, or destroy its copies. */
static void destroy_parents_device(struct gpu *gpu)
{
    use_parents_device(gpu);
    close_all(gpu);
}

static void use_own_device(struct gpu *gpu)
{
    use_parents_device(gpu);
    kit_check_new_instance(5);
    use_parents_device(gpu);
}

static void write_parents_memory(struct gpu *gpu)
{
    for (uint32_t i = 0; i < KIT_WORDS; i++)
        VKT_EXPECT(gpu->out.map[i] == 2);
    memset(gpu->out.map, 0xee, KIT_BYTES);
    for (uint32_t i = 0; i < KIT_WORDS; i++)
        VKT_EXPECT(gpu->out.map[i] == 0xeeeeeeee);
}

/* Copies what the program wrote on the device, and looks at it. */
static void expect_travels(struct gpu *gpu, const struct buffer *from, const struct buffer *to)
{
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    const VkBufferCopy all = {.size = from->size};
    VKT(vkBeginCommandBuffer(gpu->commands, &begin));
    vkt_barrier(gpu->commands);
    vkCmdCopyBuffer(gpu->commands, from->handle, to->handle, 1, &all);
    vkt_barrier(gpu->commands);
    VKT(vkEndCommandBuffer(gpu->commands));
    VKT(kit_submit(gpu, gpu->commands, VK_NULL_HANDLE));
    VKT(vkQueueWaitIdle(gpu->queue));
    VKT_EXPECT(memcmp(from->map, to->map, from->size) == 0);
}

static void forks(void)
{
    struct gpu gpu;
    struct buffer copy;
    open_first(&gpu);
    kit_buffer_open(&gpu, &copy, KIT_BYTES);
    in_child(use_parents_device, &gpu);
    in_child(destroy_parents_device, &gpu);
    in_child(use_own_device, &gpu);
    kit_must_work(&gpu, 2);
    in_child(write_parents_memory, &gpu);
    for (uint32_t i = 0; i < KIT_WORDS; i++)
        VKT_EXPECT(gpu.out.map[i] == 2);
    /* Copy on write gave this process new pages: writes to them are found all the same. */
    vkt_pattern(gpu.out.map, KIT_BYTES, 3);
    expect_travels(&gpu, &gpu.out, &copy);
    kit_buffer_close(&gpu, &copy);
    close_all(&gpu);
}

struct background {
    struct gpu gpu;
    struct buffer spare;
    atomic_bool stop;
};

static void *work(void *arg)
{
    struct background *b = arg;
    for (uint32_t i = 0; !b->stop; i++)
        kit_must_work(&b->gpu, i);
    return NULL;
}

static struct background background;

/* Of the busy device, what does not touch the objects that its thread was at. */
static void use_busy_device(struct gpu *idle)
{
    struct gpu *busy = &background.gpu;
    VKT_EXPECT(vkQueueWaitIdle(busy->queue) == VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(vkGetFenceStatus(busy->device, idle->fence) == VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(kit_submit(busy, VK_NULL_HANDLE, VK_NULL_HANDLE) == VK_ERROR_DEVICE_LOST);
    kit_buffer_close(busy, &background.spare);
    destroy_parents_device(idle);
}

/* The child gets locks as they were; whatever another thread held is held for ever. */
static void forks_while_working(void)
{
    VkPhysicalDevice devices[KIT_DEVICES_MAX];
    struct gpu gpu;
    pthread_t thread;
    open_first(&gpu);
    VKT_EXPECT(kit_devices(instance, devices) > 0);
    kit_open(&background.gpu, devices[0]);
    kit_buffer_open(&background.gpu, &background.spare, KIT_BYTES);
    VKT_EXPECT(pthread_create(&thread, NULL, work, &background) == 0);
    for (uint32_t i = 0; i < FORKS; i++)
        in_child(use_busy_device, &gpu);
    background.stop = true;
    VKT_EXPECT(pthread_join(thread, NULL) == 0);
    kit_must_work(&gpu, 9);
    kit_buffer_close(&background.gpu, &background.spare);
    kit_close(&background.gpu);
    close_all(&gpu);
}

/* ---- exit ---- */

static sem_t inside;

static void *wait_for_ever(void *arg)
{
    struct gpu *gpu = arg;
    VkSemaphore never = kit_timeline(gpu);
    uint64_t value = 1;
    VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &never,
                                .pValues = &value};
    sem_post(&inside);
    (void)vkWaitSemaphores(gpu->device, &info, UINT64_MAX);
    return NULL;
}

/* With everything there, and a thread that waits. */
static void exits(void)
{
    static struct gpu gpu; /* the thread may look at it until the end */
    pthread_t thread;
    sem_init(&inside, 0, 0);
    open_first(&gpu);
    VKT_EXPECT(pthread_create(&thread, NULL, wait_for_ever, &gpu) == 0);
    sem_wait(&inside);
    exit(0);
}

/* ---- a handler of its own ---- */

static sigjmp_buf caught;
static volatile sig_atomic_t faults;

static void on_fault(int number)
{
    (void)number;
    faults++;
    siglongjmp(caught, 1);
}

static void fault_once(volatile char *forbidden)
{
    if (sigsetjmp(caught, 1) == 0)
        *forbidden = 1;
}

/* Before there is mapped memory, or after; the last round is with the handler gone again. */
static void catches_faults(bool early)
{
    struct gpu gpu;
    struct buffer from, to;
    struct sigaction action = {.sa_handler = on_fault}, old;
    char *forbidden = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VKT_EXPECT(forbidden != MAP_FAILED);
    if (early)
        VKT_EXPECT(sigaction(SIGSEGV, &action, &old) == 0);
    open_first(&gpu);
    kit_buffer_open(&gpu, &from, DATA_WORDS * 4);
    kit_buffer_open(&gpu, &to, DATA_WORDS * 4);
    expect_travels(&gpu, &from, &to);
    if (!early)
        VKT_EXPECT(sigaction(SIGSEGV, &action, &old) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        vkt_pattern(from.map, from.size, (uint32_t)i);
        fault_once(forbidden);
        from.map[i * 1000] ^= 1;
        expect_travels(&gpu, &from, &to);
        VKT_EXPECT(faults == i + 1);
    }
    VKT_EXPECT(sigaction(SIGSEGV, &old, NULL) == 0);
    vkt_pattern(from.map, from.size, 77);
    expect_travels(&gpu, &from, &to);
    kit_buffer_close(&gpu, &from);
    kit_buffer_close(&gpu, &to);
    close_all(&gpu);
    munmap(forbidden, 1 << 16);
}

static void handler_before(void)
{
    catches_faults(true);
}

static void handler_after(void)
{
    catches_faults(false);
}

/* ---- the kernel as writer and reader ---- */

/* Reads all of the file into memory, in pieces whose edges are not pages'. */
static void read_in(int fd, char *to, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t want = size - at < ODD_BYTES ? size - at : ODD_BYTES;
        ssize_t n = pread(fd, to + at, want, (off_t)at);
        if (n <= 0)
            vkt_fail("read into mapped memory: %s", n ? strerror(errno) : "the file ends");
        at += (size_t)n;
    }
}

static void write_out(int fd, const char *from, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = pwrite(fd, from + at, size - at, (off_t)at);
        if (n <= 0)
            vkt_fail("write from mapped memory: %s", strerror(errno));
        at += (size_t)n;
    }
}

static void system_calls(void)
{
    static uint32_t data[DATA_WORDS], back[DATA_WORDS];
    struct gpu gpu;
    struct buffer from, to;
    int fd = memfd_create("data", MFD_CLOEXEC);
    VKT_EXPECT(fd >= 0);
    open_first(&gpu);
    kit_buffer_open(&gpu, &from, sizeof(data));
    kit_buffer_open(&gpu, &to, sizeof(data));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        vkt_pattern(data, sizeof(data), i);
        write_out(fd, (const char *)data, sizeof(data));
        read_in(fd, (char *)from.map, sizeof(data));
        expect_travels(&gpu, &from, &to);
        VKT_EXPECT(memcmp(to.map, data, sizeof(data)) == 0);
        write_out(fd, (const char *)to.map, sizeof(data));
        read_in(fd, (char *)back, sizeof(data));
        VKT_EXPECT(memcmp(back, data, sizeof(data)) == 0);
    }
    kit_buffer_close(&gpu, &from);
    kit_buffer_close(&gpu, &to);
    close_all(&gpu);
    close(fd);
}

static const struct kit_case cases[] = {
    {"forks", forks},
    {"forks-while-working", forks_while_working},
    {"exits", exits},
    {"handler-before", handler_before},
    {"handler-after", handler_after},
    {"system-calls", system_calls},
};

KIT_MAIN(cases)
