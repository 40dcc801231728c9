#version 450
// Passes three points on, with fixed levels.
layout(vertices = 3) out;
layout(location = 0) in vec4 shade[];
layout(location = 0) out vec4 control_shade[];
void main()
{
    control_shade[gl_InvocationID] = shade[gl_InvocationID];
    gl_out[gl_InvocationID].gl_Position = gl_in[gl_InvocationID].gl_Position;
    if (gl_InvocationID == 0) {
        gl_TessLevelInner[0] = 3.0;
        gl_TessLevelOuter[0] = 2.0;
        gl_TessLevelOuter[1] = 3.0;
        gl_TessLevelOuter[2] = 4.0;
    }
}
