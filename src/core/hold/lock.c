/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/lock.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/kind.h"
#include "core/base/name.h"
#include "core/session/probe.h"
#include "core/session/prober.h"
#include "core/session/session.h"
#include "core/session/turn.h"

al_lock *al_lock_new(al_claim *claim, al_lock_kind kind, const char *name, int slot, al_probing probing) {
  al_lock *lock = calloc(1, sizeof *lock);
  if (!lock) return NULL;
  lock->refs = 1;
  lock->session = claim->session;
  lock->claim = claim;
  lock->kind = kind;
  lock->slot = slot;
  lock->probing = probing;
  snprintf(lock->name, sizeof lock->name, "%s", name);
  al_claim_use(claim);
  al_session_ref(lock->session);
  return lock;
}

void al_lock_renew(al_lock *lock) {
  const al_session *session = lock->session;
  al_session_ticket(lock->session, lock->ticket);
  lock->acquired_at = session->wall + (double)session->now / (double)AL_SECOND;
}

void al_lock_exchange(al_lock *lock, al_claim *claim, al_lock_kind kind) {
  al_claim_leave(lock->former);
  lock->former = lock->claim;
  claim->is_counted = lock->former->is_counted;
  claim->expires_at = lock->former->expires_at;
  al_claim_use(claim);
  lock->claim = claim;
  lock->kind = kind;
}

al_lock *al_lock_ref(al_lock *lock) {
  lock->refs++;
  return lock;
}

void al_lock_unref(al_lock *lock) {
  if (--lock->refs > 0) return;
  al_session *session = lock->session;
  al_claim_leave(lock->claim);
  al_claim_leave(lock->former);
  free(lock);
  al_session_unref(session);
}

/* True if the lock is released without a word to the broker. */
static bool retain(al_lock *lock) {
  al_claim *claim = lock->claim;
  bool may = lock->retain > 0 && claim->state == AL_CLAIM_HELD && claim->kind->retain;
  lock->is_past = may && claim->kind->retain(claim, lock->retain);
  return lock->is_past;
}

/* Does not wait for the answer. */
static void let_go(al_lock *lock) {
  if (lock->is_past) return;
  if (!retain(lock)) {
    al_claim_release(lock->claim);
    al_claim_notify(lock->claim);
  }
  al_session_flush(lock->session);
}

void al_lock_drop(al_lock *lock) {
  if (!lock || al_session_forked(lock->session)) return;
  al_session *session = lock->session;
  al_session_ref(session); /* one more than the lock's own, which al_lock_unref() may drop */
  {
    AL_TURN(session);
    let_go(lock);
    al_lock_unref(lock);
  }
  al_session_unref(session);
}

void al_lock_undo(al_lock *lock, al_op *op) {
  if (lock) al_claim_undo(lock->claim, op);
  al_lock_drop(lock);
}

static void begin_time(al_claim *claim, int64_t most) {
  claim->expires_at = most > 0 ? al_deadline_after(claim->session->now, most) : AL_NEVER;
  if (most > 0) al_claims_sweep_by(claim->session, claim->expires_at);
}

static void count(const al_op *op, al_lock *lock) {
  if (!lock) return;
  al_claim *claim = lock->claim;
  claim->is_counted = true;
  claim->session->counts.acquired++;
  if (claim->is_revoked) claim->session->counts.revoked++; /* while it was claimed */
  begin_time(claim, op->at_most);
}

void al_locks_count(al_op *op) {
  if (op->is_inner) return;
  count(op, op->lock);
  for (size_t i = 0; i < op->locks_count; i++) count(op, op->locks[i]);
}

void al_locks_drop(al_op *op) {
  for (al_lock *lock; (lock = al_op_lock(op)) != NULL;) al_lock_undo(lock, op);
}

/* ---- what it says ----------------------------------------------------------------------------------------------- */

const char *al_lock_words(const al_lock *lock, char out[AL_LOCK_WORDS]) {
  return al_kind_words(out, lock->kind, lock->slot, lock->name);
}

al_lock_kind al_lock_kind_of(const al_lock *lock) { return lock->kind; }
int al_lock_slot(const al_lock *lock) { return lock->slot; }
int64_t al_lock_fence(const al_lock *lock) { return lock->fence; }
const char *al_lock_permit(const al_lock *lock) { return lock->permit; }
const char *al_lock_name(const al_lock *lock) { return lock->name; }
const char *al_lock_ticket(const al_lock *lock) {
  return lock->ticket[0] ? lock->ticket : lock->claim->ticket;
}
double al_lock_acquired_at(const al_lock *lock) {
  return lock->ticket[0] ? lock->acquired_at : lock->claim->acquired_at;
}
const char *al_lock_reason(const al_lock *lock) { return lock->is_past ? "" : lock->claim->why; }

