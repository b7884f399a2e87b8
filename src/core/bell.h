/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The doorbell: N-bell, a queue of tokens, about as many as there are slots. It wakes, and never decides who holds: a
 * token is a reason to look, and a wrong one costs a look, never more. An administrator makes it; or, where there is none,
 * whoever waits (N-mutexbell, N-rwbell): then it is empty at first, and whoever leaves rings.
 *
 * An al_bell is one caller at it, from its acquire to the end of its lock: a consumer with room for one message, so that
 * the broker serves those who wait in their order, by priority. Whoever holds a slot with a token keeps the token
 * unacknowledged: should its process die, the broker gives it to the next. Whoever holds one without stops consuming,
 * lest it take a token that could wake somebody, and rings when it is done.
 *
 *   state       what happens                                      next
 *   --------    ----------------------------------------------    ------------------------------------------------
 *   OUT         arrive                                            ARRIVING
 *   ARRIVING    consume-ok                                        WAITING
 *   WAITING     a token                                           RUNG
 *   RUNG        waste: cancel, ack, consume once more             ARRIVING, its priority raised by one
 *   any         the broker closes the channel, or cancels         OUT      (refusing to be consumed: there is no bell)
 *   WAITING     stay, leave: cancel                               QUITTING
 *   RUNG        leave: cancel, and nack what it has               OUT, the channel back in the pool
 *   QUITTING    a token that was on its way: nack                 QUITTING
 *               cancel-ok                                         OUT, the channel back in the pool
 *
 * basic.cancel is never written before consume-ok was read, which RabbitMQ 3.10 answers by closing the connection: who
 * gives up earlier closes the channel. */
#ifndef AL_CORE_BELL_H
#define AL_CORE_BELL_H

#include "amqplocks.h"
#include "core/channel.h"

typedef struct al_bell {
  al_session *session;
  al_op *op; /* stepped when a token came or the bell went; NULL: nobody waits */
  char queue[AL_NAME_SIZE];
  enum { AL_BELL_OUT, AL_BELL_ARRIVING, AL_BELL_WAITING, AL_BELL_RUNG, AL_BELL_QUITTING } state;
  al_channel *channel;
  char tag[AL_TICKET_SIZE]; /* the consumer's: never used twice */
  uint64_t token;           /* RUNG: its delivery tag */
  int priority;
  bool makes;      /* it is those who wait that declare it */
  bool is_missing; /* there is none by this name, or none that we may consume from */
  bool owes;       /* a token or a ring, to those who wait: there is a bell, as far as is known */
  bool stays;      /* holds a slot: consumes only until it is clear whether a token lay ready */
  bool has_left;   /* freed as soon as nothing can arrive any more */
} al_bell;

/* A caller at the bell by this queue, who has not arrived there yet. `makes`: declares it when arriving. NULL: no memory. */
al_bell *al_bell_new(al_op *op, const char *queue, int priority, bool makes);

/* Consumes from now on, if it is OUT. The holder must be open; without a free channel it stays OUT. */
void al_bell_arrive(al_bell *bell);

bool al_bell_is_out(const al_bell *bell);
bool al_bell_is_arriving(const al_bell *bell); /* the broker has not said yet that it is at the bell */
bool al_bell_has_token(const al_bell *bell);

/* The token led to no slot for too long: there are too many. */
void al_bell_waste(al_bell *bell);

/* The caller holds a slot, and waits no longer. `was_quick`: so quickly that a token which lay ready for it may still be
 * on its way; left behind it would be one too many, as soon as the caller rings. */
void al_bell_stay(al_bell *bell, bool was_quick);

/* The end of it; NULL is fine. `freed`: a slot came free, which somebody who waits must learn by a token or a ring. */
void al_bell_leave(al_bell *bell, bool freed);

#endif
