/* The handshake as two state machines that are fed bytes: who gets in, and what others are told. */
#include "unit.h"

#include "base/attr.h"
#include "base/rng.h"
#include "rpc/endpoint/frame.h"
#include "rpc/endpoint/handshake.h"
#include "wire/le.h"

#include <errno.h>
#include <string.h>

enum { CONNECTOR, ACCEPTOR };

static const struct rpc_security token_a = {.token = "0123456789abcdef", .token_len = 16};
static const struct rpc_security token_b = {.token = "fedcba9876543210", .token_len = 16};

/* One side, with the bytes that it has yet to deliver. */
struct side {
    struct rpc_handshake hs;
    uint8_t in[8 * RPC_HS_MESSAGE_MAX]; /* arrived, not yet used */
    size_t in_len;
    size_t out_taken;
    int rc;
};

struct meeting {
    struct side side[2];
    struct hw_rng rng;
};

static struct rpc_config config_of(bool accepting, const struct rpc_security *sec)
{
    return (struct rpc_config){.accepting = accepting,
                               .security = sec,
                               .window_bytes = RPC_WINDOW_DEFAULT,
                               .max_calls = RPC_CALLS_DEFAULT,
                               .heartbeat_ns = RPC_HEARTBEAT_DEFAULT_NS,
                               .capabilities = accepting ? 0xa : 0xc,
                               .name = accepting ? "acceptor" : "connector"};
}

static void side_init(struct side *s, bool accepting, const struct rpc_security *sec, bool local,
                      uint8_t nonce)
{
    uint8_t nonces[RPC_HS_NONCE];
    memset(nonces, nonce, sizeof nonces);
    struct rpc_config config = config_of(accepting, sec);
    *s = (struct side){.rc = -EINPROGRESS};
    assert_int_equal(rpc_handshake_init(&s->hs, &config, nonces, local, RPC_USER_UNKNOWN), 0);
}

static struct meeting meet(const struct rpc_security *client, const struct rpc_security *server,
                           bool local)
{
    struct meeting m;
    hw_rng_seed(&m.rng, 1);
    side_init(&m.side[CONNECTOR], false, client, local, 0x11);
    side_init(&m.side[ACCEPTOR], true, server, local, 0x22);
    return m;
}

static void feed(struct side *s, const uint8_t *p, size_t n)
{
    assert_true(s->in_len + n <= sizeof s->in);
    memcpy(s->in + s->in_len, p, n);
    s->in_len += n;
    if (s->rc != -EINPROGRESS)
        return; /* what comes later is frames, or nobody's */
    size_t used = SIZE_MAX;
    s->rc = rpc_handshake_feed(&s->hs, s->in, s->in_len, &used);
    assert_true(used <= s->in_len);
    s->in_len -= used;
    memmove(s->in, s->in + used, s->in_len);
}

/* Moves up to `piece` bytes (random when 0) from one side to the other; false when it has none. */
static bool deliver(struct meeting *m, int from, size_t piece)
{
    struct side *s = &m->side[from];
    size_t left = s->hs.out_len - s->out_taken;
    if (left == 0)
        return false;
    size_t n = piece ? piece : 1 + (size_t)hw_rng_below(&m->rng, left);
    if (n > left)
        n = left;
    feed(&m->side[!from], s->hs.out + s->out_taken, n);
    s->out_taken += n;
    return true;
}

static void run(struct meeting *m, size_t piece)
{
    for (bool more = true; more;) {
        more = deliver(m, CONNECTOR, piece);
        more = deliver(m, ACCEPTOR, piece) || more;
    }
}

static void both_end_with(struct meeting *m, int connector, int acceptor)
{
    assert_int_equal(m->side[CONNECTOR].rc, connector);
    assert_int_equal(m->side[ACCEPTOR].rc, acceptor);
}

static void says(const struct side *s, const char *text)
{
    if (!strstr(s->hs.why, text))
        fail_msg("\"%s\" does not say \"%s\"", s->hs.why, text);
}

