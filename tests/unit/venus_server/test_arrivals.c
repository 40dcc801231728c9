/* Chunks on stripes: all arrive where they belong and nowhere else, whatever their order and
 * however they are cut; what a peer must not send is a fault, and stays one.  Each case once with
 * threads that sleep between uploads and once with threads that spin. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/rng.h"
#include "rpc/transport/net.h"
#include "venus/common/transfer/stripe.h"
#include "venus/server/upload/arrivals.h"

enum {
    PAGE = 4096,
    MEMORY_BYTES = 1 << 20,
    GUARD_BYTES = VN_CHUNK_BYTES, /* before and behind the memory */
    MEMORY_ID = 77,
    UNTOUCHED = 0xee,
    FIRST = 4 * PAGE, /* where uploads of faults begin, and how long they are */
    LENGTH = 2 * VN_CHUNK_BYTES,
};

static const uint64_t patience_ns = 240 * HW_SEC;

/* What one stripe brings, in order. */
struct script {
    uint8_t *bytes;
    size_t len, sent;
};

struct rig {
    unsigned stripes;
    struct rpc_transport *client[VN_STRIPES_MAX];
    int at_client[VN_STRIPES_MAX], at_server[VN_STRIPES_MAX]; /* their sockets */
    struct vns_arrivals *arrivals;
    uint8_t *found, *wanted; /* guard, memory, guard */
    uint64_t off, len;       /* of the upload that is open */
    uint32_t uploads;        /* in the scripts */
    uint64_t bytes;
    bool stores; /* there is no place */
    int store_rc;
    _Atomic unsigned stored, strayed;
    struct script scripts[VN_STRIPES_MAX];
    struct hw_rng rng;
};

/* ---- the memory ---- */

static bool is_within(struct rig *r, uint64_t memory, uint64_t off, size_t len)
{
    bool is = memory == MEMORY_ID && off >= r->off && off - r->off <= r->len &&
              len <= r->len - (off - r->off);
    if (!is)
        r->strayed++;
    return is;
}

static uint8_t *place(void *user, uint64_t memory, uint64_t off, size_t len)
{
    struct rig *r = user;
    return is_within(r, memory, off, len) && !r->stores ? r->found + GUARD_BYTES + off : NULL;
}

static int store(void *user, uint64_t memory, uint64_t off, const void *bytes, size_t len)
{
    struct rig *r = user;
    if (r->store_rc)
        return r->store_rc;
    if (is_within(r, memory, off, len))
        memcpy(r->found + GUARD_BYTES + off, bytes, len);
    r->stored++;
    return 0;
}

static const struct vns_arrival_ops ops = {.place = place, .store = store};

static uint8_t *image(void)
{
    uint8_t *bytes = malloc(MEMORY_BYTES + 2 * GUARD_BYTES);
    assert_non_null(bytes);
    memset(bytes, UNTOUCHED, MEMORY_BYTES + 2 * GUARD_BYTES);
    return bytes;
}

static void expect_as_wanted(const struct rig *r)
{
    assert_int_equal(memcmp(r->found, r->wanted, MEMORY_BYTES + 2 * GUARD_BYTES), 0);
    assert_int_equal(r->strayed, 0);
}

static void expect_untouched_outside(const struct rig *r, uint64_t off, uint64_t len)
{
    size_t from = GUARD_BYTES + off, to = from + len;
    assert_memory_equal(r->found, r->wanted, from);
    assert_memory_equal(r->found + to, r->wanted + to, MEMORY_BYTES + 2 * GUARD_BYTES - to);
    assert_int_equal(r->strayed, 0);
}

/* ---- life ---- */

