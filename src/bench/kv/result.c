/* A rank's figures as bytes and back: histograms travel as their non-empty buckets. */
#include "bench/kv/benchkv.h"

#include "wire/dec.h"
#include "wire/enc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RESULT_BYTES_MAX = 8 << 20, HISTS = KV_PHASES + KV_STAGES + 5 };

static void hists_of(struct bkv_result *r, struct hw_hist *out[HISTS])
{
    int n = 0;
    for (int i = 0; i < KV_PHASES; i++)
        out[n++] = &r->phase[i];
    for (int i = 0; i < KV_STAGES; i++)
        out[n++] = &r->stage[i];
    out[n++] = &r->loop;
    out[n++] = &r->rtt;
    out[n++] = &r->latency;
    out[n++] = &r->local;
    out[n++] = &r->remote;
}

int bkv_result_init(struct bkv_result *r)
{
    struct hw_hist *hists[HISTS];
    memset(r, 0, sizeof(*r));
    hists_of(r, hists);
    int rc = 0;
    for (int i = 0; i < HISTS && rc == 0; i++)
        rc = hists[i] == &r->rtt ? hw_hist_init_linear(hists[i], 1000, KV_RTT_LINES)
                                 : hw_hist_init(hists[i]);
    if (rc)
        bkv_result_fini(r);
    return rc;
}

void bkv_result_fini(struct bkv_result *r)
{
    struct hw_hist *hists[HISTS];
    hists_of(r, hists);
    for (int i = 0; i < HISTS; i++)
        hw_hist_fini(hists[i]);
}

uint64_t bkv_result_requests(const struct bkv_result *r)
{
    uint64_t n = 0;
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        n += r->results[i];
    return n;
}

static void put_hist(struct wire_enc *e, const struct hw_hist *h)
{
    struct hw_hist_range range;
    uint32_t at = 0, count = 0;
    size_t hole = wire_put_hole_u32(e);
    while (hw_hist_next(h, &at, &range)) {
        wire_put_varint(e, range.low);
        wire_put_varint(e, range.count);
        count++;
    }
    wire_fill_u32(e, hole, count);
}

static void get_hist(struct wire_dec *d, struct hw_hist *h)
{
    uint32_t count = wire_dec_count(d, 2, HW_HIST_BUCKETS);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t low = wire_get_varint(d);
        hw_hist_record_many(h, low, wire_get_varint(d));
    }
}

/* The plain numbers, in one order for both ways. */
enum { SCALARS = 6 };

static void scalars_of(struct bkv_result *r, uint64_t *out[SCALARS])
{
    uint64_t *all[SCALARS] = {&r->elapsed_ns,   &r->useful_ns, &r->empty_ns,
                              &r->in_flight_ns, &r->took_ns,   &r->late};
    memcpy(out, all, sizeof(all));
}

static void means_of(struct bkv_result *r, double *out[4])
{
    double *all[4] = {&r->rtt_mean, &r->latency_mean, &r->local_mean, &r->remote_mean};
    memcpy(out, all, sizeof(all));
}

int bkv_result_encode(const struct bkv_result *from, uint8_t **data, size_t *len)
{
    struct bkv_result view = *from; /* pointers into it are only read through */
    struct hw_hist *hists[HISTS];
    uint64_t *scalars[SCALARS];
    double *means[4];
    struct wire_enc e;
    hists_of(&view, hists);
    scalars_of(&view, scalars);
    means_of(&view, means);
    wire_enc_init(&e, RESULT_BYTES_MAX);
    for (size_t i = 0; i < KV_STATS_COUNT; i++)
        wire_put_u64(&e, view.stats[i]);
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        wire_put_u64(&e, view.results[i]);
    for (int i = 0; i < SCALARS; i++)
        wire_put_u64(&e, *scalars[i]);
    for (int i = 0; i < 4; i++)
        wire_put_f64(&e, *means[i]);
    for (int i = 0; i < HISTS; i++)
        put_hist(&e, hists[i]);
    for (int i = 0; i < KV_RTT_LINES; i++)
        wire_put_varint(&e, view.rtt_us[i]);
    int rc = wire_enc_error(&e);
    uint8_t *copy = rc ? NULL : malloc(wire_enc_len(&e));
    if (copy) {
        memcpy(copy, wire_enc_data(&e), wire_enc_len(&e));
        *data = copy;
        *len = wire_enc_len(&e);
    }
    wire_enc_fini(&e);
    return rc ? rc : copy ? 0 : -ENOMEM;
}

int bkv_result_decode(const uint8_t *data, size_t len, struct bkv_result *r)
{
    struct hw_hist *hists[HISTS];
    uint64_t *scalars[SCALARS];
    double *means[4];
    struct wire_dec d;
    hists_of(r, hists);
    scalars_of(r, scalars);
    means_of(r, means);
    wire_dec_init(&d, data, len);
    for (size_t i = 0; i < KV_STATS_COUNT; i++)
        r->stats[i] = wire_get_u64(&d);
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        r->results[i] = wire_get_u64(&d);
    for (int i = 0; i < SCALARS; i++)
        *scalars[i] = wire_get_u64(&d);
    for (int i = 0; i < 4; i++)
        *means[i] = wire_get_f64(&d);
    for (int i = 0; i < HISTS; i++)
        get_hist(&d, hists[i]);
    for (int i = 0; i < KV_RTT_LINES; i++)
        r->rtt_us[i] = wire_get_varint(&d);
    return wire_dec_end(&d) ? -EPROTO : 0;
}
