/* The front's lock, and what is done when it is given up. */
#include "serve/http/impl.h"

void http_lock(struct http_front *f)
{
    pthread_mutex_lock(&f->lock);
}

void http_unlock(struct http_front *f)
{
    while (f->actions) {
        struct http_action *a = f->actions;
        f->actions = a->next;
        if (!f->actions)
            f->actions_end = &f->actions;
        a->act(f, a);
    }
    pthread_mutex_unlock(&f->lock);
}

void http_do_soon(struct http_front *f, struct http_action *a)
{
    if (a->queued)
        return;
    a->queued = true;
    a->next = NULL;
    *f->actions_end = a;
    f->actions_end = &a->next;
}
