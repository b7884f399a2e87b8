/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/seal.h"

#include <stdlib.h>

#include "core/base/name.h"
#include "core/hold/lock.h"
#include "core/queue/declare.h"
#include "core/session/session.h"

/* ---- the seal --------------------------------------------------------------------------------------------------- */

typedef struct seal {
  al_claim claim;      /* first */
  al_channel *channel; /* NULL: GONE */
} seal;

static void end(seal *self) {
  self->channel = NULL;
  al_claim_enter(&self->claim, AL_CLAIM_GONE);
}

static void seal_event(void *owner, al_channel *channel, const al_event *event) {
  seal *self = owner;
  if (event->kind == AL_EVENT_CLOSED || event->kind == AL_EVENT_DOWN) {
    if (self->claim.state == AL_CLAIM_CLAIMING)
      al_claim_blame(&self->claim, al_event_code(event, AL_SQUATTED, AL_REMOVED), event->text);
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
static void put_on(seal *self, int64_t settle) {
  const char *queue = self->claim.queue;
  int number = self->channel->number;
  amqp_queue_delete_t former = {.queue = amqp_cstring_bytes(queue), .nowait = 1};
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(queue),
                                  .consumer_tag = amqp_cstring_bytes(self->claim.ticket),
                                  .no_ack = 1};
  al_link_method(self->claim.link, number, AMQP_QUEUE_DELETE_METHOD, &former);
  al_declare_seal(self->channel, queue, settle);
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

static void seal_gone(al_claim *claim) { (void)claim; }

static void seal_free(al_claim *claim) { free(claim); }

static const al_move moves[] = {
    {AL_CLAIM_CLAIMING, AL_CLAIM_HELD},  /* consume-ok */
    {AL_CLAIM_HELD, AL_CLAIM_RELEASING}, /* a release of the lock */
    /* CLAIMING: the broker refuses (code says why), or the acquire has failed. HELD: the lock was lost. RELEASING: the
     * queue is deleted, or is in use by the next lock. Any: the link, or the channel, ended */
    {AL_ANY, AL_CLAIM_GONE},
    AL_MOVES_END};

static al_claim *seal_begin(al_op *op, al_link *link, const char *queue, int64_t settle) {
  static const al_claim_kind kind = {
      .moves = moves, .release = seal_release, .gone = seal_gone, .free = seal_free};
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
  put_on(self, settle);
  return &self->claim;
}

/* ---- looking, and sealing --------------------------------------------------------------------------------------- */

#define LOOKS_AGAIN ((al_backoff){.first = 5 * AL_MILLISECOND, .most = 1 * AL_SECOND})

void al_sealing_begin(al_sealing *sealing, al_op *op, al_lock *lock, int64_t settle) {
  int64_t now = op->session->now;
  sealing->op = op;
  sealing->lock = lock;
  sealing->settle = settle;
  sealing->looks_at = now;
  sealing->waits_until = al_deadline_after(now, settle);
  sealing->was_sealed = false;
  sealing->pause = LOOKS_AGAIN;
  al_name(sealing->queue, AL_SUFFIX_SEAL, lock->claim->queue);
  op->watches_claims = true;
}

static void name_queue(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  memcpy(out, ((const al_sealing *)context)->queue, AL_NAME_SIZE);
}

/* A prober that was lost holds nothing, and another one will do. */
static void look(al_sealing *self) {
  al_op *op = self->op;
  al_probing probing = self->lock->probing;
  if (al_op_lost_prober(op)) al_link_forget(op->session->prober);
  if (!al_probing_needs(op, probing)) return;
  self->looks_at = AL_NEVER;
  al_op_ask(op);
  al_probes_begin(&self->probes, op, AL_MESSAGE_PROBE, probing, 1, name_queue, self);
}

static void look_later(al_sealing *self) {
  al_op *op = self->op;
  int64_t pause = al_backoff_next(&self->pause, &op->session->random);
  self->looks_at = al_earlier(al_deadline_after(op->session->now, pause), self->waits_until);
  op->wake = self->looks_at;
}

/* True if no seal stands in the way. */
static bool is_clear(al_sealing *self) {
  al_op *op = self->op;
  if (self->looks_at <= op->session->now) look(self);
  if (op->done || self->looks_at != AL_NEVER || self->probes.pending > 0) return false;
  al_op_answered(op);
  bool lost_prober = self->probes.answers[0] == AL_ANSWER_UNKNOWN && al_op_lost_prober(op);
  if (!lost_prober && al_probes_undecided(&self->probes, 0)) return false;
  bool is_absent = self->probes.answers[0] == AL_ANSWER_ABSENT;
  if (is_absent || (!lost_prober && op->session->now >= self->waits_until)) return true;
  self->was_sealed |= !lost_prober;
  look_later(self);
  return false;
}

/* True if the seal is on, or the seal before is out of reach: that then lets each acquire wait. If the seal was deleted in
 * place of the one before, it is put on again. */
static bool is_sealed(al_sealing *self) {
  al_claim *seal = self->seal;
  bool is_gone = seal && seal->state == AL_CLAIM_GONE, is_down = is_gone && seal->code == AL_UNAVAILABLE;
  if (is_down || (is_gone && seal->code == AL_REMOVED)) {
    al_claim_leave(seal);
    seal = self->seal = NULL;
  }
  if (is_down) return true;
  if (!seal) {
    al_op_ask(self->op);
    self->seal = seal_begin(self->op, self->lock->claim->link, self->queue, self->settle);
    return false;
  }
  if (seal->state == AL_CLAIM_GONE)
    al_op_fail(self->op, seal->code, "\"%s\" was not sealed: %s", self->lock->claim->queue, seal->why);
  return seal->state == AL_CLAIM_HELD;
}

bool al_sealing_poll(al_sealing *self) {
  al_claim *claim = self->lock->claim;
  if (claim->state != AL_CLAIM_HELD || claim->seal) return true; /* it was retained with its seal */
  if (!self->seal && !is_clear(self)) return false;
  if (!is_sealed(self)) return false;
  al_op_answered(self->op);
  claim->seal = self->seal;
  self->seal = NULL;
  return true;
}

void al_sealing_cancel(al_sealing *self) {
  if (!self->op) return;
  al_probes_cancel(&self->probes);
  if (self->seal) al_claim_release(self->seal);
  al_claim_leave(self->seal);
  self->seal = NULL;
}

void al_sealing_free(al_sealing *self) { al_probes_free(&self->probes); }
