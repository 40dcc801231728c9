#include "llm/model/file.h"

#include "base/text/controls.h"
#include "llm/model/format/split.h"
#include "llm/model/model.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that is mapped, or a part of one. */
struct origin {
    char *path;
    struct stat st;
};

struct llm_file {
    struct origin *origins;
    uint32_t origin_count;
    const void *bytes;
    uint64_t size;
    void *mapping; /* NULL: the caller owns the bytes */
    bool has_weights;
    struct llm_model model;
};

/* For display: control characters become '?'. */
static void copy_name(char dst[LLM_MODEL_NAME_CHARS], struct gguf_string name)
{
    size_t bytes = name.bytes < LLM_MODEL_NAME_CHARS ? name.bytes : LLM_MODEL_NAME_CHARS - 1;
    memcpy(dst, name.text, bytes);
    dst[bytes] = 0;
    hw_blank_controls(dst, bytes);
}

/* Whether other parts have the rest of the tensors: a header is the first part's alone. */
static int read_is_part(const struct gguf *gguf, bool *is_part, char *why)
{
    uint32_t count = 1;
    int err = gguf_get_u32(gguf, "split.count", &count, why);
    *is_part = count > 1;
    return err == -ENOENT ? 0 : err;
}

static int read_gguf(struct llm_model *model, const void *bytes, uint64_t size, bool has_weights,
                     char *why)
{
    int err = has_weights ? gguf_init(&model->gguf, bytes, size, why)
                          : gguf_init_header(&model->gguf, bytes, size, why);
    if (err)
        return err;
    model->has_metadata = true;
    model->tensors = &model->gguf.tensors;
    bool is_part = false;
    err = has_weights ? llm_split_join(&model->gguf, bytes, size, why)
                      : read_is_part(&model->gguf, &is_part, why);
    if (!err)
        err = llm_config_read(&model->gguf, &model->config, why);
    if (!err && !is_part)
        err = llm_config_check_tensors(&model->config, model->tensors, why);
    struct gguf_string name = {.text = ""};
    if (!err)
        err = gguf_get_string(&model->gguf, "general.name", &name, why);
    if (err && err != -ENOENT) {
        gguf_fini(&model->gguf);
        return err;
    }
    copy_name(model->name, name);
    snprintf(model->format, sizeof(model->format), "GGUF v%u", model->gguf.version);
    return 0;
}

static int parse(const void *bytes, uint64_t size, bool has_weights, struct llm_file **out,
                 char *why)
{
    if ((uintptr_t)bytes % sizeof(uint64_t))
        return llm_why(why, -EINVAL, "a model must lie at a multiple of 8 bytes");
    struct llm_file *file = calloc(1, sizeof(*file));
    if (!file)
        return llm_why(why, -ENOMEM, "out of memory");
    file->bytes = bytes;
    file->size = size;
    file->has_weights = has_weights;
    int err = gguf_is(bytes, size) || !has_weights
                  ? read_gguf(&file->model, bytes, size, has_weights, why)
                  : llm_llama2c_read(&file->model, bytes, size, why);
    if (err) {
        free(file);
        return err;
    }
    *out = file;
    return 0;
}

int llm_file_parse(const void *bytes, uint64_t size, struct llm_file **out, char *why)
{
    return parse(bytes, size, true, out, why);
}

int llm_file_parse_header(const void *bytes, uint64_t size, struct llm_file **out, char *why)
{
    return parse(bytes, size, false, out, why);
}

/* OWNER/NAME, as hubs name models, and no file. */
static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    return slash && slash != path && slash[1] && !strchr(slash + 1, '/') && path[0] != '.' &&
           !strstr(path, ".gguf") && !strstr(path, ".bin") && !strstr(path, ".safetensors");
}

int llm_file_missing(const char *path, int err, char *why)
{
    if (err == ENOENT && is_hub_name(path))
        return llm_why(
            why, -err,
            "there is no file or folder %s. If it is a model of the Hugging Face hub, download "
            "config.json, tokenizer.json, tokenizer_config.json and *.safetensors into a "
            "folder; hawser model import FOLDER makes a file of them",
            path);
    return llm_why(why, -err, "cannot open %s: %s", path, strerror(err));
}

