/* The GGUF format: what is read, and every way in which a file can be wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "image.h"
#include "wire/le.h"

static char why[LLM_WHY_CHARS];

/* Parses, expects an error and a reason that holds a phrase, frees the image. */
static void refuse(struct image image, int expected, const char *phrase)
{
    struct gguf gguf;
    why[0] = 0;
    int err = gguf_init(&gguf, image.bytes, image.size, why);
    if (err == 0)
        gguf_fini(&gguf);
    if (err != expected || !strstr(why, phrase))
        fail_msg("got %d '%s'; expected %d '%s'", err, why, expected, phrase);
    image_free(&image);
}

static struct gguf accept(const struct image *image)
{
    struct gguf gguf;
    if (gguf_init(&gguf, image->bytes, image->size, why))
        fail_msg("%s", why);
    return gguf;
}

/* ---- what is read ---- */

static void put_raw_pair(struct image_writer *w, const char *key, uint32_t type, const void *value,
                         size_t bytes)
{
    gguf_put_string(&w->gguf, key, strlen(key));
    gguf_put_u32(&w->gguf, type);
    gguf_write_data(&w->gguf, value, bytes);
    w->gguf.pairs_left--;
}

static void every_type_of_value_is_read(void **state)
{
    (void)state;
    const uint64_t wide = 5;
    const int32_t minus = -1;
    const double real = 0.25;
    struct image_writer w;
    image_begin(&w, 0, 12);
    put_raw_pair(&w, "u8", GGUF_U8, "\xff", 1);
    put_raw_pair(&w, "i8", GGUF_I8, "\x7f", 1);
    put_raw_pair(&w, "u16", GGUF_U16, "\x01\x02", 2);
    put_raw_pair(&w, "i16", GGUF_I16, "\x01\x02", 2);
    gguf_write_u32(&w.gguf, "u32", 7);
    put_raw_pair(&w, "i32", GGUF_I32, &minus, 4);
    gguf_write_f32(&w.gguf, "f32", 1.5f);
    gguf_write_bool(&w.gguf, "bool", true);
    gguf_write_string(&w.gguf, "string", "text");
    put_raw_pair(&w, "u64", GGUF_U64, &wide, 8);
    put_raw_pair(&w, "i64", GGUF_I64, &wide, 8);
    put_raw_pair(&w, "f64", GGUF_F64, &real, 8);
    struct image image = image_end(&w);
    struct gguf g = accept(&image);

    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"u8", 255}, {"i8", 127}, {"u16", 513}, {"i16", 513},
                   {"u32", 7},  {"u64", 5},  {"i64", 5}};
    uint32_t number;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        assert_int_equal(gguf_get_u32(&g, numbers[i].key, &number, why), 0);
        assert_int_equal(number, numbers[i].value);
    }
    float f;
    bool b;
    struct gguf_string s;
    assert_int_equal(gguf_get_f32(&g, "f32", &f, why), 0);
    assert_true(f == 1.5f);
    assert_int_equal(gguf_get_f32(&g, "f64", &f, why), 0);
    assert_true(f == 0.25f);
    assert_int_equal(gguf_get_bool(&g, "bool", &b, why), 0);
    assert_true(b);
    assert_int_equal(gguf_get_string(&g, "string", &s, why), 0);
    assert_true(gguf_string_is(s, "text"));

    number = 99;
    assert_int_equal(gguf_get_u32(&g, "i32", &number, why), -EPROTO); /* negative */
    assert_int_equal(gguf_get_u32(&g, "f32", &number, why), -EPROTO);
    assert_int_equal(gguf_get_u32(&g, "none", &number, why), -ENOENT);
    assert_int_equal(gguf_get_f32(&g, "u32", &f, why), -EPROTO);
    assert_int_equal(gguf_get_bool(&g, "u8", &b, why), -EPROTO);
    assert_int_equal(gguf_get_string(&g, "u8", &s, why), -EPROTO);
    assert_int_equal(number, 99);
    gguf_fini(&g);
    image_free(&image);
}

