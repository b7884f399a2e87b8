/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/consumer.h"

#include <string.h>

#include "core/base/field.h"
#include "core/session/session.h"
#include "core/wire/link.h"

void al_taker_init(al_taker *taker, const al_taker_kind *kind, al_session *session, void *owner,
                   const char *queue, int priority) {
  *taker = (al_taker){.kind = kind, .session = session, .owner = owner, .queue = queue, .priority = priority};
}

/* ---- what is sent ----------------------------------------------------------------------------------------------- */

static void consume(al_taker *taker) {
  amqp_table_entry_t entries[1 + AL_TAKER_ARGUMENTS];
  int count = 0;
  if (taker->priority != 0) entries[count++] = al_field_number("x-priority", taker->priority);
  if (taker->kind->arguments) count += taker->kind->arguments(taker, entries + count);
  al_session_ticket(taker->session, taker->tag);
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(taker->queue),
                                  .consumer_tag = amqp_cstring_bytes(taker->tag),
                                  .arguments = {.num_entries = count, .entries = entries}};
  taker->state = AL_TAKER_ARRIVING;
  taker->delivery = 0;
  taker->since = taker->session->now;
  taker->is_asking = taker->had = false;
  al_channel_call(taker->channel, AMQP_BASIC_CONSUME_METHOD, &consume);
}

static void cancel(const al_taker *taker) {
  amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(taker->tag)};
  al_channel_call(taker->channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
}

static void cancel_and_go(const al_taker *taker) {
  amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(taker->tag), .nowait = 1};
  al_link_method(taker->channel->link, taker->channel->number, AMQP_BASIC_CANCEL_METHOD, &cancel);
}

static void acknowledge(const al_taker *taker, uint64_t delivery) {
  amqp_basic_ack_t ack = {.delivery_tag = delivery};
  al_link_method(taker->channel->link, taker->channel->number, AMQP_BASIC_ACK_METHOD, &ack);
}

static void give_back(const al_taker *taker, uint64_t delivery) {
  amqp_basic_nack_t nack = {.delivery_tag = delivery, .requeue = 1};
  al_link_method(taker->channel->link, taker->channel->number, AMQP_BASIC_NACK_METHOD, &nack);
}

/* ---- what arrives ----------------------------------------------------------------------------------------------- */

static void tell(al_taker *taker, al_taker_news news, const al_event *event) {
  taker->kind->told(taker, news, event);
}

static void leave_channel(al_taker *taker) {
  taker->had = taker->state == AL_TAKER_HAS;
  taker->channel = NULL;
  taker->state = AL_TAKER_OUT;
}

/* What was not acknowledged outlives its queue on its channel, which therefore is closed. */
static void cancelled(al_taker *taker, const al_event *event) {
  if (taker->state == AL_TAKER_QUITTING) return; /* cancel-ok follows all the same */
  al_channel_close(taker->channel);
  leave_channel(taker);
  tell(taker, AL_TAKER_CANCELLED, event);
}

static void quit(al_taker *taker) {
  al_channel_give(taker->channel);
  leave_channel(taker);
}

static void arrived(al_taker *taker, const al_event *event) {
  if (taker->state != AL_TAKER_ARRIVING) return;
  bool has = taker->delivery != 0;
  taker->state = has ? AL_TAKER_HAS : AL_TAKER_WAITING;
  tell(taker, has ? AL_TAKER_TOOK : AL_TAKER_ARRIVED, event);
}

/* Nothing is left unanswered: so it is the answer to our question, or comes behind it. Others ask for nothing on our channel
 * too, when there are no more channels. */
static void qos_answered(al_taker *taker, const al_event *event) {
  if (taker->state != AL_TAKER_WAITING || !taker->is_asking || taker->channel->unanswered > 0) return;
  taker->is_asking = false;
  tell(taker, AL_TAKER_EMPTY, event);
}

