#include "venus/memory/delta.h"

#include "venus/memory/diff_impl.h"

#include <stdlib.h>
#include <zstd.h>

enum form { FORM_PLAIN = 0, FORM_ZSTD = 1 };

enum which {
    WHICH_RUNS = 1,
    WHICH_MASK = 2,
    WHICH_ALL = 3,
    WHICH_ZEROS = 4, /* a flag beside one of the above */
    WHICH_WORDS = 8,
};

enum {
    MASK_BYTES = VN_PAGE_BYTES / 8,
    RUN_HEAD_BYTES = 3, /* of a usual run: a gap below 128, a length of up to two digits */
    RUNS_MAX = MASK_BYTES / RUN_HEAD_BYTES, /* from here on a mask is smaller */
    ZSTD_LEVEL = 1,                         /* 100 to 300 MB/s */
    ZSTD_GAIN_SHIFT = 3,                    /* kept only where it saves an eighth */
    /* Of a large body so much is tried first: noise, which weights are, costs a fiftieth then. */
    SAMPLE_BYTES = 16 << 10,
    SAMPLED_MIN = 4 * SAMPLE_BYTES,
    /* After so many large bodies in a row that were noise, most of the next are not tried. */
    NOISE_MAX = 4,
    TRIED_EVERY = 16,
    MOST_BYTES = VN_PAGE_BYTES - VN_PAGE_BYTES / 8, /* of a page: names cost more than the rest */
    PAGE_WORDS = VN_PAGE_BYTES / 4,
    WORD_RUNS_MAX = 16, /* of a page: a few rows of a matrix, each with a border in it */
    LOOKS = 4,          /* at pages of many */
};
static_assert(VN_CHANGE_WIRE_MAX > VN_PAGE_BYTES + RUNS_MAX * 4 + 16, "runs fit the limit");
static_assert(VN_CHANGE_WIRE_MAX > VN_PAGE_BYTES + MASK_BYTES + 16, "a mask fits the limit");

struct vn_delta_codec {
    ZSTD_CCtx *deflate;
    ZSTD_DCtx *inflate;
    size_t zstd_min;
    vn_line_behind_fn *behind; /* NULL: always */
    void *user;
    unsigned noise; /* large bodies in a row that did not shrink, or were not tried */
    uint8_t *scratch;
    size_t scratch_bytes;
};

int vn_delta_codec_create(size_t zstd_min, struct vn_delta_codec **out)
{
    struct vn_delta_codec *codec = calloc(1, sizeof(*codec));
    if (!codec)
        return -ENOMEM;
    codec->zstd_min = zstd_min;
    codec->deflate = ZSTD_createCCtx();
    codec->inflate = ZSTD_createDCtx();
    if (!codec->deflate || !codec->inflate) {
        vn_delta_codec_destroy(codec);
        return -ENOMEM;
    }
    *out = codec;
    return 0;
}

void vn_delta_codec_watch(struct vn_delta_codec *codec, vn_line_behind_fn *behind, void *user)
{
    codec->behind = behind;
    codec->user = user;
}

static bool compresses(const struct vn_delta_codec *codec, size_t len)
{
    return codec->zstd_min && len >= codec->zstd_min &&
           (!codec->behind || codec->behind(codec->user));
}

void vn_delta_codec_destroy(struct vn_delta_codec *codec)
{
    if (!codec)
        return;
    ZSTD_freeCCtx(codec->deflate);
    ZSTD_freeDCtx(codec->inflate);
    free(codec->scratch);
    free(codec);
}

static uint8_t *scratch(struct vn_delta_codec *codec, size_t bytes)
{
    if (bytes > codec->scratch_bytes) {
        uint8_t *more = malloc(bytes);
        if (!more)
            return NULL;
        free(codec->scratch);
        codec->scratch = more;
        codec->scratch_bytes = bytes;
    }
    return codec->scratch;
}

/* --- changes ------------------------------------------------------------------------------- */

static uint64_t mask_of(const struct vn_change *c, size_t block)
{
    return c->blocks >> block & 1 ? c->mask[block] : 0;
}

/* The first byte from `at` on that is named (flip 0) or not named (flip all ones). */
static size_t find(const struct vn_change *c, size_t at, uint64_t flip)
{
    while (at < VN_PAGE_BYTES) {
        uint64_t bits = (mask_of(c, at / 64) ^ flip) & (UINT64_MAX << at % 64);
        if (bits)
            return at / 64 * 64 + (size_t)__builtin_ctzll(bits);
        at = (at / 64 + 1) * 64;
    }
    return VN_PAGE_BYTES;
}

