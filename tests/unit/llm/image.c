#include "image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/le.h"

void image_begin(struct image_writer *w, uint64_t tensors, uint64_t pairs)
{
    w->image = (struct image){0};
    w->out = open_memstream(&w->image.bytes, &w->image.size);
    assert_non_null(w->out);
    gguf_write_begin(&w->gguf, w->out, tensors, pairs);
}

struct image image_end(struct image_writer *w)
{
    assert_int_equal(fclose(w->out), 0);
    return w->image;
}

void image_free(struct image *image)
{
    free(image->bytes);
    *image = (struct image){0};
}

void image_put_u64(struct image_writer *w, uint64_t value)
{
    uint8_t bytes[8];
    wire_store64(bytes, value);
    gguf_write_data(&w->gguf, bytes, sizeof(bytes));
}

void image_raw_tensor(struct image_writer *w, const char *name, uint32_t dim_count,
                      const uint64_t *dims, uint32_t type, uint64_t offset)
{
    gguf_put_string(&w->gguf, name, strlen(name));
    gguf_put_u32(&w->gguf, dim_count);
    for (uint32_t i = 0; i < dim_count; i++)
        image_put_u64(w, dims[i]);
    gguf_put_u32(&w->gguf, type);
    image_put_u64(w, offset);
    w->gguf.tensors_left--;
}

struct llm_synth image_tiny(enum llm_arch arch)
{
    struct llm_synth synth = {
        .config = {.arch = arch,
                   .layers = 1,
                   .width = 8,
                   .heads = 2,
                   .ffn = 4,
                   .vocab = LLM_SYNTH_VOCAB_MIN,
                   .context = 4},
        .dtype = LLM_F32,
        .seed = 7,
    };
    llm_synth_complete(&synth.config);
    return synth;
}

static struct image slurp(const char *path)
{
    struct stat st;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &st), 0);
    struct image image = {.bytes = malloc((size_t)st.st_size), .size = (size_t)st.st_size};
    assert_non_null(image.bytes);
    assert_int_equal(fread(image.bytes, 1, image.size, file), image.size);
    fclose(file);
    return image;
}

struct image image_synth(const struct llm_synth *synth)
{
    char folder[] = "/tmp/hawser-test-llm-XXXXXX", path[64], why[LLM_WHY_CHARS];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/model.gguf", folder);
    if (llm_synth_write(synth, path, why))
        fail_msg("%s", why);
    struct image image = slurp(path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left there */
    return image;
}

void image_patch(struct image *image, const void *old, const void *new, size_t bytes)
{
    char *at = memmem(image->bytes, image->size, old, bytes);
    assert_non_null(at);
    memcpy(at, new, bytes);
}

struct image image_prefix(const struct image *image, size_t size)
{
    struct image prefix = {.bytes = malloc(size ? size : 1), .size = size};
    assert_non_null(prefix.bytes);
    memcpy(prefix.bytes, image->bytes, size);
    return prefix;
}
