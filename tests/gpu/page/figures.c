/* What mapping pages costs on a GPU: the bare driver calls, ours beside them, and what each trick
 * saves.
 *
 *     page-figures cuda|vulkan|host [--json] [LAYERS]
 *
 * Medians of many rounds.  A row's ratio is to the bare calls, or to the trick turned off, which
 * are measured in turn with it: both have memory of the same age at the same places of a range of
 * their own, so that nothing but the calls differs. */
#include "base/clock.h"
#include "base/report/bench.h"
#include "base/units.h"
#include "page/tensors.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 60,
    WARMUPS = 2, /* rounds before these that are not counted */
    FIRST_ID = 2,
    RUN = 8 /* ids side by side in one batch */
};

_Static_assert(RUN == 8, "rows are named for it");

static struct page_outcome outcome;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

static double elapsed_us(uint64_t start)
{
    return (double)(hw_now_ns() - start) / 1e3;
}

static void check(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, outcome.why.text);
    exit(1);
}

/* ---- the bare driver ---- */

typedef unsigned long long ptr;

struct location {
    int type, id;
};

struct prop {
    int type, handle_types;
    struct location location;
    void *win32;
    unsigned char flags[8];
};

struct access {
    struct location location;
    int flags;
};

static struct {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*use)(void *);
    int (*reserve)(ptr *, size_t, size_t, ptr, unsigned long long);
    int (*unreserve)(ptr, size_t);
    int (*create)(ptr *, size_t, const struct prop *, unsigned long long);
    int (*release)(ptr);
    int (*map)(ptr, size_t, size_t, ptr, unsigned long long);
    int (*unmap)(ptr, size_t);
    int (*set_access)(ptr, size_t, const struct access *, size_t);
} cu;

static bool load_driver(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *context;
    if (!lib)
        return false;
    *(void **)&cu.init = dlsym(lib, "cuInit");
    *(void **)&cu.retain = dlsym(lib, "cuDevicePrimaryCtxRetain");
    *(void **)&cu.use = dlsym(lib, "cuCtxSetCurrent");
    *(void **)&cu.reserve = dlsym(lib, "cuMemAddressReserve");
    *(void **)&cu.unreserve = dlsym(lib, "cuMemAddressFree");
    *(void **)&cu.create = dlsym(lib, "cuMemCreate");
    *(void **)&cu.release = dlsym(lib, "cuMemRelease");
    *(void **)&cu.map = dlsym(lib, "cuMemMap");
    *(void **)&cu.unmap = dlsym(lib, "cuMemUnmap");
    *(void **)&cu.set_access = dlsym(lib, "cuMemSetAccess");
    return cu.init && cu.set_access && cu.init(0) == 0 && cu.retain(&context, 0) == 0 &&
           cu.use(context) == 0;
}

/* One id by the plainest loop there is, on handles of its own that live as long as it does. */
struct bare {
    const struct page_geometry *geometry; /* of the tensors beside it: the same places */
    ptr base;
    ptr handles[2 * PAGE_LAYERS_MAX];
};

static void must(int result, const char *call)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", call, result);
    exit(1);
}

static void bare_create(struct bare *b)
{
    struct prop prop = {.type = 1, .location = {1, 0}};
    int bad = 0;
    for (uint32_t i = 0; i < b->geometry->pieces; i++)
        bad |= cu.create(&b->handles[i], b->geometry->piece_bytes, &prop, 0);
    must(bad, "cuMemCreate");
}

static void bare_release(struct bare *b)
{
    int bad = 0;
    for (uint32_t i = 0; i < b->geometry->pieces; i++)
        bad |= cu.release(b->handles[i]);
    must(bad, "cuMemRelease");
}

static void bare_map(struct bare *b, uint32_t id)
{
    struct access access = {{1, 0}, 3};
    size_t bytes = b->geometry->piece_bytes;
    int bad = 0;
    for (uint32_t i = 0; i < b->geometry->pieces; i++) {
        ptr at = b->base + page_piece_offset(b->geometry, i, id);
        bad |= cu.map(at, bytes, 0, b->handles[i], 0);
        bad |= cu.set_access(at, bytes, &access, 1);
    }
    must(bad, "cuMemMap");
}

