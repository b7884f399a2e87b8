/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Administering: the specification's "Lock Administration".
 *
 *   mutex_wanted ─> mutex_claimed ─> barrier ─> surveyed ─> checked ─> deleting ─> declaring ─> leaving ─> done
 *         ^  another's │                            │ nothing to do, or not to be done   │          │
 *         └──── wait <─┘                            └───────────────────> leaving <──────┘          └─> waiting for
 *                                                                                                       holders
 * Every declare and delete is asked on the mutex's own channel: who loses the mutex loses the means to go on. An error
 * there would end both, so it is avoided: what is absent is declared, what is present is not declared again, and what
 * is to be deleted is looked at elsewhere first.
 *
 * What is to be done is computed once, as an absolute number of slots; an action cut short names it, and a resize to it
 * finishes the work, whatever gaps there are. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/barrier.h"
#include "core/name.h"
#include "core/op.h"
#include "core/released.h"
#include "core/session.h"
#include "core/survey.h"
#include "core/wait.h"

#define DECLARES_AT_ONCE 16

typedef enum admin_kind { CREATE, ADD, REMOVE, RESIZE, DESTROY, REPAIR, SLOTS, STATUS } admin_kind;

static const char *const verbs[] = {"create",  "add",    "remove", "resize",
                                    "destroy", "repair", "slots",  "status"};

typedef struct admin {
  al_op op;
  admin_kind kind;
  char name[AL_NAME_SIZE];
  al_admin_options options;
  int amount;

  al_claim *mutex;
  al_wait wait;
  al_barrier barrier;
  al_survey survey;
  al_channel *check; /* on which the queues to be deleted are looked at */

  int target;   /* slots when all is done; -1 until that is computed */
  int *deletes; /* slots, in their order */
  int delete_count, deleted, checked;
  int declare_next, declares_under_way; /* slot numbers */

  al_code verdict; /* what to end with once the mutex is let go */
  char words[AL_MESSAGE_SIZE - 32];
  al_released released;
} admin;

void al_admin_options_init(al_admin_options *options) {
  *options = (al_admin_options){.timeout = 30 * AL_SECOND};
}

/* ---- ending ----------------------------------------------------------------------------------------------------- */

static void explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const admin *self = (const admin *)op;
  double seconds = (double)self->options.timeout / (double)AL_SECOND;
  if (self->released.count > 0)
    al_released_explain(&self->released, self->options.wait, out);
  else if (!self->mutex || self->mutex->state != AL_CLAIM_HELD)
    snprintf(out, AL_MESSAGE_SIZE, "another administrator was at work on \"%s\" for all of %g s", self->name,
             seconds);
  else
    snprintf(out, AL_MESSAGE_SIZE, "%s of \"%s\" took longer than %g s", verbs[self->kind], self->name,
             seconds);
}

static void admin_stop(al_op *op) {
  admin *self = (admin *)op;
  size_t used = strlen(op->message);
  bool halfway = self->target >= 0 && self->released.count == 0;
  if (halfway)
    snprintf(op->message + used, sizeof op->message - used, "; resize(%d) finishes what was begun",
             self->target);
  al_probes_cancel(&self->survey.probes);
  al_barrier_cancel(&self->barrier);
  al_released_cancel(&self->released);
  if (self->check) al_channel_close(self->check);
  self->check = NULL;
  if (self->mutex) al_claim_release(self->mutex);
  if (self->mutex) self->mutex->on = NULL;
  al_claim_leave(self->mutex);
  self->mutex = NULL;
  op->claim = NULL;
}

static void admin_free(al_op *op) {
  admin *self = (admin *)op;
  al_survey_free(&self->survey);
  al_released_free(&self->released);
  free(self->deletes);
}

static void ended(admin *self) {
  al_op *op = &self->op;
  if (self->verdict != AL_OK) {
    self->target = -1;
    al_op_fail(op, self->verdict, "%s", self->words);
    return;
  }
  op->count = (size_t)self->target;
  if (self->options.wait > 0 && self->delete_count > 0) {
    op->deadline = op->session->now + self->options.wait;
    al_released_begin(&self->released, op, self->name, self->deletes, (size_t)self->delete_count);
  } else {
    al_op_finish(op);
  }
}

