/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/bell.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/field.h"
#include "core/queue/declare.h"
#include "core/session/message.h"
#include "core/session/op.h"
#include "core/session/prober.h"
#include "core/session/session.h"

#define KEEPER                                                                                               \
  INT_MAX /* the priority of a holder that others wait for: it rings for a token, and must get it itself */

bool al_bell_is_out(const al_bell *bell) { return bell->consumer.state == AL_CONSUMER_OUT; }

bool al_bell_is_arriving(const al_bell *bell) { return bell->consumer.state == AL_CONSUMER_SUBSCRIBING; }

bool al_bell_is_first(const al_bell *bell) { return bell->is_first && !al_bell_is_out(bell); }

bool al_bell_has_token(const al_bell *bell) { return bell->consumer.state == AL_CONSUMER_HAS; }

static void declare(const al_consumer *consumer) {
  const al_bell *bell = consumer->owner;
  if (bell->makes) al_declare_waiters_bell(consumer->channel, bell->queue);
}

/* ---- what arrives ----------------------------------------------------------------------------------------------- */

static bool is_token(al_consumer *consumer, const al_content *content) {
  (void)consumer;
  return strcmp(content->type, AL_TYPE_TOKEN) == 0;
}

/* A bell that refuses us is missing, for us. */
static void bell_closed(al_bell *bell, const al_event *event) {
  bool is_refused = event->method == AMQP_BASIC_CONSUME_METHOD || event->method == AMQP_QUEUE_DECLARE_METHOD;
  bool is_too_new = bell->found == AL_BELL_EARLY && al_event_is_absent(event);
  bell->found = !is_refused ? AL_BELL_THERE : is_too_new ? AL_BELL_TOO_NEW : AL_BELL_MISSING;
  bell->rings = bell->makes || bell->found != AL_BELL_MISSING;
}

/* The operation learns from the link itself that the link is down. */
static bool is_news_to_op(const al_bell *bell, al_consumer_news news) {
  return news == AL_CONSUMER_RECEIVED || news == AL_CONSUMER_CANCELLED || news == AL_CONSUMER_CLOSED ||
         (news == AL_CONSUMER_SUBSCRIBED && bell->makes);
}

/* With a priority above that of all waiters. It waits for nobody. */
static void arrive_first(al_bell *bell) {
  bell->consumer.priority = KEEPER;
  bell->consumer.waiting_since = 0;
  al_bell_arrive(bell, false);
}

/* The table in bell.h. */
static void bell_told(al_consumer *consumer, al_consumer_news news, const al_event *event) {
  al_bell *bell = consumer->owner;
  al_op *op = bell->stage == AL_BELL_WAITS && is_news_to_op(bell, news) ? bell->op : NULL;
  switch (news) {
    case AL_CONSUMER_PREPARED:
      bell->is_first = ((const amqp_queue_declare_ok_t *)event->decoded)->consumer_count == 0;
      break;
    case AL_CONSUMER_SUBSCRIBED:
      if (bell->stage != AL_BELL_WAITS) al_consumer_ask(consumer);
      break;
    case AL_CONSUMER_EMPTY:
      if (consumer->priority == KEEPER)
        al_prober_ring(consumer->session, bell->queue);
      else
        al_consumer_cancel(consumer);
      break;
    case AL_CONSUMER_ENDED:
      if (bell->stage == AL_BELL_KEEPS) arrive_first(bell);
      break;
    case AL_CONSUMER_CLOSED:
      bell_closed(bell, event);
      break;
    case AL_CONSUMER_DOWN:
      bell->rings = consumer->delivery == 0; /* the broker requeues a token by itself */
      break;
    case AL_CONSUMER_RECEIVED:
    case AL_CONSUMER_COUNTED:
    case AL_CONSUMER_CANCELLED:
      break;
  }
  if (bell->stage == AL_BELL_LEAVES && al_bell_is_out(bell)) free(bell);
  if (op) al_op_step(op);
}

/* ---- coming and going ------------------------------------------------------------------------------------------- */

al_bell *al_bell_new(al_op *op, const char *queue, int priority, bool makes) {
  static const al_consumer_kind kind = {.prepare = declare, .wants = is_token, .told = bell_told};
  al_bell *bell = calloc(1, sizeof *bell);
  if (!bell) return NULL;
  bell->op = op;
  bell->makes = bell->rings = makes;
  snprintf(bell->queue, sizeof bell->queue, "%s", queue);
  al_consumer_init(&bell->consumer, &kind, op->session, &op->session->holder, bell, bell->queue, priority);
  return bell;
}

void al_bell_arrive(al_bell *bell, bool is_early) {
  if (!al_bell_is_out(bell) || !al_consumer_subscribe(&bell->consumer)) return;
  bell->found = is_early ? AL_BELL_EARLY : AL_BELL_THERE;
  bell->is_first = false;
  bell->rings = true;
}

void al_bell_give_up(al_bell *bell) {
  if (!al_bell_is_arriving(bell)) return;
  al_consumer_cancel(&bell->consumer);
  bell->found = AL_BELL_MISSING;
}

void al_bell_waste(al_bell *bell) {
  if (!al_bell_has_token(bell)) return;
  bell->is_first = false;
  if (bell->consumer.priority < KEEPER - 1) bell->consumer.priority++;
  al_consumer_discard(&bell->consumer);
}

bool al_bell_take_missing(al_bell *bell) {
  bool was_missing = bell->found == AL_BELL_MISSING;
  if (was_missing) bell->found = AL_BELL_THERE;
  return was_missing;
}

void al_bell_settle(al_bell *bell, bool was_quick, bool may_exist) {
  al_consumer *consumer = &bell->consumer;
  bell->stage = AL_BELL_SETTLES;
  if (bell->found != AL_BELL_EARLY) bell->found = may_exist ? AL_BELL_THERE : AL_BELL_MISSING;
  if (consumer->state == AL_CONSUMER_WAITING && was_quick)
    al_consumer_ask(consumer);
  else if (consumer->state != AL_CONSUMER_HAS && !(consumer->state == AL_CONSUMER_SUBSCRIBING && was_quick))
    al_consumer_cancel(consumer);
}

void al_bell_want_token(al_bell *bell) {
  if (!bell || !bell->makes || bell->found == AL_BELL_MISSING) return;
  bell->stage = AL_BELL_KEEPS;
  if (al_bell_is_out(bell)) arrive_first(bell);
}

/* A token in hand goes back with the consumer. */
static void wake_next(const al_bell *bell) {
  if (bell->rings && !al_bell_has_token(bell)) al_prober_ring(bell->consumer.session, bell->queue);
}

void al_bell_retain(al_bell *bell) {
  if (!bell || bell->stage == AL_BELL_RETAINS) return;
  wake_next(bell);
  bell->stage = AL_BELL_RETAINS;
  al_consumer_cancel(&bell->consumer);
}

void al_bell_leave(al_bell *bell, bool freed) {
  if (!bell) return;
  if (freed) wake_next(bell);
  bell->stage = AL_BELL_LEAVES;
  al_consumer_cancel(&bell->consumer);
  if (al_bell_is_out(bell)) free(bell);
}
