/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The persistent semaphore as those who lock see it: the specification's "Lock Clients", "Acquiring a Lock", in its seven
 * steps. Steps 1 to 4, the search for a slot that exists and is free, are a look (look.h), steps 5 to 7 a claim. */
#ifndef AL_CORE_LOCKS_SEMAPHORE_H
#define AL_CORE_LOCKS_SEMAPHORE_H

#include "core/acquire/acquire.h"

struct al_semaphore {
  al_resource resource; /* first */
  al_strategy strategy;
  int most; /* the highest slot that may be taken */

  /* Remembered from one acquire to the next; wrong memories cost a round trip, never more. */
  int known;   /* slots seen in a row, 0 if none were counted yet */
  int highest; /* the highest slot seen, until it was certain that there are fewer */
  int last;    /* the slot held last, 0 if none */
};

#endif
