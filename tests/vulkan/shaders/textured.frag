#version 450
// Implicit level of detail from derivatives.
layout(binding = 0) uniform sampler2D source;
layout(location = 0) in vec4 shade;
layout(location = 0) out vec4 color;
void main()
{
    color = texture(source, shade.xy * 3.0) + vec4(dFdx(shade.x), dFdy(shade.y), 0, 0);
}
