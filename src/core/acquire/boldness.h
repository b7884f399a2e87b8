/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Boldness: whether an acquire may claim a lock at once, without a search before. This file only decides; it sends
 * nothing.
 *
 * Only mutexes and writers may do so (the function `skip` of an acquire's kind). The acquires of readers count, too: a
 * reader that entered has found the door open (rwlock.h), which is what a writer claims.
 *
 * A search costs a round trip and a claim costs another one. The search protects nobody, because the broker decides
 * at the claim. It spares a channel and two lines in the broker's log where the lock is held. So it is left out for an
 * object (resource.h) whose last claims were not contested.
 *
 *   event                                                   effect
 *   ----------------------------------------------------    ------------------------------------------------------
 *   a win: the first search found the lock free, and the    after k wins in a row the next acquire is bold; after
 *   first claim got it, or a bold claim did                 each 1,024 wins in a row k is halved, to 3 at least
 *   a contest: the lock was held, a claim was lost,         the wins are counted anew
 *   others are known to wait, or the acquire is fair
 *   a bold claim is lost                                    the wins are counted anew; k is doubled, to 1,024 at most
 *
 * k begins at 3. Between two lost bold claims there are k wins at least. So at most one claim in k is lost by boldness,
 * and one in some hundreds where another client comes between all the time. */
#ifndef AL_CORE_ACQUIRE_BOLDNESS_H
#define AL_CORE_ACQUIRE_BOLDNESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct al_boldness {
  uint64_t wins;   /* in a row */
  uint64_t needed; /* k */
} al_boldness;

void al_boldness_init(al_boldness *boldness);

/* True if the next acquire may claim without a search. */
bool al_boldness_is_enough(const al_boldness *boldness);

void al_boldness_note_win(al_boldness *boldness);
void al_boldness_note_contest(al_boldness *boldness);
void al_boldness_note_loss(al_boldness *boldness); /* a bold claim is lost */

#endif