static void bare_unmap(struct bare *b, uint32_t id)
{
    int bad = 0;
    for (uint32_t i = 0; i < b->geometry->pieces; i++)
        bad |= cu.unmap(b->base + page_piece_offset(b->geometry, i, id), b->geometry->piece_bytes);
    must(bad, "cuMemUnmap");
}

static void bare_open(struct bare *b, const struct page_geometry *geometry)
{
    b->geometry = geometry;
    must(cu.reserve(&b->base, geometry->range_bytes, 0, 0, 0), "cuMemAddressReserve");
}

static void bare_close(struct bare *b)
{
    must(cu.unreserve(b->base, b->geometry->range_bytes), "cuMemAddressFree");
}

/* ---- two beside each other ---- */

static struct page_tensors *make(const struct page_tensors_config *config)
{
    struct page_tensors *t;
    struct page_error why;
    int rc = page_tensors_create(config, &t, &why);
    if (rc == 0)
        return t;
    fprintf(stderr, "%s: %s\n", rc == -ENODEV ? "skipped" : "failed", why.text);
    exit(rc == -ENODEV ? 77 : 1);
}

/* Tensors, or the bare driver where there are none. */
struct contender {
    struct page_tensors *tensors;
    struct bare bare;
    double map[ROUNDS], unmap[ROUNDS];
};

struct pair {
    double map, unmap; /* us */
};

/* A batch of `count` neighbours; what is left over from an unmap is its own. */
static void one_round(struct contender *c, uint32_t count, int round)
{
    uint32_t ids[RUN];
    for (uint32_t i = 0; i < count; i++)
        ids[i] = FIRST_ID + i;
    uint64_t start = hw_now_ns();
    if (c->tensors)
        check(page_tensors_map(c->tensors, ids, count, &outcome), "map");
    else
        bare_map(&c->bare, FIRST_ID);
    double mapped = elapsed_us(start);
    start = hw_now_ns();
    if (c->tensors) {
        check(page_tensors_unmap(c->tensors, ids, count, &outcome), "unmap");
        page_tensors_commit(c->tensors);
    } else {
        bare_unmap(&c->bare, FIRST_ID);
    }
    double unmapped = elapsed_us(start);
    if (round < 0)
        return;
    c->map[round] = mapped;
    c->unmap[round] = unmapped;
}

/* Round by round, either one first in turn, so that both meet the same machine. */
static void compete(struct contender *a, struct contender *b, uint32_t count)
{
    for (int round = -WARMUPS; round < ROUNDS; round++) {
        one_round(round % 2 ? b : a, count, round);
        one_round(round % 2 ? a : b, count, round);
    }
}

static struct pair medians(struct contender *c)
{
    return (struct pair){median(c->map, ROUNDS), median(c->unmap, ROUNDS)};
}

/* The same batch with two configurations: results[0] and results[1]. */
static void measure_batches(const struct page_tensors_config *first,
                            const struct page_tensors_config *second, uint32_t count,
                            struct pair results[2])
{
    static struct contender a, b;
    a.tensors = make(first);
    b.tensors = make(second);
    compete(&a, &b, count);
    page_tensors_destroy(a.tensors);
    page_tensors_destroy(b.tensors);
    results[0] = medians(&a);
    results[1] = medians(&b);
}

/* One id beside the bare driver. */
static void measure_beside_bare(const struct page_tensors_config *config, struct pair results[2])
{
    static struct contender ours, bare;
    ours.tensors = make(config);
    bare_open(&bare.bare, page_tensors_geometry(ours.tensors));
    bare_create(&bare.bare);
    compete(&ours, &bare, 1);
    bare_release(&bare.bare);
    bare_close(&bare.bare);
    page_tensors_destroy(ours.tensors);
    results[0] = medians(&ours);
    results[1] = medians(&bare);
}