static void rig_start(struct rig *r, unsigned stripes, bool spins)
{
    struct rpc_transport *server[VN_STRIPES_MAX];
    *r = (struct rig){.stripes = stripes, .found = image(), .wanted = image()};
    hw_rng_seed(&r->rng, stripes);
    for (unsigned i = 0; i < stripes; i++) {
        struct rpc_transport *ends[2];
        assert_int_equal(rpc_unix_pair(ends), 0);
        r->client[i] = ends[0];
        server[i] = ends[1];
        r->at_client[i] = ends[0]->ops->poll_fd(ends[0]);
        r->at_server[i] = ends[1]->ops->poll_fd(ends[1]);
    }
    assert_int_equal(vns_arrivals_create(server, stripes, spins, &ops, r, &r->arrivals), 0);
}

static void close_stripe(struct rig *r, unsigned stripe)
{
    rpc_transport_destroy(r->client[stripe]);
    r->client[stripe] = NULL;
}

static void stop_arrivals(struct rig *r)
{
    vns_arrivals_destroy(r->arrivals);
    r->arrivals = NULL;
}

static void rig_end(struct rig *r)
{
    stop_arrivals(r);
    for (unsigned i = 0; i < r->stripes; i++) {
        close_stripe(r, i);
        free(r->scripts[i].bytes);
    }
    free(r->found);
    free(r->wanted);
}

/* ---- scripts ---- */

static void put(struct rig *r, unsigned stripe, const void *bytes, size_t len)
{
    struct script *s = &r->scripts[stripe];
    s->bytes = realloc(s->bytes, s->len + len);
    assert_non_null(s->bytes);
    memcpy(s->bytes + s->len, bytes, len);
    s->len += len;
}

static void put_head(struct rig *r, unsigned stripe, struct vn_chunk chunk)
{
    uint8_t head[VN_CHUNK_HEAD];
    vn_chunk_put(head, &chunk);
    put(r, stripe, head, sizeof(head));
}

static void put_chunk(struct rig *r, unsigned stripe, struct vn_chunk chunk, const uint8_t *bytes)
{
    put_head(r, stripe, chunk);
    put(r, stripe, bytes, chunk.bytes);
}

/* The end of an upload that begins at `off`, on the first stripe. */
static void put_end(struct rig *r, uint32_t upload, uint64_t off)
{
    put_head(r, 0, (struct vn_chunk){.upload = upload, .offset = off});
}

struct upload {
    uint32_t number;
    uint64_t off;
    size_t len;
    uint8_t *bytes;
};

static struct upload upload_make(struct rig *r, uint64_t off, size_t len)
{
    struct upload u = {++r->uploads, off, len, malloc(len + 1)};
    assert_non_null(u.bytes);
    for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
        uint64_t word = hw_rng_u64(&r->rng);
        memcpy(u.bytes + i, &word, len - i < sizeof(word) ? len - i : sizeof(word));
    }
    return u;
}

static void put_part(struct rig *r, unsigned stripe, const struct upload *u, size_t at, size_t len)
{
    put_chunk(r, stripe, (struct vn_chunk){u->number, (uint32_t)len, u->off + at}, u->bytes + at);
}

/* Cuts it into chunks, and puts them in any order on any stripes. */
static void put_upload(struct rig *r, const struct upload *u)
{
    size_t starts[MEMORY_BYTES / PAGE + 1], ends[MEMORY_BYTES / PAGE + 1], count = 0;
    for (size_t at = 0; at < u->len; count++) {
        size_t len = PAGE * (1 + hw_rng_below(&r->rng, VN_CHUNK_BYTES / PAGE));
        starts[count] = at;
        ends[count] = at = at + len < u->len ? at + len : u->len;
    }
    while (count > 0) {
        size_t i = hw_rng_below(&r->rng, count--);
        put_part(r, (unsigned)hw_rng_below(&r->rng, r->stripes), u, starts[i], ends[i] - starts[i]);
        starts[i] = starts[count];
        ends[i] = ends[count];
    }
    put_end(r, u->number, u->off);
}

/* ---- sending ---- */

