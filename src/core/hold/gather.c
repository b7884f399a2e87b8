/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/gather.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/backoff.h"
#include "core/base/moves.h"
#include "core/hold/lock.h"
#include "core/hold/retry.h"
#include "core/session/session.h"
#include "core/session/turn.h"

typedef enum { ENTERING, TAKING, LEAVING, VERIFYING } gather_phase; /* what the inner operation is for */

typedef struct gather {
  al_op op;
  const al_gather_kind *kind;
  void *from;
  char name[AL_NAME_SIZE];
  al_acquire_options how; /* of each acquire of one */
  int64_t until;          /* the caller's deadline */
  size_t count;
  al_lock *gate; /* while it has the gate; NULL */
  gather_phase phase;
  al_op *census;     /* asks how many there are; NULL */
  int64_t census_at; /* when to ask next */
} gather;

static const al_move moves[] = {{ENTERING, TAKING},     /* it has the gate */
                                {TAKING, TAKING},       /* it has one more */
                                {TAKING, LEAVING},      /* it has all */
                                {LEAVING, VERIFYING},   /* one of them is not certain */
                                {VERIFYING, VERIFYING}, /* one more */
                                AL_MOVES_END};

static void go(gather *self, gather_phase phase) {
  al_move_check(moves, self->phase, phase);
  self->phase = phase;
}

static void awaiting(al_op *op);
static void advancing(al_op *op);

bool al_gather_is_wanted(const al_acquire_options *options) { return options && options->count > 1; }

/* ---- words ------------------------------------------------------------------------------------------------------ */

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const gather *self = (const gather *)op;
  const al_op *inner = op->inner;
  char standing[AL_MESSAGE_SIZE] = "";
  if (inner && !inner->done && inner->waits_since != AL_NEVER) inner->standing(inner, standing);
  snprintf(out, AL_MESSAGE_SIZE, "%zu of %zu taken; %.400s%s", op->locks_count, self->count,
           self->phase == ENTERING ? "others take several: " : "", standing);
}

/* ---- failing ---------------------------------------------------------------------------------------------------- */

static void fail_short(gather *self, size_t there_are) {
  al_op_fail(&self->op, AL_LIMIT, "%zu %ss of \"%s\" are wanted at once, and there are %zu", self->count,
             self->kind->unit, self->name, there_are);
}

static void fail_as(gather *self, al_op *inner) {
  char message[AL_MESSAGE_SIZE];
  al_code code = inner->code;
  snprintf(message, sizeof message, "%s", al_op_words(inner));
  self->op.told = inner->told;
  al_op_drop(inner);
  al_op_fail(&self->op, code, "%zu of %zu %ss of \"%s\" were taken: %.300s", self->op.locks_count,
             self->count, self->kind->unit, self->name, message);
}

static void fail_lost(gather *self, const al_lock *lock) {
  char words[AL_LOCK_WORDS];
  al_lock_words(lock, words);
  if (lock == self->gate)
    al_op_fail(&self->op, AL_LOST, "the gate of \"%s\" was lost, while %ss were taken: %.300s", self->name,
               self->kind->unit, al_lock_reason(lock));
  else
    al_op_fail(&self->op, AL_LOST, "%s, while others were taken: %.300s", words, al_lock_reason(lock));
}

/* ---- how many there are ----------------------------------------------------------------------------------------- */

static void begin_census(gather *self) {
  al_op *op = &self->op;
  self->census_at = AL_NEVER;
  if (!self->kind->count) return;
  al_op_drop(self->census);
  self->census = self->kind->count(self->from);
  if (self->census) self->census->outer = op;
  self->census_at = al_deadline_after(op->session->now, self->how.poll);
}

/* Returns how many there are; 0: it is not known. A census that fails tells nothing. */
static size_t counted(const gather *self) {
  const al_op *census = self->census;
  if (census && census->done && census->code == AL_OK && census->count > 0) return census->count;
  bool is_taking = self->phase == TAKING && self->op.inner;
  return is_taking && self->kind->seen ? self->kind->seen(self->op.inner) : 0;
}

static bool is_short(gather *self) {
  size_t there_are = counted(self);
  if (there_are == 0 || there_are >= self->count) return false;
  fail_short(self, there_are);
  return true;
}

/* The step while the gather itself changes claims, of which the session tells it, too. */
static void busy(al_op *op) { (void)op; }

/* ---- one after the other ---------------------------------------------------------------------------------------- */

static void await(gather *self, al_op *inner) {
  al_op *op = &self->op;
  if (!inner) {
    al_op_fail(op, AL_NO_MEMORY, "acquiring \"%s\"", self->name);
    return;
  }
  op->inner = inner;
  inner->outer = op;
  if (self->until != AL_NEVER) inner->deadline = self->until;
  al_op_enter(op, awaiting);
  awaiting(op);
}

static void begin_inner(gather *self, al_op *acquire(void *, const al_acquire_options *)) {
  self->op.step = busy;
  self->op.session->nests++;
  al_op *inner = acquire(self->from, &self->how);
  self->op.session->nests--;
  await(self, inner);
}

/* Returns false if one is not certain to be held: it is being verified, or the operation has failed. */
static bool are_certain(gather *self) {
  al_op *op = &self->op;
  for (size_t i = 0; i < op->locks_count; i++) {
    al_lock *lock = op->locks[i];
    al_code code = al_lock_held(lock, op->session->now);
    if (code == AL_OK) continue;
    go(self, VERIFYING);
    if (code == AL_SUSPECT)
      await(self, al_lock_verify(lock));
    else
      fail_lost(self, lock);
    return false;
  }
  return true;
}

