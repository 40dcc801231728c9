/* Texts against a grammar.
 *
 * A stack is a chain of nodes, each a place in the grammar and what follows after it; equal chains
 * are one node.  A state is the sorted set of the nodes whose places wait for a byte.  Transitions
 * of a state are found when they are needed and kept.  A rule that is the last of its alternative
 * leaves nothing on the stack, so repetitions do not make it grow. */
#include "llm/chat/grammar_impl.h"

#include "base/grow.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES_MAX = 1 << 18, /* of all states; 6 MiB.  Then only those of the present state are kept */
    BUCKETS_MIN = 64,
    /* While one mask is made: beyond these a token counts as one that cannot come. */
    WALK_STATES_MAX = 8 * LLM_MATCHER_STATES_MAX,
};

#define UNKNOWN UINT32_MAX

struct node {
    uint32_t place;  /* in elements */
    uint32_t parent; /* node 0: nothing follows */
    uint32_t depth;
    uint32_t seen; /* the round in which it was last added */
};

struct state {
    uint32_t first, count; /* in members */
    uint32_t *next;        /* by class of byte, or NULL: not asked for yet */
    uint64_t *mask;        /* of tokens, or NULL */
    uint32_t hash;         /* of the members */
    bool accepts;
};

/* State 0 is dead: nothing can follow. */
enum { DEAD };

struct llm_matcher {
    const struct llm_grammar *g;
    const struct llm_pieces *pieces;
    struct node *nodes;
    uint32_t node_count, kept; /* kept: of them, when states were forgotten last */
    size_t node_room;
    uint32_t *node_buckets, node_bucket_count;
    struct state *states;
    uint32_t state_count;
    size_t state_room;
    uint32_t *members, member_count;
    size_t member_room;
    uint32_t *found, found_count; /* of a state under construction */
    size_t found_room;
    uint32_t *todo, todo_count;
    size_t todo_room;
    uint32_t round;
    uint32_t now;
    uint32_t masks;
    uint64_t *scratch; /* a mask that is not remembered */
    bool ended;        /* an end token was sampled */
    bool failed;       /* out of memory or bounds while a state was made */
    bool cut;          /* since the work began, a state was not found for want of work */
    uint64_t work;     /* places visited since a mask or a byte began */
};

struct llm_pieces {
    uint32_t count;  /* of the vocabulary */
    uint32_t sorted; /* of them, with a piece */
    uint32_t *tokens;
    uint32_t *places; /* of a token in the order; UINT32_MAX: it has no piece */
    uint16_t *bytes;
    uint16_t *common; /* with the piece before */
    const char **texts;
    uint8_t (*controls)[GRAMMAR_TOKEN_BYTES]; /* pieces of tokens without a text */
    uint64_t *ends;                           /* a bit for each end token */
};

/* Room for one more than `count`. */
static bool grow(struct llm_matcher *m, void *items, uint32_t count, size_t *room, size_t size)
{
    if (!hw_grow(items, room, (size_t)count + 1, size))
        m->failed = true;
    return !m->failed;
}

/* ---- pieces ---- */

struct sort_piece {
    const char *text;
    uint32_t token;
    uint16_t bytes;
};

static int order_pieces(const void *a, const void *b)
{
    const struct sort_piece *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, n);
    if (order)
        return order;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static void fill_pieces(struct llm_pieces *pieces, const struct sort_piece *sorted)
{
    for (uint32_t i = 0; i < pieces->sorted; i++) {
        uint16_t common = 0;
        while (i && common < sorted[i].bytes && common < sorted[i - 1].bytes &&
               sorted[i].text[common] == sorted[i - 1].text[common])
            common++;
        pieces->tokens[i] = sorted[i].token;
        pieces->places[sorted[i].token] = i;
        pieces->bytes[i] = sorted[i].bytes;
        pieces->texts[i] = sorted[i].text;
        pieces->common[i] = common;
    }
}