static void leaving(al_op *op) {
  admin *self = (admin *)op;
  if (self->mutex->state != AL_CLAIM_GONE) return;
  al_op_answered(op);
  al_claim_leave(self->mutex);
  self->mutex = NULL;
  op->claim = NULL;
  ended(self);
}

static void leave(admin *self) {
  al_op_ask(&self->op);
  self->mutex->on = NULL;
  al_claim_release(self->mutex);
  al_op_next(&self->op, leaving);
}

__attribute__((format(printf, 3, 4))) static void leave_with(admin *self, al_code code, const char *format,
                                                             ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(self->words, sizeof self->words, format, arguments);
  va_end(arguments);
  self->verdict = code;
  leave(self);
}

/* ---- on the mutex's channel ------------------------------------------------------------------------------------- */

/* False: the mutex was lost, and with it the channel; the operation has failed. */
static bool mutex_is_held(admin *self) {
  if (self->op.done) return false;
  if (self->mutex->state == AL_CLAIM_HELD) return true;
  al_op_fail(&self->op, AL_LOST, "the administration mutex of \"%s\": %s", self->name, self->mutex->why);
  return false;
}

static int slot_in_hand(const admin *self) {
  bool deleting = self->deleted < self->delete_count;
  return deleting ? self->deletes[self->deleted] : self->declare_next - self->declares_under_way;
}

/* The broker refused a declare or a delete. */
static void action_refused(admin *self, const al_event *event) {
  al_code code = AL_UNREACHABLE;
  char queue[AL_NAME_SIZE];
  al_name_slot(queue, self->name, slot_in_hand(self));
  if (event->reply_code == AMQP_ACCESS_REFUSED) code = AL_REFUSED;
  if (event->reply_code == AMQP_RESOURCE_LOCKED) code = AL_SQUATTED;
  if (event->reply_code == AMQP_PRECONDITION_FAILED)
    code = strstr(event->text, "limit") ? AL_LIMIT : AL_CONFLICT;
  al_op_fail(&self->op, code, "queue \"%s\": %s", queue, event->text);
}

static void declaring(al_op *op);
static void deleting(al_op *op);

static void mutex_event(al_op *op, const al_event *event) {
  admin *self = (admin *)op;
  if (event->kind == AL_EVENT_CLOSED && event->method != 0)
    action_refused(self, event);
  else if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DELETE_OK_METHOD)
    self->deleted++;
  else if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD)
    self->declares_under_way--;
  /* The claim's watchers are stepped next, and this operation is one. */
}

static amqp_table_entry_t text_entry(const char *key, const char *text) {
  amqp_table_entry_t entry = {.key = amqp_cstring_bytes(key)};
  entry.value.kind = AMQP_FIELD_KIND_UTF8;
  entry.value.value.bytes = amqp_cstring_bytes(text);
  return entry;
}

