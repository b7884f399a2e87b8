/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Checks whether queues that are absent are held all the same, because their bolts are shut. A bolt (bolt.h) is a
 * second queue that keeps others out while its holder consumes from it. The check first asks which of the bolts
 * exist, all at once. Then it inspects those that do, one after the other. Neither step needs a permission that
 * asking for the queues themselves did not need. It is a part of operations that decide by *absent* and then claim
 * nothing. */
#ifndef AL_CORE_HOLD_BOLT_CHECK_H
#define AL_CORE_HOLD_BOLT_CHECK_H

#include "core/queue/inspect.h"
#include "core/session/op.h"
#include "core/session/probe.h"

typedef struct al_bolt_check {
  al_op *op;
  /* about the queues themselves, the caller's array; if the bolt is shut it becomes UNAVAILABLE */
  al_answer *answers;
  size_t count, next;
  al_probe_name *name; /* of the queues, not of the bolts */
  const void *context;
  al_probes probes;
  al_inspect inspect;
} al_bolt_check;

/* The links must be open. */
void al_bolt_check_begin(al_bolt_check *bolts, al_op *op, al_answer *answers, size_t count,
                         al_probe_name *name, const void *context);

/* Poll; see op.h. True when every bolt was checked. */
bool al_bolt_check_poll(al_bolt_check *bolts);

void al_bolt_check_cancel(al_bolt_check *bolts);
void al_bolt_check_free(al_bolt_check *bolts);

#endif
