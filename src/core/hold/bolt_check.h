/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Whether any of some queues that are absent is held all the same, as its bolt is shut (bolt.h). Which bolts exist is asked for
 * all of them at once; then those that do are looked at, one after the other. Neither needs a permission that asking for the
 * queues themselves did not. A part of an operation, for those who decide by *absent* and claim nothing then. */
#ifndef AL_CORE_HOLD_BOLT_CHECK_H
#define AL_CORE_HOLD_BOLT_CHECK_H

#include "core/queue/inspect.h"
#include "core/session/op.h"
#include "core/session/probe.h"

typedef struct al_bolt_check {
  al_op *op;
  al_answer *answers; /* about the queues themselves, the owner's: one that is held comes to be UNAVAILABLE */
  size_t count, next;
  al_probe_name *name; /* of the queues */
  const void *context;
  al_probes probes;
  al_inspect inspect;
} al_bolt_check;

/* The links must be open. al_bolt_check_poll() is then looked at in every step of `op`. */
void al_bolt_check_begin(al_bolt_check *bolts, al_op *op, al_answer *answers, size_t count,
                         al_probe_name *name, const void *context);

/* True when all are seen. False: not yet, or the operation has failed. */
bool al_bolt_check_poll(al_bolt_check *bolts);

void al_bolt_check_cancel(al_bolt_check *bolts);
void al_bolt_check_free(al_bolt_check *bolts);

#endif
