/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/released.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/name.h"
#include "core/session.h"
#include "core/turn.h"

static void holder_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_released *released = context;
  al_name_holder(out, released->name, released->slots[index]);
}

static void asked(al_op *op);
static void wanted(al_op *op);

static void ask(al_released *released) {
  al_op *op = released->op;
  if (!al_op_has_probing(op, AL_PROBE_AUTO)) return;
  op->step = asked;
  al_op_ask(op);
  al_probes_begin(&released->probes, op, AL_PROBE_AUTO, released->count, holder_name, released);
}

static void passing_barrier(al_op *op) {
  al_released *released = op->part;
  if (!al_barrier_passed(&released->barrier)) return;
  released->is_sure = true;
  ask(released);
}

static void sleeping(al_op *op) {
  if (op->wake == AL_NEVER) al_op_next(op, wanted);
}

static void asked(al_op *op) {
  al_released *released = op->part;
  bool all_absent = true;
  if (released->probes.pending > 0) return;
  al_op_answered(op);
  for (size_t i = 0; i < released->count; i++) {
    if (al_probes_undecided(&released->probes, i)) return;
    all_absent = all_absent && released->probes.answers[i] == AL_ANSWER_ABSENT;
  }
  if (all_absent && released->is_sure) {
    al_op_finish(op);
  } else if (all_absent) {
    op->step = passing_barrier;
    al_barrier_begin(&released->barrier, op, released->name);
  } else {
    op->step = sleeping;
    op->wake = op->session->now + al_wait_next(&released->wait, &op->session->random);
  }
}

static void wanted(al_op *op) {
  al_released *released = op->part;
  if (!al_op_needs_probing(op, AL_PROBE_AUTO)) return;
  released->is_sure = false;
  ask(released);
}

void al_released_begin(al_released *released, al_op *op, const char *name, const int *slots, size_t count) {
  *released = (al_released){.op = op, .name = name, .wait = AL_WAIT_SLOT};
  op->part = released;
  released->slots = malloc((count ? count : 1) * sizeof *slots);
  if (!released->slots) {
    al_op_fail(op, AL_NO_MEMORY, "waiting for holders of \"%s\"", name);
    return;
  }
  memcpy(released->slots, slots, count * sizeof *slots);
  released->count = count;
  if (count > 0)
    al_op_next(op, wanted);
  else
    al_op_finish(op);
}

void al_released_explain(const al_released *released, int64_t timeout, char out[AL_MESSAGE_SIZE]) {
  int used = snprintf(out, AL_MESSAGE_SIZE, "still held in \"%s\" after %g s: slot", released->name,
                      (double)timeout / (double)AL_SECOND);
  bool answered = released->probes.pending == 0 && released->probes.count == released->count;
  for (size_t i = 0; i < released->count && used < AL_MESSAGE_SIZE - 32; i++) {
    if (answered && released->probes.answers[i] == AL_ANSWER_ABSENT) continue;
    used += snprintf(out + used, (size_t)(AL_MESSAGE_SIZE - used), " %d", released->slots[i]);
  }
}

void al_released_cancel(al_released *released) {
  al_probes_cancel(&released->probes);
  al_barrier_cancel(&released->barrier);
}

void al_released_free(al_released *released) {
  al_probes_free(&released->probes);
  free(released->slots);
}

/* ---- as an operation of its own --------------------------------------------------------------------------------- */

typedef struct wait_op {
  al_op op;
  char name[AL_NAME_SIZE];
  int64_t timeout;
  al_released released;
} wait_op;

static void wait_stop(al_op *op) { al_released_cancel(&((wait_op *)op)->released); }

static void wait_free(al_op *op) { al_released_free(&((wait_op *)op)->released); }

static void wait_explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const wait_op *self = (const wait_op *)op;
  al_released_explain(&self->released, self->timeout, out);
}

static void wait_nothing(al_op *op) { (void)op; }

al_op *al_admin_wait_released(al_session *session, const char *name, const int *slots, size_t count,
                              const al_admin_options *options) {
  AL_TURN(session);
  wait_op *self = (wait_op *)al_op_new(session, sizeof *self);
  if (!self) return NULL;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->timeout = options ? options->timeout : 30 * AL_SECOND;
  self->op.stop = wait_stop;
  self->op.free = wait_free;
  self->op.explain = wait_explain;
  al_op_start(&self->op, wait_nothing, session->now + self->timeout);
  if (!self->op.done) al_released_begin(&self->released, &self->op, self->name, slots, count);
  return &self->op;
}
