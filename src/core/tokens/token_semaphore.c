/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/token_semaphore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/hold/lock.h"
#include "core/hold/patient.h"
#include "core/session/op.h"
#include "core/session/session.h"
#include "core/session/turn.h"
#include "core/tokens/permit.h"

typedef struct token_acquire {
  al_op op;
  al_token_semaphore *semaphore;
  al_acquire_options options;
  bool waits;        /* false: a permit at once, or `busy` */
  al_backoff again;  /* before the next try, after the queue or the channel ended */
  al_permit *permit; /* the permit that is being claimed; NULL: none */
} token_acquire;

static void asking(al_op *op);
static void handing_over(al_op *op);

/* ---- the semaphore ---------------------------------------------------------------------------------------------- */

al_token_semaphore *al_token_semaphore_new(al_session *session, const char *name,
                                           const al_token_semaphore_options *options) {
  al_token_semaphore *semaphore = calloc(1, sizeof *semaphore);
  if (!semaphore) return NULL;
  semaphore->refs = 1;
  semaphore->session = session;
  semaphore->is_quorum = options && options->quorum;
  snprintf(semaphore->name, sizeof semaphore->name, "%s", name);
  al_name_permits(semaphore->queue, name);
  al_session_ref(session);
  return semaphore;
}

void al_token_semaphore_drop(al_token_semaphore *semaphore) {
  if (!semaphore || al_session_forked(semaphore->session) || --semaphore->refs > 0) return;
  al_session_unref(semaphore->session);
  free(semaphore);
}

/* ---- the end of an acquire -------------------------------------------------------------------------------------- */

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  bool has_come = op->step == handing_over;
  snprintf(out, AL_MESSAGE_SIZE,
           has_come ? "a permit has come, and is being confirmed" : "every permit is taken");
}

static void explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const token_acquire *self = (const token_acquire *)op;
  double seconds = (double)self->options.timeout / (double)AL_SECOND;
  if (op->step == handing_over)
    al_claim_doubt_text(op, self->options.timeout, out);
  else
    snprintf(out, AL_MESSAGE_SIZE, "no permit of \"%s\" came free within %g s%s", self->semaphore->name,
             seconds, op->waits_since == AL_NEVER ? " (the broker had not answered yet)" : "");
}

static void leave_permit(token_acquire *self) {
  if (self->permit) al_claim_leave(&self->permit->claim);
  self->permit = NULL;
  al_op_watch(&self->op, NULL);
}

static void acquire_stop(al_op *op) {
  token_acquire *self = (token_acquire *)op;
  if (self->permit) al_claim_release(&self->permit->claim);
  leave_permit(self);
}

static void acquire_free(al_op *op) {
  al_lock_drop(op->lock); /* NULL if the caller has fetched it */
  al_token_semaphore_drop(((token_acquire *)op)->semaphore);
}

static void got(token_acquire *self) {
  const char *name = self->semaphore->name;
  self->op.lock = al_lock_new(&self->permit->claim, AL_LOCK_PERMIT, name, 0, AL_PROBE_AUTO);
  if (!self->op.lock) {
    al_op_fail(&self->op, AL_NO_MEMORY, "a permit of \"%s\" was released again", name);
    return;
  }
  leave_permit(self);
  al_op_finish(&self->op);
}

static void fail(token_acquire *self, al_code code, const char *why) {
  const al_token_semaphore *semaphore = self->semaphore;
  if (code == AL_NOT_FOUND)
    al_op_fail(&self->op, code, "there is no token semaphore \"%s\"; an administrator creates it",
               semaphore->name);
  else
    al_op_fail(&self->op, code, "no permit can be taken from \"%s\": %s", semaphore->queue, why);
}

/* ---- trying again ----------------------------------------------------------------------------------------------- */

static void pausing(al_op *op) {
  if (al_op_has(op, &op->session->holder) && al_op_is_woken(op)) al_op_next(op, asking);
}

/* The claim is gone. If the queue or the channel ended (LOST), the acquire tries again: there may be a new queue
 * by this name. */
static void missed(token_acquire *self) {
  al_op *op = &self->op;
  al_session *session = op->session;
  al_code code = self->permit->claim.code;
  char why[sizeof self->permit->claim.why];
  memcpy(why, self->permit->claim.why, sizeof why);
  leave_permit(self);
  al_op_answered(op);
  if (al_link_is_lost(&session->holder)) {
    al_op_fail_link(op, &session->holder);
  } else if (code == AL_LOST) {
    op->step = pausing;
    op->wake = session->now + al_backoff_next(&self->again, &session->random);
  } else {
    fail(self, code, why);
  }
}

/* ---- at the queue ----------------------------------------------------------------------------------------------- */

/* The broker may have ended the connection during a silence, and given the permit to another client. So the
 * acquire asks the broker, unless the permit is certain. */
