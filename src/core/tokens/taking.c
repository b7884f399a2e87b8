/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/taking.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/hold/lock.h"
#include "core/hold/retry.h"
#include "core/queue/declare.h"
#include "core/queue/inspect.h"
#include "core/session/op.h"
#include "core/session/probe.h"
#include "core/session/session.h"
#include "core/session/turn.h"

typedef struct taking {
  al_op op;
  al_takeable *from;
  al_acquire_options options;
  bool waits;        /* false: a permit at once, or `busy` */
  bool has_rung;     /* since it last began to consume: no second time, as the queue may refuse every token */
  al_backoff again;  /* before the next try, after the queue or the channel ended */
  al_permit *permit; /* the permit that is being claimed; NULL: none */
  al_probes probes;  /* of seeking_rival and ringing */
  al_inspect inspect; /* of looking */
  int64_t rings_at;   /* a quorum mutex: its waiter publishes no token before */
  int64_t made_by; /* of looking: another client may be making the queue until then; 0: it did not look yet */
  bool is_hazard;  /* asking waits for the shields of other permits */
} taking;

/* Several clients may come to a new queue at once. One of them must ring, and after its consume each of them sees the
 * others. So a fast mutex is declared before the consume, and the answer says how many consumed before. It costs the broker
 * a question to the queue. It is left out for some seconds after the last one, when the queue is most likely not new. */
#define COUNTED (5 * AL_SECOND)

/* So long after its consume a waiter asks that, if it did not before. Where a mutex is busy, its turn comes sooner. */
#define COUNTS_LATE (100 * AL_MILLISECOND)

static void asking(al_op *op);
static void looking(al_op *op);
static void waiting(al_op *op);
static void needing_prober(al_op *op);
static void proberless(al_op *op);
static void handing_over(al_op *op);
static void ringing(al_op *op);
static void settling(al_op *op);

/* ---- queues to take from ---------------------------------------------------------------------------------------------- */

void *al_takeable_new(al_session *session, const al_takeable_kind *kind, size_t size, const char *name) {
  al_takeable *from = calloc(1, size);
  if (!from) return NULL;
  from->refs = 1;
  from->counted_at = -COUNTED;
  from->kind = kind;
  from->session = session;
  snprintf(from->name, sizeof from->name, "%s", name);
  al_session_ref(session);
  return from;
}

void al_takeable_drop(al_takeable *from) {
  if (al_session_forked(from->session) || --from->refs > 0) return;
  al_session_unref(from->session);
  free(from);
}

static al_link *link_of(const taking *self) { return al_permit_link(self->op.session, self->from->source); }

static al_takeable *use(al_takeable *from) {
  from->refs++;
  return from;
}

/* ---- the end of an acquire -------------------------------------------------------------------------------------- */

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_takeable_kind *kind = ((const taking *)op)->from->kind;
  snprintf(out, AL_MESSAGE_SIZE, "%s", op->step == handing_over ? kind->coming : kind->standing);
}

static void explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const taking *self = (const taking *)op;
  double seconds = (double)self->options.timeout / (double)AL_SECOND;
  if (op->step == handing_over) {
    al_claim_doubt_text(op, self->options.timeout, out);
    return;
  }
  self->from->kind->failure_text(self->from, AL_TIMEOUT, out);
  size_t length = strlen(out);
  snprintf(out + length, AL_MESSAGE_SIZE - length, " within %g s%s", seconds,
           op->waits_since == AL_NEVER ? " (the broker had not answered yet)" : "");
}

/* `why`: NULL, or what the broker says of it. */
static void fail(taking *self, al_code code, const char *why) {
  char words[AL_MESSAGE_SIZE];
  self->from->kind->failure_text(self->from, code, words);
  al_op_fail(&self->op, code, "%s%s%s", words, why ? ": " : "", why ? why : "");
}

