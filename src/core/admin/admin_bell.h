/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The administrator's side of the doorbell, or bell (core/hold/bell.h): the queue N-bell, whose messages wake
 * waiters. A message in it is a token: the waiter that consumes it searches for a free slot.
 *
 * An administrator declares the bell before the first slot, publishes a token for each slot, and deletes the bell
 * after the last slot. The bell is a classic queue, also beside slots that are quorum queues. The reason: a quorum
 * queue that has lost its majority ends the connection of each client that consumes from it.
 *
 * The bell only wakes waiters, so a failure here must not stop the administration of a semaphore. Tokens that
 * cannot be published are left out, with a warning in the log; waiters then find free slots by their own rechecks
 * (option `poll`). */
#ifndef AL_CORE_ADMIN_ADMIN_BELL_H
#define AL_CORE_ADMIN_ADMIN_BELL_H

#include "core/queue/fill.h"
#include "core/queue/inspect.h"

typedef struct al_admin_bell {
  al_op *op;
  al_inspect inspect;
  al_fill tokens;
} al_admin_bell;

/* Inspects the bell of semaphore `name`. */
void al_admin_bell_find(al_admin_bell *bell, al_op *op, const char *name);
bool al_admin_bell_poll_find(const al_admin_bell *bell);
/* True also if the bell's node is down: then the bell must not be declared. */
bool al_admin_bell_exists(const al_admin_bell *bell);
/* The number of tokens in the queue, without those delivered to waiters. */
int al_admin_bell_ready(const al_admin_bell *bell);

/* Declares the bell on `channel`. The answer goes to the owner of that channel. */
void al_admin_bell_declare(const al_admin_bell *bell, al_channel *channel);

/* Publishes `tokens` tokens. */
void al_admin_bell_ring(al_admin_bell *bell, int tokens);
bool al_admin_bell_poll_ring(al_admin_bell *bell);

void al_admin_bell_cancel(al_admin_bell *bell);
void al_admin_bell_free(al_admin_bell *bell);

#endif
