/* venus/server/session/messages.h - what the validation layer said, on its way to log and client.
 *
 * Messages come on any thread, from inside driver calls that may hold the channel's lock; so they
 * are kept, and pushed later.
 *
 * Trust: the layer's.  Threads: any.  Lifetime: init; ends with the process.
 * Limits: VN_MESSAGES_MAX wait; later ones are logged and not pushed. */
#ifndef HAWSER_VENUS_SERVER_SESSION_MESSAGES_H
#define HAWSER_VENUS_SERVER_SESSION_MESSAGES_H

#include "venus/server/session/channel.h"
#include "wire/enc.h"

enum {
    VN_MESSAGES_MAX = 256,      /* a submission gives a handful; a flood tells nothing new */
    VN_MESSAGE_TEXT_MAX = 4000, /* below WIRE_STR_MAX; the longest seen have 1,500 */
};

struct vn_message;

struct vn_messages {
    pthread_mutex_t lock;
    struct vn_message *first, *last;
    uint32_t count;
    bool muted; /* what we do for ourselves is not the program's */
};

void vn_messages_init(struct vn_messages *messages);

/* Logs a message and keeps it; for vn_instance_params. */
void vn_messages_add(void *messages, uint32_t severity, uint32_t types, int32_t number,
                     const char *name, const char *text);

/* Pushes what is kept.  The caller holds neither turn nor lock. */
void vn_messages_push(struct vn_messages *messages, struct vn_channel *channel);

#endif