static void leave_permit(taking *self) {
  if (self->permit) {
    if (self->permit->declared_at != 0) self->from->counted_at = self->permit->declared_at;
    al_claim_leave(&self->permit->claim);
  }
  self->permit = NULL;
  al_probes_cancel(&self->probes);
  al_op_watch(&self->op, NULL);
}

static void acquire_stop(al_op *op) {
  taking *self = (taking *)op;
  if (self->permit) al_claim_undo(&self->permit->claim, op);
  if (op->step == looking) al_inspect_cancel(&self->inspect);
  al_permits_expose(op->session, &self->is_hazard);
  leave_permit(self);
}

static void acquire_free(al_op *op) {
  taking *self = (taking *)op;
  al_locks_drop(op);
  al_probes_free(&self->probes);
  al_takeable_drop(self->from);
}

static void got(taking *self) {
  const al_takeable *from = self->from;
  const al_permit *permit = self->permit;
  if (from->is_fenced && permit->number == 0) {
    al_op_fail(&self->op, AL_CONFLICT,
               "the permit that came from \"%s\" has no number: it was published again, other "
               "software made it, or the queue is not a quorum queue; repair(), or resize(0) and then "
               "resize(n), make permits that have one",
               from->queue);
    return;
  }
  self->op.lock = al_lock_new(&self->permit->claim, from->kind->lock, from->name, 0, AL_PROBE_AUTO);
  if (!self->op.lock) {
    al_op_fail(&self->op, AL_NO_MEMORY, "the message from \"%s\" was given back", from->queue);
    return;
  }
  memcpy(self->from->token, permit->token, sizeof self->from->token);
  self->op.lock->fence = permit->number;
  memcpy(self->op.lock->permit, permit->id, sizeof permit->id);
  leave_permit(self);
  al_locks_count(&self->op);
  al_op_finish(&self->op);
}

/* ---- trying again ----------------------------------------------------------------------------------------------- */

static void pause_at(taking *self, void (*step)(al_op *), const char *step_name) {
  al_op_enter_at(&self->op, step, step_name);
  self->op.wake = self->op.session->now + al_backoff_next(&self->again, &self->op.session->random);
}

static void pausing(al_op *op) {
  if (al_op_has(op, link_of((taking *)op)) && al_op_is_woken(op)) al_op_next(op, asking);
}

/* The claim is gone. If the queue or the channel ended (LOST), the acquire tries again: there may be a new queue
 * by this name. */
static void missed(taking *self) {
  al_op *op = &self->op;
  const al_link *link = link_of(self);
  const al_claim *claim = &self->permit->claim; /* it stays, though it is left, until this step is over */
  al_code code = claim->code;
  bool is_first = self->permit->declared_at == 0 && self->from->counted_at > -COUNTED;
  leave_permit(self);
  self->from->counted_at = -COUNTED;
  self->from->is_known = false;
  al_op_answered(op);
  if (al_link_is_lost(link)) {
    al_op_fail_link(op, link);
  } else if (code == AL_LOST && is_first) {
    al_op_next(op, asking); /* the queue was not declared, and is gone */
  } else if (code == AL_LOST) {
    pause_at(self, AL_STEP(pausing));
  } else {
    fail(self, code, code == AL_NOT_FOUND ? NULL : claim->why);
  }
}

/* ---- at the queue ----------------------------------------------------------------------------------------------- */

/* The broker may have ended the connection during a silence, and given the permit to another client. So the
 * acquire asks the broker, unless the permit is certain. */
static void handing_over(al_op *op) {
  taking *self = (taking *)op;
  if (self->permit->claim.state == AL_CLAIM_GONE)
    missed(self);
  else if (al_claim_ascertain_for(op))
    got(self);
}

static void hand_over(taking *self) {
  al_op_answered(&self->op);
  al_op_next(&self->op, handing_over);
}

static bool is_claiming(taking *self) {
  al_claim_state state = self->permit->claim.state;
  if (state == AL_CLAIM_HELD)
    hand_over(self);
  else if (state == AL_CLAIM_GONE)
    missed(self);
  return state != AL_CLAIM_HELD && state != AL_CLAIM_GONE;
}

