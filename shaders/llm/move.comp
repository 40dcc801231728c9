// move.comp - gathers pieces of memory into one block, or scatters them again.
//
// A driver copies regions one after the other, about 2 to 4 us each on an H200; this takes no longer
// for many small ones than for one of all their bytes.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint THREADS = 256;
layout(local_size_x = 256) in;
layout(push_constant) uniform Push
{
    uvec2 block, list; // list: of each piece its address, its place in the block and its size in quads
    uint to_block;
};

void main()
{
    uvec4 piece = Words4(list).at[gl_WorkGroupID.y];
    uint step_ = THREADS * gl_NumWorkGroups.x;
    for (uint i = gl_GlobalInvocationID.x; i < piece.w; i += step_) {
        if (to_block != 0)
            Words4(block).at[piece.z + i] = Words4(piece.xy).at[i];
        else
            Words4(piece.xy).at[i] = Words4(block).at[piece.z + i];
    }
}
