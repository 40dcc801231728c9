#version 450
// Each triangle becomes two smaller ones.
layout(triangles) in;
layout(triangle_strip, max_vertices = 6) out;
layout(location = 0) in vec4 shade[];
layout(location = 0) out vec4 color;
void main()
{
    for (int copy = 0; copy < 2; copy++) {
        for (int i = 0; i < 3; i++) {
            color = shade[i].bgra;
            gl_Position = gl_in[i].gl_Position;
            gl_Position.xy = gl_Position.xy * 0.5 + vec2(float(copy) - 0.5, 0.25);
            EmitVertex();
        }
        EndPrimitive();
    }
}
