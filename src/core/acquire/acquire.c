/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/acquire.h"

#include <stdio.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/hold/lock.h"
#include "core/hold/retry.h"
#include "core/session/session.h"
#include "core/session/turn.h"

/* The steps, in the order of their first call. The diagram in acquire.h shows the ways between them. */
static void search(al_op *op);
static void reading(al_op *op);
static void searching(al_op *op);
static void claiming(al_op *op);
static void drawing_token(al_op *op);
static void handing_over(al_op *op);
static void pausing(al_op *op);
static void joining(al_op *op);
static void checking_squatters(al_op *op);
static void waiting(al_op *op);

static void search_anew(al_op *op);
static void found_free(al_acquire *self);
static void found_nothing(al_acquire *self);

/* ---- beginning -------------------------------------------------------------------------------------------------- */

static void acquire_stop(al_op *op);
static void acquire_free(al_op *op);
static void timeout_text(al_op *op, char out[AL_MESSAGE_SIZE]);

void al_acquire_options_init(al_acquire_options *options) {
  *options = (al_acquire_options){.timeout = AL_NEVER, .poll = 5 * AL_SECOND};
}

/* Otherwise it searches once. */
static bool waits(const al_acquire *self) { return self->options.timeout > 0; }

static al_op *begin(al_resource *resource, const al_acquire_kind *kind, size_t size,
                    const al_acquire_options *options) {
  al_acquire *self = (al_acquire *)al_op_new(resource->session, size, resource->name);
  if (!self) return NULL;
  al_acquire_options_init(&self->options);
  if (options) self->options = *options;
  resource->refs++;
  self->op.is_acquire = true;
  self->op.at_most = self->options.at_most;
  self->kind = kind;
  self->resource = resource;
  self->reconnects = AL_BACKOFF_SLOT;
  al_line_init(&self->line, &self->op, resource, &self->options, kind->line);
  al_pacing_init(&self->pacing, &self->options, resource->retain > 0);
  al_race_init(&self->race, resource->max_attempts);
  self->op.stop = acquire_stop;
  self->op.free = acquire_free;
  self->op.timeout_text = timeout_text;
  self->op.standing = kind->standing;
  int64_t now = resource->session->now;
  return al_op_start(&self->op, search,
                     waits(self) ? al_deadline_after(now, self->options.timeout) : AL_NEVER);
}

static al_op *attempt(const al_retry *retry) {
  const al_attempts *attempts = &retry->attempts;
  return begin(attempts->from, attempts->kind, attempts->size, &retry->options);
}

static void leave(void *resource) { al_resource_drop(resource); }

al_op *al_acquire_begin(al_resource *resource, const al_acquire_kind *kind, size_t size,
                        const al_acquire_options *options) {
  AL_TURN(resource->session);
  if (!al_retry_is_wanted(options)) return begin(resource, kind, size, options);
  resource->refs++;
  return al_retry_begin(resource->session, resource->name, options,
                        (al_attempts){attempt, leave, resource, kind, size, kind->lock == AL_LOCK_MUTEX});
}

/* ---- what is retained ------------------------------------------------------------------------------------------- */

static al_exclusive *retained(const al_acquire *self) {
  const char *queue = self->kind->retained ? self->kind->retained(self) : NULL;
  return queue ? al_exclusive_retained(self->op.session, queue) : NULL;
}

static void take_retained(al_acquire *self, al_exclusive *own) {
  al_op *op = &self->op;
  if (!self->has_read && op->session->now - op->session->pumped_at >= AL_READ_EVERY) {
    al_op_enter(op, reading);
    op->wake = 0; /* at the next pump */
    return;
  }
  AL_OP_TRACE(op, "takes \"%s\", which is retained", own->claim.queue);
  al_exclusive_take(own);
  al_op_watch(op, &own->claim);
  self->own = own;
  self->was_retained = true;
  al_resource_remember(self->resource, own);
  al_line_leave(&self->line, NULL, false); /* the claim has its own place at the bell */
  al_acquire_hand_over(self);
}

static void reading(al_op *op) {
  if (!al_op_is_woken(op)) return;
  ((al_acquire *)op)->has_read = true;
  al_op_next(op, search);
}

/* ---- searching -------------------------------------------------------------------------------------------------- */

static void search(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  al_exclusive *own = retained(self);
  if (own) {
    take_retained(self, own);
    return;
  }
  if (!al_probing_needs(op, self->resource->probing) || !al_line_begin_search(&self->line)) return;
  al_op_enter(op, searching);
  self->view = (al_search_result){.state = AL_SEARCH_PENDING};
  self->kind->search(self);
  if (self->view.state != AL_SEARCH_PENDING) searching(op);
}

/* If the prober was lost meanwhile, another one will do, as it holds nothing. */
static void search_anew(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  self->course = AL_COURSE_LATER;
  al_link_forget(op->session->prober);
  al_op_next(op, search);
}

