#version 450
// One step of a linear congruential generator in place: order and count of runs both show.
layout(local_size_x = 64) in;
layout(binding = 0) buffer Data { uint words[]; };
layout(push_constant) uniform Push { uint add; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i < words.length())
        words[i] = words[i] * 1664525u + 1013904223u + add;
}
