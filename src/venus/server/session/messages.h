/* venus/server/session/messages.h - what the validation layer said, on its way to log and client.
 *
 * Messages come on any thread, from inside driver calls that may hold the channel's lock; so they
 * are kept, and pushed later.
 *
 * Trust: the layer's.  Threads: any.  Lifetime: init; ends with the process.
 * Limits: VNS_MESSAGES_MAX wait; later ones are logged and not pushed. */
#ifndef HAWSER_VENUS_SERVER_SESSION_MESSAGES_H
#define HAWSER_VENUS_SERVER_SESSION_MESSAGES_H

#include "venus/server/session/channel.h"
#include "wire/enc.h"

enum {
    VNS_MESSAGES_MAX = 256,      /* a submission gives a handful; a flood tells nothing new */
    VNS_MESSAGE_TEXT_MAX = 4000, /* below WIRE_STR_MAX; the longest seen have 1,500 */
};

struct vns_message;

struct vns_messages {
    pthread_mutex_t lock;
    struct vns_message *first, *last;
    uint32_t count;
    bool muted; /* what we do for ourselves is not the program's */
};

void vns_messages_init(struct vns_messages *messages);

/* Logs a message and keeps it; for vns_instance_params. */
void vns_messages_add(void *messages, uint32_t severity, uint32_t types, int32_t number,
                      const char *name, const char *text);

/* Pushes what is kept.  The caller holds neither turn nor lock. */
void vns_messages_push(struct vns_messages *messages, struct vns_channel *channel);

#endif
