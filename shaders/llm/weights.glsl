// weights.glsl - single values of a weight, for every type: TYPE_* names it.
//
// Rows are `stride` quads of 16 bytes apart.  The including file declares `width` before.
#if defined(TYPE_F32) || defined(TYPE_F16) || defined(TYPE_BF16)
float weight_value(uvec2 weight, uint row, uint stride, uint i)
{
    Words words = Words(weight);
    uint base = row * stride * 4;
#if defined(TYPE_F32)
    return uintBitsToFloat(words.at[base + i]);
#elif defined(TYPE_F16)
    return half_at(words, 2 * base + i);
#else
    uint both = words.at[base + i / 2];
    return uintBitsToFloat((i & 1) == 0 ? both << 16 : both & 0xffff0000);
#endif
}
#else
#include "units.glsl"

float weight_value(uvec2 weight, uint row, uint stride, uint i)
{
    uint u = unit_of(i), at = i % 16;
    Unit unit = unit_at(weight, row * stride, u);
    bool high = UNIT_VALUES == 32 && i >= low_place(u) + HIGH_AFTER;
    int value = byte_of(high ? unit.high[at / 4] : unit.low[at / 4], at % 4);
    int product = (high ? unit.high_factor : unit.low_factor) * value;
    int min_ = high ? unit.high_min : unit.low_min;
    if (TWO_SCALES)
        return unit.d * float(product) + unit.dmin * float(min_);
    return unit.d * float(product + min_);
}
#endif
