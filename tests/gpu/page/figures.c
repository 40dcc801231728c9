/* What mapping pages costs on a GPU: the bare driver calls, ours beside them, and what each trick
 * saves.
 *
 *     page-figures cuda|vulkan|host [--json] [LAYERS]
 *
 * Medians of many rounds; a row's ratio is to the bare calls, or to the trick turned off. */
#include "base/bench.h"
#include "base/clock.h"
#include "base/units.h"
#include "page/tensors.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 60,
    GROWTH = 24, /* ids that a sequence grows by, one at a time */
    RUN = 8      /* ids side by side in one batch */
};

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

struct bare {
    double create, map, unmap, release; /* us, for all pieces of one id */
};

/* One id by the plainest loop there is: `pieces` handles, far apart in the range. */
static struct bare measure_bare(uint32_t pieces, size_t piece_bytes)
{
    struct prop prop = {.type = 1, .location = {1, 0}};
    struct access access = {{1, 0}, 3};
    double times[4][ROUNDS];
    ptr handles[2 * PAGE_LAYERS_MAX], base = 0;
    size_t stride = 4 * piece_bytes, range = pieces * stride;
    int bad = cu.reserve(&base, range, 0, 0, 0);
    for (int round = 0; round < ROUNDS && !bad; round++) {
        uint64_t start = hw_now_ns();
        for (uint32_t i = 0; i < pieces; i++)
            bad |= cu.create(&handles[i], piece_bytes, &prop, 0);
        times[0][round] = elapsed_us(start);
        start = hw_now_ns();
        for (uint32_t i = 0; i < pieces; i++) {
            bad |= cu.map(base + i * stride, piece_bytes, 0, handles[i], 0);
            bad |= cu.set_access(base + i * stride, piece_bytes, &access, 1);
        }
        times[1][round] = elapsed_us(start);
        start = hw_now_ns();
        for (uint32_t i = 0; i < pieces; i++)
            bad |= cu.unmap(base + i * stride, piece_bytes);
        times[2][round] = elapsed_us(start);
        start = hw_now_ns();
        for (uint32_t i = 0; i < pieces; i++)
            bad |= cu.release(handles[i]);
        times[3][round] = elapsed_us(start);
    }
    (void)cu.unreserve(base, range);
    if (bad)
        return (struct bare){NAN, NAN, NAN, NAN};
    return (struct bare){median(times[0], ROUNDS), median(times[1], ROUNDS),
                         median(times[2], ROUNDS), median(times[3], ROUNDS)};
}

/* ---- ours ---- */

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

struct pair {
    double map, unmap;
};

/* A batch of `count` neighbours, again and again; what is left over from an unmap is its own. */
static struct pair measure_batch(const struct page_tensors_config *config, uint32_t count)
{
    struct page_tensors *t = make(config);
    double map[ROUNDS], unmap[ROUNDS];
    uint32_t ids[RUN];
    for (uint32_t i = 0; i < count; i++)
        ids[i] = 2 + i;
    for (int round = -2; round < ROUNDS; round++) {
        uint64_t start = hw_now_ns();
        check(page_tensors_map(t, ids, count, &outcome), "map");
        double mapped = elapsed_us(start);
        start = hw_now_ns();
        check(page_tensors_unmap(t, ids, count, &outcome), "unmap");
        page_tensors_settle(t);
        if (round >= 0) {
            map[round] = mapped;
            unmap[round] = elapsed_us(start);
        }
    }
    page_tensors_destroy(t);
    return (struct pair){median(map, ROUNDS), median(unmap, ROUNDS)};
}

/* A page at a time with a pause between, as decoding needs them, and none comes back. */
static double measure_growth(const struct page_tensors_config *config)
{
    struct page_tensors *t = make(config);
    double times[GROWTH];
    for (uint32_t id = 0; id < GROWTH; id++) {
        (void)poll(NULL, 0, 20); /* a decode step or two */
        uint64_t start = hw_now_ns();
        check(page_tensors_map(t, &id, 1, &outcome), "map");
        times[id] = elapsed_us(start);
    }
    page_tensors_destroy(t);
    return median(times + 2, GROWTH - 2);
}

