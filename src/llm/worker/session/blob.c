/* Bytes that clients send: files of memory, which another process can be given, and which nobody
 * can change once they are sealed.  Weights that clients sent stay for the next one, by their hash,
 * until others need the room. */
#include "llm/model/why.h"
#include "llm/worker/impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool take_bytes(_Atomic uint64_t *held, uint64_t bytes, uint64_t limit)
{
    uint64_t before = atomic_fetch_add(held, bytes);
    if (bytes <= limit && before <= limit - bytes)
        return true;
    atomic_fetch_sub(held, bytes);
    return false;
}

uint64_t llm_upload_share(const struct llm_worker *w)
{
    uint64_t all = w->options.upload_bytes;
    return w->options.share ? all / 100 * w->options.share : all;
}

static int create_file(uint64_t bytes, int *out)
{
    int fd = memfd_create("hawser-upload", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (bytes > INT64_MAX || ftruncate(fd, (off_t)bytes)) {
        close(fd);
        return -ENOMEM;
    }
    *out = fd;
    return 0;
}

/* Takes what was kept the longest of the weights that no client uses, to be freed without the lock,
 * since that takes as long as they are large.  NULL: there are none.  Under the lock. */
static struct llm_kept *take_unused(struct llm_worker *w)
{
    struct llm_kept **last = NULL;
    for (struct llm_kept **at = &w->kept; *at; at = &(*at)->next) {
        if ((*at)->users == 0)
            last = at;
    }
    if (!last)
        return NULL;
    struct llm_kept *kept = *last;
    *last = kept->next;
    w->kept_count--;
    return kept;
}

/* False: there was nothing to free. */
static bool kept_free(struct llm_worker *w, struct llm_kept *kept)
{
    if (!kept)
        return false;
    llm_blob_free(w, &kept->blob);
    free(kept);
    return true;
}

static bool take_of_all(struct llm_worker *w, uint64_t bytes)
{
    bool taken, freed = true;
    while (!(taken = take_bytes(&w->held_bytes, bytes, w->options.upload_bytes)) && freed) {
        pthread_mutex_lock(&w->lock);
        struct llm_kept *unused = take_unused(w);
        pthread_mutex_unlock(&w->lock);
        freed = kept_free(w, unused);
    }
    return taken;
}

int llm_blob_make(struct llm_worker *w, struct llm_client *c, struct llm_blob *blob, uint64_t bytes)
{
    int fd = -1, rc = -EDQUOT;
    if (!take_bytes(&c->held_bytes, bytes, llm_upload_share(w)))
        return rc;
    bool taken = take_of_all(w, bytes);
    if (taken)
        rc = create_file(bytes, &fd);
    if (rc) {
        atomic_fetch_sub(&w->held_bytes, taken ? bytes : 0);
        atomic_fetch_sub(&c->held_bytes, bytes);
        return rc;
    }
    *blob = (struct llm_blob){.is_made = true, .fd = fd, .bytes = bytes, .client = c};
    return 0;
}

int llm_blob_take(int fd, uint64_t bytes, struct llm_blob *blob)
{
    struct stat st;
    if (fstat(fd, &st) || (uint64_t)st.st_size != bytes) {
        close(fd);
        return -EPROTO;
    }
    *blob = (struct llm_blob){
        .is_made = true, .is_given = true, .fd = fd, .bytes = bytes, .filled = bytes};
    return 0;
}

int llm_blob_append(struct llm_blob *blob, const void *data, size_t len)
{
    assert(blob->is_made && len <= blob->bytes - blob->filled);
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(blob->fd, (const uint8_t *)data + done, len - done,
                           (off_t)(blob->filled + done));
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    blob->filled += len;
    return 0;
}

int llm_blob_is_whole(const struct llm_blob *weights, char *why)
{
    if (weights->bytes && weights->filled == weights->bytes)
        return 0;
    return llm_why(why, -EINVAL, "%llu of %llu bytes of weights came before this call",
                   (unsigned long long)weights->filled, (unsigned long long)weights->bytes);
}

int llm_blob_seal(const struct llm_blob *blob)
{
    int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    return blob->is_made && fcntl(blob->fd, F_ADD_SEALS, seals) ? -errno : 0;
}

int llm_blob_map(struct llm_blob *blob, bool writable)
{
    if (blob->data || !blob->bytes)
        return 0;
    void *map =
        mmap(NULL, blob->bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, blob->fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    blob->data = map;
    return 0;
}

void llm_blob_unmap(struct llm_blob *blob)
{
    if (blob->data)
        munmap(blob->data, blob->bytes);
    blob->data = NULL;
}

void llm_blob_keep(struct llm_blob *blob)
{
    if (blob->client)
        atomic_fetch_sub(&blob->client->held_bytes, blob->bytes);
    blob->client = NULL;
}

void llm_blob_free(struct llm_worker *w, struct llm_blob *blob)
{
    llm_blob_keep(blob);
    llm_blob_unmap(blob);
    if (blob->is_made)
        close(blob->fd);
    if (!blob->is_given)
        atomic_fetch_sub(&w->held_bytes, blob->bytes);
    *blob = (struct llm_blob){0};
}

/* ---- weights that are kept ---- */

struct llm_kept *llm_kept_take(struct llm_worker *w, const uint8_t hash[LLM_HASH_BYTES],
                               uint64_t bytes)
{
    pthread_mutex_lock(&w->lock);
    struct llm_kept **at = &w->kept;
    while (*at && ((*at)->blob.bytes != bytes || memcmp((*at)->hash, hash, LLM_HASH_BYTES) != 0))
        at = &(*at)->next;
    struct llm_kept *kept = *at;
    if (kept) {
        *at = kept->next; /* the last used is the first */
        kept->next = w->kept;
        w->kept = kept;
        kept->users++;
    }
    pthread_mutex_unlock(&w->lock);
    return kept;
}

int llm_kept_add(struct llm_worker *w, const uint8_t hash[LLM_HASH_BYTES], struct llm_blob *blob,
                 struct llm_kept **out)
{
    struct llm_kept *kept = calloc(1, sizeof *kept), *unused = NULL;
    if (!kept)
        return -ENOMEM;
    pthread_mutex_lock(&w->lock);
    if (w->kept_count == LLM_WORKER_MODELS_MAX)
        unused = take_unused(w);
    bool fits = w->kept_count < LLM_WORKER_MODELS_MAX;
    if (fits) {
        *kept = (struct llm_kept){.next = w->kept, .blob = *blob, .users = 1};
        memcpy(kept->hash, hash, sizeof kept->hash);
        w->kept = kept;
        w->kept_count++;
    }
    pthread_mutex_unlock(&w->lock);
    (void)kept_free(w, unused);
    if (!fits) {
        free(kept);
        return -ENOSPC;
    }
    llm_blob_keep(&kept->blob);
    *blob = (struct llm_blob){0};
    *out = kept;
    return 0;
}

void llm_kept_drop(struct llm_worker *w, struct llm_kept *kept)
{
    if (!kept)
        return;
    pthread_mutex_lock(&w->lock);
    assert(kept->users > 0);
    kept->users--;
    pthread_mutex_unlock(&w->lock);
}

void llm_kept_fini(struct llm_worker *w)
{
    while (kept_free(w, take_unused(w)))
        ; /* the worker's threads have ended */
    assert(!w->kept);
}