static void hellos_are_exchanged(void **state)
{
    (void)state;
    struct meeting m = meet(NULL, NULL, false);
    run(&m, SIZE_MAX);
    both_end_with(&m, 0, 0);
    for (int i = 0; i < 2; i++) {
        const struct rpc_hello *peer = &m.side[i].hs.peer;
        assert_string_equal(peer->name, i == CONNECTOR ? "acceptor" : "connector");
        assert_int_equal(peer->capabilities, i == CONNECTOR ? 0xa : 0xc);
        assert_int_equal(peer->window_bytes, RPC_WINDOW_DEFAULT);
        assert_int_equal(peer->max_calls, RPC_CALLS_DEFAULT);
        assert_int_equal(peer->heartbeat_ms, 2000);
        assert_int_equal(m.side[i].hs.version, RPC_VERSION_MAX);
        assert_int_equal(m.side[i].in_len, 0);
    }
}

static void pieces_of_any_size_do(void **state)
{
    (void)state;
    const struct rpc_security *tokens[] = {NULL, &token_a};
    for (int t = 0; t < 2; t++) {
        struct meeting m = meet(tokens[t], tokens[t], false);
        run(&m, 1);
        both_end_with(&m, 0, 0);
        for (uint64_t seed = 0; seed < 200; seed++) {
            m = meet(tokens[t], tokens[t], false);
            hw_rng_seed(&m.rng, seed);
            run(&m, 0);
            both_end_with(&m, 0, 0);
        }
    }
}

static void frames_behind_the_handshake_are_left(void **state)
{
    (void)state;
    struct meeting m = meet(NULL, NULL, false);
    struct side *a = &m.side[ACCEPTOR], *c = &m.side[CONNECTOR];
    uint8_t bytes[RPC_HS_MESSAGE_MAX + 3];
    memcpy(bytes, c->hs.out, c->hs.out_len);
    memcpy(bytes + c->hs.out_len, "\x02\x00\x01", 3);
    feed(a, bytes, c->hs.out_len + 3);
    assert_int_equal(a->rc, 0);
    assert_int_equal(a->in_len, 3);
    assert_memory_equal(a->in, "\x02\x00\x01", 3);
}

static void same_token_lets_in(void **state)
{
    (void)state;
    struct meeting m = meet(&token_a, &token_a, false);
    run(&m, SIZE_MAX);
    both_end_with(&m, 0, 0);
}

static void a_tenant_is_known_by_its_token(void **state)
{
    (void)state;
    static const struct rpc_token tenants[] = {{.bytes = "another one's token", .len = 19},
                                               {.bytes = "fedcba9876543210", .len = 16}};
    struct rpc_security server = token_a;
    server.tenants = tenants;
    server.tenant_count = 2;
    struct meeting m = meet(&token_b, &server, false);
    run(&m, SIZE_MAX);
    both_end_with(&m, 0, 0);
    assert_int_equal(m.side[ACCEPTOR].hs.tenant, 2);
    m = meet(&token_a, &server, false);
    run(&m, SIZE_MAX);
    both_end_with(&m, 0, 0);
    assert_int_equal(m.side[ACCEPTOR].hs.tenant, 0);
    server.tenant_count = 1;
    m = meet(&token_b, &server, false);
    run(&m, SIZE_MAX);
    both_end_with(&m, -EACCES, -EACCES);
}

static void wrong_token_is_refused(void **state)
{
    (void)state;
    struct meeting m = meet(&token_b, &token_a, false);
    run(&m, SIZE_MAX);
    both_end_with(&m, -EACCES, -EACCES);
    says(&m.side[CONNECTOR], "wrong token: --token-file");
    says(&m.side[CONNECTOR], "VENUS_TOKEN_FILE");
    says(&m.side[ACCEPTOR], "wrong token");
}

static void token_needed_but_absent(void **state)
{
    (void)state;
    struct meeting m = meet(NULL, &token_a, false);
    run(&m, SIZE_MAX);
    both_end_with(&m, -EACCES, -EINPROGRESS);
    says(&m.side[CONNECTOR], "VENUS_TOKEN_FILE");
}

