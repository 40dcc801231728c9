/* venus/client/device/image_formats.h - what images of a format can be: asked once for each
 * question.
 *
 * The answers depend on too much for a snapshot, and on nothing else, so they are remembered by the
 * encoded question.
 *
 * Trust: answers are the server's, and checked.  Threads: any.  Lifetime: none. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_IMAGE_FORMATS_H
#define HAWSER_VENUS_CLIENT_DEVICE_IMAGE_FORMATS_H

#include "venus/client/icd.h"

extern const struct vnc_entry vnc_entries_image_formats[];

#endif
