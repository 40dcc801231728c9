#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const struct page_backend_ops *backend;
    const char *library;
    struct page_facts facts;
} suite;

static struct page_outcome outcome; /* 4 KiB; the tests have one thread */

int suite_begin(int argc, char **argv)
{
    struct page_backend *b;
    struct page_error why;
    suite.backend = argc > 1 ? page_backend_find(argv[1]) : NULL;
    suite.library = argc > 2 ? argv[2] : NULL;
    if (!suite.backend) {
        fprintf(stderr, "usage: %s host|cuda|vulkan|null [LIBRARY]\n", argv[0]);
        return 2;
    }
    int rc = suite.backend->open(&(struct page_backend_config){.library = suite.library}, &b, &why);
    if (rc) {
        fprintf(stderr, "%s: %s\n", rc == -ENODEV ? "skipped" : "failed", why.text);
        return rc == -ENODEV ? 77 : 1;
    }
    suite.facts = b->facts;
    suite.backend->close(b);
    fprintf(stderr, "%s on %s\n", suite.backend->name, suite.facts.device);
    return 0;
}

const char *suite_library(void)
{
    return suite.library;
}

const struct page_backend_ops *suite_backend(void)
{
    return suite.backend;
}

uint64_t suite_page_bytes(void)
{
    uint64_t least = 64 << 10; /* smaller ones are no GPU's */
    return suite.facts.granularity > least ? suite.facts.granularity : least;
}

enum page_stray suite_stray(void)
{
    return suite.facts.stray;
}

bool suite_remembers(void)
{
    return suite.backend != &page_backend_null;
}

struct page_tensors_config suite_config(enum page_layout layout)
{
    return (struct page_tensors_config){
        .backend = suite.backend,
        .device = {.memory_bytes = 2 * LAYERS * PAGES * suite_page_bytes(),
                   .library = suite.library},
        .layers = LAYERS,
        .page_bytes = suite_page_bytes(),
        .layout = layout};
}

struct page_tensors *suite_make(const struct page_tensors_config *config)
{
    struct page_tensors *t;
    struct page_error why;
    if (page_tensors_create(config, &t, &why))
        fail_msg("%s", why.text);
    assert_int_equal(page_tensors_geometry(t)->pages, PAGES);
    return t;
}

struct page_tensors *suite_tensors(enum page_layout layout)
{
    struct page_tensors_config config = suite_config(layout);
    return suite_make(&config);
}

/* ---- contents ---- */

static void pattern(uint64_t *words, uint32_t tensor, uint32_t id, uint64_t seed)
{
    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = (seed << 40 | (uint64_t)tensor << 32 | (uint64_t)id << 16 | i) + 1;
}

/* The first and the last words of the page: its ends are where a wrong length shows. */
static struct page_place place(uint32_t tensor, uint32_t id, bool last)
{
    uint64_t end = suite_page_bytes() - WORDS * sizeof(uint64_t);
    return (struct page_place){
        .layer = tensor / 2, .kv = tensor % 2, .id = id, .offset = last ? end : 0};
}

void suite_fill(struct page_tensors *t, uint32_t id, uint64_t seed)
{
    uint64_t words[WORDS];
    struct page_error why;
    for (uint32_t tensor = 0; tensor < 2 * LAYERS; tensor++) {
        pattern(words, tensor, id, seed);
        for (int last = 0; last < 2; last++) {
            struct page_place at = place(tensor, id, last);
            if (page_tensors_write(t, &at, words, sizeof words, &why))
                fail_msg("%s", why.text);
        }
    }
}

static void expect(struct page_tensors *t, uint32_t id, uint64_t seed, bool zero)
{
    uint64_t words[WORDS], wanted[WORDS];
    struct page_error why;
    if (!suite_remembers())
        return;
    for (uint32_t tensor = 0; tensor < 2 * LAYERS; tensor++) {
        pattern(wanted, tensor, id, seed);
        if (zero)
            memset(wanted, 0, sizeof wanted);
        for (int last = 0; last < 2; last++) {
            struct page_place at = place(tensor, id, last);
            if (page_tensors_read(t, &at, words, sizeof words, &why))
                fail_msg("%s", why.text);
            assert_memory_equal(words, wanted, sizeof words);
        }
    }
}

void suite_expect(struct page_tensors *t, uint32_t id, uint64_t seed)
{
    expect(t, id, seed, false);
}

void suite_expect_zero(struct page_tensors *t, uint32_t id)
{
    expect(t, id, 0, true);
}

void suite_map(struct page_tensors *t, const uint32_t *ids, size_t count)
{
    if (page_tensors_map(t, ids, count, &outcome))
        fail_msg("map: %s", outcome.why.text);
    assert_int_equal(outcome.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(outcome.codes[i], PAGE_DONE);
        assert_true(page_tensors_is_mapped(t, ids[i]));
    }
}

void suite_unmap(struct page_tensors *t, const uint32_t *ids, size_t count)
{
    if (page_tensors_unmap(t, ids, count, &outcome))
        fail_msg("unmap: %s", outcome.why.text);
    for (size_t i = 0; i < count; i++)
        assert_false(page_tensors_is_mapped(t, ids[i]));
}
