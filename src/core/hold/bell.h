/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The doorbell: N-bell, a queue of tokens, about as many as there are slots. It wakes, and never decides who holds: a
 * token is a reason to look, and a wrong one costs a look, never more. An administrator makes it; or, where there is none,
 * whoever waits (N-mutexbell, N-rwbell): then it is empty at first, and whoever leaves rings.
 *
 * An al_bell is one caller at it, from its acquire to the end of its lock: a consumer (consumer.h has its states), so that the
 * broker serves those who wait in their order, by priority. Whoever holds a slot with a token keeps the token
 * unacknowledged: should its process die, the broker gives it to the next. Whoever holds one without stops consuming,
 * lest it take a token that could wake somebody, and rings when it is done.
 *
 * A bell that cancels its callers, or closes their channel, may have been replaced by another: whoever waits arrives anew.
 * One that refuses to be consumed is none. A token that led to no slot is thrown away, and its caller waits on with its
 * priority raised by one, so as not to fall behind those who came later. */
#ifndef AL_CORE_HOLD_BELL_H
#define AL_CORE_HOLD_BELL_H

#include "amqplocks.h"
#include "core/queue/consumer.h"

typedef struct al_bell {
  al_consumer consumer;
  al_op *op; /* stepped when a token came or the bell went; NULL: nobody waits */
  char queue[AL_NAME_SIZE];
  bool makes;    /* it is those who wait that declare it */
  bool is_first; /* nobody was at the bell when we came, so nobody who waits came before */
  bool
      is_missing; /* there is none by this name, or none that we may consume from, or that answers; bell.c sets it */
  bool owes;     /* a token or a ring, to those who wait: there is a bell, as far as is known */
  bool stays;    /* holds a slot: consumes only until it is clear whether a token lay ready */
  bool keeps;    /* holds what others wait for: takes a token, before them, or rings for one */
  bool has_left; /* freed as soon as nothing can arrive any more */
} al_bell;

/* A caller at the bell by this queue, who has not arrived there yet. `makes`: declares it when arriving. NULL: no memory. */
al_bell *al_bell_new(al_op *op, const char *queue, int priority, bool makes);

/* Consumes from now on, if it is out. The holder must be open; without a free channel it stays out. */
void al_bell_arrive(al_bell *bell);

bool al_bell_is_out(const al_bell *bell);
bool al_bell_is_arriving(const al_bell *bell); /* the broker has not said yet that it is at the bell */
bool al_bell_has_token(const al_bell *bell);
bool al_bell_is_first(const al_bell *bell); /* in line; known only where those who wait make the bell */

/* If it has not arrived yet: leaves, as if the bell were missing. */
void al_bell_give_up(al_bell *bell);

/* The token led to no slot for too long: there are too many. */
void al_bell_waste(al_bell *bell);

/* True once, when the bell was found to be missing since this was last called. */
bool al_bell_take_missing(al_bell *bell);

/* The caller holds a slot, and waits no longer. `was_quick`: so quickly that a token which lay ready for it may still be
 * on its way; left behind it would be one too many, as soon as the caller rings. `may_exist`: false if the bell was found to be
 * missing lately, by whomever: then the caller does not come to it to keep a token. */
void al_bell_stay(al_bell *bell, bool was_quick, bool may_exist);

/* The caller holds what others wait for at a bell they made: it has to have a token, for them to get should it die. */
void al_bell_keep(al_bell *bell);

/* The end of it; NULL is fine. `freed`: a slot came free, which somebody who waits must learn by a token or a ring. */
void al_bell_leave(al_bell *bell, bool freed);

#endif
