/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/drain.h"

#include <stdio.h>
#include <string.h>

#include "core/base/field.h"
#include "core/queue/inspect.h"
#include "core/session/probe.h"
#include "core/session/session.h"

#define HIGHEST_PRIORITY INT32_MAX

/* Whoever gives a message back stops consuming first. In between it is neither seen nor ready. */
#define OVERLOOKED (500 * AL_MILLISECOND)

/* Until what was acknowledged has reached its queue, which nobody says; see collector.h. */
#define ARRIVAL (100 * AL_MILLISECOND)

/* ---- what is sent ----------------------------------------------------------------------------------------------- */

static void send(const al_collector *collector, amqp_method_number_t method, void *decoded) {
  al_link_method(collector->channel->link, collector->channel->number, method, decoded);
}

/* Also asks for nothing, and is answered behind what was asked before. */
static void settle(al_collector *collector) {
  amqp_basic_qos_t qos = {.prefetch_count = (uint16_t)collector->room};
  al_channel_call(collector->channel, AMQP_BASIC_QOS_METHOD, &qos);
}

static void consume(al_collector *collector) {
  amqp_table_entry_t priority = al_field_number("x-priority", HIGHEST_PRIORITY);
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(collector->queue),
                                  .consumer_tag = amqp_cstring_bytes(collector->tag),
                                  .arguments = {.num_entries = 1, .entries = &priority}};
  al_channel_call(collector->channel, AMQP_BASIC_CONSUME_METHOD, &consume);
}

static void cancel_one(const al_collector *collector, const char *tag) {
  amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(tag), .nowait = 1};
  send(collector, AMQP_BASIC_CANCEL_METHOD, &cancel);
}

static void cancel(const al_collector *collector) {
  if (collector->queue_before) cancel_one(collector, collector->tag_before);
  cancel_one(collector, collector->tag);
}

static void acknowledge(al_collector *collector, uint64_t tag, bool multiple) {
  amqp_basic_ack_t ack = {.delivery_tag = tag, .multiple = multiple};
  collector->has_acknowledged = true;
  send(collector, AMQP_BASIC_ACK_METHOD, &ack);
}

/* All of them, those on their way included. */
static void give_back(const al_collector *collector) {
  amqp_basic_nack_t nack = {.delivery_tag = 0, .multiple = 1, .requeue = 1};
  send(collector, AMQP_BASIC_NACK_METHOD, &nack);
}

static void look(al_collector *collector) {
  collector->look = AL_COLLECTOR_LOOKS;
  collector->looked_at = collector->op->session->now;
  al_op_ask(collector->op);
  al_channel_look(collector->channel, collector->queue);
}

/* ---- what arrives ----------------------------------------------------------------------------------------------- */

static void out(al_collector *collector) {
  collector->channel = NULL;
  collector->state = AL_COLLECTOR_OUT;
  al_ids_free(&collector->ids);
}

static void fail(al_collector *collector, al_code code, const char *queue, const char *text) {
  out(collector);
  al_op_fail(collector->op, code, "queue \"%s\": %s", queue, text);
}

bool al_collector_is_sole(const al_collector *collector) {
  return collector->ready == 0 && collector->consumers <= 1;
}

bool al_collector_is_alone(const al_collector *collector) {
  return collector->looked_at - OVERLOOKED >= collector->alone_since;
}

static void note_look(al_collector *collector) {
  int came = collector->count + collector->thrown;
  if (!al_collector_is_sole(collector))
    collector->alone_since = AL_NEVER;
  else if (collector->alone_since == AL_NEVER || collector->alone_with != came)
    collector->alone_since = collector->op->session->now;
  collector->alone_with = came;
  collector->look = AL_COLLECTOR_LOOKED;
}

static void end(al_collector *collector) {
  al_channel_close(collector->channel);
  out(collector);
}

/* Keeps nothing from others meanwhile. */
static void linger(al_collector *collector) {
  if (!collector->has_acknowledged) {
    end(collector);
    return;
  }
  if (collector->came_late) give_back(collector);
  collector->state = AL_COLLECTOR_LINGERING;
  collector->ends_at = collector->op->session->now + ARRIVAL;
}