static void server_without_proof_is_not_trusted(void **state)
{
    (void)state;
    struct meeting m = meet(&token_a, NULL, false);
    run(&m, SIZE_MAX);
    assert_int_equal(m.side[CONNECTOR].rc, -EACCES);
    says(&m.side[CONNECTOR], "cannot prove");
}

/* Who listens on this host may be any of its users. */
static void local_server_is_not_trusted_either(void **state)
{
    (void)state;
    struct meeting m = meet(&token_a, NULL, true);
    run(&m, SIZE_MAX);
    assert_int_equal(m.side[CONNECTOR].rc, -EACCES);
    says(&m.side[CONNECTOR], "cannot prove");
}

static struct meeting meet_on_host(const struct rpc_security *client,
                                   const struct rpc_security *server, bool local,
                                   enum rpc_peer_user user)
{
    struct meeting m = meet(NULL, NULL, local);
    uint8_t nonces[2][RPC_HS_NONCE] = {{1}, {2}};
    struct rpc_config from = config_of(false, client), to = config_of(true, server);
    assert_int_equal(rpc_handshake_init(&m.side[CONNECTOR].hs, &from, nonces[0], local, user), 0);
    assert_int_equal(rpc_handshake_init(&m.side[ACCEPTOR].hs, &to, nonces[1], local, user), 0);
    run(&m, SIZE_MAX);
    return m;
}

static void a_host_token_is_for_loopback_and_for_strangers(void **state)
{
    (void)state;
    struct rpc_security a = token_a, b = token_b;
    a.host_token = b.host_token = true;
    struct meeting m = meet_on_host(&a, &a, true, RPC_USER_UNKNOWN);
    both_end_with(&m, 0, 0);
    assert_true(m.side[CONNECTOR].hs.token && m.side[ACCEPTOR].hs.token);
    m = meet_on_host(&b, &a, true, RPC_USER_UNKNOWN);
    both_end_with(&m, -EACCES, -EACCES);
    says(&m.side[CONNECTOR], "for the user that started it");
    m = meet_on_host(&a, NULL, true, RPC_USER_UNKNOWN);
    assert_int_equal(m.side[CONNECTOR].rc, -EACCES);
    says(&m.side[CONNECTOR], "VENUS_TOKEN_FILE=none");
    /* The kernel's word is enough, and another host's server is asked for nothing. */
    m = meet_on_host(&b, &a, true, RPC_USER_SAME);
    both_end_with(&m, 0, 0);
    assert_false(m.side[CONNECTOR].hs.token || m.side[ACCEPTOR].hs.token);
    m = meet_on_host(&a, NULL, false, RPC_USER_UNKNOWN);
    both_end_with(&m, 0, 0);
}

static void another_user_needs_a_token(void **state)
{
    (void)state;
    struct meeting m = meet_on_host(NULL, NULL, true, RPC_USER_OTHER);
    both_end_with(&m, -EACCES, -EACCES);
    says(&m.side[CONNECTOR], "for the user that started the server");
    m = meet_on_host(&token_a, &token_a, true, RPC_USER_OTHER);
    both_end_with(&m, 0, 0);
    m = meet_on_host(&token_a, NULL, true, RPC_USER_OTHER);
    assert_int_equal(m.side[ACCEPTOR].rc, -EACCES);
}

/* A server that has no token but says it wants one, and welcomes whoever comes. */
static void welcome_without_knowledge_is_refused(void **state)
{
    (void)state;
    struct meeting m = meet(&token_a, &token_b, false);
    struct side *c = &m.side[CONNECTOR];
    deliver(&m, CONNECTOR, SIZE_MAX);
    deliver(&m, ACCEPTOR, SIZE_MAX);
    uint8_t welcome[RPC_HS_HEADER + 32] = {'H', 'W', 'S', 'R', RPC_HS_WELCOME, 0, 32, 0};
    feed(c, welcome, sizeof welcome);
    assert_int_equal(c->rc, -EACCES);
    says(c, "does not know the token");
}