struct sender {
    struct rig *rig;
    size_t piece_max; /* bytes that are sent at once */
    bool backwards;   /* prefers the last stripe */
    bool shuts;       /* this stripe, when all of its script is sent */
    unsigned shut_stripe;
    uint64_t seed;
    _Atomic bool stop;
    pthread_t thread;
};

/* False when it takes nothing now. */
static bool send_piece(struct rig *r, unsigned stripe, size_t max)
{
    struct script *s = &r->scripts[stripe];
    struct rpc_transport *t = r->client[stripe];
    size_t left = s->len - s->sent;
    if (left == 0)
        return false;
    struct iovec iov = {s->bytes + s->sent, left < max ? left : max};
    ssize_t n = t->ops->send(t, &iov, 1);
    if (n > 0)
        s->sent += (size_t)n;
    return n > 0;
}

/* The preferred stripe as far as it takes it, then the next: so its end often comes long before the
 * bytes of others. */
static void *send_main(void *arg)
{
    struct sender *s = arg;
    struct hw_rng rng;
    hw_rng_seed(&rng, s->seed);
    while (!s->stop) {
        bool some = false;
        for (unsigned i = 0; i < s->rig->stripes && !some; i++) {
            unsigned stripe = s->backwards ? s->rig->stripes - 1 - i : i;
            some = send_piece(s->rig, stripe, 1 + hw_rng_below(&rng, s->piece_max));
        }
        if (!some)
            sched_yield();
        if (s->shuts && s->rig->scripts[s->shut_stripe].sent == s->rig->scripts[s->shut_stripe].len)
            (void)shutdown(s->rig->at_client[s->shut_stripe], SHUT_WR);
    }
    return NULL;
}

static void sender_start(struct sender *s)
{
    assert_int_equal(pthread_create(&s->thread, NULL, send_main, s), 0);
}

static void sender_end(struct sender *s)
{
    s->stop = true;
    pthread_join(s->thread, NULL);
}

/* All of the scripts: they fit the sockets, or somebody reads. */
static void send_all(struct rig *r)
{
    uint64_t start = hw_now_ns();
    for (unsigned i = 0; i < r->stripes; i++) {
        while (r->scripts[i].sent < r->scripts[i].len) {
            if (!send_piece(r, i, SIZE_MAX))
                sched_yield();
            assert_true(hw_now_ns() - start < patience_ns);
        }
    }
}

/* ---- taking ---- */

static int take(struct rig *r, uint64_t off, uint64_t len)
{
    r->off = off;
    r->len = len;
    return vns_arrivals_take(r->arrivals, MEMORY_ID, off, len);
}

/* Takes it, looks at all of the memory, and forgets it. */
static void take_well(struct rig *r, struct upload *u)
{
    assert_int_equal(take(r, u->off, u->len), 0);
    memcpy(r->wanted + GUARD_BYTES + u->off, u->bytes, u->len);
    expect_as_wanted(r);
    r->bytes += u->len;
    assert_int_equal(vns_arrivals_bytes(r->arrivals), r->bytes);
    free(u->bytes);
}

/* A take on a thread of its own, for those that only end by what the test does meanwhile. */
struct taker {
    struct rig *rig;
    uint64_t off, len;
    int rc;
    _Atomic bool done;
    pthread_t thread;
};

static void *take_main(void *arg)
{
    struct taker *t = arg;
    t->rc = take(t->rig, t->off, t->len);
    t->done = true;
    return NULL;
}

static void taker_start(struct taker *t)
{
    assert_int_equal(pthread_create(&t->thread, NULL, take_main, t), 0);
}

/* Or for so long that it is not going to be. */
static void await_done(const struct taker *t)
{
    for (uint64_t start = hw_now_ns(); !t->done && hw_now_ns() - start < patience_ns;)
        sched_yield();
}

static int taker_end(struct taker *t)
{
    pthread_join(t->thread, NULL);
    return t->rc;
}

