/* One pass over a module: decorations come before types, types before variables. */
#include "venus/common/shader.h"

#include "base/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ID_BOUND_MAX = 4194304, /* SPIR-V's universal limit */

    OP_LINE = 8,
    OP_EXT_INST = 12,
    OP_MEMORY_MODEL = 14,
    OP_ENTRY_POINT = 15,
    OP_TYPE_IMAGE = 25,
    OP_TYPE_ARRAY = 28,
    OP_TYPE_RUNTIME_ARRAY = 29,
    OP_TYPE_STRUCT = 30,
    OP_TYPE_POINTER = 32,
    OP_TYPE_FORWARD_POINTER = 39,
    OP_FUNCTION = 54,
    OP_FUNCTION_PARAMETER = 55,
    OP_FUNCTION_CALL = 57,
    OP_VARIABLE = 59,
    OP_LOAD = 61,
    OP_STORE = 62,
    OP_ACCESS_CHAIN = 65,
    OP_IN_BOUNDS_ACCESS_CHAIN = 66,
    OP_PTR_ACCESS_CHAIN = 67,
    OP_DECORATE = 71,
    OP_MEMBER_DECORATE = 72,
    OP_DECORATION_GROUP = 73,
    OP_VECTOR_SHUFFLE = 79,
    OP_COMPOSITE_EXTRACT = 81,
    OP_COMPOSITE_INSERT = 82,
    OP_COPY_OBJECT = 83,
    OP_CONVERT_PTR_TO_U = 117,
    OP_CONVERT_U_TO_PTR = 120,
    OP_BITCAST = 124,
    OP_I_ADD = 128,
    OP_I_SUB = 130,
    OP_SELECT = 169,
    OP_PHI = 245,
    OP_LOOP_MERGE = 246,
    OP_SELECTION_MERGE = 247,
    OP_BRANCH_CONDITIONAL = 250,
    OP_SWITCH = 251,
    OP_COOPERATIVE_MATRIX_LOAD = 4457,

    /* Ways to what a shader can reach that are not followed here. */
    OP_TYPE_TENSOR_ARM = 4163,
    OP_TYPE_GRAPH_ARM = 4190,
    OP_TYPE_UNTYPED_POINTER = 4417,
    OP_UNTYPED_VARIABLE = 4418,
    OP_TYPE_BUFFER = 5115,

    DECORATION_BUFFER_BLOCK = 3,
    DECORATION_NON_WRITABLE = 24,
    DECORATION_BINDING = 33,
    DECORATION_DESCRIPTOR_SET = 34,

    STORAGE_UNIFORM_CONSTANT = 0,
    STORAGE_UNIFORM = 2,
    STORAGE_PRIVATE = 6,
    STORAGE_FUNCTION = 7,
    STORAGE_STORAGE_BUFFER = 12,
    STORAGE_PHYSICAL_STORAGE_BUFFER = 5349,

    ADDRESSING_PHYSICAL_STORAGE_BUFFER_64 = 5348,
    IMAGE_IS_STORAGE = 2,
};

static const uint32_t magic = 0x07230203;

struct id {
    uint32_t set, binding;
    uint32_t of;            /* element or pointed-to type */
    uint32_t members;       /* of a struct */
    uint32_t fixed_members; /* those that are NonWritable */
    bool non_writable : 1;
    bool buffer_block : 1;
    bool storage_image : 1;
    bool address_type : 1; /* a pointer to what has a device address */
    bool address : 1;      /* a value of such a type */
    bool number : 1;       /* what one was converted to, or that and an offset */
};

struct reader {
    struct id *ids;
    uint32_t bound;
    struct vn_shader *shader;
    size_t write_cap, entry_cap;
    bool has_addresses; /* by its memory model */
    bool in_functions;
    int err;
};

static struct id *id_at(struct reader *r, uint32_t id)
{
    if (id < r->bound)
        return &r->ids[id];
    r->err = -EINVAL;
    return &r->ids[0];
}

