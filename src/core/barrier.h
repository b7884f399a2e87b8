/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A barrier: declare and delete a scratch queue on the connection that asks whether queues exist. A probe reads the view
 * of the broker's node it is connected to, and in a cluster that view may lag; a metadata write of its own, begun after
 * the fact that must not be missed, brings it up to date. Needed wherever *absent* itself decides something. */
#ifndef AL_CORE_BARRIER_H
#define AL_CORE_BARRIER_H

#include "core/op.h"

typedef struct al_barrier {
  al_op *op;
  al_channel *channel; /* NULL: passed, or never begun */
  bool can_be_lost;    /* with its connection, without failing the operation */
  bool is_lost;
} al_barrier;

/* The link that al_probes asks on must be open. Look with al_barrier_passed() in every step of `op`. */
void al_barrier_begin(al_barrier *barrier, al_op *op, const char *name);

/* The same; should the connection be lost it stands in `is_lost`, and the operation goes on. */
void al_barrier_try(al_barrier *barrier, al_op *op, const char *name);
bool al_barrier_passed(
    const al_barrier *barrier); /* false also when the operation has failed, or it was lost */
void al_barrier_cancel(al_barrier *barrier);

#endif