/* Until the server has read all that was sent on the stripe. */
static void await_read(const struct rig *r, unsigned stripe)
{
    uint64_t start = hw_now_ns();
    int unread = 1;
    while (unread) {
        assert_int_equal(ioctl(r->at_server[stripe], FIONREAD, &unread), 0);
        assert_true(hw_now_ns() - start < patience_ns);
        sched_yield();
    }
}

/* ---- what arrives ---- */

static const unsigned stripe_counts[] = {1, 3, VN_STRIPES_MAX};

static void one_arrives(unsigned stripes, bool spins, uint64_t off, size_t len, size_t piece_max)
{
    for (int backwards = 0; backwards < 2; backwards++) {
        struct rig r;
        rig_start(&r, stripes, spins);
        struct sender s = {.rig = &r, .piece_max = piece_max, .backwards = backwards, .seed = len};
        struct upload u = upload_make(&r, off, len);
        put_upload(&r, &u);
        sender_start(&s);
        take_well(&r, &u);
        sender_end(&s);
        assert_int_equal(r.stored, 0);
        rig_end(&r);
    }
}

static void chunks_in_any_order_arrive_at_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
        for (int spins = 0; spins < 2; spins++) {
            one_arrives(stripe_counts[i], spins, 0, MEMORY_BYTES, SIZE_MAX / 2);
            one_arrives(stripe_counts[i], spins, 3 * PAGE, MEMORY_BYTES - 7 * PAGE, SIZE_MAX / 2);
            one_arrives(stripe_counts[i], spins, PAGE, 3 * VN_CHUNK_BYTES + 1234, SIZE_MAX / 2);
            one_arrives(stripe_counts[i], spins, PAGE, 1, SIZE_MAX / 2);
            one_arrives(stripe_counts[i], spins, PAGE, 0, SIZE_MAX / 2);
        }
    }
}

static void chunks_in_odd_pieces_arrive(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
        for (int spins = 0; spins < 2; spins++) {
            one_arrives(stripe_counts[i], spins, 2 * PAGE, 3 * PAGE + 5, 7);
            one_arrives(stripe_counts[i], spins, 2 * PAGE, 40 * PAGE, 5000);
        }
    }
}

/* Also a head that is cut where the threads rest: each byte is read before the next is sent. */
static void a_head_may_come_byte_by_byte(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        rig_start(&r, 2, spins);
        struct upload u = upload_make(&r, PAGE, PAGE);
        put_part(&r, 1, &u, 0, PAGE);
        put_end(&r, u.number, u.off);
        struct taker t = {.rig = &r, .off = u.off, .len = u.len};
        taker_start(&t);
        for (int stripe = 1; stripe >= 0; stripe--) {
            for (int i = 0; i < VN_CHUNK_HEAD; i++) {
                assert_true(send_piece(&r, (unsigned)stripe, 1));
                await_read(&r, (unsigned)stripe);
            }
        }
        assert_false(t.done);
        send_all(&r);
        assert_int_equal(taker_end(&t), 0);
        memcpy(r.wanted + GUARD_BYTES + u.off, u.bytes, u.len);
        expect_as_wanted(&r);
        free(u.bytes);
        rig_end(&r);
    }
}

enum { MANY = 40 };

/* All are sent as soon as stripes take them, so the client is several ahead. */
static void many_arrive(unsigned stripes, bool spins, bool backwards)
{
    struct rig r;
    struct upload uploads[MANY];
    rig_start(&r, stripes, spins);
    struct sender s = {.rig = &r, .piece_max = 100000, .backwards = backwards, .seed = stripes};
    for (int i = 0; i < MANY; i++) {
        size_t len = PAGE * (1 + hw_rng_below(&r.rng, 40));
        uploads[i] = upload_make(&r, PAGE * hw_rng_below(&r.rng, 200), len);
        put_upload(&r, &uploads[i]);
    }
    sender_start(&s);
    for (int i = 0; i < MANY; i++)
        take_well(&r, &uploads[i]);
    sender_end(&s);
    rig_end(&r);
}

