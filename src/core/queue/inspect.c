/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/inspect.h"

#include <stdio.h>

#include "core/session/session.h"
#include "core/wire/channel.h"

#define MOST (1 << 30) /* larger numbers are treated as this one */

int al_inspect_number(uint32_t number) { return number < MOST ? (int)number : MOST; }

static void refused(al_inspect *inspect, const al_event *event) {
  al_op_fail(inspect->op, al_event_code(event, AL_SQUATTED, AL_NOT_FOUND), "queue \"%s\": %s", inspect->queue,
             event->text);
}

static void inspect_event(void *owner, al_channel *channel, const al_event *event) {
  al_inspect *inspect = owner;
  const amqp_queue_declare_ok_t *declared = event->decoded;
  bool is_declared = event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD;
  if (event->kind == AL_EVENT_CONTENT || (event->kind == AL_EVENT_METHOD && !is_declared)) return;
  inspect->channel = NULL;
  if (is_declared) {
    inspect->exists = true;
    inspect->ready = al_inspect_number(declared->message_count);
    inspect->consumers = al_inspect_number(declared->consumer_count);
    al_channel_give(channel);
  } else if (event->kind == AL_EVENT_DOWN) {
    al_op_fail_link(inspect->op, channel->link);
    return;
  } else if (event->reply_code != AMQP_NOT_FOUND) {
    refused(inspect, event);
    return;
  } else {
    inspect->exists = inspect->is_down = !al_event_is_absent(event);
  }
  al_op_step(inspect->op);
}

void al_inspect_begin(al_inspect *inspect, al_op *op, al_link *link, const char *queue) {
  *inspect = (al_inspect){.op = op, .channel = al_channel_take(link, inspect_event, inspect)};
  snprintf(inspect->queue, sizeof inspect->queue, "%s", queue);
  if (!inspect->channel) {
    al_op_fail_channel(op, link, "no channel is left on the connection");
    return;
  }
  al_op_ask(op);
  al_channel_declare_passive(inspect->channel, inspect->queue);
}

bool al_inspect_poll(const al_inspect *inspect) { return !inspect->channel && !inspect->op->done; }

void al_inspect_cancel(al_inspect *inspect) {
  if (inspect->channel) al_channel_close(inspect->channel);
  inspect->channel = NULL;
}
