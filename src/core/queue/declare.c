/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/declare.h"

#include "core/base/field.h"

#define WAITERS_BELL_EXPIRES 60000 /* milliseconds */
#define BOLT_EXPIRES 10000         /* milliseconds */
#define FAST_MUTEX_EXPIRES 600000  /* milliseconds */

/* Versions of RabbitMQ.
 *
 * HAS_DELIVERY_LIMIT: from here on a quorum queue has a limit of deliveries by default, and -1 means that it has
 * none. Before, -1 would be the strictest limit of all. HAS_TIMEOUT: from here on a queue may have a consumer timeout
 * of its own. CLASSIC_HAS_NONE: from here on classic queues have no consumer timeout, and a declare that gives them
 * one is refused. */
#define HAS_DELIVERY_LIMIT 40000
#define HAS_TIMEOUT 31200
#define CLASSIC_HAS_NONE 40300

#define ARGUMENTS_MOST 8

/* A declare that is being built. Its arguments are the queue type, and then the others in the order they are
 * added. */
typedef struct shape {
  amqp_queue_declare_t declare;
  amqp_table_entry_t entries[ARGUMENTS_MOST];
} shape;

static void add(shape *shape, amqp_table_entry_t entry) {
  shape->entries[shape->declare.arguments.num_entries++] = entry;
}

static shape shape_of(const char *queue, bool is_quorum) {
  shape new = {.declare = {.queue = amqp_cstring_bytes(queue)}};
  add(&new, al_field_text("x-queue-type", is_quorum ? "quorum" : "classic"));
  return new;
}

static shape durable(const char *queue, bool is_quorum) {
  shape new = shape_of(queue, is_quorum);
  new.declare.durable = 1;
  return new;
}

static shape exclusive(const char *queue) {
  shape new = shape_of(queue, false);
  new.declare.exclusive = new.declare.auto_delete = 1;
  return new;
}

/* The queue keeps at most so many messages, the newest ones. With 0 it keeps none, and only delivers to consumers. */
static void keep(shape *shape, int messages) {
  add(shape, al_field_number("x-max-length", messages));
  add(shape, al_field_text("x-overflow", "drop-head"));
}

static void send(al_channel *channel, shape *shape) {
  shape->declare.arguments.entries = shape->entries;
  if (shape->declare.nowait)
    al_link_method(channel->link, channel->number, AMQP_QUEUE_DECLARE_METHOD, &shape->declare);
  else
    al_channel_call(channel, AMQP_QUEUE_DECLARE_METHOD, &shape->declare);
}

void al_declare_held(al_channel *channel, const char *queue, const char *ticket, const char *holder,
                     int64_t acquired_at, int64_t retain) {
  shape held = exclusive(queue);
  keep(&held, 0);
  add(&held, al_field_text("x-amqplocks-ticket", ticket));
  add(&held, al_field_text("x-amqplocks-holder", holder));
  add(&held, al_field_number("x-amqplocks-acquired-at", acquired_at));
  if (retain > 0) add(&held, al_field_number("x-amqplocks-retain", retain));
  send(channel, &held);
}

void al_declare_slot(al_channel *channel, const char *queue, bool is_quorum) {
  shape slot = durable(queue, is_quorum);
  keep(&slot, 0);
  send(channel, &slot);
}

void al_declare_bell(al_channel *channel, const char *queue) {
  shape bell = durable(queue, false);
  send(channel, &bell);
}

/* The queue expires when there was no waiter for a while. One token is enough, because one waiter at a time gets the
 * lock. */
void al_declare_waiters_bell(al_channel *channel, const char *queue) {
  shape bell = durable(queue, false);
  add(&bell, al_field_number("x-expires", WAITERS_BELL_EXPIRES));
  keep(&bell, 1);
  send(channel, &bell);
}

/* With the default limit of deliveries, a quorum queue drops a message after about twenty consumers died while they
 * had it. */
static shape of_tokens(al_channel *channel, const char *queue, bool is_quorum) {
  shape tokens = durable(queue, is_quorum);
  if (is_quorum && channel->link->version >= HAS_DELIVERY_LIMIT)
    add(&tokens, al_field_number("x-delivery-limit", -1));
  return tokens;
}

void al_declare_permits(al_channel *channel, const char *queue, bool is_quorum) {
  shape permits = of_tokens(channel, queue, is_quorum);
  int version = channel->link->version;
  if (version >= HAS_TIMEOUT && (is_quorum || version < CLASSIC_HAS_NONE))
    add(&permits, al_field_number("x-consumer-timeout", AL_TEN_YEARS));
  send(channel, &permits);
}

void al_declare_marks(al_channel *channel, const char *queue, bool is_quorum) {
  shape marks = of_tokens(channel, queue, is_quorum);
  send(channel, &marks);
}

/* On RabbitMQ 3.10 a queue with x-overflow=drop-head crashes if a token is published in the middle of a release, between
 * the cancel and the nack of its holder, while another one lies ready. With reject-publish it does not. */
static void keep_one_for_one(shape *shape) {
  add(shape, al_field_yes("x-single-active-consumer"));
  add(shape, al_field_number("x-max-length", 1));
  add(shape, al_field_text("x-overflow", "reject-publish"));
}

void al_declare_fast_mutex(al_channel *channel, const char *queue) {
  shape mutex = durable(queue, false);
  keep_one_for_one(&mutex);
  add(&mutex, al_field_number("x-expires", FAST_MUTEX_EXPIRES));
  send(channel, &mutex);
}

void al_declare_quorum_mutex(al_channel *channel, const char *queue) {
  shape mutex = of_tokens(channel, queue, true);
  keep_one_for_one(&mutex);
  add(&mutex, al_field_number("x-consumer-timeout", AL_MUTEX_CONSUMER_TIMEOUT));
  add(&mutex, al_field_number("x-consumer-disconnected-timeout", AL_MUTEX_DISCONNECTED_TIMEOUT));
  send(channel, &mutex);
}

/* `expires`: milliseconds. */
static void declare_beside(al_channel *channel, const char *queue, int64_t expires, bool is_answered) {
  shape beside = durable(queue, false);
  beside.declare.nowait = !is_answered;
  add(&beside, al_field_number("x-expires", expires));
  keep(&beside, 0);
  send(channel, &beside);
}

void al_declare_bolt(al_channel *channel, const char *queue, bool is_answered) {
  declare_beside(channel, queue, BOLT_EXPIRES, is_answered);
}

void al_declare_seal(al_channel *channel, const char *queue, int64_t settle) {
  int64_t milliseconds = settle / AL_MILLISECOND + (settle % AL_MILLISECOND > 0);
  declare_beside(channel, queue, milliseconds < AL_TEN_YEARS ? milliseconds : AL_TEN_YEARS, false);
}

void al_declare_scratch(al_channel *channel, const char *queue) {
  shape scratch = exclusive(queue);
  send(channel, &scratch);
}

#define DISCONNECTED_TIMEOUT 1000 /* milliseconds */

void al_declare_fence(al_channel *channel, const char *queue) {
  shape fence = of_tokens(channel, queue, true);
  keep(&fence, 1);
  if (channel->link->version >= AL_HAS_DISCONNECTED_TIMEOUT)
    add(&fence, al_field_number("x-consumer-disconnected-timeout", DISCONNECTED_TIMEOUT));
  send(channel, &fence);
}

void al_declare_unfinished(al_channel *channel, const char *queue) {
  shape unfinished = durable(queue, false);
  send(channel, &unfinished);
}
