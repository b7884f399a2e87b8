/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The broker, as far as the fuzzing target "session" needs one. It reads what a session wrote, records every request,
 * and answers on demand: truthfully, as RabbitMQ would by its queues, consumers and messages, or with a lie. For other
 * frames the caller writes into `out` of a connection. */
#ifndef FUZZ_PEER_H
#define FUZZ_PEER_H

#include "wire.h"

#define PEER_CONNECTIONS 10
#define PEER_FRAME_MAX 8192

typedef struct peer_message {
  char id[40], correlation[40], kind[40];
  int64_t base;     /* of the message of a fence; otherwise 0 */
  unsigned returns; /* how often it came back from a client */
} peer_message;

typedef enum peer_owner { PEER_NOBODY = -1, PEER_FOREIGNER = PEER_CONNECTIONS } peer_owner;

typedef struct peer_queue {
  struct peer_queue *next;
  char name[256], key[256]; /* bound to amq.direct by that key; "" if not */
  int owner;                /* the connection that owns it (exclusive), or a peer_owner */
  bool auto_delete, was_consumed;
  size_t most; /* the maximum number of messages; beyond it the oldest is dropped */
  peer_message *messages;
  size_t count, size;
} peer_queue;

typedef struct peer_consumer {
  struct peer_consumer *next;
  char queue[256], tag[256];
  int connection, channel, priority, prefetch, unacked;
  bool no_ack;
} peer_consumer;

typedef struct peer_delivery {
  struct peer_delivery *next;
  char queue[256], consumer[256];
  int connection, channel;
  uint64_t tag;
  peer_message message;
} peer_delivery;

/* A request of a client, as the bytes of its frames: one, or the two of a publish. */
typedef struct peer_request {
  struct peer_request *next;
  int channel;
  size_t length;
  uint8_t bytes[];
} peer_request;

typedef struct peer_channel {
  bool is_open, is_closing; /* is_closing: the broker closed it, and waits for close-ok */
  bool confirms;
  bool is_seen; /* during pick() */
  int prefetch;
  uint64_t published, delivered;
} peer_channel;

typedef struct peer_connection {
  bool is_up, greeted, is_closing;
  size_t frame_max;
  wire_buffer in, out; /* in: bytes of an incomplete frame from the client; out: bytes for the client */
  peer_request *requests, **last;
  unsigned channel_max;
  peer_channel *channels; /* by number */
  int channels_size;
} peer_connection;

typedef struct peer {
  peer_connection connections[PEER_CONNECTIONS];
  peer_queue *queues;
  peer_consumer *consumers;
  peer_delivery *deliveries;
  bool is_truthful;  /* no lie and no foreign frame so far */
  bool cancels_late; /* basic.cancel comes after delete-ok */
  int channel_max, frame_max;
} peer;

/* What an answer may be instead of the truth. */
typedef enum peer_lie {
  PEER_TRUTH,
  PEER_REFUSES,  /* the channel is closed with code `argument`; nothing was done */
  PEER_DROPS,    /* no answer; nothing was done */
  PEER_MUTE,     /* done, but no answer */
  PEER_NACKS,    /* a publish is nacked */
  PEER_RETURNS,  /* a publish is returned, also if the queue exists */
  PEER_TAKES,    /* a publish counts as routed, also if the queue does not exist */
  PEER_MULTIPLE, /* a publish: this and all before it are confirmed */
  PEER_COUNTS    /* a declare reports `argument` messages and consumers; a get, messages that are left */
} peer_lie;

void peer_connect(peer *self, int connection);
/* Reads what the client wrote. */
void peer_hear(peer *self, int connection, const void *bytes, size_t length);
/* The connection has ended, for whatever reason: the broker frees everything that was on it. */
void peer_disconnect(peer *self, int connection);
void peer_free(peer *self);

/* Answers the first request of the `index`th channel that has one. False: there is none. */
bool peer_answer(peer *self, int connection, size_t index, peer_lie lie, unsigned argument);

/* Events at the broker that the client did not cause. */
peer_queue *peer_find(peer *self, const char *name);
peer_queue *peer_declare(peer *self, const char *name, int owner);
void peer_delete(peer *self, peer_queue *queue);
void peer_publish(peer *self, peer_queue *queue, peer_message message);
void peer_close_channel(peer *self, int connection, int channel, unsigned code, const char *text);
void peer_close_connection(peer *self, int connection, unsigned code, const char *text);
void peer_block(peer *self, int connection, bool is_blocked);

const peer_consumer *peer_consumer_by(const peer *self, int connection, const char *tag);
/* Counts what a client that has ended everything must not leave: its queues, consumers, deliveries. */
size_t peer_leftovers(const peer *self, int connection, char *words, size_t size);

#endif
