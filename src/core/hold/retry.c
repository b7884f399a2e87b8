/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/retry.h"

#include <stdio.h>

#include "core/hold/lock.h"
#include "core/hold/seal.h"
#include "core/session/session.h"

static void attempting(al_op *op);
static void handing_on(al_op *op);
static void settling(al_op *op);
static void pausing(al_op *op);

static bool is_patient(const al_acquire_options *options) { return options->patient && options->timeout > 0; }

bool al_retry_is_wanted(const al_acquire_options *options) {
  return options && (is_patient(options) || options->settle > 0);
}

#define BROKEN_MOST 5 /* attempts, of an acquire that is not patient */

static bool passes(al_retry *self, al_code code) {
  bool is_broken = code == AL_UNREACHABLE && self->op.session->quorum.has_broken;
  bool was_lost = code == AL_BUSY && self->op.lock; /* before it had settled */
  if (was_lost) return self->options.timeout > 0;
  if (!is_patient(&self->options)) return is_broken && ++self->broken < BROKEN_MOST;
  return code == AL_UNREACHABLE || code == AL_UNAVAILABLE || code == AL_BLOCKED;
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_retry *self = (const al_retry *)op;
  const al_op *attempt = op->inner;
  bool is_told = attempt && !attempt->done && (attempt->waits_since != AL_NEVER || op->step == settling);
  if (is_told)
    attempt->standing(attempt, out);
  else
    snprintf(out, AL_MESSAGE_SIZE, "%s", self->last_words);
}

static void explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_retry *self = (const al_retry *)op;
  char words[AL_MESSAGE_SIZE];
  describe(op, words);
  snprintf(out, AL_MESSAGE_SIZE, "\"%s\" was not acquired within %g s: %.200s", self->name,
           (double)self->options.timeout / (double)AL_SECOND, words);
}

/* ---- attempts --------------------------------------------------------------------------------------------------- */

static void drop_attempt(al_op *op) {
  al_op *attempt = op->inner;
  op->inner = NULL;
  al_op_drop(attempt);
}

static void attempt(al_retry *self) {
  al_op *op = &self->op;
  al_op_enter(op, attempting);
  op->deadline = AL_NEVER; /* the attempt, or its part, has it, and words for it */
  op->session->nests++;
  al_op *inner = self->attempts.begin(self);
  op->session->nests--;
  if (!inner) {
    al_op_fail(op, AL_NO_MEMORY, "acquiring \"%s\"", self->name);
    return;
  }
  op->inner = inner;
  inner->outer = op;
  if (inner->deadline != AL_NEVER) inner->deadline = self->until;
  attempting(op);
}

/* In place of the notes of each attempt's connection. */
static void note_pause(const al_retry *self, const al_op *attempt) {
  al_session_unnote(self->op.session, attempt->told);
  if (attempt->code != self->last)
    al_session_note(self->op.session, true, attempt->code, self->name, "\"%s\" is not acquired yet: %.400s",
                    self->name, attempt->message);
}

static void pause_after(al_retry *self, const al_op *attempt) {
  al_op *op = &self->op;
  note_pause(self, attempt);
  if (attempt->waits_since != AL_NEVER) self->pause.next = 0;
  self->last = attempt->code;
  snprintf(self->last_words, sizeof self->last_words, "%s", attempt->message);
  al_op_enter(op, pausing);
  op->wake = op->session->now + al_backoff_next(&self->pause, &op->session->random);
  op->deadline = self->until;
  al_op_waits(op);
}

static void fail(al_retry *self, const al_op *attempt) {
  char words[AL_MESSAGE_SIZE];
  bool never_waited = attempt->waits_since == AL_NEVER;
  if (attempt->code == AL_TIMEOUT && self->last != AL_OK && never_waited)
    explain(&self->op, words);
  else
    snprintf(words, sizeof words, "%s", al_op_words(attempt));
  self->op.told = attempt->told;
  al_op_fail(&self->op, attempt->code, "%s", words);
}

static void finish(al_op *op) {
  al_locks_count(op);
  al_op_finish(op);
}

/* ---- how an attempt ends ---------------------------------------------------------------------------------------- */

/* Its part may have failed when it had a mutex. */
static void failed(al_retry *self, const al_op *attempt) {
  if (passes(self, attempt->code)) {
    al_locks_drop(&self->op);
    pause_after(self, attempt);
  } else {
    fail(self, attempt);
  }
}

static bool has_to_settle(const al_retry *self) {
  int64_t settle = self->options.settle;
  return settle > 0 && self->attempts.is_mutex && !al_lock_is_sealed(self->op.lock, settle);
}

/* Called when the attempt ends. It must not free the attempt, whose end is still under way. */
static void attempting(al_op *op) {
  al_retry *self = (al_retry *)op;
  al_op *attempt = op->inner;
  if (!attempt->done) return;
  if (attempt->code != AL_OK) {
    failed(self, attempt);
    return;
  }
  al_op_take_locks(op, attempt);
  if (!has_to_settle(self)) {
    finish(op);
    return;
  }
  al_op_enter(op, handing_on);
  op->deadline = self->until;
  op->wake = 0; /* due at once */
}

/* Only the timer comes further than the first line, here and in `pausing`, when no step of another operation is under way. */
static void handing_on(al_op *op) {
  al_retry *self = (al_retry *)op;
  if (!al_op_is_woken(op)) return;
  drop_attempt(op);
  al_op *sealing = al_sealing_begin(op->lock, self->options.settle, self->options.timeout > 0);
  if (!sealing) {
    al_op_fail(op, AL_NO_MEMORY, "sealing \"%s\"", self->name);
    return;
  }
  op->inner = sealing;
  sealing->outer = op;
  al_op_next(op, settling);
}

static void settling(al_op *op) {
  const al_op *sealing = op->inner;
  if (!sealing->done) return;
  if (sealing->code == AL_OK)
    finish(op);
  else
    failed((al_retry *)op, sealing);
}

static void pausing(al_op *op) {
  if (!al_op_is_woken(op)) return;
  drop_attempt(op);
  attempt((al_retry *)op);
}

/* ---- beginning and ending --------------------------------------------------------------------------------------- */

static void beginning(al_op *op) { attempt((al_retry *)op); }

static void retry_stop(al_op *op) {
  al_retry *self = (al_retry *)op;
  op->deadline = self->until;
  al_op_abandon(op, op->inner);
  al_locks_drop(op);
}

static void retry_free(al_op *op) {
  al_retry *self = (al_retry *)op;
  drop_attempt(op);
  al_locks_drop(op);
  self->attempts.leave(self->attempts.from);
}

al_op *al_retry_begin(al_session *session, const char *name, const al_acquire_options *options,
                      al_attempts attempts) {
  al_retry *self = (al_retry *)al_op_new(session, sizeof *self, name);
  if (!self) {
    attempts.leave(attempts.from);
    return NULL;
  }
  self->attempts = attempts;
  al_acquire_options_init(&self->options);
  if (options) self->options = *options;
  self->pause = AL_BACKOFF_PATIENT;
  self->until = self->options.timeout > 0 ? al_deadline_after(session->now, self->options.timeout) : AL_NEVER;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->op.is_acquire = true;
  self->op.at_most = self->options.at_most;
  self->op.stop = retry_stop;
  self->op.free = retry_free;
  self->op.standing = describe;
  self->op.timeout_text = explain;
  return al_op_start(&self->op, beginning, AL_NEVER);
}
