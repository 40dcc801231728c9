// common.glsl - what the engine's shaders share: memory by address, and numbers as files hold them.
//
// Every pointer is a device address in the push constants; src/llm/vulkan/step.c fills them in.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Floats4 { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Words2 { uvec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Words4 { uvec4 at[]; };

const uint FLAG_BIAS = 1, FLAG_ACCUMULATE = 2, FLAG_GELU = 4;
const uint KV_POSITIONS = 64; // of a page: LLM_KV_POSITIONS
const uint NONE = ~0u;        // of rows

// The first position that a row with so many positions sees; window 0: all.
uint first_seen(uint positions, uint window)
{
    return window != 0 && positions > window ? positions - window : 0;
}

// Attention over many pages is divided among workgroups: chunks of 2 pages, or of a sixteenth of them
// if that is more.  The number depends on the row's positions alone.  Positions count from the first
// page that the row sees.
uint chunk_pages(uint positions)
{
    uint pages = (positions + KV_POSITIONS - 1) / KV_POSITIONS;
    return max(2, (pages + 15) / 16);
}

uint chunks_of(uint positions)
{
    uint chunk = chunk_pages(positions) * KV_POSITIONS;
    return (positions + chunk - 1) / chunk;
}

// Dispatches past the limit of x continue in y.
uint linear_group()
{
    return gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
}

float half_at(Words words, uint i)
{
    vec2 both = unpackHalf2x16(words.at[i / 2]);
    return (i & 1) == 0 ? both.x : both.y;
}

int byte_of(uint word, uint i)
{
    return bitfieldExtract(int(word), int(8 * i), 8);
}

uint ubyte_at(Words words, uint i)
{
    return words.at[i / 4] >> (8 * (i & 3)) & 0xff;
}

// To nearest, ties to even; the device's own conversion may round otherwise.
uint to_half(float value)
{
    uint bits = floatBitsToUint(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return sign | 0x7e00;
    if (size >= 0x477ff000) // rounds past the largest
        return sign | 0x7c00;
    if (size >= 0x38800000) // a normal number: drop 13 bits
        return sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
    if (size < 0x33000000)
        return sign;
    uint shift = 126 - (size >> 23), whole = (size & 0x7fffff) | 0x800000; // 14 to 24
    uint kept = whole >> shift, rest = whole & ((1u << shift) - 1), middle = 1u << (shift - 1);
    return sign | (kept + uint(rest > middle || (rest == middle && (kept & 1) != 0)));
}

// Rounds to the 11 significant bits of binary16, to nearest, ties to even, as activations are for F16
// weights.  Numbers below 2^-14 keep more bits than binary16, a difference below 2^-25.  packHalf2x16
// may round in any way.
vec4 to_11_bits(vec4 x)
{
    uvec4 bits = floatBitsToUint(x);
    return uintBitsToFloat(bits + 0xfff + (bits >> 13 & 1) & 0xffffe000);
}

float gelu(float x)
{
    float u2 = 1.59576912 * (x * fma(0.044715, x * x, 1.0));
    return x / (1.0 + exp(min(-u2, 88.3)));
}

float silu(float x)
{
    return x / (1.0 + exp(min(-x, 88.3)));
}

float sigmoid(float x)
{
    return 1.0 / (1.0 + exp(min(-x, 88.3)));
}

// 1 - 2 / (1 + e^2x), as llm/engine/arith.h has it: cap * tanh(x / cap); cap 0: none.
float soft_cap(float x, float cap)
{
    return cap != 0 ? cap * (1.0 - 2.0 / (1.0 + exp(min(2.0 * x / cap, 88.3)))) : x;
}

float silu_clamped(float x, float gate_by)
{
    x = min(x, 7.0);
    return x / (1.0 + exp(min(-1.702 * x, 88.3))) * (1.0 + clamp(gate_by, -7.0, 7.0));
}
