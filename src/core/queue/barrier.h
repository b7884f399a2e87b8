/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A barrier is a declare and a delete of a scratch queue, on the connection on which probes ask whether queues exist.
 *
 * A probe reads the metadata as the node sees it that it is connected to. In a cluster this view may lag. A metadata
 * write on the same connection brings the view up to date: the view then has all that happened before the write
 * began. A barrier is needed wherever the answer "absent" decides something. */
#ifndef AL_CORE_QUEUE_BARRIER_H
#define AL_CORE_QUEUE_BARRIER_H

#include "core/session/op.h"

typedef struct al_barrier {
  al_op *op;
  al_probing probing;
  const char *name; /* the lock's name */
  al_link *link;
  al_channel *channel; /* NULL: the barrier is done, is lost, or was never begun */
  bool is_lost;        /* its link went down */
} al_barrier;

/* The link that questions asked by `probing` use must be open (al_probing_needs). `name` must stay valid. */
void al_barrier_begin(al_barrier *barrier, al_op *op, al_probing probing, const char *name);
/* Fails the operation if the barrier is lost, or if it is on a blocked prober and `probing` does not allow the
 * holder. */
bool al_barrier_poll(al_barrier *barrier);
void al_barrier_cancel(al_barrier *barrier);

#endif
