/* Showing what was presented; see presenter.h. */
#include "venus/client/present/presenter.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/units.h"
#include "base/wait.h"
#include "venus/client/locks.h"
#include "venus/memory/track/kernel.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

struct image {
    STAILQ_ENTRY(image) next; /* in the list it is in, if any */
    const uint8_t *picture;
    struct vnc_present present; /* while pending */
};

STAILQ_HEAD(list, image);

struct vnc_presenter {
    struct vnc_presenter_params params;
    unsigned forks; /* a child of the process has no thread to show anything */
    pthread_t thread;
    bool whole; /* show all of each picture: VENUS_PRESENT_TILES=0 */
    bool shown; /* the canvas holds a picture; the thread's own */

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t work;  /* something is pending, or it is time to stop */
    pthread_cond_t moved; /* an image is free, nothing is pending, or the status changed */
    struct list free, pending;
    uint64_t shown_id; /* the last of the program's ids that is past */
    VkResult status;   /* the first failure; final */
    bool retired, stopping;
    struct image images[];
};

/* ---- the thread ---- */

static VkResult show(struct vnc_presenter *p, const struct image *image)
{
    struct vnc_canvas *canvas = p->params.canvas;
    struct vnc_rects rects;
    if (p->shown && !p->whole)
        vnc_tiles_update(&canvas->picture, image->picture, &rects);
    else
        vnc_tiles_replace(&canvas->picture, image->picture, &rects);
    p->shown = true;
    canvas->paced = image->present.mode == VK_PRESENT_MODE_FIFO_KHR ||
                    image->present.mode == VK_PRESENT_MODE_FIFO_RELAXED_KHR;
    return canvas->ops->show(canvas, &rects);
}

/* Whether a later picture is there already. */
static bool is_overtaken(struct vnc_presenter *p, const struct image *image)
{
    if (image->present.mode != VK_PRESENT_MODE_MAILBOX_KHR)
        return false;
    pthread_mutex_lock(&p->lock);
    const struct image *next = STAILQ_NEXT(image, next);
    bool overtaken = next && vnc_queue_has_done(next->present.queue, next->present.number);
    pthread_mutex_unlock(&p->lock);
    return overtaken;
}

/* Once a show has failed, the program gets the error and nothing more is shown. */
static VkResult finish(struct vnc_presenter *p, const struct image *image, bool failed)
{
    VkResult result = p->params.wait(p->params.user, image->present.queue, image->present.number);
    if (result != VK_SUCCESS || failed || !p->params.canvas || is_overtaken(p, image))
        return result;
    return show(p, image);
}

static void *run(void *arg)
{
    struct vnc_presenter *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (STAILQ_EMPTY(&p->pending) && !p->stopping)
            pthread_cond_wait(&p->work, &p->lock);
        if (STAILQ_EMPTY(&p->pending))
            break;
        struct image *image = STAILQ_FIRST(&p->pending);
        bool failed = p->status != VK_SUCCESS;
        pthread_mutex_unlock(&p->lock);
        VkResult result = finish(p, image, failed);
        pthread_mutex_lock(&p->lock);
        if (!failed)
            p->status = result;
        if (image->present.id > p->shown_id)
            p->shown_id = image->present.id;
        STAILQ_REMOVE_HEAD(&p->pending, next);
        STAILQ_INSERT_TAIL(&p->free, image, next);
        pthread_cond_broadcast(&p->moved);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- life ---- */

static void presenter_free(struct vnc_presenter *p)
{
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->moved);
    vnc_lock_fini(&p->lock);
    free(p);
}

VkResult vnc_presenter_create(const struct vnc_presenter_params *params, struct vnc_presenter **out)
{
    struct vnc_presenter *p = calloc(1, sizeof(*p) + params->count * sizeof(p->images[0]));
    if (!p)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    p->params = *params;
    p->params.pictures = NULL;
    p->forks = vn_kernel_forks();
    bool tiles;
    hw_env_bool("VENUS_PRESENT_TILES", true, &tiles);
    p->whole = !tiles;
    vnc_lock_init(&p->lock);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->moved, NULL);
    STAILQ_INIT(&p->free);
    STAILQ_INIT(&p->pending);
    for (uint32_t i = 0; i < params->count; i++) {
        p->images[i].picture = params->canvas ? params->pictures[i] : NULL;
        STAILQ_INSERT_TAIL(&p->free, &p->images[i], next);
    }
    if (hw_thread_start(&p->thread, run, p)) {
        presenter_free(p);
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    *out = p;
    return VK_SUCCESS;
}

