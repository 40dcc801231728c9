#version 450
// What the previous subpass wrote, inverted.
layout(input_attachment_index = 0, binding = 0) uniform subpassInput before;
layout(location = 0) out vec4 color;
void main()
{
    color = vec4(1.0) - subpassLoad(before);
}
