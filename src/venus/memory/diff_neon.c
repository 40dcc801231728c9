/* diff_neon.c - finds changed bytes with NEON, 16 at a time. */
#include <arm_neon.h>

#include "venus/memory/diff_impl.h"

/* Four vectors of 0x00 or 0xff a byte become 64 bits: each byte keeps the bit of its place in a
 * group of eight, and adding neighbours three times gathers the groups. */
static inline uint64_t gather(const uint8x16_t differ[4])
{
    static const uint8_t place[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t bits = vld1q_u8(place);
    uint8x16_t lo = vpaddq_u8(vandq_u8(differ[0], bits), vandq_u8(differ[1], bits));
    uint8x16_t hi = vpaddq_u8(vandq_u8(differ[2], bits), vandq_u8(differ[3], bits));
    uint8x16_t all = vpaddq_u8(lo, hi);
    all = vpaddq_u8(all, all);
    return vgetq_lane_u64(vreinterpretq_u64_u8(all), 0);
}

VN_RACY static uint64_t neon_page(const uint8_t *now, const uint8_t *shadow,
                                  uint64_t mask[VN_PAGE_BLOCKS])
{
    uint64_t blocks = 0;
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++) {
        const uint8_t *n = now + b * VN_BLOCK_BYTES, *t = shadow + b * VN_BLOCK_BYTES;
        uint8x16_t differ[4];
        for (size_t i = 0; i < 4; i++)
            differ[i] = vmvnq_u8(vceqq_u8(vld1q_u8(n + 16 * i), vld1q_u8(t + 16 * i)));
        uint8x16_t any = vorrq_u8(vorrq_u8(differ[0], differ[1]), vorrq_u8(differ[2], differ[3]));
        if (vmaxvq_u32(vreinterpretq_u32_u8(any)) == 0)
            continue;
        mask[b] = gather(differ);
        blocks |= UINT64_C(1) << b;
    }
    return blocks;
}

VN_RACY static bool neon_differs(const uint8_t *now, const uint8_t *shadow)
{
    for (size_t at = 0; at < VN_PAGE_BYTES; at += 128) {
        uint8x16_t any = vdupq_n_u8(0);
        for (size_t i = 0; i < 128; i += 16)
            any = vorrq_u8(any, veorq_u8(vld1q_u8(now + at + i), vld1q_u8(shadow + at + i)));
        if (vmaxvq_u32(vreinterpretq_u32_u8(any)) != 0)
            return true;
    }
    return false;
}

const struct vn_diff vn_diff_neon = {.name = "neon", .page = neon_page, .differs = neon_differs};
