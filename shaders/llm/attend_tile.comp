// attend_tile.comp - attention of 16 rows of one sequence at a time, on matrix units.
//
// A workgroup has the heads that share K and V, HEADS of them, for ROW_TILES tiles of 16 rows; each
// subgroup has one head of one tile.  K and V of 32 positions are loaded once for all of them, while the
// 32 before are computed.  All rows are of one sequence.  head_dim is 16 * DIM_TILES.
//
// A weight is exp(score - relative_to), where relative_to is an earlier score of the row.  Only a score that
// exceeds it by GROWTH takes its place, and the sums so far are scaled then.  To find a row's largest score
// takes a round through shared memory, because a lane does not know which elements of a matrix it has; most
// steps need none.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "common.glsl"

layout(constant_id = 0) const uint THREADS = 256;
layout(constant_id = 1) const uint DIM_TILES = 4;
layout(constant_id = 2) const uint HEADS = 8;
layout(constant_id = 3) const uint ROW_TILES = 1;
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push
{
    uvec2 q, values, positions, page_first, pages, sinks; // sinks 0: none
    uint heads, kv_heads, row_words;
    uint k_words, v_words; // from a page's start to its K and V
    float scale;
    uint window; // 0: all positions
    float cap;   // 0: none
    uint rows;
};

const uint SIDE = 16, STEP = 2 * SIDE; // positions at a time
const uint DIM = DIM_TILES * SIDE, QUADS = DIM / 8;
const uint PITCH = QUADS + 1;      // of a position in shared memory: odd, so no bank conflicts
const uint NEAR_PITCH = 5;         // of a row of 16 scores or 32 weights
const uint NEAR = SIDE * NEAR_PITCH; // of a subgroup
const float LEAST = -3.4e38;
const float GROWTH = 8; // exp(8) has room in a half

#define TILE(type, use) coopmat<type, gl_ScopeSubgroup, SIDE, SIDE, use>
#define Left TILE(float16_t, gl_MatrixUseA)
#define Right TILE(float16_t, gl_MatrixUseB)
#define Sum TILE(float, gl_MatrixUseAccumulator)
#define Halves TILE(float16_t, gl_MatrixUseAccumulator)

shared uvec4 k_near[STEP * PITCH];
shared uvec4 v_near[STEP * PITCH];
shared uvec4 near[HEADS * ROW_TILES * NEAR]; // of each subgroup: scores, or weights, or a value a row

const uint LOADS = (STEP * QUADS + THREADS - 1) / THREADS; // of a thread
uvec4 k_loaded[LOADS], v_loaded[LOADS];

// 32 positions from `from` on; past the last one that one again.
void load(uint first_page, uint from, uint last, uint in_row)
{
    [[unroll]] for (uint n = 0; n < LOADS; n++) {
        uint at = gl_LocalInvocationIndex + n * THREADS, position = min(from + at / QUADS, last);
        uvec2 page = Words2(pages).at[first_page + position / KV_POSITIONS];
        uint quad = (position % KV_POSITIONS * row_words + in_row / 2) / 4 + at % QUADS;
        k_loaded[n] = Words4(page).at[k_words / 4 + quad];
        v_loaded[n] = Words4(page).at[v_words / 4 + quad];
    }
}

void put_near()
{
    [[unroll]] for (uint n = 0; n < LOADS; n++) {
        uint at = gl_LocalInvocationIndex + n * THREADS;
        if (at >= STEP * QUADS)
            continue;
        k_near[at / QUADS * PITCH + at % QUADS] = k_loaded[n];
        v_near[at / QUADS * PITCH + at % QUADS] = v_loaded[n];
    }
}

