/* The Present extension of X11; see pace.h. */
#include "venus/client/present/pace.h"

#include "base/clock.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/uio.h>

enum {
    NOTIFY_MSC = 2, /* requests */
    SELECT_INPUT = 3,
    COMPLETE = 1,      /* event */
    COMPLETE_MASK = 2, /* what to select for it */
    KIND_MSC = 1,      /* of the event */
    /* The program may take the event from the connection, and put it where it belongs; then the
     * connection does not wake us. */
    SLICE_MS = 4,
};

/* As they travel. */
struct notify_msc {
    uint8_t major, minor;
    uint16_t length;
    uint32_t window, serial, pad;
    uint64_t target, divisor, remainder;
};
static_assert(sizeof(struct notify_msc) == 40, "as the extension defines it");

struct select_input {
    uint8_t major, minor;
    uint16_t length;
    uint32_t event, window, mask;
};

struct complete {
    uint8_t type, extension;
    uint16_t sequence;
    uint32_t length;
    uint16_t event_type;
    uint8_t kind, mode;
    uint32_t event, window, serial;
    uint32_t ust[2];
    uint32_t full_sequence; /* libxcb's own */
    uint32_t msc[2];
};

struct vnc_pace {
    const struct vnc_xcb *xcb;
    xcb_connection_t *c;
    xcb_window_t window;
    uint32_t event, serial;
    uint64_t msc; /* of the last refresh */
    xcb_special_event_t *queue;
};

static xcb_extension_t present = {.name = "Present"}; /* libxcb notes its number there */

/* Errors are not reported: for a window that is gone the wait ends by its time. */
static void send(const struct vnc_pace *p, uint8_t opcode, void *request, size_t len)
{
    xcb_protocol_request_t what = {.count = 1, .ext = &present, .opcode = opcode, .isvoid = 1};
    struct iovec parts[3] = {{0}}; /* two in front are libxcb's */
    parts[2] = (struct iovec){request, len};
    unsigned sequence = p->xcb->xcb_send_request(p->c, XCB_REQUEST_CHECKED, parts + 2, &what);
    p->xcb->xcb_discard_reply(p->c, sequence);
}

struct vnc_pace *vnc_pace_create(const struct vnc_xcb *xcb, xcb_connection_t *c,
                                 xcb_window_t window)
{
    const xcb_query_extension_reply_t *extension = xcb->xcb_get_extension_data(c, &present);
    struct vnc_pace *p = extension && extension->present ? calloc(1, sizeof(*p)) : NULL;
    if (!p)
        return NULL;
    *p = (struct vnc_pace){.xcb = xcb, .c = c, .window = window};
    p->event = xcb->xcb_generate_id(c);
    p->queue = xcb->xcb_register_for_special_xge(c, &present, p->event, NULL);
    if (!p->queue) {
        free(p);
        return NULL;
    }
    struct select_input select = {.event = p->event, .window = window, .mask = COMPLETE_MASK};
    send(p, SELECT_INPUT, &select, sizeof(select));
    return p;
}

void vnc_pace_destroy(struct vnc_pace *p)
{
    if (!p)
        return;
    struct select_input none = {.event = p->event, .window = p->window};
    send(p, SELECT_INPUT, &none, sizeof(none));
    p->xcb->xcb_unregister_for_special_event(p->c, p->queue);
    free(p);
}

/* Whether the event came for which the last request asked. */
static bool take_event(struct vnc_pace *p)
{
    bool came = false;
    xcb_generic_event_t *event;
    while ((event = p->xcb->xcb_poll_for_special_event(p->c, p->queue)) != NULL) {
        const struct complete *complete = (const struct complete *)event;
        if (complete->event_type == COMPLETE && complete->kind == KIND_MSC &&
            complete->serial == p->serial) {
            p->msc = (uint64_t)complete->msc[1] << 32 | complete->msc[0];
            came = true;
        }
        free(event);
    }
    return came;
}

/* A request with an answer makes libxcb read what is there. */
static bool read_events(const struct vnc_pace *p)
{
    xcb_generic_error_t *error = NULL;
    xcb_get_geometry_reply_t *size =
        p->xcb->xcb_get_geometry_reply(p->c, p->xcb->xcb_get_geometry(p->c, p->window), &error);
    bool there = size;
    free(size);
    free(error);
    return there;
}

uint64_t vnc_pace_wait(struct vnc_pace *p)
{
    if (!p)
        return 0;
    uint64_t until = hw_now_ns() + VNC_PACE_MS * HW_MS;
    struct notify_msc ask = {.window = p->window, .serial = ++p->serial, .target = p->msc + 1};
    send(p, NOTIFY_MSC, &ask, sizeof(ask));
    while (read_events(p) && !take_event(p) && hw_now_ns() < until) {
        struct pollfd fd = {.fd = p->xcb->xcb_get_file_descriptor(p->c), .events = POLLIN};
        (void)poll(&fd, 1, SLICE_MS);
    }
    return p->msc;
}
