#include "rpc/callers.h"

#include "base/clock.h"
#include "base/log.h"
#include "rpc/transport/net.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

static const uint64_t line_every_ns = HW_SEC;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t told_ns; /* when the last line was written; 0: never */
static unsigned long untold;

/* Under the lock. */
static bool may_tell(uint64_t now)
{
    return told_ns == 0 || now - told_ns >= line_every_ns;
}

/* Under the lock. */
static void tell_number(uint64_t now)
{
    if (untold == 0)
        return;
    hw_warn(HW_CAT_NET, "%lu more caller%s turned away; VENUS_LOG_CATEGORIES=NET=DEBUG names each",
            untold, untold == 1 ? " was" : "s were");
    untold = 0;
    told_ns = now;
}

void rpc_callers_warn(const char *peer, const char *fmt, ...)
{
    char text[RPC_WHY_CHARS];
    uint64_t now = hw_now_ns();
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    if (may_tell(now))
        tell_number(now);
    if (hw_log_on(HW_CAT_NET, HW_LOG_DEBUG)) {
        hw_warn(HW_CAT_NET, "%s: %s", peer, text);
    } else if (may_tell(now)) {
        hw_warn(HW_CAT_NET, "%s: %s", peer, text);
        told_ns = now;
    } else {
        untold++;
    }
    pthread_mutex_unlock(&lock);
}

void rpc_callers_tell(bool at_once)
{
    uint64_t now = hw_now_ns();
    pthread_mutex_lock(&lock);
    if (at_once || may_tell(now))
        tell_number(now);
    pthread_mutex_unlock(&lock);
}

bool rpc_callers_untold(void)
{
    pthread_mutex_lock(&lock);
    bool some = untold > 0;
    pthread_mutex_unlock(&lock);
    return some;
}
