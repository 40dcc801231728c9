/* venus/client/present/tiles.h - which parts of a picture changed since it was last shown.
 *
 * Pictures are compared tile by tile; neighbouring tiles that changed are joined.
 *
 * Trust: the program's own pixels, which mean nothing here.  Threads: one at a time for a picture.
 * Lifetime: values; pixels are the caller's. */
#ifndef HAWSER_VENUS_CLIENT_PRESENT_TILES_H
#define HAWSER_VENUS_CLIENT_PRESENT_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VNC_PIXEL_BYTES = 4,  /* of every format that is offered */
    VNC_TILE_PIXELS = 64, /* a row of a tile is a few cache lines; a glyph touches one or two */
    VNC_RECTS_MAX = 64,   /* past it one request more costs more than the pixels it saves */
};

struct vnc_rect {
    uint32_t x, y, width, height;
};

struct vnc_rects {
    uint32_t count;
    struct vnc_rect items[VNC_RECTS_MAX];
};

/* Rows follow each other without gaps. */
struct vnc_picture {
    uint8_t *pixels;
    uint32_t width, height;
};

/* Copies what differs from `pixels` (of the same size) into the picture.  `rects` gets rectangles
 * that cover all of it and do not reach outside. */
void vnc_tiles_update(const struct vnc_picture *picture, const uint8_t *pixels,
                      struct vnc_rects *rects);
/* Copies all; one rectangle. */
void vnc_tiles_replace(const struct vnc_picture *picture, const uint8_t *pixels,
                       struct vnc_rects *rects);

#endif
