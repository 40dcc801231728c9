/* venus/server/slice/schedule.h - which session submits to a GPU next: time slices by weight.
 *
 * A GPU is free as long as at most one session keeps it busy: everybody submits at will.  Once two
 * do so, one at a time may submit, for a slice.  The time from its first submission until its work
 * has drained is its tenant's, by weight, and its own.  The least served of those that wait is
 * next: when the holder has nothing more to submit, so that the device does not run dry between
 * two, and at the latest when the holder is a slice ahead of it.  One that is itself a slice ahead
 * of the holder waits until the holder's work has drained.  What the last holder still has under
 * way is charged to that one: its successor is charged from there on.  So nobody's answer is waited
 * for, and time is measured as a device needs it that runs one batch after the other.
 *
 * A pure state machine: time is given, decisions go to a board and to `go`.
 *
 * Trust: messages are a session's, which is not trusted: they change what is known of that session
 * alone.  Threads: one at a time; sessions read the board, with acquire, at any time.
 * Lifetime: init; no fini.  Members and tenants are the caller's. */
#ifndef HAWSER_VENUS_SERVER_SLICE_SCHEDULE_H
#define HAWSER_VENUS_SERVER_SLICE_SCHEDULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/clock.h"

enum {
    VNS_SLICE_GPUS = 16,         /* of one server; work on further ones is not scheduled */
    VNS_SLICE_WEIGHT_MAX = 1000, /* beyond it the light one's wait is seconds */
};

/* How often a session tells how busy it kept a free GPU. */
#define VNS_SLICE_TELL_NS (20 * HW_MS)

/* Who may submit to each GPU: a session's id, or one of these. */
#define VNS_SLICE_FREE UINT32_C(0)
#define VNS_SLICE_NOBODY UINT32_MAX

struct vns_slice_board {
    _Atomic uint32_t allowed[VNS_SLICE_GPUS];
};

enum vns_slice_op {
    VNS_SLICE_USED,    /* a free GPU: how busy it was kept */
    VNS_SLICE_WANT,    /* there is work to submit, and somebody else is allowed to */
    VNS_SLICE_BUSY,    /* the holder, whose work had drained, submits again */
    VNS_SLICE_RESTS,   /* nothing more is to be submitted for now, but work is under way */
    VNS_SLICE_DRAINED, /* nothing is under way any more */
    VNS_SLICE_OPS
};

/* From a session to the server; a plain structure, since both are the same program. */
struct vns_slice_message {
    uint32_t op, gpu;
    /* Of VNS_SLICE_USED: how long, how much of it with work under way, in how many stretches. */
    uint64_t span_ns, busy_ns;
    uint64_t stretches;
};

/* Whose token, or whose user, a session came with. */
struct vns_slice_tenant {
    uint32_t weight;          /* 1 to VNS_SLICE_WEIGHT_MAX */
    _Atomic uint64_t used_ns; /* GPU time in all; a counter with one writer, the schedule */
    /* The schedule's. */
    uint64_t round[VNS_SLICE_GPUS];
    uint64_t served_ns[VNS_SLICE_GPUS]; /* by weight, in that round */
};

/* A session's use of one GPU. */
struct vns_slice_use {
    bool waiting;
    bool undrained; /* was allowed, and has not drained since */
    bool resting;   /* had nothing more to submit when it was last the holder */
    bool lasting;   /* its stretches of work are long */
    uint64_t saturates_until_ns;
    uint64_t grant;   /* when it was allowed: a number */
    uint64_t left_ns; /* when it no longer was */
    uint64_t round, served_ns;
};

struct vns_slice_member {
    uint32_t id; /* neither FREE nor NOBODY */
    struct vns_slice_tenant *tenant;
    struct vns_slice_member *next;
    struct vns_slice_use uses[VNS_SLICE_GPUS];
};

struct vns_slice_gpu {
    bool sliced; /* not free */
    struct vns_slice_member *holder;
    uint64_t round;                   /* since it was free: what was served before does not count */
    uint64_t grants;                  /* ever */
    uint64_t window_grants;           /* of them, before the window */
    uint64_t charged_ns;              /* up to when time is charged */
    uint64_t window_ns, contended_ns; /* since when, and how long of that two have wanted it */
};

struct vns_schedule {
    uint64_t slice_ns;
    struct vns_slice_board *board;
    struct vns_slice_member *members;
    struct vns_slice_gpu gpus[VNS_SLICE_GPUS];
    void (*go)(void *user, struct vns_slice_member *member); /* it need not wait any longer */
    void *user;
};

void vns_schedule_init(struct vns_schedule *schedule, uint64_t slice_ns,
                       struct vns_slice_board *board,
                       void (*go)(void *user, struct vns_slice_member *member), void *user);

/* The member's id and tenant are set, the rest is zero. */
void vns_schedule_join(struct vns_schedule *schedule, struct vns_slice_member *member);
void vns_schedule_leave(struct vns_schedule *schedule, struct vns_slice_member *member,
                        uint64_t now_ns);

/* 0, or -EPROTO for what is no message. */
int vns_schedule_handle(struct vns_schedule *schedule, struct vns_slice_member *member,
                        const struct vns_slice_message *message, uint64_t now_ns) MUST_CHECK;

/* Decides what time alone decides.  In how many ns to look again; HW_NEVER. */
uint64_t vns_schedule_look(struct vns_schedule *schedule, uint64_t now_ns);

#endif