static void leaving(al_op *op) {
  taking *self = (taking *)op;
  if (self->permit->claim.state != AL_CLAIM_GONE && !self->permit->claim.lingers) return;
  if (al_link_is_lost(link_of(self)))
    al_op_fail_link(op, link_of(self));
  else
    fail(self, AL_BUSY, NULL);
}

/* A permit that arrives during the cancel goes back. It could not be used: without the consumer, the broker would
 * not notify its holder of its loss. */
static void leave(taking *self) {
  al_op_ask(&self->op);
  al_claim_undo(&self->permit->claim, &self->op);
  al_op_next(&self->op, leaving);
}

#define RINGS_EVERY (30 * AL_SECOND)        /* a quorum mutex */
#define PROBER_OPENS (250 * AL_MILLISECOND) /* when to look whether the prober is open */

/* A token that nobody consumes stays in the queue, and the broker refuses a second one. Returns when to ring next. */
static int64_t ring_again(taking *self) {
  al_session *session = self->op.session;
  int64_t poll = al_backoff_recheck(self->options.poll, &session->random);
  if (al_prober_ring(session, self->from->queue)) {
    self->rings_at = session->now + RINGS_EVERY;
    return poll;
  }
  if (!session->closed) {
    al_link_forget(session->prober); /* if it was lost: it holds nothing, and another one will do */
    al_link_want(session->prober);
  }
  return al_earlier(poll, PROBER_OPENS);
}

static void wait_for(taking *self, int64_t time) {
  al_op_enter(&self->op, waiting);
  if (self->from->kind->is_mutex) self->op.wake = al_deadline_after(self->op.session->now, time);
}

/* A quorum mutex needs another token only after a fault. And a publish to a quorum queue that does not answer holds up
 * what the prober asks for other locks. */
static bool may_ring(const taking *self) {
  const al_permit *permit = self->permit;
  if (self->from->source != AL_FROM_QUORUM_MUTEX) return true;
  return !al_permit_is_proving(permit) && permit->is_answered && self->op.session->now >= self->rings_at;
}

/* True if this claim has asked who else is at the queue, or need not: then deciding has been there before. */
static bool is_counted(const taking *self) {
  return self->from->source != AL_FROM_FAST_MUTEX || self->permit->declared_at != 0 || self->has_rung;
}

static void waiting(al_op *op) {
  taking *self = (taking *)op;
  bool rings = self->from->kind->is_mutex;
  if (!is_claiming(self) || !rings || !al_op_is_woken(op)) return;
  if (!is_counted(self)) {
    al_op_next(op, settling);
    return;
  }
  al_permit_look(self->permit);
  wait_for(self, may_ring(self) ? ring_again(self) : self->options.poll);
}

/* True if another lock of this session holds what is asked for. Callers that share a session may wait for one
 * another. */
static bool is_held_here(const taking *self) {
  const al_session *session = self->op.session;
  if (!self->from->kind->is_mutex || session->is_shared) return false;
  for (const al_claim *claim = session->claims; claim; claim = claim->next)
    if (claim->state == AL_CLAIM_HELD && strcmp(claim->queue, self->from->queue) == 0) return true;
  return false;
}

/* True if the prober was lost, and the acquire goes on with another one, which it opens a moment later: when every
 * operation has heard of the loss. If that cannot be opened, the acquire fails. */
static bool lost_prober(taking *self) {
  if (!self->waits || !al_op_lost_prober(&self->op)) return false;
  al_op_answered(&self->op);
  pause_at(self, AL_STEP(proberless));
  return true;
}

