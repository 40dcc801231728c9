/* venus/client/present/presenter.h - the thread of a swapchain that shows what the program
 * presented.
 *
 * An image is free, the program's (acquired), or pending (presented).  Pending ones are shown in
 * the order of presentation, each when its batch is done, and are then free, in that order.
 * MAILBOX leaves out one that the next has overtaken.  Only what changed since the last show is
 * named to the canvas (all of it with VENUS_PRESENT_TILES=0).  In FIFO and FIFO_RELAXED a canvas
 * may pace the shows; the program is held back by the number of images.
 *
 * Trust: the program's own.
 * Threads: any; the canvas is used by the presenter's thread only.  Lock order: its lock is taken
 * alone; nothing is called with it held.
 * Lifetime: create/destroy. */
#ifndef HAWSER_VENUS_CLIENT_PRESENT_PRESENTER_H
#define HAWSER_VENUS_CLIENT_PRESENT_PRESENTER_H

#include "venus/client/present/surface.h"
#include "venus/client/submit/queue.h"

struct vnc_presenter;

/* One presentation of an image. */
struct vnc_present {
    struct vnc_queue *queue; /* the batch of it after which the picture is complete */
    uint64_t number;
    uint64_t id;           /* of the program's, ascending; 0: none */
    VkPresentModeKHR mode; /* from now on */
};

struct vnc_presenter_params {
    uint32_t count;                 /* of images; all are free at first */
    struct vnc_canvas *canvas;      /* NULL: nothing is shown; taken, on success */
    const uint8_t *const *pictures; /* of each image, once its batch is done; NULL without canvas */
    /* Waits until that batch of the queue is done. */
    VkResult (*wait)(void *user, struct vnc_queue *queue, uint64_t number);
    void *user;
};

/* VK_SUCCESS or VK_ERROR_OUT_OF_HOST_MEMORY.  params->pictures is copied. */
VkResult vnc_presenter_create(const struct vnc_presenter_params *params,
                              struct vnc_presenter **out) MUST_CHECK;
/* Shows what is pending first; NULL is fine. */
void vnc_presenter_destroy(struct vnc_presenter *presenter);

/* Gives the image that has been free for longest to the program.  VK_SUCCESS; VK_NOT_READY or
 * VK_TIMEOUT when none is free (in time); VK_ERROR_OUT_OF_DATE_KHR when retired; what showing or
 * waiting failed with, from then on. */
VkResult vnc_presenter_acquire(struct vnc_presenter *presenter, uint64_t timeout_ns,
                               uint32_t *index) MUST_CHECK;
/* Takes the image back, to be shown after its batch.  VK_SUCCESS, or what showing or waiting has
 * failed with. */
VkResult vnc_presenter_present(struct vnc_presenter *presenter, uint32_t index,
                               const struct vnc_present *present);
/* Takes images back that the program does not present.  VK_SUCCESS, or VK_ERROR_DEVICE_LOST. */
VkResult vnc_presenter_release(struct vnc_presenter *presenter, uint32_t count,
                               const uint32_t *indices);
/* Waits until a presentation with that id or a later one was shown or left out.  VK_SUCCESS,
 * VK_TIMEOUT, or what showing or waiting failed with. */
VkResult vnc_presenter_wait(struct vnc_presenter *presenter, uint64_t id, uint64_t timeout_ns);
/* No image is given out any more; returns when nothing is pending. */
void vnc_presenter_retire(struct vnc_presenter *presenter);

#endif
