/* llm/tp/exchange.h - private to src/llm: the shared memory of tensor-parallel workers.
 *
 *   head      ticket of the last command, meetings, whether a rank has failed
 *   places    a rank each: what it tells the others
 *   command   rank 0 writes
 *   rooms     two, used in turn: each rank writes its share and reads the others'
 *
 * Ranks meet: each waits until all have come.  A rank fills its part of a room before a meeting and
 * reads the room after it.  It writes the same room again only after the next meeting but one, when
 * the others have read it.  Waiting is base/wait.h's.
 *
 * Trust: the ranks are one program of one user.  Lengths are checked where they are read.
 * Threads: one in each process.  Lifetime: create or attach, then destroy. */
#ifndef HAWSER_LLM_TP_EXCHANGE_H
#define HAWSER_LLM_TP_EXCHANGE_H

#include "base/attr.h"
#include "llm/model/why.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LLM_TP_ROOM_BYTES = 4 << 20,      /* a row of any model; stays in a cache of some levels */
    LLM_TP_COMMAND_BYTES = 256 << 20, /* 64 Mi page ids: addresses, memory is used as needed */
};

/* What a rank tells; one writer. */
struct llm_tp_place {
    uint64_t slab_bytes;       /* of its KV memory */
    _Atomic uint32_t meetings; /* that it has come to; relaxed: only rank 0's message needs it */
    int32_t status;            /* of its failure, with text */
    char text[LLM_WHY_CHARS];
};

struct llm_tp_exchange;

/* Time in the memory so far. */
struct llm_tp_exchange_stats {
    uint64_t meetings;
    uint64_t wait_ns; /* for other ranks */
};

/* fd is that to pass on; owned.  threads: that all ranks run together.  0 or a negative errno. */
int llm_tp_exchange_create(uint32_t ranks, uint32_t threads,
                           struct llm_tp_exchange **out) MUST_CHECK;
int llm_tp_exchange_fd(const struct llm_tp_exchange *x);
/* fd stays the caller's.  0, -EPROTO, -EINVAL (rank), or a negative errno. */
int llm_tp_exchange_attach(int fd, uint32_t rank, struct llm_tp_exchange **out) MUST_CHECK;
void llm_tp_exchange_destroy(struct llm_tp_exchange *x);

uint32_t llm_tp_exchange_ranks(const struct llm_tp_exchange *x);
struct llm_tp_place *llm_tp_exchange_place(struct llm_tp_exchange *x, uint32_t rank);
/* LLM_TP_COMMAND_BYTES of it. */
void *llm_tp_exchange_command(struct llm_tp_exchange *x);
/* That of the next meeting; it stays readable until the next meeting but one. */
void *llm_tp_exchange_room(struct llm_tp_exchange *x);
void llm_tp_exchange_stats(const struct llm_tp_exchange *x, struct llm_tp_exchange_stats *out);

/* Called from time to time while rank 0 waits: a rank that is gone; 0: none. */
void llm_tp_exchange_watch(struct llm_tp_exchange *x, uint32_t (*find_dead)(void *user),
                           void *user);
/* Rank 0 waits no longer for one meeting; 0, as at first: for ever. */
void llm_tp_exchange_limit(struct llm_tp_exchange *x, uint64_t limit_ns);
/* The rank that ended rank 0's wait, because it is gone or late; 0: none.  The others end soon
 * after, and are not to blame. */
uint32_t llm_tp_exchange_missed(const struct llm_tp_exchange *x, bool *is_late_out);

/* Waits until all ranks have met.  0, or -EOWNERDEAD once a rank has failed or is late. */
int llm_tp_meet(struct llm_tp_exchange *x) MUST_CHECK;
/* Rank 0: the command is written. */
void llm_tp_post(struct llm_tp_exchange *x);
/* Others: waits for the next command.  0 or -EOWNERDEAD. */
int llm_tp_next(struct llm_tp_exchange *x) MUST_CHECK;
/* This rank cannot go on, or rank 0 knows of another: every wait ends. */
void llm_tp_break(struct llm_tp_exchange *x);

#endif
