#version 450
// A sampled image and a sampler as two descriptors.
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0) uniform texture2D source;
layout(binding = 1) uniform sampler how;
layout(binding = 2) buffer Out { vec4 texels[]; };
void main()
{
    uvec2 at = gl_GlobalInvocationID.xy;
    texels[at.y * 32 + at.x] = textureLod(sampler2D(source, how), vec2(at) / 24.0, 0.0);
}
