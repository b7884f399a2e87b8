/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/squatter.h"

#include <stdio.h>

#include "core/hold/holder_queue.h"
#include "core/session/session.h"

/* If another caller on this very connection has got the queue meanwhile, the broker lets us declare it: it is no
 * squatter, and what the other suspects are is unknown by then. Answers on different channels may overtake one another,
 * so any queue of ours that has gone since counts as this one. */
static bool is_last_squatter(al_squatter *squatter, const amqp_queue_declare_ok_t *ok) {
  char queue[AL_NAME_SIZE];
  snprintf(queue, sizeof queue, "%.*s", (int)ok->queue.len, (const char *)ok->queue.bytes);
  const al_session *session = squatter->op->session;
  if (al_exclusive_find(session, queue) || al_exclusive_gone(session) != squatter->gone)
    squatter->is_ours = true;
  return ++squatter->found == squatter->count;
}

static void squat_event(void *owner, al_channel *channel, const al_event *event) {
  al_squatter *squatter = owner;
  if (event->kind == AL_EVENT_METHOD && event->method != AMQP_QUEUE_DECLARE_OK_METHOD) return;
  if (event->kind == AL_EVENT_CONTENT) return;
  if (event->kind == AL_EVENT_METHOD && !is_last_squatter(squatter, event->decoded)) return;
  squatter->channel = NULL;
  al_op_answered(squatter->op);
  if (event->kind == AL_EVENT_METHOD) {
    al_channel_give(channel);
    if (squatter->is_ours)
      al_op_step(squatter->op);
    else
      al_op_fail(
          squatter->op, AL_SQUATTED,
          "queue \"%s\" is not exclusive, so it is not a lock, though it has the name of one: delete it",
          squatter->first);
  } else if (event->kind == AL_EVENT_DOWN) {
    al_op_fail_link(squatter->op, channel->link);
  } else {
    al_op_step(squatter->op);
  }
}

bool al_squatter_begin(al_squatter *squatter, al_op *op, size_t count, al_probe_name *name,
                       const void *context) {
  if (count == 0) return false;
  *squatter = (al_squatter){.op = op, .count = count};
  squatter->channel = al_channel_take(&op->session->holder, squat_event, squatter);
  if (!squatter->channel) return false;
  squatter->gone = al_exclusive_gone(op->session);
  name(context, 0, squatter->first);
  al_op_ask(op);
  for (size_t i = 0; i < count; i++) {
    char queue[AL_NAME_SIZE];
    name(context, i, queue);
    al_channel_declare_passive(squatter->channel, queue);
  }
  return true;
}

bool al_squatter_poll(const al_squatter *squatter) { return !squatter->channel && !squatter->op->done; }

void al_squatter_cancel(al_squatter *squatter) {
  if (squatter->channel) al_channel_close(squatter->channel);
  squatter->channel = NULL;
}
