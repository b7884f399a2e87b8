/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/token_queues.h"

#include <stdio.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/session.h"
#include "core/session/turn.h"

void al_ledger_look(al_ledger *ledger, al_op *op, const char *name) {
  char queue[AL_NAME_SIZE];
  ledger->op = op;
  al_name_permits(queue, name);
  al_sight_begin(&ledger->permits, op, queue);
  al_name_permit_count(queue, name);
  if (!op->done) al_sight_begin(&ledger->marks, op, queue);
}

bool al_ledger_read(al_ledger *ledger) {
  if (!al_sight_caught(&ledger->permits) || !al_sight_caught(&ledger->marks)) return false;
  const al_sight *down = ledger->permits.is_down ? &ledger->permits : &ledger->marks;
  al_op_answered(ledger->op);
  if (down->is_down) al_op_fail(ledger->op, AL_UNAVAILABLE, "queue \"%s\": its node is down", down->queue);
  return !ledger->op->done;
}

void al_ledger_cancel(al_ledger *ledger) {
  al_sight_cancel(&ledger->permits);
  al_sight_cancel(&ledger->marks);
}

/* ---- as an operation of its own --------------------------------------------------------------------------------- */

typedef struct slots_op {
  al_op op;
  char name[AL_NAME_SIZE];
  al_ledger ledger;
} slots_op;

static void slots_stop(al_op *op) { al_ledger_cancel(&((slots_op *)op)->ledger); }

static void reading(al_op *op) {
  al_ledger *ledger = &((slots_op *)op)->ledger;
  const al_sight *permits = &ledger->permits, *marks = &ledger->marks;
  if (!al_ledger_read(ledger)) return;
  if (permits->exists && !marks->exists) {
    al_op_fail(op, AL_CONFLICT, AL_LEDGER_FOREIGN, permits->queue);
    return;
  }
  if (permits->exists) {
    op->count = (size_t)marks->ready;
    op->ready = (size_t)permits->ready;
  }
  al_op_finish(op);
}

static void wanting_link(al_op *op) {
  slots_op *self = (slots_op *)op;
  if (!al_op_needs(op, &op->session->holder)) return;
  op->step = reading;
  al_ledger_look(&self->ledger, op, self->name);
}

al_op *al_token_admin_slots(al_session *session, const char *name, const al_token_admin_options *options) {
  AL_TURN(session);
  slots_op *self = (slots_op *)al_op_new(session, sizeof *self);
  if (!self) return NULL;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->op.stop = slots_stop;
  return al_op_start(&self->op, wanting_link,
                     al_wait_until(session->now, options ? options->timeout : 30 * AL_SECOND));
}

al_permits al_op_permits(const al_op *op) {
  size_t held = op->count > op->ready ? op->count - op->ready : 0;
  return (al_permits){.count = op->count, .free = op->ready, .held = held};
}
