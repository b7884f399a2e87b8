/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The broker, as far as the fuzzing target "session" needs one: it reads what a session wrote, remembers every request, and
 * answers when it is told to: truthfully, as RabbitMQ would by what there is (queues, consumers, messages), or with a lie.
 * Whoever says more than that writes into `out` of a connection. */
#ifndef FUZZ_PEER_H
#define FUZZ_PEER_H

#include "wire.h"

#define PEER_CONNECTIONS 3
#define PEER_FRAME_MAX 8192

typedef struct peer_message {
  char id[40], correlation[40], kind[40];
} peer_message;

typedef enum peer_owner { PEER_NOBODY = -1, PEER_FOREIGNER = PEER_CONNECTIONS } peer_owner;

typedef struct peer_queue {
  struct peer_queue *next;
  char name[256], key[256]; /* bound to amq.direct by that key; "" */
  int owner;                /* exclusive of that connection, or a peer_owner */
  bool auto_delete, was_consumed;
  size_t most; /* messages, the oldest of which give way */
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

/* What a client asked, as the bytes of its frames: one, or the two of a publish. */
typedef struct peer_request {
  struct peer_request *next;
  int channel;
  size_t length;
  uint8_t bytes[];
} peer_request;

typedef struct peer_channel {
  bool is_open, is_closing; /* the latter: we closed it, and wait for close-ok */
  bool confirms;
  bool is_seen; /* while one is picked */
  int prefetch;
  uint64_t published, delivered;
} peer_channel;

typedef struct peer_connection {
  bool is_up, greeted, is_closing;
  size_t frame_max;
  wire_buffer in, out; /* what the client wrote and is no whole frame yet; what it is to be told */
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
  bool is_truthful;  /* so far, and nobody else has said anything in its name */
  bool cancels_late; /* basic.cancel comes behind delete-ok */
  int channel_max, frame_max;
} peer;

/* What an answer may be instead of the truth. */
typedef enum peer_lie {
  PEER_TRUTH,
  PEER_REFUSES,  /* the channel is closed with code `argument`, and nothing was done */
  PEER_DROPS,    /* no answer ever, and nothing was done */
  PEER_MUTE,     /* done, and no answer */
  PEER_NACKS,    /* a publish: it is not taken */
  PEER_RETURNS,  /* a publish: to no queue, whatever there is */
  PEER_TAKES,    /* a publish: routed, whatever there is */
  PEER_MULTIPLE, /* a publish: this and all before it are confirmed */
  PEER_COUNTS    /* a declare: with the number `argument` for messages and consumers */
} peer_lie;

void peer_connect(peer *self, int connection);
/* What the client wrote. */
void peer_hear(peer *self, int connection, const void *bytes, size_t length);
/* The connection is over, for whatever reason: the broker lets go of everything that was on it. */
void peer_disconnect(peer *self, int connection);
void peer_free(peer *self);

/* Answers the first request of the `index`th channel that asked. False: there is none. */
bool peer_answer(peer *self, int connection, size_t index, peer_lie lie, unsigned argument);

/* What happens at the broker without the client's doing. */
peer_queue *peer_find(peer *self, const char *name);
peer_queue *peer_declare(peer *self, const char *name, int owner);
void peer_delete(peer *self, peer_queue *queue);
void peer_publish(peer *self, peer_queue *queue, peer_message message);
void peer_close_channel(peer *self, int connection, int channel, unsigned code, const char *text);
void peer_close_connection(peer *self, int connection, unsigned code, const char *text);
void peer_block(peer *self, int connection, bool is_blocked);

const peer_consumer *peer_consumer_by(const peer *self, int connection, const char *tag);
/* What a client that has ended everything must not have left: queues of its own, consumers, deliveries. */
size_t peer_leftovers(const peer *self, int connection, char *words, size_t size);

#endif
