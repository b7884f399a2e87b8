/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A look at a semaphore: steps 1 to 4 of "Acquiring a Lock", the search for a slot that exists and is free. Windows of
 * probes for A and B of many slots at once, each window one round trip, from where the strategy begins to the end of the
 * row, and from the first slot up to there, until one has a free slot in it. A part of an acquire.
 *
 * Slots that were claimed in vain, the last sixteen of them, are passed over while any other is free, and taken in turn
 * otherwise: one whose holder was robbed of its queue, and has it by its bolt alone (bolt.h), looks free for as long as it is
 * held.
 *
 * A slot that is absent ends the row. Where that decides that there is nothing to be waited for, it is asked for once more by
 * passive declare, which tells it from one whose node is down (see core/admin/slot_count.h). */
#ifndef AL_CORE_LOCKS_SLOT_SEARCH_H
#define AL_CORE_LOCKS_SLOT_SEARCH_H

#include "core/acquire/acquire.h"

#define AL_AVOIDED_MOST 16

/* The slots that may be taken, and what is remembered of them from one acquire to the next: wrong memories cost a round trip,
 * never more. */
typedef struct al_slot_range {
  al_strategy strategy;
  int most;    /* the highest slot that may be taken */
  int known;   /* slots seen in a row, 0 if none were counted yet */
  int highest; /* the highest slot seen, until it was certain that there are fewer */
  int last;    /* the slot held last, 0 if none */
} al_slot_range;

typedef struct al_slot_search {
  al_op *op;
  const al_resource *resource; /* the semaphore */
  al_slot_range *range;
  al_search_result *view;
  al_probes probes;
  int start, first, width; /* where it began, and the window being asked for */
  bool wrapped;            /* it went past the last slot and goes on from 1 to below start */
  bool asks_first;         /* behind the window, for A[1] */

  int avoided[AL_AVOIDED_MOST], avoided_count; /* claimed in vain, the longest ago first */
  int spare;                                   /* the first in that order that is free; 0 */

  al_search_result before; /* the view, without this window */
  int sure;        /* in this window, what is absent up to this slot was told so by a passive declare */
  al_probes again; /* asks for A from this slot on by passive declare; 0: it does not */
  int again_from;
} al_slot_search;

/* Begins, or begins anew, with an empty view, which it fills in. The links needed to ask must be open. */
void al_slot_search_begin(al_slot_search *look, al_op *op, const al_resource *resource, al_slot_range *range,
                          al_search_result *view);

/* Looks to come find this slot only if all others that are free were avoided, too, and later. */
void al_slot_search_deprioritise(al_slot_search *look, int slot);

/* To be looked at in every step of the operation. Without a first slot the operation fails: AL_NOT_FOUND. */
al_search_state al_slot_search_poll(al_slot_search *look);

void al_slot_search_cancel(al_slot_search *look);
void al_slot_search_free(al_slot_search *look);

#endif
