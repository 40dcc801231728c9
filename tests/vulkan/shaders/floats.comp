#version 450
// Arithmetic whose last bits belong to the driver: they must not change on the way.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer In { float source[]; };
layout(binding = 1) buffer Out { vec4 words[]; };
void main()
{
    uint i = gl_GlobalInvocationID.x;
    float x = source[i];
    words[i] = vec4(sin(x) * exp(-x), sqrt(abs(x)) / (1.0 + x * x), fma(x, x, -x), pow(abs(x), 0.3));
}
