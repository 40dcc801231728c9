/* Texts that wait for a worker, by API key.  A key's requests are in order, and so are the texts of
 * each; but a text that a worker lost goes first, and its request with it. */
#include "serve/http/impl.h"

#include <assert.h>

static void add_siblings(struct http_siblings *b, struct http_key *key, bool first)
{
    b->to = first ? &key->waiting : key->waiting_end;
    b->next = *b->to;
    if (b->next)
        b->next->to = &b->next;
    else
        key->waiting_end = &b->next;
    *b->to = b;
}

static void remove_siblings(struct http_siblings *b, struct http_key *key)
{
    *b->to = b->next;
    if (b->next)
        b->next->to = b->to;
    else
        key->waiting_end = b->to;
    b->to = NULL;
}

static void add_key(struct http_front *f, struct http_key *key)
{
    key->waiting_end = &key->waiting;
    key->next = f->waiting;
    f->waiting = key;
}

static void remove_key(struct http_front *f, struct http_key *key)
{
    struct http_key **to = &f->waiting;
    while (*to != key)
        to = &(*to)->next;
    *to = key->next;
}

void http_queue_add(struct http_sequence *s, bool first)
{
    struct http_front *f = s->front;
    struct http_siblings *b = s->siblings;
    assert(!s->to && !s->attempt && !s->ended);
    s->waits_ns = hw_now_ns();
    s->due_ns = s->waits_ns + f->config.limits.wait_ns;
    http_count(&s->model->stats, HTTP_COUNT_WAITING, 1);
    if (!s->key->waiting)
        add_key(f, s->key);
    if (!b->waiting)
        b->waiting_end = &b->waiting;
    else if (first)
        remove_siblings(b, s->key);
    if (!b->to)
        add_siblings(b, s->key, first);
    s->to = first ? &b->waiting : b->waiting_end;
    s->next = *s->to;
    if (s->next)
        s->next->to = &s->next;
    else
        b->waiting_end = &s->next;
    *s->to = s;
}

void http_queue_remove(struct http_sequence *s)
{
    struct http_siblings *b = s->siblings;
    if (!s->to)
        return;
    *s->to = s->next;
    if (s->next)
        s->next->to = s->to;
    else
        b->waiting_end = s->to;
    s->to = NULL;
    http_count(&s->model->stats, HTTP_COUNT_WAITING, -1);
    if (!b->waiting)
        remove_siblings(b, s->key);
    if (!s->key->waiting)
        remove_key(s->front, s->key);
}

struct http_sequence *http_queue_first(const struct http_front *f)
{
    return f->waiting ? f->waiting->waiting->waiting : NULL;
}

struct http_sequence *http_queue_next(const struct http_sequence *s)
{
    const struct http_siblings *b = s->siblings->next;
    if (s->next)
        return s->next;
    if (!b && s->key->next)
        b = s->key->next->waiting;
    return b ? b->waiting : NULL;
}