static void arrays_are_read_and_nested_ones_skipped(void **state)
{
    (void)state;
    struct image_writer w;
    image_begin(&w, 0, 3);
    gguf_write_array(&w.gguf, "words", GGUF_STRING, 2);
    gguf_put_string(&w.gguf, "one", 3);
    gguf_put_string(&w.gguf, "", 0);
    gguf_write_array(&w.gguf, "nested", GGUF_ARRAY, 1);
    gguf_put_u32(&w.gguf, GGUF_U8);
    image_put_u64(&w, 3);
    gguf_write_data(&w.gguf, "abc", 3);
    gguf_write_u32(&w.gguf, "after", 4);
    struct image image = image_end(&w);
    struct gguf g = accept(&image);
    const struct gguf_pair *words, *wrong;
    size_t at = 0;
    uint32_t after;
    assert_int_equal(gguf_get_array(&g, "words", GGUF_STRING, &words, why), 0);
    assert_int_equal(words->count, 2);
    assert_true(gguf_string_is(gguf_next_string(words, &at), "one"));
    assert_true(gguf_string_is(gguf_next_string(words, &at), ""));
    assert_int_equal(at, words->payload_bytes);
    assert_int_equal(gguf_get_u32(&g, "after", &after, why), 0);
    assert_int_equal(after, 4);
    assert_int_equal(gguf_get_array(&g, "words", GGUF_U8, &wrong, why), -EPROTO);
    assert_int_equal(gguf_get_array(&g, "after", GGUF_U32, &wrong, why), -EPROTO);
    assert_int_equal(gguf_get_u32(&g, "words", &after, why), -EPROTO);
    gguf_fini(&g);
    image_free(&image);
}

/* Two tensors of 8 floats each, with an alignment of the file's own. */
static struct image two_tensors(uint32_t alignment, const char *first, const char *second,
                                uint64_t second_offset)
{
    const uint64_t dims[] = {8};
    static const char data[4096];
    struct image_writer w;
    image_begin(&w, 2, alignment ? 1 : 0);
    if (alignment)
        gguf_write_u32(&w.gguf, "general.alignment", alignment);
    image_raw_tensor(&w, first, 1, dims, LLM_F32, 0);
    image_raw_tensor(&w, second, 1, dims, LLM_F32, second_offset);
    gguf_write_data(&w.gguf, data, sizeof(data));
    return image_end(&w);
}

static void tensors_lie_where_the_alignment_puts_them(void **state)
{
    (void)state;
    const uint32_t alignments[] = {0, 8, 64, 1024};
    for (size_t i = 0; i < ARRAY_LEN(alignments); i++) {
        uint32_t unit = alignments[i] ? alignments[i] : GGUF_ALIGNMENT;
        struct image image = two_tensors(alignments[i], "a", "b", unit < 32 ? 32 : unit);
        struct gguf g = accept(&image);
        const struct llm_tensor *a = llm_tensor_table_find(&g.tensors, "a");
        const struct llm_tensor *b = llm_tensor_table_find(&g.tensors, "b");
        assert_non_null(a);
        assert_non_null(b);
        assert_null(llm_tensor_table_find(&g.tensors, "c"));
        assert_int_equal(((const char *)a->data - image.bytes) % unit, 0);
        assert_int_equal((const char *)b->data - (const char *)a->data, unit < 32 ? 32 : unit);
        assert_int_equal(a->dims[1], 1);
        assert_int_equal(a->bytes, 32);
        gguf_fini(&g);
        image_free(&image);
    }
}

static void version_two_is_read(void **state)
{
    (void)state;
    struct image image = two_tensors(0, "a", "b", 32);
    wire_store32(image.bytes + 4, 2);
    struct gguf g = accept(&image);
    assert_int_equal(g.version, 2);
    gguf_fini(&g);
    image_free(&image);
}

/* ---- what is refused ---- */

static void other_versions_are_named(void **state)
{
    (void)state;
    const uint32_t versions[] = {0, 1, 4, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        struct image image = two_tensors(0, "a", "b", 32);
        wire_store32(image.bytes + 4, versions[i]);
        refuse(image, -EOPNOTSUPP, "version");
    }
    struct image image = two_tensors(0, "a", "b", 32);
    wire_store32(image.bytes + 4, 3u << 24);
    refuse(image, -EOPNOTSUPP, "big-endian");
}

static void counts_past_the_file_are_refused_before_memory_is_taken(void **state)
{
    (void)state;
    const uint64_t counts[] = {3,          4000,       LLM_TENSORS_MAX + 1,
                               UINT32_MAX, UINT64_MAX, UINT64_MAX / 120 + 1};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        struct image image = two_tensors(0, "a", "b", 32);
        wire_store64(image.bytes + 8, counts[i]);
        refuse(image, -EPROTO, i ? "tensors: more than the file holds; a cut-off" : "tensor");
        image = two_tensors(0, "a", "b", 32);
        wire_store64(image.bytes + 16, counts[i]);
        refuse(image, -EPROTO, i ? "pairs: more than the file holds; a cut-off" : "metadata");
    }
}

