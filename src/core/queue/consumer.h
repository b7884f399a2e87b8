/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A consumer: one caller at a queue of messages, who takes one of them: a consumer with room for one, on a channel of its own.
 * The broker serves consumers in their order, by priority. What is taken stays unacknowledged, and the consumer registered,
 * until it is given back: should this process die, the broker gives the message to the next; and should the queue go, with
 * the message, the broker cancels the consumer, and the consumer is told.
 *
 *   state       what happens                                      next                                      told
 *   --------    ----------------------------------------------    --------------------------------------    ---------
 *   OUT         al_consumer_subscribe                                     ARRIVING
 *   ARRIVING    declare-ok, for what `prepare` wrote              ARRIVING                                  PREPARED
 *               consume-ok                                        WAITING                                   ARRIVED
 *               a message, and consume-ok behind it               HAS                                       TOOK
 *               al_consumer_cancel: the channel is closed              OUT
 *   WAITING     a message                                         HAS                                       TOOK
 *               al_consumer_ask, and nothing lay ready               WAITING                                   EMPTY
 *               al_consumer_cancel: cancel                             QUITTING
 *               al_consumer_cancel, and its kind closes: the channel   OUT
 *   HAS         al_consumer_discard: cancel, ack, consume anew       ARRIVING
 *               al_consumer_cancel: cancel, and nack what it has       OUT, the channel back in the pool
 *               al_consumer_cancel, and its kind closes: the channel   OUT
 *   QUITTING    a message that was on its way: nack               QUITTING
 *               cancel-ok                                         OUT, the channel back in the pool         QUIT
 *   not that    the broker cancels: the channel is closed         OUT                                       CANCELLED
 *   any         the broker closes the channel                     OUT                                       CLOSED
 *               the link goes down                                OUT                                       DOWN
 *
 * basic.cancel is never written before consume-ok was read, which RabbitMQ 3.10 answers by closing the connection: who
 * quits earlier closes the channel, and what was delivered to it goes back by itself. A kind may have others quit like that,
 * too, whose queue may not be there to hear the cancel.
 *
 * With a message in hand there is no room for another one, so nothing can come that would have to be waited for: cancel asks
 * for no answer then. */
#ifndef AL_CORE_QUEUE_CONSUMER_H
#define AL_CORE_QUEUE_CONSUMER_H

#include "amqplocks.h"
#include "core/wire/channel.h"

typedef struct al_consumer al_consumer;

typedef enum al_consumer_news {
  AL_CONSUMER_PREPARED, /* the event answers a declare that was written before the consume */
  AL_CONSUMER_SUBSCRIBED,
  AL_CONSUMER_RECEIVED, /* a message; the event has its content, unless it came before consume-ok */
  AL_CONSUMER_EMPTY,
  AL_CONSUMER_ENDED,     /* nothing can arrive any more; so for all that follow */
  AL_CONSUMER_CANCELLED, /* the queue was deleted, or its node went down, and what was taken with it */
  AL_CONSUMER_CLOSED,    /* the event says why */
  AL_CONSUMER_DOWN
} al_consumer_news;

#define AL_CONSUMER_ARGUMENTS 4

typedef struct al_consumer_kind {
  /* Writes what goes before the first consume on a channel; NULL: nothing. */
  void (*prepare)(const al_consumer *);
  /* The consumer's arguments besides its priority; gives how many. NULL: none. */
  int (*arguments)(const al_consumer *, amqp_table_entry_t *);
  /* What is not wanted is acknowledged away. NULL: whatever comes is wanted. */
  bool (*wants)(const al_content *);
  /* WAITING, HAS: whether to quit by closing the channel instead of cancelling. NULL: never. */
  bool (*closes)(const al_consumer *);
  /* The last that is done to a consumer which is OUT by it: it may be freed then. */
  void (*told)(al_consumer *, al_consumer_news, const al_event *);
} al_consumer_kind;

struct al_consumer {
  const al_consumer_kind *kind;
  al_session *session;
  void *owner;
  const char *queue; /* its owner's */
  int priority;
  enum {
    AL_CONSUMER_OUT,
    AL_CONSUMER_SUBSCRIBING,
    AL_CONSUMER_WAITING,
    AL_CONSUMER_HAS,
    AL_CONSUMER_CANCELLING
  } state;
  al_channel *channel;
  char tag[AL_TICKET_SIZE]; /* the consumer's: never used twice */
  uint64_t delivery;        /* the message's tag; 0: there is none */
  int64_t since;            /* when it consumed for the last time */
  bool is_asking;           /* al_consumer_ask */
  bool had;                 /* OUT: it had a message when it came to be so */
};

/* OUT. */
void al_consumer_init(al_consumer *consumer, const al_consumer_kind *kind, al_session *session, void *owner,
                      const char *queue, int priority);

/* Consumes from now on, if it is OUT. The holder must be open. False: there is no channel, and it stays OUT. */
bool al_consumer_subscribe(al_consumer *consumer);

/* WAITING: asks whether a message lay ready. It comes before the answer, and then there is no other: what is asked after
 * consume-ok is answered after the deliveries that the consumer was owed. (What is asked together with the consume is
 * not.) */
void al_consumer_ask(al_consumer *consumer);

/* HAS: throws away what it has, and takes another. */
void al_consumer_discard(al_consumer *consumer);

/* Stops consuming, and gives back what it has or what is on its way. Unless it is QUITTING or OUT already, it is OUT with
 * the return of this call, without being told, or will be told QUIT. */
void al_consumer_cancel(al_consumer *consumer);

#endif
