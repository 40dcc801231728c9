/* What is read out of SPIR-V: whether code has device addresses of its own. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "venus/common/shader.h"

enum {
    WORDS_MAX = 256,

    /* Ids of the modules below. */
    UINT = 1,
    ADDRESS, /* pointer to a uint with an address */
    OTHER,   /* the same */
    FUNCTION_TYPE,
    NUMBER, /* a constant */
    FUNCTION,
    LABEL,
    GIVEN, /* a parameter that is an address */
    RESULT,
    SECOND,
    HOLDER, /* a type made of ADDRESS */
    VARIABLE,
    BOUND,
};

static uint32_t code[WORDS_MAX];
static size_t words;

static void put(uint32_t op, uint32_t count, const uint32_t *operands)
{
    assert_true(words + count + 1 <= WORDS_MAX);
    code[words++] = (count + 1) << 16 | op;
    memcpy(code + words, operands, count * sizeof(*operands));
    words += count;
}
#define PUT(op, ...)                                                                               \
    put((op), sizeof((uint32_t[]){__VA_ARGS__}) / 4, (const uint32_t[]){__VA_ARGS__})

enum {
    EXT_INST = 12,
    MEMORY_MODEL = 14,
    TYPE_INT = 21,
    TYPE_ARRAY = 28,
    TYPE_RUNTIME_ARRAY = 29,
    TYPE_STRUCT = 30,
    TYPE_POINTER = 32,
    TYPE_FUNCTION = 33,
    TYPE_FORWARD_POINTER = 39,
    CONSTANT = 43,
    FUNCTION_OP = 54,
    FUNCTION_PARAMETER = 55,
    FUNCTION_CALL = 57,
    VARIABLE_OP = 59,
    LOAD = 61,
    STORE = 62,
    COPY_MEMORY = 63,
    ACCESS_CHAIN = 65,
    PTR_ACCESS_CHAIN = 67,
    COMPOSITE_EXTRACT = 81,
    COPY_OBJECT = 83,
    CONVERT_PTR_TO_U = 117,
    CONVERT_U_TO_PTR = 120,
    BITCAST = 124,
    I_ADD = 128,
    SELECT = 169,
    ATOMIC_I_ADD = 234,
    PHI = 245,
    LABEL_OP = 248,

    LOGICAL = 0,
    PHYSICAL_STORAGE_BUFFER_64 = 5348,
    PHYSICAL_STORAGE_BUFFER = 5349,
    WORKGROUP = 4,
    PRIVATE = 6,
    IN_FUNCTION = 7,
    PUSH_CONSTANT = 9,
};

static void begin(uint32_t addressing)
{
    static const uint32_t header[] = {0x07230203, 0x00010500, 0, BOUND, 0};
    memcpy(code, header, sizeof(header));
    words = sizeof(header) / sizeof(*header);
    PUT(MEMORY_MODEL, addressing, 1);
    PUT(TYPE_INT, UINT, 32, 0);
    PUT(TYPE_POINTER, ADDRESS, PHYSICAL_STORAGE_BUFFER, UINT);
    PUT(TYPE_POINTER, OTHER, PHYSICAL_STORAGE_BUFFER, UINT);
    PUT(CONSTANT, UINT, NUMBER, GIVEN); /* a literal that is no id */
}

/* A function that is given an address, as those are that decode a tensor. */
static void begin_function(void)
{
    PUT(TYPE_FUNCTION, FUNCTION_TYPE, UINT, ADDRESS);
    PUT(FUNCTION_OP, UINT, FUNCTION, 0, FUNCTION_TYPE);
    PUT(FUNCTION_PARAMETER, ADDRESS, GIVEN);
    PUT(LABEL_OP, LABEL);
}

static int read_module(size_t count, bool *uses, bool *writes)
{
    struct vn_shader *shader;
    int rc = vn_shader_create(code, count * sizeof(*code), &shader);
    if (rc)
        return rc;
    *uses = shader->uses_addresses;
    *writes = shader->writes_addresses;
    vn_shader_destroy(shader);
    return 0;
}

static bool uses_addresses(void)
{
    bool uses = false, writes = false;
    assert_int_equal(read_module(words, &uses, &writes), 0);
    assert_true(uses || !writes);
    return uses;
}

static bool writes_addresses(void)
{
    bool uses = false, writes = false;
    assert_int_equal(read_module(words, &uses, &writes), 0);
    return writes;
}

