/* Models in several files: joined, and refused where a part is missing or wrong. */
#include "unit.h"

#include "image.h"
#include "llm/model/file.h"
#include "llm/model/format/split.h"
#include "llm/tokenizer/vocab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTS = 3, TENSORS_EACH = 4 };

static char why[LLM_WHY_CHARS];

struct model {
    struct image whole;
    struct gguf gguf;
    char folder[40];
};

static void path_of(const struct model *m, uint32_t part, char path[96])
{
    snprintf(path, 96, "%s/m-%05u-of-%05u.gguf", m->folder, part + 1, PARTS);
}

/* The tensors of a part; the last takes the rest. */
static void span_of(const struct model *m, uint32_t part, uint32_t *first, uint32_t *end)
{
    *first = part * TENSORS_EACH;
    *end = part + 1 < PARTS ? *first + TENSORS_EACH : m->gguf.tensors.count;
}

/* What the keys of a part say. */
struct told {
    uint32_t no, count, tensors;
};

static void write_part(const struct model *m, uint32_t part, struct told told)
{
    char path[96];
    struct gguf_writer w;
    uint32_t first, end, pairs = part == 0 ? m->gguf.pair_count : 0;
    span_of(m, part, &first, &end);
    path_of(m, part, path);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    gguf_write_begin(&w, out, end - first, pairs + 3);
    for (uint32_t i = 0; i < pairs; i++)
        gguf_write_pair(&w, &m->gguf.pairs[i]);
    gguf_write_u32(&w, "split.no", told.no);
    gguf_write_u32(&w, "split.count", told.count);
    gguf_write_u32(&w, "split.tensors.count", told.tensors);
    for (uint32_t i = first; i < end; i++) {
        const struct llm_tensor *t = &m->gguf.tensors.items[i];
        gguf_write_tensor(&w, t->name, t->dtype, t->dims, t->dim_count);
    }
    gguf_write_pad(&w);
    for (uint32_t i = first; i < end; i++) {
        gguf_write_data(&w, m->gguf.tensors.items[i].data, m->gguf.tensors.items[i].bytes);
        gguf_write_pad(&w);
    }
    assert_int_equal(gguf_write_end(&w), 0);
    assert_int_equal(fclose(out), 0);
}

static void write_all(const struct model *m)
{
    for (uint32_t i = 0; i < PARTS; i++)
        write_part(m, i, (struct told){i, PARTS, m->gguf.tensors.count});
}

static int setup(void **state)
{
    struct model *m = calloc(1, sizeof *m);
    struct llm_synth synth = image_tiny(LLM_LLAMA);
    synth.config.vocab = 4096; /* the parts are larger than the distance between them */
    m->whole = image_synth(&synth);
    strcpy(m->folder, "/tmp/hawser-test-split-XXXXXX");
    assert_non_null(mkdtemp(m->folder));
    assert_int_equal(gguf_init(&m->gguf, m->whole.bytes, m->whole.size, why), 0);
    assert_true(m->gguf.tensors.count > PARTS * TENSORS_EACH - 1);
    write_all(m);
    *state = m;
    return 0;
}

static int teardown(void **state)
{
    struct model *m = *state;
    char path[96];
    for (uint32_t i = 0; i < PARTS; i++) {
        path_of(m, i, path);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(m->folder), 0);
    gguf_fini(&m->gguf);
    image_free(&m->whole);
    free(m);
    return 0;
}

static void same_tensors(const struct model *m, const struct llm_file *file)
{
    assert_int_equal(llm_file_tensor_count(file), m->gguf.tensors.count);
    for (uint32_t i = 0; i < m->gguf.tensors.count; i++) {
        const struct llm_tensor *want = &m->gguf.tensors.items[i];
        const struct llm_tensor *got = llm_file_find(file, want->name);
        assert_non_null(got);
        assert_int_equal(got->bytes, want->bytes);
        assert_memory_equal(got->data, want->data, want->bytes);
    }
}

static void the_first_name_opens_all_parts(void **state)
{
    struct model *m = *state;
    struct llm_file *file, *again;
    char path[96];
    uint64_t size;
    path_of(m, 0, path);
    if (llm_file_open(path, &file, why))
        fail_msg("%s", why);
    same_tensors(m, file);
    /* What a client would send is a model, too. */
    const void *bytes = llm_file_bytes(file, &size);
    if (llm_file_parse(bytes, size, &again, why))
        fail_msg("%s", why);
    same_tensors(m, again);
    llm_file_close(again);
    llm_file_close(file);
}

/* What a worker gives to a front: the first part up to its data, which knows the vocabulary also
 * where the embedding is in another part. */
