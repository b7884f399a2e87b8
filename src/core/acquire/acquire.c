/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/acquire.h"

#include <stdio.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/base/random.h"
#include "core/hold/lock.h"
#include "core/session/session.h"
#include "core/session/turn.h"

#define SKEW_MOST (10 * AL_MILLISECOND)

static void look(al_op *op);
static void handing_over(al_op *op);
static void nothing_free(al_acquire *self);

/* ---- the end of an acquire -------------------------------------------------------------------------------------- */

static void explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_acquire *self = (const al_acquire *)op;
  double seconds = (double)self->options.timeout / (double)AL_SECOND;
  char standing[AL_MESSAGE_SIZE];
  if (op->step == handing_over) {
    al_claim_doubt_text(op, self->options.timeout, out);
    return;
  }
  self->kind->failure_text(self, AL_TIMEOUT, out);
  self->kind->standing(op, standing);
  size_t used = strlen(out);
  snprintf(out + used, AL_MESSAGE_SIZE - used, " within %g s (%.128s)", seconds, standing);
}

/* Where others are beside us, our leaving makes room for nobody at the bell. A bell that was missed within the last minute
 * is missing still, though we have not come to it. */
static void leave_bell(al_acquire *self, bool was_quick) {
  if (self->bell) self->bell->is_missing = !al_resource_may_have_bell(self->resource);
  if (self->bell && self->own && !self->kind->is_shared)
    al_exclusive_ring(self->own, self->bell, was_quick);
  else
    al_bell_leave(self->bell, false);
  self->bell = NULL;
}

static void leave_claim(al_acquire *self) {
  if (self->own) al_claim_leave(&self->own->claim);
  self->own = NULL;
  al_op_watch(&self->op, NULL);
}

static void acquire_stop(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  self->kind->cancel(self);
  if (self->own) al_claim_release(&self->own->claim);
  leave_bell(self, false);
  leave_claim(self);
  al_squatter_cancel(&self->squatter);
}

static void acquire_free(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  al_lock_drop(op->lock); /* that nobody fetched */
  self->kind->free(self);
  al_resource_drop(self->resource);
}

/* ---- at the doorbell -------------------------------------------------------------------------------------------- */

static void note_missing_bell(al_acquire *self) {
  if (self->bell->is_missing) {
    al_resource_miss_bell(self->resource);
    al_session_note(
        self->op.session, false,
        "there is no \"%s\", or it may not be read, or does not answer: who waits looks by itself",
        self->bell->queue);
  }
  self->bell->is_missing = false;
}

static void arrive(al_acquire *self) {
  if (al_resource_may_have_bell(self->resource)) al_bell_arrive(self->bell);
}

/* A claim that was held, if only for a moment, has taken the last one with it. */
static bool have_bell(al_acquire *self) {
  const al_resource *resource = self->resource;
  if (!self->bell) {
    self->bell = al_bell_new(&self->op, resource->bell, self->options.priority, self->kind->makes_bell);
    self->bell_went = true; /* it never came */
  }
  if (!self->bell) al_op_fail(&self->op, AL_NO_MEMORY, "waiting for \"%s\"", resource->name);
  return self->bell;
}

/* Others may still wait: we line up with them, and they have their chance first. */
static bool is_polite(const al_acquire *self) {
  bool is_lining_up = self->waits && !self->kind->is_shared;
  return self->options.fair || (is_lining_up && al_resource_was_awaited(self->resource));
}

/* From when on a bell that has not answered yet is none to us. RabbitMQ 4.3 does not for more than a minute when the bell's
 * node was killed. */
static int64_t mute_from(const al_acquire *self) {
  int64_t poll = self->patience.poll, timeout = self->op.session->settings.timeout;
  return al_deadline_after(self->bell->consumer.since, poll < timeout ? poll : timeout);
}

/* Before every look: what rings after that is not missed, and costs no round trip of its own. */
static bool mind_bell(al_acquire *self) {
  if (!have_bell(self)) return false;
  if (self->op.session->now >= mute_from(self)) al_bell_give_up(self->bell);
  note_missing_bell(self);
  self->queues_up = self->queues_up || is_polite(self);
  if (!self->kind->makes_bell || self->queues_up) arrive(self);
  self->bell_went = al_bell_is_out(self->bell);
  self->is_early = al_bell_is_arriving(self->bell);
  self->had_token = al_bell_has_token(self->bell);
  return true;
}