static void declaring_them_is_not_using_them(void **state)
{
    (void)state;
    begin(PHYSICAL_STORAGE_BUFFER_64);
    assert_false(uses_addresses());
    begin_function();
    assert_false(uses_addresses());
}

static void an_address_made_of_a_number_is_the_codes_own(void **state)
{
    (void)state;
    begin(PHYSICAL_STORAGE_BUFFER_64);
    begin_function();
    PUT(CONVERT_U_TO_PTR, ADDRESS, RESULT, NUMBER);
    PUT(LOAD, UINT, NUMBER, RESULT);
    assert_true(uses_addresses());
    assert_false(writes_addresses());
    PUT(STORE, RESULT, NUMBER);
    assert_true(writes_addresses());
    begin(PHYSICAL_STORAGE_BUFFER_64);
    begin_function();
    PUT(BITCAST, ADDRESS, RESULT, NUMBER);
    assert_true(uses_addresses());
    begin(LOGICAL); /* where no address can be */
    begin_function();
    PUT(BITCAST, ADDRESS, RESULT, NUMBER);
    assert_false(uses_addresses());
}

static void an_address_in_memory_is_the_codes_own(void **state)
{
    (void)state;
    begin(PHYSICAL_STORAGE_BUFFER_64);
    PUT(TYPE_STRUCT, HOLDER, UINT, ADDRESS);
    assert_true(uses_addresses());
    begin(PHYSICAL_STORAGE_BUFFER_64);
    PUT(TYPE_ARRAY, HOLDER, ADDRESS, NUMBER);
    assert_true(uses_addresses());
    begin(PHYSICAL_STORAGE_BUFFER_64);
    PUT(TYPE_RUNTIME_ARRAY, HOLDER, ADDRESS);
    assert_true(uses_addresses());
    begin(PHYSICAL_STORAGE_BUFFER_64);
    PUT(TYPE_POINTER, HOLDER, PUSH_CONSTANT, ADDRESS);
    assert_true(uses_addresses());
    begin(PHYSICAL_STORAGE_BUFFER_64);
    PUT(TYPE_POINTER, HOLDER, WORKGROUP, ADDRESS);
    assert_true(uses_addresses());
    begin(PHYSICAL_STORAGE_BUFFER_64);
    PUT(TYPE_FORWARD_POINTER, RESULT, PHYSICAL_STORAGE_BUFFER);
    assert_false(uses_addresses());
    PUT(TYPE_STRUCT, HOLDER, RESULT);
    assert_true(uses_addresses());
}

/* Each of these is done with the address that a function was given. */
static void reading_through_a_given_one_is_not_using_it(void **state)
{
    (void)state;
    begin(PHYSICAL_STORAGE_BUFFER_64);
    PUT(TYPE_POINTER, HOLDER, IN_FUNCTION, ADDRESS);
    begin_function();
    PUT(VARIABLE_OP, HOLDER, VARIABLE, IN_FUNCTION);
    PUT(STORE, VARIABLE, GIVEN);
    PUT(LOAD, ADDRESS, SECOND, VARIABLE);
    PUT(LOAD, UINT, RESULT, SECOND, 2, 4);
    PUT(ACCESS_CHAIN, ADDRESS, RESULT, GIVEN, NUMBER);
    PUT(PTR_ACCESS_CHAIN, ADDRESS, RESULT, RESULT, NUMBER, NUMBER);
    PUT(BITCAST, OTHER, RESULT, RESULT);
    PUT(COPY_OBJECT, OTHER, RESULT, RESULT);
    PUT(SELECT, OTHER, RESULT, NUMBER, RESULT, SECOND);
    PUT(PHI, OTHER, RESULT, RESULT, LABEL, SECOND, LABEL);
    PUT(FUNCTION_CALL, UINT, NUMBER, FUNCTION, RESULT);
    PUT(COMPOSITE_EXTRACT, UINT, NUMBER, NUMBER, GIVEN); /* a literal */
    assert_false(uses_addresses());
    begin(PHYSICAL_STORAGE_BUFFER_64);
    PUT(TYPE_POINTER, HOLDER, PRIVATE, ADDRESS);
    assert_false(uses_addresses());
}

