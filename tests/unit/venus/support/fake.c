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
