// attend.comp - attention of one row and head over a sequence's pages.
//
// A workgroup walks a chunk of the pages in order: the scores of a page, then its values; whenever a
// larger score is found, the sums so far are scaled.  A row's only chunk is the result; of several, the
// workgroup that ends last merges them, in order.  The order depends on the row alone, not on the batch.
// Heads of more than DIMS values take several workgroups, which compute the same scores and store
// different values.  Loads of
// a page are issued together: a thread waits once for ROUNDS of K and once for AHEAD of V.  No load
// is behind a branch; past the last position that one is loaded again and ignored.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint THREADS = 128;
const uint DIMS = 256;     // values of a head, eight a thread
const uint AHEAD = 8;      // positions of V loaded at a time
const uint Q_QUADS = 128;  // of q in shared memory: larger heads are rare
const uint CHUNKS_MAX = 16; // common.glsl
const float LEAST = -3.4e38;
layout(constant_id = 0) const bool ALIGNED = true; // head_dim is a multiple of 8
layout(constant_id = 1) const uint SHARE = 16;     // threads that share a score, eight values each; 4 to 16
layout(local_size_x = 128) in;
layout(push_constant) uniform Push
{
    uvec2 q, values, positions, page_first, pages, parts, arrivals;
    uint heads, kv_heads, head_dim, row_words;
    uint k_words, v_words; // from a page's start to its K and V
    float scale;
    uint dim_groups, chunks_max;
    uint window; // 0: all positions
    float cap;   // 0: none
    uint none;
    uvec2 sinks; // 0: none
};

// A part has the values of a chunk, its largest score and the sum of its weights.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Parts { float at[]; };

const uint AT_ONCE = THREADS / SHARE;       // scores computed at a time
const uint ROUNDS = KV_POSITIONS / AT_ONCE; // rounds of them in a page
const uint PITCH = SHARE + 1;               // odd, so no bank conflicts
shared float partial[KV_POSITIONS * PITCH];
shared vec4 scores[KV_POSITIONS / 4];
shared vec4 q_near[Q_QUADS];
shared vec4 gathered[2 * THREADS];
shared float chunk_most[CHUNKS_MAX], chunk_total[CHUNKS_MAX];
shared bool is_last;

struct Eight {
    vec4 a, b;
};

// Four values of the head from 4 * i on, zeros past its end.
vec4 q_load(uint first, uint i)
{
    vec4 x = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (4 * i + j < head_dim)
            x[j] = Floats(q).at[first + 4 * i + j];
    return x;
}

vec4 q_at(uint first, uint i)
{
    return i < Q_QUADS ? q_near[i] : q_load(first, i);
}

// Values 8 * i and on of a head that begins at `head`, in halves from the page's start; zeros past
// its end.
Eight halves_at(uvec2 page, uint head, uint i)
{
    if (ALIGNED) {
        uvec4 words = Words4(page).at[head / 8 + i];
        return Eight(vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y)),
                     vec4(unpackHalf2x16(words.z), unpackHalf2x16(words.w)));
    }
    Eight x = Eight(vec4(0), vec4(0));
    [[unroll]] for (uint j = 0; j < 4; j++) {
        if (8 * i + j < head_dim)
            x.a[j] = half_at(Words(page), head + 8 * i + j);
        if (8 * i + j + 4 < head_dim)
            x.b[j] = half_at(Words(page), head + 8 * i + j + 4);
    }
    return x;
}

float dot4(vec4 k, vec4 x, float sum)
{
    return fma(k.w, x.w, fma(k.z, x.z, fma(k.y, x.y, fma(k.x, x.x, sum))));
}

