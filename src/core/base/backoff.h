/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * How long to wait before looking again: the one place that knows. Delays double from `first` to `most`, and each is
 * drawn from its upper half by chance, so that those who met once do not meet at every look. */
#ifndef AL_CORE_BASE_BACKOFF_H
#define AL_CORE_BASE_BACKOFF_H

#include <stdint.h>

#include "amqplocks.h"

typedef struct al_backoff {
  int64_t first, most;
  int64_t next; /* 0: begin with `first` */
} al_backoff;

/* Waiting for holders to let go, and for another administrator. */
#define AL_BACKOFF_SLOT ((al_backoff){.first = 5 * AL_MILLISECOND, .most = 500 * AL_MILLISECOND})
#define AL_BACKOFF_ADMIN ((al_backoff){.first = 5 * AL_MILLISECOND, .most = 200 * AL_MILLISECOND})

/* Connecting anew while connections fail or die young. One that lives for `most` is none of those. */
#define AL_BACKOFF_RECONNECT ((al_backoff){.first = 50 * AL_MILLISECOND, .most = 5 * AL_SECOND})

/* At a queue that went. RabbitMQ 4.3 closes the whole connection of whoever consumes from a quorum queue that it is still
 * deleting: seen at 5 ms, never at 50. */
#define AL_BACKOFF_QUEUE ((al_backoff){.first = 100 * AL_MILLISECOND, .most = 1 * AL_SECOND})

/* Seeing a queue go that may not be deleted: mostly gone at the first look, and then seldom worth another. */
#define AL_BACKOFF_UNDO ((al_backoff){.first = 10 * AL_MILLISECOND, .most = 10 * AL_SECOND})

/* Readers who die tell nobody. */
#define AL_BACKOFF_READERS ((al_backoff){.first = 10 * AL_MILLISECOND, .most = 1 * AL_SECOND})

/* Woken by a token, and no slot is free yet. */
#define AL_BACKOFF_TOKEN ((al_backoff){.first = 2 * AL_MILLISECOND, .most = 100 * AL_MILLISECOND})

/* `time` after `now`; AL_NEVER is never, and so is whatever the clock will not live to see. */
int64_t al_deadline_after(int64_t now, int64_t time);

/* The next delay in nanoseconds. */
int64_t al_backoff_next(al_backoff *wait, uint64_t *random);

/* Looking once in a while, in case nobody rings: never later than `poll`, at most an eighth earlier. */
int64_t al_backoff_recheck(int64_t poll, uint64_t *random);

#endif
