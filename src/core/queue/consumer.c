/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/consumer.h"

#include <string.h>

#include "core/base/field.h"
#include "core/base/moves.h"
#include "core/session/session.h"
#include "core/wire/link.h"

static const al_move moves[] = {
    {AL_CONSUMER_OUT, AL_CONSUMER_SUBSCRIBING},        /* al_consumer_subscribe */
    {AL_CONSUMER_SUBSCRIBING, AL_CONSUMER_WAITING},    /* consume-ok: SUBSCRIBED is notified */
    {AL_CONSUMER_SUBSCRIBING, AL_CONSUMER_HAS},        /* a message, and then consume-ok: RECEIVED */
    {AL_CONSUMER_WAITING, AL_CONSUMER_HAS},            /* a message: RECEIVED */
    {AL_CONSUMER_WAITING, AL_CONSUMER_CANCELLING},     /* al_consumer_cancel: cancel */
    {AL_CONSUMER_HAS, AL_CONSUMER_SUBSCRIBING},        /* al_consumer_discard: cancel, ack, consume */
    {AL_CONSUMER_HAS, AL_CONSUMER_WAITING},            /* al_consumer_again: reject, nack or ack */
    {AL_CONSUMER_SUBSCRIBING, AL_CONSUMER_CANCELLING}, /* al_consumer_return: closes the channel */
    {AL_CONSUMER_HAS, AL_CONSUMER_CANCELLING},         /* al_consumer_return: cancel, nack, a question */
    /* CANCELLING, the last answer: ENDED. Not CANCELLING, the queue went: CANCELLED. The broker closes the channel:
     * CLOSED. The link goes down: DOWN. al_consumer_cancel, which closes the channel, or writes cancel and nack */
    {AL_ANY, AL_CONSUMER_OUT},
    AL_MOVES_END};

static void go(al_consumer *consumer, al_consumer_state state) {
  al_move_check(moves, consumer->state, state);
  consumer->state = state;
}

void al_consumer_init(al_consumer *consumer, const al_consumer_kind *kind, al_session *session, al_link *link,
                      void *owner, const char *queue, int priority) {
  *consumer = (al_consumer){
      .kind = kind, .session = session, .link = link, .owner = owner, .queue = queue, .priority = priority};
  consumer->waiting_since = (int64_t)(session->wall + (double)session->now / (double)AL_SECOND);
}

/* ---- what is sent ----------------------------------------------------------------------------------------------- */

/* The client that consumes, and whether it waits: for people who inspect the broker. */
static int signature(const al_consumer *consumer, amqp_table_entry_t *entries) {
  int count = 0;
  entries[count++] = al_field_text("x-amqplocks-holder", consumer->session->settings.name);
  if (consumer->waiting_since != 0)
    entries[count++] = al_field_number("x-amqplocks-waiting-since", consumer->waiting_since);
  return count;
}

/* A stream refuses a priority, also that of 0. Otherwise it would give one message to everybody, and end the connection
 * that gives one back. */
static void consume(al_consumer *consumer) {
  amqp_table_entry_t entries[3 + AL_CONSUMER_ARGUMENTS];
  int count = signature(consumer, entries);
  entries[count++] = al_field_number("x-priority", consumer->priority);
  if (consumer->kind->arguments) count += consumer->kind->arguments(consumer, entries + count);
  al_session_ticket(consumer->session, consumer->tag);
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(consumer->queue),
                                  .consumer_tag = amqp_cstring_bytes(consumer->tag),
                                  .arguments = {.num_entries = count, .entries = entries}};
  go(consumer, AL_CONSUMER_SUBSCRIBING);
  consumer->delivery = 0;
  consumer->since = consumer->session->now;
  consumer->is_asking = consumer->returns = false;
  al_channel_call(consumer->channel, AMQP_BASIC_CONSUME_METHOD, &consume);
}

static void cancel(const al_consumer *consumer) {
  amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(consumer->tag)};
  al_channel_call(consumer->channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
}

static void cancel_and_go(const al_consumer *consumer) {
  amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(consumer->tag), .nowait = 1};
  al_link_method(consumer->channel->link, consumer->channel->number, AMQP_BASIC_CANCEL_METHOD, &cancel);
}

static void acknowledge(const al_consumer *consumer, uint64_t delivery) {
  amqp_basic_ack_t ack = {.delivery_tag = delivery};
  al_link_method(consumer->channel->link, consumer->channel->number, AMQP_BASIC_ACK_METHOD, &ack);
}

