/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The administration of a semaphore (docs/specification.md, 8).
 *
 *  wanting_links ─> taking_mutex ─> passing_barrier ─> counting ─> checking ─> deleting ─> finding_bell ─> declaring
 *                                                       │ not to be done             nothing │               │
 *                                                       │                            is left │               │
 *                                                       └────────> leaving <─────────────────┴── ringing <───┘
 *                                                                    │
 *                                                      done <────────┴──────> waiting for holders
 *
 * With `fenced`, an action that makes slots draws a number from the fence (acquire/fence_token.h) between counting and
 * checking: the fence is there before the first slot, so clients of the semaphore need no permission to make it.
 *
 * The administrator declares and deletes queues on the channel of the administration mutex. So an administrator
 * that loses the mutex cannot change anything any more. A channel error there would end the mutex too, so errors
 * are avoided: only absent queues are declared, and each queue to delete is checked on another channel first.
 *
 * The doorbell, or bell (admin_bell.h), is the queue whose tokens wake waiters. It is declared before the first
 * slot and deleted after the last: a waiter whose bell goes away counts the slots again, and must find none then.
 *
 * The target of an action is computed once, as an absolute number of slots. The message of an action that is cut
 * short names that number, and a resize to it finishes the work, whatever gaps there are. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/acquire/fence_token.h"
#include "core/admin/admin_bell.h"
#include "core/admin/admin_mutex.h"
#include "core/admin/holder_wait.h"
#include "core/admin/slot_count.h"
#include "core/admin/slot_plan.h"
#include "core/base/backoff.h"
#include "core/base/field.h"
#include "core/base/name.h"
#include "core/queue/barrier.h"
#include "core/queue/declare.h"
#include "core/session/op.h"
#include "core/session/session.h"
#include "core/session/turn.h"

#define DECLARES_AT_ONCE 16
#define BELL 0 /* stands for the bell among slot numbers */

typedef struct admin {
  al_op op;
  char name[AL_NAME_SIZE];
  al_admin_options options;
  al_slot_plan change;

  char fence[AL_NAME_SIZE];
  al_fence_token fence_token;

  al_admin_mutex mutex;
  al_barrier barrier;
  al_slot_count row;
  al_admin_bell bell;
  al_channel *check; /* for the check of the queues to delete; NULL: none under way */

  int checked, deleted;       /* how many of change.deletes, and of the bell behind them */
  int declare_next, declared; /* the next slot to declare, BELL first; how many slots were declared */
  int under_way[DECLARES_AT_ONCE], declares_under_way; /* slots, in the order of their answers */

  al_code verdict; /* the code of the operation once the mutex is released */
  char words[AL_MESSAGE_SIZE];
  al_holder_wait holders;
} admin;

void al_admin_options_init(al_admin_options *options) {
  *options = (al_admin_options){.timeout = 30 * AL_SECOND};
}

/* ---- ending ----------------------------------------------------------------------------------------------------- */

/* The time to wait for the holders of the removed slots. */
static int64_t allowed(const admin *self) {
  return self->options.wait > 0 ? self->options.wait : self->options.timeout;
}

static void drawing_token(al_op *op);

static void explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const admin *self = (const admin *)op;
  if (self->holders.count > 0)
    al_holder_wait_explain(&self->holders, allowed(self), out); /* the slots are removed by then */
  else if (op->step == drawing_token)
    snprintf(out, AL_MESSAGE_SIZE, "\"%s\" was not ready within %g s: %s", self->fence,
             (double)self->options.timeout / (double)AL_SECOND, al_fence_token_why(&self->fence_token));
  else if (!al_admin_mutex_explain(&self->mutex, self->options.timeout, out))
    snprintf(out, AL_MESSAGE_SIZE, "%s of \"%s\" took longer than %g s", al_action_verb(self->change.action),
             self->name, (double)self->options.timeout / (double)AL_SECOND);
}

static void admin_stop(al_op *op) {
  admin *self = (admin *)op;
  size_t used = strlen(op->message);
  bool halfway = self->change.target >= 0 && self->holders.count == 0 && op->step != drawing_token;
  if (halfway)
    snprintf(op->message + used, sizeof op->message - used, "; resize(%d) finishes what was begun",
             self->change.target);
  else if (self->holders.count > 0)
    snprintf(op->message + used, sizeof op->message - used, "; the slots to remove are removed");
  al_probes_cancel(&self->row.probes);
  al_barrier_cancel(&self->barrier);
  al_fence_token_cancel(&self->fence_token);
  al_admin_bell_cancel(&self->bell);
  al_holder_wait_cancel(&self->holders);
  if (self->check) al_channel_close(self->check);
  self->check = NULL;
  al_admin_mutex_drop(&self->mutex);
}

