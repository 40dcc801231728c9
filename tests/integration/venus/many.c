/* many.c - programs with many of something: threads, devices, instances, servers.
 *
 * Whatever they do at once, every result is looked at, word by word. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit.h"

enum {
    THREADS = 8,
    ROUNDS = 40,          /* of each thread: enough for all to be under way together */
    UNTIL_TOLD = -1,      /* rounds, of a worker that goes on until it is stopped */
    INSTANCES = 3,        /* of one program at a time */
    IN_A_ROW = 5,         /* one after the other */
    WRITTEN_WORDS = 1024, /* of a thread's own buffer: what the device copies */
};

struct copy {
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkFence fence;
    struct buffer from, to;
};

/* A thread with work of its own.  With `turn`, the queue is one that others submit to as well. */
struct worker {
    pthread_t thread;
    struct gpu *gpu;
    pthread_mutex_t *turn;
    uint32_t seed;
    int rounds;
    atomic_bool stop;
    VkResult ended; /* what ended the rounds */
    struct copy copy;
};

static void copy_open(struct copy *c, const struct gpu *gpu)
{
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT};
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    struct gpu own = *gpu;
    VKT(vkCreateCommandPool(gpu->device, &pool, NULL, &c->pool));
    own.pool = c->pool;
    c->commands = kit_command(&own);
    VKT(vkCreateFence(gpu->device, &fence, NULL, &c->fence));
    kit_buffer_open(gpu, &c->from, WRITTEN_WORDS * 4);
    kit_buffer_open(gpu, &c->to, WRITTEN_WORDS * 4);
}

static void copy_close(struct copy *c, const struct gpu *gpu)
{
    kit_buffer_close(gpu, &c->from);
    kit_buffer_close(gpu, &c->to);
    vkDestroyFence(gpu->device, c->fence, NULL);
    vkDestroyCommandPool(gpu->device, c->pool, NULL);
}

static VkResult copy_submit(const struct worker *w)
{
    if (w->turn)
        pthread_mutex_lock(w->turn);
    VkResult result = kit_submit(w->gpu, w->copy.commands, w->copy.fence);
    if (w->turn)
        pthread_mutex_unlock(w->turn);
    return result;
}

/* The program writes, the device copies, the program reads. */
static VkResult copy_round(const struct worker *w, uint32_t seed)
{
    const struct copy *c = &w->copy;
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    const VkBufferCopy all = {.size = WRITTEN_WORDS * 4};
    vkt_pattern(c->from.map, WRITTEN_WORDS * 4, seed);
    (void)vkBeginCommandBuffer(c->commands, &begin);
    vkt_barrier(c->commands);
    vkCmdCopyBuffer(c->commands, c->from.handle, c->to.handle, 1, &all);
    vkt_barrier(c->commands);
    (void)vkEndCommandBuffer(c->commands);
    VkResult result = copy_submit(w);
    if (result == VK_SUCCESS)
        result = vkWaitForFences(w->gpu->device, 1, &c->fence, VK_TRUE, UINT64_MAX);
    if (result != VK_SUCCESS)
        return result;
    VKT_EXPECT(memcmp(c->from.map, c->to.map, WRITTEN_WORDS * 4) == 0);
    return vkResetFences(w->gpu->device, 1, &c->fence);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i != w->rounds && !w->stop && w->ended == VK_SUCCESS; i++)
        w->ended = copy_round(w, w->seed + (uint32_t)i);
    return NULL;
}

static void start(struct worker *w)
{
    copy_open(&w->copy, w->gpu);
    VKT_EXPECT(pthread_create(&w->thread, NULL, work, w) == 0);
}

static void finish(struct worker *w, VkResult ended)
{
    VKT_EXPECT(pthread_join(w->thread, NULL) == 0);
    VKT_EXPECT(w->ended == ended);
    copy_close(&w->copy, w->gpu);
}

/* ---- one device ---- */

