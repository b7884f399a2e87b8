/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The search for a slot of a semaphore that exists and is free, and its claim: docs/specification.md, 2.3. Slot i
 * exists if the queue A[i] (N-i-A) exists; it is held if the queue B[i] (N-i-B) exists. The slots in a row from 1 are
 * the semaphore: the first one that is absent ends the row.
 *
 * The search asks for A and B of many slots at once. Such a batch is called a window, and takes one round trip. The
 * windows go from where the strategy begins to the end of the row, and then from the first slot up to there, until
 * one of them has a free slot. It is a part of an acquire.
 *
 * A slot that was claimed in vain is taken only if no other slot is free; among these, the one claimed longest ago
 * first. The last sixteen of them are remembered. The reason: a slot whose holder was robbed of its queue, and holds
 * it by its bolt alone (bolt.h), looks free for as long as it is held. */
#ifndef AL_CORE_LOCKS_SLOT_SEARCH_H
#define AL_CORE_LOCKS_SLOT_SEARCH_H

#include "core/acquire/acquire.h"

#define AL_AVOIDED_MOST 16

/* The slots that a semaphore object may take. Its memory (memory.h) has the rest. */
typedef struct al_slot_range {
  al_strategy strategy;
  int most; /* the highest slot that may be taken */
} al_slot_range;

typedef struct al_slot_search {
  al_op *op;
  const al_resource *resource; /* the semaphore */
  al_slot_range *range;
  al_search_result *view;
  al_probes probes;
  int start, first, width; /* the first slot of the search; the window under way */
  int recalled;            /* taken off the session's list for this acquire (memory.h); 0 */
  bool wrapped;            /* it went past the last slot, and goes on from 1 to below `start` */
  bool asks_first;         /* asks for A[1], too, behind the window */
  bool is_narrow;          /* the window under way does not show what lies behind it: no row ends there */
  bool picks_anywhere; /* should begin anywhere, and knows of no slots yet: picks anywhere in each window */

  int avoided[AL_AVOIDED_MOST], avoided_count; /* claimed in vain, the longest ago first */
  int spare;                                   /* the first slot of `avoided` that is free; 0 */

  al_search_result before; /* the view without this window */
} al_slot_search;

/* Begins, or begins again. The view is empty; the search fills it in. The links needed to ask must be open. */
void al_slot_search_begin(al_slot_search *search, al_op *op, const al_resource *resource,
                          al_slot_range *range, al_search_result *view);

/* True if this session does not hold, claim or undo the slot that was found. */
bool al_slot_search_may_claim(const al_slot_search *search);

/* Begins the claim of the slot that was found (al_exclusive_begin). An administrator may have resized the semaphore
 * since the search: so the claim asks whether the slot still exists, behind its own declare. */
al_exclusive *al_slot_search_claim(const al_slot_search *search);

/* This session holds the slot that was found. */
void al_slot_search_note_won(const al_slot_search *search);

/* Deprioritises this slot: searches pick it only if every other free slot was deprioritised more recently. */
void al_slot_search_deprioritise(al_slot_search *search, int slot);

/* If the first slot does not exist, the operation fails with AL_NOT_FOUND. */
al_search_state al_slot_search_poll(al_slot_search *search);

void al_slot_search_cancel(al_slot_search *search);
void al_slot_search_free(al_slot_search *search);

#endif