static void deciding(al_op *op) {
  taking *self = (taking *)op;
  if (!is_claiming(self)) return;
  bool is_proving = al_permit_is_proving(self->permit);
  if (is_proving ? !al_permit_is_doubted(self->permit) : !self->permit->is_none) return;
  self->from->cannot_ask |= self->permit->cannot_ask;
  al_op_answered(op);
  if (self->permit->was_deserted && !is_proving) {
    if (!lost_prober(self)) al_op_next(op, needing_prober);
  } else if (!self->waits) {
    leave(self);
  } else if (is_held_here(self)) {
    fail(self, AL_DEADLOCK, NULL);
  } else {
    al_op_waits(op);
    int64_t poll = al_backoff_recheck(self->options.poll, &op->session->random);
    wait_for(self, is_counted(self) ? poll : COUNTS_LATE);
  }
}

/* Its timer is due at once. The session calls it when all that arrived together with consume-ok has been read. */
static void settling(al_op *op) {
  taking *self = (taking *)op;
  if (!is_claiming(self) || op->wake != AL_NEVER) return;
  al_op_ask(op);
  bool looks = link_of(self) == &op->session->quorum && !self->from->cannot_ask;
  bool counts = !is_counted(self) && (!self->waits || op->waits_since != AL_NEVER);
  if (!al_permit_is_proving(self->permit)) al_permit_ask(self->permit, looks || counts);
  al_op_next(op, deciding);
}

static void settle(al_op *op) {
  al_op_enter(op, settling);
  op->wake = 0; /* due at once */
}

/* ---- a fast mutex whose queue is deserted ------------------------------------------------------------------------ */

static void name_queue(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  memcpy(out, ((const al_takeable *)context)->queue, AL_NAME_SIZE);
}

static void name_rival(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  memcpy(out, ((const al_takeable *)context)->rival, AL_NAME_SIZE);
}

static void unseen(al_op *op);

/* True if the question is answered. The answer decides something, or the operation has failed. */
static bool is_answered(taking *self) {
  if (self->probes.pending > 0) return false;
  if (self->probes.answers[0] == AL_ANSWER_UNKNOWN && lost_prober(self)) return false;
  return !al_probes_undecided(&self->probes, 0);
}

static void ring(taking *self) {
  al_op_enter(&self->op, ringing);
  al_probes_begin(&self->probes, &self->op, AL_MESSAGE_TOKEN, AL_PROBE_PUBLISH, 1, name_queue, self->from);
}

/* The queue may refuse the token: then it has one. If the token came back, the prober's node of the cluster has not
 * heard of the new queue yet. */
static void ringing(al_op *op) {
  taking *self = (taking *)op;
  if (!is_claiming(self) || !is_answered(self)) return;
  if (self->probes.answers[0] == AL_ANSWER_ABSENT) {
    pause_at(self, AL_STEP(unseen));
    return;
  }
  self->has_rung = true;
  self->permit->was_deserted = false;
  settle(op);
}

static void unseen(al_op *op) {
  taking *self = (taking *)op;
  if (!is_claiming(self) || !al_op_is_woken(op) || lost_prober(self)) return;
  if (al_op_needs(op, op->session->prober)) ring(self);
}

static void seeking_rival(al_op *op) {
  taking *self = (taking *)op;
  if (!is_claiming(self) || !is_answered(self)) return;
  if (self->probes.answers[0] != AL_ANSWER_ABSENT) {
    al_op_fail(op, AL_CONFLICT, "\"%s\" is in use as a plain mutex, which a fast mutex does not exclude",
               self->from->name);
    return;
  }
  ring(self);
}

static void needing_prober(al_op *op) {
  taking *self = (taking *)op;
  if (!is_claiming(self) || !al_op_needs(op, op->session->prober)) return;
  al_op_ask(op);
  al_op_enter(op, seeking_rival);
  al_probes_begin(&self->probes, op, AL_MESSAGE_PROBE, AL_PROBE_PUBLISH, 1, name_rival, self->from);
}

static void proberless(al_op *op) {
  if (!is_claiming((taking *)op) || !al_op_is_woken(op)) return;
  al_link_forget(op->session->prober);
  al_op_next(op, needing_prober);
}

/* ---- consuming --------------------------------------------------------------------------------------------------- */

static void consuming(al_op *op) {
  taking *self = (taking *)op;
  if (is_claiming(self) && al_permit_waits(self->permit)) settle(op);
}

