/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A writer behind the door that it has shut (rwlock.h) counts the readers, until nobody reads.
 *
 *   claimed ─> passing_barrier ─> counting ─> nobody, and asked behind the barrier: done, with a lock
 *                      ^              │ ^
 *                      └── nobody ────┤ └───────────────────────┐
 *                                     └─ somebody: sleeping ────┘ a message to the door, or the time */
#include "core/base/name.h"
#include "core/locks/rwlock.h"
#include "core/session/session.h"

enum { READERS, NOBODY, QUESTIONS };

static al_rw_acquire *rw_of(al_op *op) { return (al_rw_acquire *)op; }

static void count(al_op *op);
static void counting(al_op *op);
static void wait_for_readers(al_op *op);

/* False: the door is not ours any more, or readers cannot be counted. The operation has failed, or goes its way. */
static bool may_go_on(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  if (!al_rw_is_behind_door(self)) {
    al_rw_cancel(self);
    al_acquire_missed(self);
    return false;
  }
  if (op->session->prober->blocked)
    al_op_fail(
        op, AL_BLOCKED,
        "the readers of \"%s\" cannot be counted while the broker reads no publishers (memory or disk alarm)",
        self->resource->name);
  return !op->done;
}

/* A writer that waits goes on with another prober, as the prober holds nothing. But where nobody can tell who reads,
 * the door is kept shut no longer than the session's timeout. */
static void lost_prober(al_op *op) {
  al_rw_acquire *rw = rw_of(op);
  const al_session *session = op->session;
  if (rw->blind_since == AL_NEVER) rw->blind_since = session->now;
  if (rw->acquire.options.timeout > 0 && session->now - rw->blind_since < session->settings.timeout)
    wait_for_readers(op);
  else
    al_op_fail_link(op, session->prober);
}

static void passing_barrier(al_op *op) {
  al_rw_acquire *rw = rw_of(op);
  if (!may_go_on(op)) return;
  if (rw->barrier.is_lost) {
    lost_prober(op);
  } else if (al_barrier_poll(&rw->barrier)) {
    rw->is_sure = true;
    al_op_next(op, count);
  }
}

static bool has_prober(al_op *op) {
  if (!al_op_lost_prober(op)) return al_probing_needs(op, AL_PROBE_PUBLISH);
  lost_prober(op);
  return false;
}

/* Nobody seems to read: asks once more, behind a metadata write of our own. */
static void make_sure(al_op *op) {
  if (!may_go_on(op) || !has_prober(op)) return;
  al_op_enter(op, passing_barrier);
  al_barrier_begin(&rw_of(op)->barrier, op, AL_PROBE_PUBLISH, rw_of(op)->acquire.resource->name);
}

static void sleeping(al_op *op) {
  al_rw_acquire *rw = rw_of(op);
  if (!may_go_on(op)) return;
  if (op->wake != AL_NEVER && rw->acquire.own->woken == rw->woken) return;
  al_link_forget(op->session->prober);
  al_op_next(op, count);
}

static void wait_for_readers(al_op *op) {
  al_rw_acquire *rw = rw_of(op);
  al_session *session = op->session;
  if (!al_acquire_may_wait(&rw->acquire)) return;
  al_op_answered(op);
  int64_t delay = al_backoff_next(&rw->wait, &session->random), poll = rw->acquire.options.poll;
  rw->is_sure = false;
  al_op_enter(op, sleeping);
  op->wake = session->now + (delay < poll ? delay : poll);
  /* A message may have come while we were asking. A lost prober is replaced only later, when every operation has
   * heard of the loss. */
  if (!al_op_lost_prober(op)) sleeping(op);
}

static void readers_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_acquire *self = context;
  if (index == READERS)
    al_name(out, AL_SUFFIX_READERS, self->resource->name);
  else
    al_name_scratch(out, self->resource->name, self->own->claim.ticket);
}

/* The last question goes together with one about the door: the door may have been taken from us long ago. */
static void count(al_op *op) {
  al_rw_acquire *rw = rw_of(op);
  if (!may_go_on(op) || !has_prober(op)) return;
  if (rw->is_sure && !al_claim_confirm_for(op)) return;
  al_op_enter(op, counting);
  rw->woken = rw->acquire.own->woken;
  al_op_ask(op);
  al_probes_begin(&rw->readers, op, AL_MESSAGE_READERS, AL_PROBE_PUBLISH, QUESTIONS, readers_name, rw);
}

static void decide(al_op *op) {
  al_rw_acquire *rw = rw_of(op);
  bool nobody = rw->readers.answers[READERS] == AL_ANSWER_ABSENT;
  rw->met_readers = !nobody;
  if (rw->readers.answers[NOBODY] != AL_ANSWER_ABSENT)
    al_op_fail(op, AL_CONFLICT, AL_ALTERNATE_WORDS, rw->acquire.resource->name);
  else if (nobody && rw->is_sure)
    al_acquire_hand_over(&rw->acquire);
  else if (nobody)
    al_op_next(op, make_sure);
  else
    wait_for_readers(op);
}

static bool is_lost(const al_rw_acquire *rw) {
  const al_answer *answers = rw->readers.answers;
  bool is_unknown = answers[READERS] == AL_ANSWER_UNKNOWN || answers[NOBODY] == AL_ANSWER_UNKNOWN;
  return is_unknown && al_op_lost_prober(&rw->acquire.op);
}

static void counting(al_op *op) {
  al_rw_acquire *rw = rw_of(op);
  if (!may_go_on(op) || rw->readers.pending > 0) return;
  if (is_lost(rw)) {
    lost_prober(op);
    return;
  }
  if (al_probes_undecided(&rw->readers, READERS) || al_probes_undecided(&rw->readers, NOBODY)) return;
  if (!al_claim_is_confirmed_for(op)) return;
  al_op_answered(op);
  rw->blind_since = AL_NEVER;
  decide(op);
}

/* Mostly nobody reads. So the first question is at once asked behind the barrier, as an answer that counts must be. */
void al_rw_count_readers(al_acquire *self) {
  al_rw_acquire *rw = (al_rw_acquire *)self;
  rw->wait = AL_BACKOFF_READERS;
  rw->is_sure = rw->met_readers = false;
  rw->blind_since = AL_NEVER;
  al_op_next(&self->op, make_sure);
}