static void other_channel_is_refused(void **state)
{
    (void)state;
    struct meeting m = meet(&token_a, &token_a, false);
    m.side[ACCEPTOR].hs.binding[7] ^= 1;
    run(&m, SIZE_MAX);
    both_end_with(&m, -EACCES, -EACCES);
    m = meet(&token_a, &token_a, false);
    m.side[ACCEPTOR].hs.binding[7] ^= 1;
    m.side[CONNECTOR].hs.binding[7] ^= 1;
    run(&m, SIZE_MAX);
    both_end_with(&m, 0, 0);
}

static void replayed_proof_is_refused(void **state)
{
    (void)state;
    struct meeting m = meet(&token_a, &token_a, false);
    run(&m, SIZE_MAX);
    both_end_with(&m, 0, 0);
    const struct side *recorded = &m.side[CONNECTOR];
    struct side fresh;
    side_init(&fresh, true, &token_a, false, 0x33);
    feed(&fresh, recorded->hs.out, recorded->hs.out_len);
    assert_int_equal(fresh.rc, -EACCES);
    /* The same acceptor nonce, to show that it is the nonce that refuses. */
    side_init(&fresh, true, &token_a, false, 0x22);
    feed(&fresh, recorded->hs.out, recorded->hs.out_len);
    assert_int_equal(fresh.rc, 0);
}

static void reflected_proof_is_refused(void **state)
{
    (void)state;
    struct meeting m = meet(&token_a, &token_a, false);
    run(&m, SIZE_MAX);
    struct side fresh;
    side_init(&fresh, false, &token_a, false, 0x11);
    const struct rpc_handshake *acceptor = &m.side[ACCEPTOR].hs;
    feed(&fresh, acceptor->out, acceptor->hello_len[ACCEPTOR]);
    assert_int_equal(fresh.rc, -EINPROGRESS);
    size_t hello = fresh.hs.hello_len[CONNECTOR];
    uint8_t echo[RPC_HS_HEADER + 32];
    assert_int_equal(fresh.hs.out_len - hello, sizeof echo);
    memcpy(echo, fresh.hs.out + hello, sizeof echo);
    echo[4] = RPC_HS_WELCOME;
    feed(&fresh, echo, sizeof echo);
    assert_int_equal(fresh.rc, -EACCES);
}

static void changed_hello_breaks_the_proof(void **state)
{
    (void)state;
    struct meeting m = meet(&token_a, &token_a, false);
    m.side[CONNECTOR].hs.out[RPC_HS_HEADER + 4] ^= 1; /* capabilities, on the way */
    run(&m, SIZE_MAX);
    both_end_with(&m, -EACCES, -EACCES);
}

static void version_mismatch_names_both(void **state)
{
    (void)state;
    struct meeting m = meet(NULL, NULL, false);
    uint8_t *hello = m.side[CONNECTOR].hs.out + RPC_HS_HEADER;
    wire_store16(hello, 7);
    wire_store16(hello + 2, 9);
    deliver(&m, CONNECTOR, SIZE_MAX);
    assert_int_equal(m.side[ACCEPTOR].rc, -EPROTONOSUPPORT);
    says(&m.side[ACCEPTOR], "1 to 1");
    says(&m.side[ACCEPTOR], "7 to 9");
    deliver(&m, ACCEPTOR, SIZE_MAX);
    assert_int_equal(m.side[CONNECTOR].rc, -EPROTONOSUPPORT);
    says(&m.side[CONNECTOR], "7 to 9");
}

static void old_server_is_named_by_the_connector(void **state)
{
    (void)state;
    struct meeting m = meet(NULL, NULL, false);
    deliver(&m, CONNECTOR, SIZE_MAX);
    uint8_t *hello = m.side[ACCEPTOR].hs.out + RPC_HS_HEADER;
    wire_store16(hello, 0);
    wire_store16(hello + 2, 0);
    deliver(&m, ACCEPTOR, SIZE_MAX);
    assert_int_equal(m.side[CONNECTOR].rc, -EPROTONOSUPPORT);
    says(&m.side[CONNECTOR], "the peer 0 to 0");
}

