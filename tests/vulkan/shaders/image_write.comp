#version 450
// A pattern by coordinates.
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0, r32ui) uniform writeonly uimage2D target;
void main()
{
    ivec2 at = ivec2(gl_GlobalInvocationID.xy);
    if (all(lessThan(at, imageSize(target))))
        imageStore(target, at, uvec4(at.x * 65537 + at.y * 257));
}
