/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The channels of a link, with a pool of idle ones. To take a channel costs no round trip: channel.open is written,
 * and requests may be written directly after it. Each channel has one owner, who receives every event on it:
 *
 *   FREE ─ take ─> OPEN ─ give ─> idle, OPEN ─ take ─> …
 *    ^              ├─ al_channel_close ─> CLOSING ─ close-ok ─┐
 *    │              └─ closed by the broker, owner notified ───┤
 *    └─────────────────────────────────────────────────────────┘
 *
 * A channel number is used again only when its close is settled. So no answer can reach the wrong owner.
 *
 * A delivery can reach the wrong owner. When a queue was deleted, deliveries from it may arrive after delete-ok, and
 * so reach the channel's next owner. An owner recognises its own deliveries by the consumer tag.
 *
 * RabbitMQ may send a delivery after its own channel.close; that delivery is dropped. Up to 3.11 RabbitMQ repeats its
 * channel.close every minute until it has read our close-ok; the repeated ones are dropped, too. */
#ifndef AL_CORE_WIRE_CHANNEL_H
#define AL_CORE_WIRE_CHANNEL_H

#include "core/wire/link.h"

typedef enum al_event_kind {
  AL_EVENT_METHOD,  /* a method, decoded */
  AL_EVENT_CONTENT, /* a returned or delivered message has arrived whole */
  AL_EVENT_CLOSED,  /* the broker closed the channel, which the owner no longer has */
  AL_EVENT_DOWN     /* the link went down, and the owner no longer has the channel */
} al_event_kind;

typedef struct al_content {
  amqp_method_number_t method; /* of basic: RETURN, DELIVER or GET_OK */
  uint64_t delivery_tag;
  char consumer_tag
      [AL_TICKET_SIZE]; /* of a delivery; may be an earlier owner's. "" if it is longer than our tags */
  uint64_t left;        /* bytes of the body still to come */
  bool expects_header;
  char message_id[40]; /* "" if there is none or it is too long for this array; ours never are */
  char correlation_id[40];
  char type[40];
  uint32_t others;  /* GET_OK: the number of messages that the queue has beside this one */
  bool redelivered; /* DELIVER, GET_OK: the broker has delivered it before */
  int64_t base;     /* the header AL_HEADER_BASE; -1: there is none */
  /* How often a quorum queue has had this message back, by its headers. `failures`: so many of these times count
   * against a delivery limit; from 4.3 on each of them counts twice in `returns`. */
  int64_t returns, failures;
  bool is_moved; /* its headers tell that it was published again: the count of its returns began anew */
} al_content;

/* What numbers drawn from this message are counted from. */
#define AL_HEADER_BASE "x-amqplocks-base"

/* The headers of a message that was published again: by a dead letter exchange, a shovel, a federation. */
#define AL_HEADERS_OF_MOVES                                                                                  \
  { "x-death", "x-shovelled", "x-received-from" }

typedef struct al_event {
  al_event_kind kind;
  amqp_method_number_t method; /* METHOD: the method. CLOSED: the request that this answers; 0: none */
  void *decoded;
  const al_content *content;
  int reply_code;   /* CLOSED */
  const char *text; /* CLOSED: the broker's reply text */
} al_event;

/* Maps a refused request to a code: REFUSED for 403; LIMIT or CONFLICT for 406, depending on the reply text;
 * otherwise UNREACHABLE. */
al_code al_event_refusal(const al_event *event);

/* The same for a request that gives 405 or 404 a meaning. The result is `locked` for 405: the queue is another
 * connection's exclusive queue. It is `absent` for 404 if there is no such queue, and UNAVAILABLE for 404 if the
 * queue's node is down. */
al_code al_event_code(const al_event *event, al_code locked, al_code absent);

/* CLOSED: true if there is no such queue. The broker answers 404 also when the queue's node is down. Only the reply
 * text tells the two cases apart. */
bool al_event_is_absent(const al_event *event);

typedef void al_channel_fn(void *owner, al_channel *channel, const al_event *event);

