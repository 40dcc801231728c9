// mul_parts.glsl - the arguments of a product, and where its results go.
//
// Up to PARTS weights of one type and width share the rows of the batch.
const uint PARTS = 3;

struct Part {
    uvec2 weight, bias, values;
    uint count, flags;
};

layout(push_constant) uniform Push
{
    Part parts[PARTS];
    uvec2 acts;
    uint width, rows, stride, col_groups, groups;
};

// The part that a block of `height` rows of all weights lies in; block becomes its number there.
uint part_of(inout uint block, uint height)
{
    uint p = 0;
    for (uint blocks; p + 1 < PARTS; p++, block -= blocks) {
        blocks = (parts[p].count + height - 1) / height;
        if (block < blocks)
            break;
    }
    return p;
}

void put(Part part, uint matrix, uint row, uint col, float sum)
{
    Floats values = Floats(part.values);
    uint at = col * part.count + row;
    float value = sum;
    if ((part.flags & FLAG_BIAS) != 0)
        value += Floats(part.bias).at[matrix * part.count + row];
    value = (part.flags & FLAG_ACCUMULATE) != 0 ? values.at[at] + value : value;
    values.at[at] = (part.flags & FLAG_GELU) != 0 ? gelu(value) : value;
}
