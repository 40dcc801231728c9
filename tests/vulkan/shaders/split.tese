#version 450
// Bends each new vertex towards the middle.
layout(triangles, equal_spacing, cw) in;
layout(location = 0) in vec4 control_shade[];
layout(location = 0) out vec4 shade;
void main()
{
    vec3 w = gl_TessCoord;
    shade = control_shade[0] * w.x + control_shade[1] * w.y + control_shade[2] * w.z;
    vec4 at = gl_in[0].gl_Position * w.x + gl_in[1].gl_Position * w.y + gl_in[2].gl_Position * w.z;
    gl_Position = vec4(at.xy * (1.0 - 0.3 * w.x * w.y), at.zw);
}
