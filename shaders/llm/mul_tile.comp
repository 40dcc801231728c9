// mul_tile.comp - products of many rows on matrix units: F16 or quantised weights, as halves, times
// activations rounded to halves.
//
// A workgroup computes TILE_ROWS rows of the weights for TILE_COLS rows of the batch, DEPTH values of k
// at a time; the next ones are loaded while these are multiplied.  Each 16 x 16 tile is added up in the order
// of k, so a row has the same bits in every batch on one kind of device.  How a matrix unit adds within
// a tile is the device's affair: other devices give other bits.  width is a multiple of DEPTH.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "common.glsl"

layout(constant_id = 0) const uint THREADS = 128;
layout(constant_id = 1) const uint ROW_TILES = 2; // of a subgroup, 16 x 16 each
layout(constant_id = 2) const uint COL_TILES = 2;
layout(constant_id = 3) const uint ROW_GROUPS = 2; // subgroups side by side; the workgroup has
layout(constant_id = 4) const uint COL_GROUPS = 2; // ROW_GROUPS * COL_GROUPS
layout(constant_id = 5) const uint DEPTH = 64;     // values of k at a time
layout(local_size_x_id = 0) in;

const uint SIDE = 16;
const uint TILE_ROWS = ROW_GROUPS * ROW_TILES * SIDE, TILE_COLS = COL_GROUPS * COL_TILES * SIDE;
const uint QUADS = DEPTH / 8; // of 16 bytes
const uint PITCH = QUADS + 1; // of a row in shared memory: an odd number has no bank conflicts

#include "mul_parts.glsl"

shared uvec4 row_near[TILE_ROWS * PITCH];
shared uvec4 col_near[TILE_COLS * PITCH];
shared float result_near[ROW_GROUPS * COL_GROUPS * SIDE * SIDE];

#if defined(TYPE_F16)
const uint LOADS = (TILE_ROWS * QUADS + THREADS - 1) / THREADS; // of a thread
uvec4 loaded[LOADS];

void load_rows(uvec2 weight, uint first_row, uint last_row, uint k)
{
    [[unroll]] for (uint n = 0; n < LOADS; n++) {
        uint at = gl_LocalInvocationIndex + n * THREADS, row = min(first_row + at / QUADS, last_row);
        loaded[n] = Words4(weight).at[row * stride + k / 8 + at % QUADS];
    }
}

void put_rows()
{
    [[unroll]] for (uint n = 0; n < LOADS; n++) {
        uint at = gl_LocalInvocationIndex + n * THREADS;
        if (at < TILE_ROWS * QUADS)
            row_near[at / QUADS * PITCH + at % QUADS] = loaded[n];
    }
}

uint place_of(uint k, uint quad)
{
    return k + 8 * quad;
}
#else
#include "units.glsl"
const uint UNITS = DEPTH / UNIT_VALUES;
const uint LOADS = (TILE_ROWS * UNITS + THREADS - 1) / THREADS;
Unit loaded[LOADS];

void load_rows(uvec2 weight, uint first_row, uint last_row, uint k)
{
    [[unroll]] for (uint n = 0; n < LOADS; n++) {
        uint at = gl_LocalInvocationIndex + n * THREADS, row = min(first_row + at / UNITS, last_row);
        loaded[n] = unit_at(weight, row * stride, k / UNIT_VALUES + at % UNITS);
    }
}

// Eight values of a unit as halves.
uvec4 to_halves(uvec2 bytes, float factor, float least)
{
    uvec4 quad;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint word = bytes[i / 2], at = i % 2 * 2;
        vec2 x = vec2(byte_of(word, at), byte_of(word, at + 1));
        quad[i] = packHalf2x16(fma(x, vec2(factor), vec2(least)));
    }
    return quad;
}

void put_rows()
{
    [[unroll]] for (uint n = 0; n < LOADS; n++) {
        uint at = gl_LocalInvocationIndex + n * THREADS;
        if (at >= TILE_ROWS * UNITS)
            continue;
        Unit unit = loaded[n];
        uint to = at / UNITS * PITCH + at % UNITS * (UNIT_VALUES / 8);
        float least = TWO_SCALES ? unit.dmin : unit.d;
        float factor = unit.d * float(unit.low_factor), low = least * float(unit.low_min);
        row_near[to] = to_halves(unit.low.xy, factor, low);
        row_near[to + 1] = to_halves(unit.low.zw, factor, low);
#if !defined(TYPE_Q8_0)
        factor = unit.d * float(unit.high_factor);
        float high = least * float(unit.high_min);
        row_near[to + 2] = to_halves(unit.high.xy, factor, high);
        row_near[to + 3] = to_halves(unit.high.zw, factor, high);
#endif
    }
}