static void writing_through_a_given_one_is_using_it(void **state)
{
    (void)state;
    static const struct {
        uint32_t op, count, operands[6];
    } writes[] = {
        {STORE, 2, {GIVEN, NUMBER}},
        {COPY_MEMORY, 2, {GIVEN, GIVEN}},
        {ATOMIC_I_ADD, 6, {UINT, RESULT, GIVEN, NUMBER, NUMBER, NUMBER}},
        {EXT_INST, 6, {UINT, RESULT, FUNCTION, 35, NUMBER, GIVEN}}, /* modf, which stores */
        {4458, 3, {GIVEN, RESULT, NUMBER}},                         /* a cooperative store */
        {60000, 2, {NUMBER, GIVEN}},                                /* nobody knows what */
    };
    for (size_t i = 0; i < ARRAY_LEN(writes); i++) {
        begin(PHYSICAL_STORAGE_BUFFER_64);
        begin_function();
        put(writes[i].op, writes[i].count, writes[i].operands);
        assert_true(uses_addresses() && writes_addresses());
    }
    begin(PHYSICAL_STORAGE_BUFFER_64);
    begin_function();
    PUT(EXT_INST, UINT, RESULT, FUNCTION, GIVEN, NUMBER); /* the number of an instruction */
    assert_false(uses_addresses());
}

/* As a number, an address may be added to and converted back. */
static void begin_arithmetic(void)
{
    begin(PHYSICAL_STORAGE_BUFFER_64);
    begin_function();
    PUT(CONVERT_PTR_TO_U, UINT, RESULT, GIVEN);
    PUT(I_ADD, UINT, RESULT, NUMBER, RESULT);
}

static void arithmetic_with_a_given_one_is_followed(void **state)
{
    (void)state;
    begin_arithmetic();
    PUT(CONVERT_U_TO_PTR, ADDRESS, SECOND, RESULT);
    PUT(LOAD, UINT, VARIABLE, SECOND, 2, 4);
    assert_false(uses_addresses());
    PUT(STORE, SECOND, NUMBER);
    assert_true(writes_addresses());
    begin_arithmetic();
    PUT(STORE, VARIABLE, RESULT); /* into memory, where another shader finds it */
    assert_true(writes_addresses());
    begin_arithmetic();
    PUT(FUNCTION_CALL, UINT, VARIABLE, FUNCTION, RESULT);
    assert_true(writes_addresses());
    begin_arithmetic();
    PUT(60000, UINT, VARIABLE, RESULT); /* nobody knows what */
    assert_true(writes_addresses());
}

static void what_is_not_followed_is_refused(void **state)
{
    static const uint32_t ops[] = {4163, 4190, 4417, 4418, 5115};
    bool uses = false, writes = false;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        begin(PHYSICAL_STORAGE_BUFFER_64);
        PUT(ops[i], HOLDER, PHYSICAL_STORAGE_BUFFER);
        assert_int_equal(read_module(words, &uses, &writes), -EINVAL);
    }
}

static void anything_is_read_or_refused(void **state)
{
    enum { ROUNDS = 2000 };
    (void)state;
    struct hw_rng rng;
    bool uses = false, writes = false;
    hw_rng_seed(&rng, 1);
    begin(PHYSICAL_STORAGE_BUFFER_64);
    PUT(TYPE_STRUCT, HOLDER, UINT, ADDRESS);
    begin_function();
    PUT(ACCESS_CHAIN, ADDRESS, RESULT, GIVEN, NUMBER);
    for (size_t count = 0; count <= words; count++) {
        int rc = read_module(count, &uses, &writes);
        assert_true(rc == 0 || rc == -EINVAL);
    }
    for (int i = 0; i < ROUNDS; i++) {
        size_t at = hw_rng_below(&rng, words);
        uint32_t was = code[at];
        code[at] = i % 2 ? (uint32_t)hw_rng_u64(&rng) & 0x1ffff : (uint32_t)hw_rng_u64(&rng);
        int rc = at == 3 && code[3] > BOUND ? 0 : read_module(words, &uses, &writes);
        assert_true(rc == 0 || rc == -EINVAL);
        code[at] = was;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declaring_them_is_not_using_them),
        cmocka_unit_test(an_address_made_of_a_number_is_the_codes_own),
        cmocka_unit_test(an_address_in_memory_is_the_codes_own),
        cmocka_unit_test(reading_through_a_given_one_is_not_using_it),
        cmocka_unit_test(writing_through_a_given_one_is_using_it),
        cmocka_unit_test(arithmetic_with_a_given_one_is_followed),
        cmocka_unit_test(what_is_not_followed_is_refused),
        cmocka_unit_test(anything_is_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
