/* Results of queries; see results.h. */
#include "venus/server/submit/results.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "venus/common/decoder.h"
#include "venus/common/protocol.h"
#include "venus/server/submit/queue.h"

enum { HEAD_BYTES = 8 + 8 + 4 + 4 };

static uint64_t stride_of(const struct vns_question *question)
{
    return (question->values + UINT64_C(1)) * sizeof(uint64_t);
}

int vns_results_ask(struct vns_queue *q, const struct vns_question *question)
{
    struct vns_questions *all = &q->questions;
    if (question->count == 0 || question->values > VN_RESULTS_BYTES ||
        stride_of(question) > VN_RESULTS_BYTES / question->count)
        return -EPROTO;
    pthread_mutex_lock(&q->lock);
    if (all->count < VNS_QUESTIONS_MAX &&
        hw_grow(&all->items, &all->cap, all->count + 1, sizeof(*all->items)))
        all->items[all->count++] = *question;
    pthread_mutex_unlock(&q->lock);
    return 0;
}

void vns_results_forget(struct vns_queue *q, VkQueryPool pool)
{
    struct vns_questions *all = &q->questions;
    size_t left = 0;
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < all->count; i++) {
        if (all->items[i].pool != pool)
            all->items[left++] = all->items[i];
    }
    all->count = left;
    pthread_mutex_unlock(&q->lock);
}

/* Under the lock, so that the pool is there.  The payload of a push, or NULL: none of that batch,
 * out of memory, or the device is lost, which others find out. */
static uint8_t *take_next(struct vns_queue *q, uint64_t number, size_t *len)
{
    struct vns_questions *all = &q->questions;
    const struct vns_device *device = q->device;
    if (all->count == 0 || all->items[0].number > number)
        return NULL;
    struct vns_question question = all->items[0];
    memmove(all->items, all->items + 1, --all->count * sizeof(*all->items));
    uint64_t stride = stride_of(&question), bytes = question.count * stride;
    *len = HEAD_BYTES + bytes;
    /* A driver writes what a query has, whatever the client takes that to be. */
    uint8_t *payload = calloc(1, HEAD_BYTES + vn_strided(question.count, stride, VN_QUERY_BYTES));
    if (!payload)
        return NULL;
    struct wire_enc e;
    wire_enc_init_fixed(&e, payload, HEAD_BYTES);
    wire_put_u64(&e, question.id);
    wire_put_u64(&e, question.use);
    wire_put_u32(&e, question.first);
    wire_put_u32(&e, question.count);
    VkResult result = device->driver.vkGetQueryPoolResults(
        device->handle, question.pool, question.first, question.count, bytes, payload + HEAD_BYTES,
        stride, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
    if (result >= 0)
        return payload;
    free(payload);
    return NULL;
}

int vns_results_push(struct vns_queue *q, uint64_t number)
{
    int rc = 0;
    uint8_t *payload = NULL;
    do {
        size_t len = 0;
        free(payload);
        pthread_mutex_lock(&q->lock);
        payload = take_next(q, number, &len);
        pthread_mutex_unlock(&q->lock);
        if (payload)
            rc = vns_channel_send(q->reports->channel, VN_PUSH_RESULTS, payload, len);
    } while (payload && rc == 0);
    free(payload);
    return rc;
}

void vns_results_fini(struct vns_queue *q)
{
    free(q->questions.items);
}