struct shape {
    size_t bytes;
    size_t runs;
    bool zeros;
};

static bool block_is_zero(const uint8_t *bytes)
{
    uint64_t any = 0;
    for (size_t i = 0; i < VN_BLOCK_BYTES; i += 8)
        any |= wire_load64(bytes + i);
    return any == 0;
}

static bool names_only_zeros(const struct vn_change *c)
{
    for (uint64_t blocks = c->blocks; blocks; blocks &= blocks - 1) {
        size_t b = (size_t)__builtin_ctzll(blocks);
        const uint8_t *bytes = c->bytes + b * VN_BLOCK_BYTES;
        if (block_is_zero(bytes))
            continue;
        for (uint64_t bits = c->mask[b]; bits; bits &= bits - 1) {
            if (bytes[__builtin_ctzll(bits)])
                return false;
        }
    }
    return true;
}

static struct shape shape_of(const struct vn_change *c)
{
    struct shape shape = {.zeros = names_only_zeros(c)};
    uint64_t before = 0; /* whether the byte before the block is named */
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++) {
        uint64_t bits = mask_of(c, b);
        shape.bytes += (size_t)__builtin_popcountll(bits);
        shape.runs += (size_t)__builtin_popcountll(bits & ~(bits << 1 | before));
        before = bits >> 63;
    }
    return shape;
}

void vn_change_round(struct vn_change *c)
{
    size_t bytes = 0;
    for (uint64_t blocks = c->blocks; blocks; blocks &= blocks - 1) {
        uint64_t *bits = &c->mask[__builtin_ctzll(blocks)];
        if (__builtin_popcountll(*bits) >= VN_BLOCK_BYTES / 2)
            *bits = UINT64_MAX;
        bytes += (size_t)__builtin_popcountll(*bits);
    }
    if (c->blocks == UINT64_MAX && bytes >= MOST_BYTES)
        memset(c->mask, 0xff, sizeof(c->mask));
}

size_t vn_change_bytes(const struct vn_change *c)
{
    size_t bytes = 0;
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++)
        bytes += (size_t)__builtin_popcountll(mask_of(c, b));
    return bytes;
}

bool vn_change_is_whole(const struct vn_change *c)
{
    uint64_t all = c->blocks;
    for (size_t b = 0; all == UINT64_MAX && b < VN_PAGE_BLOCKS; b++)
        all &= c->mask[b];
    return all == UINT64_MAX;
}

/* --- writing ------------------------------------------------------------------------------- */

void vn_delta_begin(struct vn_delta_out *out, struct wire_enc *e)
{
    *out = (struct vn_delta_out){.e = e, .start = wire_enc_len(e)};
    wire_put_u8(e, FORM_PLAIN);
}

static void put_runs(struct wire_enc *e, const struct vn_change *c, const struct shape *shape)
{
    wire_put_varint(e, shape->runs);
    size_t end = 0;
    for (size_t at = find(c, 0, 0); at < VN_PAGE_BYTES; at = find(c, end, 0)) {
        wire_put_varint(e, at - end);
        end = find(c, at, UINT64_MAX);
        wire_put_varint(e, end - at);
        if (!shape->zeros)
            wire_put_bytes(e, c->bytes + at, end - at);
    }
}

static void put_mask(struct wire_enc *e, const struct vn_change *c, const struct shape *shape)
{
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++)
        wire_put_u64(e, mask_of(c, b));
    uint8_t *to = shape->zeros ? NULL : wire_enc_space(e, shape->bytes);
    if (!to)
        return;
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++) {
        for (uint64_t bits = mask_of(c, b); bits; bits &= bits - 1)
            *to++ = c->bytes[b * VN_BLOCK_BYTES + (size_t)__builtin_ctzll(bits)];
    }
}

/* A page as runs of equal words. */
struct words {
    size_t count;
    struct {
        uint32_t word;
        size_t length;
    } runs[WORD_RUNS_MAX];
};

/* As in diff.h: a load that ThreadSanitizer does not watch. */
VN_RACY static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
}

VN_RACY static inline uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
}

