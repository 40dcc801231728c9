/* Query results: asked for at the server, which never waits; see queue.h. */
#include "venus/client/object/query.h"

#include "base/clock.h"
#include "venus/client/object/ask.h"
#include "vn_client.gen.h"

struct question {
    VkDevice device;
    VkQueryPool pool;
    uint32_t first, count;
    size_t size;
    void *data;
    VkDeviceSize stride;
    VkQueryResultFlags flags;
};

static VkResult ask(void *user)
{
    const struct question *q = user;
    struct vnc_link *link = vnc_link_of(q->device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    vn_enc_cmd_vkGetQueryPoolResults(e, q->device, q->pool, q->first, q->count, q->size, q->data,
                                     q->stride, q->flags);
    struct vn_decoder reply;
    VkResult result = vnc_link_call(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    result = vn_dec_reply_vkGetQueryPoolResults(&reply, q->device, q->pool, q->first, q->count,
                                                q->size, q->data, q->stride, q->flags);
    return vnc_link_finish(link, &reply) == VK_SUCCESS ? result : VK_ERROR_DEVICE_LOST;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_query_pool_results(VkDevice handle, VkQueryPool pool,
                                                             uint32_t first, uint32_t count,
                                                             size_t size, void *data,
                                                             VkDeviceSize stride,
                                                             VkQueryResultFlags flags)
{
    struct question question = {handle, pool, first, count, size, data, stride, flags};
    bool waits = flags & VK_QUERY_RESULT_WAIT_BIT;
    /* A caller that waits gets final results: a driver that was asked for partial ones need not say
     * that they are not ready. */
    if (waits)
        question.flags &=
            ~(VkQueryResultFlags)(VK_QUERY_RESULT_WAIT_BIT | VK_QUERY_RESULT_PARTIAL_BIT);
    return vnc_ask(VNC_OBJECT(vnc_device, handle), ask, &question, waits ? HW_NEVER : 0);
}

const struct vnc_entry vnc_entries_query[] = {
    VNC_ENTRY(vkGetQueryPoolResults, get_query_pool_results),
    {NULL, NULL},
};