static void lengths_past_the_file_are_refused(void **state)
{
    (void)state;
    const uint64_t lengths[] = {100, UINT32_MAX, UINT64_MAX, UINT64_MAX - 7, INT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        struct image_writer w;
        image_begin(&w, 0, 1);
        gguf_write_string(&w.gguf, "key", "value");
        struct image image = image_end(&w);
        struct image other = image_prefix(&image, image.size);
        wire_store64(image.bytes + 24, lengths[i]); /* of the key */
        refuse(image, -EPROTO, "damaged; a cut-off download?");
        wire_store64(other.bytes + 24 + 8 + 3 + 4, lengths[i]); /* of the value */
        refuse(other, -EPROTO, "key");
    }
}

static void array_counts_past_the_file_are_refused(void **state)
{
    (void)state;
    const enum gguf_type types[] = {GGUF_U8, GGUF_F64, GGUF_STRING, GGUF_ARRAY};
    const uint64_t counts[] = {9, UINT64_MAX, UINT64_MAX / 8 + 2, (uint64_t)1 << 61};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
            struct image_writer w;
            image_begin(&w, 0, 1);
            gguf_write_array(&w.gguf, "key", types[t], counts[c]);
            image_put_u64(&w, 0);
            refuse(image_end(&w), -EPROTO, "key");
        }
    }
}

static void arrays_nest_only_so_deep(void **state)
{
    (void)state;
    for (int depth = 1; depth <= GGUF_ARRAY_DEPTH_MAX + 2; depth++) {
        struct image_writer w;
        image_begin(&w, 0, 1);
        gguf_write_array(&w.gguf, "key", depth > 1 ? GGUF_ARRAY : GGUF_U8, 1);
        for (int d = 1; d < depth; d++) {
            gguf_put_u32(&w.gguf, d < depth - 1 ? GGUF_ARRAY : GGUF_U8);
            image_put_u64(&w, 1);
        }
        gguf_write_data(&w.gguf, "x", 1);
        struct image image = image_end(&w);
        struct gguf g;
        bool fits = depth <= GGUF_ARRAY_DEPTH_MAX;
        assert_int_equal(gguf_init(&g, image.bytes, image.size, why), fits ? 0 : -EPROTO);
        if (fits)
            gguf_fini(&g);
        image_free(&image);
    }
}

static void unknown_types_and_other_booleans_are_refused(void **state)
{
    (void)state;
    struct image_writer w;
    image_begin(&w, 0, 1);
    put_raw_pair(&w, "key", GGUF_TYPES, "\0\0\0\0\0\0\0", 8);
    refuse(image_end(&w), -EPROTO, "key");
    image_begin(&w, 0, 1);
    put_raw_pair(&w, "flag", GGUF_BOOL, "\2", 1);
    refuse(image_end(&w), -EPROTO, "flag");
    image_begin(&w, 0, 1);
    gguf_write_array(&w.gguf, "flags", GGUF_BOOL, 2);
    gguf_write_data(&w.gguf, "\1\2", 2);
    refuse(image_end(&w), -EPROTO, "flags");
}

static void keys_are_unique_and_not_empty(void **state)
{
    (void)state;
    struct image_writer w;
    image_begin(&w, 0, 2);
    gguf_write_u32(&w.gguf, "key", 1);
    gguf_write_u32(&w.gguf, "key", 2);
    refuse(image_end(&w), -EPROTO, "twice");
    image_begin(&w, 0, 1);
    gguf_write_u32(&w.gguf, "", 1);
    refuse(image_end(&w), -EPROTO, "damaged");
}

static void tensor_names_are_unique_and_usable(void **state)
{
    (void)state;
    char long_name[LLM_NAME_CHARS + 1];
    memset(long_name, 'n', LLM_NAME_CHARS);
    long_name[LLM_NAME_CHARS] = 0;
    refuse(two_tensors(0, "a", "a", 32), -EPROTO, "twice");
    refuse(two_tensors(0, "a", "", 32), -EPROTO, "name");
    refuse(two_tensors(0, "a", long_name, 32), -EPROTO, "name");
    struct image image = two_tensors(0, "abcd", "b", 32);
    image_patch(&image, "abcd", "ab\0d", 4);
    refuse(image, -EPROTO, "name");
}

static void overlapping_tensors_are_refused(void **state)
{
    (void)state;
    refuse(two_tensors(0, "a", "b", 0), -EPROTO, "share");
    refuse(two_tensors(8, "a", "b", 24), -EPROTO, "share");
    struct image image = two_tensors(8, "a", "b", 32); /* touching is fine */
    struct gguf g = accept(&image);
    gguf_fini(&g);
    image_free(&image);
}

