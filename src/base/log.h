/* base/log.h - one-line messages for people, by level and category, on standard error.
 *
 * VENUS_LOG_LEVEL       NONE, ERROR, WARN (default), INFO, DEBUG or TRACE.
 * VENUS_LOG_CATEGORIES  a comma list such as MEMORY=INFO,NET=DEBUG; overrides the level for the
 *                       categories it names.  Names in any case; NETWORK is NET.
 * A level, or part of the list, that cannot be read costs one warning and counts as unset.
 *
 * A line reads "hawser: warn: net: text".  Where a category is on at DEBUG or TRACE all its lines
 * begin with UTC time and thread id, "12:00:00.123456 [4711] ", so that the logs of two hosts can
 * be laid side by side; at the other levels a person reads them and the time is noise.
 *
 * Trust: text may hold a peer's bytes; control characters are printed as '?', so a line stays one
 * line.  Threads: any; each line is one write(2), so lines never mix, across processes too.
 * Lifetime: the environment is read once, at first use.  errno is kept. */
#ifndef HAWSER_BASE_LOG_H
#define HAWSER_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/attr.h"

enum hw_log_level {
    HW_LOG_NONE,
    HW_LOG_ERROR,
    HW_LOG_WARN,
    HW_LOG_INFO,
    HW_LOG_DEBUG,
    HW_LOG_TRACE,
};

enum hw_cat {
    HW_CAT_GENERAL,
    HW_CAT_NET,
    HW_CAT_MEMORY,
    HW_CAT_VULKAN,
    HW_CAT_PAGE,
    HW_CAT_KV,
    HW_CAT_LLM,
    HW_CAT_COUNT,
};

/* With its newline; below PIPE_BUF, so that a line is one piece in a pipe.  Longer text is cut
 * and ends in "...". */
enum { HW_LOG_LINE_MAX = 2048 };

/* Private to hw_log_on: the level of each category, HW_LOG_UNREAD before the first use.
 * Relaxed: a level carries no other data, so a thread that sees an old one loses nothing. */
enum { HW_LOG_UNREAD = 255 };
extern _Atomic unsigned char hw_log_levels[HW_CAT_COUNT];
unsigned char hw_log_first_use(enum hw_cat cat);

/* Whether a message would be written; one relaxed load after the first use. */
static inline bool hw_log_on(enum hw_cat cat, enum hw_log_level level)
{
    unsigned char most = atomic_load_explicit(&hw_log_levels[cat], memory_order_relaxed);
    if (UNLIKELY(most == HW_LOG_UNREAD))
        most = hw_log_first_use(cat);
    return (unsigned char)level <= most;
}

/* Writes whatever the level: callers use the macros, which ask hw_log_on first and evaluate the
 * arguments only when it says yes.  No newline at the end of fmt. */
void hw_log_write(enum hw_cat cat, enum hw_log_level level, const char *fmt, ...) PRINTF_LIKE(3, 4);

#define HW_LOG_IF_ON(cat, level, ...)                                                              \
    do {                                                                                           \
        if (hw_log_on(cat, level))                                                                 \
            hw_log_write(cat, level, __VA_ARGS__);                                                 \
    } while (0)

#define hw_error(cat, ...) HW_LOG_IF_ON(cat, HW_LOG_ERROR, __VA_ARGS__)
#define hw_warn(cat, ...) HW_LOG_IF_ON(cat, HW_LOG_WARN, __VA_ARGS__)
#define hw_info(cat, ...) HW_LOG_IF_ON(cat, HW_LOG_INFO, __VA_ARGS__)
#define hw_debug(cat, ...) HW_LOG_IF_ON(cat, HW_LOG_DEBUG, __VA_ARGS__)
#define hw_trace(cat, ...) HW_LOG_IF_ON(cat, HW_LOG_TRACE, __VA_ARGS__)

/* strerror of a negative errno, and what to do where too many files are open. */
const char *hw_strerror(int rc);

/* Whether text[0..len) is a part of VENUS_LOG_CATEGORIES that can be read, such as NET=DEBUG. */
bool hw_log_is_category(const char *text, size_t len);

/* Reads the environment again.  For tests: no other thread may be changing it. */
void hw_log_reload(void);

/* Lines go to fn, newline included, instead of standard error; NULL restores.  Calls of fn are
 * serialised; fn must not log.  For tests, and for a command that says some of it itself. */
typedef void hw_log_sink_fn(void *user, const char *line, size_t len);
void hw_log_set_sink(hw_log_sink_fn *fn, void *user);

#endif
