#version 450
// Vertices that are captured rather than drawn.
layout(xfb_buffer = 0, xfb_stride = 16, xfb_offset = 0, location = 0) out vec4 captured;
void main()
{
    captured = vec4(gl_VertexIndex, gl_VertexIndex * gl_VertexIndex, 0.5, gl_InstanceIndex);
    gl_PointSize = 1.0;
    gl_Position = vec4(0, 0, 0, 1);
}
