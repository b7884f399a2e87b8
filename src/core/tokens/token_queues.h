/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The two queues of a token semaphore. A permit is a message in the queue `N.semaphore`. A free permit lies ready
 * there. The holder of a permit has consumed it and does not acknowledge it, and AMQP does not tell how many such
 * messages there are. So a second queue, `N.semaphore-count`, has a mark, which is a message too, for each permit
 * that should exist. Only administrators take marks. The number of marks is the count of the semaphore.
 *
 * There are never more permits than marks (docs/specification.md, 8.7): marks are published before permits, and removed
 * together with permits or after them. */
#ifndef AL_CORE_TOKENS_TOKEN_QUEUES_H
#define AL_CORE_TOKENS_TOKEN_QUEUES_H

#include "core/base/backoff.h"
#include "core/queue/inspect.h"
#include "core/session/op.h"

/* Message about a queue of permits without marks. */
#define AL_TOKEN_QUEUES_FOREIGN                                                                              \
  "queue \"%s\" has no count of its permits (other software made it, or the count is lost or does not "      \
  "answer): resize(n) makes it a semaphore of n as soon as no other client consumes from it"

typedef struct al_token_queues {
  al_op *op;
  const char *name; /* of the semaphore; the caller's text, which must stay valid */
  al_inspect permits, marks;
  bool rests;
  al_backoff wait;      /* between inspections */
  int64_t silent_until; /* so long, "no marks" may be the answer of a queue that is silent */
} al_token_queues;

/* Inspects both queues in one round trip. The holder must be open. RabbitMQ says of a quorum queue that does not answer
 * within 0.25 s that it has no messages and no consumers. So if there are permits and no marks, the queues are
 * inspected again, for the session's timeout. */
void al_token_queues_begin(al_token_queues *queues, al_op *op, const char *name);

/* Fails the operation if the node of a queue is down. */
bool al_token_queues_poll(al_token_queues *queues);

/* After an answer: inspects the queues again, after a backoff. Poll. */
void al_token_queues_again(al_token_queues *queues);

/* The count of the semaphore. 0: there is none, or its permits have no marks. */
int al_token_queues_count(const al_token_queues *queues);

/* There are permits without marks. */
bool al_token_queues_are_foreign(const al_token_queues *queues);

void al_token_queues_cancel(al_token_queues *queues);

#endif
