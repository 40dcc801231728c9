// bench_busy.comp - work that fills a device for as long as it is told to, with a result that can be
// computed without doing the work: `rounds` steps of a linear congruential generator.
#version 450
layout(local_size_x = 256) in;
layout(std430, binding = 0) readonly buffer Input { uint words_in[]; };
layout(std430, binding = 1) writeonly buffer Output { uint words_out[]; };
layout(push_constant) uniform Push { uint value; uint rounds; };

void main()
{
    uint lane = gl_GlobalInvocationID.x;
    uint x = words_in[0] + value + lane;
    for (uint i = 0; i < rounds; i++)
        x = x * 1664525u + 1013904223u;
    // Only the first lane's result is looked at; the others could write, so they have to be computed.
    if (lane == 0)
        words_out[0] = x;
    else if (x == lane)
        words_out[lane & 1023u] = x;
}
