/* Asking again; see ask.h. */
#include "venus/client/object/ask.h"

#include "base/clock.h"

/* Between two questions when nothing was heard of meanwhile: a part of the time so far. */
static const uint64_t pause_least_ns = 100 * HW_US, pause_most_ns = 10 * HW_MS;
enum { PAUSE_PART = 8 };

struct news {
    struct vnc_device *device;
    uint64_t done; /* batches, when the question was asked */
};

static uint64_t batches_done(struct vnc_device *device)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < device->queue_count; i++)
        done += atomic_load_explicit(&device->queues[i]->done, memory_order_relaxed);
    return done;
}

static bool has_news(void *user)
{
    const struct news *news = user;
    return batches_done(news->device) != news->done;
}

VkResult vnc_ask(struct vnc_device *device, VkResult (*ask)(void *user), void *user,
                 uint64_t timeout_ns)
{
    uint64_t start = hw_now_ns();
    for (;;) {
        struct news news = {device, batches_done(device)};
        VkResult status = vnc_device_status(device);
        VkResult result = status == VK_SUCCESS ? ask(user) : status;
        uint64_t passed = hw_now_ns() - start;
        if (result != VK_NOT_READY || passed >= timeout_ns)
            return result;
        uint64_t pause = passed / PAUSE_PART;
        pause = pause < pause_least_ns ? pause_least_ns : pause;
        pause = pause > pause_most_ns ? pause_most_ns : pause;
        pause = pause > timeout_ns - passed ? timeout_ns - passed : pause;
        if (vnc_link_wait(vnc_device_link(device), has_news, &news, pause) == VK_ERROR_DEVICE_LOST)
            return VK_ERROR_DEVICE_LOST;
    }
}
