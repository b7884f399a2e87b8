/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Administering a token semaphore: its two queues (ledger.h), the permits that lie in the one and the marks in the other.
 *
 *   wanting_links ─> taking_mutex ─> reading ─> one task after the other ─> leaving ─> done
 *
 * What is to be done is decided once, by the ledger, and is then a list of tasks: each begins something, and its step goes
 * on to the next when that is over. Their order is what keeps the promise that there are never more permits than marks,
 * whoever dies when: marks are published before permits, and acknowledged after them; and until all marks are there, there
 * is no queue for permits, so nobody waits at one that stays empty.
 *
 * Queues are declared and deleted on the mutex's own channel: who loses the mutex loses the means to go on. What is taken
 * from them is taken on the collector's, and goes back with it when anything goes wrong before it is acknowledged.
 *
 * Nothing is published twice. Where it is not known what came of it, the action fails, and repair counts what there is. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/admin_mutex.h"
#include "core/barrier.h"
#include "core/durable.h"
#include "core/harvest.h"
#include "core/mint.h"
#include "core/name.h"
#include "core/session.h"
#include "core/token_plan.h"
#include "core/turn.h"

static const char *const verbs[] = {"create", "add", "remove", "resize", "destroy", "repair"};

typedef struct token_admin token_admin;
typedef void task(token_admin *);

struct token_admin {
  al_op op;
  char name[AL_NAME_SIZE];
  al_token_admin_options options;
  al_token_plan plan;
  task *const *agenda;

  al_admin_mutex mutex;
  al_ledger ledger;
  al_barrier barrier;
  al_harvest harvest;
  al_mint mint;
  const char *asked; /* the queue that is being declared or deleted; NULL: that is answered */
  int64_t patience;  /* for the whole action, waiting for holders included */

  enum { NOTHING_BEGUN, RESIZE_FINISHES, REPAIR_AND_RESIZE_DO, REPAIR_DOES, DESTROY_DOES, ALL_DONE } begun;
  al_code verdict; /* what to end with once the mutex is let go */
  char words[AL_MESSAGE_SIZE];
};

void al_token_admin_options_init(al_token_admin_options *options) {
  *options = (al_token_admin_options){.timeout = 30 * AL_SECOND};
}

static void taking_mutex(al_op *op);

static double seconds(int64_t time) { return (double)time / (double)AL_SECOND; }

/* ---- ending ----------------------------------------------------------------------------------------------------- */

static void explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const token_admin *self = (const token_admin *)op;
  if (op->step == taking_mutex)
    snprintf(out, AL_MESSAGE_SIZE, "another administrator was at work on \"%s\" for all of %g s", self->name,
             seconds(self->options.timeout));
  else
    snprintf(out, AL_MESSAGE_SIZE, "%s of \"%s\" took longer than %g s", verbs[self->plan.action], self->name,
             seconds(self->patience));
}

static void name_what_finishes(const token_admin *self, char *out, size_t size) {
  int target = self->plan.target;
  switch (self->begun) {
    case NOTHING_BEGUN:
      break;
    case RESIZE_FINISHES:
      snprintf(out, size, "; resize(%d) finishes what was begun", target);
      break;
    case REPAIR_AND_RESIZE_DO:
      snprintf(out, size, "; repair() and then resize(%d) finish what was begun", target);
      break;
    case REPAIR_DOES:
      snprintf(out, size, "; repair() finishes what was begun");
      break;
    case DESTROY_DOES:
      snprintf(out, size, "; destroy() finishes what was begun");
      break;
    case ALL_DONE:
      snprintf(out, size, "; all else was done");
      break;
  }
}

static void token_admin_stop(al_op *op) {
  token_admin *self = (token_admin *)op;
  size_t used = strlen(op->message);
  name_what_finishes(self, op->message + used, sizeof op->message - used);
  al_ledger_cancel(&self->ledger);
  al_barrier_cancel(&self->barrier);
  al_mint_cancel(&self->mint);
  al_collector_drop(&self->harvest.collector);
  al_admin_mutex_drop(&self->mutex);
}

static void token_admin_free(al_op *op) {
  token_admin *self = (token_admin *)op;
  al_mint_free(&self->mint);
  al_ids_free(&self->harvest.collector.ids);
}