// Scores of a page into scores[]; LEAST before its first `skip` and past its `count` positions.
void score_page(uvec2 page, uint skip, uint count, uint in_row, uint q_first)
{
    uint me = gl_LocalInvocationIndex, share = me % SHARE, position = me / SHARE;
    float sums[ROUNDS];
    [[unroll]] for (uint r = 0; r < ROUNDS; r++)
        sums[r] = 0;
    for (uint i = share; 8 * i < head_dim; i += SHARE) {
        vec4 qa = q_at(q_first, 2 * i), qb = q_at(q_first, 2 * i + 1);
        Eight k[ROUNDS];
        [[unroll]] for (uint r = 0; r < ROUNDS; r++) {
            uint j = min(r * AT_ONCE + position, count - 1);
            k[r] = halves_at(page, 2 * (k_words + j * row_words) + in_row, i);
        }
        [[unroll]] for (uint r = 0; r < ROUNDS; r++)
            sums[r] = dot4(k[r].b, qb, dot4(k[r].a, qa, sums[r]));
    }
    [[unroll]] for (uint r = 0; r < ROUNDS; r++)
        partial[(r * AT_ONCE + position) * PITCH + share] = sums[r];
    barrier();
    if (me < KV_POSITIONS) {
        float sum = 0;
        [[unroll]] for (uint i = 0; i < SHARE; i++)
            sum += partial[me * PITCH + i];
        scores[me / 4][me % 4] = me >= skip && me < count ? soft_cap(scale * sum, cap) : LEAST;
    }
    barrier();
}

float largest(float most)
{
    vec4 x = scores[0];
    [[unroll]] for (uint i = 1; i < KV_POSITIONS / 4; i++)
        x = max(x, scores[i]);
    return max(most, max(max(x.x, x.y), max(x.z, x.w)));
}

float total_of_scores()
{
    vec4 x = scores[0];
    [[unroll]] for (uint i = 1; i < KV_POSITIONS / 4; i++)
        x += scores[i];
    return (x.x + x.y) + (x.z + x.w);
}

// Adds the V of positions `sharer`, sharer + sharers and so on, each times its weight.
void add_values(inout Eight sum, uvec2 page, uint count, uint head, uint i, uint sharer,
                uint sharers)
{
    for (uint first = sharer; first < count; first += AHEAD * sharers) {
        Eight v[AHEAD];
        [[unroll]] for (uint n = 0; n < AHEAD; n++) {
            uint j = min(first + n * sharers, count - 1);
            v[n] = halves_at(page, head + 2 * j * row_words, i);
        }
        [[unroll]] for (uint n = 0; n < AHEAD; n++) {
            uint j = first + n * sharers, near = min(j, count - 1);
            float weight = j < count ? scores[near / 4][near % 4] : 0.0;
            sum.a = fma(vec4(weight), v[n].a, sum.a);
            sum.b = fma(vec4(weight), v[n].b, sum.b);
        }
    }
}

void put(uint at, uint dim, vec4 x)
{
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (dim + j < head_dim)
            Floats(values).at[at + dim + j] = x[j];
}

void put_part(uint at, uint dim, vec4 x)
{
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (dim + j < head_dim)
            Parts(parts).at[at + dim + j] = x[j];
}

// Whether the other chunks are stored, too; all threads hear the same.
bool arrive(uint counter, uint chunks)
{
    memoryBarrierBuffer();
    barrier();
    if (gl_LocalInvocationIndex == 0) {
        is_last = atomicAdd(Words(arrivals).at[counter], 1) + 1 == chunks;
        if (is_last)
            Words(arrivals).at[counter] = 0; // for the next step
    }
    barrier();
    memoryBarrierBuffer();
    return is_last;
}

// Values first_dim and on of the row and head whose parts begin at `part`.
void merge(uint part, uint chunks, uint first_dim, uint to)
{
    uint me = gl_LocalInvocationIndex, part_floats = head_dim + 2;
    float most = LEAST, total = 0;
    if (me < chunks) {
        chunk_most[me] = Parts(parts).at[part + me * part_floats + head_dim];
        chunk_total[me] = Parts(parts).at[part + me * part_floats + head_dim + 1];
    }
    barrier();
    for (uint c = 0; c < chunks; c++)
        most = max(most, chunk_most[c]);
    barrier();
    if (me < chunks)
        chunk_most[me] = exp(chunk_most[me] - most); // from now on its factor
    barrier();
    for (uint c = 0; c < chunks; c++)
        total = fma(chunk_total[c], chunk_most[c], total);
    for (uint dim = first_dim + me; dim < min(first_dim + DIMS, head_dim); dim += THREADS) {
        float sum = 0, x[CHUNKS_MAX];
        [[unroll]] for (uint c = 0; c < CHUNKS_MAX; c++)
            x[c] = Parts(parts).at[part + min(c, chunks - 1) * part_floats + dim];
        [[unroll]] for (uint c = 0; c < CHUNKS_MAX; c++)
            sum = c < chunks ? fma(x[c], chunk_most[c], sum) : sum;
        Floats(values).at[to + dim] = sum / total;
    }
}

