/* A peer's delta against a region with a ragged last page.  Beyond what a sanitizer sees, this
 * holds: a delta that is refused changes nothing; one that is taken leaves memory and shadow copy
 * alike but for what was written here, and what it changed, encoded again, arrives as it is. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "venus/memory/shadow.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REGION_BYTES = 5 * VN_PAGE_BYTES + 1234 };

static void require(int holds)
{
    if (!holds)
        abort();
}

/* What was taken, sent on by an end that compares, arrives as it is. */
static void send_on(struct vn_delta_codec *codec, const uint8_t *before, const uint8_t *after)
{
    static uint8_t first[REGION_BYTES] __attribute__((aligned(64)));
    static uint8_t second[REGION_BYTES] __attribute__((aligned(64)));
    struct vn_shadow from, to;
    struct wire_enc e;
    size_t page = 0;
    require(vn_shadow_init(&from, REGION_BYTES) == 0 && vn_shadow_init(&to, REGION_BYTES) == 0);
    memcpy(first, after, REGION_BYTES);
    memcpy(second, before, REGION_BYTES);
    memcpy(from.bytes, before, REGION_BYTES);
    memcpy(to.bytes, before, REGION_BYTES);
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    require(vn_shadow_encode(&from, first, (struct vn_pages){0}, &page, vn_shadow_pages(&from),
                             codec, &e, WIRE_MESSAGE_MAX) >= 0);
    require(vn_shadow_apply(&to, second, codec, wire_enc_data(&e), wire_enc_len(&e)) == 0);
    require(memcmp(second, after, REGION_BYTES) == 0);
    wire_enc_fini(&e);
    vn_shadow_fini(&from);
    vn_shadow_fini(&to);
}

static uint8_t memory[REGION_BYTES] __attribute__((aligned(64)));
static uint8_t before[REGION_BYTES];

/* Every 97th byte is ours and not yet sent. */
static void open_end(struct vn_shadow *shadow)
{
    require(vn_shadow_init(shadow, REGION_BYTES) == 0);
    for (size_t i = 0; i < REGION_BYTES; i++)
        shadow->bytes[i] = memory[i] = (uint8_t)(i % 3 ? 0 : i);
    for (size_t i = 0; i < REGION_BYTES; i += 97)
        memory[i] = (uint8_t)(shadow->bytes[i] + 1);
    memcpy(before, memory, REGION_BYTES);
}

/* As the server takes it; whether it was accepted. */
static int overwrite(struct vn_delta_codec *codec, const uint8_t *data, size_t size)
{
    struct vn_shadow shadow;
    open_end(&shadow);
    int accepted = vn_shadow_apply(&shadow, memory, codec, data, size) == 0;
    if (!accepted)
        require(memcmp(memory, before, REGION_BYTES) == 0);
    for (size_t i = 0; i < REGION_BYTES; i++)
        require(memory[i] == shadow.bytes[i] || (i % 97 == 0 && memory[i] == before[i]));
    vn_shadow_fini(&shadow);
    return accepted;
}

/* As the client takes it. */
static void merge(struct vn_delta_codec *codec, const uint8_t *data, size_t size)
{
    struct vn_shadow shadow;
    struct vn_delta_in in;
    struct vn_change change;
    open_end(&shadow);
    require(vn_delta_open(codec, data, size, REGION_BYTES, &in) == 0);
    while (vn_delta_next(&in, &change))
        vn_shadow_merge(&shadow, memory, &change);
    for (size_t i = 0; i < REGION_BYTES; i++)
        require(i % 97 ? memory[i] == shadow.bytes[i] : memory[i] == before[i]);
    vn_shadow_fini(&shadow);
    send_on(codec, before, memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vn_delta_codec *codec;
    require(vn_delta_codec_create(1024, &codec) == 0);
    if (overwrite(codec, data, size))
        merge(codec, data, size);
    vn_delta_codec_destroy(codec);
    return 0;
}