static void row(struct hw_bench *b, const char *name, double value, double baseline,
                const char *against, const char *target)
{
    hw_bench_row(b, name, value, "us", baseline);
    hw_bench_field(b, "against", "%s", against);
    hw_bench_field(b, "target", "%s", target);
}

static void measure_tricks(struct hw_bench *b, struct page_tensors_config config,
                           const char *layout)
{
    char name[96];
    struct page_tensors_config off = config;
    struct pair with = measure_batch(&config, 1), without;
    off.no_reuse = true;
    without = measure_batch(&off, 1);
    snprintf(name, sizeof name, "%s.map.memory-reused", layout);
    row(b, name, with.map, without.map, "memory created by the map", "-");
    snprintf(name, sizeof name, "%s.unmap.memory-reused", layout);
    row(b, name, with.unmap, without.unmap, "memory released after the unmap", "-");

    off = config;
    off.device.not_joined = true;
    with = measure_batch(&config, RUN);
    without = measure_batch(&off, RUN);
    snprintf(name, sizeof name, "%s.map-%d.joined", layout, RUN);
    row(b, name, with.map, without.map, "a call for each piece", "-");
    snprintf(name, sizeof name, "%s.unmap-%d.joined", layout, RUN);
    row(b, name, with.unmap, without.unmap, "a call for each piece", "-");

    off = config;
    config.background = true;
    config.reserve_low = 4;
    config.reserve_high = 8;
    double kept = measure_growth(&config), made = measure_growth(&off);
    snprintf(name, sizeof name, "%s.map-growing.reserve", layout);
    row(b, name, kept, made, "no thread that keeps a reserve", "-");
}

static void measure_layout(struct hw_bench *b, struct page_tensors_config config, bool with_bare)
{
    bool whole = config.layout == PAGE_CONTIGUOUS;
    const char *layout = whole ? "contiguous" : "per-layer";
    uint32_t pieces = whole ? 1 : 2 * config.layers;
    size_t piece = whole ? 2 * config.layers * PAGE_BYTES_DEFAULT : PAGE_BYTES_DEFAULT;
    struct bare bare = {NAN, NAN, NAN, NAN};
    char name[96];
    if (with_bare) {
        bare = measure_bare(pieces, piece);
        snprintf(name, sizeof name, "%s.bare.create", layout);
        row(b, name, bare.create, NAN, "-", "-");
        snprintf(name, sizeof name, "%s.bare.map-and-access", layout);
        row(b, name, bare.map, NAN, "-", "-");
        snprintf(name, sizeof name, "%s.bare.unmap", layout);
        row(b, name, bare.unmap, NAN, "-", "-");
        snprintf(name, sizeof name, "%s.bare.release", layout);
        row(b, name, bare.release, NAN, "-", "-");
    }
    struct pair ours = measure_batch(&config, 1);
    snprintf(name, sizeof name, "%s.map", layout);
    row(b, name, ours.map, bare.map, "bare driver calls", whole ? "<= 200 us" : "<= 1.15 x");
    snprintf(name, sizeof name, "%s.unmap", layout);
    row(b, name, ours.unmap, bare.unmap, "bare driver calls", whole ? "<= 150 us" : "<= 1.15 x");
    measure_tricks(b, config, layout);
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
    config.layout = PAGE_CONTIGUOUS;
    measure_layout(&bench, config, with_bare);
    config.layout = PAGE_PER_LAYER;
    measure_layout(&bench, config, with_bare);
    int rc = json ? hw_bench_print_json(&bench, stdout) : hw_bench_print_table(&bench, stdout);
    hw_bench_end(&bench);
    return rc ? 1 : 0;
}