/* How many of the words at p, at most `most`, are `word`. */
VN_RACY static size_t equal_words(const uint8_t *p, uint32_t word, size_t most)
{
    uint64_t pair = (uint64_t)word << 32 | word;
    size_t n = 0;
    for (; n + 16 <= most; n += 16) {
        uint64_t differs = 0;
        for (size_t i = 0; i < 8; i++)
            differs |= load64(p + 4 * n + 8 * i) ^ pair;
        if (differs)
            break;
    }
    while (n < most && load32(p + 4 * n) == word)
        n++;
    return n;
}

/* false: there are more runs than that. */
VN_RACY static bool find_words(const uint8_t *page, struct words *w)
{
    w->count = 0;
    for (size_t at = 0; at < PAGE_WORDS; w->count++) {
        if (w->count == WORD_RUNS_MAX)
            return false;
        uint32_t word = load32(page + 4 * at);
        size_t length = 1 + equal_words(page + 4 * at + 4, word, PAGE_WORDS - at - 1);
        w->runs[w->count].word = word;
        w->runs[w->count].length = length;
        at += length;
    }
    return true;
}

bool vn_delta_is_few_words(const uint8_t *pages, size_t len)
{
    struct words words;
    size_t count = len / VN_PAGE_BYTES;
    for (size_t i = 0; i < LOOKS; i++) {
        if (!find_words(pages + count * i / LOOKS * VN_PAGE_BYTES, &words))
            return false;
    }
    return true;
}

/* A page and how many were skipped before it. */
static void put_all(struct wire_enc *e, size_t skipped, const uint8_t *bytes)
{
    struct words words;
    wire_put_varint(e, skipped);
    if (!find_words(bytes, &words)) {
        wire_put_u8(e, WHICH_ALL);
        wire_put_bytes(e, bytes, VN_PAGE_BYTES);
        return;
    }
    if (words.count == 1 && words.runs[0].word == 0) {
        wire_put_u8(e, WHICH_ALL | WHICH_ZEROS);
        return;
    }
    wire_put_u8(e, WHICH_WORDS);
    wire_put_u8(e, (uint8_t)words.count);
    for (size_t i = 0; i < words.count; i++) {
        wire_put_varint(e, words.runs[i].length);
        wire_put_bytes(e, &words.runs[i].word, 4); /* as in memory */
    }
}

void vn_delta_put(struct vn_delta_out *out, const struct vn_change *c)
{
    struct wire_enc *e = out->e;
    struct shape shape = shape_of(c);
    assert(shape.bytes && c->page >= out->next_page);
    size_t skipped = c->page - out->next_page;
    out->next_page = c->page + 1;
    if (shape.bytes == VN_PAGE_BYTES) {
        put_all(e, skipped, c->bytes);
        return;
    }
    enum which which = shape.runs <= RUNS_MAX ? WHICH_RUNS : WHICH_MASK;
    wire_put_varint(e, skipped);
    wire_put_u8(e, (uint8_t)(which | (shape.zeros ? WHICH_ZEROS : 0)));
    if (which == WHICH_RUNS)
        put_runs(e, c, &shape);
    else
        put_mask(e, c, &shape);
}

/* The frame's bytes, in the codec's scratch.  0 when it is not worth having: it does not save an
 * eighth, or there is no memory for it. */
static size_t deflate(struct vn_delta_codec *codec, const uint8_t *body, size_t len)
{
    size_t most = len - (len >> ZSTD_GAIN_SHIFT);
    uint8_t *frame = scratch(codec, most);
    size_t got = frame ? ZSTD_compressCCtx(codec->deflate, frame, most, body, len, ZSTD_LEVEL) : 0;
    return ZSTD_isError(got) ? 0 : got;
}

void vn_delta_put_page(struct vn_delta_out *out, size_t page, const uint8_t *bytes)
{
    assert(page >= out->next_page);
    put_all(out->e, page - out->next_page, bytes);
    out->next_page = page + 1;
}

/* Whether a large body is worth compressing, by a piece of it. */
static bool sample_shrinks(struct vn_delta_codec *codec, const uint8_t *sample, size_t len)
{
    bool tried = codec->noise < NOISE_MAX || codec->noise % TRIED_EVERY == 0;
    bool shrinks = tried && deflate(codec, sample, len) > 0;
    codec->noise = shrinks ? 0 : codec->noise + 1;
    return shrinks;
}

bool vn_delta_shrinks(struct vn_delta_codec *codec, const uint8_t *page)
{
    return compresses(codec, codec->zstd_min) && sample_shrinks(codec, page, VN_PAGE_BYTES);
}

