/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Acquiring, in the specification's seven steps. Steps 1 to 4, the search for a slot that exists and is free, are a
 * "look": windows of probes for A and B of many slots at once, each window one round trip. Steps 5 to 7 are a claim.
 *
 *   connecting ─> look ─> look_answered ─> claimed ─> done, with a lock
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
#include "core/lock.h"
#include "core/name.h"
#include "core/op.h"
#include "core/probe.h"
#include "core/random.h"
#include "core/session.h"
#include "core/squat.h"
#include "core/turn.h"
#include "core/wait.h"

#define WINDOW_FIRST 16
#define WINDOW_MOST 512
#define SKEW_MOST (10 * AL_MILLISECOND)
#define SQUAT_EVERY (60 * AL_SECOND) /* squatters are looked for at most so often */
#define BELL_EVERY (60 * AL_SECOND)  /* a doorbell that was missing is asked for at most so often */

/* A slot found free by somebody without a token may be somebody else's: his token is on its way, or he is claiming it.
 * Where a slot is handed on all the time it is free again and again for some milliseconds; so it is taken only after it
 * was seen free for longer than that takes. The same goes for a token that did not lead to a slot at once: most likely
 * it is one too many. */
#define GRACE (35 * AL_MILLISECOND)
#define GRACE_CHECK (8 * AL_MILLISECOND)
#define GRACE_CHECKS 2
#define FAIR_GRACE (100 * AL_MILLISECOND)
#define TOKEN_FRESH (20 * AL_MILLISECOND) /* in which a dead client's queue follows its token */

typedef struct acquire {
  al_op op;
  al_semaphore *semaphore;
  al_acquire_options options;
  bool waits;         /* false: looks once */
  al_wait reconnects; /* between looks for which the prober was lost */
  int attempts;       /* races lost since the last wait */

  al_bell *bell;       /* until the claim has it; NULL */
  bool bell_went;      /* seen, and looked for slots since */
  int graces;          /* looks in a row that found a slot, and no token came */
  int64_t token_since; /* when the first look with the token in hand was in vain; AL_NEVER */
  al_wait token_wait;  /* between the looks until then */

  /* the look under way */
  al_probes probes;
  int start, first, width; /* where it began, and the window being asked for */
  bool wrapped;            /* it went past the last slot and goes on from 1 to below start */
  int slot;                /* free, to be claimed */
  int found, busy, mine, unavailable;

  al_claim *claim;
  int last_found, last_busy, last_unavailable; /* by the last look that was brought to its end */
  al_squat squat;
  int suspects[AL_SUSPECTS_MOST], suspect_count; /* the lowest slots that others hold, or seem to */
  al_code verdict;                               /* what to fail with when squatters do not explain it */
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
  al_probes_cancel(&self->probes);
  if (self->claim) {
    al_claim_release(self->claim);
    al_claim_ring(self->claim, self->bell);
    al_claim_leave(self->claim);
  } else {
    al_bell_leave(self->bell, false);
  }
  self->bell = NULL;
  self->claim = NULL;
  op->claim = NULL;
  al_squat_cancel(&self->squat);
}

static void acquire_free(al_op *op) {
  acquire *self = (acquire *)op;
  al_probes_free(&self->probes);
  al_semaphore_drop(self->semaphore);
}

/* ---- at the doorbell -------------------------------------------------------------------------------------------- */

static void note_missing_bell(acquire *self) {
  if (self->bell->is_missing) self->semaphore->bell_missed = self->op.session->now;
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
  self->op.lock =
      al_lock_new(self->op.session, self->claim, semaphore->name, self->slot, semaphore->options.probing);
  if (!self->op.lock) {
    al_op_fail(&self->op, AL_NO_MEMORY, "slot %d of \"%s\" was let go again", self->slot, semaphore->name);
    return;
  }
  semaphore->last = self->slot;
  note_missing_bell(self);
  al_claim_ring(self->claim, self->bell);
  self->bell = NULL;
  al_claim_leave(self->claim);
  self->claim = NULL;
  self->op.claim = NULL;
  al_op_finish(&self->op);
}