static void admin_free(al_op *op) {
  admin *self = (admin *)op;
  al_slot_count_free(&self->row);
  al_admin_bell_free(&self->bell);
  al_holder_wait_free(&self->holders);
  al_slot_plan_free(&self->change);
}

static void ended(admin *self) {
  al_op *op = &self->op;
  if (self->verdict != AL_OK) {
    self->change.target = -1;
    al_op_fail(op, self->verdict, "%s", self->words);
    return;
  }
  op->count = (size_t)self->change.target;
  bool waits = self->options.wait > 0, revokes = self->options.revoke;
  if ((waits || revokes) && self->change.delete_count > 0) {
    al_request asking = waits ? AL_REQUEST_REVOKE : AL_REQUEST_ONCE;
    op->deadline = al_deadline_after(op->session->now, allowed(self));
    al_holder_wait_begin(&self->holders, op, self->name, self->change.deletes,
                         (size_t)self->change.delete_count, revokes ? asking : AL_REQUEST_NOTHING);
  } else {
    al_op_finish(op);
  }
}

static void leaving(al_op *op) {
  admin *self = (admin *)op;
  if (al_admin_mutex_poll_released(&self->mutex)) ended(self);
}

static void leave(admin *self) {
  al_admin_mutex_release(&self->mutex);
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

static void queue_name(const admin *self, int slot, char out[AL_NAME_SIZE]) {
  if (slot == BELL)
    al_name(out, AL_SUFFIX_BELL, self->name);
  else
    al_name_slot(out, self->name, slot);
}

/* The bell is deleted with the last slot. */
static int deletes(const admin *self) { return self->change.delete_count + (self->change.target == 0); }

static int delete_at(const admin *self, int index) {
  return index < self->change.delete_count ? self->change.deletes[index] : BELL;
}

static int slot_in_hand(const admin *self) {
  return self->deleted < deletes(self) ? delete_at(self, self->deleted) : self->under_way[0];
}

/* The broker refused a declare or a delete. Neither fails for an absent queue, so 404 means that the queue's node
 * is down. */
static void action_refused(admin *self, const al_event *event) {
  char queue[AL_NAME_SIZE];
  queue_name(self, slot_in_hand(self), queue);
  al_op_fail(&self->op, al_event_code(event, AL_SQUATTED, AL_UNAVAILABLE), "queue \"%s\": %s", queue,
             event->text);
}

static void declaring(al_op *op);
static void deleting(al_op *op);

static void declare_answered(admin *self) {
  if (self->declares_under_way == 0) return; /* no declare is awaited */
  self->declares_under_way--;
  memmove(self->under_way, self->under_way + 1, (size_t)self->declares_under_way * sizeof *self->under_way);
}

static void mutex_event(al_op *op, const al_event *event) {
  admin *self = (admin *)op;
  if (event->kind == AL_EVENT_CLOSED && event->method != 0)
    action_refused(self, event);
  else if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DELETE_OK_METHOD)
    self->deleted++;
  else if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD)
    declare_answered(self);
  /* This operation watches the claim, so the session calls its step next. */
}

static void declare_slot(admin *self, int slot) {
  char queue[AL_NAME_SIZE];
  if (slot == BELL) {
    al_admin_bell_declare(&self->bell, self->mutex.own->channel);
    return;
  }
  self->declared++;
  al_name_slot(queue, self->name, slot);
  al_declare_slot(self->mutex.own->channel, queue, self->options.quorum);
}

static bool makes_up(const admin *self) {
  return self->change.action == AL_REPAIR || self->change.action == AL_RESIZE;
}

static int slots_held(const admin *self) {
  int held = 0;
  for (int slot = 1; slot <= self->row.seen; slot++) held += self->row.slots[slot - 1].held;
  return held;
}

/* The number of tokens to publish. Repair and resize finish the work of another administrator and replace lost
 * tokens: a token for each free slot, less the tokens that lie in the bell. Tokens delivered to waiters cannot be
 * counted; a waiter that finds no free slot by its token throws it away. */
static int tokens_lacking(const admin *self) {
  int target = self->change.target, ready = al_admin_bell_ready(&self->bell);
  if (!al_admin_bell_exists(&self->bell)) return target;
  if (self->row.highest == 0) return target - ready;
  if (!makes_up(self)) return self->declared;
  return target - slots_held(self) - ready;
}