/* What a client that has sent nothing sees of a server. */
static void acceptor_is_silent_until_greeted(void **state)
{
    (void)state;
    struct meeting m = meet(NULL, NULL, false);
    assert_int_equal(m.side[ACCEPTOR].hs.out_len, 0);
    deliver(&m, CONNECTOR, SIZE_MAX);
    assert_int_equal(m.side[ACCEPTOR].rc, 0);
    assert_true(m.side[ACCEPTOR].hs.out_len > 0);
}

static void bad_openings_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *says;
        size_t len;
    } openings[] = {
        {"GET / HTTP/1.1\r\n", "this port speaks Hawser's RPC, not HTTP", 16},
        {"HEAD / HTTP/1.1\r\n", "this port speaks Hawser's RPC, not HTTP", 17},
        {"HTTP/1.1 400 Bad Request\r\n", "an HTTP server", 26},
        {"GETT", "wrong magic 0x47", 4},
        {"HWSX", "wrong magic", 4},
        {"\x16\x03\x01\x02\x00", "TLS client on a plain port", 5},
        {"\x15\x03\x03\x00\x02", "the server speaks TLS", 5},
        {"HWSR\x01\x00\x01\x02", "past the limit", 8},
        {"HWSR\x01\x00\xff\xff", "past the limit", 8},
        {"HWSR\x01\x00\x02\x00\x00\x00", "malformed", 10},
        {"HWSR\x02\x00\x00\x00", "message 2 out of turn", 8},
        {"HWSR\x03\x00\x00\x00", "message 3 out of turn", 8},
        {"HWSR\x09\x00\x00\x00", "message 9 out of turn", 8},
        {"HWSR\x04\x00\x01\x00\x00", "refusal is malformed", 9},
    };
    for (size_t i = 0; i < ARRAY_LEN(openings); i++) {
        struct side s;
        side_init(&s, true, NULL, false, 0x22);
        feed(&s, (const uint8_t *)openings[i].bytes, openings[i].len);
        assert_int_equal(s.rc, -EPROTO);
        says(&s, openings[i].says);
    }
}

static void second_hello_is_out_of_turn(void **state)
{
    (void)state;
    struct meeting m = meet(&token_a, &token_a, false);
    deliver(&m, CONNECTOR, SIZE_MAX);
    struct side *a = &m.side[ACCEPTOR];
    assert_int_equal(a->rc, -EINPROGRESS);
    feed(a, m.side[CONNECTOR].hs.out, m.side[CONNECTOR].hs.hello_len[CONNECTOR]);
    assert_int_equal(a->rc, -EPROTO);
    says(a, "out of turn");
}

static void limits_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        uint32_t value;
    } wrong[] = {
        {8, RPC_WINDOW_MIN - 1}, {8, RPC_WINDOW_MAX + 1u}, {12, 0}, {12, RPC_CALLS_MAX + 1}};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct meeting m = meet(NULL, NULL, false);
        wire_store32(m.side[CONNECTOR].hs.out + RPC_HS_HEADER + wrong[i].offset, wrong[i].value);
        deliver(&m, CONNECTOR, SIZE_MAX);
        assert_int_equal(m.side[ACCEPTOR].rc, -EPROTO);
        says(&m.side[ACCEPTOR], "out of range");
    }
}

static void refusal_reaches_the_peer(void **state)
{
    (void)state;
    struct meeting m = meet(NULL, NULL, false);
    rpc_handshake_refuse(&m.side[ACCEPTOR].hs, -EUSERS, "no more than 3 clients");
    struct side *c = &m.side[CONNECTOR];
    deliver(&m, ACCEPTOR, SIZE_MAX);
    assert_int_equal(c->rc, -EUSERS);
    says(c, "no more than 3 clients");
}

/* An endpoint ends with what the handshake says, so no code of a peer may read as "go on". */
static void refusal_always_ends_the_handshake(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 64; code++) {
        struct side s;
        side_init(&s, false, NULL, false, 0x11);
        uint8_t refused[RPC_HS_HEADER + 8] = {'H', 'W', 'S', 'R', RPC_HS_REFUSED, 0, 8, 0};
        wire_store32(refused + RPC_HS_HEADER, code);
        feed(&s, refused, sizeof refused);
        assert_true(s.rc < 0);
        assert_int_not_equal(s.rc, -EINPROGRESS);
        assert_int_not_equal(s.rc, -EAGAIN);
    }
}

