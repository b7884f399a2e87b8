/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/holder_wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/session.h"
#include "core/session/turn.h"

static void holder_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_released *released = context;
  al_name_holder(out, released->name, released->slots[index]);
}

/* A request is published or not made at all: also by who was denied publishing before, and may be permitted by now. */
static al_probing probing(const al_session *session, al_request request) {
  return request == AL_REQUEST_NOTHING || session->prober->blocked ? AL_PROBE_AUTO : AL_PROBE_PUBLISH;
}

static size_t answered(const al_released *released, al_answer answer) {
  size_t count = 0;
  for (size_t i = 0; i < released->count; i++) count += released->probes.answers[i] == answer;
  return count;
}

/* The slots that were not last seen free, nor answered like this, behind what stands in `out`. */
static int list_slots(const al_released *released, al_answer other_than, char out[AL_MESSAGE_SIZE],
                      int used) {
  for (size_t i = 0; i < released->count; i++) {
    al_answer answer = released->seen[i];
    if (answer == AL_ANSWER_ABSENT || answer == other_than) continue;
    if (used > AL_MESSAGE_SIZE - 160)
      return used + snprintf(out + used, (size_t)(AL_MESSAGE_SIZE - used), " and more");
    used += snprintf(out + used, (size_t)(AL_MESSAGE_SIZE - used), " %d", released->slots[i]);
  }
  return used;
}

/* ---- looking ---------------------------------------------------------------------------------------------------- */

static void asked(al_op *op);
static void wanted(al_op *op);

static void ask(al_released *released) {
  al_op *op = released->op;
  al_probing how = probing(op->session, released->request);
  if (!al_probing_has(op, how)) return;
  op->step = asked;
  al_op_ask(op);
  released->probes.message = released->request == AL_REQUEST_NOTHING ? AL_MESSAGE_PROBE : AL_MESSAGE_REVOKE;
  al_probes_begin(&released->probes, op, how, released->count, holder_name, released);
}

static void passing_barrier(al_op *op) {
  al_released *released = op->part;
  if (!al_barrier_passed(&released->barrier)) return;
  released->is_sure = true;
  ask(released);
}

static void make_sure(al_released *released) {
  released->op->step = passing_barrier;
  al_barrier_begin(&released->barrier, released->op, AL_PROBE_AUTO, released->name);
}

static void sleeping(al_op *op) {
  if (op->wake == AL_NEVER) al_op_next(op, wanted);
}

static void look_later(al_released *released) {
  al_op *op = released->op;
  op->step = sleeping;
  op->wake = op->session->now + al_wait_next(&released->wait, &op->session->random);
}

static void settle_waiting(al_released *released) {
  bool all_absent = answered(released, AL_ANSWER_ABSENT) == released->count;
  if (all_absent && released->is_sure)
    al_op_finish(released->op);
  else if (all_absent)
    make_sure(released);
  else
    look_later(released);
}

/* ---- asking once ------------------------------------------------------------------------------------------------ */

#define REFUSALS_MOST 8 /* looks, in about a second: longer than any queue takes to go */

/* For those who were not asked. */
static void fail_once(al_released *released, al_code code, al_answer of_others, const char *why) {
  char slots[AL_MESSAGE_SIZE] = "";
  list_slots(released, of_others, slots, 0);
  al_op_fail(released->op, code, "held in \"%s\", and not asked to let go, as %s: slot%s", released->name,
             why, slots);
}

/* They are there, but the question came without the request. */
static void present_unheard(al_released *released) {
  if (released->op->session->prober->blocked)
    fail_once(released, AL_BLOCKED, AL_ANSWER_ABSENT, AL_NO_PUBLISHERS);
  else
    al_op_next(released->op, wanted);
}

