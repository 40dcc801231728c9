/* Round trips; see trip.h. */
#include "trip.h"

#include <stdlib.h>
#include <string.h>

enum {
    HEADER = 8,
    CUTS_MAX = 400, /* longer payloads are cut here and there only */
    FLIPS = 24,
    FIRST_NEW_ID = 1 << 30, /* above what fill_handle gives */
};

static void failed(void *objects, uint32_t command, VkResult result)
{
    (void)objects, (void)command, (void)result;
}

static void destroyed(void *objects, uint32_t type, uint64_t id)
{
    (void)objects, (void)type, (void)id;
}

static void skipped(void *objects, uint32_t command)
{
    (void)objects, (void)command;
}

static const struct vn_decoder_ops decoder_ops = {.lookup = objects_lookup,
                                                  .is_poisoned = objects_is_poisoned};
static const struct vn_exec_ops exec_ops = {.id_is_fresh = objects_id_is_fresh,
                                            .created = objects_created,
                                            .destroyed = destroyed,
                                            .failed = failed,
                                            .skipped = skipped};
static const struct vn_hooks no_hooks;

void trip_init(struct trip *t)
{
    *t = (struct trip){0};
    t->objects = calloc(1, sizeof(*t->objects));
    for (size_t i = 0; i < ARRAY_LEN(t->arenas); i++)
        hw_arena_init(&t->arenas[i], VN_ARENA_MAX);
    wire_enc_init(&t->request, WIRE_MESSAGE_MAX);
    wire_enc_init(&t->seen, WIRE_MESSAGE_MAX);
    wire_enc_init(&t->reply, WIRE_MESSAGE_MAX);
    wire_enc_init(&t->again, WIRE_MESSAGE_MAX);
}

void trip_fini(struct trip *t)
{
    for (size_t i = 0; i < ARRAY_LEN(t->arenas); i++)
        hw_arena_fini(&t->arenas[i]);
    wire_enc_fini(&t->request);
    wire_enc_fini(&t->seen);
    wire_enc_fini(&t->reply);
    wire_enc_fini(&t->again);
    free(t->objects);
}

static void start(struct trip *t, uint64_t seed)
{
    static const VkResult results[] = {VK_SUCCESS, VK_SUCCESS, VK_INCOMPLETE,
                                       VK_ERROR_OUT_OF_DEVICE_MEMORY};
    memset(t->objects, 0, sizeof(*t->objects));
    for (size_t i = 0; i < ARRAY_LEN(t->arenas); i++)
        hw_arena_reset(&t->arenas[i]);
    t->filler =
        (struct filler){.arena = &t->arenas[0], .objects = t->objects, .next_id = FIRST_NEW_ID};
    hw_rng_seed(&t->filler.rng, seed);
    t->filler.command_buffer = fill_handle(&t->filler, VK_OBJECT_TYPE_COMMAND_BUFFER);
    t->filler.command_buffer->flags = seed & 1 ? VN_OBJECT_SECONDARY : 0;
    wire_enc_reset(&t->request);
    wire_enc_reset(&t->again);
    t->fake = (struct fake){
        .filler = t->filler, .seen = &t->seen, .result = results[seed % ARRAY_LEN(results)]};
    t->problem = NULL;
    fake_now = &t->fake;
}

static int execute(struct trip *t, const uint8_t *bytes, size_t len)
{
    struct vn_decoder d;
    struct vn_exec x = {.driver = &fake_driver,
                        .hooks = &no_hooks,
                        .ops = &exec_ops,
                        .objects = t->objects,
                        .reply = &t->reply};
    wire_enc_reset(&t->seen);
    wire_enc_reset(&t->reply);
    vn_decoder_init(&d, &t->arenas[1], &decoder_ops, t->objects);
    d.command_buffer = t->filler.command_buffer;
    return fake_session(&x, &d, bytes, len);
}

static bool same(const struct wire_enc *a, const struct wire_enc *b)
{
    return wire_enc_error(a) == 0 && wire_enc_error(b) == 0 && wire_enc_len(a) == wire_enc_len(b) &&
           memcmp(wire_enc_data(a), wire_enc_data(b), wire_enc_len(a)) == 0;
}

static uint8_t *copy_of_request(const struct trip *t)
{
    uint8_t *bytes = malloc(wire_enc_len(&t->request));
    if (bytes)
        memcpy(bytes, wire_enc_data(&t->request), wire_enc_len(&t->request));
    return bytes;
}

/* The copy ends where the payload does, so that a sanitizer sees a read behind it. */
static void cut(struct trip *t)
{
    size_t len = wire_enc_len(&t->request) - HEADER;
    size_t step = len / CUTS_MAX + 1;
    for (size_t keep = 0; keep < len && !t->problem; keep += step) {
        uint8_t *bytes = malloc(HEADER + keep);
        memcpy(bytes, wire_enc_data(&t->request), HEADER + keep);
        wire_store32(bytes + 4, (uint32_t)keep);
        if (execute(t, bytes, HEADER + keep) == 0 || t->fake.calls > 0)
            t->problem = "a cut payload was executed";
        free(bytes);
    }
}

static void flip(struct trip *t)
{
    size_t len = wire_enc_len(&t->request);
    for (int i = 0; i < FLIPS && len > HEADER; i++) {
        uint8_t *bytes = copy_of_request(t);
        bytes[HEADER + fill_below(&t->filler, len - HEADER)] ^=
            (uint8_t)(1 + fill_below(&t->filler, 255));
        (void)execute(t, bytes, len);
        free(bytes);
    }
}

bool trip_over(struct trip *t)
{
    if (wire_enc_error(&t->request))
        t->problem = "the request could not be encoded";
    else if (t->damage == TRIP_STAY)
        return false;
    else if (t->damage == TRIP_CUT)
        cut(t);
    else if (t->damage == TRIP_FLIP)
        flip(t);
    else if (execute(t, wire_enc_data(&t->request), wire_enc_len(&t->request)))
        t->problem = "the server refused the request";
    else if (t->fake.calls != 1)
        t->problem = "the driver was not called once";
    else if (!same(&t->request, &t->seen))
        t->problem = "the driver got other arguments";
    if (t->problem || t->damage != TRIP_WHOLE)
        return false;
    vn_decoder_init(&t->client, &t->arenas[2], &decoder_ops, t->objects);
    vn_decoder_feed(&t->client, wire_enc_data(&t->reply), wire_enc_len(&t->reply));
    return true;
}

const char *trip_run(struct trip *t, const struct trip_test *test, uint64_t seed,
                     enum trip_damage damage)
{
    start(t, seed);
    t->damage = damage;
    test->run(t);
    if (t->problem || damage != TRIP_WHOLE)
        return t->problem;
    if (vn_decoder_end(&t->client))
        return "the reply could not be decoded";
    if (!same(&t->reply, &t->again))
        return "the program got another reply";
    return NULL;
}
