/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Acquiring, in the specification's seven steps. Steps 1 to 4, the search for a slot that exists and is free, are a
 * "look": windows of probes for A and B of many slots at once, each window one round trip. Steps 5 to 7 are a claim.
 *
 *   connecting ─> look ─> looking ─> claimed ─> done, with a lock
 *                  ^ ^          │ no free slot  │ lost the race
 *                  │ └── skew <─┼───────────────┘ at most max_attempts times, then as if no slot were free
 *                  └─ waiting <─┴─> looking_for_squatters ─> done: busy, contended, timeout, deadlock, …
 *
 * Every acquire is also a caller at the doorbell, from its first look on. With a token it claims the slot it finds; with
 * none it gives those who waited before it, and whose token may be on its way, a moment's grace; `fair`, it rings for
 * them rather than claim. Waiting ends with a token, or with the next look of its own, whichever comes first; a token that
 * leads to no slot is followed by looks in quick succession, as the slot may come free a little after it, and in the end
 * is thrown away as one too many. */
#include "core/semaphore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bell.h"
#include "core/exclusive.h"
#include "core/lock.h"
#include "core/look.h"
#include "core/name.h"
#include "core/op.h"
#include "core/patience.h"
#include "core/probe.h"
#include "core/random.h"
#include "core/session.h"
#include "core/squat.h"
#include "core/turn.h"
#include "core/wait.h"

#define SKEW_MOST (10 * AL_MILLISECOND)
#define SQUAT_EVERY (60 * AL_SECOND) /* squatters are looked for at most so often */
#define BELL_EVERY (60 * AL_SECOND)  /* a doorbell that was missing is asked for at most so often */

typedef struct acquire {
  al_op op;
  al_semaphore *semaphore;
  al_acquire_options options;
  bool waits;         /* false: looks once */
  al_wait reconnects; /* between looks for which the prober was lost */
  int attempts;       /* races lost since the last wait */

  al_bell *bell;  /* until the claim has it; NULL */
  bool bell_went; /* seen, and looked for slots since */
  al_patience patience;

  al_look look;
  al_exclusive *own;                           /* what is being claimed; NULL */
  int last_found, last_busy, last_unavailable; /* by the last look that was brought to its end */
  al_squat squat;
  al_code verdict; /* what to fail with when squatters do not explain it */
} acquire;

static void look(al_op *op);
static void no_slot(acquire *self);

/* ---- semaphores ------------------------------------------------------------------------------------------------- */

al_semaphore *al_semaphore_new(al_session *session, const char *name, const al_semaphore_options *options) {
  al_semaphore *semaphore = calloc(1, sizeof *semaphore);
  if (!semaphore) return NULL;
  semaphore->refs = 1;
  semaphore->session = session;
  semaphore->options = options ? *options : (al_semaphore_options){AL_ASCENDING, 8, AL_PROBE_AUTO, false};
  semaphore->squat_checked = -SQUAT_EVERY;
  semaphore->bell_missed = -BELL_EVERY;
  snprintf(semaphore->name, sizeof semaphore->name, "%s", name);
  al_session_ref(session);
  return semaphore;
}

void al_semaphore_drop(al_semaphore *semaphore) {
  if (!semaphore || al_session_forked(semaphore->session) || --semaphore->refs > 0) return;
  al_session_unref(semaphore->session);
  free(semaphore);
}

/* ---- the end of an acquire -------------------------------------------------------------------------------------- */

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const acquire *self = (const acquire *)op;
  char refusing[64] = "";
  if (self->last_unavailable > 0)
    snprintf(refusing, sizeof refusing, ", %d refused by the broker", self->last_unavailable);
  if (self->last_found == 0)
    snprintf(out, AL_MESSAGE_SIZE, "the broker had not answered yet");
  else if (self->last_busy + self->last_unavailable < self->last_found)
    snprintf(out, AL_MESSAGE_SIZE, "a slot is free, but others were first");
  else
    snprintf(out, AL_MESSAGE_SIZE, "%d of %d held%s", self->last_busy, self->last_found, refusing);
}