static void method_arrived(al_taker *taker, const al_event *event) {
  switch (event->method) {
    case AMQP_QUEUE_DECLARE_OK_METHOD:
      if (taker->state == AL_TAKER_ARRIVING) tell(taker, AL_TAKER_PREPARED, event);
      return;
    case AMQP_BASIC_CONSUME_OK_METHOD:
      arrived(taker, event);
      return;
    case AMQP_BASIC_QOS_OK_METHOD:
      qos_answered(taker, event);
      return;
    case AMQP_BASIC_CANCEL_OK_METHOD:
      if (taker->state != AL_TAKER_QUITTING) return;
      quit(taker);
      tell(taker, AL_TAKER_QUIT, event);
      return;
    case AMQP_BASIC_CANCEL_METHOD:
      if (al_field_is(((amqp_basic_cancel_t *)event->decoded)->consumer_tag, taker->tag))
        cancelled(taker, event);
      return;
    default:
      return;
  }
}

/* What the channel's last owner consumed may still come, and is not to be answered: that would cost the channel. What is
 * not wanted would be in the way of the next one. */
static void message_arrived(al_taker *taker, const al_event *event) {
  const al_content *content = event->content;
  if (strcmp(content->consumer_tag, taker->tag) != 0) return;
  if (taker->kind->wants && !taker->kind->wants(content)) {
    acknowledge(taker, content->delivery_tag);
  } else if (taker->state == AL_TAKER_QUITTING || taker->delivery != 0) {
    give_back(taker, content->delivery_tag);
  } else {
    taker->delivery = content->delivery_tag;
    if (taker->state != AL_TAKER_WAITING) return; /* until consume-ok nothing can be done with it */
    taker->state = AL_TAKER_HAS;
    tell(taker, AL_TAKER_TOOK, event);
  }
}

static void taker_event(void *owner, al_channel *channel, const al_event *event) {
  al_taker *taker = owner;
  (void)channel;
  switch (event->kind) {
    case AL_EVENT_METHOD:
      method_arrived(taker, event);
      return;
    case AL_EVENT_CONTENT:
      message_arrived(taker, event);
      return;
    case AL_EVENT_CLOSED:
    case AL_EVENT_DOWN:
      leave_channel(taker);
      tell(taker, event->kind == AL_EVENT_CLOSED ? AL_TAKER_CLOSED : AL_TAKER_DOWN, event);
      return;
  }
}

/* ---- coming and going ------------------------------------------------------------------------------------------- */

bool al_taker_take(al_taker *taker) {
  if (taker->state != AL_TAKER_OUT) return true;
  taker->channel = al_channel_take(&taker->session->holder, taker_event, taker);
  if (!taker->channel) return false;
  al_channel_take_one(taker->channel);
  if (taker->kind->prepare) taker->kind->prepare(taker);
  consume(taker);
  return true;
}

void al_taker_ask(al_taker *taker) {
  if (taker->state != AL_TAKER_WAITING) return;
  taker->is_asking = true;
  al_channel_ping(taker->channel);
}

/* Cancelled first: acknowledged first, the old consumer might be given the next message. */
void al_taker_discard(al_taker *taker) {
  if (taker->state != AL_TAKER_HAS) return;
  cancel(taker);
  acknowledge(taker, taker->delivery);
  consume(taker);
}

/* What it has, and what is on its way to it, goes back by that. */
static bool quits_by_closing(const al_taker *taker) {
  if (taker->state == AL_TAKER_ARRIVING) return true;
  bool may = taker->state == AL_TAKER_WAITING || taker->state == AL_TAKER_HAS;
  return may && taker->kind->closes && taker->kind->closes(taker);
}

void al_taker_quit(al_taker *taker) {
  if (quits_by_closing(taker)) {
    al_channel_close(taker->channel);
    leave_channel(taker);
  } else if (taker->state == AL_TAKER_HAS) {
    cancel_and_go(taker);
    give_back(taker, taker->delivery);
    quit(taker);
  } else if (taker->state == AL_TAKER_WAITING) {
    cancel(taker);
    taker->state = AL_TAKER_QUITTING;
  }
}
