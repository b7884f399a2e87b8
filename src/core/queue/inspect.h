/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * An inspection of one queue: whether it is there, how many messages lie ready in it, how many consumers it has. By passive
 * declare, on a scratch channel of the holder. */
#ifndef AL_CORE_QUEUE_INSPECT_H
#define AL_CORE_QUEUE_INSPECT_H

#include "core/session/op.h"

typedef struct al_inspect {
  al_op *op;
  char queue[AL_NAME_SIZE];
  al_channel *channel; /* NULL: answered */
  bool exists;
  bool is_down; /* it exists, but its node is down: nothing else is known of it */
  int ready, consumers;
} al_inspect;

/* The holder must be open. al_inspect_poll() is then looked at in every step of `op`. A queue that is another connection's
 * own fails the operation with SQUATTED, and whatever else the broker refuses with its words. */
void al_inspect_begin(al_inspect *inspect, al_op *op, const char *queue);
bool al_inspect_poll(const al_inspect *inspect); /* false also when the operation has failed */
void al_inspect_cancel(al_inspect *inspect);

/* A number of messages or consumers that the broker told, small enough to be calculated with. */
int al_inspect_number(uint32_t number);

#endif
