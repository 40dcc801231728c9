/* Answers of a Redis server, whole and in pieces of every size: the same bytes are the same answer,
 * the slots of one lie within bounds, and redirections are read within theirs. */
#include "fuzz.h"
#include "kv/redis/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct stream {
    const uint8_t *data;
    size_t at, size, piece;
};

static ssize_t read_piece(void *user, void *to, size_t len)
{
    struct stream *s = user;
    size_t left = s->size - s->at, n = left < len ? left : len;
    n = n < s->piece ? n : s->piece;
    if (n == 0)
        return -ESHUTDOWN;
    memcpy(to, s->data + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

struct seen {
    uint64_t hash; /* of all that was read */
    int rc;
};

static void note(struct seen *s, const void *data, size_t len)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < len; i++)
        s->hash = (s->hash ^ bytes[i]) * UINT64_C(0x100000001b3);
}

/* Every answer of the stream; bulks are read, the others skipped. */
static struct seen read_answers(struct stream stream)
{
    static struct kv_redis_reader reader;
    static uint8_t bulk[1 << 16];
    struct seen seen = {0};
    kv_redis_reader_init(&reader, read_piece, &stream);
    while (seen.rc == 0) {
        struct kv_redis_reply reply;
        struct kv_redis_range range;
        seen.rc = kv_redis_next(&reader, &reply);
        if (seen.rc)
            break;
        note(&seen, &reply.kind, sizeof reply.kind);
        note(&seen, &reply.number, sizeof reply.number);
        note(&seen, reply.text, strlen(reply.text));
        if (reply.kind == KV_REDIS_BULK && reply.number <= (int64_t)sizeof bulk) {
            seen.rc = kv_redis_bulk(&reader, bulk, (size_t)reply.number, true);
            note(&seen, bulk, seen.rc ? 0 : (size_t)reply.number);
        } else {
            seen.rc = kv_redis_skip(&reader, &reply);
        }
        if (reply.kind == KV_REDIS_ERROR && kv_redis_redirect(reply.text, &range) == 0)
            require(range.first < KV_REDIS_SLOTS && range.port > 0 &&
                    strlen(range.host) < sizeof range.host);
    }
    return seen;
}

static int check_range(void *user, const struct kv_redis_range *range)
{
    struct seen *seen = user;
    require(range->first <= range->last && range->last < KV_REDIS_SLOTS && range->port > 0);
    require(strlen(range->host) < sizeof range->host);
    note(seen, range->host, strlen(range->host));
    return 0;
}

static struct seen read_ranges(struct stream stream)
{
    static struct kv_redis_reader reader;
    struct seen seen = {0};
    kv_redis_reader_init(&reader, read_piece, &stream);
    seen.rc = kv_redis_ranges(&reader, check_range, &seen);
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1); /* so that a read past the end is seen */
    require(copy != NULL);
    memcpy(copy, data, size);
    static const size_t pieces[] = {1, 7, SIZE_MAX};
    struct seen answers[3], ranges[3];
    for (size_t i = 0; i < 3; i++) {
        struct stream stream = {.data = copy, .size = size, .piece = pieces[i]};
        answers[i] = read_answers(stream);
        ranges[i] = read_ranges(stream);
        require(answers[i].rc == -ESHUTDOWN || answers[i].rc == -EPROTO);
        require(answers[i].rc == answers[0].rc && answers[i].hash == answers[0].hash);
        require(ranges[i].rc == ranges[0].rc && ranges[i].hash == ranges[0].hash);
    }
    free(copy);
    return 0;
}
