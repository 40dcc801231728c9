/* The decoder under a program of gets that the input itself dictates.  The first byte says how
 * many of the rest are the program; what follows is what it decodes.  Beyond what a sanitizer
 * sees, this holds: an error sticks, nothing is consumed after it, and whatever was read lies in
 * the input. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/dec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

static void require_inside(const struct wire_dec *d, const void *p, size_t len)
{
    const uint8_t *at = p;
    require(at ? at >= d->base && len <= (size_t)(d->end - at) : wire_dec_error(d) != 0);
}

static uint64_t get_number(struct wire_dec *d, uint8_t op)
{
    switch (op % 9) {
    case 0:
        return wire_get_u8(d);
    case 1:
        return wire_get_u16(d);
    case 2:
        return wire_get_u32(d);
    case 3:
        return wire_get_u64(d);
    case 4:
        return (uint64_t)wire_get_i32(d);
    case 5:
        return (uint64_t)wire_get_i64(d);
    case 6:
        return wire_get_f32(d) != 0;
    case 7:
        return wire_get_f64(d) != 0;
    default:
        return wire_get_varint(d);
    }
}

static void get_run(struct wire_dec *d, uint8_t op, uint8_t arg)
{
    char text[256];
    size_t len;
    switch (op % 6) {
    case 0:
        require_inside(d, wire_get_bytes(d, arg), arg);
        break;
    case 1:
        wire_get_copy(d, text, arg);
        break;
    case 2: {
        const uint8_t *blob = wire_get_blob(d, arg, &len);
        require_inside(d, blob, len);
        require(len <= arg);
        break;
    }
    case 3: {
        const char *s = wire_get_str(d, arg, &len);
        require_inside(d, s, len);
        require(!s || !memchr(s, 0, len));
        break;
    }
    case 4:
        wire_get_str_copy(d, text, (size_t)arg + 1);
        require(strlen(text) <= arg);
        break;
    default: {
        uint32_t count = wire_dec_count(d, arg % 16, arg);
        require(count <= arg && count * (arg % 16u) <= wire_dec_left(d));
        break;
    }
    }
}

static void step(struct wire_dec *d, uint8_t op, uint8_t arg)
{
    int before = wire_dec_error(d);
    size_t left = wire_dec_left(d);
    if (op & 0x80) {
        get_run(d, op, arg);
    } else {
        uint64_t v = get_number(d, op);
        require(!wire_dec_error(d) || v == 0);
    }
    require(wire_dec_left(d) <= left);
    require(!before || (wire_dec_error(d) == before && left == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    size_t ops = data[0] < size - 1 ? data[0] : size - 1;
    struct wire_dec d, part;
    wire_dec_init(&d, data + 1 + ops, size - 1 - ops);
    for (size_t i = 0; i + 1 < ops; i += 2) {
        uint8_t op = data[1 + i], arg = data[2 + i];
        if (op == 0xff) {
            part = wire_dec_sub(&d, arg);
            step(&part, arg, op);
        } else {
            step(&d, op, arg);
        }
    }
    require(wire_dec_end(&d) <= 0);
    return 0;
}
