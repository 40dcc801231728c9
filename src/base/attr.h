/* base/attr.h - compiler attributes and the few macros that every layer uses. */
#ifndef HAWSER_BASE_ATTR_H
#define HAWSER_BASE_ATTR_H

#include <stddef.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Exported from a shared object; everything else is hidden. */
#define PUBLIC __attribute__((visibility("default")))

enum { HW_CACHE_LINE = 64 }; /* arm64 and x86-64 servers; one writer a line in shared memory */

#endif
