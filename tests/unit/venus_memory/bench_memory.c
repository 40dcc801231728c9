/* Figures of mapped memory, best of a few runs each: what a clean scan, a first write, a dirty
 * page and the comparison cost.  Printed, never asserted. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/clock.h"
#include "venus/memory/region.h"
#include "venus/memory/shadow.h"

enum { RUNS = 7, UPLOADS = 100 };

static struct vn_delta_codec *codec;
static struct wire_enc enc;

static void must(int err)
{
    if (err < 0) {
        fprintf(stderr, "bench: %s\n", strerror(-err));
        exit(1);
    }
}

static uint8_t *open_region(enum vn_track_method method, size_t size, struct vn_region **region)
{
    struct vn_region_params params = {.size = size, .method = method};
    must(vn_region_create(&params, region));
    return vn_region_memory(*region);
}

static void send_all(struct vn_region *region)
{
    size_t changes;
    int more;
    must(vn_region_collect(region, 0, SIZE_MAX));
    do {
        wire_enc_reset(&enc);
        must(more = vn_region_encode(region, codec, &enc, WIRE_MESSAGE_MAX, VN_SERVER_WRITES,
                                     &changes));
    } while (more);
}

static double best(double a, double b)
{
    return a < b ? a : b;
}

/* Microseconds of a collection that finds nothing, in a region that was never touched or wholly. */
static double clean_scan(enum vn_track_method method, size_t size, bool touched)
{
    struct vn_region *region;
    uint8_t *p = open_region(method, size, &region);
    double us = 1e18;
    if (touched)
        memset(p, 1, size);
    send_all(region);
    for (int i = 0; i < 20; i++) /* past the point where idle pages are protected */
        must(vn_region_collect(region, 0, SIZE_MAX));
    for (int i = 0; i < RUNS; i++) {
        uint64_t start = hw_now_ns();
        must(vn_region_collect(region, 0, SIZE_MAX));
        us = best(us, (double)(hw_now_ns() - start) / 1e3);
    }
    vn_region_destroy(region);
    return us;
}

/* Nanoseconds of the first write to a clean page, and of collecting and encoding one that has one
 * word changed. */
static void dirty_page(enum vn_track_method method, double *write_ns, double *page_ns)
{
    enum { PAGES = 4096 };
    struct vn_region *region;
    uint8_t *p = open_region(method, (size_t)PAGES * VN_PAGE_BYTES, &region);
    memset(p, 1, (size_t)PAGES * VN_PAGE_BYTES);
    send_all(region);
    *write_ns = *page_ns = 1e18;
    for (int run = 0; run < RUNS; run++) {
        for (int i = 0; i < 20; i++)
            must(vn_region_collect(region, 0, SIZE_MAX));
        uint64_t start = hw_now_ns();
        for (size_t i = 0; i < PAGES; i += 16)
            *(volatile uint32_t *)(void *)(p + i * VN_PAGE_BYTES + 64) = (uint32_t)run + 2;
        uint64_t written = hw_now_ns();
        send_all(region);
        uint64_t sent = hw_now_ns();
        *write_ns = best(*write_ns, (double)(written - start) / (PAGES / 16));
        *page_ns = best(*page_ns, (double)(sent - written) / (PAGES / 16));
    }
    vn_region_destroy(region);
}

