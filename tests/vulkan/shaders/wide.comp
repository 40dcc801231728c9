#version 450
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
// 64-bit integers and double precision.
layout(local_size_x = 64) in;
layout(binding = 0) buffer Ints { uint64_t ints[]; };
layout(binding = 1) buffer Reals { double reals[]; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    ints[i] = ints[i] * 6364136223846793005ul + 1442695040888963407ul;
    reals[i] = sqrt(double(i) + 0.5lf) / 3.0lf;
}