static bool is_foreign(const struct vnc_presenter *p)
{
    return p->forks != vn_kernel_forks();
}

void vnc_presenter_destroy(struct vnc_presenter *p)
{
    if (!p || is_foreign(p))
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    if (p->params.canvas)
        p->params.canvas->ops->destroy(p->params.canvas);
    presenter_free(p);
}

/* ---- the program's side ---- */

static VkResult status_of(const struct vnc_presenter *p)
{
    return p->status == VK_SUCCESS && p->retired ? VK_ERROR_OUT_OF_DATE_KHR : p->status;
}

/* False when the time is over. */
static bool wait_for_image(struct vnc_presenter *p, uint64_t timeout_ns)
{
    uint64_t until = hw_after(timeout_ns);
    while (STAILQ_EMPTY(&p->free) && status_of(p) == VK_SUCCESS &&
           hw_cond_wait(&p->moved, &p->lock, until))
        ;
    return !STAILQ_EMPTY(&p->free) || status_of(p) != VK_SUCCESS;
}

VkResult vnc_presenter_acquire(struct vnc_presenter *p, uint64_t timeout_ns, uint32_t *index)
{
    if (is_foreign(p))
        return VK_ERROR_DEVICE_LOST;
    pthread_mutex_lock(&p->lock);
    VkResult result;
    if (STAILQ_EMPTY(&p->free) && status_of(p) == VK_SUCCESS && timeout_ns == 0)
        result = VK_NOT_READY;
    else if (!wait_for_image(p, timeout_ns))
        result = VK_TIMEOUT;
    else
        result = status_of(p);
    if (result == VK_SUCCESS) {
        *index = (uint32_t)(STAILQ_FIRST(&p->free) - p->images);
        STAILQ_REMOVE_HEAD(&p->free, next);
    }
    pthread_mutex_unlock(&p->lock);
    return result;
}

VkResult vnc_presenter_present(struct vnc_presenter *p, uint32_t index,
                               const struct vnc_present *present)
{
    if (is_foreign(p))
        return VK_ERROR_DEVICE_LOST;
    assert(index < p->params.count);
    struct image *image = &p->images[index];
    pthread_mutex_lock(&p->lock);
    image->present = *present;
    STAILQ_INSERT_TAIL(&p->pending, image, next);
    pthread_cond_signal(&p->work);
    VkResult result = p->status;
    pthread_mutex_unlock(&p->lock);
    return result;
}

VkResult vnc_presenter_release(struct vnc_presenter *p, uint32_t count, const uint32_t *indices)
{
    if (is_foreign(p))
        return VK_ERROR_DEVICE_LOST;
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < count; i++) {
        assert(indices[i] < p->params.count);
        STAILQ_INSERT_TAIL(&p->free, &p->images[indices[i]], next);
    }
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
    return VK_SUCCESS;
}

VkResult vnc_presenter_wait(struct vnc_presenter *p, uint64_t id, uint64_t timeout_ns)
{
    if (is_foreign(p))
        return VK_ERROR_DEVICE_LOST;
    uint64_t until = hw_after(timeout_ns);
    pthread_mutex_lock(&p->lock);
    while (p->shown_id < id && p->status == VK_SUCCESS && hw_cond_wait(&p->moved, &p->lock, until))
        ;
    VkResult result = p->status;
    if (result == VK_SUCCESS && p->shown_id < id)
        result = VK_TIMEOUT;
    pthread_mutex_unlock(&p->lock);
    return result;
}

void vnc_presenter_retire(struct vnc_presenter *p)
{
    if (is_foreign(p))
        return;
    pthread_mutex_lock(&p->lock);
    p->retired = true;
    pthread_cond_broadcast(&p->moved);
    while (!STAILQ_EMPTY(&p->pending))
        pthread_cond_wait(&p->moved, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
