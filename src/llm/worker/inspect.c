#include "llm/worker/inspect.h"

#include "llm/engine/backend.h"

#include <assert.h>
#include <string.h>

static uint32_t side_of(uint32_t count)
{
    return count < LLM_MAP_SIDE_MAX ? count : LLM_MAP_SIDE_MAX;
}

void llm_kv_map_init(struct llm_kv_map *map, uint32_t layers, uint32_t positions)
{
    uint32_t pages = llm_kv_pages_for(positions);
    memset(map, 0, sizeof *map);
    map->layers = layers;
    map->pages = pages;
    map->rows = side_of(layers);
    map->columns = side_of(pages);
}

/* Pages from..to of one layer. */
static void add_pages(const struct llm_kv_map *map, uint32_t *cells, uint32_t from, uint32_t to)
{
    while (from < to) {
        uint32_t column = (uint32_t)((uint64_t)from * map->columns / map->pages);
        /* The first page of the next column. */
        uint32_t next =
            (uint32_t)(((uint64_t)(column + 1) * map->pages + map->columns - 1) / map->columns);
        uint32_t end = next < to ? next : to;
        cells[column] += end - from;
        from = end;
    }
}

void llm_kv_map_add(struct llm_kv_map *map, uint32_t layer, uint32_t rows, uint32_t length)
{
    assert(layer < map->layers);
    uint32_t has = llm_kv_pages_for(rows), wants = llm_kv_pages_for(length);
    size_t row = (size_t)layer * map->rows / map->layers * map->columns;
    has = has < map->pages ? has : map->pages;
    wants = wants < map->pages ? wants : map->pages;
    add_pages(map, map->resident + row, 0, has);
    add_pages(map, map->missing + row, has, wants);
}

static void put_cells(struct wire_enc *e, const struct llm_kv_map *m, const uint32_t *cells)
{
    for (uint32_t i = 0; i < m->rows * m->columns; i++)
        wire_put_varint(e, cells[i]);
}

static void get_cells(struct wire_dec *d, const struct llm_kv_map *m, uint32_t *cells)
{
    for (uint32_t i = 0; i < m->rows * m->columns && !wire_dec_error(d); i++)
        cells[i] = llm_get_varint32(d);
}

void llm_inspection_put(struct wire_enc *e, const struct llm_inspection *i)
{
    wire_put_u64(e, i->uploads);
    wire_put_u64(e, i->uploads_found);
    wire_put_varint(e, i->map_count);
    for (uint32_t k = 0; k < i->map_count; k++) {
        const struct llm_kv_map *m = &i->maps[k];
        wire_put_varint(e, m->layers);
        wire_put_varint(e, m->pages);
        wire_put_varint(e, m->rows);
        wire_put_varint(e, m->columns);
        wire_put_varint(e, m->sequences);
        put_cells(e, m, m->resident);
        put_cells(e, m, m->missing);
    }
}

static void get_map(struct wire_dec *d, struct llm_kv_map *m)
{
    m->layers = llm_get_varint32(d);
    m->pages = llm_get_varint32(d);
    uint32_t rows = llm_get_varint32(d), columns = llm_get_varint32(d);
    m->sequences = llm_get_varint32(d);
    if (wire_dec_error(d))
        return;
    if (rows != side_of(m->layers) || columns != side_of(m->pages)) {
        wire_dec_fail(d, -EPROTO);
        return;
    }
    m->rows = rows;
    m->columns = columns;
    get_cells(d, m, m->resident);
    get_cells(d, m, m->missing);
}

void llm_inspection_get(struct wire_dec *d, struct llm_inspection *i)
{
    memset(i, 0, sizeof *i);
    i->uploads = wire_get_u64(d);
    i->uploads_found = wire_get_u64(d);
    uint32_t count = llm_get_varint32(d);
    if (count > LLM_SERVED_MODELS_MAX)
        wire_dec_fail(d, -EMSGSIZE);
    for (uint32_t k = 0; k < count && !wire_dec_error(d); k++) {
        get_map(d, &i->maps[k]);
        i->map_count = k + 1;
    }
    if (wire_dec_error(d))
        i->map_count = 0;
}
