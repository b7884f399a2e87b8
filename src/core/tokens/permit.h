/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The claim on one permit: a message taken from N.semaphore, any message, and never acknowledged. While it is held nobody
 * else can have it; and when this process dies, its channel or its connection ends, the broker gives it to the next.
 *
 * The consumer stays registered while the permit is held: only so does the broker tell its holder that the queue was
 * deleted or went down with its node, after which somebody else may be given the same permit. (So much for basic.get.) It
 * is lost then, and likewise when the broker closes the channel, as it does with whoever keeps a message for longer than
 * its consumer timeout.
 *
 *   state        what happens                                         next
 *   ---------    --------------------------------------------------   ---------------------------------------------
 *   CLAIMING     a message                                            HELD
 *                consume refused                                      GONE        (code says why)
 *                the queue goes, or the channel                       GONE, lost
 *                release, before consume-ok: the channel is closed    GONE
 *                release: cancel, and what is on its way goes back    RELEASING
 *                release, as below: the channel is closed             GONE
 *   HELD         release: cancel, nack, both in one go                GONE, the channel back in the pool
 *                release, as below: the channel is closed             GONE
 *                the queue goes, or the channel                       GONE, lost
 *   RELEASING    cancel-ok                                            GONE, the channel back in the pool
 *   any          the link goes down                                   GONE, lost if it was HELD
 *
 * basic.cancel at a quorum queue that has lost its majority ends the connection after some time, with every lock on it (541,
 * RabbitMQ 3.10 and 4.3); closing the channel does not. So a quorum permit on a connection that has or claims any other lock
 * goes back with its channel: the broker then counts one more delivery of the message. A queue of our making has no limit
 * to that; one that others made may have one, and loses the message when it is reached. There, where it is not known whose
 * the queue is (origin.h), and where the connection has nothing but permits to lose, it is cancel and nack.
 *
 * Letting go of a permit waits for nothing: once written, the broker reads it before whatever is written next, and should
 * the connection be lost before that, it has the same effect. */
#ifndef AL_CORE_TOKENS_PERMIT_H
#define AL_CORE_TOKENS_PERMIT_H

#include "core/queue/consumer.h"
#include "core/session/claim.h"

typedef struct al_permit {
  al_claim claim; /* first */
  al_consumer consumer;
  bool is_quorum;    /* the queue is */
  bool is_none;      /* CLAIMING: none lay ready when al_permit_ask() was answered */
  al_channel *looks; /* asks whether the queue is there, apart from the permit; NULL: nobody asks */
  bool is_deciding;  /* for al_permit_ask() */
  bool is_blind;     /* the broker denies it */
} al_permit;

/* Begins a claim for `op`, which watches it from now on and is its first user. The holder must be open. NULL: no channel or
 * no memory, and the operation has failed. */
al_permit *al_permit_begin(al_op *op, const char *queue, int priority, bool is_quorum);

/* CLAIMING: consume-ok was read, and no message yet. */
bool al_permit_waits(const al_permit *permit);

/* While it waits: asks whether a permit lies ready; see al_consumer_ask(). A quorum queue welcomes its consumers before it has
 * handed out what it has: with `looks_first` it is asked something itself before, which it answers after that. */
void al_permit_ask(al_permit *permit, bool looks_first);

#endif
