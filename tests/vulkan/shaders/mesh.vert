#version 450
// Position and colour by vertex, an offset by instance.
layout(location = 0) in vec3 position;
layout(location = 1) in vec4 color;
layout(location = 2) in vec2 offset;
layout(location = 0) out vec4 shade;
void main()
{
    shade = color * (1.0 / float(1 + gl_InstanceIndex));
    gl_PointSize = 3.0;
    gl_Position = vec4(position.xy + offset, position.z, 1.0);
}
