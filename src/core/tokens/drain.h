/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A drain is a part of an administrator's operation. It takes messages from a queue before all other consumers, up
 * to a limit (its room), and then either acknowledges all of them, which removes them, or returns them to the
 * queue. It is a consumer with the highest priority, on a channel of its own. While it has room, the broker serves
 * no other consumer. Clients that already hold a message of the queue keep it. (`moves` in drain.c has the states.)
 *
 * The drain cancels its consumer before it acknowledges: otherwise the broker would deliver the next message to
 * it. It never cancels before it has read consume-ok.
 *
 * LINGERING has this reason: in a cluster, RabbitMQ's channel sends acknowledgements to a classic queue on another
 * node by way of a third process there, and sends the notice of its own end directly. If that notice arrives
 * first, the queue takes back the messages that it does not know to be acknowledged. No request that is answered
 * goes the way of the acknowledgements, so no answer tells that they have arrived. So the channel stays open for a
 * while longer, and so do the operation and, in most cases, the connection.
 *
 * A check (`look` in names) tells the state of the queue. A passive declare on the drain's channel gives the
 * number of ready messages and of consumers. Messages that were delivered before that may still be on their way;
 * they have arrived when the qos behind the declare is answered. */
#ifndef AL_CORE_TOKENS_DRAIN_H
#define AL_CORE_TOKENS_DRAIN_H

#include "core/base/backoff.h"
#include "core/base/ids.h"
#include "core/session/op.h"

#define AL_DRAIN_MOST 65535 /* the largest prefetch count */

typedef enum al_drain_state {
  AL_DRAIN_OUT,
  AL_DRAIN_SUBSCRIBING,
  AL_DRAIN_DRAINING,
  AL_DRAIN_LEAVING,
  AL_DRAIN_LINGERING
} al_drain_state;

typedef struct al_drain {
  al_op *op;
  const char *queue, *queue_before; /* `queue_before` is NULL before al_drain_go_on() */
  al_drain_state state;
  al_channel *channel;
  char tag[AL_TICKET_SIZE]; /* the consumer's */
  char tag_before[AL_TICKET_SIZE];
  int room;      /* the most messages it may have from this queue */
  int count;     /* the messages it has from this queue */
  uint64_t last; /* the delivery tag of the latest one */

  bool sifts; /* see al_drain_sift(); `thrown` messages were surplus */
  int nominal, thrown;
  al_ids ids; /* of the permits that it has; the owner frees them */

  /* The check: none is under way; declare-ok is awaited; qos-ok behind it is awaited; its result is here. */
  enum { AL_DRAIN_RESTS, AL_DRAIN_LOOKS, AL_DRAIN_SETTLES, AL_DRAIN_LOOKED } look;
  int ready, consumers; /* at the latest check; the drain is one of the consumers */
  /* Each check since then saw no ready message, no new message in hand, and no other consumer; AL_NEVER. */
  int64_t alone_since;
  int alone_with;    /* messages that had arrived by the latest check */
  int64_t looked_at; /* when the latest check was sent: it tells the state of the queue at a later moment */
  al_backoff wait;   /* between checks */

  bool has_acknowledged, came_late, is_doomed;
  int64_t ends_at; /* LINGERING */
} al_drain;

/* Begins to take messages for `op`, at most `room` at a time, from 1 to AL_DRAIN_MOST. The holder must be open,
 * and `queue` must stay where it is. */
void al_drain_begin(al_drain *drain, al_op *op, const char *queue, int room);

/* Like al_drain_begin(), and acknowledges each surplus message at once, which removes it. A message is surplus if
 * the drain has `nominal` others at that moment, or if it is a permit and the drain has one with the same message
 * id. */
void al_drain_sift(al_drain *drain, al_op *op, const char *queue, int nominal);

/* The drain is full: begins to take as many messages from another queue, too. Both are on one channel, so one
 * frame then acknowledges, or returns, the messages of both queues. Not after al_drain_sift(). */
void al_drain_go_on(al_drain *drain, const char *queue);

bool al_drain_is_full(const al_drain *drain);

/* True: the result of a check is here. The next check begins only after al_drain_rest(). */
bool al_drain_poll_look(al_drain *drain);

/* Checks again after a backoff, at `until` at the latest, or as soon as a message arrives. */
void al_drain_rest(al_drain *drain, int64_t until);

/* True if the last check saw no ready message, but saw the drain: RabbitMQ says of a quorum queue that does not answer
 * within 0.25 s that it has no messages and no consumers. */
bool al_drain_is_bare(const al_drain *drain);

/* True if the last check saw no ready message and no other consumer. Then each other client has given back its
 * message; but the check may have missed a client that was giving back its message at that moment. */
bool al_drain_is_sole(const al_drain *drain);

/* True if that has lasted long enough to miss no client: each message that the drain does not have is lost. */
bool al_drain_is_alone(const al_drain *drain);

/* Acknowledges, or returns, all messages. Poll with al_drain_poll_settled(): the broker's channel has done so. */
void al_drain_acknowledge(al_drain *drain);
void al_drain_return(al_drain *drain);
bool al_drain_poll_settled(const al_drain *drain);

/* True if the drain has no channel: it was never begun, or nothing can happen any more to the messages it took. */
bool al_drain_is_out(const al_drain *drain);

/* Ends LINGERING when its time is over. Before `op` ends, call this from every step until it returns true. */
bool al_drain_poll_end(al_drain *drain);

/* Call this before `op` itself deletes the queue, with the messages that the drain has. */
void al_drain_doom(al_drain *drain);

/* Gives all messages back, without waiting for an answer. */
void al_drain_drop(al_drain *drain);

#endif