static void many_uploads_in_a_row_arrive(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
        for (int variant = 0; variant < 4; variant++)
            many_arrive(stripe_counts[i], variant & 1, variant & 2);
    }
}

/* A stripe that has nothing of two uploads waits for the third, of which it has read the head. */
static void a_stripe_may_be_several_uploads_ahead(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        struct upload u[3];
        rig_start(&r, 2, spins);
        for (int i = 0; i < 3; i++)
            u[i] = upload_make(&r, (uint64_t)(i + 1) * 2 * PAGE, PAGE);
        put_part(&r, 1, &u[2], 0, PAGE);
        struct taker t = {.rig = &r, .off = u[0].off, .len = u[0].len};
        taker_start(&t);
        for (int i = 0; i < VN_CHUNK_HEAD; i++)
            assert_true(send_piece(&r, 1, 1));
        await_read(&r, 1);
        for (int i = 0; i < 2; i++) {
            put_part(&r, 0, &u[i], 0, PAGE);
            put_end(&r, u[i].number, u[i].off);
        }
        put_end(&r, u[2].number, u[2].off);
        send_all(&r);
        assert_int_equal(taker_end(&t), 0);
        memcpy(r.wanted + GUARD_BYTES + u[0].off, u[0].bytes, PAGE);
        r.bytes = PAGE;
        free(u[0].bytes);
        take_well(&r, &u[1]);
        take_well(&r, &u[2]);
        rig_end(&r);
    }
}

/* What the first upload brought does not count for the second, which is not over with the end on
 * the first stripe. */
static void an_upload_waits_for_its_own_bytes(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        rig_start(&r, 2, spins);
        struct upload first = upload_make(&r, 0, 8 * PAGE), second = upload_make(&r, PAGE, PAGE);
        put_upload(&r, &first);
        send_all(&r);
        take_well(&r, &first);
        put_end(&r, second.number, second.off);
        send_all(&r);
        struct taker t = {.rig = &r, .off = second.off, .len = second.len};
        taker_start(&t);
        await_read(&r, 0);
        for (int i = 0; i < 1000; i++)
            sched_yield();
        assert_false(t.done);
        put_part(&r, 1, &second, 0, PAGE);
        send_all(&r);
        assert_int_equal(taker_end(&t), 0);
        memcpy(r.wanted + GUARD_BYTES + second.off, second.bytes, second.len);
        expect_as_wanted(&r);
        free(second.bytes);
        rig_end(&r);
    }
}

static void what_has_no_place_is_stored(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
        for (int spins = 0; spins < 2; spins++) {
            struct rig r;
            rig_start(&r, stripe_counts[i], spins);
            r.stores = true;
            struct sender s = {.rig = &r, .piece_max = 100000, .seed = i};
            struct upload u = upload_make(&r, 5 * PAGE, 4 * VN_CHUNK_BYTES + 77);
            put_upload(&r, &u);
            sender_start(&s);
            take_well(&r, &u);
            sender_end(&s);
            assert_true(r.stored >= 5);
            rig_end(&r);
        }
    }
}

/* ---- faults ---- */

/* Every later take has the same fault, whatever it is for. */
static void expect_fault_to_stay(struct rig *r, int rc)
{
    assert_int_equal(vns_arrivals_take(r->arrivals, MEMORY_ID, FIRST, LENGTH), rc);
    assert_int_equal(vns_arrivals_take(r->arrivals, MEMORY_ID, 0, 0), rc);
    stop_arrivals(r);
    expect_untouched_outside(r, FIRST, LENGTH);
}

static void expect_fault(struct rig *r, int rc)
{
    assert_int_equal(take(r, FIRST, LENGTH), rc);
    expect_fault_to_stay(r, rc);
}

