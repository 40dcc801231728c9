/* venus/client/device/kept.h - connections that outlive their instance for a moment.
 *
 * Programs and the libraries they load look for a GPU with an instance of their own, destroy it and
 * create the next.  A session's process loads the server's driver anew, which takes tens of
 * milliseconds.  So the connection of a destroyed instance is kept for a second when no object was
 * ever made through it: its session is then as OPEN left it.  An instance that asks the same server
 * the same, with the same token and VENUS_ variables, takes it over.
 *
 * Trust: the program's own; the session has served no other program.
 * Threads: any.  In a child after fork nothing is kept: the connections are the parent's.
 * Lifetime: static; a kept connection says goodbye when its second is over or the process ends. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_KEPT_H
#define HAWSER_VENUS_CLIENT_DEVICE_KEPT_H

#include <stdbool.h>

#include "venus/client/device/instance.h"

/* Takes the server from an instance that ends: keeps its connection, or closes it. */
void vnc_kept_put(struct vnc_server *server);

/* Completes *server, which has its address and what it asks, with a kept one of the same; or false.
 */
bool vnc_kept_take(struct vnc_server *server);

#endif
