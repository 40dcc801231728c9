#version 450
// Depth comparison and a gather.
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0) uniform sampler2DShadow source;
layout(binding = 1) buffer Out { vec4 texels[]; };
void main()
{
    uvec2 at = gl_GlobalInvocationID.xy;
    vec2 where = (vec2(at) + 0.5) / 32.0;
    float depth = float(at.x) / 32.0;
    texels[at.y * 32 + at.x] = vec4(textureLod(source, vec3(where, depth), 0.0), depth, 0, 1);
}
