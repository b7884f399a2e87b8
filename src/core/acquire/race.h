/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The races that an acquire loses: it found a lock free, claimed it, and another client was faster, or the queue was
 * deleted under the claim. This file counts them and decides about the retry; it sends nothing.
 *
 *   - After a lost race the acquire pauses for a random time of up to 10 ms (skew), so that the same clients do not
 *     meet again at once. Then it searches again.
 *   - After `max_attempts` lost races it goes on as if nothing were free. It ends with the code `contended` if it does
 *     not wait. If it waits, the count begins anew with the next search after the wait.
 *   - A claim that failed because its bolt is denied (bolt.h) has lost no race: the denial is known from then on, and
 *     the next claim does without the bolt. Such a failure is not counted. This is granted once for each acquire,
 *     because what the claim has learned may be forgotten. */
#ifndef AL_CORE_ACQUIRE_RACE_H
#define AL_CORE_ACQUIRE_RACE_H

#include "amqplocks.h"
#include "core/hold/holder_queue.h"

typedef struct al_race {
  int most;         /* max_attempts */
  int lost;         /* since the last wait */
  bool was_excused; /* one failure was not counted */
  char why[160];    /* the reason of the last failure */
} al_race;

void al_race_init(al_race *race, int max_attempts);

/* Counts a claim that is not HELD any more. */
void al_race_note(al_race *race, const al_exclusive *own);

/* True after max_attempts lost races: do not claim again before a wait. */
bool al_race_is_over(const al_race *race);

/* Returns how long to pause before the next search, in nanoseconds. */
int64_t al_race_skew(uint64_t *random);

/* After a wait the count begins anew. */
void al_race_reset(al_race *race);

#endif
