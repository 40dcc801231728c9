#version 450
// A prefix sum in shared memory, one barrier a step.
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer In { uint source[]; };
layout(binding = 1) buffer Out { uint words[]; };
shared uint sums[256];
void main()
{
    uint i = gl_LocalInvocationID.x;
    sums[i] = source[gl_GlobalInvocationID.x];
    barrier();
    for (uint step = 1; step < 256; step *= 2) {
        uint other = i >= step ? sums[i - step] : 0u;
        barrier();
        sums[i] += other;
        barrier();
    }
    words[gl_GlobalInvocationID.x] = sums[i];
}
