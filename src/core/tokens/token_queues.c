/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/token_queues.h"

#include <stdio.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/session.h"
#include "core/session/turn.h"

void al_token_queues_begin(al_token_queues *queues, al_op *op, const char *name) {
  char permits[AL_NAME_SIZE], marks[AL_NAME_SIZE];
  queues->op = op;
  al_name(permits, AL_SUFFIX_PERMITS, name);
  al_name(marks, AL_SUFFIX_MARKS, permits);
  al_inspect_begin(&queues->permits, op, &op->session->holder, permits);
  if (!op->done) al_inspect_begin(&queues->marks, op, &op->session->holder, marks);
}

bool al_token_queues_poll(al_token_queues *queues) {
  if (!al_inspect_poll(&queues->permits) || !al_inspect_poll(&queues->marks)) return false;
  const al_inspect *down = queues->permits.is_down ? &queues->permits : &queues->marks;
  al_op_answered(queues->op);
  if (down->is_down) al_op_fail(queues->op, AL_UNAVAILABLE, "queue \"%s\": its node is down", down->queue);
  return !queues->op->done;
}

void al_token_queues_cancel(al_token_queues *queues) {
  al_inspect_cancel(&queues->permits);
  al_inspect_cancel(&queues->marks);
}

/* ---- an operation of its own ------------------------------------------------------------------------------------ */

typedef struct slots_op {
  al_op op;
  char name[AL_NAME_SIZE];
  al_token_queues queues;
} slots_op;

static void slots_stop(al_op *op) { al_token_queues_cancel(&((slots_op *)op)->queues); }

static void reading(al_op *op) {
  al_token_queues *queues = &((slots_op *)op)->queues;
  const al_inspect *permits = &queues->permits, *marks = &queues->marks;
  if (!al_token_queues_poll(queues)) return;
  if (permits->exists && !marks->exists) {
    al_op_fail(op, AL_CONFLICT, AL_TOKEN_QUEUES_FOREIGN, permits->queue);
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
  al_op_enter(op, reading);
  al_token_queues_begin(&self->queues, op, self->name);
}

al_op *al_token_admin_slots(al_session *session, const char *name, const al_token_admin_options *options) {
  AL_TURN(session);
  slots_op *self = (slots_op *)al_op_new(session, sizeof *self, name);
  if (!self) return NULL;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->op.stop = slots_stop;
  return al_op_start(&self->op, wanting_link,
                     al_deadline_after(session->now, options ? options->timeout : 30 * AL_SECOND));
}

al_permits al_op_permits(const al_op *op) {
  size_t held = op->count > op->ready ? op->count - op->ready : 0;
  return (al_permits){.count = op->count, .free = op->ready, .held = held};
}
