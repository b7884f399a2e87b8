/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Deletes a fence (queue/fence_draw.h), without holding its lock. */

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/fence_links.h"
#include "core/session/op.h"
#include "core/session/session.h"
#include "core/session/turn.h"
#include "core/wire/channel.h"

typedef struct forgetter {
  al_op op;
  char fence[AL_NAME_SIZE];
  al_channel *channel; /* of the fence link: a deletion is under way; NULL */
} forgetter;

static void stop(al_op *op) {
  forgetter *self = (forgetter *)op;
  if (self->channel) al_channel_close(self->channel);
  self->channel = NULL;
}

static void forget_event(void *owner, al_channel *channel, const al_event *event) {
  forgetter *self = owner;
  bool is_over = event->kind == AL_EVENT_CLOSED || event->kind == AL_EVENT_DOWN;
  if (is_over) self->channel = NULL;
  if (event->kind == AL_EVENT_CLOSED)
    al_op_fail(&self->op, al_event_code(event, AL_SQUATTED, AL_UNAVAILABLE), "deleting \"%s\": %s",
               self->fence, event->text);
  if (event->kind == AL_EVENT_DOWN) al_op_fail_link(&self->op, channel->link);
  if (event->kind != AL_EVENT_METHOD || channel->unanswered > 0) return;
  self->channel = NULL;
  al_channel_give(channel);
  al_op_finish(&self->op);
}

static void forgetting(al_op *op) {
  forgetter *self = (forgetter *)op;
  al_link *link = &op->session->fence_links->fence;
  char unfinished[AL_NAME_SIZE];
  if (link->code == AL_CLOSED) al_fence_links_renew(link); /* it was just being closed as it was not used */
  if (self->channel || !al_op_needs(op, link)) return;
  self->channel = al_channel_take(link, forget_event, self);
  if (!self->channel) {
    al_op_fail_channel(op, link, "no channel is left on the connection that draws numbers");
    return;
  }
  op->session->fence_links->used_at = op->session->now;
  al_name(unfinished, AL_SUFFIX_FENCE_UNFINISHED, self->fence);
  al_op_ask(op);
  al_channel_delete(self->channel, self->fence);
  al_channel_delete(self->channel, unfinished);
}

static al_op *forget(al_session *session, const char *name, al_suffix fence) {
  AL_TURN(session);
  forgetter *self = (forgetter *)al_op_new(session, sizeof *self, name);
  if (!self) return NULL;
  al_name(self->fence, fence, name);
  self->op.stop = stop;
  al_link_forget(&session->fence_links->fence);
  return al_op_start(&self->op, forgetting, AL_NEVER);
}

al_op *al_mutex_forget_fence(al_session *session, const char *name) {
  return forget(session, name, AL_SUFFIX_MUTEX_FENCE);
}

al_op *al_rwlock_forget_fence(al_session *session, const char *name) {
  return forget(session, name, AL_SUFFIX_RW_FENCE);
}

al_op *al_admin_forget_fence(al_session *session, const char *name) {
  return forget(session, name, AL_SUFFIX_FENCE);
}
