/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The ledger of a token semaphore: its two queues. In `N.semaphore` lie the permits, as far as they are free; whoever holds
 * one has it unacknowledged, and AMQP does not tell how many do. So in `N.semaphore-count` lies a mark for each permit
 * there should be, which nobody ever takes but administrators: how many marks there are is the semaphore's count. There are
 * never more permits than marks, whoever dies half-way: marks come first and go last. */
#ifndef AL_CORE_TOKENS_TOKEN_QUEUES_H
#define AL_CORE_TOKENS_TOKEN_QUEUES_H

#include "core/queue/inspect.h"
#include "core/session/op.h"

/* Words for a queue of permits without one of marks. */
#define AL_LEDGER_FOREIGN                                                                                    \
  "queue \"%s\" was made by other software, and nobody counts its permits: resize(n) makes it a semaphore "  \
  "of "                                                                                                      \
  "n as soon as nobody else consumes from it"

typedef struct al_ledger {
  al_op *op;
  al_sight permits, marks;
} al_ledger;

/* Looks at both, in one round trip; al_ledger_read() is then looked at in every step of `op`. The holder must be open. */
void al_ledger_look(al_ledger *ledger, al_op *op, const char *name);

/* True when both were seen. False: not yet, or the operation has failed; so it has if a queue's node is down. */
bool al_ledger_read(al_ledger *ledger);

void al_ledger_cancel(al_ledger *ledger);

#endif
