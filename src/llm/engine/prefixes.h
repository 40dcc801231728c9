/* llm/engine/prefixes.h - private to src/llm: KV pages of texts that were computed, by their
 * tokens.
 *
 * A prefix is a page's tokens after another prefix.  It holds the page of each layer, so that a
 * text which begins with the same tokens takes the pages instead of computing them: a row has the
 * same bits in both.  Tokens are compared, not only their hash.  A prefix of fewer tokens is the
 * end of a text: others copy its rows, and none comes after it.  When no page is free, prefixes
 * whose pages no sequence has are dropped, those that were not used for longest first, and the
 * longer of a text before the shorter.
 *
 * Threads: one at a time.  Lifetime: create/destroy, before the cache; unref every prefix. */
#ifndef HAWSER_LLM_ENGINE_PREFIXES_H
#define HAWSER_LLM_ENGINE_PREFIXES_H

#include "llm/engine/kv_cache.h"

struct llm_prefixes;
struct llm_prefix; /* NULL: that of no tokens */

/* 0, -ENOMEM. */
int llm_prefixes_create(struct llm_kv_cache *cache, uint32_t layers,
                        struct llm_prefixes **out) MUST_CHECK;
void llm_prefixes_destroy(struct llm_prefixes *p);

/* The prefix of LLM_KV_POSITIONS tokens after `before`; NULL: not known. */
struct llm_prefix *llm_prefixes_find(struct llm_prefixes *p, struct llm_prefix *before,
                                     const uint32_t *tokens);
/* The same; one that is not known is made of pages[l].ids[index] of each layer, and they are held.
 * NULL: no memory. */
struct llm_prefix *llm_prefixes_add(struct llm_prefixes *p, struct llm_prefix *before,
                                    const uint32_t *tokens, const struct llm_pages *const *pages,
                                    uint32_t index);
/* Of those used last after `before`, the one that has the most tokens in common with these: *rows
 * of them, up to count.  NULL: none has any. */
struct llm_prefix *llm_prefixes_alike(struct llm_prefixes *p, struct llm_prefix *before,
                                      const uint32_t *tokens, uint32_t count, uint32_t *rows);
/* Keeps the end of a text, fewer tokens than a page, as add does; does nothing if they are known or
 * there is no memory. */
void llm_prefixes_add_end(struct llm_prefixes *p, struct llm_prefix *before, const uint32_t *tokens,
                          uint32_t count, const struct llm_pages *const *pages, uint32_t index);
/* The page of a layer. */
uint32_t llm_prefix_page(const struct llm_prefix *prefix, uint32_t layer);

/* A prefix is not dropped while it has a reference: whoever has one has its pages in its lists.
 * NULL: nothing. */
void llm_prefix_ref(struct llm_prefix *prefix);
void llm_prefix_unref(struct llm_prefix *prefix);

#endif
