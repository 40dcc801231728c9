#include "base/log.h"

#include "base/text/ascii.h"
#include "base/text/controls.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(HW_LOG_LINE_MAX <= PIPE_BUF, "a line must be one piece in a pipe");

static const char *const level_names[] = {"none", "error", "warn", "info", "debug", "trace"};
static const char *const cat_names[HW_CAT_COUNT] = {
    [HW_CAT_GENERAL] = "general", [HW_CAT_NET] = "net",   [HW_CAT_MEMORY] = "memory",
    [HW_CAT_VULKAN] = "vulkan",   [HW_CAT_PAGE] = "page", [HW_CAT_KV] = "kv",
    [HW_CAT_LLM] = "llm",
};

_Atomic unsigned char hw_log_levels[HW_CAT_COUNT] = {
    [0 ... HW_CAT_COUNT - 1] = HW_LOG_UNREAD,
};

static pthread_mutex_t read_lock = PTHREAD_MUTEX_INITIALIZER; /* held while levels are set */
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER; /* sink, sink_user, calls of sink */
static hw_log_sink_fn *sink;
static void *sink_user;
static atomic_bool sink_set; /* relaxed: only spares the usual case the lock */

/* The index of text[0..len) in names, -1 when it is none of them. */
static int name_index(const char *const *names, int count, const char *text, size_t len)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == len && hw_ascii_same_start(names[i], text, len))
            return i;
    return -1;
}

static int level_index(const char *text, size_t len)
{
    return name_index(level_names, ARRAY_LEN(level_names), text, len);
}

/* The category of text[0..len), -1 when it is none. */
static int cat_index(const char *text, size_t len)
{
    static const char *const alias[] = {"network"}; /* as Venus Plus calls it */
    return name_index(alias, 1, text, len) == 0 ? HW_CAT_NET
                                                : name_index(cat_names, HW_CAT_COUNT, text, len);
}

/* CAT=LEVEL in text[0..len); false when it is something else. */
static bool parse_category(const char *text, size_t len, unsigned char levels[HW_CAT_COUNT])
{
    const char *equals = memchr(text, '=', len);
    int cat = equals ? cat_index(text, (size_t)(equals - text)) : -1;
    int level = equals ? level_index(equals + 1, (size_t)(text + len - equals - 1)) : -1;
    if (cat >= 0 && level >= 0)
        levels[cat] = (unsigned char)level;
    return cat >= 0 && level >= 0;
}

bool hw_log_is_category(const char *text, size_t len)
{
    unsigned char levels[HW_CAT_COUNT];
    return parse_category(text, len, levels);
}

/* Applies CAT=LEVEL,... to levels, but for parts that cannot be read.  The first of those, or NULL.
 */
static const char *parse_categories(const char *text, unsigned char levels[HW_CAT_COUNT])
{
    const char *bad = NULL;
    for (;;) {
        size_t len = strcspn(text, ",");
        if (!parse_category(text, len, levels) && !bad)
            bad = text;
        if (text[len] == '\0')
            return bad;
        text += len + 1;
    }
}

/* Sets hw_log_levels from both variables, then reports values that could not be read. */
static void read_environment(void)
{
    const char *global = getenv("VENUS_LOG_LEVEL");
    const char *categories = getenv("VENUS_LOG_CATEGORIES");
    int level = HW_LOG_WARN;
    const char *bad = NULL;
    bool global_bad = false;
    if (global && *global) {
        int found = level_index(global, strlen(global));
        global_bad = found < 0;
        level = global_bad ? HW_LOG_WARN : found;
    }
    unsigned char levels[HW_CAT_COUNT];
    memset(levels, level, sizeof levels);
    if (categories && *categories)
        bad = parse_categories(categories, levels);
    for (int i = 0; i < HW_CAT_COUNT; i++)
        atomic_store_explicit(&hw_log_levels[i], levels[i], memory_order_relaxed);
    if (global_bad)
        hw_warn(HW_CAT_GENERAL,
                "VENUS_LOG_LEVEL='%s' is not NONE, ERROR, WARN, INFO, DEBUG or TRACE; using WARN",
                global);
    if (bad)
        hw_warn(
            HW_CAT_GENERAL,
            "VENUS_LOG_CATEGORIES='%s': ignoring '%.*s', which is not like MEMORY=INFO,NET=DEBUG "
            "(GENERAL, NET or NETWORK, MEMORY, VULKAN, PAGE, KV, LLM with a log level each)",
            categories, (int)strcspn(bad, ","), bad);
}

