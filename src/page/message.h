/* page/message.h - what a scheduler and a worker say to each other, as bytes.
 *
 *   command   epoch u64, seq u64, deadline u64, op u32, count u32, ids u32 x count
 *   answer    rc i32, driver i32, began u64, ended u64, driver_ns u64, text str,
 *             count u32, codes u8 x count; all ids done: count 0
 *   info      rank u32, pages u32, layers u32, layout u32, page bytes u64, memory u64, mapped u32,
 *             backend str, device str
 *
 * Over copyrpc a command is the payload of a call of PAGE_METHOD_COMMAND and an answer its reply;
 * on a command board (page/broadcast/board.h) both lie in shared memory, in the same bytes.
 *
 * Trust: decoders take any bytes.  Threads: any.  Lifetime: values. */
#ifndef HAWSER_PAGE_MESSAGE_H
#define HAWSER_PAGE_MESSAGE_H

#include "page/geometry.h"
#include "wire/dec.h"
#include "wire/enc.h"

enum page_method {
    PAGE_METHOD_COMMAND = 1, /* command; answer */
    PAGE_METHOD_INFO = 2,    /* nothing; info */
    PAGE_METHOD_BOARD = 3,   /* nothing, with the board's descriptor; nothing */
    PAGE_METHOD_TRIM = 4     /* nothing; bytes u64 */
};

enum page_op {
    PAGE_OP_MAP = 1,
    PAGE_OP_UNMAP = 2,
    PAGE_OP_CANCEL = 3, /* undoes `seq` if it was done, and refuses it if it comes later */
    PAGE_OP_RESET = 4   /* a new scheduler: unmaps all; obeys its epoch from now on */
};

enum {
    PAGE_COMMAND_HEAD = 32,
    PAGE_COMMAND_BYTES_MAX = PAGE_COMMAND_HEAD + 4 * PAGE_BATCH_MAX,
    PAGE_ANSWER_BYTES_MAX = 48 + PAGE_TEXT_CHARS + PAGE_BATCH_MAX,
    PAGE_INFO_BYTES_MAX = 512
};

struct page_command {
    uint64_t epoch;    /* which scheduler this is; chosen anew by each */
    uint64_t seq;      /* grows by one with each batch of an epoch */
    uint64_t deadline; /* page_host_ns: past it the scheduler no longer wants it */
    enum page_op op;
    uint32_t count;
    uint32_t ids[PAGE_BATCH_MAX];
};

struct page_answer {
    uint64_t began, ended;       /* page_host_ns, in the worker */
    struct page_outcome outcome; /* codes are filled for all ids of the command */
};

struct page_info {
    uint32_t rank;
    uint32_t mapped;
    struct page_geometry geometry;
    char backend[16];
    char device[128];
};

void page_command_encode(const struct page_command *c, struct wire_enc *e);
/* 0, -EPROTO, or -EMSGSIZE past PAGE_BATCH_MAX ids.  *c is written to also on failure. */
int page_command_decode(const void *data, size_t len, struct page_command *c) MUST_CHECK;

void page_answer_encode(const struct page_answer *a, struct wire_enc *e);
/* `count` is the command's: an answer about another number of ids is -EPROTO. */
int page_answer_decode(const void *data, size_t len, uint32_t count,
                       struct page_answer *a) MUST_CHECK;

/* Makes *a the answer of a rank that gave none: why, nothing done, and no times. */
void page_answer_fail(struct page_answer *a, uint32_t count, const struct page_error *why);

void page_info_encode(const struct page_info *i, struct wire_enc *e);
int page_info_decode(const void *data, size_t len, struct page_info *i) MUST_CHECK;

#endif