/* Makes room for one more element. */
static bool grow(struct reader *r, void *items, size_t *cap, size_t count, size_t size)
{
    bool has_room = hw_grow(items, cap, count + 1, size);
    if (!has_room)
        r->err = -ENOMEM;
    return has_room;
}

static void read_entry(struct reader *r, const uint32_t *at, uint32_t words)
{
    const char *name = (const char *)(at + 3);
    size_t most = (words - 3) * sizeof(*at);
    size_t len = strnlen(name, most);
    if (len == most) {
        r->err = -EINVAL;
        return;
    }
    struct vn_shader *s = r->shader;
    if (!grow(r, &s->entries, &r->entry_cap, s->entry_count, sizeof(*s->entries)))
        return;
    char *copy = strdup(name);
    if (!copy) {
        r->err = -ENOMEM;
        return;
    }
    s->entries[s->entry_count++] = (struct vn_shader_entry){at[1], copy};
}

static void read_decoration(struct reader *r, const uint32_t *at, uint32_t words)
{
    struct id *id = id_at(r, at[1]);
    switch (at[2]) {
    case DECORATION_NON_WRITABLE:
        id->non_writable = true;
        break;
    case DECORATION_BUFFER_BLOCK:
        id->buffer_block = true;
        break;
    case DECORATION_BINDING:
        id->binding = words > 3 ? at[3] : 0;
        break;
    case DECORATION_DESCRIPTOR_SET:
        id->set = words > 3 ? at[3] : 0;
        break;
    default:
        break;
    }
}

/* What the variable holds, behind pointers and arrays.  Types name only earlier ones, so the walk
 * ends; a module that does not keep to that is cut off. */
static const struct id *held_type(struct reader *r, uint32_t type)
{
    const struct id *id = id_at(r, type);
    for (int depth = 0; id->of && depth < 16; depth++)
        id = id_at(r, id->of);
    return id;
}

static void read_variable(struct reader *r, const uint32_t *at)
{
    const struct id *variable = id_at(r, at[2]);
    const struct id *type = held_type(r, at[1]);
    uint32_t storage = at[3];
    if (variable->non_writable)
        return;
    bool buffer =
        storage == STORAGE_STORAGE_BUFFER || (storage == STORAGE_UNIFORM && type->buffer_block);
    bool image = storage == STORAGE_UNIFORM_CONSTANT && type->storage_image;
    if (buffer && type->members > 0 && type->fixed_members >= type->members)
        return;
    if (!buffer && !image)
        return;
    r->shader->writes_images |= image;
    struct vn_shader *s = r->shader;
    /* Images too: a texel buffer is one to SPIR-V. */
    if (grow(r, &s->writes, &r->write_cap, s->write_count, sizeof(*s->writes)))
        s->writes[s->write_count++] = (struct vn_shader_binding){variable->set, variable->binding};
}

/* ---- device addresses ---- */

static bool is_address(struct reader *r, uint32_t id)
{
    return id < r->bound && r->ids[id].address;
}

static bool are_addresses(struct reader *r, const uint32_t *at, uint32_t words, uint32_t first)
{
    for (uint32_t i = first; i < words; i++) {
        if (is_address(r, at[i]))
            return true;
    }
    return false;
}

static bool is_number(struct reader *r, uint32_t id)
{
    return id < r->bound && r->ids[id].number;
}

static bool has_number(struct reader *r, const uint32_t *at, uint32_t words)
{
    for (uint32_t i = 1; i < words; i++) {
        if (is_number(r, at[i]))
            return true;
    }
    return false;
}

static bool makes_number(struct reader *r, const uint32_t *at, uint32_t words)
{
    uint32_t op = at[0] & 0xffff;
    return words > 3 && (op == OP_CONVERT_PTR_TO_U ||
                         ((op == OP_I_ADD || op == OP_I_SUB) && has_number(r, at, words)));
}

/* What is made of an address type can be in memory, where others write it. */
static void read_type_of(struct reader *r, const uint32_t *at, uint32_t words, uint32_t first)
{
    for (uint32_t i = first; i < words; i++)
        r->shader->uses_addresses |= id_at(r, at[i])->address_type;
}

