#version 450
// Samples a 32 by 32 grid that reaches half a size past each edge, at a level of detail that grows
// from left to right.
layout(local_size_x = 8, local_size_y = 8) in;
#if defined(D1)
layout(binding = 0) uniform sampler1D source;
#define AT(p) (p).x
#elif defined(D3)
layout(binding = 0) uniform sampler3D source;
#define AT(p) vec3(p, (p).x * (p).y)
#elif defined(CUBE)
layout(binding = 0) uniform samplerCube source;
#define AT(p) vec3((p).x - 0.5, (p).y - 0.5, 0.4 - (p).x * (p).y)
#elif defined(ARRAY)
layout(binding = 0) uniform sampler2DArray source;
#define AT(p) vec3(p, floor((p).x * 3.0))
#else
layout(binding = 0) uniform sampler2D source;
#define AT(p) p
#endif
layout(binding = 1) buffer Out { vec4 texels[]; };
layout(push_constant) uniform Push { float lod_step; };
void main()
{
    uvec2 at = gl_GlobalInvocationID.xy;
    vec2 where = vec2(at) / 16.0 - 0.5;
    texels[at.y * 32 + at.x] = textureLod(source, AT(where), float(at.x) * lod_step);
}
