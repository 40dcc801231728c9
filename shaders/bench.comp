// bench.comp - the smallest work whose result shows that its input and its order were right.
#version 450
layout(local_size_x = 1) in;
layout(std430, binding = 0) readonly buffer Input { uint words_in[]; };
layout(std430, binding = 1) writeonly buffer Output { uint words_out[]; };
layout(push_constant) uniform Push { uint value; };

void main()
{
    words_out[0] = words_in[0] + value;
}
