#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
// Sums, votes and shuffles within a subgroup.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer In { uint source[]; };
layout(binding = 1) buffer Out { uvec4 words[]; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    uint value = source[i];
    words[i] = uvec4(subgroupAdd(value), subgroupInclusiveAdd(value),
                     subgroupBallotBitCount(subgroupBallot((value & 1u) == 0u)),
                     subgroupShuffle(value, gl_SubgroupInvocationID ^ 1u) +
                         (subgroupAny(value == 0u) ? 1u : 0u));
}
