/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A gate: one exclusive queue that is there as long as somebody holds it, a mutex or the door of a readers–writer lock.
 *
 * A look asks whether the queue is there; by those who have made the bell, and wait, with the word that they do. Whoever
 * holds the gate takes a token from their bell then, so that its death wakes the next; and lines up with them when it comes
 * again. While a claim of this very session is on its way out, a look waits for that: it is nobody's any more. */
#ifndef AL_CORE_LOCKS_QUEUE_SEARCH_H
#define AL_CORE_LOCKS_QUEUE_SEARCH_H

#include "core/acquire/acquire.h"

typedef struct al_queue_search {
  char queue[AL_NAME_SIZE];
  al_probes probes;
  bool is_asked;
} al_queue_search;

/* For an acquire's own functions; gate->queue is set. */
void al_queue_search_begin(al_queue_search *search, al_acquire *self);
al_search_state al_queue_search_poll(al_queue_search *search, al_acquire *self);

#endif
