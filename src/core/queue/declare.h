/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The shapes of all queues that this library declares. Each function writes one queue.declare on the channel given; the answer goes
 * to that channel's owner.
 *
 *   queue                          shape
 *   ----------------------------   -------------------------------------------------------------------------------------
 *   held: B, mutex, door, reader   exclusive, auto-delete, classic, keeps no message; tells its holder in its arguments
 *   slot: A                        durable, classic or quorum, keeps no message
 *   bell that waiters make         durable, classic, keeps one message, expires after a minute without use
 *   bell of a semaphore            durable, classic
 *   permits, marks                 durable, classic or quorum; without a limit of deliveries and, for permits, of time
 *   bolt                           durable, classic, keeps no message, expires after ten seconds without use
 *   scratch                        exclusive, auto-delete, classic: a metadata write, and nothing else (barrier.h)
 *
 * A queue that exists with another shape refuses the declare with 406. docs/protocol.md lists the arguments for other clients:
 * what changes here changes there, and is tried with the version before. */
#ifndef AL_CORE_QUEUE_DECLARE_H
#define AL_CORE_QUEUE_DECLARE_H

#include "core/wire/channel.h"

/* `ticket` and `holder` are texts, `acquired_at` seconds since the epoch; they are for people who look at the broker. */
void al_declare_held(al_channel *channel, const char *queue, const char *ticket, const char *holder,
                     int64_t acquired_at);

void al_declare_slot(al_channel *channel, const char *queue, bool is_quorum);
void al_declare_bell(al_channel *channel, const char *queue);
void al_declare_waiters_bell(al_channel *channel, const char *queue);
void al_declare_permits(al_channel *channel, const char *queue, bool is_quorum);
void al_declare_marks(al_channel *channel, const char *queue, bool is_quorum);

/* `is_answered`: with declare-ok, that tells how many consumers there are; otherwise with nothing, unless it is refused. */
void al_declare_bolt(al_channel *channel, const char *queue, bool is_answered);

void al_declare_scratch(al_channel *channel, const char *queue);

#endif
