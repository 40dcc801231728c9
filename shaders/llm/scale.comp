// scale.comp - x = scale * x, softly limited to cap.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 x;
    uint count;
    float scale, cap;
};

void main()
{
    uint i = linear_group() * 64 + gl_LocalInvocationIndex;
    if (i < count)
        Floats(x).at[i] = soft_cap(scale * Floats(x).at[i], cap);
}
