#version 450
// One triangle that covers everything, at the pushed depth.
layout(push_constant) uniform Push { vec4 color; float depth; };
layout(location = 0) out vec4 shade;
void main()
{
    vec2 at = vec2((gl_VertexIndex << 1) & 2, gl_VertexIndex & 2);
    shade = vec4(at * 0.5, 0.0, 1.0);
    gl_Position = vec4(at * 2.0 - 1.0, depth, 1.0);
}
