/* serve/http/clients.h - connections of HTTP clients: how long the front waits for each.
 *
 * A client that takes too long to send a request, or to read an answer that is complete, is hung up
 * on.  So is, when few connections are left, the one that has been waited for the longest: nobody
 * takes the connections of others by sending a byte now and then.
 *
 * Threads: any; no lock is taken under its own.  Lifetime: init/fini. */
#ifndef HAWSER_SERVE_HTTP_CLIENTS_H
#define HAWSER_SERVE_HTTP_CLIENTS_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct http_client {
    LIST_ENTRY(http_client) link;
    int fd;
    uint64_t since; /* it is waited for: what it sends, or that it reads an answer */
    uint64_t due;   /* HW_NEVER: it waits for us; 0: it is going */
};

struct http_clients {
    pthread_mutex_t lock; /* of all below */
    LIST_HEAD(, http_client) list;
    unsigned count;
    unsigned most;    /* connections that there may be */
    uint64_t wait_ns; /* for a request to come, or an answer to be read */
};

void http_clients_init(struct http_clients *c);
void http_clients_fini(struct http_clients *c);

/* For libmicrohttpd, once `most` and `wait_ns` are set: a connection begins or ends. */
void http_clients_notify(struct http_clients *c, struct MHD_Connection *connection, void **context,
                         enum MHD_ConnectionNotificationCode code);
/* From now on (anew) or from before the client is waited for; it has moved so many bytes. */
void http_clients_expect(struct http_clients *c, struct MHD_Connection *connection, bool anew,
                         uint64_t bytes);
/* The client waits for us. */
void http_clients_busy(struct http_clients *c, struct MHD_Connection *connection);
void http_clients_close_late(struct http_clients *c, uint64_t now);

#endif