static void leaving(al_op *op) {
  token_admin *self = (token_admin *)op;
  if (!al_admin_mutex_released(&self->mutex)) return;
  if (self->verdict != AL_OK) {
    al_op_fail(op, self->verdict, "%s", self->words);
    return;
  }
  op->count = (size_t)self->plan.target;
  al_op_finish(op);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------ */

static void proceed(token_admin *self) {
  if (!self->op.done) (*self->agenda++)(self);
}

static void leave(token_admin *self) {
  if (self->begun != NOTHING_BEGUN) self->begun = ALL_DONE;
  al_admin_mutex_release(&self->mutex);
  al_op_next(&self->op, leaving);
}

static void returning(al_op *op) {
  token_admin *self = (token_admin *)op;
  if (al_admin_mutex_held(&self->mutex) && al_collector_is_out(&self->harvest.collector)) proceed(self);
}

static void give_back(token_admin *self) {
  al_collector_return(&self->harvest.collector);
  self->op.step = returning;
}

static void acknowledge(token_admin *self) {
  self->begun = self->plan.way == AL_TOKEN_ADOPTS ? RESIZE_FINISHES : REPAIR_AND_RESIZE_DO;
  al_collector_acknowledge(&self->harvest.collector);
  self->op.step = returning;
}

/* Nothing was changed. */
static void give_up(token_admin *self, al_code code) {
  static task *const giving_up[] = {give_back, leave};
  self->verdict = code;
  self->agenda = giving_up;
  proceed(self);
}

/* ---- tasks: on the mutex's channel ------------------------------------------------------------------------------ */

static void mutex_event(al_op *op, const al_event *event) {
  token_admin *self = (token_admin *)op;
  bool is_answer = event->kind == AL_EVENT_METHOD && (event->method == AMQP_QUEUE_DECLARE_OK_METHOD ||
                                                      event->method == AMQP_QUEUE_DELETE_OK_METHOD);
  if (is_answer) self->asked = NULL;
  if (event->kind != AL_EVENT_CLOSED || !self->asked || event->method == 0) return;
  bool locked = event->reply_code == AMQP_RESOURCE_LOCKED; /* another client's exclusive queue */
  if (self->begun == REPAIR_AND_RESIZE_DO)
    self->begun = RESIZE_FINISHES; /* now it is known that it is not there */
  al_op_fail(op, locked ? AL_SQUATTED : al_event_refusal(event), "queue \"%s\": %s", self->asked,
             event->text);
  /* The claim's watchers are stepped next, and this operation is one. */
}

static void asking(al_op *op) {
  token_admin *self = (token_admin *)op;
  if (!al_admin_mutex_held(&self->mutex) || self->asked) return;
  al_op_answered(op);
  proceed(self);
}

static void ask(token_admin *self, const char *queue) {
  self->asked = queue;
  self->op.step = asking;
  al_op_ask(&self->op);
}

/* Without a queue for permits there is no semaphore, whatever becomes of this one. */
static void declare_marks(token_admin *self) {
  self->begun = self->plan.way == AL_TOKEN_MAKES ? RESIZE_FINISHES : REPAIR_AND_RESIZE_DO;
  ask(self, self->ledger.marks.queue);
  al_durable_declare(self->mutex.own->channel, self->asked, self->options.quorum, false);
}

static void declare_permits(token_admin *self) {
  self->begun = REPAIR_AND_RESIZE_DO;
  ask(self, self->ledger.permits.queue);
  al_durable_declare(self->mutex.own->channel, self->asked, self->options.quorum, true);
}

static void delete_queue(token_admin *self, const al_sight *sight) {
  if (!sight->exists) {
    proceed(self);
    return;
  }
  ask(self, sight->queue);
  al_exclusive_delete_other(self->mutex.own, sight->queue);
}

static void delete_permits(token_admin *self) {
  self->begun = DESTROY_DOES;
  al_collector_doom(&self->harvest.collector);
  delete_queue(self, &self->ledger.permits);
}

static void delete_marks(token_admin *self) { delete_queue(self, &self->ledger.marks); }

/* Its queue is gone. */
static void end_collecting(token_admin *self) {
  al_collector_drop(&self->harvest.collector);
  proceed(self);
}

/* ---- tasks: publishing ------------------------------------------------------------------------------------------ */

static void publishing(al_op *op) {
  token_admin *self = (token_admin *)op;
  const al_mint *mint = &self->mint;
  if (!al_admin_mutex_held(&self->mutex) || !al_mint_over(&self->mint)) return;
  bool only_asks = mint->probes.message == AL_MESSAGE_PROBE; /* whether the queue is seen does not matter */
  bool fine =
      mint->code == AL_OK || (only_asks && (mint->code == AL_NOT_FOUND || mint->code == AL_UNAVAILABLE));
  if (fine)
    proceed(self);
  else
    al_op_fail(op, mint->code, "publishing to queue \"%s\": %s", mint->queue, mint->why);
}

static void publish(token_admin *self, const char *queue, al_message message, int count) {
  self->op.step = publishing;
  al_mint_begin(&self->mint, &self->op, queue, message, count);
  if (!self->op.done) al_op_next(&self->op, publishing);
}

/* Before anything is changed: an alarm, or a permission that is missing. */
static void try_to_publish(token_admin *self) {
  if (self->plan.permits == 0)
    proceed(self);
  else
    publish(self, self->mutex.queue, AL_MESSAGE_PROBE, 1);
}

static void passing_barrier(al_op *op) {
  token_admin *self = (token_admin *)op;
  if (al_admin_mutex_held(&self->mutex) && al_barrier_passed(&self->barrier)) proceed(self);
}

/* What is published must see the queue that was just declared, in a cluster through another node. */
static void pass_barrier(token_admin *self) {
  if (self->plan.permits == 0) {
    proceed(self);
    return;
  }
  self->op.step = passing_barrier;
  al_barrier_begin(&self->barrier, &self->op, AL_PROBE_AUTO, self->name);
}

static void publish_marks(token_admin *self) {
  if (self->begun == NOTHING_BEGUN) self->begun = REPAIR_AND_RESIZE_DO;
  publish(self, self->ledger.marks.queue, AL_MESSAGE_MARK, self->plan.marks);
}

static void publish_permits(token_admin *self) {
  if (self->plan.permits > 0) self->begun = REPAIR_DOES;
  publish(self, self->ledger.permits.queue, AL_MESSAGE_PERMIT, self->plan.permits);
}

/* ---- tasks: collecting ------------------------------------------------------------------------------------------ */

static void collecting(al_op *op) {
  token_admin *self = (token_admin *)op;
  if (!al_admin_mutex_held(&self->mutex)) return;
  al_harvest_state state = al_harvest_look(&self->harvest);
  if (state == AL_HARVEST_TOO_LITTLE) {
    al_harvest_explain(&self->harvest, self->name, self->words);
    give_up(self, self->options.wait > 0 ? AL_TIMEOUT : AL_BUSY);
  } else if (state == AL_HARVEST_ENOUGH) {
    if (self->plan.way == AL_TOKEN_MENDS)
      self->plan.permits = self->plan.count - self->harvest.collector.count;
    proceed(self);
  }
}

static void collect_permits(token_admin *self, al_harvest_goal goal, int number) {
  int64_t wait = self->options.wait;
  self->patience += wait;
  self->op.deadline = wait < AL_NEVER - self->op.deadline ? self->op.deadline + wait : AL_NEVER;
  self->op.step = collecting;
  al_harvest_begin(&self->harvest, &self->op, self->ledger.permits.queue, goal, number, wait);
}

static void collect_some(token_admin *self) { collect_permits(self, AL_HARVEST_NUMBER, self->plan.takes); }

static void collect_all(token_admin *self) {
  al_harvest_goal goal = self->plan.action == AL_TOKEN_DESTROY ? AL_HARVEST_ALL : AL_HARVEST_NUMBER;
  if (goal == AL_HARVEST_NUMBER && self->plan.takes == 0)
    proceed(self);
  else
    collect_permits(self, goal, self->plan.takes);
}

static void collect_whole(token_admin *self) { collect_permits(self, AL_HARVEST_WHOLE, self->plan.count); }

static void collect_foreign(token_admin *self) { collect_permits(self, AL_HARVEST_CERTAIN, 0); }

static void collecting_marks(al_op *op) {
  token_admin *self = (token_admin *)op;
  const al_collector *collector = &self->harvest.collector;
  if (!al_admin_mutex_held(&self->mutex)) return;
  al_harvest_state state = al_harvest_look(&self->harvest);
  if (state == AL_HARVEST_TOO_LITTLE)
    al_op_fail(op, AL_CONFLICT, "queue \"%s\" has lost marks: of %d to be removed only %d are there",
               collector->queue, collector->room, collector->count);
  else if (state == AL_HARVEST_ENOUGH)
    proceed(self);
}

/* Nobody else does that, under the mutex; so they lie ready. */
static void collect_marks(token_admin *self) {
  self->op.step = collecting_marks;
  al_harvest_begin(&self->harvest, &self->op, self->ledger.marks.queue, AL_HARVEST_NUMBER, self->plan.takes,
                   self->op.session->settings.timeout);
}

/* ---- deciding --------------------------------------------------------------------------------------------------- */

static task *const leaves[] = {leave};
static task *const makes[] = {try_to_publish,  delete_marks, declare_marks,   pass_barrier, publish_marks,
                              declare_permits, pass_barrier, publish_permits, leave};
static task *const adds[] = {try_to_publish, pass_barrier, publish_marks, publish_permits, leave};
static task *const takes[] = {collect_some, acknowledge, collect_marks, acknowledge, leave};
static task *const empties[] = {collect_all, delete_permits, end_collecting, delete_marks, leave};
static task *const deletes[] = {delete_permits, delete_marks, leave};
static task *const mends[] = {collect_whole, try_to_publish, pass_barrier, publish_permits, give_back, leave};
static task *const adopts[] = {try_to_publish, collect_foreign, acknowledge,     declare_marks,
                               pass_barrier,   publish_marks,   publish_permits, leave};
static task *const clears[] = {collect_foreign, delete_permits, end_collecting, leave};

static task *const *agenda(const al_token_plan *plan) {
  switch (plan->way) {
    case AL_TOKEN_MAKES:
      return makes;
    case AL_TOKEN_ADDS:
      return adds;
    case AL_TOKEN_TAKES:
      return takes;
    case AL_TOKEN_EMPTIES:
      return empties;
    case AL_TOKEN_DELETES:
      return deletes;
    case AL_TOKEN_MENDS:
      return mends;
    case AL_TOKEN_ADOPTS:
      return plan->target > 0 ? adopts : clears;
    default:
      return leaves;
  }
}

/* Whoever made that so has died half-way, or permits were lost otherwise; who holds one by basic.get is not seen. */
static void note_what_is_missing(const token_admin *self) {
  const al_sight *permits = &self->ledger.permits;
  bool mends_nothing = self->plan.action != AL_TOKEN_REPAIR && self->plan.action != AL_TOKEN_DESTROY;
  if (mends_nothing && permits->exists && permits->consumers == 0 && permits->ready < self->plan.count)
    al_session_note(
        self->op.session, true,
        "\"%s\" lacks %d of %d permits, and nobody is seen to hold them: repair() makes them anew",
        self->name, self->plan.count - permits->ready, self->plan.count);
}

static void reading(al_op *op) {
  token_admin *self = (token_admin *)op;
  if (!al_admin_mutex_held(&self->mutex) || !al_ledger_read(&self->ledger)) return;
  self->verdict = al_token_plan_make(&self->plan, &self->ledger, self->name, self->words);
  self->agenda = self->verdict == AL_OK ? agenda(&self->plan) : leaves;
  if (self->verdict == AL_OK) note_what_is_missing(self);
  proceed(self);
}

static void taking_mutex(al_op *op) {
  token_admin *self = (token_admin *)op;
  if (!al_admin_mutex_taken(&self->mutex)) return;
  self->mutex.own->on = mutex_event;
  self->mutex.own->on_op = op;
  op->step = reading;
  al_ledger_look(&self->ledger, op, self->name);
}

static void wanting_links(al_op *op) {
  token_admin *self = (token_admin *)op;
  char queue[AL_NAME_SIZE];
  bool publishes = self->plan.action != AL_TOKEN_REMOVE && self->plan.action != AL_TOKEN_DESTROY;
  if (!al_op_needs(op, &op->session->holder)) return;
  if (publishes && !al_op_needs(op, &op->session->prober)) return;
  op->step = taking_mutex;
  al_name_token_admin(queue, self->name);
  al_admin_mutex_begin(&self->mutex, op, self->name, queue);
}

/* ---- beginning -------------------------------------------------------------------------------------------------- */

static al_op *token_admin_begin(al_session *session, al_token_action action, const char *name, int amount,
                                const al_token_admin_options *options) {
  AL_TURN(session);
  token_admin *self = (token_admin *)al_op_new(session, sizeof *self);
  if (!self) return NULL;
  al_token_admin_options_init(&self->options);
  if (options) self->options = *options;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->plan =
      (al_token_plan){.action = action, .amount = amount, .waits = self->options.wait > 0, .target = -1};
  self->patience = self->options.timeout;
  self->op.stop = token_admin_stop;
  self->op.free = token_admin_free;
  self->op.explain = explain;
  return al_op_start(&self->op, wanting_links, session->now + self->options.timeout);
}

al_op *al_token_admin_create(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options) {
  return token_admin_begin(session, AL_TOKEN_CREATE, name, permits, options);
}

al_op *al_token_admin_add(al_session *session, const char *name, int permits,
                          const al_token_admin_options *options) {
  return token_admin_begin(session, AL_TOKEN_ADD, name, permits, options);
}

al_op *al_token_admin_remove(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options) {
  return token_admin_begin(session, AL_TOKEN_REMOVE, name, permits, options);
}

al_op *al_token_admin_resize(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options) {
  return token_admin_begin(session, AL_TOKEN_RESIZE, name, permits, options);
}

al_op *al_token_admin_destroy(al_session *session, const char *name, const al_token_admin_options *options) {
  return token_admin_begin(session, AL_TOKEN_DESTROY, name, 0, options);
}

al_op *al_token_admin_repair(al_session *session, const char *name, const al_token_admin_options *options) {
  return token_admin_begin(session, AL_TOKEN_REPAIR, name, 0, options);
}
