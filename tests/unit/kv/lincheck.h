/* tests/unit/kv/lincheck.h - is a history of one key linearizable?
 *
 * Each operation has the time it was asked and the time it was answered.  The history is
 * linearizable when every operation can be given one moment between the two so that, done at these
 * moments one after the other, all results are right.  An operation whose end is unknown (deadline,
 * lost peer) may have happened at any moment after it was asked, or never.  A reset is the owner's
 * restart: the key is gone at exactly that moment. */
#ifndef HAWSER_TESTS_KV_LINCHECK_H
#define HAWSER_TESTS_KV_LINCHECK_H

#include <stdbool.h>
#include <stdint.h>

enum { LIN_OPS_MAX = 64 }; /* a bit each */

#define LIN_NEVER UINT64_MAX
#define LIN_ABSENT UINT64_C(0) /* no such key; values are not 0 */

enum lin_kind { LIN_READ, LIN_WRITE, LIN_REMOVE, LIN_RESET };

struct lin_op {
    enum lin_kind kind;
    uint64_t asked, answered; /* answered LIN_NEVER: it may or may not have happened */
    uint64_t value;           /* read or written; LIN_REMOVE: LIN_ABSENT for a miss, else any */
};

/* Sorts the operations.  The search is never given up: it ends within memory or the process does.
 */
bool lin_check(struct lin_op *ops, uint32_t count);

#endif
