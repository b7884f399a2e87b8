/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/holder_wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/session.h"

static void holder_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_holder_wait *holders = context;
  if (index == holders->count)
    snprintf(out, AL_NAME_SIZE, "%s", holders->nobody);
  else if (holders->held == AL_HELD_SLOTS)
    al_name_holder(out, holders->name, holders->slots[index]);
  else if (holders->held == AL_HELD_MUTEX)
    al_name(out, AL_SUFFIX_MUTEX, holders->name);
  else if (holders->held == AL_HELD_DOOR)
    al_name(out, AL_SUFFIX_DOOR, holders->name);
  else
    al_name(out, AL_SUFFIX_READERS, holders->name);
}

/* The words that differ. */
static const struct words {
  const char *whom, *not_held, *still_held, *asked;
} words[] = {[AL_HELD_MUTEX] = {"the holder of mutex \"%s\" was", "mutex \"%s\" is not held",
                                "mutex \"%s\" is still held", "; its holder was asked to release it"},
             [AL_HELD_DOOR] = {"the writer of \"%s\" was", "nobody writes \"%s\"",
                               "\"%s\" has a writer still", "; its writer was asked to release it"},
             [AL_HELD_READERS] = {"the readers of \"%s\" were", "nobody reads \"%s\"",
                                  "\"%s\" has readers still", "; its readers were asked to release it"}};

/* Only a published message carries a request. So a request is published also if the broker denied this user to
 * publish before: by now the permission may be there. */
al_probing al_holder_wait_probing(const al_session *session, al_held held, al_request request) {
  if (held == AL_HELD_READERS) return AL_PROBE_PUBLISH;
  return request == AL_REQUEST_NOTHING || session->prober->blocked ? AL_PROBE_AUTO : AL_PROBE_PUBLISH;
}

static al_probing probing(const al_holder_wait *holders) {
  return al_holder_wait_probing(holders->op->session, holders->held, holders->request);
}

static al_message message(const al_holder_wait *holders) {
  bool asks_only = holders->request == AL_REQUEST_NOTHING;
  if (holders->held == AL_HELD_READERS) return asks_only ? AL_MESSAGE_READERS : AL_MESSAGE_REVOKE_READERS;
  return asks_only ? AL_MESSAGE_PROBE : AL_MESSAGE_REVOKE;
}

/* Of the readers' key alone the answer proves nothing: an alternate exchange may take each message. */
static size_t questions(const al_holder_wait *holders) {
  return holders->count + (holders->held == AL_HELD_READERS);
}

static void set_nobody(al_holder_wait *holders) {
  char ticket[AL_TICKET_SIZE];
  al_session_ticket(holders->op->session, ticket);
  al_name_scratch(holders->nobody, holders->name, ticket);
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
  al_probing how = probing(holders);
  if (!al_probing_has(op, how)) return;
  al_op_enter(op, asked);
  al_op_ask(op);
  if (holders->held == AL_HELD_READERS) set_nobody(holders);
  al_probes_begin(&holders->probes, op, message(holders), how, questions(holders), holder_name, holders);
}

static void passing_barrier(al_op *op) {
  al_holder_wait *holders = op->part;
  if (!al_barrier_poll(&holders->barrier)) return;
  holders->is_sure = true;
  ask(holders);
}

static void make_sure(al_holder_wait *holders) {
  al_op_enter(holders->op, passing_barrier);
  al_barrier_begin(&holders->barrier, holders->op, AL_PROBE_AUTO, holders->name);
}

static void sleeping(al_op *op) {
  if (al_op_is_woken(op)) al_op_next(op, wanted);
}

static void check_later(al_holder_wait *holders) {
  al_op *op = holders->op;
  al_op_enter(op, sleeping);
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
  if (holders->held != AL_HELD_SLOTS) {
    snprintf(slots, sizeof slots, words[holders->held].whom, holders->name);
    al_op_fail(holders->op, code, "%.300s not asked to release, because %s", slots, why);
    return;
  }
  list_slots(holders, of_others, slots, 0);
  al_op_fail(holders->op, code, "holders in \"%s\" were not asked to release, because %s: slot%s",
             holders->name, why, slots);
}

