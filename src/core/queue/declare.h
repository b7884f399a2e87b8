/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Declares queues: the flags and arguments (the shape) of every queue that this library declares are in this file.
 * Each function writes one queue.declare on the given channel. The answer goes to that channel's owner.
 *
 *   queue                          shape
 *   ----------------------------   ----------------------------------------------------------------------------------
 *   held: B, mutex, door, reader   exclusive, auto-delete, classic, keeps no message; names its holder in an argument
 *   slot: A                        durable, classic or quorum, keeps no message
 *   bell that waiters make         durable, classic, keeps one message, expires after a minute without use
 *   bell of a semaphore            durable, classic
 *   permits, marks                 durable, classic or quorum; no delivery limit; permits: consumer timeout ten years
 *   fast mutex                     durable, classic, single active consumer, keeps one message, refuses more, expires
 *                                  after ten minutes without use
 *   quorum mutex                   durable, quorum, single active consumer, keeps one message, refuses more; no delivery
 *                                  limit, consumer timeout of a minute, disconnected timeout of 15 seconds
 *   bolt                           durable, classic, keeps no message, expires after ten seconds without use
 *   seal                           the same; expires when it was left behind for as long as its holder says
 *   fence                          durable, quorum, no delivery limit, keeps one message
 *   unfinished                     durable, classic: stands beside a fence that has no message yet
 *   scratch                        exclusive, auto-delete, classic: for a metadata write (barrier.h), or a fence's maker
 *
 * A bell is a queue of messages that each wake one waiter. Mutexes and readers-writer locks have a bell that waiters
 * make. The door is the queue that a writer holds. A bolt is a queue beside a held queue, which keeps its holder
 * alone on brokers before 4.3 (bolt.h). A seal tells how the last lock ended (seal.h). name.h has the names of all
 * these queues.
 *
 * If a queue exists with another shape, the broker refuses the declare with 406. docs/protocol.md lists the arguments
 * for other clients. A change here must be made there, too, and must be tried together with the version before. */
#ifndef AL_CORE_QUEUE_DECLARE_H
#define AL_CORE_QUEUE_DECLARE_H

#include "core/wire/channel.h"

/* `acquired_at`: seconds since the epoch. `retain`: for so many seconds the queue may be kept while nobody holds the
 * lock; 0: it is never. These two, the ticket and the holder's name are for people who inspect the broker. */
void al_declare_held(al_channel *channel, const char *queue, const char *ticket, const char *holder,
                     int64_t acquired_at, int64_t retain);

void al_declare_slot(al_channel *channel, const char *queue, bool is_quorum);
void al_declare_bell(al_channel *channel, const char *queue);
void al_declare_waiters_bell(al_channel *channel, const char *queue);
void al_declare_permits(al_channel *channel, const char *queue, bool is_quorum);
void al_declare_marks(al_channel *channel, const char *queue, bool is_quorum);

void al_declare_fast_mutex(al_channel *channel, const char *queue);

/* A consumer timeout, in milliseconds. The broker makes a timer of it, for which 2^53 would be too much. */
#define AL_TEN_YEARS INT64_C(315360000000)

/* The broker's version from which on a quorum queue may be told how soon it takes back the messages of a consumer whose
 * node is unreachable, and how soon the queue of a quorum mutex does so, in milliseconds. */
#define AL_HAS_DISCONNECTED_TIMEOUT 40300
#define AL_MUTEX_DISCONNECTED_TIMEOUT 15000

/* The same of a consumer that gives nothing back, although its node is there: RabbitMQ 4.3 may not have noticed its end. */
#define AL_MUTEX_CONSUMER_TIMEOUT 60000
void al_declare_quorum_mutex(al_channel *channel, const char *queue);

/* `is_answered`: the broker answers with declare-ok, which tells the number of consumers. Otherwise it answers only
 * if it refuses, and need not ask the queue. */
void al_declare_bolt(al_channel *channel, const char *queue, bool is_answered);

/* `settle`: nanoseconds. The broker answers only if it refuses. */
void al_declare_seal(al_channel *channel, const char *queue, int64_t settle);

void al_declare_scratch(al_channel *channel, const char *queue);
void al_declare_fence(al_channel *channel, const char *queue);
void al_declare_unfinished(al_channel *channel, const char *queue);

#endif