static void the_header_of_the_first_part_is_enough_for_a_front(void **state)
{
    struct model *m = *state;
    char path[96];
    for (int embedding_elsewhere = 0; embedding_elsewhere < 2; embedding_elsewhere++) {
        struct llm_file *file, *front;
        struct llm_vocab *vocab;
        uint64_t size;
        path_of(m, 0, path);
        if (llm_file_open(path, &file, why))
            fail_msg("%s", why);
        uint64_t bytes = llm_file_header_bytes(file);
        void *header = malloc(bytes);
        memcpy(header, llm_file_bytes(file, &size), bytes);
        if (embedding_elsewhere) {
            char *name = memmem(header, bytes, "token_embd.weight", 17);
            assert_non_null(name);
            name[0] = 'T';
        }
        if (llm_file_parse_header(header, bytes, &front, why))
            fail_msg("%s", why);
        assert_int_equal(llm_file_config(front)->vocab, llm_file_config(file)->vocab);
        assert_int_equal(llm_vocab_create(front, NULL, &vocab, why), 0);
        llm_vocab_destroy(vocab);
        llm_file_close(front);
        llm_file_close(file);
        free(header);
    }
}

/* Each part is looked at; one that is gone or replaced is still mapped. */
static void a_part_that_is_overwritten_is_named(void **state)
{
    struct model *m = *state;
    struct llm_file *file;
    char first[96], second[96], third[96];
    path_of(m, 0, first);
    path_of(m, 1, second);
    path_of(m, 2, third);
    assert_int_equal(llm_file_open(first, &file, why), 0);
    assert_int_equal(llm_file_check(file, why), 0);
    assert_int_equal(rename(second, third), 0);
    assert_int_equal(llm_file_check(file, why), 0);
    assert_int_equal(truncate(first, 5), 0);
    assert_int_equal(llm_file_check(file, why), -ESTALE);
    assert_non_null(strstr(why, "m-00001-of-00003.gguf was overwritten"));
    llm_file_close(file);
}

static void refuse(const struct model *m, uint32_t part, int err, const char *phrase)
{
    char path[96];
    struct llm_file *file;
    path_of(m, part, path);
    assert_int_equal(llm_file_open(path, &file, why), err);
    if (!strstr(why, phrase))
        fail_msg("'%s' does not say '%s'", why, phrase);
}

static void a_part_that_is_not_the_first_is_refused(void **state)
{
    refuse(*state, 1, -EPROTO, "part 2 of 3; open the first");
}

static void a_missing_part_is_named(void **state)
{
    struct model *m = *state;
    char path[96];
    path_of(m, 2, path);
    assert_int_equal(unlink(path), 0);
    refuse(m, 0, -ENOENT, "m-00003-of-00003.gguf");
    assert_int_equal(mkdir(path, 0700), 0);
    refuse(m, 0, -EPROTO, "no regular file");
    assert_int_equal(rmdir(path), 0);
    fclose(fopen(path, "wb"));
    refuse(m, 0, -EPROTO, "is empty");
}

static void parts_of_other_models_are_refused(void **state)
{
    struct model *m = *state;
    uint32_t all = m->gguf.tensors.count;
    write_part(m, 1, (struct told){2, PARTS, all});
    refuse(m, 0, -EPROTO, "part 2 of 3: it says that it is part 3 of 3");
    write_part(m, 1, (struct told){1, PARTS + 1, all});
    refuse(m, 0, -EPROTO, "part 2 of 3: it says that it is part 2 of 4");
    write_all(m);
    write_part(m, 0, (struct told){0, PARTS, all + 1});
    refuse(m, 0, -EPROTO, "split.tensors.count");
    write_part(m, 0, (struct told){0, PARTS + 1, all});
    refuse(m, 0, -EPROTO, "part 2 of 4");
    write_part(m, 0, (struct told){0, LLM_PARTS_MAX + 1, all});
    refuse(m, 0, -EPROTO, "at most");
}

static void a_part_that_is_cut_off_is_named(void **state)
{
    struct model *m = *state;
    char path[96];
    struct stat st;
    path_of(m, 1, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 64), 0);
    refuse(m, 0, -EPROTO, "part 2 of 3: tensor");
    assert_int_equal(truncate(path, 40), 0);
    refuse(m, 0, -EPROTO, "part 2 of 3: 3 metadata pairs");
}

static void names_of_parts(void **state)
{
    (void)state;
    uint32_t no, count;
    size_t stem;
    assert_true(llm_split_parse_name("a/b-00002-of-00010.gguf", &no, &count, &stem));
    assert_int_equal(no, 2);
    assert_int_equal(count, 10);
    assert_int_equal(stem, 3);
    static const char *const others[] = {
        "-0001-of-00010.gguf",  "b-00002-of-0001x.gguf", "b.gguf", "b-00002-of-00010.bin", "",
        "b_00002-of-00010.gguf"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(llm_split_parse_name(others[i], &no, &count, &stem));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_name_opens_all_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(the_header_of_the_first_part_is_enough_for_a_front, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_part_that_is_overwritten_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_part_that_is_not_the_first_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_part_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_of_other_models_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_part_that_is_cut_off_is_named, setup, teardown),
        cmocka_unit_test(names_of_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