static void give_back(const al_consumer *consumer, uint64_t delivery) {
  amqp_basic_nack_t nack = {.delivery_tag = delivery, .requeue = 1};
  al_link_method(consumer->channel->link, consumer->channel->number, AMQP_BASIC_NACK_METHOD, &nack);
}

/* ---- what arrives ----------------------------------------------------------------------------------------------- */

static void tell(al_consumer *consumer, al_consumer_news news, const al_event *event) {
  consumer->kind->told(consumer, news, event);
}

static void leave_channel(al_consumer *consumer) {
  consumer->channel = NULL;
  go(consumer, AL_CONSUMER_OUT);
}

/* An unacknowledged delivery stays on its channel after its queue was deleted. So the channel is closed. */
static void cancelled(al_consumer *consumer, const al_event *event) {
  if (consumer->state == AL_CONSUMER_CANCELLING) return; /* an answer follows all the same */
  al_channel_close(consumer->channel);
  leave_channel(consumer);
  tell(consumer, AL_CONSUMER_CANCELLED, event);
}

static void quit(al_consumer *consumer) {
  al_channel_give(consumer->channel);
  leave_channel(consumer);
}

static void arrived(al_consumer *consumer, const al_event *event) {
  if (consumer->state != AL_CONSUMER_SUBSCRIBING) return;
  bool has = consumer->delivery != 0;
  go(consumer, has ? AL_CONSUMER_HAS : AL_CONSUMER_WAITING);
  tell(consumer, has ? AL_CONSUMER_RECEIVED : AL_CONSUMER_SUBSCRIBED, event);
}

/* When no request is left unanswered, this is the answer to our question, or came after it. (When no other channel is
 * left, the link's pulse sends basic.qos on our channel, too.) */
static void qos_answered(al_consumer *consumer, const al_event *event) {
  if (consumer->state != AL_CONSUMER_WAITING || !consumer->is_asking || consumer->channel->unanswered > 0)
    return;
  consumer->is_asking = false;
  tell(consumer, AL_CONSUMER_EMPTY, event);
}

static void answered(al_consumer *consumer, const al_event *event) {
  if (consumer->state != AL_CONSUMER_CANCELLING) {
    qos_answered(consumer, event);
  } else if (consumer->channel->unanswered == 0) {
    quit(consumer);
    tell(consumer, AL_CONSUMER_ENDED, event);
  }
}

static void counted(al_consumer *consumer, const al_event *event) {
  if (consumer->state != AL_CONSUMER_CANCELLING) tell(consumer, AL_CONSUMER_COUNTED, event);
  answered(consumer, event);
}

static void method_arrived(al_consumer *consumer, const al_event *event) {
  switch (event->method) {
    case AMQP_QUEUE_DECLARE_OK_METHOD:
      if (consumer->state == AL_CONSUMER_SUBSCRIBING)
        tell(consumer, AL_CONSUMER_PREPARED, event);
      else
        counted(consumer, event);
      return;
    case AMQP_BASIC_CONSUME_OK_METHOD:
      arrived(consumer, event);
      return;
    case AMQP_BASIC_QOS_OK_METHOD:
    case AMQP_BASIC_CANCEL_OK_METHOD:
      answered(consumer, event);
      return;
    case AMQP_BASIC_CANCEL_METHOD:
      if (al_field_is(((amqp_basic_cancel_t *)event->decoded)->consumer_tag, consumer->tag))
        cancelled(consumer, event);
      return;
    default:
      return;
  }
}

/* A delivery for the channel's last owner may still come. It must not be answered: the broker would close the
 * channel. A message that is not wanted is acknowledged, because otherwise no other would be delivered. */
static void message_arrived(al_consumer *consumer, const al_event *event) {
  const al_content *content = event->content;
  if (strcmp(content->consumer_tag, consumer->tag) != 0) return;
  if (consumer->channel->state == AL_CHANNEL_CLOSING) return; /* it goes back with the channel */
  if (consumer->kind->wants && !consumer->kind->wants(consumer, content)) {
    acknowledge(consumer, content->delivery_tag);
  } else if (consumer->state == AL_CONSUMER_CANCELLING ||
             (consumer->delivery != 0 && !consumer->kind->closes)) {
    give_back(consumer, content->delivery_tag);
    if (consumer->returns) al_channel_ping(consumer->channel);
  } else {
    consumer->delivery = content->delivery_tag;
    if (consumer->kind->took) consumer->kind->took(consumer, content);
    if (consumer->state == AL_CONSUMER_SUBSCRIBING) return; /* notified when consume-ok has come */
    if (consumer->state == AL_CONSUMER_WAITING) go(consumer, AL_CONSUMER_HAS);
    tell(consumer, AL_CONSUMER_RECEIVED, event);
  }
}

