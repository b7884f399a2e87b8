/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Exponential backoff with jitter: how long to wait before the next attempt. All such delays are defined in this
 * file.
 *
 * The delay doubles with each attempt, from `first` to `most`. The time to wait is then picked at random from half of
 * the delay to all of it, so that clients that collided once do not collide at every attempt. */
#ifndef AL_CORE_BASE_BACKOFF_H
#define AL_CORE_BASE_BACKOFF_H

#include <stdint.h>

#include "amqplocks.h"

typedef struct al_backoff {
  int64_t first, most;
  int64_t next; /* 0: begin with `first` */
} al_backoff;

/* AL_BACKOFF_SLOT: waiting until holders release. AL_BACKOFF_ADMIN: waiting for another administrator. */
#define AL_BACKOFF_SLOT ((al_backoff){.first = 5 * AL_MILLISECOND, .most = 500 * AL_MILLISECOND})
#define AL_BACKOFF_ADMIN ((al_backoff){.first = 5 * AL_MILLISECOND, .most = 200 * AL_MILLISECOND})

/* Reconnecting while connections fail or are soon lost. A connection that was open for `most` starts this backoff
 * anew. */
#define AL_BACKOFF_RECONNECT ((al_backoff){.first = 50 * AL_MILLISECOND, .most = 5 * AL_SECOND})

/* Beginning a patient acquire again. While the broker cannot be reached, the pauses of AL_BACKOFF_RECONNECT are added. */
#define AL_BACKOFF_PATIENT ((al_backoff){.first = 50 * AL_MILLISECOND, .most = 1 * AL_SECOND})

/* Returning to a queue that was deleted. RabbitMQ 4.3 closes the whole connection of a client that consumes from a
 * quorum queue while the broker is still deleting that queue. This was seen 5 ms after the deletion, and never after
 * 50 ms. */
#define AL_BACKOFF_QUEUE ((al_backoff){.first = 100 * AL_MILLISECOND, .most = 1 * AL_SECOND})

/* Checking whether a queue is gone that the client may not delete. It is mostly gone at the first check; if it is
 * not, more checks seldom help. */
#define AL_BACKOFF_UNDO ((al_backoff){.first = 10 * AL_MILLISECOND, .most = 10 * AL_SECOND})

/* A writer that waits for readers: it gets no notice when a reader's process dies. */
#define AL_BACKOFF_READERS ((al_backoff){.first = 10 * AL_MILLISECOND, .most = 1 * AL_SECOND})

/* A waiter that was woken by a token, and found no free slot yet. A token is a message in a doorbell queue that wakes
 * one waiter. */
#define AL_BACKOFF_TOKEN ((al_backoff){.first = 2 * AL_MILLISECOND, .most = 100 * AL_MILLISECOND})

/* A waiter that has thrown away a token after one search only: it may have been a dead client's, whose lock is free a
 * little later. */
#define AL_BACKOFF_DOUBT ((al_backoff){.first = 40 * AL_MILLISECOND, .most = 500 * AL_MILLISECOND})

/* Drawing a number from a fence whose message another client has at this moment, and making a fence that another
 * client makes. */
#define AL_BACKOFF_FENCE ((al_backoff){.first = 1 * AL_MILLISECOND, .most = 64 * AL_MILLISECOND})

/* Returns `now` + `time`, or AL_NEVER if `time` is AL_NEVER or the sum does not fit. */
int64_t al_deadline_after(int64_t now, int64_t time);

/* The earlier of two times. */
int64_t al_earlier(int64_t a, int64_t b);

/* Returns the next time to wait, in nanoseconds. */
int64_t al_backoff_next(al_backoff *wait, uint64_t *random);

/* The time until a waiter's next recheck: its own repeated search, in case no token comes. It is at most `poll`, and
 * at least seven eighths of `poll`. */
int64_t al_backoff_recheck(int64_t poll, uint64_t *random);

#endif