static void declare_slot(admin *self, int slot) {
  char queue[AL_NAME_SIZE];
  al_name_slot(queue, self->name, slot);
  amqp_table_entry_t entries[] = {text_entry("x-queue-type", self->options.quorum ? "quorum" : "classic"),
                                  text_entry("x-overflow", "drop-head"),
                                  {.key = amqp_cstring_bytes("x-max-length")}};
  entries[2].value.kind = AMQP_FIELD_KIND_I64;
  amqp_queue_declare_t declare = {
      .queue = amqp_cstring_bytes(queue), .durable = 1, .arguments = {.num_entries = 3, .entries = entries}};
  al_channel_call(self->mutex->channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
}

/* Ascending, so that at every moment what exists is a whole semaphore; a few ahead of their answers. */
static void declaring(al_op *op) {
  admin *self = (admin *)op;
  if (!mutex_is_held(self)) return;
  while (self->declare_next <= self->target && self->declares_under_way < DECLARES_AT_ONCE) {
    int slot = self->declare_next++;
    if (al_survey_exists(&self->survey, slot)) continue;
    self->declares_under_way++;
    declare_slot(self, slot);
  }
  if (self->declares_under_way > 0)
    al_op_ask(op);
  else
    leave(self);
}

/* One at a time, each answer awaited. */
static void deleting(al_op *op) {
  admin *self = (admin *)op;
  char queue[AL_NAME_SIZE];
  if (!mutex_is_held(self)) return;
  if (self->deleted < self->checked) return;
  if (self->deleted == self->delete_count) {
    self->declare_next = 1;
    al_op_next(op, declaring);
    return;
  }
  self->checked = self->deleted + 1;
  al_name_slot(queue, self->name, self->deletes[self->deleted]);
  amqp_queue_delete_t delete = {.queue = amqp_cstring_bytes(queue)};
  al_op_ask(op);
  al_channel_call(self->mutex->channel, AMQP_QUEUE_DELETE_METHOD, &delete);
}

/* ---- looking before deleting ------------------------------------------------------------------------------------ */

static void begin_deleting(admin *self) {
  self->checked = 0;
  al_op_next(&self->op, deleting);
}

static void check_event(void *owner, al_channel *channel, const al_event *event) {
  admin *self = owner;
  if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD) self->checked++;
  bool all = self->checked == self->delete_count;
  if (event->kind == AL_EVENT_CONTENT || (event->kind == AL_EVENT_METHOD && !all)) return;
  self->check = NULL;
  if (event->kind == AL_EVENT_DOWN) return; /* the mutex is gone with it, and says so */
  if (event->kind == AL_EVENT_METHOD) al_channel_give(channel);
  if (event->kind == AL_EVENT_CLOSED && event->reply_code == AMQP_RESOURCE_LOCKED)
    leave_with(self, AL_SQUATTED, "queue \"%s-%d-A\" is another client's exclusive queue, not a slot",
               self->name, self->deletes[self->checked]);
  else
    begin_deleting(self); /* what is missing or down will be told by the deletion itself */
}

static void checking(al_op *op) { mutex_is_held((admin *)op); }

/* An exclusive queue by the name of an A cannot be deleted, and trying costs the mutex: asked for elsewhere first. */
static void check(admin *self) {
  self->op.step = checking;
  if (self->delete_count == 0) {
    begin_deleting(self);
    return;
  }
  self->check = al_channel_take(&self->op.session->holder, check_event, self);
  if (!self->check) {
    leave_with(self, AL_LIMIT, "no channel is left on the connection");
    return;
  }
  al_op_ask(&self->op);
  for (int i = 0; i < self->delete_count; i++) {
    char queue[AL_NAME_SIZE];
    al_name_slot(queue, self->name, self->deletes[i]);
    amqp_queue_declare_t look = {.queue = amqp_cstring_bytes(queue), .passive = 1};
    al_channel_call(self->check, AMQP_QUEUE_DECLARE_METHOD, &look);
  }
}

/* ---- deciding --------------------------------------------------------------------------------------------------- */

/* The lowest slot that exists past the row and past what overshooting clears away; 0 if there is none. */
static int stray(const admin *self) {
  const al_survey *survey = &self->survey;
  for (int slot = survey->count + 1 + self->options.overshoot; slot <= survey->highest; slot++)
    if (al_survey_exists(survey, slot)) return slot;
  return 0;
}

static bool plan_delete(admin *self, int slot) {
  if (!al_survey_exists(&self->survey, slot)) return true;
  if (!self->deletes) self->deletes = malloc((size_t)self->survey.highest * sizeof *self->deletes);
  if (!self->deletes) return false;
  self->deletes[self->delete_count++] = slot;
  return true;
}