/* The inner operation does not owe the gate (al_claim_undo). If the gather fails meanwhile, the gather owes it, and is
 * over when the gate is gone. */
static void leave_gate(gather *self) {
  go(self, LEAVING);
  self->op.step = busy;
  await(self, al_lock_release(self->gate));
}

static void go_on(gather *self) {
  al_op *op = &self->op;
  if (op->locks_count < self->count) {
    go(self, TAKING);
    begin_inner(self, self->kind->take);
  } else if (self->gate) {
    leave_gate(self);
  } else if (are_certain(self)) {
    al_op_abandon(op, self->census);
    al_locks_count(op);
    al_op_finish(op);
  }
}

/* Without the gate, two gathers that take could wait for what the other one has. The inner operation tells that the
 * connection is lost. */
static const al_lock *lost_one(const gather *self) {
  if (al_link_is_lost(&self->op.session->holder)) return NULL;
  if (self->gate && self->phase == TAKING && al_lock_was_lost(self->gate)) return self->gate;
  for (size_t i = 0; i < self->op.locks_count; i++)
    if (al_lock_was_lost(self->op.locks[i])) return self->op.locks[i];
  return NULL;
}

/* Called when the inner operation ends, and when a claim changes. It must not free the inner operation, whose end is
 * still under way: a timer does. */
static void awaiting(al_op *op) {
  gather *self = (gather *)op;
  if (is_short(self)) return;
  if (op->inner->done || lost_one(self)) {
    al_op_enter(op, advancing);
    op->wake = 0; /* due at once */
    return;
  }
  if (op->session->now >= self->census_at) begin_census(self);
  op->wake = self->census_at;
}

static void drop_gate(gather *self) {
  al_lock_drop(self->gate);
  self->gate = NULL;
}

static bool is_fine(const gather *self, al_code code) {
  bool is_held = self->phase == VERIFYING && code == AL_REMOVED;
  bool is_gone = self->phase == LEAVING && code == AL_LOST;
  return code == AL_OK || is_held || is_gone;
}

static void advancing(al_op *op) {
  gather *self = (gather *)op;
  if (!al_op_is_woken(op)) return;
  op->step = busy;
  const al_lock *lost = lost_one(self);
  if (lost) {
    fail_lost(self, lost);
    return;
  }
  al_op *inner = op->inner;
  op->inner = NULL;
  if (!is_fine(self, inner->code)) {
    fail_as(self, inner);
    return;
  }
  if (self->phase == ENTERING) self->gate = al_op_lock(inner);
  if (self->phase == TAKING) op->locks[op->locks_count++] = al_op_lock(inner);
  al_op_drop(inner);
  if (self->phase == LEAVING) drop_gate(self);
  go_on(self);
}

/* ---- beginning and ending --------------------------------------------------------------------------------------- */

/* Callers that share a connection may wait for one another. */
static void beginning(al_op *op) {
  gather *self = (gather *)op;
  if (!op->session->is_shared && self->kind->is_holder(self->from)) {
    al_op_fail(op, AL_DEADLOCK, "this connection holds a %s of \"%s\" already", self->kind->unit, self->name);
    return;
  }
  begin_census(self);
  begin_inner(self, self->kind->enter);
}

static void gather_stop(al_op *op) {
  gather *self = (gather *)op;
  op->step = busy;
  op->deadline = self->until;
  if (op->inner) al_locks_drop(op->inner);
  al_op_abandon(op, op->inner);
  al_op_abandon(op, self->census);
  al_locks_drop(op);
  al_lock_undo(self->gate, op);
  self->gate = NULL;
}

static void gather_free(al_op *op) {
  gather *self = (gather *)op;
  al_op_drop(op->inner);
  al_op_drop(self->census);
  al_locks_drop(op);
  self->kind->leave(self->from);
}

static al_op *begin(al_session *session, const char *name, const al_gather_kind *kind, void *from,
                    const al_acquire_options *options) {
  gather *self = (gather *)al_op_new(session, sizeof *self, name);
  if (!self) return NULL;
  al_op *op = &self->op;
  kind->use(from);
  self->kind = kind;
  self->from = from;
  self->count = (size_t)options->count;
  self->how = *options;
  self->how.count = 1;
  self->how.patient = false;
  self->how.settle = 0; /* of its gate */
  self->until = options->timeout > 0 ? al_deadline_after(session->now, options->timeout) : AL_NEVER;
  snprintf(self->name, sizeof self->name, "%s", name);
  op->is_acquire = true;
  op->at_most = options->at_most;
  op->watches_claims = true;
  op->stop = gather_stop;
  op->free = gather_free;
  op->standing = describe;
  op->locks = calloc(self->count, sizeof *op->locks);
  if (op->locks) return al_op_start(op, beginning, AL_NEVER);
  al_op_drop(op);
  return NULL;
}

static al_op *attempt(const al_retry *retry) {
  al_acquire_options left = retry->options;
  if (retry->until != AL_NEVER) left.timeout = retry->until - retry->op.session->now;
  return begin(retry->op.session, retry->name, retry->attempts.kind, retry->attempts.from, &left);
}

al_op *al_gather_begin(al_session *session, const char *name, const al_gather_kind *kind, void *from,
                       const al_acquire_options *options) {
  AL_TURN(session);
  kind->use(from);
  return al_retry_begin(session, name, options,
                        (al_attempts){.begin = attempt, .leave = kind->leave, .from = from, .kind = kind});
}