/* What creating and releasing the memory of one id costs the bare driver, mapped once between. */
static void measure_creation(const struct page_tensors_config *config, double *create,
                             double *release)
{
    double times[2][ROUNDS];
    struct page_tensors *places = make(config);
    struct bare b;
    bare_open(&b, page_tensors_geometry(places));
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = hw_now_ns();
        bare_create(&b);
        times[0][round] = elapsed_us(start);
        bare_map(&b, FIRST_ID);
        bare_unmap(&b, FIRST_ID);
        start = hw_now_ns();
        bare_release(&b);
        times[1][round] = elapsed_us(start);
    }
    bare_close(&b);
    page_tensors_destroy(places);
    *create = median(times[0], ROUNDS);
    *release = median(times[1], ROUNDS);
}

/* ---- the table ---- */

/* `what` is a row of the layout's. */
static void row(struct hw_bench *b, const char *layout, const char *what, double value,
                double baseline, const char *against, const char *target)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", layout, what);
    hw_bench_row(b, name, value, "us", baseline);
    hw_bench_field(b, "against", "%s", against);
    hw_bench_field(b, "target", "%s", target);
}

static void measure_tricks(struct hw_bench *b, const struct page_tensors_config *config,
                           const char *layout)
{
    struct page_tensors_config off = *config;
    struct pair r[2];
    off.no_reuse = true;
    measure_batches(config, &off, 1, r);
    row(b, layout, "map.memory-reused", r[0].map, r[1].map, "memory created by the map", "-");
    row(b, layout, "unmap.memory-reused", r[0].unmap, r[1].unmap, "memory released after the unmap",
        "-");

    off = *config;
    off.device.not_joined = true;
    measure_batches(config, &off, RUN, r);
    row(b, layout, "map-8.joined", r[0].map, r[1].map, "a call for each piece", "-");
    row(b, layout, "unmap-8.joined", r[0].unmap, r[1].unmap, "a call for each piece", "-");
}

static void measure_one_id(struct hw_bench *b, const struct page_tensors_config *config,
                           const char *layout, bool with_bare)
{
    bool whole = config->layout == PAGE_CONTIGUOUS;
    struct pair r[2];
    if (with_bare) {
        double create, release;
        measure_creation(config, &create, &release);
        row(b, layout, "bare.create", create, NAN, "-", "-");
        row(b, layout, "bare.release", release, NAN, "-", "-");
        measure_beside_bare(config, r);
    } else {
        measure_batches(config, config, 1, r); /* beside its like, for want of bare calls */
        r[1] = (struct pair){NAN, NAN};
    }
    const char *against = with_bare ? "bare driver calls" : "-";
    row(b, layout, "map", r[0].map, r[1].map, against, whole ? "<= 200 us" : "<= 1.15 x");
    row(b, layout, "unmap", r[0].unmap, r[1].unmap, against, whole ? "<= 150 us" : "<= 1.15 x");
}

int main(int argc, char **argv)
{
    const struct page_backend_ops *backend = argc > 1 ? page_backend_find(argv[1]) : NULL;
    bool json = argc > 2 && strcmp(argv[2], "--json") == 0;
    uint64_t layers = 32;
    if (!backend ||
        (argc > 2 + json && hw_parse_u64(argv[2 + json], 1, PAGE_LAYERS_MAX, &layers))) {
        fprintf(stderr, "usage: %s cuda|vulkan|host [--json] [LAYERS]\n", argv[0]);
        return 2;
    }
    struct page_tensors_config config = {
        .backend = backend,
        .device = {.memory_bytes = 48 * 2 * layers * PAGE_BYTES_DEFAULT},
        .layers = (uint32_t)layers};
    struct hw_bench bench;
    hw_bench_begin(&bench, "pages");
    bool with_bare = backend == &page_backend_cuda && load_driver();
    for (int whole = 1; whole >= 0; whole--) {
        const char *layout = whole ? "contiguous" : "per-layer";
        config.layout = whole ? PAGE_CONTIGUOUS : PAGE_PER_LAYER;
        measure_one_id(&bench, &config, layout, with_bare);
        measure_tricks(&bench, &config, layout);
    }
    int rc = json ? hw_bench_print_json(&bench, stdout) : hw_bench_print_table(&bench, stdout);
    hw_bench_end(&bench);
    return rc ? 1 : 0;
}
