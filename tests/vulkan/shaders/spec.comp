#version 450
// Specialization constants of every size; the first sets the group.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WORD = 1u;
layout(constant_id = 2) const int SIGNED = -1;
layout(constant_id = 3) const float REAL = 0.5;
layout(constant_id = 4) const bool FLAG = false;
layout(constant_id = 5) const uint LENGTH = 4u;
layout(binding = 0) buffer Out { uint words[]; };
void main()
{
    uint table[LENGTH];
    for (uint i = 0; i < LENGTH; i++)
        table[i] = i * WORD;
    uint i = gl_GlobalInvocationID.x;
    words[i] = table[i % LENGTH] + uint(SIGNED) + floatBitsToUint(REAL * float(i)) +
               (FLAG ? 1u : 0u) + gl_WorkGroupSize.x;
}
