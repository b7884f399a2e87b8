/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Inspects one queue by a passive declare: whether it exists, how many messages are ready in it, and how many
 * consumers it has. The channel is one that nothing else uses, because a negative answer closes it. */
#ifndef AL_CORE_QUEUE_INSPECT_H
#define AL_CORE_QUEUE_INSPECT_H

#include "core/session/op.h"

typedef struct al_inspect {
  al_op *op;
  char queue[AL_NAME_SIZE];
  al_channel *channel; /* NULL: there is an answer */
  bool exists;
  bool is_down; /* the queue exists, but its node is down: nothing else is known of it */
  int ready, consumers;
} al_inspect;

/* The link must be open. If the queue is another connection's exclusive queue, the operation fails with SQUATTED. If the
 * broker refuses for another reason, the operation fails with the broker's text. */
void al_inspect_begin(al_inspect *inspect, al_op *op, al_link *link, const char *queue);
bool al_inspect_poll(const al_inspect *inspect);
void al_inspect_cancel(al_inspect *inspect);

/* Limits a number of messages or consumers that the broker told, so that sums of it fit an int. */
int al_inspect_number(uint32_t number);

#endif