static void threads(void)
{
    VkPhysicalDevice devices[KIT_DEVICES_MAX];
    struct gpu gpu;
    static struct worker workers[THREADS];
    pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    VkInstance instance = kit_instance();
    VKT_EXPECT(kit_devices(instance, devices) > 0);
    kit_open(&gpu, devices[0]);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.gpu = &gpu, .turn = &turn, .seed = i << 16, .rounds = ROUNDS};
        start(&workers[i]);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        finish(&workers[i], VK_SUCCESS);
    kit_close(&gpu);
    vkDestroyInstance(instance, NULL);
}

/* ---- devices of several instances, each with threads of its own ---- */

static void devices(void)
{
    VkInstance instances[INSTANCES];
    static struct gpu gpus[THREADS];
    static struct worker workers[THREADS];
    for (uint32_t i = 0; i < INSTANCES; i++)
        instances[i] = kit_instance();
    for (uint32_t i = 0; i < THREADS; i++) {
        VkPhysicalDevice found[KIT_DEVICES_MAX];
        uint32_t count = kit_devices(instances[i % INSTANCES], found);
        VKT_EXPECT(count > 0);
        kit_open(&gpus[i], found[i % count]);
        workers[i] = (struct worker){.gpu = &gpus[i], .seed = i << 16, .rounds = ROUNDS};
        start(&workers[i]);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        finish(&workers[i], VK_SUCCESS);
        kit_close(&gpus[i]);
    }
    for (uint32_t i = 0; i < INSTANCES; i++)
        vkDestroyInstance(instances[i], NULL);
}

/* ---- devices of several servers, one of which dies ---- */

static void count(void)
{
    VkPhysicalDevice found[KIT_DEVICES_MAX];
    VkInstance instance = kit_instance();
    kit_say("%u devices", kit_devices(instance, found));
    vkDestroyInstance(instance, NULL);
}

/* The test kills the second server. */
static void servers(void)
{
    VkPhysicalDevice found[KIT_DEVICES_MAX];
    struct gpu first, second;
    VkInstance instance = kit_instance();
    VKT_EXPECT(kit_devices(instance, found) == 2);
    kit_open(&first, found[0]);
    kit_open(&second, found[1]);
    static struct worker stays, dies;
    stays = (struct worker){.gpu = &first, .rounds = UNTIL_TOLD};
    dies = (struct worker){.gpu = &second, .seed = 1 << 16, .rounds = UNTIL_TOLD};
    kit_must_work(&first, 1);
    kit_must_work(&second, 2);
    start(&stays);
    start(&dies);
    kit_say("ready");
    finish(&dies, VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(kit_work(&second, 3) == VK_ERROR_DEVICE_LOST);
    kit_close(&second);
    kit_say("lost");
    kit_await("stop");
    stays.stop = true;
    finish(&stays, VK_SUCCESS);
    kit_must_work(&first, 4);
    kit_close(&first);
    vkDestroyInstance(instance, NULL);
}

/* ---- one that looks at its results while others misbehave ---- */

static void witness(void)
{
    VkPhysicalDevice found[KIT_DEVICES_MAX];
    struct gpu gpu;
    static struct worker worker;
    VkInstance instance = kit_instance();
    VKT_EXPECT(kit_devices(instance, found) > 0);
    kit_open(&gpu, found[0]);
    worker = (struct worker){.gpu = &gpu, .rounds = UNTIL_TOLD};
    kit_must_work(&gpu, 1);
    start(&worker);
    kit_say("ready");
    kit_await("stop");
    worker.stop = true;
    finish(&worker, VK_SUCCESS);
    kit_must_work(&gpu, 2);
    kit_close(&gpu);
    vkDestroyInstance(instance, NULL);
    kit_say("undisturbed");
}

/* ---- a failure of one device ---- */

/* A buffer that no driver can make: the creation is posted, so the program learns it later. */
static VkBuffer impossible_buffer(const struct gpu *gpu)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = UINT64_MAX - 4095,
                               .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkBuffer buffer;
    VKT(vkCreateBuffer(gpu->device, &info, NULL, &buffer));
    return buffer;
}