static void offsets_are_aligned_and_inside(void **state)
{
    (void)state;
    refuse(two_tensors(0, "a", "b", 33), -EPROTO, "multiple");
    const uint64_t offsets[] = {4096, 1 << 20, (uint64_t)1 << 63, UINT64_MAX - 31};
    for (size_t i = 0; i < ARRAY_LEN(offsets); i++)
        refuse(two_tensors(0, "a", "b", offsets[i]), -EPROTO, "past the file");
}

static void alignments_are_powers_of_two(void **state)
{
    (void)state;
    const uint32_t bad[] = {1, 4, 24, 33, GGUF_ALIGNMENT_MAX * 2, 1u << 31};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        refuse(two_tensors(bad[i], "a", "b", 64), -EPROTO, "general.alignment");
    struct image_writer w;
    image_begin(&w, 0, 1);
    gguf_write_string(&w.gguf, "general.alignment", "32");
    refuse(image_end(&w), -EPROTO, "general.alignment");
}

static struct image one_tensor(uint32_t dim_count, const uint64_t *dims, uint32_t type)
{
    static const char data[1024];
    struct image_writer w;
    image_begin(&w, 1, 0);
    image_raw_tensor(&w, "weights", dim_count, dims, type, 0);
    gguf_write_data(&w.gguf, data, sizeof(data));
    return image_end(&w);
}

static void dimensions_out_of_bounds_are_refused(void **state)
{
    (void)state;
    const struct {
        uint32_t count;
        uint64_t dims[6];
    } bad[] = {
        {0, {0}},
        {5, {1, 1, 1, 1, 1}},
        {1, {0}},
        {2, {8, 0}},
        {1, {UINT64_MAX}},
        {2, {UINT64_MAX, 2}},
        {2, {(uint64_t)1 << 32, (uint64_t)1 << 32}},
        {4, {(uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16}},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        refuse(one_tensor(bad[i].count, bad[i].dims, LLM_F32), -EPROTO, "weights");
    const uint64_t large[] = {(uint64_t)1 << 40};
    refuse(one_tensor(1, large, LLM_F32), -EPROTO, "past the file");
}

static void types_are_known_and_rows_whole_blocks(void **state)
{
    (void)state;
    const uint64_t row[] = {64}, odd[] = {33}, half[] = {128};
    refuse(one_tensor(1, row, 16), -EOPNOTSUPP, "IQ2_XXS");
    refuse(one_tensor(1, row, 4), -EOPNOTSUPP, "unknown");
    refuse(one_tensor(1, row, UINT32_MAX), -EOPNOTSUPP, "unknown");
    refuse(one_tensor(1, odd, LLM_Q8_0), -EPROTO, "blocks");
    refuse(one_tensor(1, half, LLM_Q4_K), -EPROTO, "blocks");
}

static void other_files_are_not_gguf(void **state)
{
    (void)state;
    struct gguf g;
    assert_int_equal(gguf_init(&g, "", 0, why), -EPROTO);
    assert_int_equal(gguf_init(&g, "GGU", 3, why), -EPROTO);
    assert_int_equal(gguf_init(&g, "ELF!aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 32, why), -EPROTO);
    assert_int_equal(gguf_init(&g, "GGUF", 4, why), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_of_value_is_read),
        cmocka_unit_test(arrays_are_read_and_nested_ones_skipped),
        cmocka_unit_test(tensors_lie_where_the_alignment_puts_them),
        cmocka_unit_test(version_two_is_read),
        cmocka_unit_test(other_versions_are_named),
        cmocka_unit_test(counts_past_the_file_are_refused_before_memory_is_taken),
        cmocka_unit_test(lengths_past_the_file_are_refused),
        cmocka_unit_test(array_counts_past_the_file_are_refused),
        cmocka_unit_test(arrays_nest_only_so_deep),
        cmocka_unit_test(unknown_types_and_other_booleans_are_refused),
        cmocka_unit_test(keys_are_unique_and_not_empty),
        cmocka_unit_test(tensor_names_are_unique_and_usable),
        cmocka_unit_test(overlapping_tensors_are_refused),
        cmocka_unit_test(offsets_are_aligned_and_inside),
        cmocka_unit_test(alignments_are_powers_of_two),
        cmocka_unit_test(dimensions_out_of_bounds_are_refused),
        cmocka_unit_test(types_are_known_and_rows_whole_blocks),
        cmocka_unit_test(other_files_are_not_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