/* Deletes lie between the target, or the end of the row, and as far as this action clears. */
static bool plan(admin *self) {
  const al_survey *survey = &self->survey;
  bool settles_all = self->kind == RESIZE || self->kind == DESTROY;
  int low = self->target < survey->count || settles_all ? self->target : survey->count,
      high = survey->highest;
  if (!settles_all && high > survey->count + self->options.overshoot)
    high = survey->count + self->options.overshoot;
  if (self->kind == REPAIR) high = low;
  bool good = true;
  for (int i = 1; i <= high - low && good; i++)
    good = plan_delete(self, self->options.ascending ? low + i : high + 1 - i);
  for (int i = 0; i < self->delete_count; i++) self->survey.slots[self->deletes[i] - 1].exists = false;
  return good;
}

static int target(const admin *self) {
  int count = self->survey.count;
  switch (self->kind) {
    case ADD:
      return count + self->amount;
    case REMOVE:
      return count > self->amount ? count - self->amount : 0;
    case DESTROY:
      return 0;
    case REPAIR:
      return self->survey.highest;
    default:
      return self->amount;
  }
}

/* True if the action may go on. */
static bool judge(admin *self) {
  const al_survey *survey = &self->survey;
  bool none = survey->highest == 0;
  bool repairs = self->kind == RESIZE || self->kind == DESTROY || self->kind == REPAIR;
  if (self->kind == CREATE && survey->count > 0)
    leave_with(self, AL_EXISTS, "semaphore \"%s\" has %d slots already; resize(%d) changes that", self->name,
               survey->count, self->amount);
  else if (none && self->kind != CREATE && self->kind != RESIZE)
    leave_with(self, AL_NOT_FOUND, "there is no semaphore \"%s\"; create it", self->name);
  else if (!repairs && stray(self))
    leave_with(self, AL_CONFLICT,
               "queue \"%s-%d-A\" exists but \"%s-%d-A\" does not: repair() makes the row whole, "
               "resize(n) settles on n slots",
               self->name, stray(self), self->name, survey->count + 1);
  else if (target(self) > AL_SLOTS_MAX)
    leave_with(self, AL_LIMIT, "\"%s\" would have %d slots; the most is %d", self->name, target(self),
               AL_SLOTS_MAX);
  return self->verdict == AL_OK;
}

static void surveying(al_op *op) {
  admin *self = (admin *)op;
  if (!mutex_is_held(self) || !al_survey_done(&self->survey) || !judge(self)) return;
  self->target = target(self);
  if (plan(self))
    check(self);
  else
    leave_with(self, AL_NO_MEMORY, "planning for \"%s\"", self->name);
}

static void passing_barrier(al_op *op) {
  admin *self = (admin *)op;
  if (!mutex_is_held(self) || !al_barrier_passed(&self->barrier)) return;
  op->step = surveying;
  al_survey_begin(&self->survey, op, self->name, false, self->options.overshoot);
}

/* ---- the mutex -------------------------------------------------------------------------------------------------- */

static void mutex_wanted(al_op *op);

static void mutex_waiting(al_op *op) {
  if (al_link_is_lost(&op->session->holder))
    al_op_fail_link(op, &op->session->holder);
  else if (op->wake == AL_NEVER)
    al_op_next(op, mutex_wanted);
}

static void mutex_wait(admin *self) {
  al_session *session = self->op.session;
  self->op.step = mutex_waiting;
  self->op.wake = session->now + al_wait_next(&self->wait, &session->random);
}

static void mutex_missed(admin *self) {
  al_code code = self->mutex->code;
  char why[sizeof self->mutex->why];
  memcpy(why, self->mutex->why, sizeof why);
  al_claim_leave(self->mutex);
  self->mutex = NULL;
  self->op.claim = NULL;
  if (code == AL_CONTENDED)
    mutex_wait(self);
  else
    al_op_fail(&self->op, code, "the administration mutex of \"%s\": %s", self->name, why);
}

static void mutex_claimed(al_op *op) {
  admin *self = (admin *)op;
  if (self->mutex->state == AL_CLAIM_CLAIMING) return;
  al_op_answered(op);
  if (self->mutex->state != AL_CLAIM_HELD) {
    mutex_missed(self);
    return;
  }
  self->mutex->on = mutex_event;
  self->mutex->on_op = op;
  op->step = passing_barrier;
  al_barrier_begin(&self->barrier, op, self->name);
}

