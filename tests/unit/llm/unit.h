/* unit.h - what every unit test of src/llm includes, in the order cmocka asks for. */
#ifndef HAWSER_TESTS_UNIT_LLM_H
#define HAWSER_TESTS_UNIT_LLM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ThreadSanitizer takes some fifty times as long: there tests look at threads, not at every case.
 */
#if defined(__SANITIZE_THREAD__)
enum { ONLY_THREADS = 1 };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
enum { ONLY_THREADS = 1 };
#else
enum { ONLY_THREADS = 0 };
#endif
#else
enum { ONLY_THREADS = 0 };
#endif

/* AddressSanitizer takes some ten times as long: there one architecture stands for its like. */
#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

#endif
