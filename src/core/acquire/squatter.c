/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/squatter.h"

#include <stdio.h>
#include <string.h>

#include "core/hold/exclusive.h"
#include "core/session/session.h"

/* Also if it has gone since: answers on different channels may overtake one another. */
static bool is_or_was_ours(const al_squat *squat, const char *queue) {
  al_session *session = squat->op->session;
  return strcmp(session->left, queue) == 0 || al_exclusive_find(session, queue);
}

/* What another caller on this very connection has got meanwhile, the broker lets its owner declare: that is no squatter, nor
 * is it known what the others are by then. */
static bool is_last_squatter(al_squat *squat, const amqp_queue_declare_ok_t *ok) {
  char queue[AL_NAME_SIZE];
  snprintf(queue, sizeof queue, "%.*s", (int)ok->queue.len, (const char *)ok->queue.bytes);
  squat->is_ours = squat->is_ours || is_or_was_ours(squat, queue);
  return ++squat->found == squat->count;
}

static void squat_event(void *owner, al_channel *channel, const al_event *event) {
  al_squat *squat = owner;
  if (event->kind == AL_EVENT_METHOD && event->method != AMQP_QUEUE_DECLARE_OK_METHOD) return;
  if (event->kind == AL_EVENT_CONTENT) return;
  if (event->kind == AL_EVENT_METHOD && !is_last_squatter(squat, event->decoded)) return;
  squat->channel = NULL;
  al_op_answered(squat->op);
  if (event->kind == AL_EVENT_METHOD) {
    al_channel_give(channel);
    if (squat->is_ours)
      squat->op->step(squat->op);
    else
      al_op_fail(squat->op, AL_SQUATTED,
                 "queue \"%s\" is not exclusive: it is no lock, but stands in the place of one; delete it",
                 squat->first);
  } else if (event->kind == AL_EVENT_DOWN) {
    al_op_fail_link(squat->op, channel->link);
  } else {
    squat->op->step(squat->op);
  }
}

bool al_squat_begin(al_squat *squat, al_op *op, size_t count, al_probe_name *name, const void *context) {
  if (count == 0) return false;
  *squat = (al_squat){.op = op, .count = count};
  squat->channel = al_channel_take(&op->session->holder, squat_event, squat);
  if (!squat->channel) return false;
  op->session->left[0] = '\0';
  name(context, 0, squat->first);
  al_op_ask(op);
  for (size_t i = 0; i < count; i++) {
    char queue[AL_NAME_SIZE];
    name(context, i, queue);
    al_channel_look(squat->channel, queue);
  }
  return true;
}

bool al_squat_cleared(const al_squat *squat) { return !squat->channel && !squat->op->done; }

void al_squat_cancel(al_squat *squat) {
  if (squat->channel) al_channel_close(squat->channel);
  squat->channel = NULL;
}
