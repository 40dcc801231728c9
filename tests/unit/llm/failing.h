/* failing.h - allocations that fail on request, in the thread that asks for it.
 *
 * Included by one file of a program that is linked with --wrap for each of the four (llm_wrapped in
 * meson.build).  With `counting` set, all fail once allocations_left of them were granted; with
 * `only_one` set too, the first of them fails and clears `counting`. */
#ifndef HAWSER_TESTS_UNIT_LLM_FAILING_H
#define HAWSER_TESTS_UNIT_LLM_FAILING_H

#include <stdbool.h>
#include <stddef.h>

static _Thread_local bool counting, only_one;
static _Thread_local long allocations_left;

static bool allocation_fails(void)
{
    if (!counting || allocations_left-- > 0)
        return false;
    counting = !only_one;
    return true;
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
    return allocation_fails() ? NULL : __real_malloc(n);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
    return allocation_fails() ? NULL : __real_realloc(p, n);
}

void *__real_aligned_alloc(size_t alignment, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    return allocation_fails() ? NULL : __real_aligned_alloc(alignment, n);
}

#endif
