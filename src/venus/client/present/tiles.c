/* Comparing pictures; see tiles.h. */
#include "venus/client/present/tiles.h"

#include <assert.h>
#include <string.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static size_t row_bytes(const struct vnc_picture *picture)
{
    return (size_t)picture->width * VNC_PIXEL_BYTES;
}

/* Rows above the first difference are equal already. */
static bool update_tile(const struct vnc_picture *picture, const uint8_t *pixels,
                        const struct vnc_rect *tile)
{
    size_t stride = row_bytes(picture), bytes = (size_t)tile->width * VNC_PIXEL_BYTES;
    size_t at = tile->y * stride + (size_t)tile->x * VNC_PIXEL_BYTES;
    uint32_t row = 0;
    while (row < tile->height && memcmp(picture->pixels + at, pixels + at, bytes) == 0) {
        at += stride;
        row++;
    }
    if (row == tile->height)
        return false;
    for (; row < tile->height; row++, at += stride)
        memcpy(picture->pixels + at, pixels + at, bytes);
    return true;
}

static void join(struct vnc_rect *to, const struct vnc_rect *rect)
{
    uint32_t right = to->x + to->width, bottom = to->y + to->height;
    if (rect->x + rect->width > right)
        right = rect->x + rect->width;
    if (rect->y + rect->height > bottom)
        bottom = rect->y + rect->height;
    to->x = least(to->x, rect->x);
    to->y = least(to->y, rect->y);
    to->width = right - to->x;
    to->height = bottom - to->y;
}

/* Continues a rectangle that ends above this one and is as wide, else begins another. */
static void add(struct vnc_rects *rects, const struct vnc_rect *rect)
{
    for (uint32_t i = 0; i < rects->count; i++) {
        struct vnc_rect *above = &rects->items[i];
        if (above->x == rect->x && above->width == rect->width &&
            above->y + above->height == rect->y) {
            above->height += rect->height;
            return;
        }
    }
    if (rects->count < VNC_RECTS_MAX)
        rects->items[rects->count++] = *rect;
    else
        join(&rects->items[VNC_RECTS_MAX - 1], rect);
}

static void update_band(const struct vnc_picture *picture, const uint8_t *pixels, uint32_t y,
                        struct vnc_rects *rects)
{
    uint32_t height = least(VNC_TILE_PIXELS, picture->height - y);
    struct vnc_rect run = {0, y, 0, height};
    for (uint32_t x = 0; x < picture->width; x += VNC_TILE_PIXELS) {
        struct vnc_rect tile = {x, y, least(VNC_TILE_PIXELS, picture->width - x), height};
        if (update_tile(picture, pixels, &tile)) {
            if (run.width == 0)
                run.x = x;
            run.width += tile.width;
        } else if (run.width > 0) {
            add(rects, &run);
            run.width = 0;
        }
    }
    if (run.width > 0)
        add(rects, &run);
}

void vnc_tiles_update(const struct vnc_picture *picture, const uint8_t *pixels,
                      struct vnc_rects *rects)
{
    assert(picture->pixels != pixels);
    rects->count = 0;
    for (uint32_t y = 0; y < picture->height; y += VNC_TILE_PIXELS)
        update_band(picture, pixels, y, rects);
}

void vnc_tiles_replace(const struct vnc_picture *picture, const uint8_t *pixels,
                       struct vnc_rects *rects)
{
    memcpy(picture->pixels, pixels, row_bytes(picture) * picture->height);
    rects->count = 1;
    rects->items[0] = (struct vnc_rect){0, 0, picture->width, picture->height};
}