static void long_name_is_refused_at_init(void **state)
{
    (void)state;
    struct rpc_handshake hs;
    const uint8_t nonce[RPC_HS_NONCE] = {0};
    char name[RPC_HS_NAME_CHARS + 1];
    memset(name, 'n', sizeof name - 1);
    name[RPC_HS_NAME_CHARS] = '\0';
    struct rpc_config config = config_of(false, NULL);
    config.name = name;
    assert_int_equal(rpc_handshake_init(&hs, &config, nonce, false, RPC_USER_UNKNOWN), -EINVAL);
    name[RPC_HS_NAME_CHARS - 1] = '\0';
    assert_int_equal(rpc_handshake_init(&hs, &config, nonce, false, RPC_USER_UNKNOWN), 0);
}

static void later_version_may_say_more(void **state)
{
    (void)state;
    struct meeting m = meet(NULL, NULL, false);
    struct rpc_handshake *c = &m.side[CONNECTOR].hs;
    uint8_t longer[RPC_HS_MESSAGE_MAX];
    memcpy(longer, c->out, c->out_len);
    memset(longer + c->out_len, 0x5a, 16);
    wire_store16(longer + 6, (uint16_t)(c->out_len - RPC_HS_HEADER + 16));
    feed(&m.side[ACCEPTOR], longer, c->out_len + 16);
    assert_int_equal(m.side[ACCEPTOR].rc, 0);
    assert_int_equal(m.side[ACCEPTOR].in_len, 0);
}

static void noise_never_gets_in(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 9);
    for (int i = 0; i < 3000; i++) {
        struct meeting m = meet(&token_a, &token_a, false);
        struct side *a = &m.side[ACCEPTOR];
        uint8_t *hello = m.side[CONNECTOR].hs.out;
        size_t len = m.side[CONNECTOR].hs.out_len;
        hello[hw_rng_below(&rng, len)] ^= (uint8_t)(1 + hw_rng_below(&rng, 255));
        run(&m, 0);
        assert_int_not_equal(a->rc, 0);
        assert_int_not_equal(m.side[CONNECTOR].rc, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hellos_are_exchanged),
        cmocka_unit_test(pieces_of_any_size_do),
        cmocka_unit_test(frames_behind_the_handshake_are_left),
        cmocka_unit_test(same_token_lets_in),
        cmocka_unit_test(a_tenant_is_known_by_its_token),
        cmocka_unit_test(wrong_token_is_refused),
        cmocka_unit_test(token_needed_but_absent),
        cmocka_unit_test(server_without_proof_is_not_trusted),
        cmocka_unit_test(local_server_is_not_trusted_either),
        cmocka_unit_test(a_host_token_is_for_loopback_and_for_strangers),
        cmocka_unit_test(another_user_needs_a_token),
        cmocka_unit_test(welcome_without_knowledge_is_refused),
        cmocka_unit_test(other_channel_is_refused),
        cmocka_unit_test(replayed_proof_is_refused),
        cmocka_unit_test(reflected_proof_is_refused),
        cmocka_unit_test(changed_hello_breaks_the_proof),
        cmocka_unit_test(version_mismatch_names_both),
        cmocka_unit_test(old_server_is_named_by_the_connector),
        cmocka_unit_test(bad_openings_are_named),
        cmocka_unit_test(second_hello_is_out_of_turn),
        cmocka_unit_test(limits_out_of_range_are_refused),
        cmocka_unit_test(acceptor_is_silent_until_greeted),
        cmocka_unit_test(refusal_reaches_the_peer),
        cmocka_unit_test(refusal_always_ends_the_handshake),
        cmocka_unit_test(long_name_is_refused_at_init),
        cmocka_unit_test(later_version_may_say_more),
        cmocka_unit_test(noise_never_gets_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