// Activations in the order of the units' values.
uint place_of(uint k, uint quad)
{
    uint in_unit = quad % (UNIT_VALUES / 8), low = low_place(k / UNIT_VALUES + quad / (UNIT_VALUES / 8));
#if defined(TYPE_Q8_0)
    return low + 8 * in_unit;
#else
    return low + in_unit / 2 * HIGH_AFTER + in_unit % 2 * 8;
#endif
}
#endif

const uint COL_LOADS = (TILE_COLS * QUADS + THREADS - 1) / THREADS;
uvec4 col_loaded[COL_LOADS];

void load_cols(uint first_col, uint k)
{
    [[unroll]] for (uint n = 0; n < COL_LOADS; n++) {
        uint at = gl_LocalInvocationIndex + n * THREADS, col = min(first_col + at / QUADS, rows - 1);
        col_loaded[n] = Words4(acts).at[(col * width + place_of(k, at % QUADS)) / 8];
    }
}

void put_cols()
{
    [[unroll]] for (uint n = 0; n < COL_LOADS; n++) {
        uint at = gl_LocalInvocationIndex + n * THREADS;
        if (at < TILE_COLS * QUADS)
            col_near[at / QUADS * PITCH + at % QUADS] = col_loaded[n];
    }
}

void main()
{
    uint id = linear_group();
    if (id >= groups)
        return;
    // Groups that share weights follow each other and find them in the cache.
    uint first_col = id % col_groups * TILE_COLS, block = id / col_groups;
    Part part = parts[part_of(block, TILE_ROWS)];
    uint first_row = block * TILE_ROWS;
    uint group_row = gl_SubgroupID % ROW_GROUPS * ROW_TILES * SIDE;
    uint group_col = gl_SubgroupID / ROW_GROUPS * COL_TILES * SIDE;

    coopmat<float, gl_ScopeSubgroup, SIDE, SIDE, gl_MatrixUseAccumulator> sums[ROW_TILES * COL_TILES];
    [[unroll]] for (uint i = 0; i < ROW_TILES * COL_TILES; i++)
        sums[i] = coopmat<float, gl_ScopeSubgroup, SIDE, SIDE, gl_MatrixUseAccumulator>(0.0);

    load_rows(part.weight, first_row, part.count - 1, 0);
    load_cols(first_col, 0);
    for (uint k = 0; k < width; k += DEPTH) {
        barrier();
        put_rows();
        put_cols();
        barrier();
        uint next = k + DEPTH < width ? k + DEPTH : k; // no load is behind a branch
        load_rows(part.weight, first_row, part.count - 1, next);
        load_cols(first_col, next);
        [[unroll]] for (uint d = 0; d < DEPTH / SIDE; d++) {
            coopmat<float16_t, gl_ScopeSubgroup, SIDE, SIDE, gl_MatrixUseA> a[ROW_TILES];
            [[unroll]] for (uint r = 0; r < ROW_TILES; r++)
                coopMatLoad(a[r], row_near, (group_row + r * SIDE) * PITCH + 2 * d, PITCH,
                            gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint c = 0; c < COL_TILES; c++) {
                coopmat<float16_t, gl_ScopeSubgroup, SIDE, SIDE, gl_MatrixUseB> b;
                coopMatLoad(b, col_near, (group_col + c * SIDE) * PITCH + 2 * d, PITCH,
                            gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint r = 0; r < ROW_TILES; r++)
                    sums[r * COL_TILES + c] = coopMatMulAdd(a[r], b, sums[r * COL_TILES + c]);
            }
        }
    }

    uint near = gl_SubgroupID * SIDE * SIDE;
    [[unroll]] for (uint i = 0; i < ROW_TILES * COL_TILES; i++) {
        coopMatStore(sums[i], result_near, near, SIDE, gl_CooperativeMatrixLayoutColumnMajor);
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        for (uint at = gl_SubgroupInvocationID; at < SIDE * SIDE; at += gl_SubgroupSize) {
            uint row = first_row + group_row + i / COL_TILES * SIDE + at % SIDE;
            uint col = first_col + group_col + i % COL_TILES * SIDE + at / SIDE;
            if (row < part.count && col < rows)
                put(part, 0, row, col, result_near[near + at]);
        }
        subgroupMemoryBarrierShared();
        subgroupBarrier();
    }
}