static void qos_answered(al_collector *collector) {
  if (collector->channel->unanswered > 0)
    return; /* the link's pulse asks for nothing here, too, when channels are short */
  if (collector->state == AL_COLLECTOR_LEAVING) {
    linger(collector);
  } else if (collector->look == AL_COLLECTOR_SETTLES) {
    note_look(collector);
  } else {
    return;
  }
  al_op_answered(collector->op);
  collector->op->step(collector->op);
}

static void cancelled(al_collector *collector, const char *queue) {
  al_channel_close(collector->channel);
  if (collector->is_doomed)
    out(collector);
  else
    fail(collector, AL_LOST, queue,
         "it was deleted, or its node went down, or what was taken from it was held for too long");
}

static void method_arrived(al_collector *collector, const al_event *event) {
  const amqp_basic_cancel_t *notice = event->decoded;
  const amqp_queue_declare_ok_t *declared = event->decoded;
  if (event->method == AMQP_BASIC_CONSUME_OK_METHOD && collector->state == AL_COLLECTOR_ARRIVING) {
    collector->state = AL_COLLECTOR_COLLECTING;
    look(collector);
  } else if (event->method == AMQP_QUEUE_DECLARE_OK_METHOD && collector->look == AL_COLLECTOR_LOOKS &&
             collector->state == AL_COLLECTOR_COLLECTING) {
    collector->ready = al_sight_number(declared->message_count);
    collector->consumers = al_sight_number(declared->consumer_count);
    collector->look = AL_COLLECTOR_SETTLES;
    settle(collector);
  } else if (event->method == AMQP_BASIC_QOS_OK_METHOD) {
    qos_answered(collector);
  } else if (event->method == AMQP_BASIC_CANCEL_METHOD) {
    if (al_field_is(notice->consumer_tag, collector->tag))
      cancelled(collector, collector->queue);
    else if (collector->queue_before && al_field_is(notice->consumer_tag, collector->tag_before))
      cancelled(collector, collector->queue_before);
  }
}

static bool is_too_many(al_collector *collector, const al_content *content) {
  if (!collector->sifts) return false;
  if (collector->count >= collector->nominal) return true;
  return strcmp(content->type, AL_TYPE_PERMIT) == 0 && !al_ids_add(&collector->ids, content->message_id);
}

/* It may have been given back with the rest, or not: that is settled behind the broker's answer. */
static void late_arrived(al_collector *collector) {
  collector->came_late = true;
  if (collector->state == AL_COLLECTOR_LINGERING) give_back(collector);
}

static void message_arrived(al_collector *collector, const al_content *content) {
  bool is_ours = strcmp(content->consumer_tag, collector->tag) == 0; /* or the channel's last owner's */
  if (!is_ours) return;
  if (collector->state >= AL_COLLECTOR_LEAVING) {
    late_arrived(collector);
    return;
  }
  if (is_too_many(collector, content)) {
    acknowledge(collector, content->delivery_tag, false);
    collector->thrown++;
  } else {
    collector->last = content->delivery_tag;
    collector->count++;
  }
  if (collector->look == AL_COLLECTOR_RESTS) collector->op->wake = AL_NEVER;
  collector->op->step(collector->op);
}

/* What was collected is lost with the queue, whether that is told by itself or by a look. */
static al_code refusal(const al_event *event) {
  bool is_gone = event->reply_code == AMQP_NOT_FOUND && event->method != AMQP_BASIC_CONSUME_METHOD;
  if (event->method == 0 || is_gone) return AL_LOST;
  if (event->reply_code == AMQP_RESOURCE_LOCKED) return AL_SQUATTED;
  return event->reply_code == AMQP_NOT_FOUND ? AL_NOT_FOUND : al_event_refusal(event);
}

/* For no request of ours: something was held for too long, and the first queue's has been held for longer. */
static void closed(al_collector *collector, const al_event *event) {
  bool is_first = event->method == 0 && collector->queue_before;
  fail(collector, refusal(event), is_first ? collector->queue_before : collector->queue, event->text);
}

