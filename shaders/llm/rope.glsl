// rope.glsl - rotates pairs by the batch's angles.  The including file has q, k, angles, kv_heads,
// head_dim, pairs, neox and k_first among its push constants.

vec2 angle_at(uint row, uint pair)
{
    uint at = 2 * (row * pairs + pair);
    return vec2(Floats(angles).at[at], Floats(angles).at[at + 1]);
}

vec2 rotated(vec2 x, vec2 angle)
{
    return vec2(x.x * angle.x - x.y * angle.y, x.x * angle.y + x.y * angle.x);
}

// Where a head's pair begins, and the distance of its second value.
uint first_of(uint pair)
{
    return neox != 0 ? pair : 2 * pair;
}

uint apart()
{
    return neox != 0 ? pairs : 1;
}

// Pair i of all rows of `place`, which has `count` heads; `first`: rows of angles before its table.
void turn(uvec2 place, uint first, uint count, uint i)
{
    uint pair = i % pairs, head_row = i / pairs, at = head_row * head_dim + first_of(pair);
    Floats x = Floats(place);
    vec2 y = rotated(vec2(x.at[at], x.at[at + apart()]), angle_at(first + head_row / count, pair));
    x.at[at] = y.x;
    x.at[at + apart()] = y.y;
}

// Value i of a row's head of k, rotated; those past the pairs stay.
float turned_k(uint row, uint head, uint i)
{
    uint at = (row * kv_heads + head) * head_dim;
    if (i >= 2 * pairs)
        return Floats(k).at[at + i];
    uint pair = neox != 0 ? i % pairs : i / 2;
    at += first_of(pair);
    vec2 y = rotated(vec2(Floats(k).at[at], Floats(k).at[at + apart()]),
                     angle_at(k_first + row, pair));
    return i == first_of(pair) ? y.x : y.y;
}
