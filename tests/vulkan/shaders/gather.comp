#version 450
// What was there steps on, and what is read is added: order, count and every word that is read show.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer In { uint source[]; };
layout(binding = 1) buffer Out { uint words[]; };
layout(push_constant) uniform Push { uint add; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i < words.length() && i < source.length())
        words[i] = words[i] * 1664525u + source[i] + add;
}