struct al_channel {
  al_link *link;
  int number;
  enum { AL_CHANNEL_FREE, AL_CHANNEL_OPEN, AL_CHANNEL_CLOSING } state;
  al_channel_fn *on; /* NULL: the channel has no owner */
  void *owner;
  bool was_closed; /* by the broker, and open-ok has not come since */
  bool
      is_spoilt; /* a consumer that its owner has forgotten may still be on it: al_channel_give() closes it */
  uint16_t prefetch;                     /* of new consumers; 0: al_channel_prefetch was not called */
  char awaits_cancel_of[AL_TICKET_SIZE]; /* see al_channel_give_after: the consumer's tag; "" */
  int64_t awaits_since;
  int unanswered;   /* requests sent and not answered yet */
  int64_t asked_at; /* when the oldest unanswered request was sent, or an earlier one */
  al_content content;
  al_channel *next_idle;
};

/* Returns a channel for `owner`. Returns NULL if the connection is not open, has no channel left, or there is no
 * memory (link->lacks_memory). */
al_channel *al_channel_take(al_link *link, al_channel_fn *on, void *owner);

/* Returns the channel to the pool. Nothing may be consumed or unacknowledged on it. If a request on it is unanswered,
 * it is closed instead. */
void al_channel_give(al_channel *channel);

/* Returns the channel to the pool when the basic.cancel for the consumer with this tag has come. The consumer's queue
 * was deleted, and the basic.cancel has not come yet.
 *
 * The channel is neither used nor closed before that. The reasons: RabbitMQ sends delete-ok before the queue's
 * process has ended. When the process ends, it cancels every consumer of the channel from a queue of that name, also
 * from a queue that was declared since. On a node that is being stopped (from 4.0 on) the process does not end while
 * anybody consumes from its queue, and it then deletes what its connection has declared under that name since.
 *
 * Exception: on a broker where the end of another queue may have removed this queue without a notice
 * (al_link_ends_by_name), the basic.cancel may never come. There the channel is closed after a minute. */
void al_channel_give_after(al_channel *channel, const char *tag);

/* Closes the channel without waiting. Its owner receives nothing more. */
void al_channel_close(al_channel *channel);

/* The same, but its owner receives the end of the channel as the only event: CLOSED with method 0. */
void al_channel_leave(al_channel *channel);

/* Sends a request that the broker answers. */
void al_channel_call(al_channel *channel, amqp_method_number_t method, void *decoded);

/* Asks by a passive declare whether a queue exists. The answer is declare-ok, also if the queue is our own. Otherwise
 * the broker closes the channel: with 405 if the queue is another connection's, with 404 if there is none or its node
 * is down (al_event_is_absent), and from 4.3 on with 403 if the user lacks the permission. */
void al_channel_declare_passive(al_channel *channel, const char *queue);

/* Deletes a queue, with all messages in it. The answer is delete-ok, also if there was no queue. Otherwise the broker
 * closes the channel: with 405 if the queue is another connection's own, with 404 if it is going away or its node is
 * down, and with 403 if the user lacks the permission. */
void al_channel_delete(al_channel *channel, const char *queue);

/* Gets a message of the queue, if it has one, and gives it back, in one write. The answer is the message
 * (AL_EVENT_CONTENT), or get-empty. A quorum queue counts that the message came back. */
void al_channel_peek(al_channel *channel, const char *queue);

/* From now on each new consumer on the channel gets so many messages at a time. */
void al_channel_prefetch(al_channel *channel, uint16_t count);

/* Sends a request that changes nothing and is answered: a basic.qos as al_channel_prefetch(channel, 1) sends. It does not
 * change consumers that exist, or that need no acknowledgements. */
void al_channel_ping(al_channel *channel);

/* For the link. Handles a frame of a channel other than 0. Returns false if the frame breaks the protocol. */
bool al_channel_frame(al_link *link, const amqp_frame_t *frame);
void al_channels_sweep(al_link *link); /* closes channels that have awaited a basic.cancel for too long */
void al_channels_down(al_link *link);  /* notifies every owner, and frees all channels */

#endif
