#version 450
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
// Half-precision storage and arithmetic.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer In { float16_t source[]; };
layout(binding = 1) buffer Out { float16_t words[]; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    words[i] = source[i] * float16_t(1.5) + float16_t(0.25);
}
