#version 450
// Says for each group of a dispatch that has a base which group it takes itself for.
layout(local_size_x = 1) in;
layout(binding = 0) buffer Out { uvec4 groups[]; };
void main()
{
    uvec3 group = gl_WorkGroupID;
    groups[group.x + 8u * group.y + 32u * group.z] = uvec4(group, gl_NumWorkGroups.x);
}
