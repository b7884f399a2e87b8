/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The persistent semaphore as those who lock see it: the specification's "Lock Clients", "Acquiring a Lock". */
#ifndef AL_CORE_SEMAPHORE_H
#define AL_CORE_SEMAPHORE_H

#include "amqplocks.h"

struct al_semaphore {
  int refs; /* the owner outside, and acquires under way */
  al_session *session;
  char name[AL_NAME_SIZE];
  al_semaphore_options options;

  /* Remembered from one acquire to the next; wrong memories cost a round trip, never more. */
  int known;             /* slots seen in a row, 0 if none were counted yet */
  int last;              /* the slot held last, 0 if none */
  int64_t squat_checked; /* when squatters were last looked for */
  int64_t bell_missed;   /* when there was no doorbell, or none to be listened to */
};

#endif
