/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/claim.h"

#include <assert.h>
#include <stdio.h>

#include "core/base/backoff.h"
#include "core/session/session.h"

/* ---- for the kinds ---------------------------------------------------------------------------------------------- */

void al_claim_init(al_claim *claim, const al_claim_kind *kind, al_session *session, al_link *link,
                   const char *queue) {
  claim->kind = kind;
  claim->session = session;
  claim->link = link;
  claim->users = 1;
  claim->certain_until = claim->expires_at = AL_NEVER;
  snprintf(claim->queue, sizeof claim->queue, "%s", queue);
  al_session_ticket(session, claim->ticket);
}

void al_claim_list(al_claim *claim) {
  claim->next = claim->session->claims;
  claim->session->claims = claim;
  claim->is_listed = true;
}

static void settle(al_claim *claim) {
  uint64_t owed_by = claim->owed_by;
  claim->owed_by = 0;
  if (owed_by != 0) al_op_paid(claim->session, owed_by);
}

void al_claim_deny(al_claim *claim, const char *why) {
  snprintf(claim->denial, sizeof claim->denial, "%.159s", why);
  claim->is_denied = true;
  settle(claim);
}

/* The seal goes only with a lock that was released. */
static void unseal(al_claim *claim) {
  al_claim *seal = claim->seal;
  claim->seal = NULL;
  if (claim->was_let_go)
    al_claim_release(seal);
  else if (seal->state == AL_CLAIM_HELD)
    seal->kind->release(seal);
  al_claim_leave(seal);
}

void al_claim_enter(al_claim *claim, al_claim_state state) {
  static const char *const words[] = {"being claimed", "held", "being released", "being undone", "gone"};
  AL_TRACE(claim->session->holder.trace, "\"%s\" is %s", claim->queue, words[state]);
  al_move_check(claim->kind->moves, claim->state, state);
  claim->link->pulses += (state == AL_CLAIM_HELD) - (claim->state == AL_CLAIM_HELD);
  claim->state = state;
  if (state == AL_CLAIM_GONE || state == AL_CLAIM_UNDOING) claim->session->needs_cleanup = true;
  if (claim->seal && state != AL_CLAIM_HELD) unseal(claim);
  if (state != AL_CLAIM_GONE) return;
  if (claim->kind->gone) claim->kind->gone(claim);
  settle(claim);
}

static void tell_revoked(al_claim *claim) {
  char name[AL_NAME_SIZE];
  if (claim->is_counted) claim->session->counts.revoked++;
  al_queue_parse(claim->queue, name, NULL);
  al_session_note(claim->session, false, AL_OK, name,
                  "another client asks the holder of \"%s\" to release it", claim->queue);
  al_session_alert(claim->session);
}

void al_claim_got(al_claim *claim) {
  claim->acquired_at = claim->session->wall + (double)claim->session->now / (double)AL_SECOND;
  al_claim_enter(claim, AL_CLAIM_HELD);
  if (claim->is_revoked) tell_revoked(claim);
}

void al_claim_blame(al_claim *claim, al_code code, const char *why) {
  if (claim->code != AL_OK) return;
  AL_TRACE(claim->session->holder.trace, "\"%s\" is not ours: %s: %s", claim->queue, al_code_name(code), why);
  claim->code = code;
  snprintf(claim->why, sizeof claim->why, "%.*s", (int)sizeof claim->why - 1, why);
}

void al_claim_lose(al_claim *claim, const char *why) {
  al_claim_blame(claim, AL_LOST, why);
  if (claim->state != AL_CLAIM_HELD || claim->was_let_go) return;
  char name[AL_NAME_SIZE];
  if (claim->is_counted) claim->session->counts.lost++;
  al_queue_parse(claim->queue, name, NULL);
  al_session_note(claim->session, true, AL_LOST, name, "\"%s\" was lost: %s", claim->queue, claim->why);
  al_session_alert(claim->session);
}

void al_claim_revoke(al_claim *claim) {
  bool is_ours = claim->state == AL_CLAIM_CLAIMING || claim->state == AL_CLAIM_HELD;
  if (!is_ours || claim->is_revoked) return;
  claim->is_revoked = true;
  if (claim->state == AL_CLAIM_HELD) tell_revoked(claim);
}

void al_claim_notify(al_claim *claim) {
  for (al_op *op = claim->session->ops, *next; op; op = next) {
    next = op->next;
    if (!op->done && (op->claim == claim || op->watches_claims)) al_op_step(op);
  }
}

/* ---- for those who hold ----------------------------------------------------------------------------------------- */

void al_claim_release(al_claim *claim) {
  if (claim->state != AL_CLAIM_CLAIMING && claim->state != AL_CLAIM_HELD) return;
  claim->was_let_go = true;
  if (claim->seal) unseal(claim); /* first, so that the next holder seldom finds it */
  claim->kind->release(claim);
}

