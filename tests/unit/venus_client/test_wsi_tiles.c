/* Which parts of two pictures differ. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "venus/client/present/tiles.h"

enum { WIDTH = 300, HEIGHT = 200, ROW = WIDTH * VNC_PIXEL_BYTES, BYTES = ROW * HEIGHT };

struct pair {
    struct vnc_picture picture;
    uint8_t *fresh;
    struct vnc_rects rects;
};

static int setup(void **state)
{
    struct pair *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->picture = (struct vnc_picture){malloc(BYTES), WIDTH, HEIGHT};
    p->fresh = malloc(BYTES);
    assert_non_null(p->picture.pixels);
    assert_non_null(p->fresh);
    for (size_t i = 0; i < BYTES; i++)
        p->fresh[i] = p->picture.pixels[i] = (uint8_t)(i * 7 + i / ROW);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;
    free(p->picture.pixels);
    free(p->fresh);
    free(p);
    return 0;
}

static void touch(struct pair *p, uint32_t x, uint32_t y)
{
    p->fresh[y * ROW + x * VNC_PIXEL_BYTES + 2] ^= 0x80;
}

static bool covers(const struct vnc_rect *r, uint32_t x, uint32_t y)
{
    return x >= r->x && y >= r->y && x - r->x < r->width && y - r->y < r->height;
}

/* Updates; every pixel that changed must be in a rectangle, and all must be inside the picture. */
static void update(struct pair *p)
{
    uint8_t *before = malloc(BYTES);
    assert_non_null(before);
    memcpy(before, p->picture.pixels, BYTES);
    vnc_tiles_update(&p->picture, p->fresh, &p->rects);
    assert_memory_equal(p->picture.pixels, p->fresh, BYTES);
    assert_in_range(p->rects.count, 0, VNC_RECTS_MAX);
    for (uint32_t i = 0; i < p->rects.count; i++) {
        const struct vnc_rect *r = &p->rects.items[i];
        assert_true(r->width > 0 && r->height > 0);
        assert_true(r->x + r->width <= WIDTH && r->y + r->height <= HEIGHT);
    }
    for (uint32_t at = 0; at < BYTES / VNC_PIXEL_BYTES; at++) {
        bool found = memcmp(before + at * VNC_PIXEL_BYTES, p->fresh + at * VNC_PIXEL_BYTES,
                            VNC_PIXEL_BYTES) == 0;
        for (uint32_t i = 0; !found && i < p->rects.count; i++)
            found = covers(&p->rects.items[i], at % WIDTH, at / WIDTH);
        assert_true(found);
    }
    free(before);
}

static void equal_pictures_have_no_rectangles(void **state)
{
    struct pair *p = *state;
    update(p);
    assert_int_equal(p->rects.count, 0);
}

static void one_pixel_is_one_tile(void **state)
{
    struct pair *p = *state;
    touch(p, 70, 130);
    update(p);
    assert_int_equal(p->rects.count, 1);
    assert_int_equal(p->rects.items[0].x, 64);
    assert_int_equal(p->rects.items[0].y, 128);
    assert_int_equal(p->rects.items[0].width, VNC_TILE_PIXELS);
    assert_int_equal(p->rects.items[0].height, VNC_TILE_PIXELS);
}

static void the_last_pixel_is_in_a_tile_that_is_cut(void **state)
{
    struct pair *p = *state;
    touch(p, WIDTH - 1, HEIGHT - 1);
    update(p);
    assert_int_equal(p->rects.count, 1);
    assert_int_equal(p->rects.items[0].width, WIDTH % VNC_TILE_PIXELS);
    assert_int_equal(p->rects.items[0].height, HEIGHT % VNC_TILE_PIXELS);
}

static void a_change_of_everything_is_one_rectangle(void **state)
{
    struct pair *p = *state;
    for (uint32_t y = 0; y < HEIGHT; y++)
        for (uint32_t x = 0; x < WIDTH; x++)
            touch(p, x, y);
    update(p);
    assert_int_equal(p->rects.count, 1);
    assert_int_equal(p->rects.items[0].width, WIDTH);
    assert_int_equal(p->rects.items[0].height, HEIGHT);
}

static void tiles_apart_stay_apart(void **state)
{
    struct pair *p = *state;
    touch(p, 0, 0);
    touch(p, 200, 0);
    touch(p, 0, 190);
    update(p);
    assert_int_equal(p->rects.count, 3);
}

static void a_column_is_one_rectangle(void **state)
{
    struct pair *p = *state;
    for (uint32_t y = 0; y < HEIGHT; y++)
        touch(p, 100, y);
    update(p);
    assert_int_equal(p->rects.count, 1);
    assert_int_equal(p->rects.items[0].x, 64);
    assert_int_equal(p->rects.items[0].width, VNC_TILE_PIXELS);
    assert_int_equal(p->rects.items[0].height, HEIGHT);
}

static void replacing_names_all(void **state)
{
    struct pair *p = *state;
    touch(p, 5, 5);
    vnc_tiles_replace(&p->picture, p->fresh, &p->rects);
    assert_memory_equal(p->picture.pixels, p->fresh, BYTES);
    assert_int_equal(p->rects.count, 1);
    assert_int_equal(p->rects.items[0].width, WIDTH);
    assert_int_equal(p->rects.items[0].height, HEIGHT);
}

/* A chessboard of tiles has more changes than there are rectangles. */
static void rectangles_beyond_the_limit_are_joined(void **state)
{
    (void)state;
    enum { SIDE = 20 * VNC_TILE_PIXELS };
    struct vnc_picture picture = {calloc(SIDE * VNC_PIXEL_BYTES, SIDE), SIDE, SIDE};
    uint8_t *fresh = calloc(SIDE * VNC_PIXEL_BYTES, SIDE);
    assert_non_null(picture.pixels);
    assert_non_null(fresh);
    for (uint32_t y = 0; y < SIDE; y += VNC_TILE_PIXELS)
        for (uint32_t x = (y / VNC_TILE_PIXELS % 2) * VNC_TILE_PIXELS; x < SIDE;
             x += 2 * VNC_TILE_PIXELS)
            fresh[(y * SIDE + x) * VNC_PIXEL_BYTES] = 1;
    struct vnc_rects rects;
    vnc_tiles_update(&picture, fresh, &rects);
    assert_int_equal(rects.count, VNC_RECTS_MAX);
    for (uint32_t y = 0; y < SIDE; y++) {
        for (uint32_t x = 0; x < SIDE; x++) {
            bool found = fresh[(y * SIDE + x) * VNC_PIXEL_BYTES] == 0;
            for (uint32_t i = 0; !found && i < rects.count; i++)
                found = covers(&rects.items[i], x, y);
            assert_true(found);
        }
    }
    free(picture.pixels);
    free(fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equal_pictures_have_no_rectangles, setup, teardown),
        cmocka_unit_test_setup_teardown(one_pixel_is_one_tile, setup, teardown),
        cmocka_unit_test_setup_teardown(the_last_pixel_is_in_a_tile_that_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(a_change_of_everything_is_one_rectangle, setup, teardown),
        cmocka_unit_test_setup_teardown(tiles_apart_stay_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(a_column_is_one_rectangle, setup, teardown),
        cmocka_unit_test_setup_teardown(replacing_names_all, setup, teardown),
        cmocka_unit_test(rectangles_beyond_the_limit_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
