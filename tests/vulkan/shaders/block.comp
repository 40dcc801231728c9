#version 450
// A push-constant block read whole.
layout(local_size_x = 32) in;
layout(binding = 0) buffer Out { uint words[]; };
layout(push_constant) uniform Push { uint block[32]; };
void main()
{
    uint i = gl_LocalInvocationID.x;
    words[gl_WorkGroupID.x * 32u + i] = block[i] + gl_WorkGroupID.x;
}