static void settle_once(al_released *released) {
  size_t absent = answered(released, AL_ANSWER_ABSENT), present = answered(released, AL_ANSWER_PRESENT);
  bool any_refuses = absent + present < released->count;
  if (any_refuses)
    released->refusals++;
  else if (released->is_sure)
    released->refusals = 0;
  if (present > 0 && released->probes.is_passive)
    present_unheard(released);
  else if (any_refuses && released->refusals < REFUSALS_MOST)
    look_later(released);
  else if (any_refuses)
    fail_once(released, AL_UNAVAILABLE, AL_ANSWER_PRESENT,
              "the holder's queue refuses messages, was taken from it, or its node is down");
  else if (absent > 0 && !released->is_sure)
    make_sure(released);
  else if (present == 0 && released->request == AL_REQUEST_HOLDER)
    al_op_fail(released->op, AL_NOT_HELD, "nobody holds slot %d of \"%s\"", released->slots[0],
               released->name);
  else
    al_op_finish(released->op);
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

/* An alarm has begun before the requests were answered: they may come late, or never. What is left is to look. */
static bool was_cut_short(const al_released *released) {
  return released->request != AL_REQUEST_NOTHING && !released->probes.is_passive &&
         released->op->session->prober->blocked && answered(released, AL_ANSWER_UNKNOWN) > 0;
}

static bool is_decided(al_released *released) {
  bool is_denied = released->request != AL_REQUEST_NOTHING && !released->probes.is_passive &&
                   answered(released, AL_ANSWER_DENIED) > 0;
  if (is_denied)
    al_op_fail(released->op, AL_REFUSED, "the broker denies asking holders in \"%s\" to let go: %s",
               released->name, released->probes.text);
  for (size_t i = 0; i < released->count && !released->op->done; i++)
    if (al_probes_undecided(&released->probes, i)) break;
  return !released->op->done;
}

static void settle(al_released *released) {
  bool shows_anybody = answered(released, AL_ANSWER_ABSENT) < released->count;
  if (shows_anybody)
    memcpy(released->seen, released->probes.answers, released->count * sizeof *released->seen);
  if (released->request == AL_REQUEST_ONCE || released->request == AL_REQUEST_HOLDER)
    settle_once(released);
  else
    settle_waiting(released);
}

static void looking_at_bolts(al_op *op) {
  al_released *released = op->part;
  if (al_bolts_seen(&released->bolts)) settle(released);
}

static bool has_to_see_bolts(const al_released *released) {
  bool needs_bolts = al_link_ends_by_name(&released->op->session->holder);
  return needs_bolts && released->is_sure && answered(released, AL_ANSWER_ABSENT) > 0;
}

static void asked(al_op *op) {
  al_released *released = op->part;
  if (released->probes.pending > 0) return;
  al_op_answered(op);
  if (was_cut_short(released)) {
    ask(released);
    return;
  }
  if (!is_decided(released)) return;
  bool is_request = released->request != AL_REQUEST_NOTHING && !released->probes.is_passive;
  released->was_heard = released->was_heard || (is_request && answered(released, AL_ANSWER_PRESENT) > 0);
  if (has_to_see_bolts(released)) {
    op->step = looking_at_bolts;
    al_bolts_begin(&released->bolts, op, released->probes.answers, released->count, holder_name, released);
  } else {
    settle(released);
  }
}

static void wanted(al_op *op) {
  al_released *released = op->part;
  if (!al_probing_needs(op, probing(op->session, released->request))) return;
  released->is_sure = false;
  ask(released);
}

/* ---- as a part -------------------------------------------------------------------------------------------------- */

void al_released_begin(al_released *released, al_op *op, const char *name, const int *slots, size_t count,
                       al_request request) {
  *released = (al_released){.op = op, .name = name, .request = request, .wait = AL_WAIT_SLOT};
  op->part = released;
  released->slots = malloc((count ? count : 1) * sizeof *slots);
  released->seen = calloc(count ? count : 1, sizeof *released->seen); /* PENDING */
  if (!released->slots || !released->seen) {
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

static const char *explain_request(const al_released *released, const char **why) {
  bool is_blocked = released->op->session->prober->blocked;
  *why = "";
  if (released->request == AL_REQUEST_NOTHING) return "";
  if (released->was_heard)
    return released->count == 1 ? "; its holder was asked to let go" : "; holders were asked to let go";
  if (is_blocked) *why = AL_NO_PUBLISHERS;
  return is_blocked ? "; nobody is known to have been asked to let go, as "
                    : "; nobody is known to have been asked to let go";
}

void al_released_explain(const al_released *released, int64_t timeout, char out[AL_MESSAGE_SIZE]) {
  const char *why, *request = explain_request(released, &why);
  int used = snprintf(out, AL_MESSAGE_SIZE, "still held in \"%s\" after %g s: slot", released->name,
                      (double)timeout / (double)AL_SECOND);
  used = list_slots(released, AL_ANSWER_ABSENT, out, used);
  snprintf(out + used, (size_t)(AL_MESSAGE_SIZE - used), "%s%s", request, why);
}

void al_released_cancel(al_released *released) {
  al_probes_cancel(&released->probes);
  al_barrier_cancel(&released->barrier);
  al_bolts_cancel(&released->bolts);
}

void al_released_free(al_released *released) {
  al_probes_free(&released->probes);
  al_bolts_free(&released->bolts);
  free(released->slots);
  free(released->seen);
}

/* ---- as an operation of its own --------------------------------------------------------------------------------- */

typedef struct wait_op {
  al_op op;
  char name[AL_NAME_SIZE];
  al_admin_options options;
  int64_t patience;
  int slot; /* to be revoked */
  al_released released;
} wait_op;

static void wait_stop(al_op *op) { al_released_cancel(&((wait_op *)op)->released); }

static void wait_free(al_op *op) { al_released_free(&((wait_op *)op)->released); }

static void wait_explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const wait_op *self = (const wait_op *)op;
  if (self->released.count > 0)
    al_released_explain(&self->released, self->patience, out);
  else
    snprintf(out, AL_MESSAGE_SIZE, "no connection to ask for slot %d of \"%s\" within %g s", self->slot,
             self->name, (double)self->patience / (double)AL_SECOND);
}

static wait_op *wait_new(al_session *session, const char *name, const al_admin_options *options) {
  wait_op *self = (wait_op *)al_op_new(session, sizeof *self);
  if (!self) return NULL;
  al_admin_options_init(&self->options);
  if (options) self->options = *options;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->patience = self->options.timeout;
  self->op.stop = wait_stop;
  self->op.free = wait_free;
  self->op.explain = wait_explain;
  return self;
}

static void wait_nothing(al_op *op) { (void)op; }

al_op *al_admin_wait_released(al_session *session, const char *name, const int *slots, size_t count,
                              const al_admin_options *options) {
  AL_TURN(session);
  wait_op *self = wait_new(session, name, options);
  if (!self) return NULL;
  al_request request = self->options.revoke ? AL_REQUEST_REVOKE : AL_REQUEST_NOTHING;
  al_op_start(&self->op, wait_nothing, al_wait_until(session->now, self->patience));
  if (!self->op.done) al_released_begin(&self->released, &self->op, self->name, slots, count, request);
  return &self->op;
}

/* Connecting takes nothing of the time to wait: whoever is waited for has been asked. */
static void revoke_wanting_links(al_op *op) {
  wait_op *self = (wait_op *)op;
  int64_t wait = self->options.wait;
  al_request request = wait > 0 ? AL_REQUEST_REVOKE : AL_REQUEST_HOLDER;
  if (!al_probing_needs(op, probing(op->session, request))) return;
  if (wait > 0) {
    self->patience = wait;
    op->deadline = al_wait_until(op->session->now, wait);
  }
  al_released_begin(&self->released, op, self->name, &self->slot, 1, request);
}

al_op *al_admin_revoke(al_session *session, const char *name, int slot, const al_admin_options *options) {
  AL_TURN(session);
  wait_op *self = wait_new(session, name, options);
  if (!self) return NULL;
  self->slot = slot;
  return al_op_start(&self->op, revoke_wanting_links, al_wait_until(session->now, self->patience));
}
