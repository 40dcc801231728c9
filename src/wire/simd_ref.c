/* The portable reference.  The loops are as plain as the definition in wire/half.h. */
#include <stdint.h>
#include <string.h>

#include "wire/half.h"
#include "wire/simd_impl.h"

void wire_ref_half_from_f32(uint8_t *dst, const uint8_t *src, size_t count, size_t first)
{
    for (size_t i = first; i < count; i++) {
        uint32_t f32;
        memcpy(&f32, src + 4 * i, sizeof(f32));
        uint16_t f16 = wire_half_from_bits(f32);
        memcpy(dst + 2 * i, &f16, sizeof(f16));
    }
}

void wire_ref_half_to_f32(uint8_t *dst, const uint8_t *src, size_t count, size_t first)
{
    for (size_t i = first; i < count; i++) {
        uint16_t f16;
        memcpy(&f16, src + 2 * i, sizeof(f16));
        uint32_t f32 = wire_half_to_bits(f16);
        memcpy(dst + 4 * i, &f32, sizeof(f32));
    }
}

static void half_from_f32(void *dst, const void *src, size_t count)
{
    wire_ref_half_from_f32(dst, src, count, 0);
}

static void half_to_f32(void *dst, const void *src, size_t count)
{
    wire_ref_half_to_f32(dst, src, count, 0);
}

const struct wire_simd wire_simd_ref = {
    .name = "c",
    .half_from_f32 = half_from_f32,
    .half_to_f32 = half_to_f32,
};
