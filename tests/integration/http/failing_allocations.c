/* Loaded before a program: from SIGUSR2 to the next one, an allocation of about 40 fails, whichever
 * library asks for it.  glibc only. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVERY = 40 };

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
#define EXPORT __attribute__((visibility("default")))
EXPORT void *malloc(size_t n);
EXPORT void *calloc(size_t n, size_t size);
EXPORT void *realloc(void *p, size_t n);

static atomic_bool on;
static atomic_uint calls;

static void change(int number)
{
    (void)number;
    atomic_store(&on, !atomic_load(&on));
}

__attribute__((constructor)) static void init(void)
{
    (void)signal(SIGUSR2, change);
}

/* Not each 40th: a request would meet the same one each time. */
static bool fails(void)
{
    if (!atomic_load(&on))
        return false;
    uint32_t n = atomic_fetch_add(&calls, 1) * UINT32_C(2654435761);
    n = (n ^ n >> 15) * UINT32_C(2246822519);
    if ((n ^ n >> 13) % EVERY != 0)
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}