/* The pieces of all tokens that can come within a text, in any order; 0 or -ENOMEM. */
static int list_pieces(struct llm_pieces *pieces, const struct llm_vocab *vocab,
                       struct sort_piece *list)
{
    uint32_t controls = 0, at = 0;
    size_t bytes;
    for (uint32_t token = 0; token < pieces->count; token++) {
        (void)llm_vocab_piece(vocab, token, false, &bytes);
        controls += bytes == 0;
    }
    pieces->controls = calloc(controls + 1, sizeof *pieces->controls);
    if (!pieces->controls)
        return -ENOMEM;
    for (uint32_t token = 0; token < pieces->count; token++) {
        const char *text = llm_vocab_piece(vocab, token, false, &bytes);
        if (llm_vocab_ends(vocab, token)) {
            pieces->ends[token / 64] |= 1ULL << (token % 64);
            continue;
        }
        if (bytes == 0) {
            grammar_token(token, pieces->controls[at]);
            text = (const char *)pieces->controls[at++];
            bytes = GRAMMAR_TOKEN_BYTES;
        } else if (memchr(text, GRAMMAR_TOKEN_MARK, bytes)) {
            continue;
        }
        list[pieces->sorted++] =
            (struct sort_piece){.text = text, .token = token, .bytes = (uint16_t)bytes};
    }
    return 0;
}

int llm_pieces_create(const struct llm_vocab *vocab, struct llm_pieces **out)
{
    uint32_t count = llm_vocab_size(vocab);
    struct llm_pieces *pieces = calloc(1, sizeof *pieces);
    struct sort_piece *sorted = calloc(count + 1, sizeof *sorted);
    if (pieces) {
        pieces->count = count;
        pieces->tokens = calloc(count + 1, sizeof *pieces->tokens);
        pieces->places = malloc((count + 1) * sizeof *pieces->places);
        pieces->bytes = calloc(count + 1, sizeof *pieces->bytes);
        pieces->common = calloc(count + 1, sizeof *pieces->common);
        pieces->texts = calloc(count + 1, sizeof *pieces->texts);
        pieces->ends = calloc(count / 64 + 1, sizeof *pieces->ends);
    }
    if (!pieces || !sorted || !pieces->tokens || !pieces->places || !pieces->bytes ||
        !pieces->common || !pieces->texts || !pieces->ends || list_pieces(pieces, vocab, sorted)) {
        free(sorted);
        llm_pieces_destroy(pieces);
        return -ENOMEM;
    }
    memset(pieces->places, 0xff, (count + 1) * sizeof *pieces->places);
    qsort(sorted, pieces->sorted, sizeof *sorted, order_pieces);
    fill_pieces(pieces, sorted);
    free(sorted);
    *out = pieces;
    return 0;
}

void llm_pieces_destroy(struct llm_pieces *pieces)
{
    if (!pieces)
        return;
    free(pieces->tokens);
    free(pieces->places);
    free(pieces->bytes);
    free(pieces->common);
    free(pieces->texts);
    free(pieces->controls);
    free(pieces->ends);
    free(pieces);
}

/* ---- states ---- */

static uint32_t hash2(uint32_t a, uint32_t b)
{
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15ULL;
    return (uint32_t)(h >> 32);
}

static bool grow_buckets(struct llm_matcher *m)
{
    uint32_t count = m->node_bucket_count ? m->node_bucket_count * 2 : BUCKETS_MIN;
    uint32_t *buckets = calloc(count, sizeof *buckets);
    if (!buckets) {
        m->failed = true;
        return false;
    }
    for (uint32_t i = 1; i < m->node_count; i++) {
        uint32_t at = hash2(m->nodes[i].place, m->nodes[i].parent) & (count - 1);
        while (buckets[at])
            at = (at + 1) & (count - 1);
        buckets[at] = i;
    }
    free(m->node_buckets);
    m->node_buckets = buckets;
    m->node_bucket_count = count;
    return true;
}

/* The node of this place and parent; 0 after a failure. */
static uint32_t intern(struct llm_matcher *m, uint32_t place, uint32_t parent)
{
    if (m->failed || (m->node_count * 2 >= m->node_bucket_count && !grow_buckets(m)))
        return 0;
    uint32_t mask = m->node_bucket_count - 1, at = hash2(place, parent) & mask;
    for (; m->node_buckets[at]; at = (at + 1) & mask) {
        const struct node *node = &m->nodes[m->node_buckets[at]];
        if (node->place == place && node->parent == parent)
            return m->node_buckets[at];
    }
    uint32_t depth = m->nodes[parent].depth + 1;
    if (depth > LLM_MATCHER_DEPTH_MAX || m->node_count >= NODES_MAX) {
        m->failed = true;
        return 0;
    }
    if (!grow(m, &m->nodes, m->node_count, &m->node_room, sizeof *m->nodes))
        return 0;
    m->nodes[m->node_count] = (struct node){.place = place, .parent = parent, .depth = depth};
    m->node_buckets[at] = m->node_count;
    return m->node_count++;
}