static void explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const acquire *self = (const acquire *)op;
  char standing[AL_MESSAGE_SIZE];
  describe(op, standing);
  snprintf(out, AL_MESSAGE_SIZE, "no slot of \"%s\" came free within %g s (%.128s)", self->semaphore->name,
           (double)self->options.timeout / (double)AL_SECOND, standing);
}

static void acquire_stop(al_op *op) {
  acquire *self = (acquire *)op;
  al_look_cancel(&self->look);
  if (self->own) {
    al_claim_release(&self->own->claim);
    al_exclusive_ring(self->own, self->bell, false);
    al_claim_leave(&self->own->claim);
  } else {
    al_bell_leave(self->bell, false);
  }
  self->bell = NULL;
  self->own = NULL;
  op->claim = NULL;
  al_squat_cancel(&self->squat);
}

static void acquire_free(al_op *op) {
  acquire *self = (acquire *)op;
  al_look_free(&self->look);
  al_semaphore_drop(self->semaphore);
}

/* ---- at the doorbell -------------------------------------------------------------------------------------------- */

static void note_missing_bell(acquire *self) {
  if (self->bell->is_missing) {
    self->semaphore->bell_missed = self->op.session->now;
    al_session_note(self->op.session, false,
                    "there is no \"%s\", or it may not be read: who waits looks by itself",
                    self->bell->queue);
  }
  self->bell->is_missing = false;
}

/* Before every look: what rings after that is not missed, and costs no round trip of its own. */
static bool mind_bell(acquire *self) {
  al_semaphore *semaphore = self->semaphore;
  if (!self->bell) self->bell = al_bell_new(&self->op, semaphore->name, self->options.priority);
  if (!self->bell) {
    al_op_fail(&self->op, AL_NO_MEMORY, "waiting for \"%s\"", semaphore->name);
    return false;
  }
  note_missing_bell(self);
  bool is_silent = semaphore->options.silent || self->op.session->now - semaphore->bell_missed < BELL_EVERY;
  if (!is_silent) al_bell_arrive(self->bell);
  self->bell_went = al_bell_is_out(self->bell);
  return true;
}

/* ---- steps 5 to 7: the claim ------------------------------------------------------------------------------------ */

static void got(acquire *self) {
  al_semaphore *semaphore = self->semaphore;
  self->op.lock = al_lock_new(&self->own->claim, AL_LOCK_SLOT, semaphore->name, self->look.slot,
                              semaphore->options.probing);
  if (!self->op.lock) {
    al_op_fail(&self->op, AL_NO_MEMORY, "slot %d of \"%s\" was let go again", self->look.slot,
               semaphore->name);
    return;
  }
  semaphore->last = self->look.slot;
  note_missing_bell(self);
  al_exclusive_ring(self->own, self->bell, !self->waits);
  self->bell = NULL;
  al_claim_leave(&self->own->claim);
  self->own = NULL;
  self->op.claim = NULL;
  al_op_finish(&self->op);
}

/* A new look. The prober, lost meanwhile, holds nothing: another one is as good. */
static void look_anew(al_op *op) {
  al_link_forget(&op->session->prober);
  al_op_next(op, look);
}

static void skew(al_op *op) {
  if (op->wake == AL_NEVER) look_anew(op);
}

/* Somebody was faster, or the slot was taken away under the claim. One random skew, so that the same clients do not
 * meet again at once, then all over. */
static void lost_race(acquire *self) {
  al_session *session = self->op.session;
  self->attempts++;
  if (self->attempts >= self->semaphore->options.max_attempts) {
    no_slot(self);
    return;
  }
  self->op.step = skew;
  self->op.wake = session->now + al_random_below(&session->random, SKEW_MOST);
}

static void claimed(al_op *op) {
  acquire *self = (acquire *)op;
  al_claim *claim = &self->own->claim;
  if (claim->state == AL_CLAIM_CLAIMING) return;
  al_op_answered(op);
  if (claim->state == AL_CLAIM_HELD) {
    got(self);
    return;
  }
  al_code code = claim->code;
  char why[sizeof claim->why];
  memcpy(why, claim->why, sizeof why);
  al_claim_leave(claim);
  self->own = NULL;
  op->claim = NULL;
  if (al_link_is_lost(&op->session->holder))
    al_op_fail_link(op, &op->session->holder);
  else if (code == AL_CONTENDED || code == AL_REMOVED || code == AL_LOST)
    lost_race(self);
  else
    al_op_fail(op, code, "slot %d of \"%s\" could not be claimed: %s", self->look.slot, self->semaphore->name,
               why);
}

