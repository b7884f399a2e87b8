/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Counting the slots of a semaphore (docs/specification.md, 2.2). Slot i exists if its queue A[i], named N-i-A, exists.
 * The slots that exist from 1 on without a gap are the row: its length is the count.
 *
 * The queues A[1], A[2], … are asked for in windows of slots; each window is twice as wide as the one before, up
 * to a limit. The first absent slot ends the row. The count continues until a whole window behind that slot is
 * empty. So it also finds strays, which are slots that exist behind a gap. */
#ifndef AL_CORE_ADMIN_SLOT_COUNT_H
#define AL_CORE_ADMIN_SLOT_COUNT_H

#include "core/session/op.h"
#include "core/session/probe.h"

/* Message about a gap. Arguments: the name and the slot that exists, the name and the slot that does not. */
#define AL_SLOT_COUNT_GAP                                                                                    \
  "queue \"%s-%d-A\" exists but \"%s-%d-A\" does not: repair() makes the row whole, resize(n) settles on n " \
  "slots"

typedef struct al_slot_count {
  al_probes probes;
  al_op *op;
  const char *name;
  bool with_holders; /* also asks for B[i], the queue of the slot's holder */
  int beyond, least; /* count at least so many slots behind the row, and at least to this slot */
  int first, width;  /* the last window */

  int count;      /* the length of the row */
  int highest;    /* the highest slot that exists; more than `count` if there is a gap */
  al_slot *slots; /* the answers, from slot 1 to `seen`; room for `size` */
  int seen, size;
} al_slot_count;

/* `name` must stay where it is. */
void al_slot_count_begin(al_slot_count *row, al_op *op, const char *name, bool with_holders, int beyond,
                         int least);

bool al_slot_count_poll(al_slot_count *row);

bool al_slot_count_exists(const al_slot_count *row, int slot);
void al_slot_count_free(al_slot_count *row);

#endif
