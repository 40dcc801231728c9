#version 450
#extension GL_EXT_multiview : require
// A triangle whose place depends on the view.
layout(location = 0) out vec4 shade;
void main()
{
    vec2 at = vec2((gl_VertexIndex << 1) & 2, gl_VertexIndex & 2);
    shade = vec4(at, float(gl_ViewIndex) * 0.25, 1.0);
    gl_Position = vec4(at - float(gl_ViewIndex) * 0.5, 0.0, 1.0);
}
