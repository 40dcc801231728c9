/* Messages of the validation layer; see messages.h. */
#include "venus/server/session/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <vulkan/vulkan_core.h>

#include "base/log.h"
#include "venus/common/protocol.h"

struct vns_message {
    struct vns_message *next;
    struct wire_enc payload;
};

void vns_messages_init(struct vns_messages *m)
{
    *m = (struct vns_messages){0};
    pthread_mutex_init(&m->lock, NULL);
}

static struct vns_message *make(uint32_t severity, uint32_t types, int32_t number, const char *name,
                                const char *text)
{
    struct vns_message *message = calloc(1, sizeof(*message));
    char cut[VNS_MESSAGE_TEXT_MAX];
    if (!message)
        return NULL;
    wire_enc_init(&message->payload, 4 * VNS_MESSAGE_TEXT_MAX);
    wire_put_u32(&message->payload, severity);
    wire_put_u32(&message->payload, types);
    wire_put_i32(&message->payload, number);
    snprintf(cut, sizeof(cut), "%s", name);
    wire_put_str(&message->payload, cut);
    snprintf(cut, sizeof(cut), "%s", text);
    wire_put_str(&message->payload, cut);
    return message;
}

static void discard(struct vns_message *message)
{
    if (message)
        wire_enc_fini(&message->payload);
    free(message);
}

void vns_messages_add(void *messages, uint32_t severity, uint32_t types, int32_t number,
                      const char *name, const char *text)
{
    struct vns_messages *m = messages;
    if (m->muted)
        return;
    if (severity >= VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT)
        hw_error(HW_CAT_VULKAN, "validation: %s", text);
    else
        hw_warn(HW_CAT_VULKAN, "validation: %s", text);
    struct vns_message *message = make(severity, types, number, name, text);
    pthread_mutex_lock(&m->lock);
    if (message && !wire_enc_error(&message->payload) && m->count < VNS_MESSAGES_MAX) {
        *(m->last ? &m->last->next : &m->first) = message;
        m->last = message;
        m->count++;
        message = NULL;
    }
    pthread_mutex_unlock(&m->lock);
    discard(message);
}

static struct vns_message *take(struct vns_messages *m)
{
    pthread_mutex_lock(&m->lock);
    struct vns_message *message = m->first;
    if (message) {
        m->first = message->next;
        if (!m->first)
            m->last = NULL;
        m->count--;
    }
    pthread_mutex_unlock(&m->lock);
    return message;
}

void vns_messages_push(struct vns_messages *m, struct vns_channel *channel)
{
    struct vns_message *message;
    while ((message = take(m)) != NULL) {
        (void)vns_channel_send(channel, VN_PUSH_MESSAGE, wire_enc_data(&message->payload),
                               wire_enc_len(&message->payload));
        discard(message);
    }
}
