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
  const al_holder_wait *holders = context;
  al_name_holder(out, holders->name, holders->slots[index]);
}

/* Only a published message carries a request. So a request is published also if the broker denied this user to
 * publish before: by now the permission may be there. */
static al_probing probing(const al_session *session, al_request request) {
  return request == AL_REQUEST_NOTHING || session->prober->blocked ? AL_PROBE_AUTO : AL_PROBE_PUBLISH;
}

static size_t answered(const al_holder_wait *holders, al_answer answer) {
  size_t count = 0;
  for (size_t i = 0; i < holders->count; i++) count += holders->probes.answers[i] == answer;
  return count;
}

/* Appends to `out` the slots whose last answer was neither ABSENT nor `other_than`. */
static int list_slots(const al_holder_wait *holders, al_answer other_than, char out[AL_MESSAGE_SIZE],
                      int used) {
  for (size_t i = 0; i < holders->count; i++) {
    al_answer answer = holders->seen[i];
    if (answer == AL_ANSWER_ABSENT || answer == other_than) continue;
    if (used > AL_MESSAGE_SIZE - 160)
      return used + snprintf(out + used, (size_t)(AL_MESSAGE_SIZE - used), " and more");
    used += snprintf(out + used, (size_t)(AL_MESSAGE_SIZE - used), " %d", holders->slots[i]);
  }
  return used;
}

/* ---- checking --------------------------------------------------------------------------------------------------- */

static void asked(al_op *op);
static void wanted(al_op *op);

static void ask(al_holder_wait *holders) {
  al_op *op = holders->op;
  al_probing how = probing(op->session, holders->request);
  if (!al_probing_has(op, how)) return;
  op->step = asked;
  al_op_ask(op);
  al_message message = holders->request == AL_REQUEST_NOTHING ? AL_MESSAGE_PROBE : AL_MESSAGE_REVOKE;
  al_probes_begin(&holders->probes, op, message, how, holders->count, holder_name, holders);
}

static void passing_barrier(al_op *op) {
  al_holder_wait *holders = op->part;
  if (!al_barrier_poll(&holders->barrier)) return;
  holders->is_sure = true;
  ask(holders);
}

static void make_sure(al_holder_wait *holders) {
  holders->op->step = passing_barrier;
  al_barrier_begin(&holders->barrier, holders->op, AL_PROBE_AUTO, holders->name);
}

static void sleeping(al_op *op) {
  if (al_op_is_woken(op)) al_op_next(op, wanted);
}

static void check_later(al_holder_wait *holders) {
  al_op *op = holders->op;
  op->step = sleeping;
  op->wake = op->session->now + al_backoff_next(&holders->wait, &op->session->random);
}

static void settle_waiting(al_holder_wait *holders) {
  bool all_absent = answered(holders, AL_ANSWER_ABSENT) == holders->count;
  if (all_absent && holders->is_sure)
    al_op_finish(holders->op);
  else if (all_absent)
    make_sure(holders);
  else
    check_later(holders);
}

/* ---- asking once ------------------------------------------------------------------------------------------------ */

#define REFUSALS_MOST 8 /* checks, in about a second: longer than any queue takes to end */

/* Fails with the slots whose holders were not asked to release: those not answered `of_others`. */
static void fail_once(al_holder_wait *holders, al_code code, al_answer of_others, const char *why) {
  char slots[AL_MESSAGE_SIZE] = "";
  list_slots(holders, of_others, slots, 0);
  al_op_fail(holders->op, code, "holders in \"%s\" were not asked to release, because %s: slot%s",
             holders->name, why, slots);
}

/* There are holders, but the question was a passive declare, which carries no request. */
static void present_unheard(al_holder_wait *holders) {
  if (holders->op->session->prober->blocked)
    fail_once(holders, AL_BLOCKED, AL_ANSWER_ABSENT, AL_NO_PUBLISHERS);
  else
    al_op_next(holders->op, wanted);
}

