/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/token_queues.h"

#include <stdio.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/session.h"
#include "core/session/turn.h"

static void inspect(al_token_queues *queues) {
  al_op *op = queues->op;
  char permits[AL_NAME_SIZE], marks[AL_NAME_SIZE];
  queues->rests = false;
  al_name(permits, AL_SUFFIX_PERMITS, queues->name);
  al_name(marks, AL_SUFFIX_MARKS, permits);
  al_inspect_begin(&queues->permits, op, &op->session->holder, permits);
  if (!op->done) al_inspect_begin(&queues->marks, op, &op->session->holder, marks);
}

void al_token_queues_begin(al_token_queues *queues, al_op *op, const char *name) {
  *queues = (al_token_queues){
      .op = op,
      .name = name,
      .wait = AL_BACKOFF_ADMIN,
      .silent_until = al_deadline_after(op->session->now, op->session->settings.timeout),
  };
  inspect(queues);
}

void al_token_queues_again(al_token_queues *queues) {
  al_session *session = queues->op->session;
  queues->rests = true;
  queues->op->wake = session->now + al_backoff_next(&queues->wait, &session->random);
}

int al_token_queues_count(const al_token_queues *queues) {
  return queues->permits.exists && queues->marks.exists ? queues->marks.ready : 0;
}

bool al_token_queues_are_foreign(const al_token_queues *queues) {
  return queues->permits.exists && al_token_queues_count(queues) == 0;
}

bool al_token_queues_poll(al_token_queues *queues) {
  al_op *op = queues->op;
  if (queues->rests && al_op_is_woken(op)) inspect(queues);
  if (queues->rests || !al_inspect_poll(&queues->permits) || !al_inspect_poll(&queues->marks)) return false;
  const al_inspect *down = queues->permits.is_down ? &queues->permits : &queues->marks;
  al_op_answered(op);
  if (down->is_down) {
    al_op_fail(op, AL_UNAVAILABLE, "queue \"%s\": its node is down", down->queue);
    return false;
  }
  bool may_be_silent = al_token_queues_are_foreign(queues) && queues->marks.exists;
  if (!may_be_silent || op->session->now >= queues->silent_until) return true;
  al_token_queues_again(queues);
  return false;
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
  if (!al_token_queues_poll(queues)) return;
  if (al_token_queues_are_foreign(queues)) {
    al_op_fail(op, AL_CONFLICT, AL_TOKEN_QUEUES_FOREIGN, queues->permits.queue);
    return;
  }
  op->count = (size_t)al_token_queues_count(queues);
  if (queues->permits.exists) op->ready = (size_t)queues->permits.ready;
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