/* By its owner, or together with all others when the session was closed. */
static bool is_let_go(const al_lock *lock) { return lock->released || lock->claim->was_let_go; }

/* Takes the turn: otherwise a loss that the keeper is just recording would be called a doubt. */
static al_code why_not(const al_lock *lock, int64_t now) {
  AL_TURN(lock->session);
  if (!lock->released && lock->claim->state == AL_CLAIM_HELD)
    return al_claim_blame_time(lock->claim, now) ? AL_LOST : AL_SUSPECT;
  return is_let_go(lock) ? AL_NOT_HELD : AL_LOST;
}

/* What it reads without the turn is atomic. So it costs no more than reading the clock. */
al_code al_lock_held(const al_lock *lock, int64_t now) {
  if (al_session_forked(lock->session)) return AL_FORKED;
  bool is_certain =
      !lock->released && lock->claim->state == AL_CLAIM_HELD && now < al_claim_certain_until(lock->claim);
  return is_certain ? AL_OK : why_not(lock, now);
}

int64_t al_lock_certain_until(const al_lock *lock) {
  if (al_session_forked(lock->session)) return 0;
  bool is_held = !lock->released && lock->claim->state == AL_CLAIM_HELD;
  return is_held ? al_claim_certain_until(lock->claim) : 0;
}

bool al_lock_was_lost(const al_lock *lock) {
  if (al_session_forked(lock->session)) return false;
  AL_TURN(lock->session);
  return !lock->is_past && lock->claim->state != AL_CLAIM_HELD && !lock->claim->was_let_go;
}

bool al_lock_revoked(const al_lock *lock) { return !lock->is_past && lock->claim->is_revoked; }

/* ---- operations on it ------------------------------------------------------------------------------------------- */

typedef struct lock_op {
  al_op op;
  al_lock *lock;
  al_probes probes;
  al_claim *seal;  /* of a lock that is released; NULL */
  bool is_removed; /* the slot is */
} lock_op;

static void lock_op_stop(al_op *op) { al_probes_cancel(&((lock_op *)op)->probes); }

static void lock_op_free(al_op *op) {
  lock_op *self = (lock_op *)op;
  al_probes_free(&self->probes);
  al_claim_leave(self->seal);
  al_lock_unref(self->lock);
}

static al_op *lock_op_begin(al_lock *lock, void (*step)(al_op *), const char *step_name) {
  AL_TURN(lock->session);
  lock_op *self = (lock_op *)al_op_new(lock->session, sizeof *self, lock->name);
  if (!self) return NULL;
  self->lock = al_lock_ref(lock);
  al_op_watch(&self->op, lock->claim);
  self->op.stop = lock_op_stop;
  self->op.free = lock_op_free;
  /* begins even if the session is closed, and fails with what became of the lock */
  self->op.is_final = is_let_go(lock);
  al_op_start_at(&self->op, AL_NEVER, step, step_name);
  if (self->op.done) al_session_flush(lock->session); /* nobody waits for this operation */
  return &self->op;
}

bool al_lock_is_still_held(al_op *op, const al_lock *lock) {
  if (!is_let_go(lock) && lock->claim->state == AL_CLAIM_HELD) return !op->done;
  char words[AL_LOCK_WORDS];
  al_lock_words(lock, words);
  if (is_let_go(lock))
    al_op_fail(op, AL_NOT_HELD, "%s was released before", words);
  else
    al_op_fail(op, AL_LOST, "%s: %s", words, lock->claim->why);
  return false;
}

/* The connection was lost, and the broker's answer with it. */
static void is_unconfirmed(al_op *op, const al_lock *lock) {
  char words[AL_LOCK_WORDS];
  al_lock_words(lock, words);
  al_op_fail(op, AL_UNREACHABLE, "%s was released, but the broker did not confirm it: %s", words,
             lock->claim->why);
}

/* Delete B, and know that it is gone (docs/specification.md, 2.5). So is a seal: otherwise the next acquire might
 * find it. */
