/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/seal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/queue/declare.h"
#include "core/session/probe.h"
#include "core/session/session.h"

/* ---- the seal --------------------------------------------------------------------------------------------------- */

typedef struct seal {
  al_claim claim;      /* first */
  al_channel *channel; /* NULL: GONE */
  int64_t settle;
} seal;

static void end(seal *self) {
  self->channel = NULL;
  al_claim_enter(&self->claim, AL_CLAIM_GONE);
}

static void seal_event(void *owner, al_channel *channel, const al_event *event) {
  seal *self = owner;
  if (event->kind == AL_EVENT_CLOSED && self->claim.state == AL_CLAIM_CLAIMING)
    al_claim_blame(&self->claim, al_event_code(event, AL_SQUATTED, AL_REMOVED), event->text);
  if (event->kind == AL_EVENT_CLOSED || event->kind == AL_EVENT_DOWN) {
    end(self);
  } else if (event->kind == AL_EVENT_METHOD && event->method == AMQP_BASIC_CONSUME_OK_METHOD) {
    al_claim_enter(&self->claim, AL_CLAIM_HELD);
  } else if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DELETE_OK_METHOD) {
    al_channel_give(channel);
    end(self);
  }
  al_claim_notify(&self->claim);
}

/* What is left of an earlier seal may have another lease, and goes first. */
static void put_on(seal *self) {
  const char *queue = self->claim.queue;
  int number = self->channel->number;
  amqp_queue_delete_t former = {.queue = amqp_cstring_bytes(queue), .nowait = 1};
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(queue),
                                  .consumer_tag = amqp_cstring_bytes(self->claim.ticket),
                                  .no_ack = 1};
  al_link_method(self->claim.link, number, AMQP_QUEUE_DELETE_METHOD, &former);
  al_declare_seal(self->channel, queue, self->settle);
  al_channel_call(self->channel, AMQP_BASIC_CONSUME_METHOD, &consume);
}

static void take_off(seal *self) {
  amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(self->claim.ticket), .nowait = 1};
  amqp_queue_delete_t delete = {.queue = amqp_cstring_bytes(self->claim.queue), .if_unused = 1};
  al_link_method(self->claim.link, self->channel->number, AMQP_BASIC_CANCEL_METHOD, &cancel);
  al_channel_call(self->channel, AMQP_QUEUE_DELETE_METHOD, &delete);
}

/* The lock was lost, or has run out of its time, or its acquire has failed: the seal stays, without a consumer. */
static void leave_behind(seal *self) {
  al_channel_close(self->channel);
  end(self);
}

static void seal_release(al_claim *claim) {
  seal *self = (seal *)claim;
  if (!claim->was_let_go || claim->state != AL_CLAIM_HELD) {
    leave_behind(self);
    return;
  }
  take_off(self);
  al_claim_enter(claim, AL_CLAIM_RELEASING);
}

static void seal_free(al_claim *claim) { free(claim); }

static const al_move moves[] = {
    {AL_CLAIM_CLAIMING, AL_CLAIM_HELD},  /* consume-ok */
    {AL_CLAIM_HELD, AL_CLAIM_RELEASING}, /* a release of the lock; or another seal takes its place */
    /* CLAIMING: the broker refuses (code says why), or the acquire has failed. HELD: the lock was lost. RELEASING: the
     * queue is deleted, or is in use by the next lock. Any: the link, or the channel, ended */
    {AL_ANY, AL_CLAIM_GONE},
    AL_MOVES_END};

static al_claim *seal_begin(al_op *op, al_link *link, const char *queue, int64_t settle) {
  static const al_claim_kind kind = {.moves = moves, .release = seal_release, .free = seal_free};
  seal *self = calloc(1, sizeof *self);
  if (!self) {
    al_op_fail(op, AL_NO_MEMORY, "sealing \"%s\"", queue);
    return NULL;
  }
  self->channel = al_channel_take(link, seal_event, self);
  if (!self->channel) {
    free(self);
    al_op_fail_channel(op, link,
                       "all %d channels of the connection are in use; a lock that settles takes two",
                       link->channel_max);
    return NULL;
  }
  al_claim_init(&self->claim, &kind, op->session, link, queue);
  al_claim_list(&self->claim);
  self->settle = settle;
  put_on(self);
  return &self->claim;
}