static void skew(al_op *op) {
  if (op->wake == AL_NEVER) al_op_next(op, look);
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
  al_claim *claim = self->claim;
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
  self->claim = NULL;
  op->claim = NULL;
  if (al_link_is_lost(&op->session->holder))
    al_op_fail_link(op, &op->session->holder);
  else if (code == AL_CONTENDED || code == AL_REMOVED || code == AL_LOST)
    lost_race(self);
  else
    al_op_fail(op, code, "slot %d of \"%s\" could not be claimed: %s", self->slot, self->semaphore->name,
               why);
}

/* Looks at A[slot] behind the claim; and at A[1] when the search did not begin there: the semaphore may be gone while
 * a stray slot is not. */
static void claim(acquire *self) {
  if (!al_op_has(&self->op, &self->op.session->holder)) return;
  const char *name = self->semaphore->name;
  char holder[AL_NAME_SIZE], slots[AL_LOOKS_MAX][AL_NAME_SIZE];
  bool both = self->semaphore->options.strategy != AL_ASCENDING && self->slot != 1;
  al_name_holder(holder, name, self->slot);
  al_name_slot(slots[0], name, self->slot);
  al_name_slot(slots[1], name, 1);
  al_op_ask(&self->op);
  self->op.step = claimed;
  self->claim = al_claim_begin(&self->op, holder, both ? 2 : 1, slots);
}

/* ---- steps 1 to 4: the look ------------------------------------------------------------------------------------- */

static void probe_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const acquire *self = context;
  int slot = self->first + (int)(index / 2);
  (index % 2 == 0 ? al_name_slot : al_name_holder)(out, self->semaphore->name, slot);
}

static void look_answered(al_op *op);

static void wait_until(acquire *self, int64_t wake);

/* Whoever waits anyway does not mind losing the prober, which holds nothing: the next look opens another. */
static bool waits_out_lost_prober(acquire *self) {
  al_session *session = self->op.session;
  bool is_lost = self->waits && al_link_is_lost(&session->prober) && al_link_is_open(&session->holder);
  if (is_lost) wait_until(self, session->now + al_wait_next(&self->reconnects, &session->random));
  return is_lost;
}

/* Asks for A and B of a window of slots, not past the last slot there can be, nor past where the look began. */
static void ask(acquire *self, int first, int width) {
  if (waits_out_lost_prober(self)) return;
  if (!al_op_has_probing(&self->op, self->semaphore->options.probing)) return;
  int last = self->wrapped ? self->start - 1 : AL_SLOTS_MAX;
  self->first = first;
  self->width = width <= last - first + 1 ? width : last - first + 1;
  al_op_ask(&self->op);
  self->op.step = look_answered;
  al_probes_begin(&self->probes, &self->op, self->semaphore->options.probing, (size_t)self->width * 2,
                  probe_name, self);
}

/* A look that is likely to see all slots and the end of the row in one window. */
static int window_first(const acquire *self) {
  int known = self->semaphore->known;
  return known > 0 && known < WINDOW_FIRST ? known + 1 : WINDOW_FIRST;
}

static int start_slot(const acquire *self) {
  const al_semaphore *semaphore = self->semaphore;
  if (semaphore->options.strategy == AL_LAST && semaphore->last > 0) return semaphore->last;
  if (semaphore->options.strategy == AL_RANDOM)
    return 1 + (int)al_random_below(&self->op.session->random, semaphore->known);
  return 1;
}

static void look(al_op *op) {
  acquire *self = (acquire *)op;
  if (!al_op_needs_probing(op, self->semaphore->options.probing) || !mind_bell(self)) return;
  self->start = start_slot(self);
  self->wrapped = false;
  self->slot = self->found = self->busy = self->mine = self->unavailable = 0;
  self->suspect_count = 0;
  ask(self, self->start, window_first(self));
}

/* Counts one slot that exists; true if it may be claimed. */
static bool consider(acquire *self, int slot, al_answer a, al_answer b) {
  char holder[AL_NAME_SIZE];
  al_name_holder(holder, self->semaphore->name, slot);
  /* What this very connection holds, claims or is still undoing: the broker would let us declare it again. */
  const al_claim *ours = al_claim_find(self->op.session, holder);
  self->found++;
  self->mine += ours && ours->state == AL_CLAIM_HELD;
  if (a == AL_ANSWER_UNAVAILABLE) {
    self->unavailable++;
    return false;
  }
  if (b == AL_ANSWER_ABSENT && !ours) return true;
  self->busy++;
  if (!ours && self->suspect_count < AL_SUSPECTS_MOST) self->suspects[self->suspect_count++] = slot;
  return false;
}

