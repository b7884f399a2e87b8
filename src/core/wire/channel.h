/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Channels of a link, pooled. Taking one costs no round trip: channel.open is written, and what follows may be written
 * behind it. Each channel has one owner, who is told of everything that arrives on it:
 *
 *   FREE ─ take ─> OPEN ─ give ─> idle, OPEN ─ take ─> …
 *    ^              ├─ al_channel_close ─> CLOSING ─ close-ok ─┐
 *    │              └─ closed by the broker, the owner told ───┤
 *    └─────────────────────────────────────────────────────────┘
 *
 * A number is used again only once its close is settled, so no answer can reach the wrong owner. Deliveries can: from a
 * consumer whose queue was deleted they may come after delete-ok, to the channel's next owner; and RabbitMQ may still send
 * one behind its channel.close, which is dropped. So is another channel.close: up to 3.11 it is said again, every minute,
 * until our close-ok was read. */
#ifndef AL_CORE_WIRE_CHANNEL_H
#define AL_CORE_WIRE_CHANNEL_H

#include "core/wire/link.h"

typedef enum al_event_kind {
  AL_EVENT_METHOD,  /* a method, decoded */
  AL_EVENT_CONTENT, /* a returned or delivered message has arrived whole */
  AL_EVENT_CLOSED,  /* the broker closed the channel: it is no longer the owner's */
  AL_EVENT_DOWN     /* the link went down: neither is it */
} al_event_kind;

typedef struct al_content {
  amqp_method_number_t method; /* AMQP_BASIC_RETURN_METHOD or AMQP_BASIC_DELIVER_METHOD */
  uint64_t delivery_tag;
  char consumer_tag
      [AL_TICKET_SIZE]; /* of a delivery; "" if it is longer than ours are. May be an earlier owner's */
  uint64_t left;        /* bytes of the body still to come */
  bool expects_header;
  char message_id[40]; /* "" if there is none or it is longer, as ours never are */
  char correlation_id[40];
  char type[40];
} al_content;

typedef struct al_event {
  al_event_kind kind;
  amqp_method_number_t method; /* METHOD: which. CLOSED: the request it answers, 0 if none */
  void *decoded;
  const al_content *content;
  int reply_code;   /* CLOSED */
  const char *text; /* CLOSED: the broker's words */
} al_event;

/* What the broker's words about a refused request mean, where the request has no reasons of its own: REFUSED, LIMIT,
 * CONFLICT, else UNREACHABLE. */
al_code al_event_refusal(const al_event *event);

/* The same where the request has reasons of its own: `locked` for 405, another connection's exclusive queue; `absent` for 404,
 * there is no such queue. A 404 for a queue whose node is down is UNAVAILABLE. */
al_code al_event_code(const al_event *event, al_code locked, al_code absent);

/* CLOSED by a passive declare: there is no such queue. 404 is also what a queue whose node is down gives; only the words
 * tell them apart. */
bool al_event_is_absent(const al_event *event);

typedef void al_channel_fn(void *owner, al_channel *channel, const al_event *event);

struct al_channel {
  al_link *link;
  int number;
  enum { AL_CHANNEL_FREE, AL_CHANNEL_OPEN, AL_CHANNEL_CLOSING } state;
  al_channel_fn *on; /* NULL: idle, or nobody cares */
  void *owner;
  bool was_closed; /* by the broker, who has not said open-ok since */
  bool is_spoilt;  /* it may still consume what it has forgotten: it is closed where it would be given back */
  bool takes_one;  /* its consumers to come have room for one message; see al_channel_take_one */
  char awaits_cancel_of
      [AL_TICKET_SIZE]; /* the tag of a consumer whose end is awaited before it is given back; "" */
  int64_t awaits_since; /* since when */
  int unanswered;       /* requests sent and not answered yet */
  int64_t asked_at;     /* when the oldest of them was sent, or one before it */
  al_content content;
  al_channel *next_idle;
};

/* A channel for `owner`; NULL if the connection is not open or has no more of them, or no memory. */
al_channel *al_channel_take(al_link *link, al_channel_fn *on, void *owner);

/* Back to the pool. Nothing may be consumed, unacknowledged or unanswered on it. */
void al_channel_give(al_channel *channel);

/* The same, as soon as the consumer with this tag is told to have ended: its queue was deleted, and its basic.cancel has not
 * come. RabbitMQ says delete-ok before the queue's process has ended. At its end it cancels whatever the channel consumes by
 * that name, also from a queue that was made since; and on a node that is being stopped (from 4.0 on) it does not end until
 * nobody consumes from it, and deletes what its connection has made by that name since. So the channel is neither used nor
 * closed before. But where another's end may have taken the queue away, unheard, the basic.cancel never comes: there it is
 * closed after a minute. */
void al_channel_give_after(al_channel *channel, const char *tag);

/* Closes it without waiting; its owner hears nothing more. */
void al_channel_close(al_channel *channel);

/* Sends a request that the broker answers. */
void al_channel_call(al_channel *channel, amqp_method_number_t method, void *decoded);

/* Asks for a queue by a passive declare: declare-ok, also if it is our own; or closed by 405 if it is another connection's,
 * by 404 if there is none, or its node is down (al_event_is_absent), and from 4.3 on by 403 if the user may not. */
void al_channel_look(al_channel *channel, const char *queue);

/* Deletes a queue, with all that is in it: delete-ok, also if there was none; or closed by 405 if it is another connection's
 * own, by 404 if it is going away, or its node is down, and by 403 if the user may not. */
void al_channel_delete(al_channel *channel, const char *queue);

/* Whoever consumes on it from now on gets one message at a time. */
void al_channel_take_one(al_channel *channel);

/* Asks for nothing, and is answered: basic.qos says again what al_channel_take_one() says. It changes nothing for consumers
 * that exist or need no acknowledgements. */
void al_channel_ping(al_channel *channel);

/* For the link: a frame of a channel other than 0; false if it breaks the protocol. */
bool al_channel_frame(al_link *link, const amqp_frame_t *frame);
void al_channels_sweep(al_link *link); /* closes what has waited for too long to be given back */
void al_channels_down(al_link *link);  /* tells every owner, and forgets them all */

#endif
