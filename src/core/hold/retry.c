/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/retry.h"

#include <stdio.h>

#include "core/hold/lock.h"
#include "core/session/session.h"

static void attempting(al_op *op);
static void settling(al_op *op);
static void making_sure(al_op *op);
static void pausing(al_op *op);

static bool is_patient(const al_acquire_options *options) { return options->patient && options->timeout > 0; }

bool al_retry_is_wanted(const al_acquire_options *options) {
  return options && (is_patient(options) || options->settle > 0);
}

#define BROKEN_MOST 5 /* attempts, of an acquire that is not patient */

static bool passes(al_retry *self, al_code code) {
  bool is_broken = code == AL_UNREACHABLE && self->op.session->quorum.has_broken;
  if (!is_patient(&self->options)) return is_broken && ++self->broken < BROKEN_MOST;
  return code == AL_UNREACHABLE || code == AL_UNAVAILABLE || code == AL_BLOCKED;
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

/* Of a mutex that this operation has already. */
static void settling_words(const al_retry *self, char out[AL_MESSAGE_SIZE]) {
  double seconds = (double)self->options.settle / (double)AL_SECOND;
  if (self->sealing.was_sealed)
    snprintf(out, AL_MESSAGE_SIZE, "its last lock did not end by a release, so it settles for %g s", seconds);
  else
    snprintf(out, AL_MESSAGE_SIZE, "it has come, and the broker is asked whether it has settled");
}

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_retry *self = (const al_retry *)op;
  const al_op *attempt = op->inner;
  if (op->lock)
    settling_words(self, out);
  else if (attempt && !attempt->done && attempt->waits_since != AL_NEVER)
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
  if (inner->waits_since != AL_NEVER) al_op_waits(op);
  attempting(op);
}

/* In place of the notes of each attempt's connection. */
static void note_pause(const al_retry *self, const al_op *attempt) {
  al_session_unnote(self->op.session, attempt->told);
  if (attempt->code != self->last)
    al_session_note(self->op.session, true, attempt->code, self->name, "\"%s\" is not acquired yet: %.400s",
                    self->name, attempt->message);
}

static void pause_for(al_retry *self, al_code code) {
  al_op *op = &self->op;
  self->last = code;
  al_op_enter(op, pausing);
  op->wake = op->session->now + al_backoff_next(&self->pause, &op->session->random);
  op->deadline = self->until;
  al_op_waits(op);
}

static void pause_after(al_retry *self, const al_op *attempt) {
  note_pause(self, attempt);
  if (attempt->waits_since != AL_NEVER) self->pause.next = 0;
  snprintf(self->last_words, sizeof self->last_words, "%s", attempt->message);
  pause_for(self, attempt->code);
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
  op->watches_claims = false;
  al_locks_count(op);
  al_op_finish(op);
}

/* ---- a mutex that settles (seal.h) ------------------------------------------------------------------------------ */

static void settle(al_retry *self) {
  al_op *op = &self->op;
  op->deadline = self->until;
  al_op_watch(op, op->lock->claim);
  al_sealing_begin(&self->sealing, op, op->lock, self->options.settle);
  al_op_next(op, settling);
}

/* Watches nothing any more, so that it is not stepped by the changes that this makes. */
static void give_back(al_retry *self) {
  al_op *op = &self->op;
  op->watches_claims = false;
  al_op_watch(op, NULL);
  al_sealing_cancel(&self->sealing);
  al_locks_drop(op);
}

static void lost(al_retry *self) {
  al_op *op = &self->op;
  const al_claim *claim = op->lock->claim;
  bool is_down = al_link_is_lost(claim->link);
  snprintf(self->last_words, sizeof self->last_words, "it was lost again before it had settled: %s",
           claim->why);
  if (is_down) {
    al_op_fail_link(op, claim->link);
  } else if (self->options.timeout <= 0) {
    al_op_fail(op, AL_BUSY, "\"%s\": %s", self->name, self->last_words);
  } else {
    give_back(self);
    pause_for(self, AL_BUSY);
  }
}

static void settling(al_op *op) {
  al_retry *self = (al_retry *)op;
  if (al_sealing_poll(&self->sealing)) {
    al_op_next(op, making_sure);
    return;
  }
  if (op->done || !self->sealing.was_sealed) return;
  char words[AL_MESSAGE_SIZE];
  settling_words(self, words);
  if (self->options.timeout > 0)
    al_op_waits(op);
  else
    al_op_fail(op, AL_BUSY, "\"%s\" is not free yet: %.300s", self->name, words);
}

static void making_sure(al_op *op) {
  if (op->lock->claim->state != AL_CLAIM_HELD)
    lost((al_retry *)op);
  else if (al_claim_ascertain_for(op))
    finish(op);
}

/* ---- how an attempt ends ---------------------------------------------------------------------------------------- */

/* Called when the attempt ends. It must not free the attempt, whose end is still under way. */
static void attempting(al_op *op) {
  al_retry *self = (al_retry *)op;
  al_op *attempt = op->inner;
  if (!attempt->done) return;
  if (attempt->code == AL_OK) {
    al_op_take_locks(op, attempt);
    if (self->options.settle > 0 && self->attempts.is_mutex)
      settle(self);
    else
      finish(op);
  } else if (passes(self, attempt->code)) {
    pause_after(self, attempt);
  } else {
    fail(self, attempt);
  }
}

/* Only the timer comes further than the first line, when no step of another operation is under way. */
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
  give_back(self);
}

static void retry_free(al_op *op) {
  al_retry *self = (al_retry *)op;
  drop_attempt(op);
  al_locks_drop(op);
  al_sealing_free(&self->sealing);
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
