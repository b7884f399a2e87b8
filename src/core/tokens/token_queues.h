/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The two queues of a token semaphore. In `N.semaphore` lie the permits, as far as they are free; whoever holds
 * one has it unacknowledged, and AMQP does not tell how many do. So in `N.semaphore-count` lies a mark for each permit
 * there should be, which nobody ever takes but administrators: how many marks there are is the semaphore's count. There are
 * never more permits than marks, whoever dies half-way: marks come first and go last. */
#ifndef AL_CORE_TOKENS_TOKEN_QUEUES_H
#define AL_CORE_TOKENS_TOKEN_QUEUES_H

#include "core/queue/inspect.h"
#include "core/session/op.h"

/* Words for a queue of permits without one of marks. */
#define AL_TOKEN_QUEUES_FOREIGN                                                                              \
  "queue \"%s\" was made by other software, and nobody counts its permits: resize(n) makes it a semaphore "  \
  "of "                                                                                                      \
  "n as soon as nobody else consumes from it"

typedef struct al_token_queues {
  al_op *op;
  al_inspect permits, marks;
} al_token_queues;

/* Looks at both, in one round trip; al_token_queues_poll() is then looked at in every step of `op`. The holder must be open. */
void al_token_queues_begin(al_token_queues *queues, al_op *op, const char *name);

/* True when both were seen. False: not yet, or the operation has failed; so it has if a queue's node is down. */
bool al_token_queues_poll(al_token_queues *queues);

void al_token_queues_cancel(al_token_queues *queues);

#endif
