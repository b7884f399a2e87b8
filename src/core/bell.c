/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/bell.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/field.h"
#include "core/op.h"
#include "core/session.h"

#define EXPIRES 60000 /* milliseconds */

al_bell *al_bell_new(al_op *op, const char *queue, int priority, bool makes) {
  al_bell *bell = calloc(1, sizeof *bell);
  if (!bell) return NULL;
  bell->session = op->session;
  bell->op = op;
  bell->priority = priority;
  bell->makes = bell->owes = makes;
  snprintf(bell->queue, sizeof bell->queue, "%s", queue);
  return bell;
}

bool al_bell_is_out(const al_bell *bell) { return bell->state == AL_BELL_OUT; }

bool al_bell_is_arriving(const al_bell *bell) { return bell->state == AL_BELL_ARRIVING; }

bool al_bell_has_token(const al_bell *bell) { return bell->state == AL_BELL_RUNG; }

/* ---- what is sent ----------------------------------------------------------------------------------------------- */

/* It goes by itself when nobody has waited for a while; and one token is enough, as one at a time is let in. */
static void declare(const al_bell *bell) {
  amqp_table_entry_t entries[] = {al_field_text("x-queue-type", "classic"),
                                  al_field_number("x-expires", EXPIRES), al_field_number("x-max-length", 1),
                                  al_field_text("x-overflow", "drop-head")};
  amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(bell->queue),
                                  .durable = 1,
                                  .arguments = {.num_entries = 4, .entries = entries}};
  al_channel_call(bell->channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
}

static void consume(al_bell *bell) {
  amqp_table_entry_t priority = al_field_number("x-priority", bell->priority);
  al_session_ticket(bell->session, bell->tag);
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(bell->queue),
                                  .consumer_tag = amqp_cstring_bytes(bell->tag),
                                  .arguments = {.num_entries = bell->priority != 0, .entries = &priority}};
  bell->state = AL_BELL_ARRIVING;
  al_channel_call(bell->channel, AMQP_BASIC_CONSUME_METHOD, &consume);
}

static void cancel(const al_bell *bell) {
  amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(bell->tag)};
  al_channel_call(bell->channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
}

/* With the token in hand there is no room for another one, so nothing can come that would have to be waited for. */
static void cancel_and_go(const al_bell *bell) {
  amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(bell->tag), .nowait = 1};
  al_link_method(bell->channel->link, bell->channel->number, AMQP_BASIC_CANCEL_METHOD, &cancel);
}

static void acknowledge(al_bell *bell, uint64_t token) {
  amqp_basic_ack_t ack = {.delivery_tag = token};
  al_link_method(bell->channel->link, bell->channel->number, AMQP_BASIC_ACK_METHOD, &ack);
}

static void give_back(al_bell *bell, uint64_t token) {
  amqp_basic_nack_t nack = {.delivery_tag = token, .requeue = 1};
  al_link_method(bell->channel->link, bell->channel->number, AMQP_BASIC_NACK_METHOD, &nack);
}

static void stop(al_bell *bell);

/* ---- what arrives ----------------------------------------------------------------------------------------------- */

static void out(al_bell *bell) {
  bell->channel = NULL;
  bell->state = AL_BELL_OUT;
  if (bell->has_left) free(bell);
}

static void tell(al_bell *bell) {
  if (bell->op) bell->op->step(bell->op);
}

/* The bell was deleted, or its node went down, and the token with it. What was not acknowledged outlives its queue on
 * its channel, which therefore is closed. */
static void cancelled(al_bell *bell) {
  if (bell->state == AL_BELL_QUITTING) return; /* cancel-ok follows all the same */
  al_channel_close(bell->channel);
  out(bell);
  tell(bell);
}

static void quit(al_bell *bell) {
  al_channel_give(bell->channel);
  out(bell);
}