typedef enum sight { SIGHT_MORE, SIGHT_FREE, SIGHT_END, SIGHT_UNDECIDED } sight;

/* Reads one window, in order; the first slot that is absent is the end of the semaphore. */
static sight read_window(acquire *self) {
  bool ascending = self->semaphore->options.strategy == AL_ASCENDING;
  for (int i = 0; i < self->width; i++) {
    size_t index = (size_t)i * 2;
    al_answer a = self->probes.answers[index], b = self->probes.answers[index + 1];
    int slot = self->first + i;
    if (a == AL_ANSWER_ABSENT) return SIGHT_END;
    if (al_probes_undecided(&self->probes, index) || al_probes_undecided(&self->probes, index + 1))
      return SIGHT_UNDECIDED;
    if (consider(self, slot, a, b) && self->slot == 0) self->slot = slot;
    if (self->slot && ascending) return SIGHT_FREE;
  }
  return self->slot ? SIGHT_FREE : SIGHT_MORE;
}

/* How many slots there are, or are at least, by the whole window: it is remembered for the next look. */
static void learn(acquire *self) {
  al_semaphore *semaphore = self->semaphore;
  for (int i = 0; i < self->width; i++) {
    int slot = self->first + i;
    al_answer a = self->probes.answers[i * 2];
    if (a == AL_ANSWER_ABSENT) semaphore->known = slot - 1;
    if (a != AL_ANSWER_PRESENT && a != AL_ANSWER_UNAVAILABLE) return;
    if (semaphore->known < slot) semaphore->known = slot;
  }
}

static void remember(acquire *self) {
  self->last_found = self->found;
  self->last_busy = self->busy;
  self->last_unavailable = self->unavailable;
}

static void none_free(acquire *self) {
  remember(self);
  self->graces = 0;
  no_slot(self);
}

static void end_of_row(acquire *self, int slot) {
  if (slot == 1)
    al_op_fail(&self->op, AL_NOT_FOUND, "there is no semaphore \"%s\"; an administrator creates it",
               self->semaphore->name);
  else if (self->start == 1 || self->wrapped)
    none_free(self);
  else {
    self->wrapped = true;
    ask(self, 1, WINDOW_FIRST);
  }
}

static int absent_slot(const acquire *self) {
  int i = 0;
  while (self->probes.answers[i * 2] != AL_ANSWER_ABSENT) i++;
  return self->first + i;
}

static void look_on(acquire *self) {
  int next = self->first + self->width, last = self->wrapped ? self->start - 1 : AL_SLOTS_MAX;
  if (next > last)
    none_free(self);
  else
    ask(self, next, self->width * 2 <= WINDOW_MOST ? self->width * 2 : WINDOW_MOST);
}

/* How much longer the slot must be seen free by one who has no fresh token; 0: long enough. */
static int64_t grace(const acquire *self) {
  bool has_token = al_bell_has_token(self->bell);
  if (self->options.fair && !has_token) return self->graces == 0 ? FAIR_GRACE : 0;
  if (self->graces == 0 && !has_token) return GRACE;
  return self->graces < GRACE_CHECKS + !has_token ? GRACE_CHECK : 0;
}

/* A slot is free, but maybe somebody else's. */
static void hesitate(acquire *self) {
  al_session *session = self->op.session;
  int64_t left = grace(self);
  bool rings = left == 0 && self->options.fair && !al_bell_has_token(self->bell);
  self->graces = left > 0 ? self->graces + 1 : 0;
  if (left > 0)
    wait_until(self, session->now + left);
  else if (rings && al_prober_ring(&session->probes, self->bell->queue))
    no_slot(self); /* whoever is first is woken, be it us */
  else
    claim(self);
}

static bool has_fresh_token(const acquire *self) {
  if (!al_bell_has_token(self->bell)) return false;
  return self->token_since == AL_NEVER || self->op.session->now < self->token_since + TOKEN_FRESH;
}

static void found_slot(acquire *self) {
  bool is_alone = al_bell_is_out(self->bell), looks_once = !self->waits && !self->options.fair;
  remember(self);
  if (has_fresh_token(self) || is_alone || looks_once)
    claim(self);
  else
    hesitate(self);
}

