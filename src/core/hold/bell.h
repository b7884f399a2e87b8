/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The doorbell, bell for short: the queue at which the waiters for a lock consume. Its messages are called tokens. A
 * token tells the waiter that receives it to search again. It grants nothing: a wrong token costs one search, never
 * more. To ring is to publish a token.
 *
 * A semaphore N has the bell N-bell. An administrator makes it, with about as many tokens as there are slots. A mutex
 * and a readers–writer lock have the bells N-mutexbell and N-rwbell. Their waiters make them. Such a bell is empty at
 * first, and a holder rings when it leaves.
 *
 * An al_bell is one caller's place at the bell, from the beginning of its acquire to the end of its lock. It is a
 * consumer (consumer.c has its states): the broker serves waiters by priority, in their order. A holder that got its
 * slot with a token keeps the token unacknowledged: if its process dies, or when it leaves, the token goes back to the
 * bell, and the broker gives it to the next waiter. A holder without a token cancels its consumer, because it must not
 * take a token that could wake a waiter. It rings when it leaves.
 *
 * There is one exception. At a bell that waiters make, a token exists only when a holder rings. A holder without one
 * that is told that others wait (AL_TYPE_WAITING) would wake nobody if its process died. So it subscribes before all
 * waiters, rings, and receives that token itself (KEEPS).
 *
 * A session that retains its lock (holder_queue.h) gives its token back at once, or rings (RETAINS): the waiter that is
 * woken asks for the lock, and that ends the retention.
 *
 * A bell that cancels its consumers, or closes their channel, may have been replaced by another bell: each waiter
 * then subscribes again. A bell that refuses the consume counts as missing. A token that led to no slot is thrown
 * away. Its waiter then waits on with its priority raised by one, so that it does not fall behind waiters that came
 * later.
 *
 * What a place does when its consumer tells it something (`told`, consumer.h):
 *
 *   PREPARED     the bell exists by now: notes whether anybody consumed from it before (`is_first`)
 *   SUBSCRIBED   if its caller got the slot meanwhile (SETTLES): asks whether a token lies ready. A waiter at a bell
 *                that waiters make is stepped (its step function is called): it searches once more, as no holder could
 *                ring before the bell existed
 *   RECEIVED     the waiter is stepped: it searches with the token
 *   EMPTY        no token lay ready. If it KEEPS, it rings, and receives that token itself; otherwise it cancels its
 *                consumer
 *   ENDED        if it KEEPS: subscribes again, before all waiters
 *   CANCELLED    the waiter is stepped: it searches, and subscribes again
 *   CLOSED       notes whether the bell is missing, and whether the waiters are owed a token or a ring; the waiter is
 *                stepped
 *   DOWN         owes the waiters nothing if a token was in hand, as the broker requeues it
 *
 * A place that was left is freed with the last of these, whatever it is. */
#ifndef AL_CORE_HOLD_BELL_H
#define AL_CORE_HOLD_BELL_H

#include "amqplocks.h"
#include "core/queue/consumer.h"

typedef enum al_bell_stage {
  AL_BELL_WAITS,
  AL_BELL_SETTLES, /* its caller holds a slot: it consumes only until it is clear whether a token lay ready */
  AL_BELL_KEEPS,   /* the same, and others wait: it takes a token, before them, or rings for one */
  AL_BELL_RETAINS, /* its caller retains the lock: the token is the waiters', who must ask for the lock */
  AL_BELL_LEAVES   /* it is freed as soon as nothing can arrive any more */
} al_bell_stage;

typedef enum al_bell_found {
  AL_BELL_THERE,   /* as far as is known */
  AL_BELL_EARLY,   /* the same; its caller subscribed before it had seen a slot */
  AL_BELL_TOO_NEW, /* it was EARLY, and no bell has this name: an administrator may have made it since */
  AL_BELL_MISSING  /* no bell has this name, or we may not consume from it, or it does not answer */
} al_bell_found;

typedef struct al_bell {
  al_consumer consumer;
  al_op *op; /* WAITS: stepped when a token came or the bell went */
  char queue[AL_NAME_SIZE];
  al_bell_stage stage;
  al_bell_found found;
  bool makes; /* waiters declare this bell */
  /* known from `makes` bells only: nobody consumed when we subscribed, so no waiter came before us */
  bool is_first;
  bool rings; /* as far as is known there is a bell: when we leave, a token must go back to it, or we ring */
} al_bell;

/* A place at the bell of this queue. It does not consume yet. `makes`: it declares the queue when it subscribes.
 * NULL: no memory. */
al_bell *al_bell_new(al_op *op, const char *queue, int priority, bool makes);

/* Subscribes, if the place is out. The holder must be open. If no channel is free, the place stays out. `is_early`: its
 * caller has not seen a slot yet. */
void al_bell_arrive(al_bell *bell, bool is_early);

bool al_bell_is_out(const al_bell *bell);
bool al_bell_is_arriving(const al_bell *bell); /* the broker has not answered the consume yet */
bool al_bell_has_token(const al_bell *bell);
bool al_bell_is_first(const al_bell *bell); /* first in line; known only of a bell that waiters make */

/* Leaves, if the broker has not answered the consume yet. The bell then counts as missing. */
void al_bell_give_up(al_bell *bell);

/* The token led to no slot for too long, so there is one token too many: throws it away. */
void al_bell_waste(al_bell *bell);

/* True once, if the bell was found to be missing since the last call. */
bool al_bell_take_missing(al_bell *bell);

/* The caller holds a slot, and waits no longer. `was_quick`: the caller got the slot so quickly that a token which
 * lay ready may still be on its way to it. If that token were left in the queue, there would be one too many as soon
 * as the caller rings. `may_exist`: false if any acquire found the bell missing lately; then this caller does not
 * subscribe to keep a token. */
void al_bell_settle(al_bell *bell, bool was_quick, bool may_exist);

/* The caller holds what others wait for, at a bell that they made. It must have a token, which the broker gives to a
 * waiter if the caller dies. */
void al_bell_want_token(al_bell *bell);

/* The caller has released its lock, and retains it: wakes the next waiter, which must ask for it. Once; NULL is fine. */
void al_bell_retain(al_bell *bell);

/* Ends the place; NULL is fine. `freed`: a slot came free, and a waiter must learn of it by a token or a ring. */
void al_bell_leave(al_bell *bell, bool freed);

#endif