static void ringing(al_op *op) {
  admin *self = (admin *)op;
  if (al_admin_mutex_held(&self->mutex) && al_admin_bell_poll_ring(&self->bell)) leave(self);
}

/* Declares slots in ascending order, so that the slots that exist have no gap at any moment. Up to
 * DECLARES_AT_ONCE declares are under way at a time. */
static void declaring(al_op *op) {
  admin *self = (admin *)op;
  if (!al_admin_mutex_held(&self->mutex)) return;
  while (self->declare_next <= self->change.target && self->declares_under_way < DECLARES_AT_ONCE) {
    int slot = self->declare_next++;
    if (slot == BELL ? al_admin_bell_exists(&self->bell) : al_slot_count_exists(&self->row, slot)) continue;
    self->under_way[self->declares_under_way++] = slot;
    declare_slot(self, slot);
  }
  if (self->declares_under_way > 0) {
    al_op_ask(op);
    return;
  }
  al_op_answered(op);
  al_admin_bell_ring(&self->bell, tokens_lacking(self));
  if (!op->done) al_op_next(op, ringing);
}

static void finding_bell(al_op *op) {
  admin *self = (admin *)op;
  if (!al_admin_mutex_held(&self->mutex) || !al_admin_bell_poll_find(&self->bell)) return;
  self->declare_next = BELL;
  al_op_next(op, declaring);
}

/* All deletes are done. */
static void deletes_done(admin *self) {
  if (self->change.target == 0) {
    leave(self);
    return;
  }
  al_op_enter(&self->op, finding_bell);
  al_admin_bell_find(&self->bell, &self->op, self->name);
}

/* Deletes one queue at a time, and waits for each answer. */
static void deleting(al_op *op) {
  admin *self = (admin *)op;
  char queue[AL_NAME_SIZE];
  if (!al_admin_mutex_held(&self->mutex)) return;
  if (self->deleted < self->checked) return;
  if (self->deleted == deletes(self)) {
    deletes_done(self);
    return;
  }
  self->checked = self->deleted + 1;
  queue_name(self, delete_at(self, self->deleted), queue);
  al_op_ask(op);
  al_exclusive_delete_other(self->mutex.own, queue);
}

/* ---- checking before deleting ----------------------------------------------------------------------------------- */

static void begin_deleting(admin *self) {
  self->checked = 0;
  al_op_next(&self->op, deleting);
}

static void check_event(void *owner, al_channel *channel, const al_event *event) {
  admin *self = owner;
  if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD) self->checked++;
  al_op_ask(&self->op); /* each answer gives the rest the whole timeout again */
  bool all = self->checked == self->change.delete_count;
  if (event->kind == AL_EVENT_CONTENT || (event->kind == AL_EVENT_METHOD && !all)) return;
  self->check = NULL;
  if (event->kind == AL_EVENT_DOWN) return; /* the mutex was on the same link: it fails the operation */
  if (event->kind == AL_EVENT_METHOD) al_channel_give(channel);
  if (event->kind == AL_EVENT_CLOSED && event->reply_code == AMQP_RESOURCE_LOCKED)
    leave_with(self, AL_SQUATTED, "queue \"%s-%d-A\" is another client's exclusive queue, not a slot",
               self->name, self->change.deletes[self->checked]);
  else
    begin_deleting(self); /* the delete itself will tell if a queue is missing or its node is down */
}

static void checking(al_op *op) { al_admin_mutex_held(&((admin *)op)->mutex); }

/* A slot's name may stand for another client's exclusive queue. A delete of that is refused, and would close the
 * channel of the mutex. So a passive declare on another channel checks each queue first. */
static void check(admin *self) {
  al_op_enter(&self->op, checking);
  if (self->change.delete_count == 0) {
    begin_deleting(self);
    return;
  }
  self->check = al_channel_take(&self->op.session->holder, check_event, self);
  if (!self->check) {
    bool lacks_memory = self->op.session->holder.lacks_memory;
    leave_with(self, lacks_memory ? AL_NO_MEMORY : AL_LIMIT, "no channel is left on the connection%s",
               lacks_memory ? ", nor memory for another" : "");
    return;
  }
  al_op_ask(&self->op);
  for (int i = 0; i < self->change.delete_count; i++) {
    char queue[AL_NAME_SIZE];
    al_name_slot(queue, self->name, self->change.deletes[i]);
    al_channel_declare_passive(self->check, queue);
  }
}

/* ---- the fence -------------------------------------------------------------------------------------------------- */