int vn_delta_end(struct vn_delta_out *out, struct vn_delta_codec *codec)
{
    struct wire_enc *e = out->e;
    if (wire_enc_error(e))
        return wire_enc_error(e);
    size_t len = wire_enc_len(e) - out->start - 1;
    if (!compresses(codec, len))
        return 0;
    const uint8_t *body = wire_enc_data(e) + out->start + 1;
    if (len >= SAMPLED_MIN && !sample_shrinks(codec, body + len / 2, SAMPLE_BYTES))
        return 0;
    size_t got = deflate(codec, body, len);
    if (!got)
        return 0;
    wire_enc_trim(e, out->start);
    wire_put_u8(e, FORM_ZSTD);
    wire_put_varint(e, len);
    wire_put_bytes(e, codec->scratch, got);
    return wire_enc_error(e);
}

/* --- reading ------------------------------------------------------------------------------- */

static void name_bytes(struct vn_change *c, size_t first, size_t count)
{
    for (size_t at = first; at < first + count;) {
        size_t block = at / 64, n = 64 - at % 64;
        if (n > first + count - at)
            n = first + count - at;
        uint64_t bits = (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1) << at % 64;
        c->mask[block] = mask_of(c, block) | bits;
        c->blocks |= UINT64_C(1) << block;
        at += n;
    }
}

static void name_all(struct vn_change *c)
{
    c->blocks = UINT64_MAX;
    memset(c->mask, 0xff, sizeof(c->mask));
}

/* What a change is decoded for: to be used, or only to be checked, which copies no bytes. */
enum purpose { TO_USE, TO_CHECK };

/* n bytes of content at c->bytes + at. */
static void get_content(struct wire_dec *d, struct vn_change *c, size_t at, size_t n, bool zeros,
                        enum purpose purpose)
{
    const uint8_t *from = zeros ? NULL : wire_get_bytes(d, n);
    if (purpose == TO_CHECK)
        return;
    if (from)
        memcpy(c->bytes + at, from, n);
    else
        memset(c->bytes + at, 0, n);
}

static void get_runs(struct wire_dec *d, struct vn_change *c, bool zeros, enum purpose purpose)
{
    uint64_t runs = wire_get_varint(d);
    if (runs == 0 || runs > VN_PAGE_BYTES / 2)
        wire_dec_fail(d, -EPROTO);
    size_t end = 0;
    for (uint64_t i = 0; i < runs && !wire_dec_error(d); i++) {
        uint64_t gap = wire_get_varint(d), len = wire_get_varint(d);
        if ((gap == 0 && i > 0) || len == 0 || gap > VN_PAGE_BYTES - end ||
            len > VN_PAGE_BYTES - end - gap) {
            wire_dec_fail(d, -EPROTO);
            return;
        }
        size_t at = end + (size_t)gap;
        end = at + (size_t)len;
        name_bytes(c, at, (size_t)len);
        get_content(d, c, at, (size_t)len, zeros, purpose);
    }
}

static void get_mask(struct wire_dec *d, struct vn_change *c, bool zeros, enum purpose purpose)
{
    size_t count = 0;
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++) {
        c->mask[b] = wire_get_u64(d);
        c->blocks |= (uint64_t)(c->mask[b] != 0) << b;
        count += (size_t)__builtin_popcountll(c->mask[b]);
    }
    if (count == 0)
        wire_dec_fail(d, -EPROTO);
    const uint8_t *from = zeros ? NULL : wire_get_bytes(d, count);
    if (purpose == TO_CHECK || (!zeros && !from))
        return;
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++) {
        for (uint64_t bits = mask_of(c, b); bits; bits &= bits - 1) {
            size_t at = b * VN_BLOCK_BYTES + (size_t)__builtin_ctzll(bits);
            c->bytes[at] = zeros ? 0 : *from++;
        }
    }
}

static void get_all(struct wire_dec *d, struct vn_change *c, bool zeros, enum purpose purpose)
{
    name_all(c);
    get_content(d, c, 0, VN_PAGE_BYTES, zeros, purpose);
}

static void fill_words(uint8_t *to, const uint8_t word[4], size_t count)
{
    memcpy(to, word, 4);
    for (size_t done = 1, n; done < count; done += n) {
        n = done < count - done ? done : count - done;
        memcpy(to + 4 * done, to, 4 * n);
    }
}

