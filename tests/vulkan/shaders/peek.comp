#version 450
#extension GL_EXT_buffer_reference : require
// Reads by device address, and writes to what is bound.
layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint words[]; };
layout(binding = 0) buffer Out { uint found[]; };
layout(push_constant) uniform Push { Words from; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    found[i] = from.words[i] * 3u + i;
}