static void handing_over(al_op *op) {
  token_acquire *self = (token_acquire *)op;
  if (self->permit->claim.state == AL_CLAIM_GONE)
    missed(self);
  else if (al_claim_ascertain_for(op))
    got(self);
}

static void hand_over(token_acquire *self) {
  al_op_answered(&self->op);
  al_op_next(&self->op, handing_over);
}

static bool is_claiming(token_acquire *self) {
  al_claim_state state = self->permit->claim.state;
  if (state == AL_CLAIM_HELD)
    hand_over(self);
  else if (state == AL_CLAIM_GONE)
    missed(self);
  return state != AL_CLAIM_HELD && state != AL_CLAIM_GONE;
}

static void leaving(al_op *op) {
  token_acquire *self = (token_acquire *)op;
  if (self->permit->claim.state != AL_CLAIM_GONE) return;
  if (al_link_is_lost(&op->session->holder))
    al_op_fail_link(op, &op->session->holder);
  else
    al_op_fail(op, AL_BUSY, "every permit of \"%s\" is taken", self->semaphore->name);
}

/* A permit that arrives during the cancel goes back. It could not be used: without the consumer, the broker would
 * not notify its holder of its loss. */
static void leave(token_acquire *self) {
  al_op_ask(&self->op);
  al_claim_release(&self->permit->claim);
  al_op_next(&self->op, leaving);
}

static void waiting(al_op *op) { is_claiming((token_acquire *)op); }

static void deciding(al_op *op) {
  token_acquire *self = (token_acquire *)op;
  if (!is_claiming(self) || !self->permit->is_none) return;
  self->semaphore->is_blind |= self->permit->is_blind;
  al_op_answered(op);
  if (!self->waits) {
    leave(self);
    return;
  }
  al_op_waits(op);
  op->step = waiting;
}

/* Its timer is due at once. The session calls it when all that arrived together with consume-ok has been read. */
static void settling(al_op *op) {
  token_acquire *self = (token_acquire *)op;
  if (!is_claiming(self) || op->wake != AL_NEVER) return;
  al_op_ask(op);
  al_permit_ask(self->permit, self->semaphore->is_quorum && !self->semaphore->is_blind);
  op->step = deciding;
}

static void consuming(al_op *op) {
  token_acquire *self = (token_acquire *)op;
  if (!is_claiming(self) || !al_permit_waits(self->permit)) return;
  op->step = settling;
  op->wake = 0; /* due at once */
}

static void asking(al_op *op) {
  token_acquire *self = (token_acquire *)op;
  if (!al_op_needs(op, &op->session->holder)) return;
  al_op_ask(op);
  op->step = consuming;
  self->permit =
      al_permit_begin(op, self->semaphore->queue, self->options.priority, self->semaphore->is_quorum);
}

static al_op *begin(al_token_semaphore *semaphore, const al_acquire_options *options) {
  token_acquire *self = (token_acquire *)al_op_new(semaphore->session, sizeof *self);
  if (!self) return NULL;
  al_acquire_options_init(&self->options);
  if (options) self->options = *options;
  semaphore->refs++;
  self->semaphore = semaphore;
  self->waits = self->options.timeout > 0;
  self->again = AL_BACKOFF_QUEUE;
  self->op.stop = acquire_stop;
  self->op.free = acquire_free;
  self->op.timeout_text = explain;
  self->op.standing = describe;
  int64_t now = semaphore->session->now;
  return al_op_start(&self->op, asking,
                     self->waits ? al_deadline_after(now, self->options.timeout) : AL_NEVER);
}

/* ---- a patient acquire ------------------------------------------------------------------------------------------ */

typedef struct patient {
  al_patient patient;
  al_token_semaphore *semaphore;
} patient;

static al_op *patient_attempt(al_patient *self) {
  return begin(((patient *)self)->semaphore, &self->options);
}

static void patient_free(al_patient *self) {
  al_lock_drop(self->op.lock); /* if nobody fetched it */
  al_token_semaphore_drop(((patient *)self)->semaphore);
}

static const al_patient_kind patient_kind = {.attempt = patient_attempt, .free = patient_free};

static al_op *begin_patient(al_token_semaphore *semaphore, const al_acquire_options *options) {
  patient *self =
      (patient *)al_patient_new(semaphore->session, &patient_kind, sizeof *self, semaphore->name, options);
  if (!self) return NULL;
  semaphore->refs++;
  self->semaphore = semaphore;
  return al_patient_start(&self->patient);
}

al_op *al_token_semaphore_acquire(al_token_semaphore *semaphore, const al_acquire_options *options) {
  AL_TURN(semaphore->session);
  return al_patient_is_wanted(options) ? begin_patient(semaphore, options) : begin(semaphore, options);
}
