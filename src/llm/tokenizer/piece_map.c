#include "llm/tokenizer/piece_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

static uint32_t buckets_for(uint32_t count)
{
    uint32_t buckets = 16;
    while (buckets < 2 * count)
        buckets *= 2;
    return buckets;
}

int llm_piece_map_init(struct llm_piece_map *map, uint32_t count)
{
    uint32_t buckets = buckets_for(count);
    struct gguf_string *texts = calloc(buckets, sizeof(*texts));
    uint32_t *tokens = calloc(buckets, sizeof(*tokens));
    if (!texts || !tokens) {
        free(texts);
        free(tokens);
        return -ENOMEM;
    }
    *map = (struct llm_piece_map){.texts = texts, .tokens = tokens, .mask = buckets - 1};
    /* Without entropy the seed is 0: slower on a hostile file, never wrong. */
    if (getrandom(&map->seed, sizeof(map->seed), GRND_NONBLOCK) != (ssize_t)sizeof(map->seed))
        map->seed = 0;
    return 0;
}

void llm_piece_map_fini(struct llm_piece_map *map)
{
    free(map->texts);
    free(map->tokens);
    *map = (struct llm_piece_map){0};
}

/* The bucket of the text, or the empty one where it would go.  An empty bucket has no text pointer.
 */
static uint32_t locate(const struct llm_piece_map *map, const char *text, size_t bytes)
{
    uint32_t bucket = (uint32_t)XXH3_64bits_withSeed(text, bytes, map->seed) & map->mask;
    while (map->texts[bucket].text &&
           (map->texts[bucket].bytes != bytes || memcmp(map->texts[bucket].text, text, bytes) != 0))
        bucket = (bucket + 1) & map->mask;
    return bucket;
}

void llm_piece_map_add(struct llm_piece_map *map, struct gguf_string text, uint32_t token)
{
    uint32_t bucket = locate(map, text.text, text.bytes);
    if (map->texts[bucket].text)
        return;
    map->texts[bucket] = text;
    map->tokens[bucket] = token;
}

int32_t llm_piece_map_find(const struct llm_piece_map *map, const char *text, size_t bytes)
{
    uint32_t bucket = locate(map, text, bytes);
    return map->texts[bucket].text ? (int32_t)map->tokens[bucket] : -1;
}
