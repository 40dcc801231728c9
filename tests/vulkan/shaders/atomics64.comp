#version 450
#extension GL_EXT_shader_atomic_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
// 64-bit atomics whose final value does not depend on order.
layout(local_size_x = 64) in;
layout(binding = 0) buffer Out { uint64_t sum, high; };
void main()
{
    uint64_t i = uint64_t(gl_GlobalInvocationID.x);
    atomicAdd(sum, i * 0x100000001ul);
    atomicMax(high, i << 33);
}
