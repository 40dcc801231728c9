// mul_q_dot.comp - quantised weights times rounded activations, for devices with integer dot products.
#version 450
#extension GL_GOOGLE_include_directive : require
#define WITH_DOT
#include "mul_q.glsl"
