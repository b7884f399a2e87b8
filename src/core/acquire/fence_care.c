/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/fence_care.h"

#include <stdio.h>

#include "core/acquire/fencing.h"
#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/fencer.h"
#include "core/session/session.h"
#include "core/session/turn.h"
#include "core/wire/channel.h"

typedef struct care {
  al_op op;
  char fence[AL_NAME_SIZE];
  al_channel *channel; /* of the fencer's connection: a deletion is under way; NULL */
  al_draw draw;
  al_fence_maker maker;
} care;

static void stop(al_op *op) {
  care *self = (care *)op;
  if (self->channel) al_channel_close(self->channel);
  self->channel = NULL;
  al_draw_cancel(&self->draw);
  al_fence_maker_cancel(&self->maker);
}

static care *care_new(al_session *session, const char *fence) {
  care *self = (care *)al_op_new(session, sizeof *self);
  if (!self) return NULL;
  snprintf(self->fence, sizeof self->fence, "%s", fence);
  self->op.stop = stop;
  al_fencer_forget(&session->fencer->fence);
  return self;
}

/* ---- forgetting -------------------------------------------------------------------------------------------------- */

static void forget_event(void *owner, al_channel *channel, const al_event *event) {
  care *self = owner;
  bool is_deleted = event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DELETE_OK_METHOD;
  bool is_over = event->kind == AL_EVENT_CLOSED || event->kind == AL_EVENT_DOWN;
  if (is_over) self->channel = NULL;
  if (event->kind == AL_EVENT_CLOSED)
    al_op_fail(&self->op, al_event_code(event, AL_SQUATTED, AL_UNAVAILABLE), "deleting \"%s\": %s",
               self->fence, event->text);
  if (event->kind == AL_EVENT_DOWN) al_op_fail_link(&self->op, channel->link);
  if (!is_deleted || channel->unanswered > 0) return;
  self->channel = NULL;
  al_channel_give(channel);
  al_op_finish(&self->op);
}

static void forgetting(al_op *op) {
  care *self = (care *)op;
  al_link *link = &op->session->fencer->fence;
  char unfinished[AL_NAME_SIZE];
  if (link->code == AL_CLOSED) al_fencer_renew(link); /* it was just being closed as it was not used */
  if (self->channel || !al_op_needs(op, link)) return;
  self->channel = al_channel_take(link, forget_event, self);
  if (!self->channel) {
    al_op_fail_channel(op, link, "no channel is left on the connection that draws numbers");
    return;
  }
  op->session->fencer->used_at = op->session->now;
  al_name_fence_unfinished(unfinished, self->fence);
  al_op_ask(op);
  al_channel_delete(self->channel, self->fence);
  al_channel_delete(self->channel, unfinished);
}

al_op *al_fence_forget(al_session *session, const char *fence) {
  AL_TURN(session);
  care *self = care_new(session, fence);
  return self ? al_op_start(&self->op, forgetting, AL_NEVER) : NULL;
}

/* ---- mending ----------------------------------------------------------------------------------------------------- */

static void making(al_op *op) {
  if (al_fence_maker_poll(&((care *)op)->maker)) al_op_finish(op);
}

static void mending(al_op *op) {
  care *self = (care *)op;
  al_draw_state state = al_draw_poll(&self->draw);
  if (op->done || state == AL_DRAW_PENDING) return;
  if (state == AL_DRAW_DRAWN) al_fencer_see(op->session->fencer, self->fence, self->draw.number);
  if (state == AL_DRAW_DRAWN || state == AL_DRAW_ABSENT) {
    al_op_finish(op);
    return;
  }
  al_fence_maker_begin(&self->maker, op, self->fence, al_fencer_seen(op->session->fencer, self->fence),
                       self->draw.empty_since);
  self->maker.mends = true;
  al_op_next(op, making);
}

al_op *al_fence_mend(al_session *session, const char *fence) {
  AL_TURN(session);
  care *self = care_new(session, fence);
  if (!self) return NULL;
  al_draw_begin(&self->draw, &self->op, self->fence);
  return al_op_start(&self->op, mending, AL_NEVER);
}

/* ---- for the outside --------------------------------------------------------------------------------------------- */

static al_op *forget(al_session *session, const char *name, void fence_of(char[AL_NAME_SIZE], const char *)) {
  char fence[AL_NAME_SIZE];
  fence_of(fence, name);
  return al_fence_forget(session, fence);
}

al_op *al_mutex_forget_fence(al_session *session, const char *name) {
  return forget(session, name, al_name_mutex_fence);
}

al_op *al_rwlock_forget_fence(al_session *session, const char *name) {
  return forget(session, name, al_name_rw_fence);
}

al_op *al_admin_forget_fence(al_session *session, const char *name) {
  return forget(session, name, al_name_fence);
}

al_op *al_admin_mend_fence(al_session *session, const char *name) {
  char fence[AL_NAME_SIZE];
  al_name_fence(fence, name);
  return al_fence_mend(session, fence);
}
