/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Minting: publishing so many messages of a kind to one queue, where they stay: tokens, permits, marks. A few hundred
 * ahead of their confirms. What was not confirmed may be there nevertheless, now or later, so nothing is published a
 * second time: who needs to know counts what there is. */
#ifndef AL_CORE_QUEUE_PUBLISH_H
#define AL_CORE_QUEUE_PUBLISH_H

#include "core/session/op.h"
#include "core/session/probe.h"

typedef struct al_publish {
  al_op *op;
  const char *queue; /* its owner's */
  al_message message;
  al_probes probes;
  int missing; /* still to be published */
  bool is_under_way;

  al_code code; /* AL_OK, or why it was given up: BLOCKED, UNREACHABLE, REFUSED, UNAVAILABLE, NOT_FOUND */
  char why[160];
} al_publish;

/* Publishes on the session's prober, as al_publish_poll() is looked at in every step of `op`. */
void al_publish_begin(al_publish *publishing, al_op *op, const char *queue, al_message message, int count);

/* True when all are confirmed, or it was given up. False: not yet, or the operation has failed. */
bool al_publish_poll(al_publish *publishing);

/* True when nothing is under way, and the next that al_publish_poll() does may be to publish. */
bool al_publish_is_idle(al_publish *publishing);

void al_publish_cancel(al_publish *publishing);
void al_publish_free(al_publish *publishing);

#endif