static void drawing_token(al_op *op) {
  admin *self = (admin *)op;
  if (al_admin_mutex_held(&self->mutex) && al_fence_token_poll(&self->fence_token) > 0) check(self);
}

static void draw_token(admin *self) {
  al_op_answered(&self->op);
  al_fence_token_begin(&self->fence_token, &self->op, self->fence);
  self->fence_token.mends = self->change.action == AL_REPAIR;
  al_op_next(&self->op, drawing_token);
}

/* ---- deciding --------------------------------------------------------------------------------------------------- */

static bool is_fenced(const admin *self) {
  bool makes = al_action_makes(self->change.action) || self->change.action == AL_REPAIR;
  return self->options.fenced && makes && self->change.target > 0;
}

static void counting(al_op *op) {
  admin *self = (admin *)op;
  if (!al_admin_mutex_held(&self->mutex) || !al_slot_count_poll(&self->row)) return;
  self->verdict = al_slot_plan_plan(&self->change, &self->row, self->words);
  if (self->verdict != AL_OK)
    leave(self);
  else if (is_fenced(self))
    draw_token(self);
  else
    check(self);
}

static void passing_barrier(al_op *op) {
  admin *self = (admin *)op;
  if (!al_admin_mutex_held(&self->mutex) || !al_barrier_poll(&self->barrier)) return;
  al_op_enter(op, counting);
  /* Counts as far as this change may declare: slots that exist there must neither be declared again nor join the
   * row unnoticed. */
  al_action action = self->change.action;
  int amount = self->change.amount, overshoot = self->options.overshoot;
  int beyond = action == AL_ADD && amount > overshoot ? amount : overshoot;
  int least = al_action_makes(action) ? amount + 1 : 0;
  al_slot_count_begin(&self->row, op, self->name, makes_up(self), beyond, least);
}

/* ---- the mutex -------------------------------------------------------------------------------------------------- */

static void taking_mutex(al_op *op) {
  admin *self = (admin *)op;
  if (!al_admin_mutex_poll_taken(&self->mutex)) return;
  al_admin_mutex_listen(&self->mutex, mutex_event);
  al_op_enter(op, passing_barrier);
  al_barrier_begin(&self->barrier, op, AL_PROBE_AUTO, self->name);
}

static void wanting_links(al_op *op) {
  admin *self = (admin *)op;
  if (!al_action_is_possible(self->change.action, self->change.amount, op)) return;
  if (!al_probing_needs(op, AL_PROBE_AUTO)) return;
  char queue[AL_NAME_SIZE];
  al_op_enter(op, taking_mutex);
  al_name(queue, AL_SUFFIX_ADMIN, self->name);
  al_admin_mutex_begin(&self->mutex, op, self->name, queue);
}

/* ---- beginning -------------------------------------------------------------------------------------------------- */

static al_op *admin_begin(al_session *session, al_action action, const char *name, int amount,
                          const al_admin_options *options) {
  AL_TURN(session);
  admin *self = (admin *)al_op_new(session, sizeof *self, name);
  if (!self) return NULL;
  al_admin_options_init(&self->options);
  if (options) self->options = *options;
  snprintf(self->name, sizeof self->name, "%s", name);
  al_name(self->fence, AL_SUFFIX_FENCE, name);
  self->change = (al_slot_plan){.action = action,
                                .amount = amount,
                                .overshoot = self->options.overshoot,
                                .ascending = self->options.ascending,
                                .target = -1};
  self->op.stop = admin_stop;
  self->op.free = admin_free;
  self->op.timeout_text = explain;
  return al_op_start(&self->op, wanting_links, al_deadline_after(session->now, self->options.timeout));
}

al_op *al_admin_create(al_session *session, const char *name, int slots, const al_admin_options *options) {
  return admin_begin(session, AL_CREATE, name, slots, options);
}

al_op *al_admin_add(al_session *session, const char *name, int slots, const al_admin_options *options) {
  return admin_begin(session, AL_ADD, name, slots, options);
}

al_op *al_admin_remove(al_session *session, const char *name, int slots, const al_admin_options *options) {
  return admin_begin(session, AL_REMOVE, name, slots, options);
}

al_op *al_admin_resize(al_session *session, const char *name, int slots, const al_admin_options *options) {
  return admin_begin(session, AL_RESIZE, name, slots, options);
}

al_op *al_admin_destroy(al_session *session, const char *name, const al_admin_options *options) {
  return admin_begin(session, AL_DESTROY, name, 0, options);
}

al_op *al_admin_repair(al_session *session, const char *name, const al_admin_options *options) {
  return admin_begin(session, AL_REPAIR, name, 0, options);
}