/* Looks at A[slot] behind the claim; and at A[1] when the search did not begin there: the semaphore may be gone while
 * a stray slot is not. */
static void claim(acquire *self) {
  if (!al_op_has(&self->op, &self->op.session->holder)) return;
  const char *name = self->semaphore->name;
  char holder[AL_NAME_SIZE], slots[AL_LOOKS_MAX][AL_NAME_SIZE];
  bool both = self->semaphore->options.strategy != AL_ASCENDING && self->look.slot != 1;
  al_name_holder(holder, name, self->look.slot);
  al_name_slot(slots[0], name, self->look.slot);
  al_name_slot(slots[1], name, 1);
  al_op_ask(&self->op);
  self->op.step = claimed;
  self->own = al_exclusive_begin(&self->op,
                                 &(al_exclusive_plan){.queue = holder, .looks = both ? 2 : 1, .look = slots});
}

/* ---- steps 1 to 4: the look ------------------------------------------------------------------------------------- */

static void looking(al_op *op);

static void look(al_op *op) {
  acquire *self = (acquire *)op;
  if (!al_op_needs_probing(op, self->semaphore->options.probing) || !mind_bell(self)) return;
  op->step = looking;
  al_look_begin(&self->look, op, self->semaphore);
  if (self->look.sight != AL_SIGHT_PENDING) looking(op);
}

static void wait_until(acquire *self, int64_t wake);

static void remember(acquire *self) {
  self->last_found = self->look.found;
  self->last_busy = self->look.busy;
  self->last_unavailable = self->look.unavailable;
}

/* A slot is free, but maybe somebody else's. */
static void found_slot(acquire *self) {
  al_session *session = self->op.session;
  bool has_token = al_bell_has_token(self->bell), fair = self->options.fair;
  remember(self);
  if (al_bell_is_out(self->bell) || !(self->waits || fair)) {
    claim(self); /* there is nobody to be left a slot to, or no time */
    return;
  }
  int64_t left = al_patience_leave(&self->patience, has_token, session->now);
  if (left > 0)
    wait_until(self, session->now + left);
  else if (fair && !has_token && al_prober_ring(&session->probes, self->bell->queue))
    no_slot(self); /* whoever is first is woken, be it us */
  else
    claim(self);
}

/* Whoever waits anyway does not mind losing the prober, which holds nothing: the next look opens another. */
static void lost_prober(acquire *self) {
  al_session *session = self->op.session;
  if (self->waits)
    wait_until(self, session->now + al_wait_next(&self->reconnects, &session->random));
  else
    al_op_fail_link(&self->op, &session->prober);
}

static void looking(al_op *op) {
  acquire *self = (acquire *)op;
  switch (al_look_sight(&self->look)) {
    case AL_SIGHT_PENDING:
      return;
    case AL_SIGHT_LOST:
      lost_prober(self);
      return;
    case AL_SIGHT_FREE:
      found_slot(self);
      return;
    case AL_SIGHT_NONE:
      remember(self);
      no_slot(self);
  }
}

/* ---- no free slot ----------------------------------------------------------------------------------------------- */

