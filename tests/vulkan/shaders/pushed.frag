#version 450
// The pushed colour.
layout(push_constant) uniform Push { vec4 color; float depth; };
layout(location = 0) in vec4 shade;
layout(location = 0) out vec4 result;
void main()
{
    result = color + shade * 0.0625;
}