/* ---- the claim -------------------------------------------------------------------------------------------------- */

static void got(al_acquire *self) {
  const al_resource *resource = self->resource;
  self->op.lock =
      al_lock_new(&self->own->claim, self->kind->lock, resource->name, self->view.slot, resource->probing);
  if (!self->op.lock) {
    al_op_fail(&self->op, AL_NO_MEMORY, "\"%s\" was let go again", self->own->claim.queue);
    return;
  }
  leave_claim(self);
  al_op_finish(&self->op);
}

/* A new look. The prober, lost meanwhile, holds nothing: another one is as good. */
static void look_anew(al_op *op) {
  al_link_forget(op->session->prober);
  al_op_next(op, look);
}

static void skew(al_op *op) {
  if (op->wake == AL_NEVER) look_anew(op);
}

/* Somebody was faster, or the slot was taken away under the claim. One random skew, so that the same clients do not
 * meet again at once, then all over. */
static void lost_race(al_acquire *self) {
  al_session *session = self->op.session;
  if (self->kind->missed) self->kind->missed(self);
  if (self->attempts >= self->resource->max_attempts) {
    if (have_bell(self)) nothing_free(self);
    return;
  }
  self->op.step = skew;
  self->op.wake = session->now + al_random_below(&session->random, SKEW_MOST);
}

/* Who looks anew was not slower than anybody; but that is believed once, as what the claim has learned may be forgotten. */
static void note_race(al_acquire *self) {
  memcpy(self->lost_to, self->own->claim.why, sizeof self->lost_to);
  bool is_excused = self->own->looks_anew && !self->looked_anew;
  self->looked_anew = self->looked_anew || is_excused;
  if (!is_excused) self->attempts++;
}

static void handing_over(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  if (self->own->claim.state != AL_CLAIM_HELD)
    al_acquire_missed(self);
  else if (al_claim_ascertain_for(op))
    got(self);
}

void al_acquire_hand_over(al_acquire *self) { al_op_next(&self->op, handing_over); }

void al_acquire_missed(al_acquire *self) {
  al_op *op = &self->op;
  al_code code = self->own->claim.code;
  char why[sizeof self->own->claim.why], queue[AL_NAME_SIZE];
  memcpy(why, self->own->claim.why, sizeof why);
  memcpy(queue, self->own->claim.queue, sizeof queue);
  bool is_race = code == AL_CONTENDED || code == AL_REMOVED || code == AL_UNAVAILABLE || code == AL_LOST;
  bool is_down = al_link_is_lost(&op->session->holder);
  if (is_race) note_race(self);
  if (is_down || !is_race) leave_bell(self, false); /* to be rung when the claim is undone */
  leave_claim(self);
  al_op_answered(op);
  if (is_down)
    al_op_fail_link(op, &op->session->holder);
  else if (is_race)
    lost_race(self);
  else
    al_op_fail(op, code, "\"%s\" could not be claimed: %s", queue, why);
}

/* Whether others wait for it is told to the claim. */
static void remember(al_acquire *self) {
  if (self->kind->makes_bell && !self->kind->is_shared) al_resource_remember(self->resource, self->own);
}

static void claimed(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  al_claim_state state = self->own->claim.state;
  if (state == AL_CLAIM_CLAIMING) return;
  if (state != AL_CLAIM_HELD) {
    al_acquire_missed(self);
    return;
  }
  al_op_answered(op);
  remember(self);
  note_missing_bell(self);
  leave_bell(self, !self->waits);
  if (self->kind->claimed)
    self->kind->claimed(self);
  else
    al_acquire_hand_over(self);
}

static void claim(al_acquire *self) {
  if (!al_op_has(&self->op, &self->op.session->holder)) return;
  al_op_ask(&self->op);
  self->op.step = claimed;
  self->own = self->kind->claim(self);
}

/* ---- the look --------------------------------------------------------------------------------------------------- */

static void looking(al_op *op);

