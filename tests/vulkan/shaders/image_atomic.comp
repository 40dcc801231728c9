#version 450
// Sums that do not depend on order.
layout(local_size_x = 64) in;
layout(binding = 0, r32ui) uniform uimage2D target;
void main()
{
    uint i = gl_GlobalInvocationID.x;
    imageAtomicAdd(target, ivec2(i % 8, (i / 8) % 8), i);
    imageAtomicMax(target, ivec2(8, 0), i * 3u);
}
