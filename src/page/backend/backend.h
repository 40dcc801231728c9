/* page/backend/backend.h - the device under the pages, behind one ops struct.
 *
 * A backend reserves one range of virtual addresses and binds pieces of physical memory (handles)
 * into it.  `host` does it with memory files and fixed mappings, `cuda` with the driver's virtual
 * memory calls, `vulkan` with sparse binding; `null` does nothing, so that all but the driver can
 * be measured.  page/tensors.h is the only caller of bind and unbind.
 *
 * Trust: drivers may fail at any call; a failure is an answer with the driver's number and text.
 * Threads: create and release from any thread at any time; the rest one at a time.
 * Lifetime: open/close; by then nothing is bound and all handles are released, unless the device
 * failed. */
#ifndef HAWSER_PAGE_BACKEND_BACKEND_H
#define HAWSER_PAGE_BACKEND_BACKEND_H

#include "page/page.h"

/* What touching a page that is not mapped does. */
enum page_stray {
    PAGE_STRAY_FAULTS, /* must not be touched */
    PAGE_STRAY_SHARED, /* harmless: all unmapped ids show one page, which reads zero until a stray
                        * write changes it */
    PAGE_STRAY_STRICT  /* reads zero always, writes are dropped */
};

enum { PAGE_DEVICE_CHARS = 128 };

struct page_facts {
    uint64_t granularity;  /* pages are multiples of it */
    uint64_t memory_bytes; /* that handles can take together */
    enum page_stray stray;
    char device[PAGE_DEVICE_CHARS]; /* for people: "NVIDIA H200" */
};

struct page_backend_config {
    uint64_t memory_bytes; /* at most this; 0: all there is */
    uint32_t device;       /* taken modulo the devices there are */
    bool not_joined;       /* one driver call for each piece, also where one could map several */
    bool no_huge;          /* host: no huge pages even where they are allowed */
    const char *library;   /* cuda, vulkan: instead of the system's */
    void *user;            /* of a backend that is none of the table's */
};

typedef uint64_t page_handle; /* never 0 */

struct page_bind {
    uint64_t offset; /* in the range; a multiple of the piece size given to reserve */
    page_handle handle;
};

struct page_backend;

struct page_backend_ops {
    const char *name;

    /* 0, -ENODEV (no driver or device: tests skip), or another negative errno. */
    int (*open)(const struct page_backend_config *config, struct page_backend **out,
                struct page_error *why);
    void (*close)(struct page_backend *b);

    /* Once, before all below: the range, and the size that all pieces have. */
    int (*reserve)(struct page_backend *b, uint64_t range_bytes, uint64_t piece_bytes,
                   struct page_error *why);

    /* Physical memory for one piece.  -ENOMEM when the device has no more. */
    int (*create)(struct page_backend *b, page_handle *out, struct page_error *why);
    void (*release)(struct page_backend *b, page_handle handle);

    /* Pieces that are unbound become bound, or the reverse; sorted by offset, no two equal.  All
     * or nothing: on failure what was done is undone and *failed is the index it failed at.
     * -ENOTRECOVERABLE when the undoing failed as well. */
    int (*bind)(struct page_backend *b, const struct page_bind *binds, size_t count, size_t *failed,
                struct page_error *why);
    int (*unbind)(struct page_backend *b, const struct page_bind *binds, size_t count,
                  size_t *failed, struct page_error *why);

    /* Waits for all work of the device that may use a page. */
    int (*finish)(struct page_backend *b, struct page_error *why);

    /* For tests: contents go `in`, from data, or come out.  The caller keeps to bound pieces where
     * stray is FAULTS. */
    int (*copy)(struct page_backend *b, uint64_t offset, void *data, size_t len, bool in,
                struct page_error *why);
};

/* Embedded first in each backend's own struct. */
struct page_backend {
    const struct page_backend_ops *ops;
    struct page_facts facts;
    uint64_t address; /* of the range where programs can use it: a pointer on the host, a device
                       * pointer with cuda; 0 otherwise */
};

extern const struct page_backend_ops page_backend_host;
extern const struct page_backend_ops page_backend_null;
extern const struct page_backend_ops page_backend_cuda;
extern const struct page_backend_ops page_backend_vulkan;

/* All of them, NULL at the end; and one by name, or NULL. */
extern const struct page_backend_ops *const page_backends[];
const struct page_backend_ops *page_backend_find(const char *name);

#endif
