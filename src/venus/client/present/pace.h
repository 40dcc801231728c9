/* venus/client/present/pace.h - when a window of X11 is due for its next picture.
 *
 * X's Present extension tells when the window's screen begins a new refresh, also of a screen that
 * is none (60 a second then).  Its two requests are made here: libxcb-present would be one more
 * library to find for them.
 *
 * Trust: the program's own; answers of its display server are checked.
 * Threads: one at a time.  Lifetime: create/destroy, within that of the connection. */
#ifndef HAWSER_VENUS_CLIENT_PRESENT_PACE_H
#define HAWSER_VENUS_CLIENT_PRESENT_PACE_H

#include "venus/client/present/xcb.h"

#include <stdint.h>

struct vnc_pace;

/* NULL: the display cannot tell, or there is no memory; then nothing is paced. */
struct vnc_pace *vnc_pace_create(const struct vnc_xcb *xcb, xcb_connection_t *c,
                                 xcb_window_t window);
void vnc_pace_destroy(struct vnc_pace *pace);

/* Waits until another refresh than that of the last call has begun.  A window that is gone, or a
 * display that is silent, is waited for VNC_PACE_MS.  The number of the refresh; pace may be NULL,
 * and it is 0 then. */
enum { VNC_PACE_MS = 100 };
uint64_t vnc_pace_wait(struct vnc_pace *pace);

#endif
