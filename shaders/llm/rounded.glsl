// rounded.glsl - rows of activations in the form that weights need: FORM names it.
//
// The forms are enum act_form of src/llm/vulkan/vulkan.c.  A thread has four values at a time.  The
// including file defines THREADS, and FORM, a specialisation constant; all threads of a workgroup
// call put_rounded together, and neighbours have neighbouring fours.
const uint FORM_NONE = 0;
const uint FORM_BITS = 1;   // binary32 with the 11 significant bits of binary16
const uint FORM_HALVES = 2; // two a word, none infinite
// 32 or 256: values of 8 bits, as llm/engine/quantise.h defines, then a scale for each block of so many

const uint BLOCK = FORM >= 32 ? FORM : 32, SHARERS = BLOCK / 4; // threads that share a block
shared vec4 most_of[THREADS / 4];

// 127 / most, rounded to nearest.  A device's own division may be off in the last bits (Vulkan allows
// 2.5 units), and a value between two steps then rounds to the other one.  The exact remainder, in
// units of the product of both mantissas, tells by how many units; fma may not be fused.
float steps_each(float most)
{
    uint quotient = floatBitsToUint(127.0 / most), divisor = floatBitsToUint(most);
    uint shift = 283 - (quotient >> 23) - (divisor >> 23);
    if (shift != 23 && shift != 24)
        return uintBitsToFloat(quotient); // of a number so small that the other is infinite
    int by = int((divisor & 0x7fffff) | 0x800000);
    int rest = int((127u << 17 << shift) - ((quotient & 0x7fffff) | 0x800000) * uint(by));
    for (; 2 * rest > by; rest -= by)
        quotient++;
    for (; 2 * rest < -by; rest += by)
        quotient--;
    return uintBitsToFloat(quotient);
}

uint packed_half(float x)
{
    return to_half(clamp(x, -65504.0, 65504.0));
}

void put_block(Words to, uint row_at, uint width, uint at, vec4 x, bool inside)
{
    uint me = gl_LocalInvocationIndex, first = me / SHARERS * SHARERS;
    vec4 size = abs(x);
    barrier(); // other threads may still read the last ones
    most_of[me / 4][me % 4] = inside ? max(max(size.x, size.y), max(size.z, size.w)) : 0.0;
    barrier();
    size = most_of[first / 4];
    [[unroll]] for (uint i = 1; i < SHARERS / 4; i++)
        size = max(size, most_of[first / 4 + i]);
    float most = max(max(size.x, size.y), max(size.z, size.w));
    if (!inside)
        return;
    float inverse_ = most > 0 ? steps_each(most) : 0.0;
    ivec4 values = ivec4(roundEven(x * inverse_)) & 0xff;
    to.at[row_at + at / 4] = uint(values.x | values.y << 8 | values.z << 16 | values.w << 24);
    if (me == first)
        to.at[row_at + width / 4 + at / BLOCK] = floatBitsToUint(most / 127.0);
}

// Values `at` to at + 3 of a row that begins at word row_at and has `width` values.
void put_rounded(uvec2 to, uint row_at, uint width, uint at, vec4 x, bool inside)
{
    if (FORM >= 32) {
        put_block(Words(to), row_at, width, at, x, inside);
    } else if (FORM == FORM_HALVES && inside) {
        Words2(to).at[(row_at + at / 2) / 2] = uvec2(packed_half(x.x) | packed_half(x.y) << 16,
                                                     packed_half(x.z) | packed_half(x.w) << 16);
    } else if (FORM == FORM_BITS) {
        vec4 y = to_11_bits(x);
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (inside && at + j < width)
                Floats(to).at[row_at + at + j] = y[j];
    }
}
