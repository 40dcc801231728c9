/* Pieces, their names and proofs; see upload.h. */
#include "venus/common/transfer/upload.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/thread.h"

size_t vn_piece_end(size_t off, size_t end)
{
    assert(off < end && end - off >= VN_PIECE_MIN);
    size_t next = (off / VN_PIECE_BYTES + 1) * VN_PIECE_BYTES;
    if (next - off < VN_PIECE_MIN)
        next += VN_PIECE_BYTES;
    return next >= end || end - next < VN_PIECE_MIN ? end : next;
}

void vn_piece_name(const void *bytes, size_t len, uint8_t name[VN_NAME_BYTES])
{
    XXH128_canonical_t canonical;
    static_assert(sizeof(canonical) == VN_NAME_BYTES, "128 bits");
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, len));
    memcpy(name, &canonical, VN_NAME_BYTES);
}

/* All pieces of a session have the same nonce: who could use that against the key sees the
 * session's traffic, and the key in it. */
int vn_piece_proof(uint64_t key, const void *bytes, size_t len, uint8_t proof[VN_PROOF_BYTES])
{
    static const uint8_t nonce[12];
    uint8_t secret[16] = {0};
    int n;
    assert(len <= VN_PIECE_MAX);
    memcpy(secret, &key, sizeof(key));
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    bool done = c && EVP_EncryptInit_ex(c, EVP_aes_128_gcm(), NULL, secret, nonce) == 1 &&
                EVP_EncryptUpdate(c, NULL, &n, bytes, (int)len) == 1 &&
                EVP_EncryptFinal_ex(c, proof, &n) == 1 &&
                EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, VN_PROOF_BYTES, proof) == 1;
    EVP_CIPHER_CTX_free(c);
    return done ? 0 : -ENOMEM;
}

/* ---- several at a time ---- */

enum {
    PIECES_A_THREAD = 4, /* for less a thread is not worth its start */
    CORES_A_THREAD = 2,  /* the program and the driver compute, too */
};

struct work {
    void (*one)(void *user, uint32_t i);
    void *user;
    uint32_t count;
    _Atomic uint32_t next; /* relaxed: the join orders the results */
};

static void *work_main(void *arg)
{
    struct work *w = arg;
    uint32_t i;
    while ((i = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed)) < w->count)
        w->one(w->user, i);
    return NULL;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned vn_pieces_threads(uint32_t count)
{
    unsigned most = least(hw_cores() / CORES_A_THREAD, count / PIECES_A_THREAD);
    return most ? least(most - 1, VN_PIECE_THREADS_MAX) : 0;
}

void vn_pieces_each(uint32_t count, unsigned threads, void (*one)(void *user, uint32_t i),
                    void *user)
{
    struct work work = {.one = one, .user = user, .count = count};
    pthread_t helpers[VN_PIECE_THREADS_MAX];
    unsigned started = 0;
    assert(threads <= VN_PIECE_THREADS_MAX);
    while (started < threads && hw_thread_start(&helpers[started], work_main, &work) == 0)
        started++;
    (void)work_main(&work);
    while (started)
        pthread_join(helpers[--started], NULL);
}