static void push(struct llm_matcher *m, uint32_t place, uint32_t parent)
{
    uint32_t id = intern(m, place, parent);
    if (++m->work > LLM_MATCHER_WORK_MAX)
        m->failed = m->cut = true;
    if (m->failed || !id || m->nodes[id].seen == m->round)
        return;
    m->nodes[id].seen = m->round;
    if (grow(m, &m->todo, m->todo_count, &m->todo_room, sizeof *m->todo))
        m->todo[m->todo_count++] = id;
}

/* Follows what needs no byte; what waits for one is collected in found.  Returns whether the text
 * may end. */
static bool expand(struct llm_matcher *m)
{
    const struct llm_grammar *g = m->g;
    bool accepts = false;
    while (m->todo_count && !m->failed) {
        uint32_t id = m->todo[--m->todo_count];
        struct node node = m->nodes[id];
        struct element e = g->elements[node.place];
        if (e.kind == ELEMENT_END) {
            if (node.parent)
                push(m, m->nodes[node.parent].place, m->nodes[node.parent].parent);
            else
                accepts = true;
        } else if (e.kind == ELEMENT_RULE) {
            bool last = g->elements[node.place + 1].kind == ELEMENT_END;
            uint32_t parent = last ? node.parent : intern(m, node.place + 1, node.parent);
            const struct grammar_rule *rule = &g->rules[e.value];
            for (uint32_t i = 0; i < rule->count && !m->failed; i++)
                push(m, g->starts[rule->first + i], parent);
        } else if (m->found_count == LLM_MATCHER_STACKS_MAX) {
            m->failed = true;
        } else if (grow(m, &m->found, m->found_count, &m->found_room, sizeof *m->found)) {
            m->found[m->found_count++] = id;
        }
    }
    m->todo_count = 0;
    return accepts;
}

static int order_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The state of what was found; DEAD if it is nothing. */
static uint32_t intern_state(struct llm_matcher *m, bool accepts)
{
    if (m->failed || (m->found_count == 0 && !accepts))
        return DEAD;
    qsort(m->found, m->found_count, sizeof *m->found, order_ids);
    uint32_t hash = 0;
    for (uint32_t i = 0; i < m->found_count; i++)
        hash = hash2(hash, m->found[i]);
    m->work += m->state_count / 16;
    for (uint32_t i = 1; i < m->state_count; i++) {
        const struct state *s = &m->states[i];
        if (s->hash == hash && s->count == m->found_count && s->accepts == accepts &&
            memcmp(m->members + s->first, m->found, s->count * sizeof *m->found) == 0)
            return i;
    }
    uint32_t first = m->member_count;
    if (m->state_count >= WALK_STATES_MAX) {
        m->failed = m->cut = true;
        return DEAD;
    }
    for (uint32_t i = 0; i < m->found_count; i++) {
        if (!grow(m, &m->members, m->member_count, &m->member_room, sizeof *m->members))
            return DEAD;
        m->members[m->member_count++] = m->found[i];
    }
    if (!grow(m, &m->states, m->state_count, &m->state_room, sizeof *m->states))
        return DEAD;
    m->states[m->state_count] =
        (struct state){.first = first, .count = m->found_count, .hash = hash, .accepts = accepts};
    return m->state_count++;
}

static void begin_round(struct llm_matcher *m)
{
    m->found_count = m->todo_count = 0;
    m->round++;
}

/* A failure while a state is made: it is dead, and the reason is forgotten. */
static uint32_t finish_state(struct llm_matcher *m)
{
    bool accepts = expand(m);
    uint32_t state = intern_state(m, accepts);
    if (m->failed) {
        m->failed = false;
        m->todo_count = 0;
        return DEAD;
    }
    return state;
}

