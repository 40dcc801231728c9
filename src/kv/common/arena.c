#include "kv/common/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1; older C libraries do not name it */
#endif

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL };

static int map_arena(struct kv_arena *a, int protection)
{
    void *map = mmap(NULL, a->bytes, protection, MAP_SHARED, a->fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    a->map = map;
    /* Blocks are read from end to end, so huge pages help; failure to get them is no error. */
    (void)madvise(map, a->bytes, MADV_HUGEPAGE);
    return 0;
}

int kv_arena_make(size_t bytes, struct kv_arena *out)
{
    struct kv_arena a = {.bytes = bytes};
    a.fd = memfd_create("hawser-kv-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int rc = a.fd < 0 || ftruncate(a.fd, (off_t)bytes) ? -errno : 0;
    if (rc == 0)
        rc = map_arena(&a, PROT_READ | PROT_WRITE);
    if (rc == 0 && fcntl(a.fd, F_ADD_SEALS, SEALS))
        rc = -errno;
    if (rc) {
        kv_arena_fini(&a);
        return rc;
    }
    *out = a;
    return 0;
}

int kv_arena_take(int fd, size_t bytes, struct kv_arena *out)
{
    struct kv_arena a = {.bytes = bytes, .fd = fd};
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    bool ok = seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &st) == 0 &&
              (uint64_t)st.st_size == bytes;
    int rc = ok ? map_arena(&a, PROT_READ) : -EPROTO;
    close(fd);
    a.fd = -1;
    if (rc == 0)
        *out = a;
    return rc;
}

void kv_arena_fini(struct kv_arena *a)
{
    if (a->map)
        munmap(a->map, a->bytes);
    if (a->fd >= 0)
        close(a->fd);
    *a = (struct kv_arena){.fd = -1};
}
