/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A barrier: declare and delete a scratch queue on the connection that asks whether queues exist. A probe reads the view
 * of the broker's node it is connected to, and in a cluster that view may lag; a metadata write of its own, begun after
 * the fact that must not be missed, brings it up to date. Needed wherever *absent* itself decides something. */
#ifndef AL_CORE_QUEUE_BARRIER_H
#define AL_CORE_QUEUE_BARRIER_H

#include "core/session/op.h"

typedef struct al_barrier {
  al_op *op;
  al_probing probing;
  const char *name; /* the resource's */
  al_link *link;
  al_channel *channel; /* NULL: passed, lost, or never begun */
  bool is_lost;        /* with its link */
} al_barrier;

/* The link that al_probes asks on, when it asks so, must be open; `name` must stay. Look with al_barrier_poll() in every
 * step of `op`. */
void al_barrier_begin(al_barrier *barrier, al_op *op, al_probing probing, const char *name);
/* False also when the operation has failed, as it does here if the barrier is lost, or blocked and may be nowhere else. */
bool al_barrier_poll(al_barrier *barrier);
void al_barrier_cancel(al_barrier *barrier);

#endif