#define NEW (10 * AL_SECOND) /* so long after there was none, a queue is taken for new */
#define MADE (1 * AL_SECOND) /* the most that its making takes, in most cases */

/* A queue without a token and a consumer may be one that another client is making. That one must be served first: it
 * knows that the queue is new. Besides, RabbitMQ ends the connection of a client that consumes from it too early. */
static void looking(al_op *op) {
  taking *self = (taking *)op;
  const al_inspect *seen = &self->inspect;
  if (!al_inspect_poll(seen)) return;
  al_op_answered(op);
  if (self->made_by == 0) self->made_by = op->session->now + MADE;
  if (seen->exists && seen->ready == 0 && seen->consumers == 0 && op->session->now < self->made_by) {
    pause_at(self, AL_STEP(pausing));
    return;
  }
  self->from->is_known = true;
  self->from->new_until = self->inspect.exists ? 0 : op->session->now + NEW;
  al_op_next(op, asking);
}

/* True if the queue of a quorum mutex is known, or need not be. */
static bool is_known(taking *self) {
  al_op *op = &self->op;
  al_link *link = link_of(self);
  if (self->from->source != AL_FROM_QUORUM_MUTEX) return true;
  if (link->version < AL_HAS_DISCONNECTED_TIMEOUT) {
    al_op_fail(op, AL_CONFLICT, "a mutex of quorum queues needs RabbitMQ 4.3 or later, and this is %d.%d",
               link->version / 10000, link->version / 100 % 100);
  } else if (!self->from->is_known) {
    al_op_enter(op, looking);
    al_inspect_begin(&self->inspect, op, link, self->from->queue);
  }
  return self->from->is_known && !op->done;
}

static void asking(al_op *op) {
  taking *self = (taking *)op;
  if (!al_op_needs(op, link_of(self)) || !is_known(self)) return;
  if (op->reply_by == AL_NEVER) al_op_ask(op);
  op->watches_claims =
      link_of(self) == &op->session->quorum && !al_permits_shield(op->session, &self->is_hazard);
  if (op->watches_claims) return;
  al_op_enter(op, consuming);
  self->has_rung = false;
  bool is_recent = op->session->now - self->from->counted_at < COUNTED;
  self->permit = al_permit_begin(op, self->from->queue, self->options.priority, self->from->source,
                                 is_recent ? self->from->token : "", self->from->new_until);
  al_permits_expose(op->session, &self->is_hazard);
}

static al_op *begin(al_takeable *from, const al_acquire_options *options) {
  taking *self = (taking *)al_op_new(from->session, sizeof *self, from->name);
  if (!self) return NULL;
  al_acquire_options_init(&self->options);
  if (options) self->options = *options;
  self->op.is_acquire = true;
  self->op.at_most = self->options.at_most;
  self->from = use(from);
  self->waits = self->options.timeout > 0;
  self->rings_at = from->session->now + RINGS_EVERY;
  self->again = AL_BACKOFF_QUEUE;
  self->op.stop = acquire_stop;
  self->op.free = acquire_free;
  self->op.timeout_text = explain;
  self->op.standing = describe;
  int64_t now = from->session->now;
  return al_op_start(&self->op, asking,
                     self->waits ? al_deadline_after(now, self->options.timeout) : AL_NEVER);
}

static al_op *attempt(const al_retry *retry) { return begin(retry->attempts.from, &retry->options); }

static void drop(void *from) { al_takeable_drop(from); }

al_op *al_takeable_acquire(al_takeable *from, const al_acquire_options *options) {
  AL_TURN(from->session);
  bool may_break =
      al_permit_link(from->session, from->source) == &from->session->quorum && from->session->nests == 0;
  if (!may_break && !al_retry_is_wanted(options)) return begin(from, options);
  return al_retry_begin(
      from->session, from->name, options,
      (al_attempts){.begin = attempt, .leave = drop, .from = use(from), .is_mutex = from->kind->is_mutex});
}
