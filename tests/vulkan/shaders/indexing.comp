#version 450
#extension GL_EXT_nonuniform_qualifier : require
// Each invocation reads another buffer of an unbounded array.
layout(local_size_x = 64) in;
layout(binding = 0) buffer Out { uint words[]; };
layout(binding = 1) readonly buffer In { uint source[]; } inputs[];
layout(push_constant) uniform Push { uint count; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    words[i] = inputs[nonuniformEXT((i * 7u) % count)].source[i] + i;
}
