#version 450
#extension GL_EXT_samplerless_texture_functions : require
// Uniform texel buffer to storage texel buffer, doubled and saturated by the format.
layout(local_size_x = 64) in;
layout(binding = 0) uniform textureBuffer source;
layout(binding = 1, rgba8) uniform imageBuffer target;
void main()
{
    int i = int(gl_GlobalInvocationID.x);
    if (i < imageSize(target) && i < textureSize(source))
        imageStore(target, i, texelFetch(source, i) * 2.0);
}
