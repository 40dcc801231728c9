/* The state behind the fake driver; see fake.h. */
#include "fake.h"

struct fake *fake_now;

struct filler *fake_called(void)
{
    fake_now->calls++;
    return &fake_now->filler;
}

struct wire_enc *fake_seen(void)
{
    return fake_now->seen;
}

VkResult fake_result(void)
{
    return fake_now->result;
}

int fake_session(struct vn_exec *x, struct vn_decoder *d, const void *data, size_t len)
{
    struct wire_dec stream;
    wire_dec_init(&stream, data, len);
    int rc = 0;
    while (rc == 0 && wire_dec_left(&stream) > 0) {
        uint32_t command = wire_get_u32(&stream);
        d->in = wire_dec_sub(&stream, wire_get_u32(&stream));
        d->depth = 0;
        d->poisoned = false;
        d->bad_id = 0;
        hw_arena_reset(d->arena);
        rc = wire_dec_error(&stream) ? wire_dec_error(&stream) : vn_dispatch(x, command, d);
    }
    return rc;
}