static void collector_event(void *owner, al_channel *channel, const al_event *event) {
  al_collector *collector = owner;
  switch (event->kind) {
    case AL_EVENT_METHOD:
      method_arrived(collector, event);
      break;
    case AL_EVENT_CONTENT:
      message_arrived(collector, event->content);
      break;
    case AL_EVENT_CLOSED:
      closed(collector, event);
      break;
    case AL_EVENT_DOWN:
      out(collector);
      al_op_fail_link(collector->op, channel->link);
      break;
  }
}

/* ---- coming and going ------------------------------------------------------------------------------------------- */

static void arrive(al_collector *collector, const char *queue) {
  collector->queue = queue;
  collector->state = AL_COLLECTOR_ARRIVING;
  al_session_ticket(collector->op->session, collector->tag);
  al_op_ask(collector->op);
  settle(collector);
  consume(collector);
}

void al_collector_begin(al_collector *collector, al_op *op, const char *queue, int room) {
  *collector = (al_collector){.op = op, .room = room, .alone_since = AL_NEVER, .wait = AL_WAIT_SLOT};
  collector->channel = al_channel_take(&op->session->holder, collector_event, collector);
  if (collector->channel)
    arrive(collector, queue);
  else
    al_op_fail_channel(op, &op->session->holder, "no channel is left on the connection");
}

void al_collector_go_on(al_collector *collector, const char *queue) {
  collector->queue_before = collector->queue;
  memcpy(collector->tag_before, collector->tag, sizeof collector->tag);
  collector->count = 0;
  collector->look = AL_COLLECTOR_RESTS;
  collector->alone_since = AL_NEVER;
  collector->wait = AL_WAIT_SLOT;
  arrive(collector, queue);
}

void al_collector_sift(al_collector *collector, al_op *op, const char *queue, int nominal) {
  al_collector_begin(collector, op, queue, nominal < AL_COLLECTOR_MOST ? nominal + 1 : AL_COLLECTOR_MOST);
  if (op->done) return;
  collector->sifts = true;
  collector->nominal = nominal;
  if (!al_ids_init(&collector->ids, (size_t)nominal))
    al_op_fail(op, AL_NO_MEMORY, "collecting from \"%s\"", queue);
}

bool al_collector_is_full(const al_collector *collector) {
  return collector->state == AL_COLLECTOR_COLLECTING && collector->count == collector->room;
}

bool al_collector_looked(al_collector *collector) {
  if (collector->op->done || collector->state != AL_COLLECTOR_COLLECTING) return false;
  if (collector->look == AL_COLLECTOR_RESTS && collector->op->wake == AL_NEVER) look(collector);
  return collector->look == AL_COLLECTOR_LOOKED;
}

void al_collector_rest(al_collector *collector, int64_t until) {
  al_session *session = collector->op->session;
  int64_t wake = session->now + al_wait_next(&collector->wait, &session->random);
  collector->look = AL_COLLECTOR_RESTS;
  collector->op->wake = wake < until ? wake : until;
}

static void leave(al_collector *collector) {
  collector->state = AL_COLLECTOR_LEAVING;
  collector->look = AL_COLLECTOR_RESTS;
  al_op_ask(collector->op);
  settle(collector);
}

void al_collector_acknowledge(al_collector *collector) {
  cancel(collector);
  if (collector->count > 0) acknowledge(collector, collector->last, true);
  leave(collector);
}

void al_collector_return(al_collector *collector) {
  cancel(collector);
  give_back(collector);
  leave(collector);
}

bool al_collector_is_out(const al_collector *collector) { return collector->state == AL_COLLECTOR_OUT; }

bool al_collector_settled(const al_collector *collector) {
  return collector->state == AL_COLLECTOR_LINGERING || al_collector_is_out(collector);
}

bool al_collector_left(al_collector *collector) {
  if (collector->state == AL_COLLECTOR_LINGERING) {
    collector->op->wake = collector->ends_at;
    if (collector->op->session->now >= collector->ends_at) end(collector);
  }
  return al_collector_is_out(collector);
}

void al_collector_doom(al_collector *collector) { collector->is_doomed = true; }

void al_collector_drop(al_collector *collector) {
  if (!collector->channel) return;
  if (collector->state == AL_COLLECTOR_COLLECTING && !collector->is_doomed) {
    cancel(collector);
    give_back(collector);
  }
  al_channel_close(collector->channel);
  out(collector);
}