/* Each fault comes after an upload that was as it should be. */
static void begin_fault(struct rig *r, unsigned stripes, bool spins)
{
    rig_start(r, stripes, spins);
    struct upload u = upload_make(r, FIRST, PAGE);
    put_upload(r, &u);
    send_all(r);
    take_well(r, &u);
    r->uploads++;
}

static const uint8_t zeros[2 * VN_CHUNK_BYTES];

/* The chunks, their bytes, and the end of the stripe, which comes too late to be the fault. */
static void expect_refusal(const struct vn_chunk *chunks, size_t count, unsigned stripe)
{
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        begin_fault(&r, 2, spins);
        for (size_t i = 0; i < count; i++) {
            put_head(&r, stripe, chunks[i]);
            put(&r, stripe, zeros, chunks[i].bytes < sizeof(zeros) ? chunks[i].bytes : PAGE);
        }
        if (stripe)
            put_end(&r, r.uploads, FIRST);
        struct sender s = {
            .rig = &r, .piece_max = SIZE_MAX / 2, .shuts = true, .shut_stripe = stripe};
        sender_start(&s);
        expect_fault(&r, -EPROTO);
        sender_end(&s);
        rig_end(&r);
    }
}

static void chunks_that_do_not_belong_are_refused(void **state)
{
    static const struct vn_chunk bad[] = {
        {2, PAGE, FIRST - PAGE},
        {2, PAGE, 0},
        {2, PAGE, FIRST + LENGTH},
        {2, PAGE, FIRST + LENGTH + PAGE},
        {2, 2 * PAGE, FIRST + LENGTH - PAGE},
        {2, 2 * PAGE, UINT64_MAX - PAGE + 1},
        {2, 1, FIRST - PAGE},
        {2, PAGE, FIRST + 1},
        {2, PAGE, FIRST + PAGE - 1},
        {2, PAGE, FIRST + PAGE / 2},
        {2, VN_CHUNK_BYTES + 1, FIRST},
        {2, VN_CHUNK_BYTES + PAGE, FIRST},
        {2, UINT32_MAX, FIRST},
        {1, PAGE, FIRST},
        {0, PAGE, FIRST},
        {UINT32_MAX, PAGE, FIRST},
        {2U + (1U << 31), PAGE, FIRST},
        {1, 0, FIRST},
        {2, 0, FIRST - PAGE},
        {2, 0, FIRST + LENGTH + PAGE},
        {2, 0, FIRST + 1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        expect_refusal(&bad[i], 1, 0);
        expect_refusal(&bad[i], 1, 1);
    }
}

static void more_bytes_than_the_upload_has_are_refused(void **state)
{
    static const struct vn_chunk bad[] = {
        {2, VN_CHUNK_BYTES, FIRST},
        {2, VN_CHUNK_BYTES, FIRST},
        {2, PAGE, FIRST},
    };
    (void)state;
    expect_refusal(bad, ARRAY_LEN(bad), 0);
}

/* The bytes of both stripes together. */
static void two_stripes_may_not_bring_more_than_all(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        begin_fault(&r, 2, spins);
        for (unsigned stripe = 0; stripe < 2; stripe++) {
            uint64_t off = FIRST + stripe * VN_CHUNK_BYTES;
            put_chunk(&r, stripe, (struct vn_chunk){2, VN_CHUNK_BYTES, off}, zeros);
        }
        struct taker t = {.rig = &r, .off = FIRST, .len = LENGTH};
        taker_start(&t);
        send_all(&r);
        await_read(&r, 0);
        put_head(&r, 1, (struct vn_chunk){2, PAGE, FIRST});
        send_all(&r);
        await_done(&t);
        put_end(&r, 2, FIRST); /* wakes who waits after all */
        send_all(&r);
        assert_int_equal(taker_end(&t), -EPROTO);
        expect_fault_to_stay(&r, -EPROTO);
        rig_end(&r);
    }
}