static void wait_until(al_acquire *self, int64_t wake) {
  al_op_enter(&self->op, waiting);
  self->op.wake = wake;
  AL_OP_TRACE(&self->op, "searches again after %" PRId64 " ms at the latest",
              (wake - self->op.session->now) / AL_MILLISECOND);
}

/* A waiter goes on without the prober, which holds nothing: the next search opens another. */
static void lost_prober(al_acquire *self) {
  al_session *session = self->op.session;
  if (waits(self))
    wait_until(self, session->now + al_backoff_next(&self->reconnects, &session->random));
  else
    al_op_fail_link(&self->op, session->prober);
}

static void searching(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  switch (self->kind->poll(self)) {
    case AL_SEARCH_PENDING:
      return;
    case AL_SEARCH_LOST:
      lost_prober(self);
      return;
    case AL_SEARCH_FREE:
      AL_OP_TRACE(op, "finds it free (slot %d)", self->view.slot);
      self->last = self->view;
      found_free(self);
      return;
    case AL_SEARCH_NONE:
      AL_OP_TRACE(op, "finds nothing free: %d of %d are held, %d of them here", self->view.busy,
                  self->view.found, self->view.mine);
      self->last = self->view;
      found_nothing(self);
  }
}

/* ---- something is free ------------------------------------------------------------------------------------------ */

static void claim(al_acquire *self) {
  if (!al_op_has(&self->op, &self->op.session->holder)) return;
  al_op_enter(&self->op, claiming);
  al_op_ask(&self->op);
  self->own = self->kind->claim(self);
}

/* The bell's first answer tells whether others wait. */
static void await_bell(al_acquire *self) {
  al_op_enter(&self->op, joining);
  self->op.wake = al_line_mute_at(&self->line);
  joining(&self->op);
}

/* What is free may be meant for another waiter, whose token is on its way: leaves it to the waiters before us, for as
 * long as pacing.h says. */
static void leave_to_others(al_acquire *self) {
  al_session *session = self->op.session;
  bool has_token = al_line_has_token(&self->line);
  bool is_joining = al_line_is_joining(&self->line);
  int64_t left = al_pacing_leave(&self->pacing, has_token, session->now);
  if (self->course == AL_COURSE_FIRST && is_joining && self->kind->may_claim) self->course = AL_COURSE_EARLY;
  AL_OP_TRACE(&self->op, "%s, %s", has_token ? "has a token" : "has no token",
              left > 0 ? "leaves it to earlier waiters" : "leaves it to nobody");
  if (left > 0)
    wait_until(self, session->now + left);
  else if (self->options.fair && !has_token && al_line_ring(&self->line))
    found_nothing(self); /* wakes the first in line, which may be ourselves */
  else
    claim(self);
}

/* Claims at once in three cases: no waiter came before us; there is no time to leave it to others; or others hold the
 * lock beside us. */
static void found_free(al_acquire *self) {
  al_line_kind line = self->kind->line;
  bool fair = self->options.fair, has_time = waits(self) || fair, is_shared = line == AL_LINE_SHARED && !fair;
  if (line != AL_LINE_KEPT && al_line_is_joining(&self->line))
    await_bell(self);
  else if (al_line_is_empty(&self->line) || !has_time || is_shared)
    claim(self);
  else
    leave_to_others(self);
}

/* ---- the claim -------------------------------------------------------------------------------------------------- */

/* The claim, while held, is told whether others wait for it. */
static void remember(al_acquire *self) {
  if (self->kind->line == AL_LINE_MADE) al_resource_remember(self->resource, self->own);
}

static void claiming(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  al_claim_state state = self->own->claim.state;
  if (state == AL_CLAIM_CLAIMING) return;
  if (state != AL_CLAIM_HELD) {
    al_acquire_missed(self);
    return;
  }
  al_op_answered(op);
  remember(self);
  al_line_note_missing(&self->line);
  al_line_leave(&self->line, self->own, !waits(self));
  if (self->kind->claimed)
    self->kind->claimed(self);
  else
    al_acquire_hand_over(self);
}

static void leave_claim(al_acquire *self) {
  if (self->own) al_claim_leave(&self->own->claim);
  self->own = NULL;
  al_op_watch(&self->op, NULL);
}

static void got(al_acquire *self) {
  const al_resource *resource = self->resource;
  self->op.lock =
      al_lock_new(&self->own->claim, self->kind->lock, resource->name, self->view.slot, resource->probing);
  if (!self->op.lock) {
    al_op_fail(&self->op, AL_NO_MEMORY, "\"%s\" was released again", self->own->claim.queue);
    return;
  }
  self->op.lock->fence = self->fence;
  self->op.lock->retain = resource->retain;
  if (self->was_retained) {
    al_lock_renew(self->op.lock);
    self->op.session->counts.retained++;
  }
  leave_claim(self);
  al_locks_count(&self->op);
  al_op_finish(&self->op);
}

