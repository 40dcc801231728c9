#include "kv/common/attach.h"

#include "base/wait.h"
#include "wire/dec.h"
#include "wire/enc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, OFFER_WORDS = 11 };

static void put_zeros(struct wire_enc *e, size_t total)
{
    while (wire_enc_len(e) < total)
        wire_put_u32(e, 0);
    assert(wire_enc_error(e) == 0);
}

/* Reserved bytes must be zero, so that a later version can use them. */
static void get_zeros(struct wire_dec *d)
{
    while (wire_dec_left(d) >= 4)
        if (wire_get_u32(d))
            wire_dec_fail(d, -EPROTO);
}

void kv_attach_encode(const struct kv_region_shape *shape, uint8_t out[KV_ATTACH_BYTES])
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, KV_ATTACH_BYTES);
    wire_put_u32(&e, KV_ATTACH_MAGIC);
    wire_put_u32(&e, KV_ATTACH_VERSION);
    wire_put_u32(&e, shape->depth);
    wire_put_u32(&e, shape->value_max);
    wire_put_u32(&e, shape->staging_bytes);
    put_zeros(&e, KV_ATTACH_BYTES);
}

/* Magic and version: in the same place in every version. */
static int get_start(struct wire_dec *d, size_t len, size_t want)
{
    uint32_t magic = wire_get_u32(d), version = wire_get_u32(d);
    if (len != want || magic != KV_ATTACH_MAGIC)
        return -EPROTO;
    return version == KV_ATTACH_VERSION ? 0 : -EPROTONOSUPPORT;
}

int kv_attach_decode(const uint8_t *data, size_t len, struct kv_region_shape *out)
{
    struct wire_dec d;
    wire_dec_init(&d, data, len);
    int rc = get_start(&d, len, KV_ATTACH_BYTES);
    if (rc)
        return rc;
    struct kv_region_shape shape = {.depth = wire_get_u32(&d)};
    shape.value_max = wire_get_u32(&d);
    shape.staging_bytes = wire_get_u32(&d);
    get_zeros(&d);
    if (wire_dec_end(&d))
        return -EPROTO;
    if (!kv_shape_ok(&shape) || kv_region_slots_bytes(&shape) > KV_REGION_BYTES_MAX)
        return -EINVAL;
    *out = shape;
    return 0;
}

void kv_offer_encode(const struct kv_offer *o, uint8_t out[KV_OFFER_BYTES])
{
    const uint32_t words[OFFER_WORDS] = {KV_ATTACH_MAGIC,
                                         KV_ATTACH_VERSION,
                                         o->error,
                                         o->shape.depth,
                                         o->shape.value_max,
                                         o->ranks,
                                         o->daemons,
                                         o->rank,
                                         o->index,
                                         o->generation,
                                         o->shape.staging_bytes};
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, KV_OFFER_BYTES);
    for (int i = 0; i < OFFER_WORDS; i++)
        wire_put_u32(&e, words[i]);
    wire_put_u64(&e, o->arena_bytes);
    put_zeros(&e, KV_OFFER_BYTES);
}

static bool offer_ok(const struct kv_offer *o)
{
    return kv_shape_ok(&o->shape) && o->ranks >= 1 && o->ranks <= KV_RANKS_MAX &&
           o->rank < o->ranks && o->daemons >= 1 && o->daemons <= KV_DAEMONS_MAX &&
           o->index < o->daemons && (o->arena_bytes == 0 || o->shape.staging_bytes > 0);
}

int kv_offer_decode(const uint8_t *data, size_t len, struct kv_offer *out)
{
    struct wire_dec d;
    wire_dec_init(&d, data, len);
    int rc = get_start(&d, len, KV_OFFER_BYTES);
    if (rc)
        return rc;
    struct kv_offer o = {.error = wire_get_u32(&d)};
    o.shape.depth = wire_get_u32(&d);
    o.shape.value_max = wire_get_u32(&d);
    o.ranks = wire_get_u32(&d);
    o.daemons = wire_get_u32(&d);
    o.rank = wire_get_u32(&d);
    o.index = wire_get_u32(&d);
    o.generation = wire_get_u32(&d);
    o.shape.staging_bytes = wire_get_u32(&d);
    o.arena_bytes = wire_get_u64(&d);
    get_zeros(&d);
    if (wire_dec_end(&d) || (o.error == 0 && !offer_ok(&o)) || o.error > INT16_MAX)
        return -EPROTO;
    *out = o;
    return 0;
}

/* ---- what comes with an offer ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void kv_attachment_close_memfd(struct kv_attachment *a)
{
    close_fd(&a->memfd);
}

void kv_attachment_fini(struct kv_attachment *a)
{
    if (a->map)
        munmap(a->map, a->bytes);
    close_fd(&a->memfd);
    close_fd(&a->daemon_bell);
    close_fd(&a->client_bell);
    a->map = NULL;
}

static int map_region(struct kv_attachment *a, bool populate)
{
    void *map = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | (populate ? MAP_POPULATE : 0), a->memfd, 0);
    if (map == MAP_FAILED)
        return -errno;
    a->map = map;
    return 0;
}

int kv_attachment_make(const struct kv_region_shape *shape, struct kv_attachment *out)
{
    struct kv_attachment a = {.memfd = -1, .daemon_bell = -1, .client_bell = -1};
    a.bytes = kv_region_bytes(shape);
    int rc = 0;
    a.memfd = memfd_create("hawser-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    a.daemon_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    a.client_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a.memfd < 0 || a.daemon_bell < 0 || a.client_bell < 0 ||
        ftruncate(a.memfd, (off_t)a.bytes) || fcntl(a.memfd, F_ADD_SEALS, SEALS))
        rc = -errno;
    if (rc == 0)
        rc = map_region(&a, false);
    if (rc) {
        kv_attachment_fini(&a);
        return rc;
    }
    kv_region_format(a.map, shape);
    *out = a;
    return 0;
}

/* A region that can shrink could kill us with SIGBUS; a bell that is no eventfd could block. */
static bool descriptors_ok(const struct kv_attachment *a)
{
    struct stat st;
    int seals = fcntl(a->memfd, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && fstat(a->memfd, &st) == 0 &&
           (uint64_t)st.st_size == a->bytes && hw_is_eventfd(a->daemon_bell) &&
           hw_is_eventfd(a->client_bell);
}

int kv_attachment_take(const int fds[KV_OFFER_FDS], const struct kv_region_shape *shape,
                       struct kv_attachment *out)
{
    struct kv_attachment a = {.memfd = fds[0], .daemon_bell = fds[1], .client_bell = fds[2]};
    a.bytes = kv_region_bytes(shape);
    /* The kernel gives a staging area's pages as they are used; most of it may never be. */
    int rc = descriptors_ok(&a) ? map_region(&a, shape->staging_bytes == 0) : -EPROTO;
    if (rc == 0)
        rc = kv_region_check(a.map, shape);
    if (rc) {
        kv_attachment_fini(&a);
        return rc;
    }
    kv_attachment_close_memfd(&a);
    *out = a;
    return 0;
}
