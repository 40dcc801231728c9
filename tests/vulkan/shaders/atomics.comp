#version 450
// Every 32-bit atomic whose final value does not depend on order.
layout(local_size_x = 64) in;
layout(binding = 0) buffer Out { uint sum, low, high, both, either, odd, histogram[64]; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    atomicAdd(sum, i);
    atomicMin(low, i + 5u);
    atomicMax(high, i * 3u);
    atomicAnd(both, ~(1u << (i % 13u)));
    atomicOr(either, 1u << (i % 17u));
    atomicXor(odd, i * 2654435761u);
    atomicAdd(histogram[(i * i) % 64u], 1u);
}
