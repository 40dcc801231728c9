#version 450
// out[i] = base + i * step
layout(local_size_x = 64) in;
layout(binding = 0) buffer Out { uint words[]; };
layout(push_constant) uniform Push { uint base; uint step; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i < words.length())
        words[i] = base + i * step;
}