/* With its channel the message of a consumer that returns has gone back, whichever side has closed it. */
static void channel_ended(al_consumer *consumer, const al_event *event) {
  bool has_returned = consumer->returns && consumer->state == AL_CONSUMER_CANCELLING;
  al_consumer_news closed = has_returned ? AL_CONSUMER_ENDED : AL_CONSUMER_CLOSED;
  leave_channel(consumer);
  tell(consumer, event->kind == AL_EVENT_CLOSED ? closed : AL_CONSUMER_DOWN, event);
}

static void consumer_event(void *owner, al_channel *channel, const al_event *event) {
  al_consumer *consumer = owner;
  (void)channel;
  switch (event->kind) {
    case AL_EVENT_METHOD:
      method_arrived(consumer, event);
      return;
    case AL_EVENT_CONTENT:
      message_arrived(consumer, event);
      return;
    case AL_EVENT_CLOSED:
    case AL_EVENT_DOWN:
      channel_ended(consumer, event);
      return;
  }
}

/* ---- coming and going ------------------------------------------------------------------------------------------- */

bool al_consumer_subscribe(al_consumer *consumer) {
  if (consumer->state != AL_CONSUMER_OUT) return true;
  consumer->channel = al_channel_take(consumer->link, consumer_event, consumer);
  if (!consumer->channel) return false;
  al_channel_prefetch(consumer->channel, consumer->kind->takes_two ? 2 : 1);
  if (consumer->kind->prepare) consumer->kind->prepare(consumer);
  consume(consumer);
  return true;
}

void al_consumer_ask(al_consumer *consumer) {
  if (consumer->state != AL_CONSUMER_WAITING) return;
  consumer->is_asking = true;
  al_channel_ping(consumer->channel);
}

void al_consumer_count(const al_consumer *consumer) {
  al_channel_declare_passive(consumer->channel, consumer->queue);
}

/* Cancels before it acknowledges: otherwise the old consumer might be given the next message. */
void al_consumer_discard(al_consumer *consumer) {
  if (consumer->state != AL_CONSUMER_HAS) return;
  cancel(consumer);
  acknowledge(consumer, consumer->delivery);
  consume(consumer);
}

void al_consumer_again(al_consumer *consumer, al_consumer_act act) {
  amqp_basic_reject_t reject = {.delivery_tag = consumer->delivery, .requeue = 1};
  if (act == AL_CONSUMER_REJECTS)
    al_link_method(consumer->channel->link, consumer->channel->number, AMQP_BASIC_REJECT_METHOD, &reject);
  else if (act == AL_CONSUMER_NACKS)
    give_back(consumer, consumer->delivery);
  else
    acknowledge(consumer, consumer->delivery);
  consumer->delivery = 0;
  if (consumer->state == AL_CONSUMER_HAS) go(consumer, AL_CONSUMER_WAITING);
}

/* True if the consumer is cancelled by the end of its channel, which gives back what is under way to it, too. */
static bool is_closed(const al_consumer *consumer) {
  bool consumes = consumer->state == AL_CONSUMER_WAITING || consumer->state == AL_CONSUMER_HAS;
  return consumer->state == AL_CONSUMER_SUBSCRIBING || (consumes && consumer->kind->closes);
}

void al_consumer_cancel(al_consumer *consumer) {
  if (is_closed(consumer)) {
    al_channel_close(consumer->channel);
    leave_channel(consumer);
  } else if (consumer->state == AL_CONSUMER_HAS) {
    cancel_and_go(consumer);
    give_back(consumer, consumer->delivery);
    quit(consumer);
  } else if (consumer->state == AL_CONSUMER_WAITING) {
    cancel(consumer);
    go(consumer, AL_CONSUMER_CANCELLING);
  }
}

/* The channel handles the question after the nack. */
void al_consumer_return(al_consumer *consumer) {
  consumer->returns = true;
  if (is_closed(consumer)) {
    al_channel_leave(consumer->channel);
    go(consumer, AL_CONSUMER_CANCELLING);
  } else if (consumer->state == AL_CONSUMER_HAS) {
    cancel_and_go(consumer);
    give_back(consumer, consumer->delivery);
    al_channel_ping(consumer->channel);
    go(consumer, AL_CONSUMER_CANCELLING);
  } else {
    al_consumer_cancel(consumer);
  }
}
