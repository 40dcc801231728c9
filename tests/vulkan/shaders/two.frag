#version 450
// Two colour attachments.
layout(push_constant) uniform Push { vec4 color; float depth; };
layout(location = 0) in vec4 shade;
layout(location = 0) out vec4 first;
layout(location = 1) out vec4 second;
void main()
{
    first = color;
    second = shade;
}
