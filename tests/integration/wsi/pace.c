/* pace.c - a window of X11 is due for one picture a refresh; one that is gone holds nobody up. Runs
 * on a display of its own (display.py). */
#include "venus/client/present/pace.h"

#include <stdio.h>
#include <stdlib.h>

enum { REFRESHES = 5 };

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "pace: not so: %s\n", what);
    exit(1);
}

int main(void)
{
    const struct vnc_xcb *xcb = vnc_xcb();
    xcb_connection_t *c = xcb_connect(NULL, NULL);
    require(xcb && !xcb_connection_has_error(c), "there is a display");
    const xcb_screen_t *screen = xcb_setup_roots_iterator(xcb_get_setup(c)).data;
    xcb_window_t window = xcb_generate_id(c);
    xcb_create_window(c, XCB_COPY_FROM_PARENT, window, screen->root, 0, 0, 64, 64, 0,
                      XCB_WINDOW_CLASS_INPUT_OUTPUT, screen->root_visual, 0, NULL);
    xcb_map_window(c, window);
    struct vnc_pace *pace = vnc_pace_create(xcb, c, window);
    require(pace, "the display can tell");
    uint64_t last = vnc_pace_wait(pace);
    for (int i = 0; i < REFRESHES; i++) {
        uint64_t next = vnc_pace_wait(pace);
        require(next > last, "each wait ends in a later refresh");
        last = next;
    }
    xcb_destroy_window(c, window);
    require(vnc_pace_wait(pace) == last, "a window that is gone has no refresh");
    vnc_pace_destroy(pace);
    require(vnc_pace_wait(NULL) == 0, "nothing is paced where the display cannot tell");
    /* What was asked for a window that is gone comes to nobody. */
    for (xcb_generic_event_t *event; (event = xcb_poll_for_event(c)) != NULL; free(event))
        require(event->response_type != 0, "no error reaches the program");
    xcb_disconnect(c);
    return 0;
}
