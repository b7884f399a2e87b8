/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Counting slots ("Determining the Maximum Number of Slots"): A[1], A[2], … are asked for in windows that double. The
 * first that is absent, in order, ends the semaphore; but the count goes on until a whole window past that one is empty, so that
 * strays past a gap are seen, not only the gap.
 *
 * Where a cluster keeps its metadata in Mnesia, a slot whose node is down is returned like one that is absent; only a passive
 * declare tells them apart. So the slot that ends the row is asked for once more in that way, and what is missing below the
 * highest slot, too: what is there after all is counted, and the row goes on behind it. */
#ifndef AL_CORE_ADMIN_SLOT_COUNT_H
#define AL_CORE_ADMIN_SLOT_COUNT_H

#include "core/session/op.h"
#include "core/session/probe.h"

/* Words for a gap: the name and the slot that exists, the name and the slot that does not. */
#define AL_SLOT_COUNT_GAP                                                                                    \
  "queue \"%s-%d-A\" exists but \"%s-%d-A\" does not: repair() makes the row whole, resize(n) settles on n " \
  "slots"

typedef struct al_slot_count {
  al_probes probes;
  al_op *op;
  const char *name;
  bool with_holders; /* asks for B too */
  int beyond, least; /* goes on at least so many slots past the end, and at least to this slot */
  int first, width;  /* the last window */
  bool doubts;       /* passive declares are under way, for so many slots behind `sure` */
  int doubted;
  int sure; /* up to this slot, what is absent was told so by a passive declare */

  int count;      /* slots in a row from 1 */
  int highest;    /* the highest slot that exists; more than `count` if one is missing in the row */
  al_slot *slots; /* what was seen, from slot 1 */
  int seen, size;
} al_slot_count;

/* Asks for the first window; al_slot_count_poll() is then looked at in every step of `op`. */
void al_slot_count_begin(al_slot_count *row, al_op *op, const char *name, bool with_holders, int beyond,
                         int least);

/* True when the count is complete. False: not yet, or the operation has failed. */
bool al_slot_count_poll(al_slot_count *row);

bool al_slot_count_exists(const al_slot_count *row, int slot);
void al_slot_count_free(al_slot_count *row);

#endif
