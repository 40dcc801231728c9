#version 450
// A descriptor array of four.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer In { uint source[]; } inputs[4];
layout(binding = 1) buffer Out { uint words[]; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    words[i] = inputs[0].source[i] + inputs[1].source[i] * 3u + inputs[2].source[i] * 5u +
               inputs[3].source[i] * 7u;
}
