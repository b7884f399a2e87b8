/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Durable queues whose messages go round and round, from one consumer to the next, and are never to be lost by it. */
#ifndef AL_CORE_QUEUE_DECLARE_H
#define AL_CORE_QUEUE_DECLARE_H

#include "core/wire/channel.h"

/* Declares it on the channel given; the answer goes to that channel's owner. `is_held`: a message may stay with its
 * consumer for as long as that one likes. */
void al_declare_durable(al_channel *channel, const char *queue, bool quorum, bool is_held);

#endif