static uint32_t make_transition(struct llm_matcher *m, uint32_t from, unsigned byte)
{
    struct state *s = &m->states[from];
    begin_round(m);
    for (uint32_t i = 0; i < s->count; i++) {
        struct node node = m->nodes[m->members[s->first + i]];
        struct element e = m->g->elements[node.place];
        bool matches =
            e.kind == ELEMENT_BYTE ? e.value == byte : byte_set_has(&m->g->sets[e.value], byte);
        if (matches)
            push(m, node.place + 1, node.parent);
    }
    return finish_state(m);
}

static uint32_t step(struct llm_matcher *m, uint32_t from, unsigned byte)
{
    if (from == DEAD)
        return DEAD;
    if (!m->states[from].next) {
        size_t bytes = m->g->class_count * sizeof(uint32_t);
        uint32_t *next = malloc(bytes);
        if (!next)
            return DEAD;
        memset(next, 0xff, bytes);
        m->states[from].next = next;
    }
    unsigned class = m->g->class_of[byte];
    uint32_t to = m->states[from].next[class];
    if (to != UNKNOWN)
        return to;
    bool was_cut = m->cut;
    m->cut = false;
    to = make_transition(m, from, byte);
    if (!m->cut)
        m->states[from].next[class] = to; /* states may have moved */
    m->cut |= was_cut;
    return to;
}

static void free_states(struct llm_matcher *m)
{
    for (uint32_t i = 0; i < m->state_count; i++) {
        free(m->states[i].next);
        free(m->states[i].mask);
    }
    m->masks = 0;
}

/* A chain of the old nodes in the new ones.  An old node that is copied has depth 0 and its copy's
 * number in `seen`: stacks share what is below, so each is copied once. */
static uint32_t copy_chain(struct llm_matcher *m, struct node *old, uint32_t id)
{
    uint32_t chain[LLM_MATCHER_DEPTH_MAX + 1], depth = 0;
    for (; old[id].depth; id = old[id].parent)
        chain[depth++] = id;
    uint32_t parent = old[id].seen;
    while (depth) {
        struct node *from = &old[chain[--depth]];
        parent = intern(m, from->place, parent);
        from->depth = 0;
        from->seen = parent;
    }
    return parent;
}

/* Forgets all states but the present one. */
static void forget(struct llm_matcher *m)
{
    struct node *old = m->nodes;
    struct state now = m->states[m->now];
    uint32_t *members = m->members;
    free_states(m);
    m->states[DEAD] = (struct state){0};
    m->state_count = 1;
    m->nodes = NULL;
    m->members = NULL;
    m->node_count = m->member_count = 0;
    m->node_room = m->member_room = 0;
    free(m->node_buckets);
    m->node_buckets = NULL;
    m->node_bucket_count = 0;
    begin_round(m);
    if (grow(m, &m->nodes, 0, &m->node_room, sizeof *m->nodes)) {
        m->nodes[0] = (struct node){0};
        m->node_count = 1;
        for (uint32_t i = 0; i < now.count && !m->failed; i++) {
            uint32_t id = copy_chain(m, old, members[now.first + i]);
            m->found[m->found_count++] = id; /* there was room for as many before */
        }
    }
    m->now = m->failed ? DEAD : intern_state(m, now.accepts);
    m->failed = false;
    m->kept = m->node_count;
    free(old);
    free(members);
}

/* Half of the room that the present state left is taken: one that fills most of it by itself is not
 * copied again for each byte. */
static bool is_full(const struct llm_matcher *m)
{
    return m->state_count > LLM_MATCHER_STATES_MAX ||
           m->node_count - m->kept > (NODES_MAX - m->kept) / 2;
}

int llm_matcher_create(const struct llm_grammar *grammar, const struct llm_pieces *pieces,
                       struct llm_matcher **out)
{
    struct llm_matcher *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    m->g = grammar;
    m->pieces = pieces;
    if (grow(m, &m->nodes, 0, &m->node_room, sizeof *m->nodes) &&
        grow(m, &m->states, 0, &m->state_room, sizeof *m->states) &&
        grow(m, &m->found, 0, &m->found_room, sizeof *m->found)) {
        m->nodes[0] = (struct node){0};
        m->states[DEAD] = (struct state){0};
        m->node_count = m->state_count = 1;
        begin_round(m);
        const struct grammar_rule *root = &grammar->rules[grammar->root];
        for (uint32_t i = 0; i < root->count; i++)
            push(m, grammar->starts[root->first + i], 0);
        bool accepts = expand(m);
        m->now = intern_state(m, accepts);
    }
    if (pieces)
        m->scratch = calloc(pieces->count / 64 + 1, sizeof *m->scratch);
    if (m->failed || (pieces && !m->scratch)) {
        llm_matcher_destroy(m);
        return -ENOMEM;
    }
    *out = m;
    return 0;
}