static void releasing(al_op *op) {
  const lock_op *self = (const lock_op *)op;
  const al_lock *lock = self->lock;
  const al_claim *claim = lock->claim;
  if (self->seal && self->seal->state != AL_CLAIM_GONE) return;
  if (claim->state == AL_CLAIM_GONE && claim->code != AL_OK)
    is_unconfirmed(op, lock);
  else if (claim->state == AL_CLAIM_GONE)
    al_op_finish(op);
  else if (claim->is_denied)
    al_op_fail(op, AL_REFUSED, "\"%s\" may not be deleted; the broker deletes it with its channel: %s",
               claim->queue, claim->denial);
}

static bool may_release(al_op *op) {
  al_lock *lock = ((lock_op *)op)->lock;
  al_claim_expire(lock->claim);
  bool held = al_lock_is_still_held(op, lock);
  lock->released = true;
  if (!held) return false;
  al_op_ask(op);
  al_op_enter(op, releasing);
  return true;
}

static void watch_seal(lock_op *self) {
  self->seal = self->op.claim->seal;
  if (!self->seal) return;
  al_claim_use(self->seal);
  self->op.watches_claims = true;
}

static void release_begin(al_op *op) {
  if (!may_release(op)) return;
  if (retain(((lock_op *)op)->lock)) {
    al_op_finish(op);
    return;
  }
  watch_seal((lock_op *)op);
  al_claim_release(op->claim);
  al_claim_notify(op->claim); /* it may be gone already, while another operation verifies it */
}

static void give_back_begin(al_op *op) {
  if (!may_release(op)) return;
  al_claim_undo(op->claim, op);
  al_claim_notify(op->claim);
}

al_op *al_lock_release(al_lock *lock) {
  al_op *op = lock_op_begin(lock, AL_STEP(release_begin));
  if (!op) al_lock_let_go(lock);
  return op;
}

al_op *al_lock_give_back(al_lock *lock) { return lock_op_begin(lock, AL_STEP(give_back_begin)); }

void al_lock_let_go(al_lock *lock) {
  if (al_session_forked(lock->session)) return;
  AL_TURN(lock->session);
  lock->released = true;
  let_go(lock);
}

/* docs/specification.md, 2.4. B is asked for on the lock's own channel: only the loss of B can close that. A is asked
 * for elsewhere: the 404 of a missing A would release the lock under its holder. */
static void slot_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_lock *lock = context;
  (void)index;
  al_name_slot(out, lock->name, lock->slot);
}

static void verify_begin(al_op *op);

/* True if the operation asks about the claim that is held now. Otherwise it has failed, or begins again with the
 * claim for which al_lock_exchange() has exchanged the other. */
static bool is_same(lock_op *self) {
  al_op *op = &self->op;
  if (!al_lock_is_still_held(op, self->lock)) return false;
  if (op->claim == self->lock->claim) return true;
  al_op_watch(op, self->lock->claim);
  al_op_next(op, verify_begin);
  return false;
}

static void making_sure(al_op *op) {
  lock_op *self = (lock_op *)op;
  if (!is_same(self) || !al_claim_ascertain_for(op)) return;
  if (self->is_removed)
    al_op_fail(op, AL_REMOVED, "an administrator removed slot %d of \"%s\": release it", self->lock->slot,
               self->lock->name);
  else
    al_op_finish(op);
}

static void verifying(al_op *op) {
  lock_op *self = (lock_op *)op;
  if (!is_same(self) || !al_claim_is_confirmed_for(op)) return;
  if (self->lock->kind == AL_LOCK_SLOT) {
    if (self->probes.pending > 0 || al_probes_undecided(&self->probes, 0)) return;
    self->is_removed = self->probes.answers[0] == AL_ANSWER_ABSENT;
  }
  /* An answer that came late may no longer be true. */
  al_op_answered(op);
  al_op_next(op, making_sure);
}

static void verify_begin(al_op *op) {
  lock_op *self = (lock_op *)op;
  al_lock *lock = self->lock;
  bool is_slot = lock->kind == AL_LOCK_SLOT; /* the other kinds need no second queue */
  if (!al_lock_is_still_held(op, lock)) return;
  if (is_slot && !al_probing_needs(op, lock->probing)) return;
  al_op_ask(op);
  if (!al_claim_confirm_for(op)) return;
  al_op_enter(op, verifying);
  if (is_slot) al_probes_begin(&self->probes, op, AL_MESSAGE_PROBE, lock->probing, 1, slot_name, lock);
}

al_op *al_lock_verify(al_lock *lock) { return lock_op_begin(lock, AL_STEP(verify_begin)); }
