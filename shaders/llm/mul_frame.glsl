// mul_frame.glsl - products of weights and rows: what all types of weights share.
//
// A team of lanes computes ROWS rows of the weights for COLS rows of the batch.  A lane adds up the
// products of its places in k in order; then the lanes are added in order.  Neither COLS nor ROWS nor a
// row's place in the batch changes the order, so a row has the same bits in every batch.  LANES does, and
// depends on the weights alone.  The including file fills sums[ROWS * COLS] in multiply().
layout(constant_id = 0) const uint COLS = 1;
layout(constant_id = 1) const uint ROWS = 1;
layout(constant_id = 2) const bool ALIGNED = true; // rows of activations begin at 16 bytes
layout(constant_id = 3) const uint AHEAD = 1;      // loads of a weight's row at a time
layout(constant_id = 4) const bool ROUNDS = false; // rounds activations to 11 bits; they come unrounded
// Each row of the batch has its own matrix, one of those that the weight stacks; parts[2].flags rows share
// a row of activations.  parts[2].weight has the number of each row's matrix or, where COLS is more than
// 1, the bunches of bunch.comp.
layout(constant_id = 5) const bool EXPERTS = false;
layout(constant_id = 6) const uint LANES = 32; // of a team: 32, 64 or 128

const uint THREADS = 128, TEAMS = THREADS / LANES, FOLDED = 32;
layout(local_size_x = 128) in;

#include "mul_parts.glsl"

// One for each lane of each output of each team; swizzled, so that neither writing by lanes nor reading
// by outputs has bank conflicts.
shared float partial[THREADS * ROWS * COLS];

uint partial_at(uint team, uint result, uint lane)
{
    return (team * ROWS * COLS + result) * LANES + (lane + result) % LANES;
}

// Adds the lanes from FOLDED on to those before.
void fold(uint team, uint lane)
{
    for (uint i = lane; i < ROWS * COLS * FOLDED; i += LANES) {
        uint result = i / FOLDED, to = partial_at(team, result, i % FOLDED);
        float sum = partial[to];
        [[unroll]] for (uint next = FOLDED; next < LANES; next += FOLDED)
            sum += partial[partial_at(team, result, i % FOLDED + next)];
        partial[to] = sum;
    }
}

float sums[ROWS * COLS];

const bool BUNCHES = EXPERTS && COLS > 1;

uint matrix_of(uint group)
{
    return EXPERTS ? Words(parts[2].weight).at[BUNCHES ? group * (COLS + 1) : group] : 0;
}

// Row c of a group; past the end, or NONE, where it has fewer.
uint col_of(uint group, uint c)
{
    return BUNCHES ? Words(parts[2].weight).at[group * (COLS + 1) + 1 + c] : group * COLS + c;
}

void multiply(uvec2 weight, uint row_at[ROWS], uint col_at[COLS], uint lane);

void main()
{
    uint id = linear_group();
    if (id >= groups)
        return;
    uint lane = gl_LocalInvocationIndex % LANES, team = gl_LocalInvocationIndex / LANES;
    // Groups that share weights follow each other and find them in the cache.
    uint group = id % col_groups, block = id / col_groups;
    Part part = parts[part_of(block, TEAMS * ROWS)];
    if (BUNCHES && col_of(group, 0) == NONE)
        return;
    uint matrix = matrix_of(group);
    uint first_row = (block * TEAMS + team) * ROWS;
    // Rows past the end repeat the last and are not stored.
    uint row_at[ROWS], col_at[COLS];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        row_at[r] = (matrix * part.count + min(first_row + r, part.count - 1)) * stride;
    [[unroll]] for (uint c = 0; c < COLS; c++)
        col_at[c] = min(col_of(group, c), rows - 1) / (EXPERTS ? parts[2].flags : 1);
    [[unroll]] for (uint i = 0; i < ROWS * COLS; i++)
        sums[i] = 0;
    multiply(part.weight, row_at, col_at, lane);
    [[unroll]] for (uint i = 0; i < ROWS * COLS; i++)
        partial[partial_at(team, i, lane)] = sums[i];
    barrier();
    if (LANES > FOLDED) {
        fold(team, lane);
        barrier();
    }
    uint row = first_row + lane / COLS, col = col_of(group, lane % COLS);
    if (lane >= ROWS * COLS || row >= part.count || col >= rows)
        return;
    float sum = 0;
    [[unroll]] for (uint i = 0; i < FOLDED; i++)
        sum += partial[partial_at(team, lane, i)];
    put(part, matrix, row, col, sum);
}
