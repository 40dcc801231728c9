#include "llm/model/format/split.h"

#include "llm/model/file.h"
#include "llm/model/why.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DIGITS = 5, ENDING_CHARS = 1 + DIGITS + 4 + DIGITS + 5 }; /* "-00001-of-00003.gguf" */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + LLM_PART_ALIGN - 1) / LLM_PART_ALIGN * LLM_PART_ALIGN;
}

/* ---- names ---- */

static bool parse_digits(const char *text, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        value = 10 * value + (uint32_t)(text[i] - '0');
    }
    *out = value;
    return true;
}

bool llm_split_parse_name(const char *path, uint32_t *no, uint32_t *count, size_t *stem)
{
    size_t chars = strlen(path);
    if (chars < ENDING_CHARS)
        return false;
    const char *ending = path + chars - ENDING_CHARS;
    if (ending[0] != '-' || strncmp(ending + 1 + DIGITS, "-of-", 4) != 0 ||
        strcmp(ending + 1 + DIGITS + 4 + DIGITS, ".gguf") != 0)
        return false;
    *stem = chars - ENDING_CHARS;
    return parse_digits(ending + 1, no) && parse_digits(ending + 1 + DIGITS + 4, count);
}

char *llm_split_name(const char *path, uint32_t no, uint32_t count, size_t stem)
{
    char *name;
    return asprintf(&name, "%.*s-%05u-of-%05u.gguf", (int)stem, path, no, count) < 0 ? NULL : name;
}

/* ---- the parts in memory ---- */

/* Keys that a part must have; *has tells whether they are there at all. */
static int read_place(const struct gguf *gguf, uint32_t *no, uint32_t *count, bool *has, char *why)
{
    int err = gguf_get_u32(gguf, "split.count", count, why);
    *has = err != -ENOENT;
    if (err == -ENOENT)
        return 0;
    if (!err)
        err = gguf_get_u32(gguf, "split.no", no, why);
    return err == -ENOENT ? llm_why(why, -EPROTO, "split.count is there and split.no is not") : err;
}

static int check_part(const struct gguf *part, uint32_t number, uint32_t count, char *why)
{
    uint32_t no = 0, parts = 0;
    bool has;
    int err = read_place(part, &no, &parts, &has, why);
    if (err)
        return err;
    if (!has || no != number || parts != count)
        return llm_why(why, -EPROTO, "it says that it is part %u of %u: a file of another model?",
                       no + 1, parts);
    return 0;
}

struct parts {
    struct gguf *items; /* of the second part on */
    uint32_t count;
    uint64_t tensors; /* of all */
};

static void parts_fini(struct parts *parts)
{
    for (uint32_t i = 0; i < parts->count; i++)
        gguf_fini(&parts->items[i]);
    free(parts->items);
}

/* Where the part after one that ends at `end` begins: trailing bytes of a file may reach past one
 * more multiple, not two.  0: nowhere. */
static uint64_t find_part(const uint8_t *bytes, uint64_t size, uint64_t end)
{
    for (uint64_t at = aligned(end), tries = 0; tries < 2; at += LLM_PART_ALIGN, tries++) {
        if (at < size && gguf_is(bytes + at, size - at))
            return at;
    }
    return 0;
}

static int read_parts(struct parts *parts, uint32_t count, const uint8_t *bytes, uint64_t size,
                      uint64_t end, char *why)
{
    char cause[LLM_WHY_CHARS];
    for (uint32_t number = 1; number < count; number++) {
        uint64_t at = find_part(bytes, size, end);
        if (at == 0)
            return llm_why(why, -EPROTO,
                           "part %u of %u is missing; open the file whose name ends with "
                           "-00001-of-%05u.gguf, with all others beside it",
                           number + 1, count, count);
        struct gguf *part = &parts->items[parts->count];
        int err = gguf_init(part, bytes + at, size - at, cause);
        if (!err) {
            parts->count++;
            parts->tensors += part->tensors.count;
            err = check_part(part, number, count, cause);
        }
        if (err)
            return llm_why(why, err, "part %u of %u: %s", number + 1, count, cause);
        end = at + part->end;
    }
    return 0;
}

static int check_tensor_count(const struct gguf *first, uint64_t tensors, char *why)
{
    uint32_t told = 0;
    int err = gguf_get_u32(first, "split.tensors.count", &told, why);
    if (err == -ENOENT)
        return 0;
    if (err)
        return err;
    if (told != tensors)
        return llm_why(why, -EPROTO,
                       "the parts hold %" PRIu64 " tensors; split.tensors.count is %u", tensors,
                       told);
    return 0;
}