void main()
{
    uint me = gl_LocalInvocationIndex, head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
    uint in_row = head / (heads / kv_heads) * head_dim, q_first = (row * heads + head) * head_dim;
    uint count = Words(positions).at[row] + 1, first_page = Words(page_first).at[row];
    uint first = first_seen(count, window), from = first / KV_POSITIONS * KV_POSITIONS;
    uint chunk = gl_WorkGroupID.z / dim_groups, chunks = chunks_of(count - from);
    if (chunk >= chunks)
        return;
    uint begin = from + chunk * chunk_pages(count - from) * KV_POSITIONS;
    uint end = min(count, begin + chunk_pages(count - from) * KV_POSITIONS);
    // A thread has eight values of the head, and a share of the positions.
    uint first_dim = gl_WorkGroupID.z % dim_groups * DIMS;
    uint eights = (min(head_dim - first_dim, DIMS) + 7) / 8;
    uint sharers = THREADS / eights, sharer = me / eights, i = first_dim / 8 + me % eights;
    for (uint n = me; n < min((head_dim + 7) / 8 * 2, Q_QUADS); n += THREADS)
        q_near[n] = q_load(q_first, n);
    barrier();
    // The first chunk begins with the sink: a score without a value.
    bool sinks_here = chunk == 0 && sinks != uvec2(0);
    float most = sinks_here ? Floats(sinks).at[head] : LEAST, total = sinks_here ? 1.0 : 0.0;
    Eight sum = Eight(vec4(0), vec4(0));
    for (uint done = begin; done < end; done += KV_POSITIONS) {
        uvec2 page = Words2(pages).at[first_page + done / KV_POSITIONS];
        uint here = min(end - done, KV_POSITIONS), skip = first > done ? first - done : 0;
        score_page(page, skip, here, in_row, q_first);
        float larger = largest(most), shrink = exp(most - larger);
        barrier();
        if (me < KV_POSITIONS)
            scores[me / 4][me % 4] = me < here ? exp(scores[me / 4][me % 4] - larger) : 0.0;
        barrier();
        most = larger;
        total = total * shrink + total_of_scores();
        sum.a *= shrink;
        sum.b *= shrink;
        if (sharer < sharers)
            add_values(sum, page, here, 2 * v_words + in_row, i, sharer, sharers);
        barrier();
    }
    gathered[2 * me] = sum.a;
    gathered[2 * me + 1] = sum.b;
    barrier();
    for (uint s = 1; s < sharers && me < eights; s++) {
        sum.a += gathered[2 * (me + s * eights)];
        sum.b += gathered[2 * (me + s * eights) + 1];
    }
    if (chunks == 1 && me < eights) {
        put(q_first, 8 * i, sum.a / total);
        put(q_first, 8 * i + 4, sum.b / total);
    }
    if (chunks == 1)
        return;
    uint first_part = (row * heads + head) * chunks_max * (head_dim + 2);
    uint part = first_part + chunk * (head_dim + 2);
    if (me < eights) {
        put_part(part, 8 * i, sum.a);
        put_part(part, 8 * i + 4, sum.b);
    }
    if (me == 0) {
        Parts(parts).at[part + head_dim] = most;
        Parts(parts).at[part + head_dim + 1] = total;
    }
    if (arrive((row * heads + head) * dim_groups + gl_WorkGroupID.z % dim_groups, chunks))
        merge(first_part, chunks, first_dim, q_first);
}