void sync()
{
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

uvec4 to_halves(float x[8])
{
    return uvec4(packHalf2x16(vec2(x[0], x[1])), packHalf2x16(vec2(x[2], x[3])),
                 packHalf2x16(vec2(x[4], x[5])), packHalf2x16(vec2(x[6], x[7])));
}

// What the two lanes of each row have, as a matrix.
Sum spread(uint base, uint mine, bool has_row, float x)
{
    Sum all;
    if (has_row)
        near[mine] = near[mine + 1] = uvec4(floatBitsToUint(x));
    sync();
    coopMatLoad(all, near, base, NEAR_PITCH, gl_CooperativeMatrixLayoutRowMajor);
    sync();
    return all;
}

void main()
{
    uint group = heads / kv_heads, head_groups = (group + HEADS - 1) / HEADS;
    uint kv_head = gl_WorkGroupID.x / head_groups, tile = gl_SubgroupID / HEADS;
    uint in_group = gl_WorkGroupID.x % head_groups * HEADS + gl_SubgroupID % HEADS;
    bool works = in_group < group && tile < ROW_TILES;
    uint head = kv_head * group + min(in_group, group - 1), in_row = kv_head * DIM;
    uint block_row = gl_WorkGroupID.y * ROW_TILES * SIDE;
    uint block_end = min(block_row + ROW_TILES * SIDE, rows);
    uint first_page = Words(page_first).at[0], last = 0, begin = ~0;
    for (uint r = block_row; r < block_end; r++) {
        uint position = Words(positions).at[r];
        last = max(last, position);
        begin = min(begin, first_seen(position + 1, window));
    }

    // Two lanes have a row; of larger subgroups the other lanes only help with matrices.
    uint lane = gl_SubgroupInvocationID, half_ = lane % 2, row_in = lane / 2;
    bool has_row = row_in < SIDE;
    uint row = block_row + tile * SIDE + row_in, row_near = min(row, block_end - 1);
    uint base = works ? gl_SubgroupID * NEAR : 0;
    uint mine = base + min(row_in, SIDE - 1) * NEAR_PITCH + half_ * 2;
    uint my_last = Words(positions).at[row_near], my_first = first_seen(my_last + 1, window);
    uint q_first = (row_near * heads + head) * DIM + half_ * 8;
    float relative_to = sinks != uvec2(0) ? Floats(sinks).at[head] : LEAST;
    Sum relatives = Sum(relative_to), totals = Sum(sinks != uvec2(0) ? 1.0 : 0.0);

    Left q_tiles[DIM_TILES];
    Sum sums[DIM_TILES];
    [[unroll]] for (uint d = 0; d < DIM_TILES; d++) {
        sums[d] = Sum(0.0);
        float x[8];
        [[unroll]] for (uint i = 0; i < 8; i++)
            x[i] = scale * Floats(q).at[q_first + d * SIDE + i];
        if (works && has_row)
            near[mine - half_] = to_halves(x);
        sync();
        coopMatLoad(q_tiles[d], near, base, NEAR_PITCH, gl_CooperativeMatrixLayoutRowMajor);
        sync();
    }

    begin -= begin % STEP;
    load(first_page, begin, last, in_row);
    for (uint done = begin; done <= last; done += STEP) {
        barrier();
        put_near();
        barrier();
        load(first_page, done + STEP, last, in_row);
        if (!works)
            continue;
        Sum scores[2];
        float over = 0;
        [[unroll]] for (uint n = 0; n < 2; n++) {
            scores[n] = Sum(0.0);
            [[unroll]] for (uint d = 0; d < DIM_TILES; d++) {
                Right k;
                coopMatLoad(k, k_near, n * SIDE * PITCH + 2 * d, PITCH,
                            gl_CooperativeMatrixLayoutColumnMajor);
                scores[n] = coopMatMulAdd(q_tiles[d], k, scores[n]);
            }
            [[unroll]] for (uint i = 0; i < scores[n].length(); i++) {
                scores[n][i] = soft_cap(scores[n][i], cap);
                over = max(over, scores[n][i] - relatives[i]);
            }
        }
        if (subgroupAny(done < my_first || done + STEP > my_last + 1 || over > GROWTH)) {
            // Each row's lanes hide what the row does not see, and find its largest score.
            float largest = LEAST;
            [[unroll]] for (uint n = 0; n < 2; n++) {
                coopMatStore(scores[n], near, base, NEAR_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                sync();
                [[unroll]] for (uint i = 0; i < 8; i++) {
                    uint position = done + n * SIDE + half_ * 8 + i;
                    bool hidden = position < my_first || position > my_last;
                    if (has_row && hidden)
                        near[mine + i / 4][i % 4] = 0xff800000; // minus infinity: a weight of 0
                    largest = max(largest, hidden ? LEAST : uintBitsToFloat(near[mine + i / 4][i % 4]));
                }
                sync();
                coopMatLoad(scores[n], near, base, NEAR_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                sync();
            }
            largest = max(largest, subgroupShuffleXor(largest, 1));
            float next = largest > relative_to + GROWTH ? largest : relative_to;
            Sum shrink = spread(base, mine, has_row, exp(relative_to - next));
            relatives = spread(base, mine, has_row, next);
            relative_to = next;
            totals = totals * shrink;
            [[unroll]] for (uint d = 0; d < DIM_TILES; d++)
                sums[d] = sums[d] * shrink;
        }
        [[unroll]] for (uint n = 0; n < 2; n++) {
            [[unroll]] for (uint i = 0; i < scores[n].length(); i++)
                scores[n][i] = exp(scores[n][i] - relatives[i]);
            coopMatStore(Halves(scores[n]), near, base + 2 * n, NEAR_PITCH,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
        sync();
        Left weights[2];
        [[unroll]] for (uint n = 0; n < 2; n++) {
            coopMatLoad(weights[n], near, base + 2 * n, NEAR_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            totals = coopMatMulAdd(weights[n], Right(float16_t(1.0)), totals);
        }
        [[unroll]] for (uint d = 0; d < DIM_TILES; d++)
            [[unroll]] for (uint n = 0; n < 2; n++) {
                Right v;
                coopMatLoad(v, v_near, n * SIDE * PITCH + 2 * d, PITCH,
                            gl_CooperativeMatrixLayoutRowMajor);
                sums[d] = coopMatMulAdd(weights[n], v, sums[d]);
            }
        sync();
    }
    if (!works)
        return;
    [[unroll]] for (uint d = 0; d < DIM_TILES; d++) {
        [[unroll]] for (uint i = 0; i < totals.length(); i++)
            sums[d][i] /= totals[i];
        coopMatStore(sums[d], near, base, NEAR_PITCH, gl_CooperativeMatrixLayoutRowMajor);
        sync();
        if (has_row && row < block_end)
            [[unroll]] for (uint i = 0; i < 8; i++)
                Floats(values).at[q_first + d * SIDE + i] = uintBitsToFloat(near[mine + i / 4][i % 4]);
        sync();
    }
}
