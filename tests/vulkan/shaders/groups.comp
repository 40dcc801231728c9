#version 450
// Counts groups of three dimensions.
layout(local_size_x = 4, local_size_y = 2, local_size_z = 2) in;
layout(binding = 0) buffer Out { uint words[]; };
void main()
{
    uvec3 group = gl_WorkGroupID;
    atomicAdd(words[group.x + 16u * group.y + 64u * group.z],
              gl_LocalInvocationIndex + 1u + gl_NumWorkGroups.x * 1000u);
}
