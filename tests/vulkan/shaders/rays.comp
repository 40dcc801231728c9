#version 460
#extension GL_EXT_ray_query : require
// A ray for each word: what it meets first, and where, as whole numbers.
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) uniform accelerationStructureEXT scene;
layout(set = 0, binding = 1, std430) buffer Out { uint words[]; };
layout(push_constant) uniform Push { uint width; };
void main()
{
    uint at = gl_GlobalInvocationID.x;
    vec3 from = vec3((at % width) + 0.5, (at / width) + 0.5, -1);
    rayQueryEXT query;
    rayQueryInitializeEXT(query, scene, gl_RayFlagsOpaqueEXT, 0xff, from, 0, vec3(0, 0, 1), 100);
    while (rayQueryProceedEXT(query)) {
    }
    uint met = 0;
    if (rayQueryGetIntersectionTypeEXT(query, true) == gl_RayQueryCommittedIntersectionTriangleEXT) {
        met = 1 + rayQueryGetIntersectionPrimitiveIndexEXT(query, true) +
              (rayQueryGetIntersectionInstanceCustomIndexEXT(query, true) << 8) +
              (uint(round(rayQueryGetIntersectionTEXT(query, true))) << 16);
    }
    words[at] = met;
}