static int join_tables(struct gguf *first, const struct parts *parts, char *why)
{
    struct llm_tensor_table all;
    if (parts->tensors > LLM_TENSORS_MAX)
        return llm_why(why, -EPROTO, "%" PRIu64 " tensors; %d at most", parts->tensors,
                       LLM_TENSORS_MAX);
    if (llm_tensor_table_init(&all, (uint32_t)parts->tensors))
        return llm_why(why, -ENOMEM, "out of memory for the table of tensors");
    uint32_t filled = first->tensors.count;
    memcpy(all.items, first->tensors.items, filled * sizeof(*all.items));
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct llm_tensor_table *from = &parts->items[i].tensors;
        memcpy(all.items + filled, from->items, from->count * sizeof(*all.items));
        filled += from->count;
    }
    assert(filled == all.count);
    int err = llm_tensor_table_seal(&all, why);
    if (err) {
        llm_tensor_table_fini(&all);
        return err;
    }
    llm_tensor_table_fini(&first->tensors);
    first->tensors = all;
    return 0;
}

int llm_split_join(struct gguf *first, const void *bytes, uint64_t size, char *why)
{
    uint32_t no = 0, count = 0;
    bool has;
    int err = read_place(first, &no, &count, &has, why);
    if (err || !has || count <= 1)
        return err;
    if (count > LLM_PARTS_MAX)
        return llm_why(why, -EPROTO, "split.count is %u; %d at most", count, LLM_PARTS_MAX);
    if (no != 0)
        return llm_why(why, -EPROTO,
                       "this is part %u of %u; open the first, whose name ends with "
                       "-00001-of-%05u.gguf",
                       no + 1, count, count);
    struct parts parts = {.items = calloc(count, sizeof(*parts.items)),
                          .tensors = first->tensors.count};
    if (!parts.items)
        return llm_why(why, -ENOMEM, "out of memory for %u parts", count);
    err = read_parts(&parts, count, bytes, size, first->end, why);
    if (!err)
        err = check_tensor_count(first, parts.tensors, why);
    if (!err)
        err = join_tables(first, &parts, why);
    parts_fini(&parts);
    return err;
}

/* ---- files ---- */

struct source {
    int fd;
    uint64_t size;
};

static int open_parts(const char *path, uint32_t count, size_t stem, struct source *sources,
                      uint32_t *opened, char *why)
{
    int err = 0;
    for (*opened = 0; *opened < count && !err;) {
        char *name = llm_split_name(path, *opened + 1, count, stem);
        if (!name)
            return llm_why(why, -ENOMEM, "out of memory");
        err = llm_file_open_regular(name, ", not a part of a model", &sources[*opened].fd,
                                    &sources[*opened].size, why);
        free(name);
        *opened += err == 0;
    }
    return err;
}

/* Zeros fill the gaps between the parts. */
static int map_parts(const struct source *sources, uint32_t count, void **mapping, uint64_t *size,
                     char *why)
{
    uint64_t total = 0, at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (sources[i].size > SIZE_MAX / 4 - total)
            return llm_why(why, -EPROTO, "the parts are too large");
        total += aligned(sources[i].size);
    }
    uint8_t *map =
        mmap(NULL, (size_t)total, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return llm_why(why, -errno, "no address space for %" PRIu64 " bytes: %s", total,
                       strerror(errno));
    for (uint32_t i = 0; i < count; at += aligned(sources[i].size), i++) {
        if (mmap(map + at, (size_t)sources[i].size, PROT_READ, MAP_SHARED | MAP_FIXED,
                 sources[i].fd, 0) == MAP_FAILED) {
            int err =
                llm_why(why, -errno, "cannot map part %u of %u: %s", i + 1, count, strerror(errno));
            munmap(map, (size_t)total);
            return err;
        }
    }
    *mapping = map;
    *size = total;
    return 0;
}

/* Each part within its own file: in one range, a part that is cut off would end in the zeros that
 * follow it. */
static int check_files(const struct source *sources, uint32_t count, const uint8_t *map, char *why)
{
    char cause[LLM_WHY_CHARS];
    for (uint32_t i = 0; i < count; map += aligned(sources[i].size), i++) {
        struct gguf part;
        int err = gguf_init(&part, map, sources[i].size, cause);
        if (err)
            return llm_why(why, err, "part %u of %u: %s", i + 1, count, cause);
        gguf_fini(&part);
    }
    return 0;
}

int llm_split_map(const char *path, uint32_t count, size_t stem, void **mapping, uint64_t *size,
                  char *why)
{
    if (count == 0 || count > LLM_PARTS_MAX)
        return llm_why(why, -EPROTO, "%s names %u parts; 1 to %d are possible", path, count,
                       LLM_PARTS_MAX);
    struct source *sources = calloc(count, sizeof(*sources));
    uint32_t opened = 0;
    void *map = NULL;
    uint64_t total = 0;
    if (!sources)
        return llm_why(why, -ENOMEM, "out of memory for %u parts", count);
    int err = open_parts(path, count, stem, sources, &opened, why);
    if (!err)
        err = map_parts(sources, count, &map, &total, why);
    if (!err)
        err = check_files(sources, count, map, why);
    if (err && map)
        munmap(map, (size_t)total);
    for (uint32_t i = 0; i < opened; i++)
        close(sources[i].fd);
    free(sources);
    if (err)
        return err;
    *mapping = map;
    *size = total;
    return 0;
}