/* ---- looking, and sealing --------------------------------------------------------------------------------------- */

typedef struct sealing {
  al_op op;
  al_lock *lock;
  int64_t settle;
  int64_t waits_until; /* the seal of an earlier lock counts until then */
  bool waits;
  bool was_sealed; /* one was there */
  al_backoff pause;
  al_probes probes;
  char queue[AL_NAME_SIZE];
  al_claim *seal; /* which is being put on; NULL */
} sealing;

static void looking(al_op *op);
static void asking(al_op *op);
static void pausing(al_op *op);
static void putting_on(al_op *op);
static void making_sure(al_op *op);

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const sealing *self = (const sealing *)op;
  if (self->was_sealed)
    snprintf(out, AL_MESSAGE_SIZE, "its last lock did not end by a release, so it settles for %g s",
             (double)self->settle / (double)AL_SECOND);
  else
    snprintf(out, AL_MESSAGE_SIZE, "it has come, and the broker is asked whether it has settled");
}

static bool is_held(const sealing *self) { return self->lock->claim->state == AL_CLAIM_HELD; }

/* For each step: true if the mutex is still held. Otherwise the operation has failed. */
static bool has_mutex(sealing *self) {
  const al_claim *claim = self->lock->claim;
  if (is_held(self)) return true;
  if (al_link_is_open(claim->link))
    al_op_fail(&self->op, AL_BUSY, "\"%s\" was lost again before it had settled: %s", claim->queue,
               claim->why);
  else
    al_op_fail_link(&self->op, claim->link);
  return false;
}

static void name_queue(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  memcpy(out, ((const sealing *)context)->queue, AL_NAME_SIZE);
}

static void looking(al_op *op) {
  sealing *self = (sealing *)op;
  al_probing probing = self->lock->probing;
  if (!has_mutex(self) || !al_probing_needs(op, probing)) return;
  al_op_ask(op);
  al_op_enter(op, asking);
  al_probes_begin(&self->probes, op, AL_MESSAGE_PROBE, probing, 1, name_queue, self);
}

static void look_again(sealing *self, int64_t latest) {
  al_op *op = &self->op;
  int64_t pause = al_backoff_next(&self->pause, &op->session->random);
  al_op_answered(op);
  al_op_enter(op, pausing);
  op->wake = al_earlier(al_deadline_after(op->session->now, pause), latest);
}

/* If the prober was lost meanwhile, another one will do, as it holds nothing. */
static void pausing(al_op *op) {
  if (!has_mutex((sealing *)op) || !al_op_is_woken(op)) return;
  al_link_forget(op->session->prober);
  al_op_next(op, looking);
}

static void wait_or_fail(sealing *self) {
  char words[AL_MESSAGE_SIZE];
  self->was_sealed = true;
  if (self->waits) {
    al_op_waits(&self->op);
    look_again(self, self->waits_until);
    return;
  }
  describe(&self->op, words);
  al_op_fail(&self->op, AL_BUSY, "\"%s\" is not free yet: %.300s", self->lock->name, words);
}

static void seal_it(sealing *self) {
  al_op_ask(&self->op);
  al_op_enter(&self->op, putting_on);
  self->seal = seal_begin(&self->op, self->lock->claim->link, self->queue, self->settle);
}

static void asking(al_op *op) {
  sealing *self = (sealing *)op;
  if (!has_mutex(self) || self->probes.pending > 0) return;
  al_answer answer = self->probes.answers[0];
  if (answer == AL_ANSWER_UNKNOWN && self->waits && al_op_lost_prober(op))
    look_again(self, AL_NEVER);
  else if (al_probes_undecided(&self->probes, 0))
    return;
  else if (answer == AL_ANSWER_ABSENT || op->session->now >= self->waits_until)
    seal_it(self);
  else
    wait_or_fail(self);
}

