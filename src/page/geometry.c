#include "page/geometry.h"

#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

static int check_input(uint32_t layers, uint64_t page_bytes, struct page_error *why)
{
    if (layers == 0 || layers > PAGE_LAYERS_MAX)
        return page_fail(why, -EINVAL, 0, "%u layers; 1 to %d are possible", layers,
                         PAGE_LAYERS_MAX);
    if (page_bytes == 0 || page_bytes > PAGE_BYTES_MAX)
        return page_fail(why, -EINVAL, 0, "pages of %llu bytes; at most 1 GiB is possible",
                         (unsigned long long)page_bytes);
    return 0;
}

int page_geometry_init(struct page_geometry *g, uint64_t memory_bytes, uint32_t layers,
                       uint64_t page_bytes, enum page_layout layout, struct page_error *why)
{
    char memory[HW_FORMAT_CHARS], one[HW_FORMAT_CHARS];
    int rc = check_input(layers, page_bytes, why);
    if (rc)
        return rc;
    uint64_t id_bytes = 2 * page_bytes * layers;
    uint64_t pages = memory_bytes / id_bytes;
    uint32_t pieces = layout == PAGE_CONTIGUOUS ? 1 : 2 * layers;
    if (pages == 0)
        return page_fail(why, -ENOMEM, 0, "%s of memory; one page id alone takes %s",
                         hw_format_size(memory, memory_bytes), hw_format_size(one, id_bytes));
    if (pages > PAGE_COUNT_MAX || pages * pieces > PAGE_PIECES_MAX)
        return page_fail(why, -ERANGE, 0, "%llu pages of %u pieces are too many; use larger pages",
                         (unsigned long long)pages, pieces);
    *g = (struct page_geometry){.layout = layout,
                                .layers = layers,
                                .page_bytes = page_bytes,
                                .memory_bytes = memory_bytes,
                                .pages = (uint32_t)pages,
                                .pieces = pieces,
                                .piece_bytes = id_bytes / pieces,
                                .range_bytes = pages * id_bytes};
    return 0;
}

uint64_t page_tensor_offset(const struct page_geometry *g, uint32_t layer, unsigned kv, uint32_t id)
{
    assert(layer < g->layers && kv < 2 && id < g->pages);
    uint32_t tensor = 2 * layer + kv;
    if (g->layout == PAGE_PER_LAYER)
        return page_piece_offset(g, tensor, id);
    return page_piece_offset(g, 0, id) + tensor * g->page_bytes;
}

void page_geometry_explain(const struct page_geometry *g, char text[PAGE_TEXT_CHARS])
{
    char page[HW_FORMAT_CHARS];
    snprintf(text, PAGE_TEXT_CHARS, "%u pages: %llu MiB / (2 (K and V) x %s x %u layers)", g->pages,
             (unsigned long long)(g->memory_bytes >> 20), hw_format_size(page, g->page_bytes),
             g->layers);
}

int page_geometry_check(const struct page_geometry *g, const uint32_t *ids, size_t count,
                        struct page_error *why)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < g->pages)
            continue;
        char text[PAGE_TEXT_CHARS];
        page_geometry_explain(g, text);
        return page_fail(why, -ERANGE, 0, "page id %u is out of range 0 to %u; there are %.120s",
                         ids[i], g->pages - 1, text);
    }
    return 0;
}
