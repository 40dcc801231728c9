#version 450
#extension GL_EXT_buffer_reference : require
// Follows a list of nodes by device address and writes each value where the push constant points.
layout(local_size_x = 1) in;
layout(buffer_reference) buffer Node;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Node {
    Node next;
    uint value;
};
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint words[]; };
layout(push_constant) uniform Push { Node first; Words target; uint count; };
void main()
{
    Node node = first;
    for (uint i = 0; i < count; i++) {
        target.words[i] = node.value;
        node = node.next;
    }
}
