#include "serve/http/clients.h"

#include "base/clock.h"
#include "base/wait.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    CLIENT_BYTES_PER_S = 16 << 10, /* less is a client that only pretends */
    FEW_CONNECTIONS = 16           /* left: from then on the longest idle one gives way */
};

void http_clients_init(struct http_clients *c)
{
    pthread_mutex_init(&c->lock, NULL);
}

void http_clients_fini(struct http_clients *c)
{
    assert(LIST_EMPTY(&c->list));
    pthread_mutex_destroy(&c->lock);
}

static void hang_up(const struct http_client *client)
{
    (void)shutdown(client->fd, SHUT_RDWR); /* libmicrohttpd sees its end */
}

static void make_room(struct http_clients *c)
{
    struct http_client *client, *oldest = NULL;
    if (c->count + FEW_CONNECTIONS <= c->most)
        return;
    LIST_FOREACH (client, &c->list, link) {
        if (client->due != HW_NEVER && client->due && (!oldest || client->since < oldest->since))
            oldest = client;
    }
    if (!oldest)
        return;
    hang_up(oldest);
    oldest->due = 0; /* it is going */
}

void http_clients_close_late(struct http_clients *c, uint64_t now)
{
    struct http_client *client;
    pthread_mutex_lock(&c->lock);
    LIST_FOREACH (client, &c->list, link) {
        if (client->due < now)
            hang_up(client);
    }
    pthread_mutex_unlock(&c->lock);
}

void http_clients_notify(struct http_clients *c, struct MHD_Connection *connection, void **context,
                         enum MHD_ConnectionNotificationCode code)
{
    struct http_client *client = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        hw_wake_soon(); /* the daemon's own thread, which nobody else starts */
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = client = info ? calloc(1, sizeof(*client)) : NULL;
        if (!client)
            return; /* it is only not watched */
        client->fd = (int)info->connect_fd;
        client->since = hw_now_ns();
        client->due = client->since + c->wait_ns;
        pthread_mutex_lock(&c->lock);
        make_room(c);
        LIST_INSERT_HEAD(&c->list, client, link);
        c->count++;
    } else if (client) {
        pthread_mutex_lock(&c->lock);
        LIST_REMOVE(client, link);
        c->count--;
        free(client);
    } else {
        return;
    }
    pthread_mutex_unlock(&c->lock);
}

static void set_due(struct http_clients *c, struct MHD_Connection *connection, bool busy, bool anew,
                    uint64_t bytes)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_client *client = info ? info->socket_context : NULL;
    if (!client)
        return;
    pthread_mutex_lock(&c->lock);
    if (anew)
        client->since = hw_now_ns();
    if (client->due)
        client->due =
            busy ? HW_NEVER : client->since + c->wait_ns + bytes * HW_SEC / CLIENT_BYTES_PER_S;
    pthread_mutex_unlock(&c->lock);
}

void http_clients_expect(struct http_clients *c, struct MHD_Connection *connection, bool anew,
                         uint64_t bytes)
{
    set_due(c, connection, false, anew, bytes);
}

void http_clients_busy(struct http_clients *c, struct MHD_Connection *connection)
{
    set_due(c, connection, true, true, 0);
}