static void look_answered(al_op *op) {
  acquire *self = (acquire *)op;
  if (self->probes.pending > 0) return;
  al_op_answered(op);
  if (waits_out_lost_prober(self)) return;
  learn(self);
  sight seen = read_window(self);
  if (seen == SIGHT_END && self->slot) seen = SIGHT_FREE;
  if (seen == SIGHT_FREE)
    found_slot(self);
  else if (seen == SIGHT_END)
    end_of_row(self, absent_slot(self));
  else if (seen == SIGHT_MORE)
    look_on(self);
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
                 self->found, name);
      break;
    case AL_UNAVAILABLE:
      al_op_fail(&self->op, AL_UNAVAILABLE,
                 "%d of %d slots of \"%s\" are refused by the broker; is a node down, or a "
                 "policy in the way?",
                 self->unavailable, self->found, name);
      break;
    default:
      if (self->slot)
        al_op_fail(&self->op, AL_BUSY, "a slot of \"%s\" is free, but others came before", name);
      else
        al_op_fail(&self->op, AL_BUSY, "all %d slots of \"%s\" are held", self->found, name);
  }
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

static void waiting(al_op *op) {
  acquire *self = (acquire *)op;
  bool is_rung = al_bell_has_token(self->bell) && self->token_since == AL_NEVER;
  bool bell_went = al_bell_is_out(self->bell) && !self->bell_went; /* and the semaphore with it? */
  if (al_link_is_lost(&op->session->holder)) {
    al_op_fail_link(op, &op->session->holder);
  } else if (op->wake == AL_NEVER || is_rung || bell_went) {
    self->attempts = 0;
    al_link_forget(&op->session->prober); /* lost meanwhile, it holds nothing: a new one is as good */
    al_op_next(op, look);
  }
}

static void wait_until(acquire *self, int64_t wake) {
  self->op.step = waiting;
  self->op.wake = wake;
}

/* There is a token in hand. It leads to a slot as soon as a dying client's queue is gone; in the end it is one too many. */
static int64_t next_look_with_token(acquire *self) {
  al_session *session = self->op.session;
  if (self->token_since == AL_NEVER) {
    self->token_since = session->now;
    self->token_wait = AL_WAIT_TOKEN;
  }
  if (session->now < self->token_since + self->options.poll)
    return session->now + al_wait_next(&self->token_wait, &session->random);
  al_bell_waste(self->bell);
  return AL_NEVER;
}

/* The one seam behind which waiting for a slot is hidden. */
static void wait_for_slot(acquire *self) {
  al_session *session = self->op.session;
  if (self->op.waits_since == AL_NEVER) self->op.waits_since = session->now;
  int64_t wake = al_bell_has_token(self->bell) ? next_look_with_token(self) : AL_NEVER;
  if (!al_bell_has_token(self->bell)) self->token_since = AL_NEVER;
  if (wake == AL_NEVER) wake = session->now + al_wait_poll(self->options.poll, &session->random);
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
  al_name_holder(out, self->semaphore->name, self->suspects[index]);
}

static bool look_for_squatters(acquire *self) {
  al_semaphore *semaphore = self->semaphore;
  int64_t now = self->op.session->now;
  if (now - semaphore->squat_checked < SQUAT_EVERY) return false;
  self->op.step = looking_for_squatters;
  if (!al_squat_begin(&self->squat, &self->op, (size_t)self->suspect_count, suspect_name, self)) return false;
  semaphore->squat_checked = now;
  return true;
}

static void no_slot(acquire *self) {
  bool contended = self->attempts >= self->semaphore->options.max_attempts;
  self->verdict = contended ? AL_CONTENDED : self->busy == 0 && !self->slot ? AL_UNAVAILABLE : AL_BUSY;
  if (self->waits && !contended && self->mine == self->found) self->verdict = AL_DEADLOCK;
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
  self->token_since = AL_NEVER;
  self->op.stop = acquire_stop;
  self->op.free = acquire_free;
  self->op.explain = explain;
  self->op.describe = describe;
  int64_t now = semaphore->session->now;
  bool is_bounded = self->waits && self->options.timeout < AL_NEVER - now;
  return al_op_start(&self->op, look, is_bounded ? now + self->options.timeout : AL_NEVER);
}
