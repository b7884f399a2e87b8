/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A taker: one caller at a queue of messages, who takes one of them: a consumer with room for one, on a channel of its own.
 * The broker serves takers in their order, by priority. What is taken stays unacknowledged, and the consumer registered,
 * until it is given back: should this process die, the broker gives the message to the next; and should the queue go, with
 * the message, the broker cancels the consumer, and the taker is told.
 *
 *   state       what happens                                      next                                      told
 *   --------    ----------------------------------------------    --------------------------------------    ---------
 *   OUT         al_taker_take                                     ARRIVING
 *   ARRIVING    declare-ok, for what `prepare` wrote              ARRIVING                                  PREPARED
 *               consume-ok                                        WAITING                                   ARRIVED
 *               a message, and consume-ok behind it               HAS                                       TOOK
 *               al_taker_quit: the channel is closed              OUT
 *   WAITING     a message                                         HAS                                       TOOK
 *               al_taker_ask, and nothing lay ready               WAITING                                   EMPTY
 *               al_taker_quit: cancel                             QUITTING
 *               al_taker_quit, and its kind closes: the channel   OUT
 *   HAS         al_taker_discard: cancel, ack, consume anew       ARRIVING
 *               al_taker_quit: cancel, and nack what it has       OUT, the channel back in the pool
 *               al_taker_quit, and its kind closes: the channel   OUT
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

typedef struct al_taker al_taker;

typedef enum al_taker_news {
  AL_TAKER_PREPARED, /* the event answers a declare that was written before the consume */
  AL_TAKER_ARRIVED,
  AL_TAKER_TOOK, /* a message; the event has its content, unless it came before consume-ok */
  AL_TAKER_EMPTY,
  AL_TAKER_QUIT,      /* nothing can arrive any more; so for all that follow */
  AL_TAKER_CANCELLED, /* the queue was deleted, or its node went down, and what was taken with it */
  AL_TAKER_CLOSED,    /* the event says why */
  AL_TAKER_DOWN
} al_taker_news;

#define AL_TAKER_ARGUMENTS 4

typedef struct al_taker_kind {
  /* Writes what goes before the first consume on a channel; NULL: nothing. */
  void (*prepare)(const al_taker *);
  /* The consumer's arguments besides its priority; gives how many. NULL: none. */
  int (*arguments)(const al_taker *, amqp_table_entry_t *);
  /* What is not wanted is acknowledged away. NULL: whatever comes is wanted. */
  bool (*wants)(const al_content *);
  /* WAITING, HAS: whether to quit by closing the channel instead of cancelling. NULL: never. */
  bool (*closes)(const al_taker *);
  /* The last that is done to a taker which is OUT by it: it may be freed then. */
  void (*told)(al_taker *, al_taker_news, const al_event *);
} al_taker_kind;

struct al_taker {
  const al_taker_kind *kind;
  al_session *session;
  void *owner;
  const char *queue; /* its owner's */
  int priority;
  enum { AL_TAKER_OUT, AL_TAKER_ARRIVING, AL_TAKER_WAITING, AL_TAKER_HAS, AL_TAKER_QUITTING } state;
  al_channel *channel;
  char tag[AL_TICKET_SIZE]; /* the consumer's: never used twice */
  uint64_t delivery;        /* the message's tag; 0: there is none */
  int64_t since;            /* when it consumed for the last time */
  bool is_asking;           /* al_taker_ask */
  bool had;                 /* OUT: it had a message when it came to be so */
};

/* OUT. */
void al_taker_init(al_taker *taker, const al_taker_kind *kind, al_session *session, void *owner,
                   const char *queue, int priority);

/* Consumes from now on, if it is OUT. The holder must be open. False: there is no channel, and it stays OUT. */
bool al_taker_take(al_taker *taker);

/* WAITING: asks whether a message lay ready. It comes before the answer, and then there is no other: what is asked after
 * consume-ok is answered after the deliveries that the consumer was owed. (What is asked together with the consume is
 * not.) */
void al_taker_ask(al_taker *taker);

/* HAS: throws away what it has, and takes another. */
void al_taker_discard(al_taker *taker);

/* Stops consuming, and gives back what it has or what is on its way. Unless it is QUITTING or OUT already, it is OUT with
 * the return of this call, without being told, or will be told QUIT. */
void al_taker_quit(al_taker *taker);

#endif
