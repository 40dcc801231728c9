// mul_q.comp - quantised weights times rounded activations, for any device.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "mul_q.glsl"
