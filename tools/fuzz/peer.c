/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOBODYS_NOW "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '%s' in vhost '/'"
#define NO_QUEUE "NOT_FOUND - no queue '%s' in vhost '/'"
#define MESSAGES_MOST 2000 /* of any queue; more are of no use */
#define NAME_SIZE 256      /* a short string with its terminator */

static void say(peer *self, int connection, int channel, unsigned method, const wire_value *fields) {
  wire_say(&self->connections[connection].out, channel, wire_method_by(method), fields);
}

/* Not strcmp(): the fuzzer would record its operands, which are of no use here. */
static bool same(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

static void text_of(wire_value value, char *out, size_t size) {
  size_t length = value.length < size - 1 ? value.length : size - 1;
  if (length > 0) memcpy(out, value.bytes, length);
  out[length] = '\0';
}

static unsigned id_of(const wire_frame *frame) {
  return frame->method ? WIRE_ID(frame->method->class_id, frame->method->id) : 0;
}

/* ---- the state of the broker ------------------------------------------------------------------------------------- */

peer_queue *peer_find(peer *self, const char *name) {
  peer_queue *queue = self->queues;
  while (queue && !same(queue->name, name)) queue = queue->next;
  return queue;
}

peer_queue *peer_declare(peer *self, const char *name, int owner) {
  peer_queue *queue = peer_find(self, name);
  if (queue) return queue;
  queue = calloc(1, sizeof *queue);
  CHECK(queue, "no memory");
  snprintf(queue->name, sizeof queue->name, "%s", name);
  queue->owner = owner;
  queue->most = MESSAGES_MOST;
  queue->next = self->queues;
  return self->queues = queue;
}

static peer_consumer *next_consumer(const peer *self, const peer_queue *queue) {
  peer_consumer *best = NULL;
  for (peer_consumer *c = self->consumers; c; c = c->next) {
    bool has_room = c->no_ack || c->prefetch == 0 || c->unacked < c->prefetch;
    if (same(c->queue, queue->name) && has_room && (!best || c->priority > best->priority)) best = c;
  }
  return best;
}

static peer_consumer *consumer_by(peer *self, int connection, int channel, const char *tag) {
  peer_consumer *c = self->consumers;
  while (c && !(c->connection == connection && c->channel == channel && same(c->tag, tag))) c = c->next;
  return c;
}

static peer_channel *channel_at(peer *self, int connection, int number) {
  peer_connection *c = &self->connections[connection];
  if (number >= c->channels_size) {
    int size = number < 16 ? 16 : number * 2;
    c->channels = realloc(c->channels, (size_t)size * sizeof *c->channels);
    CHECK(c->channels, "no memory");
    memset(c->channels + c->channels_size, 0, (size_t)(size - c->channels_size) * sizeof *c->channels);
    c->channels_size = size;
  }
  return &c->channels[number];
}

static void deliver(peer *self, peer_consumer *consumer, const peer_message *message) {
  peer_channel *channel = channel_at(self, consumer->connection, consumer->channel);
  uint64_t tag = ++channel->delivered;
  wire_value fields[] = {WIRE_TEXT(consumer->tag), WIRE_NUMBER(tag), WIRE_NUMBER(0), WIRE_TEXT(""),
                         WIRE_TEXT(consumer->queue)};
  say(self, consumer->connection, consumer->channel, WIRE_DELIVER, fields);
  wire_header(&self->connections[consumer->connection].out, consumer->channel, 60, 0, WIRE_TEXT(message->id),
              WIRE_TEXT(message->correlation), WIRE_TEXT(message->kind));
  if (consumer->no_ack) return;
  peer_delivery *delivery = calloc(1, sizeof *delivery);
  CHECK(delivery, "no memory");
  *delivery = (peer_delivery){.next = self->deliveries,
                              .connection = consumer->connection,
                              .channel = consumer->channel,
                              .tag = tag,
                              .message = *message};
  snprintf(delivery->queue, sizeof delivery->queue, "%s", consumer->queue);
  snprintf(delivery->consumer, sizeof delivery->consumer, "%s", consumer->tag);
  consumer->unacked++;
  self->deliveries = delivery;
}

static void hand_out(peer *self, peer_queue *queue) {
  peer_consumer *consumer;
  size_t given = 0;
  while (given < queue->count && (consumer = next_consumer(self, queue)))
    deliver(self, consumer, &queue->messages[given++]);
  if (given == 0) return;
  queue->count -= given;
  memmove(queue->messages, queue->messages + given, queue->count * sizeof *queue->messages);
}

static void put_message(peer_queue *queue, size_t at, peer_message message) {
  if (queue->count == queue->size) {
    queue->size = queue->size ? queue->size * 2 : 4;
    queue->messages = realloc(queue->messages, queue->size * sizeof *queue->messages);
    CHECK(queue->messages, "no memory");
  }
  memmove(queue->messages + at + 1, queue->messages + at, (queue->count - at) * sizeof message);
  queue->messages[at] = message;
  queue->count++;
}

void peer_publish(peer *self, peer_queue *queue, peer_message message) {
  put_message(queue, queue->count, message);
  hand_out(self, queue);
  if (queue->count <= queue->most) return;
  queue->count--; /* the oldest message is dropped */
  memmove(queue->messages, queue->messages + 1, queue->count * sizeof *queue->messages);
}

static void queue_free(peer *self, peer_queue *queue) {
  peer_queue **at = &self->queues;
  while (*at != queue) at = &(*at)->next;
  *at = queue->next;
  free(queue->messages);
  free(queue);
}

static void consumer_free(peer *self, peer_consumer **at) {
  peer_consumer *consumer = *at;
  (void)self;
  *at = consumer->next;
  free(consumer);
}

void peer_delete(peer *self, peer_queue *queue) {
  for (peer_consumer **at = &self->consumers; *at;) {
    peer_consumer *c = *at;
    if (!same(c->queue, queue->name)) {
      at = &c->next;
      continue;
    }
    wire_value fields[] = {WIRE_TEXT(c->tag), WIRE_NUMBER(1)};
    say(self, c->connection, c->channel, WIRE_CANCEL, fields);
    consumer_free(self, at);
  }
  for (peer_delivery *d = self->deliveries; d; d = d->next) /* none goes back to the deleted queue */
    if (same(d->queue, queue->name)) d->queue[0] = '\0';
  queue_free(self, queue);
}

/* A consumer has left. */
static void left(peer *self, const char *name) {
  peer_queue *queue = peer_find(self, name);
  if (!queue || !queue->auto_delete || !queue->was_consumed) return;
  for (const peer_consumer *c = self->consumers; c; c = c->next)
    if (same(c->queue, name)) return;
  peer_delete(self, queue);
}

/* Settles deliveries of a channel: this one, or (`multiple`) all up to it; 0 means the last. Returns how many. */
static size_t settle(peer *self, int connection, int channel, uint64_t tag, bool multiple, bool requeue) {
  size_t count = 0;
  for (peer_delivery **at = &self->deliveries; *at;) {
    peer_delivery *d = *at;
    bool is_here = d->connection == connection && d->channel == channel;
    if (!is_here || !(d->tag == tag || (multiple && (tag == 0 || d->tag < tag)))) {
      at = &d->next;
      continue;
    }
    peer_queue *queue = peer_find(self, d->queue);
    peer_consumer *consumer = consumer_by(self, connection, channel, d->consumer);
    if (consumer) consumer->unacked--;
    *at = d->next;
    d->message.returns++;
    if (queue && requeue) put_message(queue, 0, d->message);
    free(d);
    count++;
  }
  for (peer_queue *queue = self->queues; queue; queue = queue->next) hand_out(self, queue);
  return count;
}

static void end_channel(peer *self, int connection, int number) {
  peer_channel *channel = channel_at(self, connection, number);
  *channel = (peer_channel){0};
  for (peer_consumer **at = &self->consumers; *at;) {
    peer_consumer *c = *at;
    if (c->connection != connection || c->channel != number) {
      at = &c->next;
      continue;
    }
    char queue[sizeof c->queue];
    memcpy(queue, c->queue, sizeof queue);
    consumer_free(self, at);
    left(self, queue);
    at = &self->consumers;
  }
  settle(self, connection, number, 0, true, true);
}

void peer_close_channel(peer *self, int connection, int number, unsigned code, const char *text) {
  wire_value fields[] = {WIRE_NUMBER(code), WIRE_TEXT(text), WIRE_NUMBER(0), WIRE_NUMBER(0)};
  if (!self->connections[connection].is_up) return;
  peer_channel *channel = channel_at(self, connection, number);
  if (!channel->is_open) return;
  end_channel(self, connection, number);
  channel->is_closing = true;
  say(self, connection, number, WIRE_CHANNEL_CLOSE, fields);
}

void peer_close_connection(peer *self, int connection, unsigned code, const char *text) {
  wire_value fields[] = {WIRE_NUMBER(code), WIRE_TEXT(text), WIRE_NUMBER(0), WIRE_NUMBER(0)};
  if (!self->connections[connection].is_up) return;
  say(self, connection, 0, WIRE_CLOSE, fields);
  self->connections[connection].is_closing = true;
}

void peer_block(peer *self, int connection, bool is_blocked) {
  wire_value reason = WIRE_TEXT("low on memory");
  if (self->connections[connection].is_up)
    say(self, connection, 0, is_blocked ? WIRE_BLOCKED : WIRE_UNBLOCKED, &reason);
}

const peer_consumer *peer_consumer_by(const peer *self, int connection, const char *tag) {
  const peer_consumer *c = self->consumers;
  while (c && (c->connection != connection || !same(c->tag, tag))) c = c->next;
  return c;
}

size_t peer_leftovers(const peer *self, int connection, char *words, size_t size) {
  size_t count = 0;
  for (const peer_queue *q = self->queues; q; q = q->next)
    if (q->owner == connection && ++count == 1) snprintf(words, size, "queue %s", q->name);
  for (const peer_consumer *c = self->consumers; c; c = c->next)
    if (c->connection == connection && ++count == 1) snprintf(words, size, "a consumer of %s", c->queue);
  for (const peer_delivery *d = self->deliveries; d; d = d->next)
    if (d->connection == connection && ++count == 1) snprintf(words, size, "a message of %s", d->queue);
  return count;
}

/* ---- requests of the client -------------------------------------------------------------------------------------- */

void peer_connect(peer *self, int connection) {
  peer_connection *c = &self->connections[connection];
  CHECK(!c->is_up, "connected twice");
  *c = (peer_connection){.is_up = true, .frame_max = PEER_FRAME_MAX};
  c->last = &c->requests;
}

void peer_disconnect(peer *self, int connection) {
  peer_connection *c = &self->connections[connection];
  if (!c->is_up) return;
  for (int number = 1; number < c->channels_size; number++)
    if (c->channels[number].is_open) end_channel(self, connection, number);
  for (peer_queue *q = self->queues, *next; q; q = next) {
    next = q->next;
    if (q->owner == connection) queue_free(self, q);
  }
  for (peer_request *r = c->requests, *next; r; r = next) {
    next = r->next;
    free(r);
  }
  free(c->channels);
  wire_free(&c->in);
  wire_free(&c->out);
  *c = (peer_connection){0};
}

void peer_free(peer *self) {
  for (int i = 0; i < PEER_CONNECTIONS; i++) peer_disconnect(self, i);
  while (self->queues) queue_free(self, self->queues);
}

static void enqueue(peer_connection *c, int channel, const void *bytes, size_t length) {
  peer_request *request = malloc(sizeof *request + length);
  CHECK(request, "no memory");
  *request = (peer_request){.channel = channel, .length = length};
  memcpy(request->bytes, bytes, length);
  *c->last = request;
  c->last = &request->next;
}

static bool hear_greeting(peer_connection *c) {
  static const char header[] = "AMQP\0\0\x09\x01";
  if (c->in.length < 8) return false;
  CHECK(memcmp(c->in.bytes, header, 8) == 0, "the client did not say AMQP 0-9-1 first");
  c->greeted = true;
  enqueue(c, 0, c->in.bytes, 8);
  wire_consume(&c->in, 8);
  return true;
}

/* A publish is one request, of two frames. */
static size_t request_length(const peer_connection *c, const uint8_t *at, size_t left) {
  wire_frame frame, header;
  if (!wire_read(at, left, c->frame_max, &frame)) return 0;
  if (id_of(&frame) != WIRE_PUBLISH) {
    CHECK(frame.type != WIRE_HEADER, "a header without a message");
    return frame.size;
  }
  if (!wire_read(at + frame.size, left - frame.size, c->frame_max, &header)) return 0;
  CHECK(header.type == WIRE_HEADER && header.channel == frame.channel && header.body_size == 0,
        "a publish without a header, or with a body");
  return frame.size + header.size;
}

void peer_hear(peer *self, int connection, const void *bytes, size_t length) {
  peer_connection *c = &self->connections[connection];
  size_t at = 0, used;
  if (!c->is_up) return;
  wire_append(&c->in, bytes, length);
  if (!c->greeted && !hear_greeting(c)) return;
  for (; (used = request_length(c, c->in.bytes + at, c->in.length - at)) > 0; at += used) {
    int channel = c->in.bytes[at + 1] << 8 | c->in.bytes[at + 2];
    enqueue(c, channel, c->in.bytes + at, used);
  }
  wire_consume(&c->in, at);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

typedef struct question {
  peer *self;
  int connection, channel;
  wire_frame frame, header; /* the latter of a publish */
  peer_channel *state;
  peer_lie lie;
  unsigned argument;
} question;

static void reply(const question *q, unsigned method, const wire_value *fields) {
  if (q->lie != PEER_MUTE) say(q->self, q->connection, q->channel, method, fields);
}

static void refuse(const question *q, unsigned code, const char *format, const char *name) {
  char text[256];
  snprintf(text, sizeof text, format, name);
  wire_value fields[] = {WIRE_NUMBER(code), WIRE_TEXT(text), WIRE_NUMBER(q->frame.method->class_id),
                         WIRE_NUMBER(q->frame.method->id)};
  end_channel(q->self, q->connection, q->channel);
  q->state->is_closing = true;
  say(q->self, q->connection, q->channel, WIRE_CHANNEL_CLOSE, fields);
}

static bool is_locked(const question *q, const peer_queue *queue) {
  return queue && queue->owner != PEER_NOBODY && queue->owner != q->connection;
}

static size_t consumers_of(const peer *self, const char *queue) {
  size_t count = 0;
  for (const peer_consumer *c = self->consumers; c; c = c->next) count += same(c->queue, queue);
  return count;
}

/* The number with this key in a table; `otherwise` if there is none. */
static uint64_t long_of(wire_value table, const char *key, uint64_t otherwise) {
  const uint8_t *at = table.length > 0 ? memmem(table.bytes, table.length, key, strlen(key)) : NULL;
  if (!at) return otherwise;
  at += strlen(key);
  size_t digits = *at == 'l' ? 8 : 4;
  uint64_t value = 0;
  for (size_t i = 1; i <= digits; i++) value = value << 8 | at[i];
  return value;
}

static uint32_t number_of(wire_value table, const char *key, uint32_t otherwise) {
  return (uint32_t)long_of(table, key, otherwise);
}

static void declare_ok(const question *q, const peer_queue *queue) {
  bool counts = q->lie == PEER_COUNTS;
  wire_value fields[] = {WIRE_TEXT(queue->name), WIRE_NUMBER(counts ? q->argument : queue->count),
                         WIRE_NUMBER(counts ? q->argument : consumers_of(q->self, queue->name))};
  reply(q, WIRE_DECLARE_OK, fields);
}

/* The queue that a request names, and its name; NULL: it does not exist. */
static peer_queue *queue_of(const question *q, char name[NAME_SIZE]) {
  text_of(q->frame.fields[1], name, NAME_SIZE);
  return peer_find(q->self, name);
}

static void on_declare(const question *q) {
  const wire_value *f = q->frame.fields;
  char name[NAME_SIZE];
  peer_queue *queue = queue_of(q, name);
  bool passive = f[2].number, exclusive = f[4].number;
  bool differs = queue && !passive && (queue->owner == PEER_NOBODY) == exclusive;
  if (is_locked(q, queue) || differs) {
    refuse(q, 405, NOBODYS_NOW, name);
    return;
  }
  if (!queue && passive) {
    refuse(q, 404, NO_QUEUE, name);
    return;
  }
  if (!queue) {
    queue = peer_declare(q->self, name, exclusive ? q->connection : PEER_NOBODY);
    queue->auto_delete = f[5].number;
    queue->most = number_of(f[7], "x-max-length", MESSAGES_MOST);
  }
  declare_ok(q, queue);
}

static void on_delete(const question *q) {
  char name[NAME_SIZE];
  peer_queue *queue = queue_of(q, name);
  wire_value count = WIRE_NUMBER(queue ? queue->count : 0);
  bool is_used = queue && q->frame.fields[2].number && consumers_of(q->self, name) > 0;
  bool is_full = queue && q->frame.fields[3].number && queue->count > 0;
  if (is_locked(q, queue)) {
    refuse(q, 405, NOBODYS_NOW, name);
  } else if (is_used || is_full) {
    refuse(q, 406, "PRECONDITION_FAILED - queue '%s' in vhost '/' in use", name);
  } else {
    if (q->self->cancels_late) reply(q, WIRE_DELETE_OK, &count);
    if (queue) peer_delete(q->self, queue);
    if (!q->self->cancels_late) reply(q, WIRE_DELETE_OK, &count);
  }
}

static void on_bind(const question *q) {
  char name[NAME_SIZE];
  peer_queue *queue = queue_of(q, name);
  if (!queue) {
    refuse(q, 404, NO_QUEUE, name);
    return;
  }
  text_of(q->frame.fields[3], queue->key, sizeof queue->key);
  reply(q, WIRE_BIND_OK, NULL);
}

static void on_consume(const question *q) {
  const wire_value *f = q->frame.fields;
  char name[NAME_SIZE];
  peer_queue *queue = queue_of(q, name);
  if (!queue || is_locked(q, queue)) {
    refuse(q, queue ? 405 : 404, queue ? NOBODYS_NOW : NO_QUEUE, name);
    return;
  }
  peer_consumer *consumer = calloc(1, sizeof *consumer), **at = &q->self->consumers;
  CHECK(consumer, "no memory");
  *consumer = (peer_consumer){.connection = q->connection,
                              .channel = q->channel,
                              .priority = (int)number_of(f[7], "x-priority", 0),
                              .prefetch = q->state->prefetch,
                              .no_ack = f[4].number};
  snprintf(consumer->queue, sizeof consumer->queue, "%s", name);
  text_of(f[2], consumer->tag, sizeof consumer->tag);
  CHECK(!consumer_by(q->self, q->connection, q->channel, consumer->tag), "a consumer tag is used twice");
  while (*at) at = &(*at)->next;
  *at = consumer;
  queue->was_consumed = true;
  reply(q, WIRE_CONSUME_OK, &f[2]);
  hand_out(q->self, queue);
}

/* The headers of a fence's message, as RabbitMQ 4.3 counts; other messages are got as they are delivered. */
static void say_got(const question *q, const peer_message *message) {
  wire_buffer *out = &q->self->connections[q->connection].out, headers = {0};
  if (message->base == 0) {
    wire_header(out, q->channel, 60, 0, WIRE_TEXT(message->id), WIRE_TEXT(message->correlation),
                WIRE_TEXT(message->kind));
    return;
  }
  wire_number_field(&headers, "x-amqplocks-base", message->base);
  if (message->returns > 0) wire_number_field(&headers, "x-acquired-count", message->returns);
  wire_fence_header(out, q->channel, (wire_value){.bytes = headers.bytes, .length = headers.length});
  wire_free(&headers);
}

static void on_get(const question *q) {
  char name[NAME_SIZE];
  peer_queue *queue = queue_of(q, name);
  if (!queue || is_locked(q, queue)) {
    refuse(q, queue ? 405 : 404, queue ? NOBODYS_NOW : NO_QUEUE, name);
    return;
  }
  if (queue->count == 0) {
    reply(q, WIRE_GET_EMPTY, (wire_value[]){WIRE_TEXT("")});
    return;
  }
  uint64_t tag = ++q->state->delivered;
  peer_delivery *delivery = calloc(1, sizeof *delivery);
  CHECK(delivery, "no memory");
  *delivery = (peer_delivery){.next = q->self->deliveries,
                              .connection = q->connection,
                              .channel = q->channel,
                              .tag = tag,
                              .message = queue->messages[0]};
  snprintf(delivery->queue, sizeof delivery->queue, "%s", name);
  q->self->deliveries = delivery;
  memmove(queue->messages, queue->messages + 1, --queue->count * sizeof *queue->messages);
  wire_value fields[] = {WIRE_NUMBER(tag), WIRE_NUMBER(delivery->message.returns > 0), WIRE_TEXT(""),
                         WIRE_TEXT(name), WIRE_NUMBER(q->lie == PEER_COUNTS ? q->argument : queue->count)};
  reply(q, WIRE_GET_OK, fields);
  if (q->lie != PEER_MUTE) say_got(q, &delivery->message);
}

static void on_cancel(const question *q) {
  char tag[256];
  text_of(q->frame.fields[0], tag, sizeof tag);
  for (peer_consumer **at = &q->self->consumers; *at; at = &(*at)->next) {
    char queue[256];
    if ((*at)->connection != q->connection || (*at)->channel != q->channel || !same((*at)->tag, tag))
      continue;
    memcpy(queue, (*at)->queue, sizeof queue);
    consumer_free(q->self, at);
    left(q->self, queue);
    break;
  }
  if (q->frame.fields[1].number == 0) reply(q, WIRE_CANCEL_OK, &q->frame.fields[0]);
}

static void on_settle(const question *q, bool is_ack) {
  const wire_value *f = q->frame.fields;
  bool requeue = !is_ack && f[2].number;
  size_t count = settle(q->self, q->connection, q->channel, f[0].number, f[1].number, requeue);
  if (count == 0 && f[0].number != 0) refuse(q, 406, "PRECONDITION_FAILED - unknown delivery tag%s", "");
}

static bool route(const question *q, const char *exchange, const char *key, peer_message message) {
  bool routed = false;
  for (peer_queue *queue = q->self->queues, *next; queue; queue = next) {
    next = queue->next;
    bool is_bound = exchange[0] ? same(queue->key, key) && key[0] : same(queue->name, key);
    if (!is_bound) continue;
    peer_publish(q->self, queue, message);
    routed = true;
  }
  return routed;
}

static void return_it(const question *q, const char *exchange, const char *key) {
  wire_value fields[] = {WIRE_NUMBER(312), WIRE_TEXT("NO_ROUTE"), WIRE_TEXT(exchange), WIRE_TEXT(key)};
  say(q->self, q->connection, q->channel, WIRE_RETURN, fields);
  wire_header(&q->self->connections[q->connection].out, q->channel, 60, 0, q->header.id,
              q->header.correlation, q->header.kind);
}

static void on_publish(const question *q) {
  char exchange[256], key[256];
  peer_message message;
  text_of(q->frame.fields[1], exchange, sizeof exchange);
  text_of(q->frame.fields[2], key, sizeof key);
  text_of(q->header.id, message.id, sizeof message.id);
  text_of(q->header.correlation, message.correlation, sizeof message.correlation);
  text_of(q->header.kind, message.kind, sizeof message.kind);
  message.base = (int64_t)long_of(q->header.headers, "x-amqplocks-base", 0);
  message.returns = 0;
  CHECK(q->frame.fields[3].number, "a publish that is not mandatory");
  wire_value fields[] = {WIRE_NUMBER(++q->state->published), WIRE_NUMBER(q->lie == PEER_MULTIPLE),
                         WIRE_NUMBER(0)};
  bool routed = q->lie == PEER_TAKES ||
                (q->lie != PEER_RETURNS && q->lie != PEER_NACKS && route(q, exchange, key, message));
  CHECK(q->state->confirms || !q->self->is_truthful, "a publish without confirms");
  if (!routed && q->lie != PEER_NACKS) return_it(q, exchange, key);
  reply(q, q->lie == PEER_NACKS ? WIRE_NACK : WIRE_ACK, fields);
}

static void on_start_ok(const question *q) {
  wire_value fields[] = {WIRE_NUMBER(q->self->channel_max), WIRE_NUMBER(q->self->frame_max), WIRE_NUMBER(60)};
  reply(q, WIRE_TUNE, fields);
}

static void on_connection(const question *q) {
  if (id_of(&q->frame) == WIRE_START_OK) on_start_ok(q);
  if (id_of(&q->frame) == WIRE_TUNE_OK)
    q->self->connections[q->connection].channel_max = (unsigned)q->frame.fields[0].number;
  if (id_of(&q->frame) == WIRE_OPEN) reply(q, WIRE_OPEN_OK, (wire_value[]){WIRE_TEXT("")});
  if (id_of(&q->frame) == WIRE_CLOSE) reply(q, WIRE_CLOSE_OK, NULL);
}

static void on_channel(const question *q) {
  if (id_of(&q->frame) == WIRE_CHANNEL_OPEN) {
    unsigned most = q->self->connections[q->connection].channel_max;
    CHECK(q->channel <= (int)most || !q->self->is_truthful, "channel %d was opened, of %u", q->channel, most);
    *q->state = (peer_channel){.is_open = true};
    reply(q, WIRE_CHANNEL_OPEN_OK, (wire_value[]){WIRE_TEXT("")});
  } else if (id_of(&q->frame) == WIRE_CHANNEL_CLOSE) {
    bool was_closing = q->state->is_closing;
    end_channel(q->self, q->connection, q->channel);
    q->state->is_closing = was_closing;
    reply(q, WIRE_CHANNEL_CLOSE_OK, NULL);
  }
}

static void on_queue_or_basic(const question *q) {
  switch (id_of(&q->frame)) {
    case WIRE_DECLARE:
      on_declare(q);
      return;
    case WIRE_DELETE:
      on_delete(q);
      return;
    case WIRE_BIND:
      on_bind(q);
      return;
    case WIRE_CONSUME:
      on_consume(q);
      return;
    case WIRE_GET:
      on_get(q);
      return;
    case WIRE_CANCEL:
      on_cancel(q);
      return;
    case WIRE_PUBLISH:
      on_publish(q);
      return;
    case WIRE_ACK:
    case WIRE_NACK:
      on_settle(q, id_of(&q->frame) == WIRE_ACK);
      return;
    case WIRE_QOS:
      q->state->prefetch = (int)q->frame.fields[1].number;
      reply(q, WIRE_QOS_OK, NULL);
      return;
    case WIRE_SELECT:
      q->state->confirms = true;
      reply(q, WIRE_SELECT_OK, NULL);
      return;
    default:
      CHECK(false, "the client said %s", q->frame.method->name);
  }
}

static void greet(const question *q) {
  static const char properties[] = "\x07productS\0\0\0\x08RabbitMQ\x07versionS\0\0\0\x05"
                                   "4.3.6";
  wire_value fields[] = {WIRE_NUMBER(0),
                         WIRE_NUMBER(9),
                         {.bytes = properties, .length = sizeof properties - 1},
                         WIRE_TEXT("PLAIN AMQPLAIN EXTERNAL"),
                         WIRE_TEXT("en_US")};
  reply(q, WIRE_START, fields);
}

static void lie_or_not(question *q) {
  if (q->lie == PEER_DROPS) return;
  if (q->lie == PEER_REFUSES && q->channel > 0)
    refuse(q, q->argument, "the broker says no%s", q->argument & 1 ? "" : ": limit");
  else if (q->lie == PEER_REFUSES)
    peer_close_connection(q->self, q->connection, q->argument, "the broker says goodbye");
  else
    on_queue_or_basic(q);
}

static void answer(question *q, const peer_request *request) {
  if (request->length == 8 && request->bytes[0] == 'A') {
    if (q->lie != PEER_DROPS) greet(q);
    return;
  }
  wire_read(request->bytes, request->length, request->length, &q->frame);
  if (!q->frame.method) return; /* a heartbeat */
  if (id_of(&q->frame) == WIRE_PUBLISH)
    wire_read(request->bytes + q->frame.size, request->length - q->frame.size, request->length, &q->header);
  if (id_of(&q->frame) == WIRE_CHANNEL_CLOSE_OK) {
    q->state->is_closing = false;
  } else if (q->frame.method->class_id == 10 && q->lie != PEER_REFUSES) {
    if (q->lie != PEER_DROPS) on_connection(q);
  } else if (q->frame.method->class_id == 20) {
    bool waits =
        q->state->is_closing && id_of(&q->frame) == WIRE_CHANNEL_OPEN; /* our close is not answered yet */
    CHECK(!waits || !q->self->is_truthful, "channel %d is opened before it is closed", q->channel);
    if (q->lie != PEER_DROPS) on_channel(q);
  } else if (q->state->is_open || q->channel == 0) { /* frames after our close are ignored */
    lie_or_not(q);
  }
}

/* The first request of the `index`th channel that has one, modulo their number. */
static peer_request **pick(peer *self, int connection, size_t index) {
  peer_connection *c = &self->connections[connection];
  size_t channels = 0;
  for (peer_request *r = c->requests; r; r = r->next) {
    peer_channel *channel = channel_at(self, connection, r->channel);
    channels += !channel->is_seen;
    channel->is_seen = true;
  }
  index %= channels;
  for (peer_request **at = &c->requests;; at = &(*at)->next) {
    peer_channel *channel = channel_at(self, connection, (*at)->channel);
    if (channel->is_seen && index-- == 0) return at;
    channel->is_seen = false;
  }
}

bool peer_answer(peer *self, int connection, size_t index, peer_lie lie, unsigned argument) {
  peer_connection *c = &self->connections[connection];
  if (!c->is_up || !c->requests) return false;
  for (int i = 0; i < c->channels_size && index > 0; i++) c->channels[i].is_seen = false;
  peer_request **at = index == 0 ? &c->requests : pick(self, connection, index), *request = *at;
  *at = request->next;
  if (!*at) {
    c->last = &c->requests;
    while (*c->last) c->last = &(*c->last)->next;
  }
  question q = {.self = self,
                .connection = connection,
                .channel = request->channel,
                .state = channel_at(self, connection, request->channel),
                .lie = lie,
                .argument = argument};
  if (!c->is_closing) answer(&q, request);
  free(request);
  return true;
}
