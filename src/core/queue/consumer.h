/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A consumer subscribes to a queue and takes one message from it. It has a channel of its own and a prefetch count of one,
 * or of two if it is to see that there are two messages. The broker serves consumers by priority, and within one priority
 * in the order in which they came.
 *
 * The message stays unacknowledged, and the consumer stays subscribed, until the message is given back or discarded.
 * If this process dies, the broker gives the message to the next consumer. If the queue is deleted, with the message,
 * the broker cancels the consumer, and the consumer's owner is notified. (`moves` in consumer.c has the states.)
 *
 * basic.cancel is never written before consume-ok was read, because RabbitMQ 3.10 then closes the connection. A
 * consumer that is cancelled before consume-ok closes its channel instead, and the broker requeues what was delivered
 * to it.
 *
 * al_consumer_return() writes what al_consumer_cancel() writes, and waits until the broker has the message back. Behind
 * each nack it asks a question (basic.qos), as a nack has no answer. Where the channel is closed it waits for close-ok.
 * The consumer is CANCELLING meanwhile.
 *
 * Each consume names the session, and says since when its owner waits (x-amqplocks-holder,
 * x-amqplocks-waiting-since): `rabbitmqctl list_consumers` shows both.
 *
 * With a prefetch count of one, a consumer that has a message gets no second one. So no message can be under way that
 * would have to be waited for, and its cancel is sent without asking for an answer. */
#ifndef AL_CORE_QUEUE_CONSUMER_H
#define AL_CORE_QUEUE_CONSUMER_H

#include "amqplocks.h"
#include "core/wire/channel.h"

typedef struct al_consumer al_consumer;

typedef enum al_consumer_state {
  AL_CONSUMER_OUT,
  AL_CONSUMER_SUBSCRIBING,
  AL_CONSUMER_WAITING,
  AL_CONSUMER_HAS,
  AL_CONSUMER_CANCELLING
} al_consumer_state;

typedef enum al_consumer_news {
  AL_CONSUMER_PREPARED, /* the event answers a declare that `prepare` wrote before the consume */
  AL_CONSUMER_SUBSCRIBED,
  AL_CONSUMER_RECEIVED, /* a message; `took` has had its content */
  AL_CONSUMER_EMPTY,
  AL_CONSUMER_COUNTED, /* the event answers al_consumer_count() */
  AL_CONSUMER_ENDED,   /* nothing can arrive any more; this holds for all that follow, too */
  AL_CONSUMER_CANCELLED, /* the queue was deleted or its node went down, and the message taken is lost with it */
  AL_CONSUMER_CLOSED,    /* the event has the reason */
  AL_CONSUMER_DOWN
} al_consumer_news;

#define AL_CONSUMER_ARGUMENTS 1

typedef struct al_consumer_kind {
  /* Writes requests before the first consume on a channel. NULL: there are none. */
  void (*prepare)(const al_consumer *);
  /* Writes further arguments of the consume; returns how many, at most AL_CONSUMER_ARGUMENTS. NULL: there are none. */
  int (*arguments)(const al_consumer *, amqp_table_entry_t *);
  /* False: the message is acknowledged, and so deleted. NULL: every message is wanted. */
  bool (*wants)(al_consumer *, const al_content *);
  bool closes;    /* it is cancelled by closing its channel */
  bool takes_two; /* it gets a second message beside the first: `wants` says which one stays */
  /* The consumer has taken this message. RECEIVED is notified after that, perhaps later. NULL: its content is not
   * needed. */
  void (*took)(al_consumer *, const al_content *);
  /* Notifies the owner. If the consumer is OUT now, it is not used after this call, so the owner may free it. */
  void (*told)(al_consumer *, al_consumer_news, const al_event *);
} al_consumer_kind;

struct al_consumer {
  const al_consumer_kind *kind;
  al_session *session;
  al_link *link;
  void *owner;
  const char *queue; /* the owner's text, which must stay valid */
  int priority;
  int64_t
      waiting_since; /* seconds since the epoch, shown in the broker's tools; 0: its owner does not wait */
  al_consumer_state state;
  al_channel *channel;
  char tag[AL_TICKET_SIZE]; /* consumer tag: never used twice */
  uint64_t delivery;        /* delivery tag of the message that it has, or had when it became OUT; 0 */
  int64_t since;            /* when it last sent a consume */
  bool is_asking;           /* al_consumer_ask is not answered yet */
  bool returns;             /* al_consumer_return was called */
};

/* The consumer, on this link of the session, is then OUT. Its owner waits from now on. */
void al_consumer_init(al_consumer *consumer, const al_consumer_kind *kind, al_session *session, al_link *link,
                      void *owner, const char *queue, int priority);

/* If the consumer is OUT, subscribes it to its queue. The link must be open. Returns false, and the consumer stays
 * OUT, if there is no channel. */
bool al_consumer_subscribe(al_consumer *consumer);

/* WAITING: asks whether a message was ready in the queue. If one was, RECEIVED is notified, and EMPTY is not.
 * Otherwise EMPTY is notified. This works because the broker answers a request that was sent after consume-ok was
 * read only after the deliveries that it owed to the consumer. (A request sent together with the consume may be
 * answered before them.) */
void al_consumer_ask(al_consumer *consumer);

/* Asks how many consumers the queue has (queue.declare). COUNTED is notified, unless it waits for a message no more. */
void al_consumer_count(const al_consumer *consumer);

/* HAS: discards the message (acknowledges it), and takes another. */
void al_consumer_discard(al_consumer *consumer);

/* HAS: gives the message back, by a reject or a nack, or acknowledges it, and consumes on: WAITING. So `wants` may
 * acknowledge the first message for the second. */
typedef enum al_consumer_act {
  AL_CONSUMER_NACKS,
  AL_CONSUMER_REJECTS,
  AL_CONSUMER_ACKNOWLEDGES
} al_consumer_act;
void al_consumer_again(al_consumer *consumer, al_consumer_act act);

/* Stops consuming, and gives back the message that it has or that is under way. If the consumer is neither CANCELLING
 * nor OUT yet, one of two things follows: it is OUT when this call returns, and nothing is notified; or it is
 * CANCELLING, and ENDED will be notified. */
void al_consumer_cancel(al_consumer *consumer);

/* The same, but the consumer is OUT only when the broker has the message back, and can give it to another consumer:
 * ENDED will be notified. (A quorum queue may have it a moment later.) */
void al_consumer_return(al_consumer *consumer);

#endif
