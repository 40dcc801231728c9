// route.comp - the experts of a row: its largest logits, and their softmax.  A workgroup for each row.
//
// Each round finds the largest logit that is left; of equals that with the lower number.  Neither the
// number of threads nor other rows change what is chosen.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint THREADS = 64, EXPERTS_MAX = 1024; // LLM_EXPERTS_MAX
const float LEAST = -3.4e38;
layout(local_size_x = 64) in;
layout(push_constant) uniform Push
{
    uvec2 logits, chosen, weights;
    uint experts, used, normed, rows;
    float scale;
};

shared float left[EXPERTS_MAX]; // logits; a chosen one is LEAST
shared float best_value[THREADS];
shared uint best_number[THREADS];

bool is_better(float value, uint number, float than, uint than_number)
{
    return value > than || (value == than && number < than_number);
}

// Into best_value[0] and best_number[0].
void find_best()
{
    uint me = gl_LocalInvocationIndex, number = me < experts ? me : experts - 1;
    float value = left[number];
    for (uint e = me + THREADS; e < experts; e += THREADS) {
        if (is_better(left[e], e, value, number)) {
            value = left[e];
            number = e;
        }
    }
    best_value[me] = value;
    best_number[me] = number;
    for (uint half_ = THREADS / 2; half_ > 0; half_ /= 2) {
        barrier();
        if (me < half_ && is_better(best_value[me + half_], best_number[me + half_], best_value[me],
                                    best_number[me])) {
            best_value[me] = best_value[me + half_];
            best_number[me] = best_number[me + half_];
        }
    }
    barrier();
}

void main()
{
    uint me = gl_LocalInvocationIndex, row = linear_group();
    if (row >= rows)
        return;
    for (uint e = me; e < experts; e += THREADS)
        left[e] = Floats(logits).at[row * experts + e];
    barrier();
    float most = 0, sum = 0;
    for (uint i = 0; i < used; i++) {
        find_best();
        float value = best_value[0];
        uint number = best_number[0];
        most = i == 0 ? value : most;
        float weight = exp(value - most);
        sum += weight;
        barrier();
        if (me == 0) {
            left[number] = LEAST;
            Words(chosen).at[row * used + i] = number;
            Floats(weights).at[row * used + i] = weight;
        }
        barrier();
    }
    if (me != 0)
        return;
    if (normed == 0) {
        sum = 0;
        for (uint e = 0; e < experts; e++)
            sum += exp(Floats(logits).at[row * experts + e] - most);
    }
    for (uint i = 0; i < used; i++)
        Floats(weights).at[row * used + i] = Floats(weights).at[row * used + i] / sum * scale;
}
