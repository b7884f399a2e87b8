/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Downgrading: the writer becomes a reader behind its own door (rwlock.h: the queue that keeps others out while it is
 * shut), and opens the door only then. At no moment another writer can get in. The operation asks the broker whether
 * the door was its own until there was a reader to be counted: the notice that the door was deleted may still be on
 * its way.
 *
 *   claiming ─> making_sure ─> opening ─> reading ─> done
 *
 * Whatever fails before `opening` leaves the writer what it was. The operation ends when it is certain that the lock
 * reads: if the connection was lost unnoticed, writer and reader are both lost. */
#include "core/hold/lock.h"
#include "core/locks/rwlock.h"
#include "core/session/session.h"
#include "core/session/turn.h"

typedef struct downgrade {
  al_op op;
  al_lock *lock;
  al_claim *door;       /* once the lock is held by the reader's claim; NULL */
  al_exclusive *reader; /* until then; NULL */
} downgrade;

static void drop_reader(downgrade *self) {
  if (!self->reader) return;
  al_claim_undo(&self->reader->claim, &self->op);
  al_claim_leave(&self->reader->claim);
  self->reader = NULL;
}

static void downgrade_stop(al_op *op) { drop_reader((downgrade *)op); }

static void downgrade_free(al_op *op) {
  al_claim_leave(((downgrade *)op)->door);
  al_lock_unref(((downgrade *)op)->lock);
}

/* Another downgrade may have put its reader in the place of ours. */
static void reading(al_op *op) {
  const al_lock *lock = ((downgrade *)op)->lock;
  if (!al_lock_is_still_held(op, lock)) return;
  if (op->claim != lock->claim) al_op_watch(op, lock->claim);
  if (al_claim_ascertain_for(op)) al_op_finish(op);
}

/* The door is open when the broker says so, as in every release. The lock is a reader by now: whatever becomes of the
 * door, it goes with its channel. If the connection is lost, door and reader both go, one after the other. */
static void opening(al_op *op) {
  const downgrade *self = (downgrade *)op;
  bool is_open = self->door->state == AL_CLAIM_GONE || self->door->is_denied;
  if (!is_open || !al_lock_is_still_held(op, self->lock) || al_link_is_lost(&op->session->holder)) return;
  al_op_answered(op);
  al_op_next(op, reading);
}

static void exchange(downgrade *self) {
  self->door = self->lock->claim;
  al_claim_use(self->door);
  al_lock_exchange(self->lock, &self->reader->claim, AL_LOCK_READ);
  al_claim_leave(&self->reader->claim);
  self->reader = NULL;
  al_op_ask(&self->op);
  al_op_watch(&self->op, self->door);
  al_claim_release(self->door);
  al_op_next(&self->op, opening);
}

/* True if the reader's claim is HELD. If it cannot be, the operation has failed. */
static bool has_reader(downgrade *self) {
  al_op *op = &self->op;
  const al_claim *reader = &self->reader->claim;
  if (reader->state == AL_CLAIM_HELD) return true;
  if (reader->state == AL_CLAIM_CLAIMING) return false;
  if (al_link_is_lost(&op->session->holder))
    al_op_fail_link(op, &op->session->holder);
  else /* LOST would say that the write lock is lost */
    al_op_fail(op, reader->code == AL_LOST ? AL_UNAVAILABLE : reader->code, "\"%s\" could not be claimed: %s",
               reader->queue, reader->why);
  return false;
}

/* True also if another downgrade of the same lock was faster, which has made sure of the door. */
static bool reads_by_now(const downgrade *self) { return self->lock->kind == AL_LOCK_READ; }

static void making_sure(al_op *op) {
  downgrade *self = (downgrade *)op;
  if (!al_lock_is_still_held(op, self->lock) || !has_reader(self)) return;
  if (reads_by_now(self) || al_claim_is_confirmed_for(op)) exchange(self);
}

static void make_sure(downgrade *self) {
  al_op_ask(&self->op);
  al_op_watch(&self->op, self->lock->claim);
  if (al_claim_confirm_for(&self->op)) al_op_enter(&self->op, making_sure);
}

static void claiming(al_op *op) {
  downgrade *self = (downgrade *)op;
  if (!al_lock_is_still_held(op, self->lock) || !has_reader(self)) return;
  if (reads_by_now(self))
    exchange(self);
  else
    make_sure(self);
}

static void begin(al_op *op) {
  downgrade *self = (downgrade *)op;
  if (!al_lock_is_still_held(op, self->lock)) return;
  if (reads_by_now(self)) { /* another downgrade may have ended in doubt */
    al_op_next(op, reading);
    return;
  }
  al_op_ask(op);
  al_op_enter(op, claiming);
  self->reader = al_rw_claim_reader(op, self->lock->name, NULL);
}

al_op *al_lock_downgrade(al_lock *lock) {
  AL_TURN(lock->session);
  downgrade *self = (downgrade *)al_op_new(lock->session, sizeof *self, lock->name);
  if (!self) return NULL;
  self->lock = al_lock_ref(lock);
  self->op.stop = downgrade_stop;
  self->op.free = downgrade_free;
  return al_op_start(&self->op, begin, AL_NEVER);
}