static void settle_once(al_holder_wait *holders) {
  size_t absent = answered(holders, AL_ANSWER_ABSENT), present = answered(holders, AL_ANSWER_PRESENT);
  bool any_refuses = absent + present < holders->count;
  if (any_refuses)
    holders->refusals++;
  else if (holders->is_sure)
    holders->refusals = 0;
  if (present > 0 && holders->probes.is_passive)
    present_unheard(holders);
  else if (any_refuses && holders->refusals < REFUSALS_MOST)
    check_later(holders);
  else if (any_refuses)
    fail_once(holders, AL_UNAVAILABLE, AL_ANSWER_PRESENT,
              "the holder's queue refuses messages, was deleted, or its node is down");
  else if (absent > 0 && !holders->is_sure)
    make_sure(holders);
  else if (present == 0 && holders->request == AL_REQUEST_HOLDER)
    al_op_fail(holders->op, AL_NOT_HELD, "slot %d of \"%s\" is not held", holders->slots[0], holders->name);
  else
    al_op_finish(holders->op);
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

/* An alarm began before the requests were answered: the answers may come late, or never. Passive declares still
 * work. */
static bool was_cut_short(const al_holder_wait *holders) {
  return holders->request != AL_REQUEST_NOTHING && !holders->probes.is_passive &&
         holders->op->session->prober->blocked && answered(holders, AL_ANSWER_UNKNOWN) > 0;
}

static bool is_decided(al_holder_wait *holders) {
  bool is_denied = holders->request != AL_REQUEST_NOTHING && !holders->probes.is_passive &&
                   answered(holders, AL_ANSWER_DENIED) > 0;
  if (is_denied)
    al_op_fail(holders->op, AL_REFUSED, "this user may not ask holders in \"%s\" to release: %s",
               holders->name, holders->probes.text);
  for (size_t i = 0; i < holders->count && !holders->op->done; i++)
    if (al_probes_undecided(&holders->probes, i)) break;
  return !holders->op->done;
}

static void settle(al_holder_wait *holders) {
  bool shows_anybody = answered(holders, AL_ANSWER_ABSENT) < holders->count;
  if (shows_anybody) memcpy(holders->seen, holders->probes.answers, holders->count * sizeof *holders->seen);
  if (holders->request == AL_REQUEST_ONCE || holders->request == AL_REQUEST_HOLDER)
    settle_once(holders);
  else
    settle_waiting(holders);
}

static void checking_bolts(al_op *op) {
  al_holder_wait *holders = op->part;
  if (al_bolt_check_poll(&holders->bolts)) settle(holders);
}

static bool has_to_see_bolts(const al_holder_wait *holders) {
  bool needs_bolts = al_link_ends_by_name(&holders->op->session->holder);
  return needs_bolts && holders->is_sure && answered(holders, AL_ANSWER_ABSENT) > 0;
}

static void asked(al_op *op) {
  al_holder_wait *holders = op->part;
  if (holders->probes.pending > 0) return;
  al_op_answered(op);
  if (was_cut_short(holders)) {
    ask(holders);
    return;
  }
  if (!is_decided(holders)) return;
  bool is_request = holders->request != AL_REQUEST_NOTHING && !holders->probes.is_passive;
  holders->was_heard = holders->was_heard || (is_request && answered(holders, AL_ANSWER_PRESENT) > 0);
  if (has_to_see_bolts(holders)) {
    op->step = checking_bolts;
    al_bolt_check_begin(&holders->bolts, op, holders->probes.answers, holders->count, holder_name, holders);
  } else {
    settle(holders);
  }
}

static void wanted(al_op *op) {
  al_holder_wait *holders = op->part;
  if (!al_probing_needs(op, probing(op->session, holders->request))) return;
  holders->is_sure = false;
  ask(holders);
}

/* ---- as a part -------------------------------------------------------------------------------------------------- */

void al_holder_wait_begin(al_holder_wait *holders, al_op *op, const char *name, const int *slots,
                          size_t count, al_request request) {
  *holders = (al_holder_wait){.op = op, .name = name, .request = request, .wait = AL_BACKOFF_SLOT};
  op->part = holders;
  holders->slots = malloc((count ? count : 1) * sizeof *slots);
  holders->seen = calloc(count ? count : 1, sizeof *holders->seen); /* PENDING */
  if (!holders->slots || !holders->seen) {
    al_op_fail(op, AL_NO_MEMORY, "waiting for holders of \"%s\"", name);
    return;
  }
  memcpy(holders->slots, slots, count * sizeof *slots);
  holders->count = count;
  if (count > 0)
    al_op_next(op, wanted);
  else
    al_op_finish(op);
}

static const char *explain_request(const al_holder_wait *holders, const char **why) {
  bool is_blocked = holders->op->session->prober->blocked;
  *why = "";
  if (holders->request == AL_REQUEST_NOTHING) return "";
  if (holders->was_heard)
    return holders->count == 1 ? "; its holder was asked to release it"
                               : "; holders were asked to release them";
  if (is_blocked) *why = AL_NO_PUBLISHERS;
  return is_blocked ? "; no holder is known to have been asked to release it, as "
                    : "; no holder is known to have been asked to release it";
}

void al_holder_wait_explain(const al_holder_wait *holders, int64_t timeout, char out[AL_MESSAGE_SIZE]) {
  const char *why, *request = explain_request(holders, &why);
  int used = snprintf(out, AL_MESSAGE_SIZE, "still held in \"%s\" after %g s: slot", holders->name,
                      (double)timeout / (double)AL_SECOND);
  used = list_slots(holders, AL_ANSWER_ABSENT, out, used);
  snprintf(out + used, (size_t)(AL_MESSAGE_SIZE - used), "%s%s", request, why);
}

void al_holder_wait_cancel(al_holder_wait *holders) {
  al_probes_cancel(&holders->probes);
  al_barrier_cancel(&holders->barrier);
  al_bolt_check_cancel(&holders->bolts);
}

void al_holder_wait_free(al_holder_wait *holders) {
  al_probes_free(&holders->probes);
  al_bolt_check_free(&holders->bolts);
  free(holders->slots);
  free(holders->seen);
}

/* ---- as an operation of its own --------------------------------------------------------------------------------- */

typedef struct wait_op {
  al_op op;
  char name[AL_NAME_SIZE];
  al_admin_options options;
  int64_t patience;
  int slot; /* to be revoked */
  al_holder_wait holders;
} wait_op;

static void wait_stop(al_op *op) { al_holder_wait_cancel(&((wait_op *)op)->holders); }

static void wait_free(al_op *op) { al_holder_wait_free(&((wait_op *)op)->holders); }

static void wait_explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const wait_op *self = (const wait_op *)op;
  if (self->holders.count > 0)
    al_holder_wait_explain(&self->holders, self->patience, out);
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
  self->op.timeout_text = wait_explain;
  return self;
}

