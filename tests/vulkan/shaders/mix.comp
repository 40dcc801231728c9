#version 450
// out[i] = in[i] * factor + i
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer In { uint source[]; };
layout(binding = 1) buffer Out { uint words[]; };
layout(push_constant) uniform Push { uint factor; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i < words.length() && i < source.length())
        words[i] = source[i] * factor + i;
}
