#version 460
#extension GL_EXT_ray_tracing : require
layout(location = 0) rayPayloadInEXT uint met;
void main()
{
    met = 1 + gl_PrimitiveID + (gl_InstanceCustomIndexEXT << 8) + (uint(round(gl_HitTEXT)) << 16);
}