static void fail_not_held(al_holder_wait *holders) {
  char text[AL_MESSAGE_SIZE];
  if (holders->held == AL_HELD_SLOTS)
    snprintf(text, sizeof text, "slot %d of \"%s\" is not held", holders->slots[0], holders->name);
  else
    snprintf(text, sizeof text, words[holders->held].not_held, holders->name);
  al_op_fail(holders->op, AL_NOT_HELD, "%s", text);
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
    fail_not_held(holders);
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
  for (size_t i = 0; i < questions(holders) && !holders->op->done; i++)
    if (al_probes_undecided(&holders->probes, i)) break;
  if (holders->held == AL_HELD_READERS && !holders->op->done &&
      holders->probes.answers[holders->count] != AL_ANSWER_ABSENT)
    al_op_fail(holders->op, AL_CONFLICT, AL_ALTERNATE_WORDS, holders->name);
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
  bool needs_bolts = holders->held != AL_HELD_READERS && al_link_ends_by_name(&holders->op->session->holder);
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
    al_op_enter(op, checking_bolts);
    al_bolt_check_begin(&holders->bolts, op, holders->probes.answers, holders->count, holder_name, holders);
  } else {
    settle(holders);
  }
}

static void wanted(al_op *op) {
  al_holder_wait *holders = op->part;
  if (!al_probing_needs(op, probing(holders))) return;
  holders->is_sure = false;
  ask(holders);
}

/* ---- as a part -------------------------------------------------------------------------------------------------- */

static void begin(al_holder_wait *holders, al_op *op, al_held held, const char *name, const int *slots,
                  size_t count, al_request request) {
  *holders =
      (al_holder_wait){.op = op, .name = name, .held = held, .request = request, .wait = AL_BACKOFF_SLOT};
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

void al_holder_wait_begin(al_holder_wait *holders, al_op *op, const char *name, const int *slots,
                          size_t count, al_request request) {
  begin(holders, op, AL_HELD_SLOTS, name, slots, count, request);
}

void al_holder_wait_begin_other(al_holder_wait *holders, al_op *op, al_held held, const char *name,
                                al_request request) {
  begin(holders, op, held, name, &(int){0}, 1, request);
}

static const char *explain_request(const al_holder_wait *holders, const char **why) {
  bool is_blocked = holders->op->session->prober->blocked;
  *why = "";
  if (holders->request == AL_REQUEST_NOTHING) return "";
  if (holders->was_heard && holders->held != AL_HELD_SLOTS) return words[holders->held].asked;
  if (holders->was_heard)
    return holders->count == 1 ? "; its holder was asked to release it"
                               : "; holders were asked to release them";
  if (is_blocked) *why = AL_NO_PUBLISHERS;
  return is_blocked ? "; no holder is known to have been asked to release it, as "
                    : "; no holder is known to have been asked to release it";
}

void al_holder_wait_explain(const al_holder_wait *holders, int64_t timeout, char out[AL_MESSAGE_SIZE]) {
  const char *why, *request = explain_request(holders, &why);
  double seconds = (double)timeout / (double)AL_SECOND;
  int used = 0;
  if (holders->held == AL_HELD_SLOTS) {
    used = snprintf(out, AL_MESSAGE_SIZE, "still held in \"%s\" after %g s: slot", holders->name, seconds);
    used = list_slots(holders, AL_ANSWER_ABSENT, out, used);
  } else {
    used = snprintf(out, AL_MESSAGE_SIZE, words[holders->held].still_held, holders->name);
    used += snprintf(out + used, (size_t)(AL_MESSAGE_SIZE - used), " after %g s", seconds);
  }
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
