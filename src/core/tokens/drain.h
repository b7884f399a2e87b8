/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A drain takes messages from a queue before everybody else, up to so many, and then either throws away what it has
 * or gives it back. A consumer with the highest priority, on a channel of its own: while it has room, nobody else is
 * served, and whoever holds a message already is not disturbed.
 *
 *   state        what happens                                                 next
 *   ----------   ----------------------------------------------------------   -------------------------------------------
 *   OUT          begin: qos, consume                                          ARRIVING
 *   ARRIVING     consume-ok                                                   COLLECTING, looking
 *   COLLECTING   go on: qos, consume from another queue                       ARRIVING
 *                acknowledge: cancel, ack of all it has, qos                  LEAVING
 *                return: cancel, nack of all it has, qos                      LEAVING
 *   LEAVING      qos-ok: the broker's channel has done it                     LINGERING; or, if nothing was acknowledged,
 *                                                                             OUT, the channel closed
 *   LINGERING    a message that came late: nack                               LINGERING
 *                a tenth of a second                                          OUT, the channel closed
 *   any          closed or cancelled by the broker, link down                 OUT, the operation has failed
 *                drop                                                         OUT, what it had goes back
 *
 * Cancelled first: acknowledged first, it would be given the next message. And never before consume-ok was read.
 *
 * In a cluster RabbitMQ's channel sends what it acknowledges to a classic queue of another node by way of a third process
 * there, and the news of its own end directly. If that comes first the queue takes back what it does not know to be
 * acknowledged. Nothing that is answered goes the same way; so the channel, and the operation, and with it mostly the
 * connection, last a while longer.
 *
 * A look tells how things stand: a passive declare on its own channel gives what lies ready and who consumes; what was
 * delivered by then can still be on its way, and is here when the qos behind that is answered. */
#ifndef AL_CORE_TOKENS_DRAIN_H
#define AL_CORE_TOKENS_DRAIN_H

#include "core/base/backoff.h"
#include "core/session/op.h"
#include "core/tokens/ids.h"

#define AL_DRAIN_MOST 65535 /* what a consumer may be told to have room for */

typedef struct al_drain {
  al_op *op;
  const char *queue, *queue_before; /* NULL: it has not gone on */
  enum { AL_DRAIN_OUT, AL_DRAIN_SUBSCRIBING, AL_DRAIN_DRAINING, AL_DRAIN_LEAVING, AL_DRAIN_LINGERING } state;
  al_channel *channel;
  char tag[AL_TICKET_SIZE]; /* the consumer's */
  char tag_before[AL_TICKET_SIZE];
  int room;      /* never more in hand from this queue */
  int count;     /* in hand from this queue */
  uint64_t last; /* the latest one's delivery tag */

  bool sifts; /* see al_drain_sift */
  int nominal, thrown;
  al_ids ids;

  enum { AL_DRAIN_RESTS, AL_DRAIN_LOOKS, AL_DRAIN_SETTLES, AL_DRAIN_LOOKED } look;
  int ready, consumers; /* at the latest look; it is a consumer itself */
  int64_t
      alone_since; /* at every look since then nothing lay ready, nothing had come, nobody else consumed; AL_NEVER */
  int alone_with;
  int64_t looked_at; /* when the latest look was asked for: it tells of no time before */
  al_backoff wait;   /* between looks */

  bool has_acknowledged, came_late, is_doomed;
  int64_t ends_at; /* LINGERING */
} al_drain;

/* Collects for `op` at most `room` messages at a time, 1 to AL_DRAIN_MOST. The holder must be open, and the name of
 * the queue has to stay where it is. */
void al_drain_begin(al_drain *drain, al_op *op, const char *queue, int room);

/* The same, and throws away at once what is one too many: permits beyond `nominal`, and every further one by the same id.
 * Only while `nominal` others are in hand, or that other one is. */
void al_drain_sift(al_drain *drain, al_op *op, const char *queue, int nominal);

/* Has as many as it wants, and wants as many from another queue, too. They are on one channel, so what is acknowledged or
 * given back is all of it, by one frame. Not for one that sifts. */
void al_drain_go_on(al_drain *drain, const char *queue);

/* It has as many as it wants. */
bool al_drain_is_full(const al_drain *drain);

/* To be looked at in every step of `op`. True: a look is over, and nothing happens until another one is wanted. */
bool al_drain_poll_look(al_drain *drain);

/* Looks again after a while, at `until` at the latest, or as soon as something comes. */
void al_drain_rest(al_drain *drain, int64_t until);

/* At the last look: nothing lay ready, and nobody else consumed. Whoever had a message has given it back; but one that was
 * just then giving it back may have been overlooked. */
bool al_drain_is_sole(const al_drain *drain);

/* It has been so for long enough to overlook nobody: what is not in hand is lost. */
bool al_drain_is_alone(const al_drain *drain);

/* Throws away all it has; or gives it back. Settled when the broker's channel has done so. */
void al_drain_acknowledge(al_drain *drain);
void al_drain_return(al_drain *drain);
bool al_drain_poll_settled(const al_drain *drain);

/* It has no channel: it was never begun, or nothing can happen any more to what it took. */
bool al_drain_is_out(const al_drain *drain);

/* To be asked, before `op` ends, in every step of it until it is true: ends LINGERING when it is time. */
bool al_drain_poll_end(al_drain *drain);

/* The queue is about to be deleted by `op` itself, with what is in hand. */
void al_drain_doom(al_drain *drain);

/* Gives all back without looking back. */
void al_drain_drop(al_drain *drain);

#endif