void llm_matcher_destroy(struct llm_matcher *m)
{
    if (!m)
        return;
    if (m->states)
        free_states(m);
    free(m->nodes);
    free(m->node_buckets);
    free(m->states);
    free(m->members);
    free(m->found);
    free(m->todo);
    free(m->scratch);
    free(m);
}

bool llm_matcher_feed(struct llm_matcher *m, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && m->now != DEAD; i++) {
        m->work = 0;
        m->now = step(m, m->now, (unsigned char)text[i]);
        if (is_full(m))
            forget(m);
    }
    return m->now != DEAD;
}

bool llm_matcher_may_end(const struct llm_matcher *m)
{
    return m->states[m->now].accepts;
}

bool llm_matcher_is_dead(const struct llm_matcher *m)
{
    return m->ended || m->now == DEAD || m->states[m->now].count == 0;
}

/* ---- masks ---- */

/* Sets the bits of tokens that can follow; false when there is none. */
static bool walk(struct llm_matcher *m, uint64_t *mask)
{
    const struct llm_pieces *p = m->pieces;
    uint32_t path[LLM_PIECE_BYTES_MAX + 1]; /* the state after so many bytes of the piece before */
    uint32_t dead = UINT32_MAX;             /* bytes after which the path is dead */
    bool any = false;
    path[0] = m->now;
    for (uint32_t i = 0; i < p->sorted; i++) {
        if (dead <= p->common[i])
            continue; /* it begins with what cannot come */
        uint32_t at = p->common[i];
        uint32_t state = path[at];
        dead = UINT32_MAX;
        while (at < p->bytes[i]) {
            state = step(m, state, (unsigned char)p->texts[i][at]);
            path[++at] = state;
            if (state == DEAD) {
                dead = at;
                break;
            }
        }
        if (state != DEAD) {
            mask[p->tokens[i] / 64] |= 1ULL << (p->tokens[i] % 64);
            any = true;
        }
    }
    return any;
}

/* The mask of the present state, remembered if there is room. */
static const uint64_t *mask_of(struct llm_matcher *m)
{
    size_t words = m->pieces->count / 64 + 1;
    struct state *s = &m->states[m->now];
    if (s->mask)
        return s->mask;
    memset(m->scratch, 0, words * sizeof *m->scratch);
    m->work = 0;
    m->cut = false;
    bool any = m->now != DEAD && !m->ended && walk(m, m->scratch);
    s = &m->states[m->now]; /* the walk made states */
    if (!any || s->accepts || m->ended) {
        for (size_t i = 0; i < words; i++)
            m->scratch[i] |= m->pieces->ends[i];
    }
    uint64_t *kept = NULL;
    if (m->masks < LLM_MATCHER_MASKS_MAX && m->now != DEAD && !m->ended && !m->cut)
        kept = malloc(words * sizeof *kept);
    if (!kept)
        return m->scratch;
    memcpy(kept, m->scratch, words * sizeof *kept);
    s->mask = kept;
    m->masks++;
    return kept;
}

void llm_matcher_mask(struct llm_matcher *m, float *logits, uint32_t vocab)
{
    assert(m->pieces);
    const uint64_t *mask = mask_of(m);
    for (uint32_t token = 0; token < vocab; token++) {
        bool can = token < m->pieces->count && (mask[token / 64] >> (token % 64) & 1);
        if (!can)
            logits[token] = -INFINITY;
    }
    if (is_full(m))
        forget(m);
}

void llm_matcher_accept(struct llm_matcher *m, uint32_t token)
{
    const struct llm_pieces *p = m->pieces;
    assert(p);
    if (token >= p->count)
        return;
    if (p->ends[token / 64] >> (token % 64) & 1) {
        m->ended = true;
        return;
    }
    uint32_t place = p->places[token];
    if (place == UINT32_MAX || !llm_matcher_feed(m, p->texts[place], p->bytes[place]))
        m->now = DEAD;
}