/* Nobody but who reads the first stripe opens uploads: it must not wait for one. */
static void a_later_upload_before_the_end_on_the_first_stripe_is_refused(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        begin_fault(&r, 2, spins);
        put_chunk(&r, 0, (struct vn_chunk){3, PAGE, FIRST}, zeros);
        send_all(&r);
        struct taker t = {.rig = &r, .off = FIRST, .len = LENGTH};
        taker_start(&t);
        await_done(&t);
        close_stripe(&r, 1); /* wakes who waits after all */
        assert_int_equal(taker_end(&t), -EPROTO);
        expect_fault_to_stay(&r, -EPROTO);
        rig_end(&r);
    }
}

static void an_error_of_store_is_that_of_take(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        struct rig r;
        unsigned stripe = variant & 1;
        begin_fault(&r, 2, variant & 2);
        r.stores = true;
        r.store_rc = -EDOM;
        put_chunk(&r, stripe, (struct vn_chunk){2, PAGE, FIRST}, zeros);
        put_end(&r, 2, FIRST);
        send_all(&r);
        expect_fault(&r, -EDOM);
        rig_end(&r);
    }
}

/* Closed at the end of nothing, of a head's part, of a head, of a chunk's part. */
static void a_stripe_that_closes_is_a_fault(void **state)
{
    static const size_t cuts[] = {0, 1, VN_CHUNK_HEAD - 1, VN_CHUNK_HEAD, VN_CHUNK_HEAD + PAGE};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        for (int variant = 0; variant < 8; variant++) {
            struct rig r;
            unsigned stripe = variant & 1;
            begin_fault(&r, 3, variant & 2);
            r.stores = variant & 4;
            if (stripe)
                put_end(&r, 2, FIRST);
            put_chunk(&r, stripe, (struct vn_chunk){2, VN_CHUNK_BYTES, FIRST}, zeros);
            r.scripts[stripe].len -= VN_CHUNK_HEAD + VN_CHUNK_BYTES - cuts[i];
            send_all(&r);
            close_stripe(&r, stripe);
            expect_fault(&r, -ESHUTDOWN);
            rig_end(&r);
        }
    }
}

/* The end on the first stripe is there, its bytes are not, and the stripe that could bring them
 * ends.
 */
static void missing_bytes_and_a_closed_stripe_are_a_fault(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        begin_fault(&r, 2, spins);
        put_chunk(&r, 0, (struct vn_chunk){2, PAGE, FIRST}, zeros);
        put_end(&r, 2, FIRST);
        put_chunk(&r, 1, (struct vn_chunk){2, PAGE, FIRST + PAGE}, zeros);
        send_all(&r);
        struct taker t = {.rig = &r, .off = FIRST, .len = LENGTH};
        taker_start(&t);
        await_read(&r, 0);
        await_read(&r, 1);
        assert_false(t.done);
        close_stripe(&r, 1);
        assert_int_equal(taker_end(&t), -ESHUTDOWN);
        expect_fault_to_stay(&r, -ESHUTDOWN);
        rig_end(&r);
    }
}

/* One stripe fails while the others are in the middle of what they receive: nobody waits on. */
static void a_fault_of_one_stripe_ends_the_others(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        begin_fault(&r, VN_STRIPES_MAX, spins);
        for (unsigned stripe = 0; stripe < VN_STRIPES_MAX - 1; stripe++) {
            put_head(&r, stripe, (struct vn_chunk){2, 2 * PAGE, FIRST + stripe * 2 * PAGE});
            put(&r, stripe, zeros, PAGE);
        }
        send_all(&r);
        struct taker t = {.rig = &r, .off = FIRST, .len = LENGTH};
        taker_start(&t);
        for (unsigned stripe = 0; stripe < VN_STRIPES_MAX - 1; stripe++)
            await_read(&r, stripe);
        put_head(&r, VN_STRIPES_MAX - 1, (struct vn_chunk){2, PAGE, FIRST - PAGE});
        send_all(&r);
        assert_int_equal(taker_end(&t), -EPROTO);
        expect_fault_to_stay(&r, -EPROTO);
        rig_end(&r);
    }
}

