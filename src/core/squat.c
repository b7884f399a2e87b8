/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/squat.h"

#include "core/name.h"
#include "core/session.h"

void al_squat_forget(al_squat *squat) { squat->count = 0; }

void al_squat_suspect(al_squat *squat, int slot) {
  if (squat->count < AL_SUSPECTS_MOST) squat->suspects[squat->count++] = slot;
}

static void squat_event(void *owner, al_channel *channel, const al_event *event) {
  al_squat *squat = owner;
  if (event->kind == AL_EVENT_METHOD && event->method != AMQP_QUEUE_DECLARE_OK_METHOD) return;
  if (event->kind == AL_EVENT_CONTENT) return;
  if (event->kind == AL_EVENT_METHOD && ++squat->found < squat->count) return;
  squat->channel = NULL;
  al_op_answered(squat->op);
  if (event->kind == AL_EVENT_METHOD) {
    al_channel_give(channel);
    al_op_fail(squat->op, AL_SQUATTED,
               "queue \"%s\" is not exclusive: it is no lock, but keeps a slot taken; delete it",
               squat->first);
  } else if (event->kind == AL_EVENT_DOWN) {
    al_op_fail_link(squat->op, channel->link);
  } else {
    squat->op->step(squat->op);
  }
}

bool al_squat_begin(al_squat *squat, al_op *op, const char *name) {
  if (squat->count == 0) return false;
  squat->channel = al_channel_take(&op->session->holder, squat_event, squat);
  if (!squat->channel) return false;
  squat->op = op;
  squat->found = 0;
  al_name_holder(squat->first, name, squat->suspects[0]);
  al_op_ask(op);
  for (int i = 0; i < squat->count; i++) {
    char queue[AL_NAME_SIZE];
    al_name_holder(queue, name, squat->suspects[i]);
    amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(queue), .passive = 1};
    al_channel_call(squat->channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
  }
  return true;
}

bool al_squat_cleared(const al_squat *squat) { return !squat->channel && !squat->op->done; }

void al_squat_cancel(al_squat *squat) {
  if (squat->channel) al_channel_close(squat->channel);
  squat->channel = NULL;
}