static void wait_nothing(al_op *op) { (void)op; }

al_op *al_admin_wait_released(al_session *session, const char *name, const int *slots, size_t count,
                              const al_admin_options *options) {
  AL_TURN(session);
  wait_op *self = wait_new(session, name, options);
  if (!self) return NULL;
  al_request request = self->options.revoke ? AL_REQUEST_REVOKE : AL_REQUEST_NOTHING;
  al_op_start(&self->op, wait_nothing, al_deadline_after(session->now, self->patience));
  if (!self->op.done) al_holder_wait_begin(&self->holders, &self->op, self->name, slots, count, request);
  return &self->op;
}

/* The time to wait begins when the links are open: it is the time that the holder has after it was asked. */
static void revoke_wanting_links(al_op *op) {
  wait_op *self = (wait_op *)op;
  int64_t wait = self->options.wait;
  al_request request = wait > 0 ? AL_REQUEST_REVOKE : AL_REQUEST_HOLDER;
  if (!al_probing_needs(op, probing(op->session, request))) return;
  if (wait > 0) {
    self->patience = wait;
    op->deadline = al_deadline_after(op->session->now, wait);
  }
  al_holder_wait_begin(&self->holders, op, self->name, &self->slot, 1, request);
}

al_op *al_admin_revoke(al_session *session, const char *name, int slot, const al_admin_options *options) {
  AL_TURN(session);
  wait_op *self = wait_new(session, name, options);
  if (!self) return NULL;
  self->slot = slot;
  return al_op_start(&self->op, revoke_wanting_links, al_deadline_after(session->now, self->patience));
}