static void give_up(acquire *self) {
  const char *name = self->semaphore->name;
  switch (self->verdict) {
    case AL_CONTENDED:
      al_op_fail(&self->op, AL_CONTENDED, "others were faster at \"%s\" %d times in a row", name,
                 self->attempts);
      break;
    case AL_DEADLOCK:
      al_op_fail(&self->op, AL_DEADLOCK, "all %d slots of \"%s\" are held by this very connection",
                 self->look.found, name);
      break;
    case AL_UNAVAILABLE:
      al_op_fail(&self->op, AL_UNAVAILABLE,
                 "%d of %d slots of \"%s\" are refused by the broker; is a node down, or a "
                 "policy in the way?",
                 self->look.unavailable, self->look.found, name);
      break;
    default:
      if (self->look.slot)
        al_op_fail(&self->op, AL_BUSY, "a slot of \"%s\" is free, but others came before", name);
      else
        al_op_fail(&self->op, AL_BUSY, "all %d slots of \"%s\" are held", self->look.found, name);
  }
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

static void waiting(al_op *op) {
  acquire *self = (acquire *)op;
  bool is_rung = al_patience_is_over(&self->patience, al_bell_has_token(self->bell));
  bool bell_went = al_bell_is_out(self->bell) && !self->bell_went; /* and the semaphore with it? */
  if (al_link_is_lost(&op->session->holder)) {
    al_op_fail_link(op, &op->session->holder);
  } else if (op->wake == AL_NEVER || is_rung || bell_went) {
    self->attempts = 0;
    look_anew(op);
  }
}

static void wait_until(acquire *self, int64_t wake) {
  self->op.step = waiting;
  self->op.wake = wake;
}

/* The one seam behind which waiting for a slot is hidden. */
static void wait_for_slot(acquire *self) {
  al_session *session = self->op.session;
  bool has_token = al_bell_has_token(self->bell);
  if (self->op.waits_since == AL_NEVER) self->op.waits_since = session->now;
  int64_t wake = al_patience_look(&self->patience, has_token, session->now, &session->random);
  if (wake == AL_NEVER) {
    al_bell_waste(self->bell);
    wake = al_patience_look(&self->patience, false, session->now, &session->random);
  }
  wait_until(self, wake);
}

static void wait_or_give_up(acquire *self) {
  if (self->waits && self->verdict != AL_DEADLOCK)
    wait_for_slot(self);
  else
    give_up(self);
}

static void looking_for_squatters(al_op *op) {
  acquire *self = (acquire *)op;
  if (al_squat_cleared(&self->squat)) wait_or_give_up(self);
}

static void suspect_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const acquire *self = context;
  al_name_holder(out, self->semaphore->name, self->look.suspects[index]);
}

static bool look_for_squatters(acquire *self) {
  al_semaphore *semaphore = self->semaphore;
  int64_t now = self->op.session->now;
  if (now - semaphore->squat_checked < SQUAT_EVERY) return false;
  self->op.step = looking_for_squatters;
  if (!al_squat_begin(&self->squat, &self->op, (size_t)self->look.suspect_count, suspect_name, self))
    return false;
  semaphore->squat_checked = now;
  return true;
}

static void no_slot(acquire *self) {
  bool contended = self->attempts >= self->semaphore->options.max_attempts;
  self->verdict = contended                                  ? AL_CONTENDED
                  : self->look.busy == 0 && !self->look.slot ? AL_UNAVAILABLE
                                                             : AL_BUSY;
  if (self->waits && !contended && self->look.mine == self->look.found) self->verdict = AL_DEADLOCK;
  if (!look_for_squatters(self)) wait_or_give_up(self);
}

void al_acquire_options_init(al_acquire_options *options) {
  *options = (al_acquire_options){.timeout = AL_NEVER, .poll = 5 * AL_SECOND};
}

al_op *al_semaphore_acquire(al_semaphore *semaphore, const al_acquire_options *options) {
  AL_TURN(semaphore->session);
  acquire *self = (acquire *)al_op_new(semaphore->session, sizeof *self);
  if (!self) return NULL;
  al_acquire_options_init(&self->options);
  if (options) self->options = *options;
  semaphore->refs++;
  self->semaphore = semaphore;
  self->waits = self->options.timeout > 0;
  self->reconnects = AL_WAIT_SLOT;
  al_patience_init(&self->patience, &self->options);
  self->op.stop = acquire_stop;
  self->op.free = acquire_free;
  self->op.explain = explain;
  self->op.describe = describe;
  int64_t now = semaphore->session->now;
  bool is_bounded = self->waits && self->options.timeout < AL_NEVER - now;
  return al_op_start(&self->op, look, is_bounded ? now + self->options.timeout : AL_NEVER);
}
