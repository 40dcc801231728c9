/* The snapshot of one device; see snapshot.h. */
#include "venus/client/device/snapshot.h"

#include <errno.h>
#include <stdlib.h>

#include "vn_commands.gen.h"

enum { ARENA_MAX = 1 << 20 }; /* outputs are decoded into the program's memory */

static struct vnc_blob get_blob(struct wire_dec *in)
{
    uint32_t len = wire_get_u32(in);
    return (struct vnc_blob){.data = wire_get_bytes(in, len), .len = len};
}

static void *get_array(struct wire_dec *in, size_t least, size_t size, uint32_t max,
                       uint32_t *count)
{
    *count = wire_dec_count(in, least, max);
    void *array = calloc(*count ? *count : 1, size);
    if (!array)
        wire_dec_fail(in, -ENOMEM);
    return array;
}

static void get_families(struct vnc_snapshot *s, struct wire_dec *in)
{
    s->families =
        get_array(in, 4, sizeof(*s->families), VNC_SNAPSHOT_QUEUE_FAMILIES_MAX, &s->family_count);
    for (uint32_t i = 0; s->families && i < s->family_count; i++)
        s->families[i] = get_blob(in);
}

static void get_formats(struct vnc_snapshot *s, struct wire_dec *in)
{
    s->formats = get_array(in, 8, sizeof(*s->formats), VNC_SNAPSHOT_FORMATS_MAX, &s->format_count);
    for (uint32_t i = 0; s->formats && i < s->format_count; i++) {
        s->formats[i].format = (VkFormat)wire_get_u32(in);
        s->formats[i].blob = get_blob(in);
    }
}

static void get_extensions(struct vnc_snapshot *s, struct wire_dec *in)
{
    s->extensions =
        get_array(in, 5, sizeof(*s->extensions), VNC_SNAPSHOT_EXTENSIONS_MAX, &s->extension_count);
    for (uint32_t i = 0; s->extensions && i < s->extension_count; i++) {
        wire_get_str_copy(in, s->extensions[i].extensionName,
                          sizeof(s->extensions[i].extensionName));
        s->extensions[i].specVersion = wire_get_u32(in);
    }
}

struct vnc_snapshot *vnc_snapshot_parse(struct wire_dec *in)
{
    struct vnc_snapshot *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->properties = get_blob(in);
    s->features = get_blob(in);
    s->memory = get_blob(in);
    get_families(s, in);
    get_formats(s, in);
    get_extensions(s, in);
    if (wire_dec_error(in)) {
        vnc_snapshot_destroy(s);
        return NULL;
    }
    return s;
}

void vnc_snapshot_destroy(struct vnc_snapshot *s)
{
    if (!s)
        return;
    free(s->families);
    free(s->formats);
    free(s->extensions);
    free(s);
}

struct reader {
    struct hw_arena arena;
    struct vn_decoder d;
};

static struct vn_decoder *reader_open(struct reader *r, struct vnc_blob blob)
{
    hw_arena_init(&r->arena, ARENA_MAX);
    vn_decoder_init(&r->d, &r->arena, NULL, NULL);
    vn_decoder_feed(&r->d, blob.data, blob.len);
    return &r->d;
}

static int reader_close(struct reader *r)
{
    int rc = vn_decoder_end(&r->d);
    hw_arena_fini(&r->arena);
    return rc;
}

int vnc_snapshot_properties(const struct vnc_snapshot *s, VkPhysicalDeviceProperties2 *out)
{
    struct reader r;
    vn_dec_out_VkPhysicalDeviceProperties2(reader_open(&r, s->properties), out);
    return reader_close(&r);
}

int vnc_snapshot_features(const struct vnc_snapshot *s, VkPhysicalDeviceFeatures2 *out)
{
    struct reader r;
    vn_dec_out_VkPhysicalDeviceFeatures2(reader_open(&r, s->features), out);
    return reader_close(&r);
}

int vnc_snapshot_memory(const struct vnc_snapshot *s, VkPhysicalDeviceMemoryProperties2 *out)
{
    struct reader r;
    vn_dec_out_VkPhysicalDeviceMemoryProperties2(reader_open(&r, s->memory), out);
    return reader_close(&r);
}

int vnc_snapshot_family(const struct vnc_snapshot *s, uint32_t family,
                        VkQueueFamilyProperties2 *out)
{
    struct reader r;
    if (family >= s->family_count)
        return -ENOENT;
    vn_dec_out_VkQueueFamilyProperties2(reader_open(&r, s->families[family]), out);
    return reader_close(&r);
}

int vnc_snapshot_format(const struct vnc_snapshot *s, VkFormat format, VkFormatProperties2 *out)
{
    struct reader r;
    for (uint32_t i = 0; i < s->format_count; i++) {
        if (s->formats[i].format == format) {
            vn_dec_out_VkFormatProperties2(reader_open(&r, s->formats[i].blob), out);
            return reader_close(&r);
        }
    }
    return -ENOENT;
}
