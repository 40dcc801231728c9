/* tests/sanitized.h - which sanitizer a test runs under.  A test that takes seconds does less
 * there. */
#ifndef HAWSER_TESTS_SANITIZED_H
#define HAWSER_TESTS_SANITIZED_H

#if !defined(__has_feature)
#define __has_feature(name) 0 /* gcc has macros instead */
#endif

/* ThreadSanitizer takes some fifty times as long: there tests look at threads, not at every case.
 */
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { ONLY_THREADS = 1 };
#else
enum { ONLY_THREADS = 0 };
#endif

/* AddressSanitizer takes some ten times as long: there one case stands for its like. */
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