static void method_arrived(al_bell *bell, const al_event *event) {
  const amqp_basic_cancel_t *notice = event->decoded;
  if (event->method == AMQP_BASIC_CONSUME_OK_METHOD && bell->state == AL_BELL_ARRIVING) {
    bell->state = AL_BELL_WAITING;
    if (bell->stays) al_channel_ping(bell->channel);
    if (bell->makes) tell(bell);
  } else if (event->method == AMQP_BASIC_QOS_OK_METHOD && bell->state == AL_BELL_WAITING && bell->stays) {
    stop(bell);
  } else if (event->method == AMQP_BASIC_CANCEL_OK_METHOD && bell->state == AL_BELL_QUITTING) {
    quit(bell);
  } else if (event->method == AMQP_BASIC_CANCEL_METHOD && notice->consumer_tag.len == strlen(bell->tag) &&
             memcmp(notice->consumer_tag.bytes, bell->tag, notice->consumer_tag.len) == 0) {
    cancelled(bell);
  }
}

/* Anything but a token is nobody's business: it would be in the way of the next one. What the channel's last owner
 * consumed may still come, and is not to be answered: that would cost the channel. */
static void message_arrived(al_bell *bell, const al_content *content) {
  if (strcmp(content->consumer_tag, bell->tag) != 0) return;
  if (strcmp(content->type, AL_TYPE_TOKEN) != 0) {
    acknowledge(bell, content->delivery_tag);
  } else if (bell->state == AL_BELL_QUITTING || bell->state == AL_BELL_RUNG) {
    give_back(bell, content->delivery_tag);
  } else {
    bell->state = AL_BELL_RUNG;
    bell->token = content->delivery_tag;
    tell(bell);
  }
}

static void bell_event(void *owner, al_channel *channel, const al_event *event) {
  al_bell *bell = owner;
  (void)channel;
  switch (event->kind) {
    case AL_EVENT_METHOD:
      method_arrived(bell, event);
      break;
    case AL_EVENT_CONTENT:
      message_arrived(bell, event->content);
      break;
    case AL_EVENT_CLOSED: {
      bell->is_missing = event->method == AMQP_BASIC_CONSUME_METHOD ||
                         event->method == AMQP_QUEUE_DECLARE_METHOD; /* whatever is there is no bell to us */
      bell->owes = bell->makes || !bell->is_missing;
      al_op *op = bell->op;
      out(bell);
      if (op) op->step(op);
      break;
    }
    case AL_EVENT_DOWN: /* whoever waits learns it from the link, and a token goes back by itself */
      bell->owes = bell->state != AL_BELL_RUNG;
      out(bell);
      break;
  }
}

/* ---- coming and going ------------------------------------------------------------------------------------------- */

void al_bell_arrive(al_bell *bell) {
  if (bell->state != AL_BELL_OUT) return;
  bell->channel = al_channel_take(&bell->session->holder, bell_event, bell);
  if (!bell->channel) return;
  bell->is_missing = false;
  bell->owes = true;
  al_channel_take_one(bell->channel);
  if (bell->makes) declare(bell);
  consume(bell);
}

/* Cancelled first: acknowledged first, the old consumer might be given the next token. */
void al_bell_waste(al_bell *bell) {
  if (bell->state != AL_BELL_RUNG) return;
  cancel(bell);
  acknowledge(bell, bell->token);
  if (bell->priority < INT_MAX) bell->priority++;
  consume(bell);
}

/* Stops consuming; what it has goes back. */
static void stop(al_bell *bell) {
  if (bell->state == AL_BELL_ARRIVING) {
    al_channel_close(bell->channel);
    out(bell);
  } else if (bell->state == AL_BELL_RUNG) {
    cancel_and_go(bell);
    give_back(bell, bell->token);
    quit(bell);
  } else if (bell->state == AL_BELL_WAITING) {
    cancel(bell);
    bell->state = AL_BELL_QUITTING;
  }
}

/* What is asked after consume-ok is answered after a token that lay ready. */
void al_bell_stay(al_bell *bell, bool was_quick) {
  bell->op = NULL;
  bell->stays = true;
  if (bell->state == AL_BELL_WAITING && was_quick)
    al_channel_ping(bell->channel);
  else if (bell->state != AL_BELL_RUNG && !(bell->state == AL_BELL_ARRIVING && was_quick))
    stop(bell);
}

void al_bell_leave(al_bell *bell, bool freed) {
  if (!bell) return;
  if (freed && bell->owes && bell->state != AL_BELL_RUNG) al_prober_ring(&bell->session->probes, bell->queue);
  bell->op = NULL;
  stop(bell);
  bell->has_left = true;
  if (bell->state == AL_BELL_OUT) free(bell);
}
