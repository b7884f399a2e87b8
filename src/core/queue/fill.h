/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Fills a queue: publishes a number of messages of one kind to it, where they stay: tokens, permits or marks
 * (message.h).
 *
 * Up to 512 messages are published before their confirms have come. A message that was not confirmed may be in the
 * queue all the same, now or later. So no message is published a second time. An operation that needs the exact
 * number counts the messages in the queue. */
#ifndef AL_CORE_QUEUE_FILL_H
#define AL_CORE_QUEUE_FILL_H

#include "core/session/op.h"
#include "core/session/probe.h"

typedef struct al_fill {
  al_op *op;
  const char *queue; /* the caller's text, which must stay valid */
  al_message message;
  al_probes probes;
  int missing; /* number of messages still to be published */
  bool is_under_way;

  al_code code; /* AL_OK, or why it was given up: BLOCKED, UNREACHABLE, REFUSED, UNAVAILABLE, NOT_FOUND or the
                   code with which the prober went down */
  char why[160];
} al_fill;

/* Sends nothing yet: al_fill_poll() publishes, on the session's prober. */
void al_fill_begin(al_fill *fill, al_op *op, const char *queue, al_message message, int count);

/* Done when all messages are confirmed, or when publishing was given up (`code`). */
bool al_fill_poll(al_fill *fill);

/* True if nothing is under way. The next call of al_fill_poll() may then publish. */
bool al_fill_is_idle(al_fill *fill);

void al_fill_cancel(al_fill *fill);
void al_fill_free(al_fill *fill);

#endif