/* ---- life ---- */

static void destroy_right_after_create(void **state)
{
    (void)state;
    vns_arrivals_destroy(NULL);
    for (size_t i = 0; i < ARRAY_LEN(stripe_counts); i++) {
        for (int spins = 0; spins < 2; spins++) {
            struct rig r;
            rig_start(&r, stripe_counts[i], spins);
            assert_int_equal(vns_arrivals_bytes(r.arrivals), 0);
            rig_end(&r);
        }
    }
}

static void destroy_ends_the_stripes(void **state)
{
    (void)state;
    struct rig r;
    uint8_t byte;
    struct iovec iov = {&byte, 1};
    rig_start(&r, 3, false);
    stop_arrivals(&r);
    for (int i = 0; i < 3; i++)
        assert_int_equal(r.client[i]->ops->recv(r.client[i], &iov, 1, patience_ns), -ESHUTDOWN);
    rig_end(&r);
}

/* Heads were read of an upload that never opens. */
static void destroy_while_stripes_are_early(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        rig_start(&r, VN_STRIPES_MAX, spins);
        struct taker t = {.rig = &r, .off = FIRST, .len = 0};
        taker_start(&t);
        for (unsigned stripe = 1; stripe < VN_STRIPES_MAX; stripe++)
            put_head(&r, stripe, (struct vn_chunk){2 + stripe, PAGE, FIRST});
        send_all(&r);
        for (unsigned stripe = 1; stripe < VN_STRIPES_MAX; stripe++)
            await_read(&r, stripe);
        put_end(&r, 1, FIRST);
        send_all(&r);
        assert_int_equal(taker_end(&t), 0);
        rig_end(&r);
    }
}

/* With bytes on their way that nobody reads. */
static void destroy_in_the_middle_of_a_script(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        struct rig r;
        struct upload u[3];
        rig_start(&r, 3, spins);
        for (int i = 0; i < 3; i++) {
            u[i] = upload_make(&r, 0, MEMORY_BYTES);
            put_upload(&r, &u[i]);
        }
        struct sender s = {.rig = &r, .piece_max = SIZE_MAX / 2};
        sender_start(&s);
        take_well(&r, &u[0]);
        stop_arrivals(&r);
        sender_end(&s);
        for (int i = 1; i < 3; i++)
            free(u[i].bytes);
        rig_end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_in_any_order_arrive_at_their_place),
        cmocka_unit_test(chunks_in_odd_pieces_arrive),
        cmocka_unit_test(a_head_may_come_byte_by_byte),
        cmocka_unit_test(many_uploads_in_a_row_arrive),
        cmocka_unit_test(a_stripe_may_be_several_uploads_ahead),
        cmocka_unit_test(an_upload_waits_for_its_own_bytes),
        cmocka_unit_test(what_has_no_place_is_stored),
        cmocka_unit_test(chunks_that_do_not_belong_are_refused),
        cmocka_unit_test(more_bytes_than_the_upload_has_are_refused),
        cmocka_unit_test(two_stripes_may_not_bring_more_than_all),
        cmocka_unit_test(a_later_upload_before_the_end_on_the_first_stripe_is_refused),
        cmocka_unit_test(an_error_of_store_is_that_of_take),
        cmocka_unit_test(a_stripe_that_closes_is_a_fault),
        cmocka_unit_test(missing_bytes_and_a_closed_stripe_are_a_fault),
        cmocka_unit_test(a_fault_of_one_stripe_ends_the_others),
        cmocka_unit_test(destroy_right_after_create),
        cmocka_unit_test(destroy_ends_the_stripes),
        cmocka_unit_test(destroy_while_stripes_are_early),
        cmocka_unit_test(destroy_in_the_middle_of_a_script),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