static void read_pointer(struct reader *r, const uint32_t *at)
{
    uint32_t storage = at[2];
    id_at(r, at[1])->of = at[3];
    id_at(r, at[1])->address_type = storage == STORAGE_PHYSICAL_STORAGE_BUFFER;
    if (storage != STORAGE_FUNCTION && storage != STORAGE_PRIVATE)
        read_type_of(r, at, 4, 3);
}

/* Whether an address that it yields is one that the code had before.  What can be loaded was stored
 * in a variable of its own, by read_type_of. */
static bool passes_on(struct reader *r, const uint32_t *at, uint32_t words)
{
    switch (at[0] & 0xffff) {
    case OP_FUNCTION_PARAMETER:
    case OP_FUNCTION_CALL:
    case OP_LOAD:
    case OP_COPY_OBJECT:
    case OP_SELECT:
    case OP_PHI:
        return true;
    case OP_ACCESS_CHAIN:
    case OP_IN_BOUNDS_ACCESS_CHAIN:
    case OP_PTR_ACCESS_CHAIN:
    case OP_BITCAST:
        return words > 3 && is_address(r, at[3]);
    case OP_CONVERT_U_TO_PTR:
        return words > 3 && is_number(r, at[3]);
    default:
        return false;
    }
}

/* Whether an instruction only reads through the addresses that it is given, or passes them on.
 * Numbers are followed through additions; elsewhere they could get out of sight. */
static bool is_harmless(struct reader *r, const uint32_t *at, uint32_t words)
{
    uint32_t op = at[0] & 0xffff;
    if (has_number(r, at, words))
        return op == OP_I_ADD || op == OP_I_SUB || op == OP_CONVERT_U_TO_PTR;
    switch (op) {
    case OP_LOAD:
    case OP_FUNCTION_CALL:
    case OP_ACCESS_CHAIN:
    case OP_IN_BOUNDS_ACCESS_CHAIN:
    case OP_PTR_ACCESS_CHAIN:
    case OP_CONVERT_PTR_TO_U:
    case OP_BITCAST:
    case OP_COPY_OBJECT:
    case OP_SELECT:
    case OP_PHI:
    case OP_COOPERATIVE_MATRIX_LOAD:
        return true;
    case OP_STORE:
        return words < 2 || !is_address(r, at[1]); /* behind it stand a value, literals */
    case OP_EXT_INST:
        return !are_addresses(r, at, words, 5); /* before them stands a literal */
    case OP_LINE:
    case OP_VECTOR_SHUFFLE:
    case OP_COMPOSITE_EXTRACT:
    case OP_COMPOSITE_INSERT:
    case OP_LOOP_MERGE:
    case OP_SELECTION_MERGE:
    case OP_BRANCH_CONDITIONAL:
    case OP_SWITCH:
        return true; /* takes none, but literals that look like one */
    default:
        return !are_addresses(r, at, words, 1);
    }
}

/* In a function: what it does with addresses, and whether it makes one.  Results come second. */
static void follow_addresses(struct reader *r, const uint32_t *at, uint32_t words)
{
    bool writes = !is_harmless(r, at, words);
    r->shader->uses_addresses |= writes;
    r->shader->writes_addresses |= writes;
    if (makes_number(r, at, words))
        id_at(r, at[2])->number = true;
    if (words <= 2 || at[1] >= r->bound || !r->ids[at[1]].address_type)
        return;
    r->shader->uses_addresses |= !passes_on(r, at, words);
    id_at(r, at[2])->address = true;
}

/* ---- instructions ---- */

static bool is_followed(uint32_t op)
{
    return op != OP_TYPE_TENSOR_ARM && op != OP_TYPE_GRAPH_ARM && op != OP_TYPE_UNTYPED_POINTER &&
           op != OP_UNTYPED_VARIABLE && op != OP_TYPE_BUFFER;
}