int llm_file_open_regular(const char *path, const char * not, int *fd_out, uint64_t *size,
                          char *why)
{
    struct stat st;
    int err = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of a pipe: do not block */
    if (fd < 0)
        return llm_file_missing(path, errno, why);
    if (fstat(fd, &st))
        err = llm_why(why, -errno, "cannot look at %s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size == 0)
        err = llm_why(why, -EPROTO, "%s is %s%s", path,
                      S_ISREG(st.st_mode) ? "empty" : "no regular file", not );
    if (err) {
        close(fd);
        return err;
    }
    *fd_out = fd;
    *size = (uint64_t)st.st_size;
    return 0;
}

int llm_file_map(const char *path, const char * not, void **mapping, uint64_t *size_out, char *why)
{
    uint64_t size = 0;
    int fd = -1, err = llm_file_open_regular(path, not, &fd, &size, why);
    if (err)
        return err;
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        err = llm_why(why, -errno, "cannot map %s: %s", path, strerror(errno));
    close(fd);
    if (err)
        return err;
    /* A step reads all weights, and with small pages it waits for address translation.  A hint:
     * where the kernel has no huge pages for the file, nothing changes. */
    (void)madvise(map, size, MADV_HUGEPAGE);
    *mapping = map;
    *size_out = size;
    return 0;
}

static int note_origins(struct llm_file *file, const char *path, bool is_split, uint32_t count,
                        size_t stem)
{
    file->origins = calloc(count, sizeof *file->origins);
    if (!file->origins)
        return -ENOMEM;
    for (; file->origin_count < count; file->origin_count++) {
        struct origin *o = &file->origins[file->origin_count];
        o->path =
            is_split ? llm_split_name(path, file->origin_count + 1, count, stem) : strdup(path);
        if (!o->path)
            return -ENOMEM;
        if (stat(o->path, &o->st)) /* removed a moment ago: the mapping has it */
            o->st.st_ino = 0;
    }
    return 0;
}

int llm_file_check(const struct llm_file *file, char *why)
{
    for (uint32_t i = 0; i < file->origin_count; i++) {
        const struct origin *o = &file->origins[i];
        struct stat now;
        bool same =
            stat(o->path, &now) == 0 && now.st_dev == o->st.st_dev && now.st_ino == o->st.st_ino;
        if (same && (now.st_size != o->st.st_size || now.st_mtim.tv_sec != o->st.st_mtim.tv_sec ||
                     now.st_mtim.tv_nsec != o->st.st_mtim.tv_nsec))
            return llm_why(why, -ESTALE, "%s was overwritten after it was loaded", o->path);
    }
    return 0;
}

int llm_file_open(const char *path, struct llm_file **out, char *why)
{
    struct stat st;
    void *mapping = NULL;
    uint64_t size = 0;
    uint32_t no = 0, count = 0;
    size_t stem = 0;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return llm_why(why, -EPROTO, "%s is a folder; hawser model import %s makes a file of it",
                       path, path);
    bool is_split = llm_split_parse_name(path, &no, &count, &stem) && no == 1;
    int err = is_split ? llm_split_map(path, count, stem, &mapping, &size, why)
                       : llm_file_map(path, ", not a model", &mapping, &size, why);
    if (err)
        return err;
    char cause[LLM_WHY_CHARS];
    struct llm_file *file;
    err = llm_file_parse(mapping, size, &file, cause);
    if (err) {
        munmap(mapping, (size_t)size);
        return llm_why(why, err, "%s: %s", path, cause);
    }
    file->mapping = mapping;
    if (note_origins(file, path, is_split, is_split ? count : 1, stem)) {
        llm_file_close(file);
        return llm_why(why, -ENOMEM, "out of memory");
    }
    *out = file;
    return 0;
}

void llm_file_close(struct llm_file *file)
{
    if (!file)
        return;
    gguf_fini(&file->model.gguf);
    llm_tensor_table_fini(&file->model.own_tensors);
    for (uint32_t i = 0; i < file->origin_count; i++)
        free(file->origins[i].path);
    free(file->origins);
    if (file->mapping)
        munmap(file->mapping, (size_t)file->size);
    free(file);
}

const struct llm_config *llm_file_config(const struct llm_file *file)
{
    return &file->model.config;
}

const char *llm_file_name(const struct llm_file *file)
{
    return file->model.name;
}

const char *llm_file_format(const struct llm_file *file)
{
    return file->model.format;
}

uint64_t llm_file_header_bytes(const struct llm_file *file)
{
    return file->model.has_metadata ? file->model.gguf.header_bytes : 0;
}

bool llm_file_has_weights(const struct llm_file *file)
{
    return file->has_weights;
}

const char *llm_file_text(const struct llm_file *file, const char *key, size_t *bytes)
{
    struct gguf_string text;
    char why[LLM_WHY_CHARS];
    if (!file->model.has_metadata || gguf_get_string(&file->model.gguf, key, &text, why))
        return NULL;
    *bytes = text.bytes;
    return text.text;
}

const struct gguf *llm_file_metadata(const struct llm_file *file)
{
    return file->model.has_metadata ? &file->model.gguf : NULL;
}

uint32_t llm_file_tensor_count(const struct llm_file *file)
{
    return file->model.tensors->count;
}

const struct llm_tensor *llm_file_tensor(const struct llm_file *file, uint32_t i)
{
    assert(i < file->model.tensors->count);
    return &file->model.tensors->items[i];
}

const struct llm_tensor *llm_file_find(const struct llm_file *file, const char *name)
{
    return llm_tensor_table_find(file->model.tensors, name);
}

const void *llm_file_bytes(const struct llm_file *file, uint64_t *size)
{
    *size = file->size;
    return file->bytes;
}
