/* page/trace/trace.h - the map and unmap batches of a served model in a file, to be replayed.
 *
 *   hawser page trace 1
 *   ids 256 bytes 65536          how many ids there are, and the memory of one
 *   0 map 0-3,7                  microseconds since the start, what was done, ids
 *   1520 unmap 2
 *
 * Numbers are decimal, times do not fall, and an id is mapped only while it is not and unmapped
 * only while it is.  A batch has PAGE_BATCH_MAX ids at most.  A last line without its end is not
 * read: the server was killed.
 *
 * Trust: a file may hold anything.
 * Threads: one at a time.  Lifetime: create/destroy of a writer, read/free of a file's content. */
#ifndef HAWSER_PAGE_TRACE_TRACE_H
#define HAWSER_PAGE_TRACE_TRACE_H

#include "page/page.h"

#include <stdio.h>

enum {
    PAGE_TRACE_BATCHES_MAX = 1 << 20, /* hours of a busy server; a trace is read into memory */
    PAGE_TRACE_IDS_MAX = 16 << 20,    /* of all batches */
    PAGE_TRACE_LINE_MAX = 64 << 10,   /* bytes: a batch of ids without neighbours */
};

/* ---- writing ---- */

struct page_trace;

/* The file is made anew.  0 or a negative errno. */
int page_trace_create(const char *path, struct page_trace **out) MUST_CHECK;
/* 0, or the negative errno of the first write that failed; fine for NULL. */
int page_trace_destroy(struct page_trace *t);

/* Whose memory it is, before the first batch.  Once; a second memory is not recorded. */
void page_trace_begin(struct page_trace *t, uint32_t ids, uint64_t bytes);
/* A batch that was done.  Past PAGE_TRACE_BATCHES_MAX or PAGE_TRACE_IDS_MAX nothing is written. */
void page_trace_add(struct page_trace *t, bool is_map, const uint32_t *ids, size_t count);

/* ---- reading ---- */

struct page_trace_batch {
    uint64_t at_us;
    bool is_map;
    uint32_t first, count; /* in ids of the file */
};

struct page_trace_file {
    uint32_t id_limit; /* ids are below it */
    uint64_t id_bytes;
    struct page_trace_batch *batches;
    uint32_t batch_count;
    uint32_t *ids;
    uint32_t id_count;
    uint32_t most; /* ids that are mapped at a time */
};

/* 0; -EPROTO for a line that is none of a trace; -E2BIG past the limits; -ENODATA without a batch;
 * -ENOMEM; -EIO.  `line` is where reading ended, from 1 on.  `out` is set, and to be freed, on 0
 * only. */
int page_trace_read(FILE *file, struct page_trace_file *out, size_t *line) MUST_CHECK;
void page_trace_free(struct page_trace_file *f);

#endif
