/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The search of a lock that is one exclusive queue: a mutex, or the door of a readers–writer lock (rwlock.h). The
 * queue exists as long as somebody holds the lock.
 *
 * A search asks whether the queue exists. If waiters made the bell (bell.h: the queue whose messages, the tokens,
 * wake them), the question of an acquire that joined the line also tells the holder that somebody waits. The holder
 * then takes a token from the bell, so that the broker wakes the next waiter if the holder dies; when it acquires the
 * lock again, it first joins the line. With al_acquire_options.revoke every second question asks the holder to release.
 * While a claim of this very session is being released or undone, the search
 * waits until that is gone: by then it is nobody's any more. */
#ifndef AL_CORE_LOCKS_QUEUE_SEARCH_H
#define AL_CORE_LOCKS_QUEUE_SEARCH_H

#include "core/acquire/acquire.h"

typedef struct al_queue_search {
  char queue[AL_NAME_SIZE];
  al_probes probes;
  bool is_asked;
  bool revokes; /* the last question asked the holder to release */
} al_queue_search;

/* For the functions of an acquire's kind. `search->queue` is set. */
void al_queue_search_begin(al_queue_search *search, al_acquire *self);
al_search_state al_queue_search_poll(al_queue_search *search, al_acquire *self);

#endif