/* GB/s of memory through compare (clean), and through snapshot, compare and encode (dirty). */
static void diff_speed(size_t bytes, size_t step, double *clean, double *dirty, double *ratio)
{
    uint8_t *memory = aligned_alloc(VN_PAGE_BYTES, bytes);
    struct vn_shadow shadow;
    must(memory ? vn_shadow_init(&shadow, bytes) : -12);
    double clean_ns = 1e18, dirty_ns = 1e18;
    memset(memory, 1, bytes);
    for (int run = 0; run < RUNS; run++) {
        for (size_t at = 0; at < bytes; at += step)
            memory[at] = (uint8_t)(memory[at] + 1);
        for (int again = 0; again < 2; again++) {
            size_t page = 0;
            wire_enc_reset(&enc);
            uint64_t start = hw_now_ns();
            must(vn_shadow_encode(&shadow, memory, (struct vn_pages){0}, &page,
                                  bytes / VN_PAGE_BYTES, codec, &enc, SIZE_MAX));
            double ns = (double)(hw_now_ns() - start);
            if (again) {
                clean_ns = best(clean_ns, ns);
            } else if (run > 0) {
                dirty_ns = best(dirty_ns, ns);
                *ratio = (double)wire_enc_len(&enc) / (double)bytes;
            }
        }
    }
    *clean = (double)bytes / clean_ns;
    *dirty = (double)bytes / dirty_ns;
    vn_shadow_fini(&shadow);
    free(memory);
}

/* GB/s of applying a delta that changes every byte, at the client. */
static double apply_speed(enum vn_track_method method)
{
    size_t bytes = 16 << 20;
    struct vn_region *region;
    uint8_t *memory = aligned_alloc(VN_PAGE_BYTES, bytes);
    struct vn_shadow shadow;
    must(memory ? vn_shadow_init(&shadow, bytes) : -12);
    uint8_t *p = open_region(method, bytes, &region);
    memset(p, 0, bytes); /* populated, so that page faults of fresh memory are not counted */
    send_all(region);
    double ns = 1e18;
    for (int run = 0; run < RUNS; run++) {
        size_t page = 0, changed;
        memset(memory, run + 1, bytes);
        wire_enc_reset(&enc);
        must(vn_shadow_encode(&shadow, memory, (struct vn_pages){0}, &page, bytes / VN_PAGE_BYTES,
                              codec, &enc, SIZE_MAX));
        for (int i = 0; i < 20; i++)
            must(vn_region_collect(region, 0, SIZE_MAX));
        uint64_t start = hw_now_ns();
        must(vn_region_apply(region, codec, wire_enc_data(&enc), wire_enc_len(&enc), &changed));
        ns = best(ns, (double)(hw_now_ns() - start));
    }
    vn_region_destroy(region);
    vn_shadow_fini(&shadow);
    free(memory);
    return (double)bytes / ns;
}

/* A reader in the server's place: takes what arrives on a socket and counts it. */
struct reader {
    int fd;
    _Atomic size_t got; /* release after each read, for upload_us */
};

static void *read_main(void *user)
{
    static uint8_t memory[4 << 20];
    struct reader *reader = user;
    size_t at = 0;
    for (ssize_t n; (n = read(reader->fd, memory + at, sizeof(memory) - at)) > 0;) {
        at = (at + (size_t)n) % sizeof(memory);
        atomic_fetch_add_explicit(&reader->got, (size_t)n, memory_order_release);
    }
    return NULL;
}

static void fill(uint8_t *p, size_t bytes, uint64_t factor)
{
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = (at + 1) * factor * UINT64_C(0x9e3779b97f4a7c15);
        memcpy(p + at, &word, 8);
    }
}

/* Sends whole pages as they are and the rest as deltas; the bytes. */
static size_t send_whole(struct vn_region *region, int fd)
{
    const uint8_t *from;
    size_t off = 0, len, changes, sent = 0;
    for (; vn_region_take_whole(region, 2 * VN_WHOLE_MIN, &off, &len, &from); off += len) {
        for (size_t at = 0; at < len;) {
            ssize_t n = write(fd, from + at, len - at);
            must(n < 0 ? -errno : 0);
            at += (size_t)n;
        }
        sent += len;
    }
    wire_enc_reset(&enc);
    must(vn_region_encode(region, codec, &enc, WIRE_MESSAGE_MAX, VN_SERVER_IS_STILL, &changes));
    return sent;
}

/* Microseconds from a filled staging buffer until a reader has its bytes: the first time, and the
 * best of those that follow. */