static void look(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  if (!al_probing_needs(op, self->resource->probing) || !mind_bell(self)) return;
  op->step = looking;
  self->view = (al_search_result){.state = AL_SEARCH_PENDING};
  self->kind->search(self);
  if (self->view.state != AL_SEARCH_PENDING) looking(op);
}

static void wait_until(al_acquire *self, int64_t wake);
static void await_arrival(al_acquire *self);

/* Something is free, but maybe somebody else's. */
static void found_free(al_acquire *self) {
  al_session *session = self->op.session;
  bool fair = self->options.fair;
  self->last = self->view;
  bool nobody_waits = al_bell_is_out(self->bell) || al_bell_is_first(self->bell);
  if (self->kind->makes_bell && al_bell_is_arriving(self->bell)) {
    await_arrival(self);
    return;
  }
  if (nobody_waits || !(self->waits || fair) || (self->kind->is_shared && !fair)) {
    claim(self); /* there is nobody to be left it to, or no time */
    return;
  }
  bool has_token = al_bell_has_token(self->bell);
  int64_t left = al_patience_leave(&self->patience, has_token, session->now);
  if (left > 0)
    wait_until(self, session->now + left);
  else if (fair && !has_token && al_prober_ring(session, self->bell->queue))
    nothing_free(self); /* whoever is first is woken, be it us */
  else
    claim(self);
}

/* Whoever waits anyway does not mind losing the prober, which holds nothing: the next look opens another. */
static void lost_prober(al_acquire *self) {
  al_session *session = self->op.session;
  if (self->waits)
    wait_until(self, session->now + al_backoff_next(&self->reconnects, &session->random));
  else
    al_op_fail_link(&self->op, session->prober);
}

static void looking(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  switch (self->kind->poll(self)) {
    case AL_SEARCH_PENDING:
      return;
    case AL_SEARCH_LOST:
      lost_prober(self);
      return;
    case AL_SEARCH_FREE:
      found_free(self);
      return;
    case AL_SEARCH_NONE:
      self->last = self->view;
      nothing_free(self);
  }
}

/* ---- nothing free ----------------------------------------------------------------------------------------------- */

static void give_up(al_acquire *self) {
  char words[AL_MESSAGE_SIZE];
  if (self->verdict == AL_CONTENDED)
    snprintf(words, sizeof words, "others were faster at \"%s\" %d times in a row: %s", self->resource->name,
             self->attempts, self->lost_to);
  else
    self->kind->failure_text(self, self->verdict, words);
  al_op_fail(&self->op, self->verdict, "%s", words);
}

/* Since the last look began; and the semaphore with it? */
static bool has_bell_gone(const al_acquire *self) { return al_bell_is_out(self->bell) && !self->bell_went; }

static void look_from_the_start(al_acquire *self) {
  self->attempts = 0;
  look_anew(&self->op);
}

static void waiting(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  bool is_rung = al_patience_is_over(&self->patience, al_bell_has_token(self->bell));
  if (al_link_is_lost(&op->session->holder))
    al_op_fail_link(op, &op->session->holder);
  else if (op->wake == AL_NEVER || is_rung || has_bell_gone(self))
    look_from_the_start(self);
}

void al_acquire_describe_free(const al_acquire *self, const char *subject, const char *state,
                              char out[AL_MESSAGE_SIZE]) {
  const char *format = self->own                  ? "%s is %s, and being claimed"
                       : self->attempts > 0       ? "%s was %s, and could not be claimed"
                       : self->op.step == waiting ? "%s is %s, and left to waiters that may have come first"
                                                  : "%s was %s at the last look";
  snprintf(out, AL_MESSAGE_SIZE, format, subject, state);
}

static void wait_until(al_acquire *self, int64_t wake) {
  self->op.step = waiting;
  self->op.wake = wake;
}

/* Nobody could ring for us before the bell was there and we at it: so one more look. */
static void arriving(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  if (!al_bell_is_arriving(self->bell) || op->wake == AL_NEVER) look_anew(op);
}

/* The bell's first answer tells whether others wait. */
static void await_arrival(al_acquire *self) {
  self->op.step = arriving;
  self->op.wake = mute_from(self);
  arriving(&self->op);
}