unsigned char hw_log_first_use(enum hw_cat cat)
{
    assert((unsigned)cat < HW_CAT_COUNT);
    pthread_mutex_lock(&read_lock);
    unsigned char level = atomic_load_explicit(&hw_log_levels[cat], memory_order_relaxed);
    if (level == HW_LOG_UNREAD) {
        read_environment();
        level = atomic_load_explicit(&hw_log_levels[cat], memory_order_relaxed);
    }
    pthread_mutex_unlock(&read_lock);
    assert(level != HW_LOG_UNREAD);
    return level;
}

void hw_log_reload(void)
{
    pthread_mutex_lock(&read_lock);
    read_environment();
    pthread_mutex_unlock(&read_lock);
}

void hw_log_set_sink(hw_log_sink_fn *fn, void *user)
{
    pthread_mutex_lock(&sink_lock);
    sink = fn;
    sink_user = user;
    atomic_store_explicit(&sink_set, fn != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&sink_lock);
}

static void emit(const char *line, size_t len)
{
    if (atomic_load_explicit(&sink_set, memory_order_relaxed)) {
        pthread_mutex_lock(&sink_lock);
        hw_log_sink_fn *fn = sink;
        if (fn)
            fn(sink_user, line, len);
        pthread_mutex_unlock(&sink_lock);
        if (fn)
            return;
    }
    /* A line that standard error takes only in part is lost: a second write could land inside
     * another process's line. */
    ssize_t wrote;
    do
        wrote = write(STDERR_FILENO, line, len);
    while (wrote < 0 && errno == EINTR);
}

static size_t put_prefix(char *line, size_t size, enum hw_cat cat, enum hw_log_level level)
{
    size_t len = 0;
    unsigned char most = atomic_load_explicit(&hw_log_levels[cat], memory_order_relaxed);
    if (most >= HW_LOG_DEBUG && most != HW_LOG_UNREAD) {
        struct timespec now;
        struct tm tm;
        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &tm);
        len = (size_t)snprintf(line, size, "%02d:%02d:%02d.%06ld [%ld] ", tm.tm_hour, tm.tm_min,
                               tm.tm_sec, now.tv_nsec / 1000, (long)syscall(SYS_gettid));
    }
    len += (size_t)snprintf(line + len, size - len, "hawser: %s: %s: ", level_names[level],
                            cat_names[cat]);
    assert(len < size);
    return len;
}

void hw_log_write(enum hw_cat cat, enum hw_log_level level, const char *fmt, ...)
{
    assert((unsigned)cat < HW_CAT_COUNT);
    assert(level > HW_LOG_NONE && level <= HW_LOG_TRACE);
    int saved_errno = errno;
    char line[HW_LOG_LINE_MAX];
    size_t room = sizeof line - 1; /* the newline's place */
    size_t start = put_prefix(line, room, cat, level);

    va_list args;
    va_start(args, fmt);
    errno = saved_errno; /* for %m */
    int wanted = vsnprintf(line + start, room - start, fmt, args);
    va_end(args);

    size_t len = start + (wanted > 0 ? (size_t)wanted : 0);
    if (len >= room) {
        len = room - 1;
        memcpy(line + len - 3, "...", 3);
    }
    hw_blank_controls(line + start, len - start);
    line[len++] = '\n';
    emit(line, len);
    errno = saved_errno;
}

const char *hw_strerror(int rc)
{
    if (rc == -EMFILE)
        return "Too many open files; raise this process's limit: ulimit -n, or LimitNOFILE= in its "
               "unit";
    if (rc == -ENFILE)
        return "Too many open files in this machine; raise its limit: sysctl fs.file-max";
    return strerror(-rc);
}
