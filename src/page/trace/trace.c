#include "page/trace/trace.h"

#include "base/clock.h"
#include "base/grow.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "hawser page trace 1\n";

/* ---- writing ---- */

struct page_trace {
    FILE *file;
    uint64_t began_ns;
    uint32_t batches, ids;
    bool is_begun, is_full;
};

int page_trace_create(const char *path, struct page_trace **out)
{
    struct page_trace *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->file = fopen(path, "we");
    if (!t->file) {
        int error = errno;
        free(t);
        return -error;
    }
    *out = t;
    return 0;
}

int page_trace_destroy(struct page_trace *t)
{
    if (!t)
        return 0;
    int rc = ferror(t->file) ? -EIO : 0;
    if (fclose(t->file) && rc == 0)
        rc = -errno;
    free(t);
    return rc;
}

void page_trace_begin(struct page_trace *t, uint32_t ids, uint64_t bytes)
{
    t->is_full = t->is_begun;
    if (t->is_begun)
        return;
    t->is_begun = true;
    t->began_ns = hw_now_ns();
    fprintf(t->file, "%sids %" PRIu32 " bytes %" PRIu64 "\n", magic, ids, bytes);
}

/* Neighbours that go up are one range. */
static void write_ids(FILE *file, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;
        while (end < count && ids[end] == ids[end - 1] + 1)
            end++;
        fprintf(file, "%s%" PRIu32, i ? "," : "", ids[i]);
        if (end - i > 1)
            fprintf(file, "-%" PRIu32, ids[end - 1]);
        i = end;
    }
}

void page_trace_add(struct page_trace *t, bool is_map, const uint32_t *ids, size_t count)
{
    assert(t->is_begun && count > 0 && count <= PAGE_BATCH_MAX);
    t->is_full |= t->batches == PAGE_TRACE_BATCHES_MAX || count > PAGE_TRACE_IDS_MAX - t->ids;
    if (t->is_full)
        return;
    t->batches++;
    t->ids += (uint32_t)count;
    fprintf(t->file, "%" PRIu64 " %s ", (hw_now_ns() - t->began_ns) / HW_US,
            is_map ? "map" : "unmap");
    write_ids(t->file, ids, count);
    fputc('\n', t->file);
}

/* ---- reading ---- */

struct reader {
    struct page_trace_file f;
    uint8_t *mapped; /* of each id */
    uint32_t mapped_count;
    size_t batch_room, id_room;
};

/* A decimal number up to most, and nothing like a sign or a blank before it. */
static bool take_number(const char **text, uint64_t most, uint64_t *out)
{
    const char *at = *text;
    uint64_t value = 0;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (digit > most || value > (most - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    *text = at;
    *out = value;
    return true;
}

static bool take_word(const char **text, const char *word)
{
    size_t len = strlen(word);
    if (strncmp(*text, word, len) != 0)
        return false;
    *text += len;
    return true;
}

/* Room for one more of `count` things. */
static int grow(void *things, size_t *room, uint32_t count, uint32_t most, size_t size)
{
    return count == most ? -E2BIG : hw_grow(things, room, (size_t)count + 1, size) ? 0 : -ENOMEM;
}

static int add_id(struct reader *r, struct page_trace_batch *b, uint32_t id)
{
    if (r->mapped[id] == b->is_map)
        return -EPROTO;
    if (b->count == PAGE_BATCH_MAX)
        return -E2BIG;
    int rc = grow(&r->f.ids, &r->id_room, r->f.id_count, PAGE_TRACE_IDS_MAX, sizeof *r->f.ids);
    if (rc)
        return rc;
    r->mapped[id] = b->is_map;
    r->mapped_count += b->is_map ? 1 : UINT32_MAX; /* -1 */
    r->f.most = r->mapped_count > r->f.most ? r->mapped_count : r->f.most;
    r->f.ids[r->f.id_count++] = id;
    b->count++;
    return 0;
}

static int take_range(struct reader *r, struct page_trace_batch *b, const char **text)
{
    uint64_t from, to;
    if (!take_number(text, r->f.id_limit - 1, &from))
        return -EPROTO;
    to = from;
    if (take_word(text, "-") && (!take_number(text, r->f.id_limit - 1, &to) || to <= from))
        return -EPROTO;
    int rc = 0;
    for (uint64_t id = from; id <= to && rc == 0; id++)
        rc = add_id(r, b, (uint32_t)id);
    return rc;
}

static int take_batch(struct reader *r, const char *text)
{
    struct page_trace_batch b = {.first = r->f.id_count};
    if (!take_number(&text, UINT64_MAX, &b.at_us) ||
        (r->f.batch_count && b.at_us < r->f.batches[r->f.batch_count - 1].at_us))
        return -EPROTO;
    b.is_map = take_word(&text, " map ");
    if (!b.is_map && !take_word(&text, " unmap "))
        return -EPROTO;
    int rc = take_range(r, &b, &text);
    while (rc == 0 && take_word(&text, ","))
        rc = take_range(r, &b, &text);
    if (rc == 0 && strcmp(text, "\n") != 0)
        rc = -EPROTO;
    if (rc == 0)
        rc = grow(&r->f.batches, &r->batch_room, r->f.batch_count, PAGE_TRACE_BATCHES_MAX,
                  sizeof *r->f.batches);
    if (rc == 0)
        r->f.batches[r->f.batch_count++] = b;
    return rc;
}

static int take_shape(struct reader *r, const char *text)
{
    uint64_t ids;
    if (!take_word(&text, "ids ") || !take_number(&text, PAGE_COUNT_MAX, &ids) || ids == 0 ||
        !take_word(&text, " bytes ") || !take_number(&text, INT64_MAX, &r->f.id_bytes) ||
        r->f.id_bytes == 0 || strcmp(text, "\n") != 0)
        return -EPROTO;
    r->f.id_limit = (uint32_t)ids;
    r->mapped = calloc(ids, 1);
    return r->mapped ? 0 : -ENOMEM;
}

static int take_line(struct reader *r, const char *text, size_t line)
{
    if (line == 1)
        return strcmp(text, magic) == 0 ? 0 : -EPROTO;
    return line == 2 ? take_shape(r, text) : take_batch(r, text);
}

int page_trace_read(FILE *file, struct page_trace_file *out, size_t *line)
{
    struct reader r = {0};
    char *text = malloc(PAGE_TRACE_LINE_MAX);
    int rc = text ? 0 : -ENOMEM;
    *line = 0;
    while (rc == 0 && fgets(text, PAGE_TRACE_LINE_MAX, file)) {
        if (!strchr(text, '\n') && feof(file))
            break; /* the writer was killed */
        rc = take_line(&r, text, ++*line);
    }
    if (rc == 0 && ferror(file))
        rc = -EIO;
    if (rc == 0 && r.f.batch_count == 0)
        rc = *line < 2 ? -EPROTO : -ENODATA;
    free(text);
    free(r.mapped);
    if (rc)
        page_trace_free(&r.f);
    else
        *out = r.f;
    return rc;
}

void page_trace_free(struct page_trace_file *f)
{
    free(f->batches);
    free(f->ids);
    *f = (struct page_trace_file){0};
}