/* Only a claim that is still held after the number was drawn may have it. */
static void drawing_token(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  if (self->own->claim.state != AL_CLAIM_HELD) {
    al_fence_token_cancel(&self->fence_token);
    al_acquire_missed(self);
    return;
  }
  self->fence = al_fence_token_poll(&self->fence_token);
  if (self->fence == 0) return;
  al_op_ask(op);
  if (al_claim_confirm_for(op)) al_op_next(op, handing_over);
}

static void handing_over(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  if (self->own->claim.state != AL_CLAIM_HELD)
    al_acquire_missed(self);
  else if (al_claim_ascertain_for(op))
    got(self);
}

void al_acquire_hand_over(al_acquire *self) {
  if (!self->resource->fence[0]) {
    al_op_next(&self->op, handing_over);
    return;
  }
  al_fence_token_begin(&self->fence_token, &self->op, self->resource->fence);
  al_op_next(&self->op, drawing_token);
}

/* ---- a lost race ------------------------------------------------------------------------------------------------ */

/* Another client was faster, or the queue was deleted under the claim. Pauses once, for a random time, so that the
 * same clients do not meet again at once; then searches again. */
static void lost_race(al_acquire *self) {
  al_session *session = self->op.session;
  if (self->kind->missed) self->kind->missed(self);
  if (al_race_is_over(&self->race)) {
    if (al_line_make(&self->line)) found_nothing(self);
    return;
  }
  al_op_enter(&self->op, pausing);
  self->op.wake = session->now + al_race_skew(&session->random);
}

static void pausing(al_op *op) {
  if (al_op_is_woken(op)) search_anew(op);
}

void al_acquire_missed(al_acquire *self) {
  al_op *op = &self->op;
  const al_claim *claim = &self->own->claim; /* it stays, though it is left, until this step is over */
  al_code code = claim->code;
  bool is_race = code == AL_CONTENDED || code == AL_REMOVED || code == AL_UNAVAILABLE || code == AL_LOST;
  bool is_down = al_link_is_lost(&op->session->holder);
  AL_OP_TRACE(op, "%s \"%s\"", is_race ? "has lost the race for" : "cannot claim", claim->queue);
  self->was_retained = false;
  if (is_race) {
    self->op.session->counts.contended++;
    al_race_note(&self->race, self->own);
  }
  al_claim_undo(&self->own->claim, op);
  if (is_down || !is_race)
    al_line_leave(&self->line, self->own, false); /* the bell is rung when the claim is undone */
  leave_claim(self);
  al_op_answered(op);
  if (is_down)
    al_op_fail_link(op, &op->session->holder);
  else if (is_race)
    lost_race(self);
  else
    al_op_fail(op, code, "\"%s\" could not be claimed: %s", claim->queue, claim->why);
}

/* ---- nothing is free -------------------------------------------------------------------------------------------- */

static al_code verdict_on(const al_acquire *self) {
  const al_search_result *view = &self->view;
  bool contended = al_race_is_over(&self->race);
  bool is_own = view->mine == view->found && !self->op.session->is_shared;
  if (waits(self) && !contended && is_own) return AL_DEADLOCK;
  if (contended) return AL_CONTENDED;
  return view->busy == 0 && view->state == AL_SEARCH_NONE ? AL_UNAVAILABLE : AL_BUSY;
}

static void give_up(al_acquire *self) {
  char words[AL_MESSAGE_SIZE];
  if (self->verdict == AL_CONTENDED)
    snprintf(words, sizeof words, "other claims of \"%s\" were faster %d times in a row: %s",
             self->resource->name, self->race.lost, self->race.why);
  else
    self->kind->failure_text(self, self->verdict, words);
  al_op_fail(&self->op, self->verdict, "%s", words);
}

static void wait_in_line(al_acquire *self);

static void wait_or_give_up(al_acquire *self) {
  if (waits(self) && self->verdict != AL_DEADLOCK)
    wait_in_line(self);
  else
    give_up(self);
}

static bool check_squatters(al_acquire *self) {
  if (!al_resource_may_be_squatted(self->resource)) return false;
  al_op_enter(&self->op, checking_squatters);
  if (!al_squatter_begin(&self->squatter, &self->op, (size_t)self->view.suspect_count, self->kind->suspect,
                         self))
    return false;
  al_resource_note_squat_check(self->resource, true);
  return true;
}

static void checking_squatters(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  if (!al_squatter_poll(&self->squatter)) return;
  if (self->squatter.is_ours) al_resource_note_squat_check(self->resource, false);
  wait_or_give_up(self);
}