static void get_words(struct wire_dec *d, struct vn_change *c, bool zeros, enum purpose purpose)
{
    size_t at = 0;
    if (zeros)
        wire_dec_fail(d, -EPROTO);
    for (uint8_t runs = wire_get_u8(d); runs && !wire_dec_error(d); runs--) {
        uint64_t length = wire_get_varint(d);
        const uint8_t *word = wire_get_bytes(d, 4);
        if (!word || length == 0 || length > PAGE_WORDS - at) {
            wire_dec_fail(d, -EPROTO);
            return;
        }
        if (purpose == TO_USE)
            fill_words(c->bytes + 4 * at, word, (size_t)length);
        at += (size_t)length;
    }
    if (at != PAGE_WORDS)
        wire_dec_fail(d, -EPROTO);
    name_all(c);
}

/* The change names no byte of the last page behind the end of the region. */
static bool is_inside(const struct vn_change *c, size_t region_bytes)
{
    size_t start = c->page * VN_PAGE_BYTES;
    if (region_bytes - start >= VN_PAGE_BYTES)
        return true;
    return find(c, region_bytes - start, 0) == VN_PAGE_BYTES;
}

static bool next(struct vn_delta_in *in, struct vn_change *c, enum purpose purpose)
{
    struct wire_dec *d = &in->d;
    if (wire_dec_left(d) == 0)
        return false;
    size_t pages = (in->region_bytes + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES;
    uint64_t skip = wire_get_varint(d);
    uint8_t which = wire_get_u8(d);
    if (skip >= pages - in->next_page) {
        wire_dec_fail(d, -EPROTO);
        return false;
    }
    c->page = in->next_page + (size_t)skip;
    c->blocks = 0;
    in->next_page = c->page + 1;
    bool zeros = which & WHICH_ZEROS;
    switch (which & ~WHICH_ZEROS) {
    case WHICH_RUNS:
        get_runs(d, c, zeros, purpose);
        break;
    case WHICH_MASK:
        get_mask(d, c, zeros, purpose);
        break;
    case WHICH_ALL:
        get_all(d, c, zeros, purpose);
        break;
    case WHICH_WORDS:
        get_words(d, c, zeros, purpose);
        break;
    default:
        wire_dec_fail(d, -EPROTO);
    }
    if (!wire_dec_error(d) && !is_inside(c, in->region_bytes))
        wire_dec_fail(d, -EPROTO);
    return wire_dec_error(d) == 0;
}

bool vn_delta_next(struct vn_delta_in *in, struct vn_change *change)
{
    return next(in, change, TO_USE);
}

static int inflate(struct vn_delta_codec *codec, struct wire_dec *d, size_t region_bytes)
{
    uint64_t body = wire_get_varint(d);
    if (wire_dec_error(d))
        return wire_dec_error(d);
    if (body > WIRE_MESSAGE_MAX ||
        body / VN_CHANGE_WIRE_MAX > (region_bytes + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES)
        return -EMSGSIZE;
    size_t frame_bytes = wire_dec_left(d);
    const uint8_t *frame = wire_get_bytes(d, frame_bytes);
    /* What the frame itself declares is looked at first: a lie costs no memory. */
    if (!frame || body == 0 || ZSTD_getFrameContentSize(frame, frame_bytes) != body)
        return -EPROTO;
    uint8_t *to = scratch(codec, (size_t)body);
    if (!to)
        return -ENOMEM;
    if (ZSTD_decompressDCtx(codec->inflate, to, (size_t)body, frame, frame_bytes) != body)
        return -EPROTO;
    wire_dec_init(d, to, (size_t)body);
    return 0;
}

int vn_delta_open(struct vn_delta_codec *codec, const void *data, size_t len, size_t region_bytes,
                  struct vn_delta_in *in)
{
    struct vn_delta_in check = {.region_bytes = region_bytes};
    wire_dec_init(&check.d, data, len);
    uint8_t form = wire_get_u8(&check.d);
    int err = wire_dec_error(&check.d);
    if (!err && form == FORM_ZSTD)
        err = inflate(codec, &check.d, region_bytes);
    else if (!err && form != FORM_PLAIN)
        err = -EPROTO;
    if (err)
        return err;
    struct vn_delta_in accepted = check;
    struct vn_change change;
    while (next(&check, &change, TO_CHECK)) {
    }
    if (wire_dec_error(&check.d))
        return wire_dec_error(&check.d);
    *in = accepted;
    return 0;
}