bool al_claim_blame_time(al_claim *claim, int64_t now) {
  if (now < claim->expires_at) return false;
  al_claim_blame(claim, AL_LOST, "expired: it was held for as long as its acquire allows (at_most)");
  return true;
}

int64_t al_claim_expire(al_claim *claim) {
  if (claim->state != AL_CLAIM_HELD || claim->was_let_go) return AL_NEVER;
  if (!al_claim_blame_time(claim, claim->session->now)) return claim->expires_at;
  al_claim_lose(claim, "");
  claim->kind->release(claim);
  al_claim_notify(claim);
  return AL_NEVER;
}

void al_claim_undo(al_claim *claim, al_op *op) {
  if (claim->state == AL_CLAIM_GONE || claim->is_denied) return;
  if (claim->owed_by == 0)
    claim->owed_by = al_op_owe(op); /* an operation may fail while it undoes its claim */
  al_claim_release(claim);
  if (claim->lingers) settle(claim);
}

int al_claim_confirm(al_claim *claim) {
  assert(claim->state == AL_CLAIM_HELD);
  if (!claim->kind->confirm(claim)) return 0;
  return ++claim->asked;
}

int64_t al_claim_certain_until(const al_claim *claim) {
  int64_t until = al_earlier(al_link_certain_until(claim->link), claim->certain_until);
  return al_earlier(until, claim->expires_at);
}

void al_claim_use(al_claim *claim) { claim->users++; }

/* The claim is freed later, by al_claims_sweep(): the caller of this function may still use it. */
void al_claim_leave(al_claim *claim) {
  if (!claim || --claim->users > 0 || claim->is_listed) return;
  al_claim_list(claim);
  claim->session->needs_cleanup = true;
}

/* ---- for the operation that watches it -------------------------------------------------------------------------- */

bool al_claim_confirm_for(al_op *op) {
  op->awaited = al_claim_confirm(op->claim);
  if (op->awaited == 0)
    al_op_fail_channel(op, op->claim->link, "no channel is left on the connection to ask for \"%s\"",
                       op->claim->queue);
  return !op->done;
}

bool al_claim_is_confirmed_for(const al_op *op) { return op->claim->confirmed >= op->awaited; }

bool al_claim_ascertain_for(al_op *op) {
  if (!al_claim_is_confirmed_for(op)) return false;
  if (op->session->now < al_claim_certain_until(op->claim)) {
    al_op_answered(op);
    return true;
  }
  if (op->reply_by == AL_NEVER)
    al_op_ask(op); /* one timeout for all questions, as every answer may be late again */
  al_claim_confirm_for(op);
  return false;
}

void al_claim_doubt_text(const al_op *op, int64_t time, char out[AL_MESSAGE_SIZE]) {
  snprintf(out, AL_MESSAGE_SIZE, "\"%s\" was granted late, and not confirmed within %g s", op->claim->queue,
           (double)time / (double)AL_SECOND);
}

/* ---- for the session -------------------------------------------------------------------------------------------- */

void al_claims_down(al_session *session) {
  for (al_claim *claim = session->claims; claim; claim = claim->next)
    if (claim->kind->down) claim->kind->down(claim);
}

/* Takes a claim that is GONE off the list, also if it is still used. There may be thousands of these: locks that were
 * released and that Lua has not collected yet. */
static void put_away(al_claim **at) {
  al_claim *claim = *at;
  *at = claim->next;
  claim->is_listed = false;
  if (claim->users == 0) claim->kind->free(claim);
}

void al_claims_sweep(al_session *session) {
  if (!session->needs_cleanup) return;
  session->needs_cleanup = false;
  session->cleanup_due = AL_NEVER;
  for (al_claim *claim = session->claims; claim; claim = claim->next) {
    int64_t expires_at = al_claim_expire(claim),
            due = claim->kind->sweep ? claim->kind->sweep(claim) : AL_NEVER;
    session->cleanup_due = al_earlier(session->cleanup_due, al_earlier(expires_at, due));
  }
  session->needs_cleanup |= session->cleanup_due != AL_NEVER;
  for (al_claim **at = &session->claims; *at;) {
    al_claim *claim = *at;
    if (claim->state == AL_CLAIM_GONE) {
      put_away(at);
      continue;
    }
    session->needs_cleanup |= claim->state == AL_CLAIM_UNDOING;
    at = &claim->next;
  }
}

void al_claims_sweep_by(al_session *session, int64_t time) {
  session->needs_cleanup = true;
  session->cleanup_due = al_earlier(session->cleanup_due, time);
}

void al_claims_free(al_session *session) {
  for (al_claim *claim = session->claims, *next; claim; claim = next) {
    next = claim->next;
    claim->kind->free(claim);
  }
  session->claims = NULL;
}