static void use_buffer(const struct gpu *gpu, VkBuffer handle)
{
    struct buffer buffer = {.handle = handle, .size = KIT_BYTES};
    VkCommandBuffer commands = kit_command(gpu);
    VKT(kit_record_fill(commands, &buffer, 1));
    VKT(kit_submit(gpu, commands, VK_NULL_HANDLE));
}

/* What fails at one device costs one object there; who uses it loses that device and no other. */
static void apart(void)
{
    enum { FAILING, SAME_INSTANCE, OTHER_INSTANCE, GPUS };
    VkPhysicalDevice found[KIT_DEVICES_MAX];
    struct gpu gpus[GPUS];
    VkInstance first = kit_instance(), second = kit_instance();
    VKT_EXPECT(kit_devices(first, found) > 0);
    kit_open(&gpus[FAILING], found[0]);
    kit_open(&gpus[SAME_INSTANCE], found[0]);
    VKT_EXPECT(kit_devices(second, found) > 0);
    kit_open(&gpus[OTHER_INSTANCE], found[0]);
    VkBuffer buffer = impossible_buffer(&gpus[FAILING]);
    for (int i = 0; i < GPUS; i++)
        kit_must_work(&gpus[i], 1);
    use_buffer(&gpus[FAILING], buffer);
    VKT_EXPECT(kit_work(&gpus[FAILING], 2) == VK_ERROR_DEVICE_LOST);
    VKT_EXPECT(vkDeviceWaitIdle(gpus[FAILING].device) == VK_ERROR_DEVICE_LOST);
    for (int i = SAME_INSTANCE; i < GPUS; i++)
        kit_must_work(&gpus[i], 2);
    vkDestroyBuffer(gpus[FAILING].device, buffer, NULL);
    kit_close(&gpus[FAILING]);
    kit_open(&gpus[FAILING], gpus[SAME_INSTANCE].physical);
    for (int i = 0; i < GPUS; i++) {
        kit_must_work(&gpus[i], 3);
        kit_close(&gpus[i]);
    }
    vkDestroyInstance(first, NULL);
    vkDestroyInstance(second, NULL);
    kit_say("apart");
}

/* ---- one instance after the other ---- */

static void child_uses_its_own(void)
{
    int status;
    pid_t child = fork();
    VKT_EXPECT(child >= 0);
    if (child == 0) {
        kit_check_new_instance(3);
        _exit(0);
    }
    VKT_EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

/* The test looks which sessions there are.  Each instance may have settings of its own. */
static void look_in_a_row(bool change)
{
    VkPhysicalDevice found[KIT_DEVICES_MAX];
    for (int i = 0; i < IN_A_ROW; i++) {
        if (change)
            VKT_EXPECT(setenv("VENUS_EARLY_FENCE", i % 2 ? "1" : "0", 1) == 0);
        VkInstance instance = kit_instance();
        VKT_EXPECT(kit_devices(instance, found) > 0);
        kit_say("instance");
        kit_await("next");
        vkDestroyInstance(instance, NULL);
    }
}

static void changing(void)
{
    look_in_a_row(true);
    kit_say("none");
    kit_await("stop");
}

static void in_a_row(void)
{
    look_in_a_row(false);
    child_uses_its_own();
    kit_check_new_instance(4);
    kit_check_new_instance(5);
    kit_say("none");
    kit_await("stop");
}

static const struct kit_case cases[] = {
    {"threads", threads}, {"devices", devices}, {"count", count},       {"servers", servers},
    {"witness", witness}, {"apart", apart},     {"in_a_row", in_a_row}, {"changing", changing},
};

KIT_MAIN(cases)
