/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The bolt: what keeps an exclusive queue's holder alone where the queue itself does not.
 *
 * Before 4.3, a RabbitMQ queue that ends takes away whatever stands under its name, be it another's by now. Whoever dies
 * while its declare is on its way leaves such an end behind: its queue begins to live when its owner is dead already. The
 * next holder's queue is then there no more, for anybody but itself; another can be declared beside it; and each of them
 * does the same to the next.
 *
 * So there a claim also consumes, exclusively, from a queue beside the one it declares: Q-bolt. That one is nobody's, it is
 * there before and after, and its own process says who consumes from it. Whoever may not enter while somebody holds Q, and
 * claims no Q of its own (a reader), asks how many consume from the bolt.
 *
 * No message ever goes there. The queue expires when it was not used for a minute. Where it may not be declared or consumed
 * from, claims do without, for a minute. */
#ifndef AL_CORE_BOLT_H
#define AL_CORE_BOLT_H

#include "core/channel.h"

/* Of a broker that needs it; and it was not denied lately. */
bool al_bolt_is_needed(const al_link *link);

/* Before a claim's declare, whose answer says that it is shut: itself it has none. If another has shut it the channel is
 * closed. `tag`: the claim's. */
void al_bolt_shut(al_channel *channel, const char *bolt, const char *tag);

/* At any time after that: nobody waits for the answer to a consume that has none. */
void al_bolt_open(al_channel *channel, const char *tag);

/* Asks who has shut it: the answer is a declare-ok, with as many consumers. */
void al_bolt_look(al_channel *channel, const char *bolt);

/* The channel was closed for the bolt's sake. If it was not that another has it, claims do without from now on. */
bool al_bolt_refused(al_session *session, const al_event *event, const char *bolt);

#endif