static void leave_seal(sealing *self) {
  al_claim_leave(self->seal);
  self->seal = NULL;
}

/* If the node of the seal before is down, the lock goes without a seal, when it has settled. If the seal was deleted in
 * place of the one before, it is put on again. */
static void was_refused(sealing *self) {
  al_op *op = &self->op;
  const al_claim *seal = self->seal; /* it stays, though it is left, until this step is over */
  leave_seal(self);
  al_op_answered(op);
  if (seal->code == AL_UNAVAILABLE && op->session->now < self->waits_until)
    wait_or_fail(self); /* with RabbitMQ 3.10 such a queue seems to be absent */
  else if (seal->code == AL_UNAVAILABLE)
    al_op_next(op, making_sure);
  else if (seal->code == AL_REMOVED)
    seal_it(self);
  else if (!al_link_is_open(seal->link))
    al_op_fail_link(op, seal->link);
  else
    al_op_fail(op, seal->code, "\"%s\" was not sealed: %s", self->lock->claim->queue, seal->why);
}

static void putting_on(al_op *op) {
  sealing *self = (sealing *)op;
  if (!has_mutex(self) || self->seal->state == AL_CLAIM_CLAIMING) return;
  if (self->seal->state != AL_CLAIM_HELD) {
    was_refused(self);
    return;
  }
  al_op_answered(op);
  self->lock->claim->seal = self->seal;
  self->seal = NULL;
  al_op_next(op, making_sure);
}

static void making_sure(al_op *op) {
  if (has_mutex((sealing *)op) && al_claim_ascertain_for(op)) al_op_finish(op);
}

/* ---- beginning and ending --------------------------------------------------------------------------------------- */

static void beginning(al_op *op) {
  sealing *self = (sealing *)op;
  al_claim *former = self->lock->claim->seal;
  if (!former || !is_held(self)) {
    al_op_next(op, looking);
    return;
  }
  self->lock->claim->seal = NULL; /* it was retained with the seal of another time */
  al_claim_release(former);
  al_claim_leave(former);
  seal_it(self);
}

static void sealing_stop(al_op *op) {
  sealing *self = (sealing *)op;
  op->watches_claims = false;
  al_probes_cancel(&self->probes);
  if (self->seal) al_claim_release(self->seal);
  leave_seal(self);
}

static void sealing_free(al_op *op) {
  sealing *self = (sealing *)op;
  al_probes_free(&self->probes);
  al_lock_unref(self->lock);
}

bool al_lock_is_sealed(const al_lock *lock, int64_t settle) {
  const al_claim *claim = lock->claim;
  bool is_on = claim->state == AL_CLAIM_HELD && claim->seal && claim->seal->state == AL_CLAIM_HELD;
  return is_on && ((const seal *)claim->seal)->settle == settle;
}

al_op *al_sealing_begin(al_lock *lock, int64_t settle, bool waits) {
  al_session *session = lock->session;
  sealing *self = (sealing *)al_op_new(session, sizeof *self, lock->name);
  if (!self) return NULL;
  self->lock = al_lock_ref(lock);
  self->settle = settle;
  self->waits = waits;
  self->waits_until = al_deadline_after(session->now, settle);
  self->pause = (al_backoff){.first = 5 * AL_MILLISECOND, .most = 1 * AL_SECOND};
  al_name(self->queue, AL_SUFFIX_SEAL, lock->claim->queue);
  self->op.watches_claims = true;
  self->op.stop = sealing_stop;
  self->op.free = sealing_free;
  self->op.standing = describe;
  al_op_watch(&self->op, lock->claim);
  return al_op_start(&self->op, beginning, AL_NEVER);
}