static void read_instruction(struct reader *r, const uint32_t *at, uint32_t words)
{
    static const uint8_t least[] = {
        [OP_MEMORY_MODEL] = 3,       [OP_ENTRY_POINT] = 4,      [OP_TYPE_IMAGE] = 9,
        [OP_TYPE_ARRAY] = 4,         [OP_TYPE_STRUCT] = 2,      [OP_TYPE_POINTER] = 4,
        [OP_TYPE_RUNTIME_ARRAY] = 3, [OP_VARIABLE] = 4,         [OP_DECORATE] = 3,
        [OP_MEMBER_DECORATE] = 4,    [OP_DECORATION_GROUP] = 2, [OP_TYPE_FORWARD_POINTER] = 3,
    };
    uint32_t op = at[0] & 0xffff;
    if (!is_followed(op)) {
        r->err = -EINVAL;
        return;
    }
    r->in_functions |= op == OP_FUNCTION;
    if (r->has_addresses && r->in_functions)
        follow_addresses(r, at, words);
    if (op >= ARRAY_LEN(least) || least[op] == 0)
        return;
    if (words < least[op]) {
        r->err = -EINVAL;
        return;
    }
    switch (op) {
    case OP_MEMORY_MODEL:
        r->has_addresses = at[1] == ADDRESSING_PHYSICAL_STORAGE_BUFFER_64;
        break;
    case OP_ENTRY_POINT:
        read_entry(r, at, words);
        break;
    case OP_TYPE_IMAGE:
        r->shader->uses_images = true;
        id_at(r, at[1])->storage_image = at[7] == IMAGE_IS_STORAGE;
        break;
    case OP_TYPE_ARRAY:
    case OP_TYPE_RUNTIME_ARRAY:
        id_at(r, at[1])->of = at[2];
        read_type_of(r, at, 3, 2);
        break;
    case OP_TYPE_STRUCT:
        id_at(r, at[1])->members = words - 2;
        read_type_of(r, at, words, 2);
        break;
    case OP_TYPE_POINTER:
        read_pointer(r, at);
        break;
    case OP_TYPE_FORWARD_POINTER:
        id_at(r, at[1])->address_type = at[2] == STORAGE_PHYSICAL_STORAGE_BUFFER;
        break;
    case OP_VARIABLE:
        read_variable(r, at);
        break;
    case OP_DECORATE:
        read_decoration(r, at, words);
        break;
    case OP_MEMBER_DECORATE:
        id_at(r, at[1])->fixed_members += at[3] == DECORATION_NON_WRITABLE;
        break;
    case OP_DECORATION_GROUP:
        r->err = -EINVAL; /* deprecated; not followed */
        break;
    default:
        break;
    }
}

static void read_all(struct reader *r, const uint32_t *code, size_t words)
{
    size_t at = 5;
    while (!r->err && at < words) {
        uint32_t count = code[at] >> 16;
        if (count == 0 || count > words - at) {
            r->err = -EINVAL;
            return;
        }
        read_instruction(r, code + at, count);
        at += count;
    }
}

int vn_shader_create(const uint32_t *code, size_t bytes, struct vn_shader **out)
{
    size_t words = bytes / sizeof(*code);
    if (bytes % sizeof(*code) || words < 5 || code[0] != magic || code[3] == 0 ||
        code[3] > ID_BOUND_MAX)
        return -EINVAL;
    struct reader r = {.bound = code[3],
                       .ids = calloc(code[3], sizeof(struct id)),
                       .shader = calloc(1, sizeof(*r.shader))};
    if (r.ids && r.shader)
        read_all(&r, code, words);
    else
        r.err = -ENOMEM;
    free(r.ids);
    if (r.err)
        vn_shader_destroy(r.shader);
    else
        *out = r.shader;
    return r.err;
}

void vn_shader_destroy(struct vn_shader *shader)
{
    if (!shader)
        return;
    for (uint32_t i = 0; i < shader->entry_count; i++)
        free(shader->entries[i].name);
    free(shader->entries);
    free(shader->writes);
    free(shader);
}

bool vn_shader_has_entry(const struct vn_shader *shader, uint32_t model, const char *name)
{
    for (uint32_t i = 0; i < shader->entry_count; i++) {
        if (shader->entries[i].model == model && strcmp(shader->entries[i].name, name) == 0)
            return true;
    }
    return false;
}