/* Where it is those who wait that make the bell. */
static bool has_to_arrive(al_acquire *self) {
  if (!self->kind->makes_bell || (self->queues_up && !self->is_early)) return false;
  self->queues_up = true;
  arrive(self);
  if (al_bell_is_out(self->bell)) return false;
  await_arrival(self);
  return true;
}

bool al_acquire_may_wait(al_acquire *self) {
  if (self->waits) al_op_waits(&self->op);
  if (self->waits) return true;
  self->verdict = AL_BUSY;
  give_up(self);
  return false;
}

/* The bell had news while the look was under way: what was seen held may have been let go of since, and this token be the
 * sign of it; or it went. One that was never there is no news. */
static bool is_outdated(const al_acquire *self) {
  if (al_link_is_lost(&self->op.session->holder)) return false;
  bool is_rung = al_bell_has_token(self->bell) && !self->had_token;
  return is_rung || (has_bell_gone(self) && !self->bell->is_missing);
}

static void wait_for_it(al_acquire *self) {
  al_session *session = self->op.session;
  bool has_token = al_bell_has_token(self->bell);
  al_acquire_may_wait(self);
  al_resource_note_awaited(self->resource);
  if (has_to_arrive(self)) return;
  if (is_outdated(self)) {
    al_patience_look(&self->patience, false, session->now, &session->random); /* without that token */
    look_from_the_start(self);
    return;
  }
  int64_t wake = al_patience_look(&self->patience, has_token, session->now, &session->random);
  if (wake == AL_NEVER) {
    al_bell_waste(self->bell);
    wake = al_patience_look(&self->patience, false, session->now, &session->random);
  }
  wait_until(self, wake);
}

static void wait_or_give_up(al_acquire *self) {
  if (self->waits && self->verdict != AL_DEADLOCK)
    wait_for_it(self);
  else
    give_up(self);
}

static void looking_for_squatters(al_op *op) {
  al_acquire *self = (al_acquire *)op;
  if (al_squatter_poll(&self->squatter)) wait_or_give_up(self);
}

static bool look_for_squatters(al_acquire *self) {
  if (!al_resource_may_be_squatted(self->resource)) return false;
  self->op.step = looking_for_squatters;
  if (!al_squatter_begin(&self->squatter, &self->op, (size_t)self->view.suspect_count, self->kind->suspect,
                         self))
    return false;
  al_resource_note_squat_check(self->resource);
  return true;
}

static void nothing_free(al_acquire *self) {
  const al_search_result *view = &self->view;
  bool contended = self->attempts >= self->resource->max_attempts;
  self->verdict = contended                                          ? AL_CONTENDED
                  : view->busy == 0 && view->state == AL_SEARCH_NONE ? AL_UNAVAILABLE
                                                                     : AL_BUSY;
  bool is_own = view->mine == view->found && !self->op.session->is_shared;
  if (self->waits && !contended && is_own) self->verdict = AL_DEADLOCK;
  if (!look_for_squatters(self)) wait_or_give_up(self);
}

/* ---- beginning -------------------------------------------------------------------------------------------------- */

void al_acquire_options_init(al_acquire_options *options) {
  *options = (al_acquire_options){.timeout = AL_NEVER, .poll = 5 * AL_SECOND};
}

al_op *al_acquire_begin(al_resource *resource, const al_acquire_kind *kind, size_t size,
                        const al_acquire_options *options) {
  AL_TURN(resource->session);
  al_acquire *self = (al_acquire *)al_op_new(resource->session, size);
  if (!self) return NULL;
  al_acquire_options_init(&self->options);
  if (options) self->options = *options;
  resource->refs++;
  self->kind = kind;
  self->resource = resource;
  self->waits = self->options.timeout > 0;
  self->reconnects = AL_BACKOFF_SLOT;
  al_patience_init(&self->patience, &self->options);
  self->op.stop = acquire_stop;
  self->op.free = acquire_free;
  self->op.timeout_text = explain;
  self->op.standing = kind->standing;
  int64_t now = resource->session->now;
  return al_op_start(&self->op, look, self->waits ? al_deadline_after(now, self->options.timeout) : AL_NEVER);
}
