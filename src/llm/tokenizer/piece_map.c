#include "llm/tokenizer/piece_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

static uint32_t slots_for(uint32_t count)
{
    uint32_t slots = 16;
    while (slots < 2 * count)
        slots *= 2;
    return slots;
}

int llm_piece_map_init(struct llm_piece_map *map, uint32_t count)
{
    uint32_t slots = slots_for(count);
    struct gguf_string *texts = calloc(slots, sizeof(*texts));
    uint32_t *tokens = calloc(slots, sizeof(*tokens));
    if (!texts || !tokens) {
        free(texts);
        free(tokens);
        return -ENOMEM;
    }
    *map = (struct llm_piece_map){.texts = texts, .tokens = tokens, .mask = slots - 1};
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

/* The slot of the text, or the empty one where it would go.  An empty slot has no text pointer. */
static uint32_t locate(const struct llm_piece_map *map, const char *text, size_t bytes)
{
    uint32_t slot = (uint32_t)XXH3_64bits_withSeed(text, bytes, map->seed) & map->mask;
    while (map->texts[slot].text &&
           (map->texts[slot].bytes != bytes || memcmp(map->texts[slot].text, text, bytes) != 0))
        slot = (slot + 1) & map->mask;
    return slot;
}

void llm_piece_map_add(struct llm_piece_map *map, struct gguf_string text, uint32_t token)
{
    uint32_t slot = locate(map, text.text, text.bytes);
    if (map->texts[slot].text)
        return;
    map->texts[slot] = text;
    map->tokens[slot] = token;
}

int32_t llm_piece_map_find(const struct llm_piece_map *map, const char *text, size_t bytes)
{
    uint32_t slot = locate(map, text, bytes);
    return map->texts[slot].text ? (int32_t)map->tokens[slot] : -1;
}
