#version 450
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
// Small integers, each written on its own: neighbours must survive.
layout(local_size_x = 64) in;
layout(binding = 0) buffer Bytes { uint8_t bytes[]; };
layout(binding = 1) buffer Shorts { int16_t shorts[]; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    bytes[i * 2] = uint8_t(bytes[i * 2] * uint8_t(3) + uint8_t(i));
    shorts[i * 2 + 1] = int16_t(int(i) * -5);
}