static bool links_are_open(al_op *op) {
  if (!al_op_needs(op, &op->session->holder)) return false;
  return !al_probes_publish(op->session, AL_PROBE_AUTO) || al_op_needs(op, &op->session->prober);
}

static void mutex_wanted(al_op *op) {
  admin *self = (admin *)op;
  char queue[AL_NAME_SIZE];
  if (!links_are_open(op)) return;
  al_name_admin(queue, self->name);
  if (al_claim_find(op->session, queue)) { /* another caller on this very connection */
    mutex_wait(self);
    return;
  }
  al_op_ask(op);
  op->step = mutex_claimed;
  self->mutex = al_claim_begin(op, queue, 0, NULL);
}

/* ---- looking without the mutex ---------------------------------------------------------------------------------- */

static void looked(al_op *op) {
  admin *self = (admin *)op;
  al_survey *survey = &self->survey;
  if (!al_survey_done(survey)) return;
  op->count = (size_t)survey->count;
  if (self->kind == SLOTS && survey->highest > survey->count) {
    al_op_fail(op, AL_CONFLICT,
               "queue \"%s-%d-A\" exists but \"%s-%d-A\" does not: repair() makes the row whole, "
               "resize(n) settles on n slots",
               self->name, survey->highest, self->name, survey->count + 1);
    return;
  }
  op->slots = survey->slots;
  survey->slots = NULL;
  op->seen = (size_t)survey->seen;
  while (op->seen > 0 && !op->slots[op->seen - 1].exists && !op->slots[op->seen - 1].held) op->seen--;
  al_op_finish(op);
}

static void look(al_op *op) {
  admin *self = (admin *)op;
  if (!links_are_open(op)) return;
  op->step = looked;
  al_survey_begin(&self->survey, op, self->name, self->kind == STATUS, 0);
}

/* ---- beginning -------------------------------------------------------------------------------------------------- */

static al_op *admin_begin(al_session *session, admin_kind kind, const char *name, int amount,
                          const al_admin_options *options) {
  admin *self = (admin *)al_op_new(session, sizeof *self);
  if (!self) return NULL;
  al_admin_options_init(&self->options);
  if (options) self->options = *options;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->kind = kind;
  self->amount = amount;
  self->target = -1;
  self->wait = AL_WAIT_ADMIN;
  self->op.stop = admin_stop;
  self->op.free = admin_free;
  self->op.explain = explain;
  bool looks = kind == SLOTS || kind == STATUS;
  return al_op_start(&self->op, looks ? look : mutex_wanted, session->now + self->options.timeout);
}

al_op *al_admin_create(al_session *session, const char *name, int slots, const al_admin_options *options) {
  return admin_begin(session, CREATE, name, slots, options);
}

al_op *al_admin_add(al_session *session, const char *name, int slots, const al_admin_options *options) {
  return admin_begin(session, ADD, name, slots, options);
}

al_op *al_admin_remove(al_session *session, const char *name, int slots, const al_admin_options *options) {
  return admin_begin(session, REMOVE, name, slots, options);
}

al_op *al_admin_resize(al_session *session, const char *name, int slots, const al_admin_options *options) {
  return admin_begin(session, RESIZE, name, slots, options);
}

al_op *al_admin_destroy(al_session *session, const char *name, const al_admin_options *options) {
  return admin_begin(session, DESTROY, name, 0, options);
}

al_op *al_admin_repair(al_session *session, const char *name, const al_admin_options *options) {
  return admin_begin(session, REPAIR, name, 0, options);
}

al_op *al_admin_slots(al_session *session, const char *name, const al_admin_options *options) {
  return admin_begin(session, SLOTS, name, 0, options);
}

al_op *al_admin_status(al_session *session, const char *name, const al_admin_options *options) {
  return admin_begin(session, STATUS, name, 0, options);
}