static void upload_us(size_t bytes, double *first, double *again)
{
    struct vn_region *region;
    uint8_t *p = open_region(VN_TRACK_AUTO, bytes, &region);
    struct reader reader = {0};
    int fds[2];
    pthread_t thread;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) ? -errno : 0);
    reader.fd = fds[1];
    must(-pthread_create(&thread, NULL, read_main, &reader));
    *again = 1e18;
    for (uint64_t run = 0, sent = 0; run < UPLOADS; run++) {
        fill(p, bytes, 2 * run + 1);
        uint64_t start = hw_now_ns();
        must(vn_region_collect(region, 0, SIZE_MAX));
        sent += send_whole(region, fds[0]);
        while (atomic_load_explicit(&reader.got, memory_order_acquire) < sent) {
        }
        double us = (double)(hw_now_ns() - start) / 1e3;
        *again = run ? best(*again, us) : *again;
        *first = run ? *first : us;
    }
    close(fds[0]);
    pthread_join(thread, NULL);
    close(fds[1]);
    vn_region_destroy(region);
}

/* Microseconds of storing pages that came from the server and of the next collection. */
static double readback_us(size_t bytes)
{
    enum { PIECE = 64 << 10 };
    struct vn_region *region;
    (void)open_region(VN_TRACK_AUTO, bytes, &region);
    uint8_t *from = malloc(bytes);
    must(from ? 0 : -ENOMEM);
    double us = 1e18;
    for (uint64_t run = 0; run < UPLOADS; run++) {
        fill(from, bytes, 2 * run + 1);
        uint64_t start = hw_now_ns();
        for (size_t at = 0; at < bytes; at += PIECE)
            must(vn_region_store(region, at, from + at, PIECE));
        must(vn_region_collect(region, 0, SIZE_MAX));
        us = best(us, (double)(hw_now_ns() - start) / 1e3);
    }
    free(from);
    vn_region_destroy(region);
    return us;
}

int main(void)
{
    must(vn_delta_codec_create(0, &codec));
    wire_enc_init(&enc, (size_t)1 << 30);
    struct vn_kernel *kernel;
    must(vn_kernel_ref(&kernel));
    for (int m = VN_TRACK_USERFAULTFD; m <= VN_TRACK_COMPARE; m++) {
        enum vn_track_method method = (enum vn_track_method)m;
        double write_ns, page_ns;
        if (!vn_track_works(kernel, method))
            continue;
        dirty_page(method, &write_ns, &page_ns);
        printf("%-12s clean scan: 16 MiB %.1f us, 256 MiB %.1f us; untouched 4 GiB %.0f us\n",
               vn_track_name(method), clean_scan(method, 16 << 20, true),
               clean_scan(method, 256 << 20, true), clean_scan(method, (size_t)4 << 30, false));
        printf(
            "%-12s first write to a page %.2f us; collect and encode it %.2f us; apply %.1f GB/s\n",
            "", write_ns / 1e3, page_ns / 1e3, apply_speed(method));
    }
    for (size_t mib = 1; mib <= 16; mib *= 4) {
        double first = 0, again = 0;
        upload_us(mib << 20, &first, &again);
        printf("upload %zu MiB from staging memory through a socket %.1f us, the first %.1f us; "
               "readback %.1f us\n",
               mib, again, first, readback_us(mib << 20));
    }
    static const struct {
        const char *what;
        size_t step;
    } shapes[] = {
        {"1 byte a page", 4096}, {"every 64th byte", 64}, {"every 2nd byte", 2}, {"every byte", 1}};
    for (size_t i = 0; vn_diff_get(i); i++) {
        must(vn_diff_use(vn_diff_get(i)->name));
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            double clean, dirty, ratio = 0;
            diff_speed(16 << 20, shapes[s].step, &clean, &dirty, &ratio);
            printf("diff %-5s %-16s clean %.1f GB/s, dirty %.2f GB/s, wire %.4f of it\n",
                   vn_diff_get(i)->name, shapes[s].what, clean, dirty, ratio);
        }
    }
    vn_kernel_unref(kernel);
    wire_enc_fini(&enc);
    vn_delta_codec_destroy(codec);
    return 0;
}
