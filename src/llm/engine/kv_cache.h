/* llm/engine/kv_cache.h - private to src/llm: the KV cache: which pages belong to which layer of a
 * sequence.
 *
 * page/slabs.h hands out page ids and asks the backend to map slabs of them; a layer of a sequence
 * has a list of ids.  A page may be in several lists, and it may be held for lists to come; it is
 * free once it is in none and not held.  A page that is held only is idle: it counts as free, and
 * whoever holds it must release it when there are no others.  With stages (llm/engine/stages.h)
 * each has a pool of pages, which only its layers use.
 *
 * Trust: callers have checked positions against the context.
 * Threads: one at a time.  Lifetime: create/destroy; lists are shortened to 0 before. */
#ifndef HAWSER_LLM_ENGINE_KV_CACHE_H
#define HAWSER_LLM_ENGINE_KV_CACHE_H

#include "llm/engine/backend.h"

struct llm_kv_cache;
struct page_limit;
struct page_trace;

struct llm_pages { /* of one layer of one sequence; zero at first */
    uint32_t *ids;
    uint32_t count;
    size_t room;
};

/* bytes: KV of all sequences together; at least a page for each layer.  limit: that mapped slabs
 * count against, trace: that gets what is mapped; NULL: none.  0; -ENOMEM, -EIO and why. */
int llm_kv_cache_create(struct llm_backend *backend, const struct llm_config *config,
                        uint64_t bytes, struct page_limit *limit, struct page_trace *trace,
                        struct llm_kv_cache **out, char *why) MUST_CHECK;
void llm_kv_cache_destroy(struct llm_kv_cache *cache);

struct llm_kv_memory *llm_kv_cache_memory(struct llm_kv_cache *cache);
/* Of K or V of a position. */
uint64_t llm_kv_cache_row_bytes(const struct llm_kv_cache *cache);
/* Pages that layers have, and all that the limit allows. */
void llm_kv_cache_pages(struct llm_kv_cache *cache, uint32_t *used, uint32_t *all);
/* What so many pages take, in whole slabs. */
uint64_t llm_kv_cache_bytes(const struct llm_kv_cache *cache, uint64_t pages);
/* All that there are, whatever the limit says. */
uint32_t llm_kv_cache_most(const struct llm_kv_cache *cache);
/* Unmaps slabs that are empty. */
void llm_kv_cache_trim(struct llm_kv_cache *cache);
/* Releases an idle page, or some.  false: there are none. */
bool llm_kv_cache_reclaim(struct llm_kv_cache *cache);

/* Pages of a layer for so many positions.  0; -ENOSPC (no page free), -ENOMEM, -EIO: then nothing
 * changed. */
int llm_kv_cache_extend(struct llm_kv_cache *cache, uint32_t layer, struct llm_pages *pages,
                        uint32_t positions, char *why) MUST_CHECK;
/* Gives up the pages past so many positions; with 0 also the list. */
void llm_kv_cache_shorten(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t positions);

/* Adds a page that is held to a list.  0, -ENOMEM. */
int llm_kv_cache_share(struct llm_kv_cache *cache, struct llm_pages *pages,
                       uint32_t page) MUST_CHECK;
/* Puts a held page of the same content into the place of another, which may be the same. */
void llm_kv_cache_replace(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t index,
                          uint32_t page);
/* A page of a list that is about to be written: if others have it or hold it, the list gets a copy
 * instead.  0; errors of extend, -EIO. */
int llm_kv_cache_own(struct llm_kv_cache *cache, struct llm_pages *pages, uint32_t index,
                     char *why) MUST_CHECK;

/* Reads rows, whose bytes follow each other in dst.  0, -EIO, and why. */
int llm_kv_cache_read(struct llm_kv_cache *cache, const struct llm_kv_rows *rows, uint32_t count,
                      void *dst, char *why) MUST_CHECK;
/* The same, to be written. */
int llm_kv_cache_write(struct llm_kv_cache *cache, const struct llm_kv_rows *rows, uint32_t count,
                       const void *src, char *why) MUST_CHECK;

/* A page that a list has, or that is held.  Held at most once. */
void llm_kv_cache_hold(struct llm_kv_cache *cache, uint32_t page);
void llm_kv_cache_release(struct llm_kv_cache *cache, uint32_t page);
bool llm_kv_cache_is_idle(const struct llm_kv_cache *cache, uint32_t page);
/* Called when no page is free: releases idle pages.  false: there are none. */
void llm_kv_cache_set_reclaim(struct llm_kv_cache *cache, bool (*reclaim)(void *user), void *user);

#endif
