#version 450
// A colour from specialization constants.
layout(constant_id = 0) const float RED = 0.0;
layout(constant_id = 1) const bool DISCARD = false;
layout(location = 0) in vec4 shade;
layout(location = 0) out vec4 color;
void main()
{
    if (DISCARD && (int(gl_FragCoord.x) + int(gl_FragCoord.y)) % 2 == 0)
        discard;
    color = vec4(RED, shade.gba);
}
