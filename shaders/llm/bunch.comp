// bunch.comp - sorts rows by expert, so that rows of one expert share its weights.  One workgroup.
//
// A bunch is `cols` rows of one expert, or what is left of them: 1 + cols words, the expert and its rows,
// NONE where there is none.  Which rows of an expert meet in a bunch depends on the device's timing; a
// product has the same bits in any (mul_frame.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint THREADS = 128, EXPERTS_MAX = 1024; // LLM_EXPERTS_MAX
const uint EACH = EXPERTS_MAX / THREADS;
layout(local_size_x = 128) in;
layout(push_constant) uniform Push
{
    uvec2 chosen, bunches;
    uint rows, cols, bunch_count;
};

shared uint places[EXPERTS_MAX]; // how many rows an expert has; then the place of its next one
shared uint sums[THREADS];

// From the numbers of rows to the places of the first ones.
void number_places()
{
    uint me = gl_LocalInvocationIndex, own = 0;
    for (uint i = 0; i < EACH; i++)
        own += (places[EACH * me + i] + cols - 1) / cols;
    sums[me] = own;
    barrier();
    for (uint step = 1; step < THREADS; step *= 2) {
        uint before = me >= step ? sums[me - step] : 0;
        barrier();
        sums[me] += before;
        barrier();
    }
    uint next = sums[me] - own;
    for (uint i = 0; i < EACH; i++) {
        uint count = (places[EACH * me + i] + cols - 1) / cols;
        places[EACH * me + i] = next * cols;
        next += count;
    }
}

void main()
{
    uint me = gl_LocalInvocationIndex, words = cols + 1;
    for (uint i = me; i < EXPERTS_MAX; i += THREADS)
        places[i] = 0;
    for (uint i = me; i < bunch_count * words; i += THREADS)
        Words(bunches).at[i] = NONE;
    memoryBarrierBuffer();
    barrier();
    for (uint r = me; r < rows; r += THREADS)
        atomicAdd(places[Words(chosen).at[r]], 1);
    barrier();
    number_places();
    barrier();
    for (uint r = me; r < rows; r += THREADS) {
        uint expert = Words(chosen).at[r], place = atomicAdd(places[expert], 1);
        uint first = place / cols * words;
        Words(bunches).at[first + 1 + place % cols] = r;
        if (place % cols == 0)
            Words(bunches).at[first] = expert;
    }
}
