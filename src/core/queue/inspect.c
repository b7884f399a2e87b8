/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/inspect.h"

#include <stdio.h>

#include "core/session/session.h"
#include "core/wire/channel.h"

#define MOST (1 << 30) /* more is as good */

int al_sight_number(uint32_t number) { return number < MOST ? (int)number : MOST; }

static void refused(al_sight *sight, const al_event *event) {
  bool locked = event->reply_code == AMQP_RESOURCE_LOCKED;
  al_op_fail(sight->op, locked ? AL_SQUATTED : al_event_refusal(event), "queue \"%s\": %s", sight->queue,
             event->text);
}

static void sight_event(void *owner, al_channel *channel, const al_event *event) {
  al_sight *sight = owner;
  const amqp_queue_declare_ok_t *declared = event->decoded;
  bool is_declared = event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD;
  if (event->kind == AL_EVENT_CONTENT || (event->kind == AL_EVENT_METHOD && !is_declared)) return;
  sight->channel = NULL;
  if (is_declared) {
    sight->exists = true;
    sight->ready = al_sight_number(declared->message_count);
    sight->consumers = al_sight_number(declared->consumer_count);
    al_channel_give(channel);
  } else if (event->kind == AL_EVENT_DOWN) {
    al_op_fail_link(sight->op, channel->link);
    return;
  } else if (event->reply_code != AMQP_NOT_FOUND) {
    refused(sight, event);
    return;
  } else {
    sight->exists = sight->is_down = !al_event_is_absent(event);
  }
  sight->op->step(sight->op);
}

void al_sight_begin(al_sight *sight, al_op *op, const char *queue) {
  *sight = (al_sight){.op = op, .channel = al_channel_take(&op->session->holder, sight_event, sight)};
  snprintf(sight->queue, sizeof sight->queue, "%s", queue);
  if (!sight->channel) {
    al_op_fail_channel(op, &op->session->holder, "no channel is left on the connection");
    return;
  }
  al_op_ask(op);
  al_channel_look(sight->channel, sight->queue);
}

bool al_sight_caught(const al_sight *sight) { return !sight->channel && !sight->op->done; }

void al_sight_cancel(al_sight *sight) {
  if (sight->channel) al_channel_close(sight->channel);
  sight->channel = NULL;
}
