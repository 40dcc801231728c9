/* suite.h - tensors on the backend under test, for the tests that run on every backend.
 *
 * The backend and the library of its driver are the program's arguments. */
#ifndef HAWSER_TESTS_UNIT_PAGE_SUITE_H
#define HAWSER_TESTS_UNIT_PAGE_SUITE_H

#include "unit.h"

#include "page/tensors.h"

enum { LAYERS = 2, PAGES = 12, WORDS = 512 };

/* Reads the arguments and looks whether the device is there: 0, or the status to leave with, which
 * is 77 where it is absent, after a line that says why. */
int suite_begin(int argc, char **argv);

const char *suite_library(void); /* NULL: the system's */
const struct page_backend_ops *suite_backend(void);
uint64_t suite_page_bytes(void);
enum page_stray suite_stray(void);
/* Whether what is written can be read again: `null` forgets. */
bool suite_remembers(void);

/* A configuration with PAGES pages. */
struct page_tensors_config suite_config(enum page_layout layout);
struct page_tensors *suite_tensors(enum page_layout layout);
struct page_tensors *suite_make(const struct page_tensors_config *config);

/* Writes a pattern that is another for every seed, tensor and page, into all tensors of a page. */
void suite_fill(struct page_tensors *t, uint32_t id, uint64_t seed);
/* Fails unless it is there. */
void suite_expect(struct page_tensors *t, uint32_t id, uint64_t seed);
void suite_expect_zero(struct page_tensors *t, uint32_t id);

/* Must succeed. */
void suite_map(struct page_tensors *t, const uint32_t *ids, size_t count);
void suite_unmap(struct page_tensors *t, const uint32_t *ids, size_t count);

#endif
