#version 450
// Four words of a uniform block, and where a dynamic offset points in a storage buffer.
layout(local_size_x = 4) in;
layout(binding = 0) uniform In { uvec4 value; };
layout(binding = 1) buffer Out { uint words[]; };
layout(push_constant) uniform Push { uint at; };
void main()
{
    uint i = gl_LocalInvocationID.x;
    words[at + i] = value[i] * 3u + i;
}