/* The question of a caller that does not wait ends a retention, and finds the mutex held: the caller asks again, with
 * growing pauses, for 62 ms in all. */
#define ASK_AGAIN_MOST 5

static bool ask_again(al_acquire *self) {
  bool may_be_retained = self->resource->retain > 0 && self->view.busy > 0 && self->view.mine == 0;
  if (waits(self) || !may_be_retained || self->asked_again == ASK_AGAIN_MOST) return false;
  al_op_enter(&self->op, pausing);
  self->op.wake = self->op.session->now + (2 * AL_MILLISECOND << self->asked_again++);
  return true;
}

static void found_nothing(al_acquire *self) {
  al_op_nudge(&self->op); /* fewer slots may be there than a gather wants */
  self->verdict = verdict_on(self);
  if (!ask_again(self) && !check_squatters(self)) wait_or_give_up(self);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

bool al_acquire_may_wait(al_acquire *self) {
  if (waits(self)) al_op_waits(&self->op);
  if (waits(self)) return true;
  self->verdict = AL_BUSY;
  give_up(self);
  return false;
}

static bool fails_with_holder(al_acquire *self) {
  al_link *holder = &self->op.session->holder;
  bool is_lost = al_link_is_lost(holder);
  if (is_lost) al_op_fail_link(&self->op, holder);
  return is_lost;
}

static void search_from_the_start(al_acquire *self) {
  al_race_reset(&self->race);
  search_anew(&self->op);
}

static void wait_in_line(al_acquire *self) {
  al_session *session = self->op.session;
  bool has_token = al_line_has_token(&self->line);
  if (fails_with_holder(self)) return; /* lost during the search */
  al_acquire_may_wait(self);
  al_resource_note_awaited(self->resource);
  if (al_line_join(&self->line)) {
    await_bell(self);
    return;
  }
  if (al_line_is_outdated(&self->line)) {
    /* the search began without that token */
    al_pacing_next_search(&self->pacing, false, session->now, &session->random);
    search_from_the_start(self);
    return;
  }
  int64_t wake = al_pacing_next_search(&self->pacing, has_token, session->now, &session->random);
  if (wake == AL_NEVER) {
    AL_OP_TRACE(&self->op, "%s", "throws its token away, which has led to nothing");
    al_bell_waste(self->line.bell);
    wake = al_pacing_next_search(&self->pacing, false, session->now, &session->random);
  }
  wait_until(self, wake);
}

/* Nobody could ring for us before the bell existed and we consumed from it: so we search once more. */
static void joining(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  if (!al_line_is_joining(&self->line) || al_op_is_woken(op)) search_anew(op);
}

static void waiting(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  bool is_rung = al_pacing_is_over(&self->pacing, al_line_has_token(&self->line));
  if (fails_with_holder(self)) return;
  if (is_rung && self->course == AL_COURSE_EARLY && self->kind->may_claim(self))
    claim(self);
  else if (al_op_is_woken(op) || is_rung || al_line_has_gone(&self->line))
    search_from_the_start(self);
}

/* ---- the end of an acquire, and words --------------------------------------------------------------------------- */

static void acquire_stop(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  self->kind->cancel(self);
  al_fence_token_cancel(&self->fence_token);
  if (self->own) al_claim_undo(&self->own->claim, op);
  al_line_leave(&self->line, self->own, false);
  leave_claim(self);
  al_squatter_cancel(&self->squatter);
}

static void acquire_free(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  al_locks_drop(op);
  self->kind->free(self);
  al_resource_drop(self->resource);
}

static void timeout_text(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_acquire *self = (const al_acquire *)op;
  double seconds = (double)self->options.timeout / (double)AL_SECOND;
  char standing[AL_MESSAGE_SIZE];
  if (op->step == drawing_token) {
    snprintf(out, AL_MESSAGE_SIZE, "\"%s\" was granted, and no number could be drawn within %g s: %s",
             self->own->claim.queue, seconds, al_fence_token_why(&self->fence_token));
    return;
  }
  if (op->step == handing_over) {
    al_claim_doubt_text(op, self->options.timeout, out);
    return;
  }
  self->kind->failure_text(self, AL_TIMEOUT, out);
  self->kind->standing(op, standing);
  size_t used = strlen(out);
  snprintf(out + used, AL_MESSAGE_SIZE - used, " within %g s (%.128s)", seconds, standing);
}

void al_acquire_describe_free(const al_acquire *self, const char *subject, char out[AL_MESSAGE_SIZE]) {
  const char *format = self->own                  ? "%s is free, and being claimed"
                       : self->race.lost > 0      ? "%s was free, and could not be claimed"
                       : self->op.step == waiting ? "%s is free, and left to waiters that may have come first"
                                                  : "%s was free at the last search";
  snprintf(out, AL_MESSAGE_SIZE, format, subject);
}
